/* score_internal.h - shared by score.c and score_device.c */
#ifndef KVPIPE_SCORE_INTERNAL_H
#define KVPIPE_SCORE_INTERNAL_H

#include "engine/score.h"

enum { SCORE_HEADS = 4096 };            /* KV heads at most: kv-snapshot(5), 4.1 */

/* Fails for a row whose score is NaN; returns ENGINE_ERUN */
int score_refuse_nan(uint32_t layer, uint32_t head, uint32_t row, struct engine_error *);

/* Sets in.filter, if the method needs it. ENGINE_EDAMAGED: filters of another shape */
int score_filter(const struct scorer *, struct score_input *, struct engine_error *);

#endif
