/* compare_tokens.h - compares the token ids of two snapshots: how many at the start are the same
 *
 * Both are read at the same time, with a block of each in memory. */
#ifndef KVPIPE_COMPARE_TOKENS_H
#define KVPIPE_COMPARE_TOKENS_H

#include "engine/layer_reader.h"

/* How the ids of b relate to those of a: equal, a's continued, a beginning of a's, or other */
enum tokens { TOKENS_SAME, TOKENS_CONTINUED, TOKENS_BEGINNING, TOKENS_OTHER };

struct tokens_compared {
	enum tokens how;
	uint64_t common;                /* ids at the start that are the same */
};

/* *out <- the comparison; sets n_tokens of a and b. Call it before the first layer of both. Returns
 * an ENGINE_* code. */
int compare_tokens(struct tokens_compared *, struct layer_reader *a, struct layer_reader *b,
    struct engine_error *);

#endif
