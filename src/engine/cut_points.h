/* cut_points.h - places in a generated text at which it may have ended, which is known only later
 *
 * A stop text of several tokens is recognised at its last token. Its earlier tokens have run by
 * then; the cache goes back to before them, so that a snapshot ends where the text does. */
#ifndef KVPIPE_CUT_POINTS_H
#define KVPIPE_CUT_POINTS_H

#include "engine/decode.h"

struct cut_point {
	uint32_t id;                    /* the token that runs here */
	uint64_t text;                  /* bytes of text before it */
	int whole;                      /* 1: not inside a character */
	struct sequence_point point;
};

/* All zero: no points. */
struct cut_points {
	struct cut_point *at;
	size_t n;
};

/* Adds a point before a token runs; while there are points, call it before every token. Returns an
 * ENGINE_* code. */
int cut_points_add(struct cut_points *, struct decode *, uint32_t id, uint64_t text, int whole,
    struct engine_error *);
/* Drops the points that are no longer needed, because the text does not end before byte `text`. */
void cut_points_pass(struct cut_points *, struct decode *, uint64_t text);
/* Returns the point at which to cut the cache when the text ends at this byte: there, or, inside a
 * token, before that token. There must be a point. */
struct cut_point *cut_points_find(const struct cut_points *, uint64_t text);
void cut_points_free(struct cut_points *, struct decode *);

#endif
