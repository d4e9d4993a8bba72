/* compare_tokens.c - compares the token ids of two snapshots */
#include "engine/compare_tokens.h"
#include "libkvfile/codec.h"

/* Ids that were read and not yet compared */
struct part {
	struct layer_reader *s;
	const uint32_t *id;
	size_t n;
};

/* Reads up to TOKS, which comes first. */
static int
find_tokens(struct layer_reader *s, struct engine_error *e)
{
	struct kv_section sec;
	const int code = kv_next(s->r, &sec);

	if (code < 0)
		return engine_fail_reader(e, s->r, code);
	s->n_tokens = kv_token_count(&sec);
	return ENGINE_OK;
}

/* Reads more ids if none are left. p->n 0 after that: there are no more. */
static int
refill(struct part *p, struct engine_error *e)
{
	const void *data;
	size_t size;
	int code;

	if (p->n > 0)
		return ENGINE_OK;
	if ((code = kv_read(p->s->r, &data, &size)) < 0)
		return engine_fail_reader(e, p->s->r, code);
	p->id = data;
	p->n = size / sizeof *p->id;
	return ENGINE_OK;
}

/* Removes the ids at the beginning of both parts that are the same, and returns their number. */
static size_t
take_common(struct part *a, struct part *b)
{
	const size_t most = a->n < b->n ? a->n : b->n;
	size_t i = 0;

	while (i < most && a->id[i] == b->id[i])
		i++;
	if (i == 0)
		return 0;               /* the pointer of a part without ids may be NULL */
	a->id += i;
	b->id += i;
	a->n -= i;
	b->n -= i;
	return i;
}

int
compare_tokens(struct tokens_compared *out, struct layer_reader *a, struct layer_reader *b,
    struct engine_error *e)
{
	struct part x = { .s = a }, y = { .s = b };
	size_t common;

	*out = (struct tokens_compared){ .how = TOKENS_OTHER };
	if (find_tokens(a, e) != ENGINE_OK || find_tokens(b, e) != ENGINE_OK)
		return e->code;
	do {
		if (refill(&x, e) != ENGINE_OK || refill(&y, e) != ENGINE_OK)
			return e->code;
		out->common += common = take_common(&x, &y);
	} while (common > 0);
	if (x.n == 0 || y.n == 0)
		out->how = a->n_tokens == b->n_tokens ? TOKENS_SAME :
		    a->n_tokens < b->n_tokens ? TOKENS_CONTINUED : TOKENS_BEGINNING;
	return ENGINE_OK;
}
