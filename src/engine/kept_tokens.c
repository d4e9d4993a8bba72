/* kept_tokens.c - determines which tokens of a snapshot's text have rows */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "engine/kept_tokens.h"

static int
take_tokens(struct kept_tokens *out, struct kv_reader *r, struct engine_error *e)
{
	struct kv_tokens tokens;
	const int code = kv_load_tokens(r, &tokens);

	if (code < 0)
		return engine_fail_reader(e, r, code);
	out->n = tokens.n;
	if ((out->id = engine_alloc((size_t)tokens.n, sizeof *out->id, e)) == NULL)
		return e->code;
	memcpy(out->id, tokens.id, (size_t)tokens.n * sizeof *out->id);
	return ENGINE_OK;
}

static int
check_where(const struct kept_tokens *t, const struct kv_reader *r, const struct kept_where *where,
    struct engine_error *e)
{
	const struct kv_head *head = kv_reader_head(r);

	if (where->layer != KEPT_ANYWHERE && where->layer >= head->model.layers)
		return engine_fail(e, ENGINE_EOPTION, "%s: there is no layer %u, only %u layers",
		    kv_reader_name(r), where->layer, head->model.layers);
	if (where->head != KEPT_ANYWHERE && where->head >= head->model.kv_heads)
		return engine_fail(e, ENGINE_EOPTION,
		    "%s: there is no KV head %u, only %u KV heads", kv_reader_name(r), where->head,
		    head->model.kv_heads);
	if (head->next_position != t->n)
		return engine_fail(e, ENGINE_EUNSUPPORTED, "%s: %" PRIu64 " tokens, and the next "
		    "position is %u: the tokens of the rows are unknown (kv-evict --positions "
		    "compact?)",
		    kv_reader_name(r), t->n, head->next_position);
	return ENGINE_OK;
}

/* found[n] += the number of KV heads of `where` that have a row of the token */
static void
count_rows(uint32_t *found, const struct kv_rows *rows, const struct kept_where *where)
{
	uint32_t g, i;

	for (g = 0; g < rows->heads; g++)
		for (i = 0;
		     (where->head == KEPT_ANYWHERE || where->head == g) && i < rows->count[g]; i++)
			found[rows->pos[g][i]]++;
}

/* kept[n] <- 1 if the token was found often enough */
static int
choose(struct kept_tokens *out, const uint32_t *found, const struct kv_model *m,
    const struct kept_where *where, struct engine_error *e)
{
	const uint64_t layers = where->layer == KEPT_ANYWHERE ? m->layers : 1;
	const uint64_t heads = where->head == KEPT_ANYWHERE ? m->kv_heads : 1;
	const uint64_t least = where->all ? layers * heads : 1;
	uint64_t i;

	if ((out->kept = engine_alloc((size_t)out->n, 1, e)) == NULL)
		return e->code;
	for (i = 0; i < out->n; i++)
		out->kept[i] = found[i] >= least;
	return ENGINE_OK;
}

/* Reads the sections after TOKS. */
static int
read_rows(struct kept_tokens *out, struct kv_reader *r, const struct kept_where *where,
    struct engine_error *e)
{
	uint32_t *found = engine_alloc((size_t)out->n, sizeof *found, e);
	const struct kv_rows *rows;
	struct kv_section sec;
	int code = found != NULL ? KV_OK : KV_ENOMEM, rc;

	if (found == NULL)
		return e->code;
	while (code >= 0 && (code = kv_next(r, &sec)) == 1) {
		if (sec.kind != KV_POSN ||
		    (where->layer != KEPT_ANYWHERE && where->layer != sec.layer))
			code = kv_skip(r);
		else if ((code = kv_load_rows(r, &rows)) == KV_OK)
			count_rows(found, rows, where);
	}
	rc = code < 0 ? engine_fail_reader(e, r, code) :
	    choose(out, found, &kv_reader_head(r)->model, where, e);
	free(found);
	return rc;
}

int
kept_tokens_read(struct kept_tokens *out, struct kv_reader *r, const struct kept_where *where,
    struct engine_error *e)
{
	struct kv_section sec;
	int code;

	*out = (struct kept_tokens){ .n = 0 };
	if ((code = kv_next(r, &sec)) < 0)      /* TOKS is always the first */
		return engine_fail_reader(e, r, code);
	if ((code = take_tokens(out, r, e)) != ENGINE_OK)
		return code;
	if (where != NULL)
		return (code = check_where(out, r, where, e)) != ENGINE_OK ? code :
		    read_rows(out, r, where, e);
	while ((code = kv_next(r, &sec)) == 1 && (code = kv_skip(r)) >= 0)
		continue;
	return engine_read(e, r, code);
}

void
kept_tokens_free(struct kept_tokens *t)
{
	free(t->id);
	free(t->kept);
}
