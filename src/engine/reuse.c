/* reuse.c - rows of a prompt that an earlier prefill has computed */
#include <stdlib.h>
#include <string.h>

#include "cache/cache_sections.h"
#include "engine/reuse.h"
#include "libkvfile/codec.h"

int
reuse_find(struct reuse *u, const struct model *m, struct kv_reader *r, uint32_t most,
    struct engine_error *e)
{
	const uint32_t next = kv_reader_head(r)->next_position;
	struct kv_tokens tokens;
	struct kv_section sec;
	uint32_t k;

	if (!model_turns_alike(m, u->n))
		return engine_fail(e, ENGINE_EUNSUPPORTED, "--reuse: this model (longrope) scales "
		    "RoPE differently beyond %u tokens, and %s is on the other side of that limit: "
		    "the prompt has %zu tokens", m->id.rope_original_max_position,
		    kv_reader_name(r), u->n);
	if (engine_read(e, r, kv_next(r, &sec)) != ENGINE_OK ||      /* TOKS is always the first */
	    engine_read(e, r, kv_load_tokens(r, &tokens)) != ENGINE_OK)
		return e->code;
	if (tokens.n != next)
		return engine_fail(e, ENGINE_EUNSUPPORTED, "%s: it has %llu tokens, and the next "
		    "one is at position %u: its rows were renumbered, or are of selected tokens",
		    kv_reader_name(r), (unsigned long long)tokens.n, next);
	if (most > u->n)
		most = (uint32_t)u->n;
	for (k = 0; k < most && k < tokens.n && tokens.id[k] == u->ids[k]; k++)
		;
	u->tokens = next;
	u->rows = k;
	return ENGINE_OK;
}

int
reuse_check_rows(const struct kv_rows *rows, const char *name, uint32_t layer, uint32_t first,
    uint32_t n, struct engine_error *e)
{
	uint32_t g;

	for (g = 0; g < rows->heads; g++)       /* positions ascend */
		if (rows->count[g] != n || (n > 0 && (rows->pos[g][0] != first ||
		    rows->pos[g][n - 1] != first + n - 1)))
			return engine_fail(e, ENGINE_EUNSUPPORTED, "%s: layer %u, KV head %u has "
			    "%u rows of %u tokens: a prompt that runs from its beginning has them "
			    "all", name,
			    layer, g, rows->count[g], n);
	return ENGINE_OK;
}

int
reuse_log(struct cache *c, uint32_t tile, struct engine_error *e)
{
	if (cache_log_tiles_before(c, c->next_position, 0, tile) != 0 ||
	    cache_log(c, KV_EVENT_EVICT, 0, 0, c->model->id.layers) != 0)
		return engine_fail(e, ENGINE_ERUN, "no memory for the event log");
	return ENGINE_OK;
}

/* Checks a layer with a window, which has only the rows that the token after the snapshot sees:
 * these can only be reused if the prompt continues the snapshot. */
static int
check_window(const struct reuse *u, const struct kv_reader *r, uint32_t layer, uint32_t first,
    struct engine_error *e)
{
	if (first == 0 || u->rows == 0 || u->rows == u->tokens)
		return ENGINE_OK;
	return engine_fail(e, ENGINE_EUNSUPPORTED, "%s: layer %u has a sliding window and holds "
	    "positions from %u on: it can be continued, but not cut back to the %u tokens that "
	    "this prompt shares",
	    kv_reader_name(r), layer, first, u->rows);
}

/* Gives the cache the positions of a layer's reused rows, the first ones of each KV head. */
static int
take_positions(const struct reuse *u, struct kv_reader *r, struct cache *c, uint32_t layer,
    struct engine_error *e)
{
	const struct kv_rows *there;
	const uint32_t first = kv_first_seen(&c->model->id, layer, u->tokens);
	uint32_t *count, g;
	int rc = kv_load_rows(r, &there), i;

	if (rc != KV_OK)
		return engine_read(e, r, rc);
	if (check_window(u, r, layer, first, e) != ENGINE_OK || reuse_check_rows(there,
	    kv_reader_name(r), layer, first, u->tokens - first, e) != ENGINE_OK)
		return e->code;
	if ((count = engine_alloc(there->heads, sizeof *count, e)) == NULL)
		return e->code;
	for (g = 0; g < there->heads; g++)
		count[g] = u->rows > first ? u->rows - first : 0;
	rc = cache_layer_init(c, layer, &(struct kv_rows){ there->heads, count, there->pos });
	free(count);
	if (c->mass != NULL)
		c->mass[layer].whole = u->rows == 0;
	if (c->query_stats != NULL)
		c->query_stats->whole[layer] = u->rows == 0;
	for (i = 0; i < ROW_LISTS; i++)
		if (c->lists[i] != NULL)
			c->lists[i]->whole[layer] = u->rows == 0;
	return rc == 0 ? ENGINE_OK : engine_fail(e, ENGINE_ENOROOM, "%s: layer %u: no memory for "
	    "%u rows", kv_reader_name(r), layer, u->rows);
}

/* Loads a section. Query statistics and attention mass are loaded only if all rows of the snapshot
 * are reused. */
static int
take_section(const struct reuse *u, struct kv_reader *r, const struct kv_section *sec,
    struct cache *c, struct engine_error *e)
{
	switch (sec->kind) {
	case KV_POSN:
		return take_positions(u, r, c, sec->layer, e);
	case KV_GATE:
	case KV_NCAU:
	case KV_KEYS:
	case KV_VALS:
		return u->rows > 0 ? engine_read(e, r, snapshot_take(r, sec, c, NULL)) : ENGINE_OK;
	case KV_QSTA:
	case KV_MASS:
		return u->rows == u->tokens ? engine_read(e, r, snapshot_take(r, sec, c, NULL)) :
		    ENGINE_OK;
	default:
		return ENGINE_OK;
	}
}

/* *first <- the position, from the log, from which on tokens were generated: these may have
 * attended by retrieval, and not to all rows. */
static int
find_decoded(const struct reuse *u, const struct kv_reader *r, struct kv_log *log, uint32_t *first,
    struct engine_error *e)
{
	struct kv_event event;
	int rc;

	*first = u->tokens;
	if (kv_log_count(log, 0) == 0)
		return engine_fail(e, ENGINE_ERUN, "%s: it has no event log, so how its rows were "
		    "made is unknown", kv_reader_name(r));
	while ((rc = kv_log_next(log, &event)) == 1)
		if (event.kind == KV_EVENT_DECODE && event.before[0] < *first)
			*first = event.before[0];
	return rc < 0 ? engine_fail(e, ENGINE_EDAMAGED, "%s", kv_log_error(log)) : ENGINE_OK;
}

/* Checks by the provenance, which has all options, that generated tokens did not retrieve; without
 * provenance that is unknown. */
static int
check_decoded(const struct reuse *u, const struct kv_reader *r, struct kv_log *log,
    struct engine_error *e)
{
	const char *made = kv_reader_provenance(r);
	uint32_t first;

	if (find_decoded(u, r, log, &first, e) != ENGINE_OK)
		return e->code;
	if (u->rows <= first || (*made != '\0' && strstr(made, "\"retrieve\"") == NULL))
		return ENGINE_OK;
	return engine_fail(e, ENGINE_EUNSUPPORTED, "%s: rows from position %u on were generated%s: "
	    "a prefill would not have them", kv_reader_name(r), first, *made != '\0' ?
	    " with --retrieve, each in the sight of few others" : ", and nothing says how");
}

/* Refuses query statistics, attention mass and numbers of rows that are wanted, and not of
 * all tokens. */
static int
check_sums(const struct kv_reader *r, const struct cache *c, struct engine_error *e)
{
	const uint32_t L = c->model->id.layers;
	uint32_t l;

	for (l = 0; c->mass != NULL && l < c->model->id.layers; l++)
		if (!c->mass[l].whole)
			return engine_fail(e, ENGINE_ERUN, "%s: layer %u has no attention mass of "
			    "these tokens alone, and --mass cannot add it later",
			    kv_reader_name(r), l);
	for (l = 0; c->query_stats != NULL && l < c->model->id.layers; l++)
		if (!c->query_stats->whole[l])
			return engine_fail(e, ENGINE_ERUN, "%s: layer %u has no query statistics "
			    "of these tokens alone, and --query-stats cannot add them later",
			    kv_reader_name(r), l);
	if ((l = row_lists_missing(c->lists[ROW_GATE], L)) < L)
		return engine_fail(e, ENGINE_ERUN, "%s: layer %u has no scores of this gate, and "
		    "--gate cannot add them later", kv_reader_name(r), l);
	if ((l = row_lists_missing(c->lists[ROW_NONCAUSAL], L)) < L)
		return engine_fail(e, ENGINE_ERUN, "%s: layer %u has no non-causal attention (%s), "
		    "and --noncausal cannot add it later", kv_reader_name(r), l,
		    c->noncausal->label);
	return ENGINE_OK;
}

static int
load(const struct reuse *u, struct kv_reader *r, struct cache *c, struct kv_log *log,
    struct engine_error *e)
{
	struct kv_section sec;
	int rc;

	while ((rc = kv_next(r, &sec)) == 1) {
		if ((rc = kv_log_see(log, r, &sec)) < 0)
			break;
		if (take_section(u, r, &sec, c, e) != ENGINE_OK)
			return e->code;
	}
	if (rc < 0)
		return engine_read(e, r, rc);
	if (check_decoded(u, r, log, e) != ENGINE_OK || check_sums(r, c, e) != ENGINE_OK)
		return e->code;
	if (u->rows > 0 && cache_add_tokens(c, u->ids, u->rows) != 0)
		return engine_fail(e, ENGINE_ERUN, "no memory for %u tokens", u->rows);
	c->next_position = u->rows;
	return ENGINE_OK;
}

int
reuse_load(const struct reuse *u, struct kv_reader *r, struct cache *c, uint32_t tile,
    struct engine_error *e)
{
	struct kv_log *log = kv_log_new(kv_reader_head(r));
	int rc;

	if (log == NULL)
		return engine_fail(e, ENGINE_ERUN, "no memory for the event log");
	rc = load(u, r, c, log, e);
	kv_log_free(log);
	return rc == ENGINE_OK ? reuse_log(c, tile, e) : rc;
}
