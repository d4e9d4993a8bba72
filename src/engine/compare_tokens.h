/* compare_tokens.h - the token ids of two snapshots: how many at the start are the same
 *
 * Read in step, a block of each in memory. */
#ifndef KVPIPE_COMPARE_TOKENS_H
#define KVPIPE_COMPARE_TOKENS_H

#include "engine/layer_reader.h"

/* The ids of b, to those of a. */
enum tokens { TOKENS_SAME, TOKENS_CONTINUED, TOKENS_BEGINNING, TOKENS_OTHER };

struct tokens_compared {
	enum tokens how;
	uint64_t common;                /* ids at the start that are the same */
};

/* Before the first layer of both; sets their n_tokens. Returns an ENGINE_* code. */
int compare_tokens(struct tokens_compared *, struct layer_reader *a, struct layer_reader *b,
    struct engine_error *);

#endif
