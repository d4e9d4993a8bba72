/* reuse.h - rows of a prompt that an earlier prefill has computed
 *
 * A token's keys and values depend on the tokens before it and on nothing after it. So the rows of
 * a snapshot are those of another prompt, as far as both begin with the same tokens, if each was
 * computed with all rows before it visible. Everything else in a snapshot (logits, queries, scores,
 * indexes) belongs to the state after its last token, and is not reused. */
#ifndef KVPIPE_REUSE_H
#define KVPIPE_REUSE_H

#include "cache/cache.h"
#include "engine/engine_error.h"

struct reuse {
	const uint32_t *ids;            /* the prompt */
	size_t n;
	uint32_t tokens;                /* of the snapshot; reuse_find() */
	uint32_t rows;                  /* to reuse, of each KV head; reuse_find() */
};

/* u->rows <- how many tokens are the same at the beginning of snapshot and prompt, at most `most`.
 * r was just opened; its model and type of rows have been checked. ENGINE_ERUN for a snapshot whose
 * tokens are not at positions 0, 1, and so on; ENGINE_EOPTION if the model rotates the keys of long
 * texts differently (longrope), and only one of snapshot and prompt is long. */
int reuse_find(struct reuse *u, const struct model *, struct kv_reader *r, uint32_t most,
    struct engine_error *);
/* Reads r to its end, and loads the rows and tokens to reuse into the empty cache, with room for
 * c->spare more rows. With c->mass, their attention mass must be from these tokens only. Logs them
 * as if they had been run here, one event for each tile. Refuses a snapshot whose rows are not
 * those of a prefill. */
int reuse_load(const struct reuse *, struct kv_reader *r, struct cache *c, uint32_t tile,
    struct engine_error *);

/* Fails with ENGINE_ERUN, naming layer and KV head, unless each KV head has exactly the rows at
 * positions first .. first+n-1, as in a snapshot that has a part of a prompt. */
int reuse_check_rows(const struct kv_rows *, const char *name, uint32_t layer, uint32_t first,
    uint32_t n, struct engine_error *);
/* Logs the rows of a cache that has no log yet, one event for each tile. */
int reuse_log(struct cache *c, uint32_t tile, struct engine_error *);

#endif
