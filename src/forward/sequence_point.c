/* sequence_point.c - a state of a sequence to go back to */
#include <stdlib.h>

#include "forward/sequence_point.h"

int
sequence_point_take(struct sequence *s, struct sequence_point *p)
{
	p->feature = NULL;
	if (cache_point_take(s->cache, &p->cache) != 0)
		return MODEL_ENOMEM;
	if (s->head != NULL && head_keys_feature(s->head, &p->feature) != KV_OK)
		return MODEL_ENOMEM;
	return 0;
}

void
sequence_point_free(struct sequence_point *p, const struct sequence *s)
{
	cache_point_free(&p->cache, s->cache);
	free(p->feature);
	p->feature = NULL;
}

int
sequence_cut(struct sequence *s, struct sequence_point *p)
{
	const int rc = cache_cut(s->cache, &p->cache);

	sequence_match_lengths(s);
	if (rc == 0 && s->head != NULL)
		head_keys_cut(s->head, p->cache.n_tokens, p->feature);
	return rc;
}
