/* cache.h - the KV cache of one sequence on a device: keys, values, positions, attention mass and
 * indexes of its rows, and its event log. What its next tokens read it by: forward/sequence.h
 *
 * Letters as in ops.h. */
#ifndef KVPIPE_CACHE_H
#define KVPIPE_CACHE_H

#include "cache/index.h"
#include "model/model.h"

/* Attention mass of the rows of a layer: the sum over all queries so far, for H2O. */
struct attention_mass {
	/* device [H][stride]: a list for each query head, rows as those of its KV head */
	float *sum;
	size_t stride;                 /* capacity of each list: that of the longest head */
	/* 1: the sum is over all queries; 0: rows were loaded without their mass */
	int whole;
};

/* Keys and values of one sequence on a device. Rows of KV head g in layer l: see struct
 * layer_rows. */
struct cache {
	const struct model *model;
	enum kv_dtype dtype;
	uint32_t next_position;
	uint32_t *tokens;              /* host [n_tokens] ids seen so far */
	size_t n_tokens, cap_tokens;
	/* tokens that have run through the first layer here, also those that are not stored, or run
	 * once more: for who reports it */
	uint64_t ran;
	struct layer_rows *layer;      /* [L] */
	/* host [L][G] -> [len]: a copy of the positions; cache_rows() */
	uint32_t ***pos;
	unsigned char *positions_only; /* [L] cache_positions_only() */
	/* 1: rows that no query can see any more stay, in layers with a window */
	int keeps_unseen;
	int marked;                    /* cache_mark() */
	/* rows that a query at this position or behind it sees stay, since the text may be cut
	 * there (cache_point.h); UINT32_MAX: it is not */
	uint32_t cut_from;
	/* spare capacity, in rows, that loading gives each head; set it before */
	uint32_t spare;
	struct attention_mass *mass;         /* [L], or NULL: not wanted; cache_want_mass() */
	/* [L] retrieval indexes, made from the keys; NULL: not wanted, cache_want_indexes(). They
	 * grow with the rows, and are dropped when a row is. */
	struct layer_index *index;
	unsigned index_kinds;          /* 1 << enum kv_kind for each that is wanted */
	unsigned index_dropped;        /* for each that was dropped in some layer */
	float *logits;                 /* host [V] after the last token; NULL when not known */
	/* the event log, when it is complete from the first token on; else there is none */
	int logged;
	struct kv_log_content log;
	uint32_t *logged_rows;         /* host [L][G] rows after the last event */
};

/* Bytes of the device for one row of one KV head: key, value, position, and, with mass, a
 * number for each of its query heads. */
uint64_t cache_row_bytes(const struct model *m, enum kv_dtype dtype, int mass);
/* An empty cache with keys and values of the given type. NULL without memory. */
struct cache *cache_new(const struct model *m, enum kv_dtype dtype);
void cache_free(struct cache *);                                /* NULL allowed */
/* From now on forward() adds attention mass to c->mass, H * 4 bytes for each row of capacity.
 * Only for an empty cache; snapshot_take() then loads what is stored. Returns 0, or
 * MODEL_ENOMEM. */
int cache_want_mass(struct cache *);
/* From now on indexes of these kinds (1 << enum kv_kind each) are loaded with the rows, extended
 * for those that are appended, and saved. Only for an empty cache. Returns 0, or MODEL_ENOMEM. */
int cache_want_indexes(struct cache *, unsigned kinds);
/* The indexes of layer l; NULL where none are wanted. */
struct layer_index *cache_index(const struct cache *, uint32_t l);
/* Makes room for more rows in every KV head of every layer, or of layers l0 .. l1-1; in layers with
 * a window, for as many of them as stay and a tile: who brings more makes room before each tile.
 * Returns 0, or MODEL_ENOMEM. */
int cache_reserve(struct cache *, uint32_t more);
int cache_reserve_layers(struct cache *, uint32_t more, uint32_t l0, uint32_t l1);
/* Layer l keeps positions and lengths only: frees its keys and values, which somebody else has (an
 * offloaded layer), or, before rows are loaded, allocates none. Returns 0, or MODEL_ENOMEM. */
int cache_positions_only(struct cache *, uint32_t l);
/* Gives an empty layer these rows (keys and values to be filled in) and capacity for c->spare
 * more. Returns 0, or MODEL_ENOMEM. */
int cache_layer_init(struct cache *, uint32_t l, const struct kv_rows *);
/* The rows of layer l, from the host's copy; valid until rows are appended or dropped. */
struct kv_rows cache_rows(const struct cache *, uint32_t l);
/* The op that appends rows to layer l is about to be called, with these N positions: from now on
 * cache_rows() knows them. */
void cache_expect(struct cache *, uint32_t l, const uint32_t *pos, uint32_t N);
/* Drops all rows of layer l but these: of KV head g the row numbers keep[g][0 .. count[g]-1],
 * ascending. In place: the capacity of each head stays. The rows keep their attention mass
 * (c->mass). The layer's indexes are dropped, unless all rows stay. */
void cache_keep(struct cache *, uint32_t l, const uint32_t *count, uint32_t *const *keep);
/* The same by a list on the device; at[g * kept->stride ..] is the host's copy of it. */
void cache_keep_listed(struct cache *, uint32_t l, const struct chosen *kept, const uint32_t *at);
/* Moves the rows of layer l to memory of just their size. The old memory becomes that of layer
 * spare_to, if that is a layer without memory: freeing and allocating it again would make some
 * devices wait for all work. Otherwise it is freed. Returns 0, or MODEL_ENOMEM (and then the rows
 * are where they were). */
int cache_trim(struct cache *, uint32_t l, uint32_t spare_to);
/* In the layers l0 .. l1-1 that have a window, drops the rows that no query at this position or a
 * later one sees, and logs that. cache_slide() waits until they are more than an eighth of the
 * window; cache_slide_all() does not. Rows stay while the cache is marked, or keeps unseen rows.
 * Returns 0, or MODEL_ENOMEM. */
int cache_slide(struct cache *, uint32_t position, uint32_t l0, uint32_t l1);
int cache_slide_all(struct cache *, uint32_t position, uint32_t l0, uint32_t l1);
/* How many rows of a KV head layer l has at once at most, of n tokens that run; and of all KV heads
 * and layers together, where rows are dropped. */
uint32_t cache_most_rows(const struct cache *, uint32_t l, uint32_t n);
uint64_t cache_most_rows_of(const struct model *, uint32_t n);
/* Appends ids to the tokens seen; does not touch next_position. Returns 0, or MODEL_ENOMEM. */
int cache_add_tokens(struct cache *, const uint32_t *ids, size_t n);
/* Logs how the rows of layers l0 .. l1-1 have changed since the last event there: n rows were run
 * through each of them with nothing evicted in between (KV_EVENT_PREFILL, KV_EVENT_DECODE), or
 * run and not stored (KV_EVENT_RUN), or rows were dropped (KV_EVENT_EVICT, n = 0). To be called
 * before anything else happens to these layers, with next_position as it is then. Does nothing
 * when the snapshot came without a log, when n is 0 and when an eviction dropped no row. Returns
 * 0, MODEL_ENOMEM, or MODEL_EINVALID when the rows cannot have become so (a KV head grew by more
 * than n). */
int cache_log(struct cache *, enum kv_event_kind kind, uint32_t n, uint32_t l0, uint32_t l1);
/* Logs that n rows were run through all layers, which moved next_position to this, although rows
 * have been dropped since: the next event logs that. Returns as cache_log(). */
int cache_log_before(struct cache *, uint32_t n, uint32_t next_position);
/* Where a cache was, to go back to: rows that were appended since are dropped again. */
struct cache_mark {
	uint32_t next_position;
	size_t n_tokens;
	uint32_t *len;                 /* [L][G], to be freed */
};
/* Only for a cache that keeps neither attention mass nor indexes: these would not go back. From
 * now on it logs nothing, and drops no row. Returns 0, or MODEL_ENOMEM. */
int cache_mark(struct cache *, struct cache_mark *);
/* Nothing was dropped since. The logits are those of the last token that was run. */
void cache_go_back(struct cache *, const struct cache_mark *);
/* Bytes of keys and values in use. */
uint64_t cache_bytes(const struct cache *);
/* Drops all rows with their memory and indexes, logs that, and goes back to position 0; the
 * tokens seen stay. Returns 0, or MODEL_ENOMEM. */
int cache_clear(struct cache *);

#endif
