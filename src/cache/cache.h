/* cache.h - the KV cache of one sequence on a device: keys, values, positions, attention mass and
 * indexes of its rows, and its event log. How its next tokens read it: forward/sequence.h
 *
 * Letters as in ops.h. */
#ifndef KVPIPE_CACHE_H
#define KVPIPE_CACHE_H

#include "cache/index.h"
#include "cache/noncausal_mass.h"
#include "cache/query_stats.h"
#include "cache/row_lists.h"
#include "model/gate.h"

/* The lists of a cache (row_lists.h) */
enum { ROW_GATE, ROW_NONCAUSAL, ROW_LISTS };

/* Attention mass of the rows of a layer: the sum over all queries so far, for H2O. */
struct attention_mass {
	/* device [H][stride]: a list for each query head, with an element for each row of its KV
	 * head */
	float *sum;
	size_t stride;                 /* capacity of each list */
	/* 1: the sum is over all queries; 0: rows were loaded without their mass */
	int whole;
};

/* Keys and values of one sequence on a device */
struct cache {
	const struct model *model;
	enum kv_dtype dtype;           /* as of a snapshot's HEAD; types of rows are in layer[] */
	uint32_t next_position;
	uint32_t *tokens;              /* host [n_tokens] ids seen so far */
	size_t n_tokens, cap_tokens;
	struct kv_documents documents; /* as of a snapshot's HEAD */
	/* tokens that have run through the first layer, for reports; counts tokens that are not
	 * stored, or run again, too */
	uint64_t ran;
	struct layer_rows *layer;      /* [L] */
	/* host [L][G] -> [len]: a copy of the positions; cache_rows() */
	uint32_t ***pos;
	unsigned char *positions_only; /* [L] cache_positions_only() */
	/* 1: in layers with a window, keeps rows that no later query sees */
	int keeps_unseen;
	int marked;                    /* cache_mark() */
	const uint32_t *mark_len;      /* [L][G] of the mark, which is not freed before the cache */
	uint32_t residual;             /* full rows behind quantised ones, 4.20; 0: none */
	/* keeps rows that a query at this position or later sees, since the text may be cut there
	 * (cache_point.h); UINT32_MAX: it will not be cut */
	uint32_t cut_from;
	/* spare capacity, in rows, that loading gives each head; set before loading */
	uint32_t spare;
	struct attention_mass *mass;         /* [L], or NULL: not wanted; cache_want_mass() */
	/* sums over queries, to which forward() adds, and snapshot_take() loads them; NULL: not
	 * wanted. query_stats_new(), for an empty cache */
	struct query_stats *query_stats;
	/* numbers of rows that forward() makes, and snapshot_take() loads; NULL: not wanted.
	 * cache_want_gate(), cache_want_noncausal() */
	struct row_lists *lists[ROW_LISTS];
	const struct gate *gate;       /* of lists[ROW_GATE] */
	struct noncausal *noncausal;   /* of lists[ROW_NONCAUSAL] */
	int saves_value_norms;         /* 1: snapshots get the section vNRM, made when written */
	/* [L] retrieval indexes, made from the keys; NULL: not wanted, cache_want_indexes(). They
	 * grow with the rows; those of a layer are dropped when one of its rows is. */
	struct layer_index *index;
	unsigned index_kinds;          /* 1 << enum kv_kind for each that is wanted */
	unsigned index_dropped;        /* for each kind that was dropped in some layer */
	float *logits;                 /* host [V] after the last token; NULL when not known */
	/* 1: log is the event log, complete from the first token on; 0: there is none */
	int logged;
	struct kv_log_content log;
	uint32_t *logged_rows;         /* host [L][G] rows after the last event */
};

/* Returns the bytes on the device of one row of one KV head of layer l: key, value, position, and,
 * with mass, a number for each of its query heads. */
uint64_t cache_row_bytes(const struct kv_head *, uint32_t l, int mass);
/* Returns an empty cache with keys and values of the given type; NULL without memory. */
struct cache *cache_new(const struct model *m, enum kv_dtype dtype);
/* Has rows of each layer stored in the types of that head. Only for an empty cache. */
void cache_set_row_types(struct cache *, const struct kv_head *);
void cache_free(struct cache *);                                /* NULL allowed */
/* Allocates c->mass, H * 4 bytes for each row of capacity: forward() adds attention mass to it, and
 * snapshot_take() loads it. Only for an empty cache. Returns 0, or MODEL_ENOMEM. */
int cache_want_mass(struct cache *);
/* Has the gate score the rows that are appended, or their non-causal attention from row `first` on
 * made, loaded and saved. Only for an empty cache. Return 0, or MODEL_ENOMEM. */
int cache_want_gate(struct cache *, const struct gate *);
int cache_want_noncausal(struct cache *, uint32_t first);
/* Has indexes of these kinds (1 << enum kv_kind each) loaded with the rows, extended for appended
 * rows, and saved. Only for an empty cache. Returns 0, or MODEL_ENOMEM. */
int cache_want_indexes(struct cache *, unsigned kinds);
/* Returns the indexes of layer l; NULL where none are wanted. */
struct layer_index *cache_index(const struct cache *, uint32_t l);
/* Makes room for more rows in every KV head of every layer, or of layers l0 .. l1-1. Layers with a
 * window get room for the rows that they keep and one tile: a caller with more rows reserves before
 * each tile. Returns 0, or MODEL_ENOMEM. */
int cache_reserve(struct cache *, uint32_t more);
int cache_reserve_layers(struct cache *, uint32_t more, uint32_t l0, uint32_t l1);
/* Makes room for the rows of the next N tokens that stay full for now (residual). Call it before
 * the tokens of a step run, after cache_reserve(). Returns 0, or MODEL_ENOMEM. */
int cache_reserve_step(struct cache *, uint32_t N);
/* Returns whether some layer has full rows behind quantised ones: tokens are then appended one by
 * one. */
int cache_has_residual(const struct cache *);
/* Lets layer l have positions and lengths only, because it is offloaded: frees its keys and values,
 * or, before rows are loaded, allocates none. Returns 0, or MODEL_ENOMEM. */
int cache_positions_only(struct cache *, uint32_t l);
/* Gives an empty layer these rows, with keys and values to be filled in, and capacity for c->spare
 * more. Returns 0, or MODEL_ENOMEM. */
int cache_layer_init(struct cache *, uint32_t l, const struct kv_rows *);
/* Returns the rows of layer l, from the host's copy; valid until rows are appended or dropped. */
struct kv_rows cache_rows(const struct cache *, uint32_t l);
/* Adds N rows at positions pos[N] to the host's copy, for cache_rows(). Call before the op that
 * appends them to layer l. */
void cache_expect(struct cache *, uint32_t l, const uint32_t *pos, uint32_t N);
/* Drops all rows of layer l except keep[g][0 .. count[g]-1] of each KV head g, ascending. In place:
 * does not change the capacity. The kept rows keep their attention mass (c->mass). Drops the
 * layer's indexes, unless all rows are kept. */
void cache_keep(struct cache *, uint32_t l, const uint32_t *count, uint32_t *const *keep);
/* As cache_keep(), with the rows listed on the device; at[g * kept->stride ..] is the host's copy
 * of the list. */
void cache_keep_listed(struct cache *, uint32_t l, const struct chosen *kept, const uint32_t *at);
/* Drops the last n rows of every KV head of layers l0 .. l1-1: they count no longer, and stay where
 * they are until others are appended. */
void cache_drop_last(struct cache *, uint32_t n, uint32_t l0, uint32_t l1);
/* Moves the rows of layer l to memory of exactly their size. Gives the old memory to layer spare_to
 * if that has none, because on some devices freeing and allocating wait for all work; else frees
 * it. Returns 0, or MODEL_ENOMEM (and then nothing has changed). */
int cache_trim(struct cache *, uint32_t l, uint32_t spare_to);
/* In the layers l0 .. l1-1 that have a window, drops the rows that no query at this position or a
 * later one sees, and logs that. cache_slide() does so only when they are more than an eighth of
 * the window. Nothing is dropped while the cache is marked, or keeps unseen rows. Returns 0, or
 * MODEL_ENOMEM. */
int cache_slide(struct cache *, uint32_t position, uint32_t l0, uint32_t l1);
int cache_slide_all(struct cache *, uint32_t position, uint32_t l0, uint32_t l1);
/* Returns the most rows of a KV head that layer l has at once while n tokens run;
 * cache_most_rows_of(): of all KV heads and layers together, where unseen rows are dropped. */
uint32_t cache_most_rows(const struct cache *, uint32_t l, uint32_t n);
uint64_t cache_most_rows_of(const struct model *, uint32_t n);
/* Appends ids to the tokens seen; does not change next_position. Returns 0, or MODEL_ENOMEM. */
int cache_add_tokens(struct cache *, const uint32_t *ids, size_t n);
/* Logs how the rows of layers l0 .. l1-1 have changed since the last event there: n rows were run
 * through each of them with nothing evicted in between (KV_EVENT_PREFILL, KV_EVENT_DECODE), or run
 * and not stored (KV_EVENT_RUN), or rows were dropped (KV_EVENT_EVICT, n = 0). Call it before these
 * layers change again, with next_position as it is after the event. Does nothing when the snapshot
 * had no log, when n is 0 and when an eviction dropped no row. Returns 0, MODEL_ENOMEM, or
 * MODEL_EINVALID when a KV head grew by more than n. */
int cache_log(struct cache *, enum kv_event_kind kind, uint32_t n, uint32_t l0, uint32_t l1);
/* Logs, after rows have been dropped already, that n rows were run through all layers, which moved
 * next_position to this (KV_EVENT_PREFILL), or run and not stored (KV_EVENT_RUN); the next event
 * logs the drop. Returns as cache_log(). */
int cache_log_before(struct cache *, enum kv_event_kind kind, uint32_t n, uint32_t next_position);
/* As cache_log_before() of KV_EVENT_PREFILL, an event for each tile of the n rows, the first of
 * which is at position `first`. */
int cache_log_tiles_before(struct cache *, uint32_t n, uint32_t first, uint32_t tile);
/* A state of a cache that cache_go_back() restores, by dropping the rows that were appended
 * since */
struct cache_mark {
	uint32_t next_position;
	size_t n_tokens;
	uint32_t *len;                 /* [L][G], to be freed */
};
/* Stores the state. The cache logs nothing and drops no row after that. Only for a cache without
 * attention mass, query statistics and indexes, which are not restored. Returns 0, or
 * MODEL_ENOMEM. */
int cache_mark(struct cache *, struct cache_mark *);
/* Goes back to the mark. The logits are not restored: they stay those of the last token that was
 * run. */
void cache_go_back(struct cache *, const struct cache_mark *);
/* Returns the bytes of keys and values in use. */
uint64_t cache_bytes(const struct cache *);
/* Drops all rows with their memory and indexes, logs that, and sets next_position to 0; keeps the
 * tokens seen. Returns 0, or MODEL_ENOMEM. */
int cache_clear(struct cache *);

#endif
