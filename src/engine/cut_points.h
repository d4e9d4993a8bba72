/* cut_points.h - places in a generated text at which it may turn out to have ended
 *
 * A stop text that takes several tokens is known when its last one is. What ran of it is taken
 * back, so that a snapshot ends where the text does. */
#ifndef KVPIPE_CUT_POINTS_H
#define KVPIPE_CUT_POINTS_H

#include "engine/decode.h"

struct cut_point {
	uint32_t id;                    /* the token that runs here */
	uint64_t text;                  /* bytes of text before it */
	int whole;                      /* no character is unfinished there */
	struct sequence_point point;
};

/* All zero: there is none. */
struct cut_points {
	struct cut_point *at;
	size_t n;
};

/* Before a token is run: each, from the first point on. Returns an ENGINE_* code. */
int cut_points_add(struct cut_points *, struct decode *, uint32_t id, uint64_t text, int whole,
    struct engine_error *);
/* The text does not end before this byte: what is further in front is forgotten. */
void cut_points_pass(struct cut_points *, struct decode *, uint64_t text);
/* Where the cache is cut when the text ends at this byte: there, or, where that is inside a token,
 * before this one. There is a point. */
struct cut_point *cut_points_find(const struct cut_points *, uint64_t text);
void cut_points_free(struct cut_points *, struct decode *);

#endif
