/* sequence_point.h - a state of a sequence to go back to: cache/cache_point.h, with its retrieval
 * head and its offloaded layers */
#ifndef KVPIPE_SEQUENCE_POINT_H
#define KVPIPE_SEQUENCE_POINT_H

#include "cache/cache_point.h"
#include "forward/sequence.h"

struct sequence_point {
	struct cache_point cache;
	float *feature;                 /* of the last token, for a retrieval head; or NULL */
};

/* As cache_point_take(), cache_point_free() and cache_cut(), for the whole sequence. */
int sequence_point_take(struct sequence *, struct sequence_point *);
void sequence_point_free(struct sequence_point *, const struct sequence *);
int sequence_cut(struct sequence *, struct sequence_point *);

#endif
