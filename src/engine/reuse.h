/* reuse.h - rows of a prompt that an earlier prefill has computed
 *
 * A token's keys and values depend on the tokens before it and on nothing behind it. So the rows
 * of a snapshot are those of another prompt, as far as both begin with the same tokens, when each
 * of them was computed in the sight of all rows before it. What else a snapshot has (logits,
 * queries, scores, indexes) was true behind its own last token, and is left there. */
#ifndef KVPIPE_REUSE_H
#define KVPIPE_REUSE_H

#include "cache/cache.h"
#include "engine/engine_error.h"

struct reuse {
	const uint32_t *ids;            /* the prompt */
	size_t n;
	uint32_t tokens;                /* of the snapshot; reuse_find() */
	uint32_t rows;                  /* that are taken, of each KV head; reuse_find() */
};

/* r was just opened, and is of the model, which expects it, and of the cache's type: u->rows <-
 * how many tokens the snapshot and the prompt begin with, at most `most`. Refuses a snapshot whose
 * tokens are not at positions 0, 1, and so on, ENGINE_ERUN; and, where the model turns the keys of
 * long texts otherwise (longrope), one of a long text for a short prompt or the reverse,
 * ENGINE_EOPTION. */
int reuse_find(struct reuse *u, const struct model *, struct kv_reader *r, uint32_t most,
    struct engine_error *);
/* Reads r to its end: the empty cache has these rows, with c->spare to come, and these tokens
 * then. With c->mass, what they have received must come from these tokens alone. The log begins
 * with them, a tile an event, as if they had been run so. Refuses what has rows that a prefill
 * would not have. */
int reuse_load(const struct reuse *, struct kv_reader *r, struct cache *c, uint32_t tile,
    struct engine_error *);

/* The rows at positions first .. first+n-1 in each KV head, and no others: of every layer of a
 * snapshot that holds a part of a prompt. ENGINE_ERUN, with the place. */
int reuse_check_rows(const struct kv_rows *, const char *name, uint32_t layer, uint32_t first,
    uint32_t n, struct engine_error *);
/* Logs the rows of a cache that has no log yet, a tile an event. */
int reuse_log(struct cache *c, uint32_t tile, struct engine_error *);

#endif
