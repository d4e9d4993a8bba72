/* offload.h - layers whose rows are elsewhere: of each KV head those that a step reads are on the
 * device, in slots
 *
 * SpeContext (Xu et al. 2025), section 5.4, elastic loading: of the rows S_now that a step reads, those
 * that the step before has read, S_last, are in their slots still; S_now - S_last is fetched into the
 * slots that S_last - S_now leaves. Rows that are appended stay on the device, behind the slots, and with
 * them the last of the others, where an index does not have their keys yet.
 *
 * Where the rows that are elsewhere are in host memory that the device reads (offload_store.h), slots are filled
 * there, by far_rows_fetch(); else by the host, far_rows_begin().
 *
 * Letters as in ops.h. */
#ifndef KVPIPE_OFFLOAD_H
#define KVPIPE_OFFLOAD_H

#include "offload/offload_store.h"
#include "ops/ops.h"

/* What is in the slots of a KV head: n rows, ascending, and the slot of each; behind these, the slots
 * that are free. */
struct residents {
	uint32_t n;
	uint32_t *row, *slot;           /* [slots] */
};

/* ShadowKV: keys that a step makes of factors are not read, only those of exact chunks. */
struct far_keys {
	const uint8_t *exact;           /* host [G][chunks] 1: the keys of this chunk are read; NULL: all are */
	uint32_t rows, chunks;          /* of a chunk; of a KV head */
};

struct far_layer {
	uint32_t *stored;               /* host [G] rows that are elsewhere, the first ones; NULL: the
	                                 * layer is not far */
	struct layer_rows near;         /* of each KV head the slots, then the other rows */
	/* these again, by their numbers in the layer: start[g] + s, modulo 2^64, is where row s is, for
	 * s >= stored[g]. far_rows_last() */
	struct layer_rows last;
	struct residents *in;           /* host [G] */
	struct far_keys keys;
	/* what a step reads and is not there: [G] so many, of so many the keys, too; [G][slots] rows and
	 * their slots */
	uint32_t *new, *new_keys, *row, *slot;
	/* host [G], [G][near.capacity[0]] the rows of the step, as rows of near */
	uint32_t *n, *place;
	int begun;                      /* far_rows_begin() or _fetch() without far_rows_end() */
	/* slots that the device fills (k NULL: it does not); the rows of the step, as rows of near; the last
	 * call of fetch_chosen(), and whether it was ahead */
	struct far_slots slots;
	struct chosen list;
	uint64_t fetch;
	int ahead;
};

struct far_rows {
	const struct ops *ops;
	struct dev *dev;
	struct row_store *store;        /* the caller's */
	uint32_t L, G, E, slots;
	enum kv_dtype dtype;
	struct far_layer *layer;        /* [L] */
	struct chosen chosen;           /* the rows of a step, as rows of far_layer.near, from the host */
	uint32_t *free;                 /* host [slots] slots that were left */
	uint32_t *order;                /* host [slots] 0, 1, 2 ... */
	/* where the device has memory of its own: rows of near that are about to go there, of a layer */
	struct staged { char *row; uint64_t *at; uint32_t n; } keys, values;    /* host [G][slots] */
	struct far_reader *reader;      /* reads while the device works; NULL: it does not */
};

/* For layers of one shape; none is far yet. ahead: rows are read while other layers run, by a thread of
 * their own, where the device shares memory. NULL without memory. */
struct far_rows *far_rows_new(const struct ops *, struct dev *, struct row_store *, uint32_t layers,
    uint32_t heads, uint32_t width, enum kv_dtype, int ahead);
void far_rows_free(struct far_rows *);                  /* NULL allowed */

/* Is this layer one of them? */
int far_rows_has(const struct far_rows *, uint32_t l);
/* From now on it is; it has no memory before far_rows_bring(). Returns 0, or KV_ENOMEM. */
int far_rows_add(struct far_rows *, uint32_t l);
/* Before that, when the store knows all rows: a step reads at most so many of them of each KV head.
 * Returns 0, or KV_ENOMEM. */
int far_rows_slots(struct far_rows *, uint64_t slots);
/* A layer that was added: of KV head g the rows from first[g] on come from the store, where it has so many.
 * There is room for `more` appended ones. rows has the positions. Returns 0, KV_ENOMEM, or KV_EIO (the
 * store says why). */
int far_rows_bring(struct far_rows *, uint32_t l, const uint32_t *first, const struct layer_rows *rows,
    uint32_t more);
/* A layer whose rows before first[g], which the store has or takes, are to be elsewhere from now on: adds it,
 * with the others of `from`. Returns 0, or KV_ENOMEM. */
int far_rows_take(struct far_rows *, uint32_t l, const uint32_t *first, const struct layer_rows *from,
    uint32_t more);
/* Room for so many more in all of them. Returns 0, or KV_ENOMEM. */
int far_rows_reserve(struct far_rows *, uint32_t more);
/* The rows of layer l, which are `rows`, that are on the device whatever a step reads, by their numbers in the
 * layer: of KV head g those from stored[g] on, and no others may be looked at. Until the layer changes. */
const struct layer_rows *far_rows_last(struct far_rows *, uint32_t l, const struct layer_rows *rows);
/* The layer has len[G] rows now: steps that are launches of a graph append without saying so. Nothing where
 * it is not far. */
void far_rows_count(struct far_rows *, uint32_t l, const uint32_t *len);
/* to (host) <- the keys (KV_KEYS) or values of all rows of KV head g. Returns 0, or KV_EIO. */
int far_rows_get(struct far_rows *, uint32_t l, uint32_t g, enum kv_kind, void *to);

/* The rows row[g * stride ..], n[g] of each KV head and ascending, are what the next step reads of layer
 * l, of those that are elsewhere no more than there are slots: where `ahead` was asked for, those that are
 * not in their slots yet are read from now on. keys NULL: of all. */
void far_rows_begin(struct far_rows *, uint32_t l, const uint32_t *row, size_t stride, const uint32_t *n,
    const struct far_keys *keys);
/* The positions of the rows that are new in this step. */
void far_rows_place(struct far_rows *, uint32_t l, const struct layer_rows *rows);
/* The same by the device: is this a far layer whose rows are in host memory that it reads? */
int far_rows_on_device(const struct far_rows *, uint32_t l);
/* Then this in place of the two, with what fetch_chosen() wants. */
void far_rows_fetch(struct far_rows *, uint32_t l, const struct chosen *, const struct layer_rows *rows,
    const struct low_rank *low, int ahead);

/* What is fetched ahead has been: all that the device does from now on comes behind it. The selection may
 * be another one then. */
void far_rows_fetched_all(struct far_rows *);

/* Waits until they are there (a device, until it is there), and returns where: in the same order, as rows of
 * layer[l].near, until the next call. NULL: reading has failed, and the store says why. */
const struct chosen *far_rows_end(struct far_rows *, uint32_t l);
/* Bytes that far_rows_begin() had to read of KV head g for that. */
uint64_t far_rows_fetched(const struct far_rows *, uint32_t l, uint32_t g);
/* bytes[G] <- those that far_rows_fetch() has brought so far; waits for the device. */
void far_rows_brought(struct far_rows *, uint32_t l, uint64_t *bytes);

#endif
