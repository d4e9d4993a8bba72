/* far_rows.h - layers whose rows are elsewhere: of each KV head those that a step reads are on the
 * device, in slots
 *
 * SpeContext (Xu et al. 2025), section 5.4, elastic loading: of the rows S_now that a step reads, those
 * that the step before has read, S_last, are in their slots still; S_now - S_last is fetched into the
 * slots that S_last - S_now leaves. Rows that are appended stay on the device, behind the slots.
 *
 * Letters as in ops.h. */
#ifndef KVPIPE_FAR_ROWS_H
#define KVPIPE_FAR_ROWS_H

#include "model/ops.h"
#include "model/row_store.h"

/* What is in the slots of a KV head: n rows, ascending, and the slot of each; behind these, the slots
 * that are free. */
struct residents {
	uint32_t n;
	uint32_t *row, *slot;           /* [slots] */
};

struct far_layer {
	uint32_t *stored;               /* host [G] rows that are elsewhere, the first ones; NULL: the
	                                 * layer is not far */
	struct layer_rows near;         /* of each KV head the slots, then the rows that were appended */
	struct residents *in;           /* host [G] */
	/* what a step reads and is not there: [G] so many, [G][slots] rows and their slots */
	uint32_t *new, *row, *slot;
	uint32_t *n, *list;             /* host [G], [G][slots] the rows of the step, as rows of near */
	int begun;                      /* far_rows_begin() without far_rows_end() */
};

struct far_rows {
	const struct ops *ops;
	struct dev *dev;
	struct row_store *store;        /* the caller's */
	uint32_t L, G, E, slots;
	enum kv_dtype dtype;
	struct far_layer *layer;        /* [L] */
	struct chosen chosen;           /* the rows of a step, as rows of far_layer.near */
	uint32_t *free;                 /* host [slots] slots that were left */
	char *staging;                  /* host [2][slots][E] where the device has memory of its own */
	struct far_reader *reader;      /* reads while the device works; NULL: it does not */
};

/* For layers of one shape, with so many slots for each KV head; none is far yet. NULL without memory. */
struct far_rows *far_rows_new(const struct ops *, struct dev *, struct row_store *, uint32_t layers,
    uint32_t heads, uint32_t width, enum kv_dtype, uint32_t slots);
void far_rows_free(struct far_rows *);                  /* NULL allowed */

/* Is this layer one of them? */
int far_rows_has(const struct far_rows *, uint32_t l);
/* From now on it is, with so many rows elsewhere of each KV head and room for `more` appended ones.
 * Returns 0, or KV_ENOMEM. */
int far_rows_add(struct far_rows *, uint32_t l, const uint32_t *stored, uint32_t more);
/* A layer whose first rows, so many as the store has of each KV head, are to be elsewhere from now on: adds
 * it, with the others of `from` as appended rows. Returns 0, or KV_ENOMEM. */
int far_rows_take(struct far_rows *, uint32_t l, const struct layer_rows *from, uint32_t more);
/* Room for so many more in all of them. Returns 0, or KV_ENOMEM. */
int far_rows_reserve(struct far_rows *, uint32_t more);

/* The rows row[g * stride ..], n[g] of each KV head and ascending, are what the next step reads of layer
 * l, n[g] <= slots: those that are not in their slots yet are read from now on. */
void far_rows_begin(struct far_rows *, uint32_t l, const uint32_t *row, size_t stride, const uint32_t *n);
/* Waits until they are there, and returns where: in the same order, as rows of layer[l].near, until the next
 * call. layer[l].new has how many had to be read of each KV head. NULL: reading has failed, and the store
 * says why. */
const struct chosen *far_rows_end(struct far_rows *, uint32_t l);

/* Bytes of the device that a far layer takes for a KV head. */
uint64_t far_rows_bytes(const struct far_rows *);

#endif
