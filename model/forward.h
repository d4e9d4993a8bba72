/* forward.h - the transformer, its cache, and what they exchange with snapshots
 *
 * One function runs rows through layers (forward()); prefill, resume, decode are callers of it.
 * Letters as in ops.h. */
#ifndef KVPIPE_FORWARD_H
#define KVPIPE_FORWARD_H

#include "model/model.h"
#include "model/retrieve.h"

/* ---- the cache ---- */

/* The attention that the rows of a layer have received from every query so far, for H2O. */
struct received {
	/* device [H][stride]: a list for each query head, rows as those of its KV head */
	float *sum;
	size_t stride;                 /* rows of room in each list: that of the longest head */
	/* it holds what all queries have paid; 0 when rows were loaded without it */
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
	struct layer_rows *layer;      /* [L] */
	/* host [L][G] -> [len]: the positions of the rows once more; cache_rows() */
	uint32_t ***pos;
	/* rows of room that snapshot_load() leaves in each head; set it before */
	uint32_t spare;
	struct received *mass;         /* [L], or NULL: not wanted; cache_want_mass() */
	/* attention that tokens pay which are only run; NULL: not wanted. The caller's
	 * (probe_mass.h) */
	struct payment *payment;
	/* [L] what finds the rows that matter to a query, made from the keys; NULL: not wanted,
	 * cache_want_indexes(). It grows with the rows, and goes when one of them goes. */
	struct layer_index *index;
	unsigned index_kinds;          /* 1 << enum index_kind for each that is wanted */
	unsigned index_dropped;        /* for each that has gone, in some layer */
	/* how single rows attend, cache_retrieve(); NULL: to all rows. The caller's */
	struct retrieval *retrieval;
	float *logits;                 /* host [V] after the last token; NULL when not known */
	/* the event log, when it is complete from the first token on; else there is none */
	int logged;
	struct kv_log_content log;
	uint32_t *logged_rows;         /* host [L][G] rows after the last event */
};

/* How much of the device one row of one KV head takes: key, value, position, and, with mass, what
 * it has received from its query heads. */
uint64_t cache_row_bytes(const struct model *m, enum kv_dtype dtype, int mass);
/* An empty cache with keys and values of the given type. NULL without memory. */
struct cache *cache_new(const struct model *m, enum kv_dtype dtype);
void cache_free(struct cache *);                                /* NULL allowed */
/* From now on what forward() runs is added to c->mass, H * 4 bytes for each row of room. Only
 * for an empty cache; snapshot_load() then takes what is stored. Returns 0, or MODEL_ENOMEM. */
int cache_want_mass(struct cache *);
/* From now on indexes of these kinds (1 << enum index_kind each) are loaded with the rows, extended
 * for those that are appended, and saved. Only for an empty cache. Returns 0, or MODEL_ENOMEM. */
int cache_want_indexes(struct cache *, unsigned kinds);
/* From now on a row that runs alone attends by this retrieval, whose index every layer has that is
 * not dense; c->mass must not be wanted. Returns 0, or MODEL_ENOMEM. */
int cache_retrieve(struct cache *, struct retrieval *);
/* Makes room for more rows in every KV head of every layer, or of layers l0 .. l1-1. Returns 0, or
 * MODEL_ENOMEM. */
int cache_reserve(struct cache *, uint32_t more);
int cache_reserve_layers(struct cache *, uint32_t more, uint32_t l0, uint32_t l1);
/* Gives an empty layer these rows (keys and values to be filled in) and c->spare rows of room.
 * Returns 0, or MODEL_ENOMEM. */
int cache_layer_init(struct cache *, uint32_t l, const struct kv_rows *);
/* Which rows layer l has, without a question to the device; valid until rows come or go. */
struct kv_rows cache_rows(const struct cache *, uint32_t l);
/* The op that appends rows to layer l is about to be called, with these N positions: from now on
 * cache_rows() knows them. */
void cache_expect(struct cache *, uint32_t l, const uint32_t *pos, uint32_t N);
/* Drops all rows of layer l but these: of KV head g the row numbers keep[g][0 .. count[g]-1],
 * ascending. In place: what follows the rows in each head becomes room. What they have received
 * (c->mass) stays with them. The layer's indexes go, unless all rows stay. */
void cache_keep(struct cache *, uint32_t l, const uint32_t *count, uint32_t *const *keep);
/* The rows of layer l move to memory of their own size. What they had becomes the room of layer
 * `to`, when there is such a layer and it has none yet: no memory is given back and taken again, for
 * which some devices wait until all work is done. Otherwise the device has it back. Returns 0, or
 * MODEL_ENOMEM (and then the rows are where they were). */
int cache_trim(struct cache *, uint32_t l, uint32_t to);
/* Appends ids to the tokens seen; does not touch next_position. Returns 0, or MODEL_ENOMEM. */
int cache_add_tokens(struct cache *, const uint32_t *ids, size_t n);
/* Logs what has become of the rows of layers l0 .. l1-1 since the last event there: n rows were
 * run through each of them with nothing evicted in between (KV_EVENT_PREFILL, KV_EVENT_DECODE),
 * or rows were dropped (KV_EVENT_EVICT, n = 0). To be called before anything else happens to
 * these layers, with next_position as it is then. Does nothing when the snapshot came without a
 * log, when n is 0 and when an eviction dropped no row. Returns 0, MODEL_ENOMEM, or
 * MODEL_EINVALID when the rows cannot have become so (a KV head grew by more than n). */
int cache_log(struct cache *, enum kv_event_kind kind, uint32_t n, uint32_t l0, uint32_t l1);
/* Logs that n rows were run through all layers, after which next_position was so, and whatever has
 * become of them since: what that is, the next event says. Returns as cache_log(). */
int cache_log_before(struct cache *, uint32_t n, uint32_t next_position);
/* Bytes of keys and values in use. */
uint64_t cache_bytes(const struct cache *);
/* Drops all rows with their memory and indexes, logs that, and goes back to position 0; the tokens seen
 * stay. Returns 0, or MODEL_ENOMEM. */
int cache_clear(struct cache *);

/* ---- observation: queries that are kept for scoring ---- */

struct observation {
	uint32_t window;               /* W: how many of the last rows are wanted; 0 = none */
	/* rows at this position and later are kept; set by observation_expect() */
	uint32_t first;
	uint32_t have;                 /* rows below, <= window: the last ones so far */
	uint32_t *pos;                 /* host [W], ascending */
	/* [L] -> host [W][H][E], after rope, not scaled; row order as pos. NULL: this layer's are
	 * not wanted (never so in a window that is saved) */
	float **q;
	int there;                     /* 1: they are on the device, and not freed with the rest */
	float *room;                   /* in this memory, observation_to_device()'s, or NULL */
	uint32_t slid;                 /* queries that the windows stand behind its beginning */
	/* how many of the last queries are of tokens that were not stored, and their keys: [L]
	 * -> host [G][n_own][E] of the cache's dtype, after rope */
	uint32_t n_own;
	void **own;
	uint32_t loaded;               /* layers whose stored queries agree */
	const struct observation *next;        /* another window over the same rows, or NULL */
};

/* Returns 0, or MODEL_ENOMEM. */
int observation_init(struct observation *, const struct model *m, uint32_t window);
void observation_free(struct observation *, const struct model *m);
/* Takes the queries to the device, where forward() adds to them without a wait, and back to the host,
 * where they are loaded and saved. Return 0, or MODEL_ENOMEM, and then nothing has changed. */
int observation_to_device(struct observation *, const struct model *m);
int observation_to_host(struct observation *, const struct model *m);
/* On the device: the first `drop` queries go. */
void observation_slide(struct observation *, const struct model *m, uint32_t drop);
/* Before the rows at positions from, from + 1, ... (n > 0 of them) run: forgets the oldest
 * queries, so that those of the last rows fit, and lists the positions of these, whose queries
 * forward() fills in layer by layer. None of them may be dropped on the way. */
void observation_expect(struct observation *, const struct model *m, uint32_t from, size_t n);

/* ---- running ---- */

/* Buffers for up to N rows, allocated once. */
struct workspace;
struct workspace *workspace_new(const struct model *m, uint32_t rows);   /* NULL without memory */
/* How much of the device that takes. */
uint64_t workspace_bytes(const struct model *m, uint32_t rows);
void workspace_free(struct workspace *, const struct model *m);          /* NULL allowed */
uint32_t workspace_rows(const struct workspace *);
/* device [N][D]: the residual stream */
float *workspace_x(struct workspace *);
/* From now on x is this memory (device, room for the rows of each call) instead of the
 * workspace's own; NULL: its own again. */
void workspace_use(struct workspace *, float *x);

/* Runs the N rows in the workspace's x, standing at positions pos[N] (host, ascending), through
 * layers l0 .. l1-1. Their keys and values are appended to the cache (the caller has reserved
 * room); x becomes the output. Queries of rows from obs->first on go to obs (NULL = none), which
 * expects them, the attention that they pay to c->mass where it is wanted. */
void forward(const struct model *m, struct cache *c, struct workspace *ws, const uint32_t *pos,
    uint32_t N,
    uint32_t l0, uint32_t l1, const struct observation *obs);

/* c->logits <- the model's opinion after a row x[D] (device) that has run through all layers.
 * Returns 0, or MODEL_ENOMEM. */
int last_logits(const struct model *m, struct cache *c, struct workspace *ws, const float *x);

/* Appends n tokens at next_position, next_position + 1, ... in chunks of at most the
 * workspace's rows, and leaves the logits after the last one in c->logits. step (NULL = none)
 * is called after each chunk with the tokens done so far. Returns 0, MODEL_ENOMEM, or MODEL_EIO
 * when the device failed (err says how). */
int run_tokens(const struct model *m, struct cache *c, struct workspace *ws, const uint32_t *ids,
    size_t n,
    struct observation *obs, void (*step)(uint64_t done), char *err, size_t errlen);

/* Runs n tokens at the same positions, and leaves the cache as it was: not stored, no logits.
 * Their queries go to obs (NULL = none; its window must hold them all) together with their own
 * keys, the attention that they pay to c->payment where it is wanted. c->mass must not be
 * wanted, and there must be no retrieval. Returns as run_tokens(); after a failure the cache is of
 * no use. */
int run_unstored(const struct model *m, struct cache *c, struct workspace *ws,
    const uint32_t *ids, size_t n, struct observation *obs, void (*step)(uint64_t done),
    char *err, size_t errlen);

/* ---- snapshots ---- */

/* The head of a snapshot of this cache. */
void snapshot_head(const struct cache *c, struct kv_head *head);

/* Fills an empty cache from a reader that has just been opened, to its end. obs (NULL = not
 * wanted): the stored observation queries, as far as its window reaches. Unknown sections are
 * dropped (the result is a new state). The identity is not compared here: kv_model_diff()
 * first. Returns a KV_* code; the reader has the message. */
int snapshot_load(struct kv_reader *r, struct cache *c, struct observation *obs);

/* What snapshot_load() does with the section that r stands at, for programs that keep the other
 * sections themselves. At the end cache and obs are loaded when obs->loaded is L, and
 * next_position is the caller's. */
int snapshot_take(struct kv_reader *r, const struct kv_section *sec, struct cache *c,
    struct observation *obs);

/* Writes one section of layer l: "KEYS", "VALS", or "oBSq" from obs. */
int snapshot_put(struct kv_writer *w, const struct cache *c, const struct observation *obs,
    const char *type, uint32_t l);

/* Writes tokens, layers, observation queries (NULL or have == 0: none), attention received
 * where it is wanted (it must be whole), indexes where they are wanted, and logits; not the end.
 * Returns a KV_* code; the writer has the message. */
int snapshot_save(struct kv_writer *w, const struct cache *c, const struct observation *obs);

/* ---- sampling ---- */

struct sampler {
	double temperature;            /* 0 = greedy */
	/* 1 = off: smallest set of tokens whose probabilities sum to top_p */
	double top_p;
	double min_p;                  /* 0 = off: at least min_p times the greatest probability */
	uint64_t state[2];             /* random generator; sampler_seed() */
};

void sampler_seed(struct sampler *, uint64_t seed);
/* The next token. Greedy: the lowest id of the greatest logits. Otherwise temperature, then
 * min_p, then top_p, then one draw. Returns UINT32_MAX when memory is short or no logit is
 * finite. */
uint32_t sample(struct sampler *, const float *logits, uint32_t V);

#endif
