/* entries.h - indexes of rows, and rows that were chosen, as the ops of retrieval take them
 *
 * Letters as in ops.h. */
#ifndef KVPIPE_ENTRIES_H
#define KVPIPE_ENTRIES_H

#include "ops/rows.h"

#ifdef __cplusplus
extern "C" {
#endif

/* An index of the rows of a layer. Entry i of KV head g summarises `rows` consecutive rows of that
 * head, i*rows .. i*rows + rows-1; the rows after the last whole entry have none. The entry begins
 * at byte (start[g] + i) * bytes of data, in the layout of kv-snapshot(5): one-bit keys, 4.15, or
 * page bounds, 4.16. An index with more entries than the rows allow is a failure: rows have been
 * dropped, and the index does not describe the remaining ones. */
struct entries {
	void *data;                  /* device; begins at a multiple of 64 */
	size_t bytes;                /* of one entry */
	uint64_t *start;             /* host [G] */
	uint32_t *len;               /* host [G] entries in use */
	uint32_t *capacity;          /* host [G] entries allocated */
	uint32_t heads, width;       /* G, E */
	uint32_t rows;               /* of one entry */
};

/* Selected entries of each KV head, ascending. Entry i stands for rows i*rows .. i*rows + rows-1,
 * as far as they exist. If the last entry of a KV head has fewer than `rows` rows, a nonempty
 * selection contains it, so the host knows how many rows are selected without reading the list. */
struct chosen {
	uint32_t *at;                /* device [G][stride] */
	size_t stride;
	uint32_t *n;                 /* host [G] entries in each list */
	uint32_t rows;               /* of one entry; 1: the entries are rows */
};

/* How many elements each of G lists has. Lists that grow have an element for each row of a KV head,
 * and grow with its rows between launches of a graph. An op allocates memory and chooses kernels by
 * `most`, so that both are the same before, during and after a capture. */
struct counts {
	const uint32_t *n;           /* host [G] */
	/* greatest number of elements of a list that grows; 0: lists do not grow */
	uint32_t most;
};

/* Keys before rotary embedding as a product of two factors (kv-snapshot(5), 4.18), for the first n
 * rows of every KV head: key s of KV head g is right[g] . left[s]. */
struct low_rank {
	const void *left;            /* device [n][rank] */
	const void *right;           /* device [G][E][rank] */
	const uint8_t *exact;        /* device [G][n / chunk]; 1: keys of this chunk stay exact */
	uint32_t n, rank, chunk;
	enum kv_dtype dtype;
};

/* Elastic loading (SpeContext, Xu et al. 2025, section 5.4): rows 0 .. host_count[g]-1 of KV head g
 * of a layer are in host memory. The offloaded rows that a step reads are fetched into the slots,
 * rows to->start[g] .. to->start[g] + slots-1 of `to`; after the slots `to` has the other rows of
 * the layer. */
struct offload_slots {
	const void *k, *v;           /* host_alloc()'s rows, of to's types */
	const uint64_t *start;       /* host [G] row 0 of each KV head there */
	const uint32_t *host_count;  /* host [G] */
	uint32_t slots;
	const struct layer_rows *to;
	/* device, initially 0: [G][slots] 1 + the row in each slot, 0: none; [G][stride] 1 + the
	 * slot of each row in host memory, 0: none */
	uint32_t *row, *slot;
	size_t stride;
	/* device: [G] rows that a call fetches; [G][slots] these rows, and their slots */
	uint32_t *n_new, *new_row, *new_slot;
	uint64_t *fetched;           /* device [G], initially 0: bytes fetched so far */
};

#ifdef __cplusplus
}
#endif
#endif
