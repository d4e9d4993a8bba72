/* sequence.h - a text that runs: its cache, and how its next tokens read it
 *
 * forward() and its callers take a sequence. A sequence with a cache only attends to all rows:
 * struct sequence s = { .cache = c }. Whoever fills it owns what it points to, and frees it by
 * sequence_free() or member by member. Letters as in ops.h. */
#ifndef KVPIPE_SEQUENCE_H
#define KVPIPE_SEQUENCE_H

#include "cache/cache.h"
#include "offload/offload.h"
#include "retrieval/head_keys.h"
#include "retrieval/retrieval.h"

struct probe_mass;

struct sequence {
	struct cache *cache;
	struct retrieval *retrieval;    /* how single rows attend; NULL: to all rows */
	struct head_keys *head;         /* a retrieval head that sees the tokens; NULL: none */
	int head_other;                 /* 1: the snapshot had keys of another head */
	/* Offloaded layers: those from offload_from on that have no window; NULL: none. Set both
	 * before rows are loaded. Of these layers the cache has only lengths and positions. */
	struct offload *offload;
	uint32_t offload_from;
	/* gets the attention mass from probe tokens (probe_mass.h); NULL: not wanted */
	struct probe_mass *probe_mass;
};

/* Frees all members, the store of the offloaded layers included. */
void sequence_free(struct sequence *);                 /* all zero is allowed */

/* ---- memory ---- */

/* Makes room for more rows in every KV head of every layer, or of layers l0 .. l1-1, as
 * cache_reserve(), and for retrieval from them. Returns 0, or MODEL_ENOMEM. */
int sequence_reserve(struct sequence *, uint32_t more);
int sequence_reserve_layers(struct sequence *, uint32_t more, uint32_t l0, uint32_t l1);
/* Makes room for `rows` rows that run at once: in the retrieval head, for keys of all tokens seen
 * and features of these rows, and in the tails of offloaded layers. Returns 0, or MODEL_ENOMEM. */
int sequence_reserve_step(struct sequence *, uint32_t rows);

/* ---- retrieval and offloading ---- */

/* Stores the retrieval, by which a row that runs alone attends. Every layer that is not dense must
 * have its index; cache->mass must not be wanted. Returns 0, or MODEL_ENOMEM. */
int sequence_retrieve(struct sequence *, struct retrieval *);
/* Opens the offloaded layers of a loaded sequence for this retrieval, or (NULL) so that each step
 * reads them whole; rows that no index covers go to the tails on the device. Returns 0,
 * MODEL_ENOMEM, or MODEL_EINVALID (the store has the message). */
int sequence_open_offloaded(struct sequence *, const struct retrieval_options *);
/* Offloads layer l. Its loaded rows are read from the file, or moved to host memory. Returns 0, or
 * MODEL_ENOMEM. */
int sequence_offload_layer(struct sequence *, uint32_t l);

/* Gives offloaded layers the lengths of the cache's, after these have changed without
 * forward(). */
void sequence_match_lengths(struct sequence *);

/* ---- rows that run, for forward() ---- */

/* Returns the rows of layer l that an op appends to: the layer, or the device_rows of an offloaded
 * one. */
struct layer_rows *sequence_append_to(struct sequence *, uint32_t l);
/* Counts the N rows at positions pos[N] (host) that the op has appended there. */
void sequence_appended(struct sequence *, uint32_t l, const uint32_t *pos, uint32_t N);
/* Returns the rows of layer l that a query may attend to, all of them. A layer that is offloaded
 * and read whole is copied to the device, and valid until the next one is; after a failure, which
 * the store has, its content is undefined. */
const struct layer_rows *sequence_whole_rows(struct sequence *, uint32_t l);
/* Returns the rows of layer l with their row numbers; of an offloaded layer only rows from
 * index_covers() on may be read. Valid until the layer changes. */
const struct layer_rows *sequence_last_rows(struct sequence *, uint32_t l);

/* Appends the keys of the tokens before N rows at positions pos[N] (host) to the retrieval head.
 * For one row that retrieves by the head, scores all tokens, and starts to fetch offloaded rows.
 * Call it before the rows run through the first layer. */
void sequence_head_begin(struct sequence *, const uint32_t *pos, uint32_t N);
/* Adds to the head's features from x[N][D] (device). Call it before the rows run through layer
 * l. */
void sequence_head_note(struct sequence *, uint32_t l, const float *x, const uint32_t *pos,
    uint32_t N);
/* Appends the missing keys of all tokens to the head. Call it after all tokens have run. */
void sequence_head_end(const struct sequence *);

#endif
