/* offload.h - offloaded layers: keys and values on the host, and on the device the rows of a step,
 * in slots
 *
 * SpeContext (Xu et al. 2025), section 5.4, elastic loading: of the rows S_now that a step reads,
 * those that the step before has read, S_last, are in their slots still; S_now - S_last is fetched
 * into the slots that S_last - S_now leaves. Rows that are appended stay on the device, behind the
 * slots, and so do the last of the offloaded rows, where an index does not have their keys yet:
 * this is the tail.
 *
 * Where the offloaded rows are in host memory that the device reads (offload_store.h), the device
 * fills the slots (offload_start_on_device()); else the host does (offload_start_on_host()).
 *
 * Letters as in ops.h. */
#ifndef KVPIPE_OFFLOAD_H
#define KVPIPE_OFFLOAD_H

#include "offload/offload_store.h"
#include "ops/ops.h"

/* Which rows are in the slots of a KV head: n rows, ascending, and the slot of each; behind the
 * slots of these, the free slots. */
struct slot_table {
	uint32_t n;
	uint32_t *row, *slot;           /* [slots] */
};

/* ShadowKV: a step computes most keys from factors. It reads only the keys of exact chunks. */
struct offload_keys {
	/* host [G][chunks] 1: the keys of this chunk are read; NULL: those of all */
	const uint8_t *exact;
	uint32_t rows, chunks;          /* of a chunk; of a KV head */
};

struct offload_layer {
	uint32_t *host_count;           /* host [G] rows offloaded, the first ones; NULL: none */
	struct layer_rows device_rows;  /* of each KV head the slots, then the tail */
	/* the tail, by the numbers of its rows in the layer: start[g] + s, modulo 2^64, is where
	 * row s is, for s >= host_count[g]. offload_tail() */
	struct layer_rows tail;
	struct slot_table *slot_table;  /* host [G] */
	struct offload_keys keys;
	/* rows of a step that are in no slot: [G] their number, and how many of these keys are
	 * read; [G][slots] the rows and their slots */
	uint32_t *new, *new_keys, *row, *slot;
	/* host [G], [G][device_rows.capacity[0]]: the rows of the step, as rows of device_rows */
	uint32_t *n, *read_at;
	int begun;                      /* started, without offload_wait() */
	/* where the device fills the slots (k NULL: it does not): these; the rows of the step, as
	 * rows of device_rows; the last fetch_chosen(), and whether it was ahead */
	struct offload_slots slots;
	struct chosen list;
	uint64_t fetch;
	int ahead;
};

struct offload {
	const struct ops *ops;
	struct dev *dev;
	struct offload_store *store;    /* the caller's */
	uint32_t L, G, E, slots;
	enum kv_dtype dtype;
	struct offload_layer *layer;    /* [L] */
	struct chosen chosen;           /* rows of a step, as rows of device_rows; the host's */
	uint32_t *free;                 /* host [slots] scratch: free slots */
	uint32_t *order;                /* host [slots] 0, 1, 2 ... */
	/* where the device has memory of its own: rows of a layer on their way to device_rows */
	struct staged { char *row; uint64_t *at; uint32_t n; } keys, values; /* host [G][slots] */
	struct offload_thread *thread;  /* reads while the device works; NULL: it does not */
};

/* For L layers of one shape, none of them offloaded yet. ahead: rows are read while other layers
 * run, by a thread, where the device shares memory with the host. NULL without memory. */
struct offload *offload_new(const struct ops *, struct dev *, struct offload_store *,
    uint32_t layers, uint32_t heads, uint32_t width, enum kv_dtype, int ahead);
void offload_free(struct offload *);                    /* NULL allowed */

/* Returns 1 where layer l is offloaded. NULL: none is. */
int offload_has(const struct offload *, uint32_t l);
/* Marks layer l as offloaded; offload_open_layer() gives it memory. Returns 0, or KV_ENOMEM. */
int offload_mark(struct offload *, uint32_t l);
/* Sets how many rows of a KV head a step reads at most, once the store knows all rows and before a
 * layer is opened. Returns 0, or KV_ENOMEM. */
int offload_set_slots(struct offload *, uint64_t slots);
/* Opens a marked layer: of KV head g the rows from first[g] on are read from the store into the
 * tail, with room for `more` appended ones. rows has the positions. Returns 0, KV_ENOMEM, or KV_EIO
 * (store->error). */
int offload_open_layer(struct offload *, uint32_t l, const uint32_t *first,
    const struct layer_rows *rows, uint32_t more);
/* Offloads a layer that is on the device, as `from`: rows before first[g] are in the store or go
 * there, the others go to the tail, with room for `more`. Returns 0, or KV_ENOMEM. */
int offload_move_layer(struct offload *, uint32_t l, const uint32_t *first,
    const struct layer_rows *from, uint32_t more);
/* Makes room for so many more rows in the tails of all layers. Returns 0, or KV_ENOMEM. */
int offload_reserve(struct offload *, uint32_t more);
/* Returns the tail of layer l, which is `rows`, by the numbers of the rows in the layer: of KV head
 * g only rows from host_count[g] on may be read. Valid until the layer changes. */
const struct layer_rows *offload_tail(struct offload *, uint32_t l, const struct layer_rows *rows);
/* Sets the length of an offloaded layer to len[G], after a graph has appended rows. Does nothing
 * where layer l is not offloaded. */
void offload_set_len(struct offload *, uint32_t l, const uint32_t *len);
/* to (host) <- the keys (KV_KEYS) or values of all rows of KV head g. Returns 0, or KV_EIO. */
int offload_get(struct offload *, uint32_t l, uint32_t g, enum kv_kind, void *to);

/* ---- a step ---- */

/* Starts a step of layer l that reads the rows row[g * stride ..], n[g] of each KV head, ascending;
 * of the offloaded ones no more than there are slots. Finds slots for those that have none; with a
 * thread, these are read while other layers run. keys: whose keys are read; NULL: all. */
void offload_start_on_host(struct offload *, uint32_t l, const uint32_t *row, size_t stride,
    const uint32_t *n, const struct offload_keys *keys);
/* Copies the positions of the rows that the step fetches to their slots. */
void offload_copy_positions(struct offload *, uint32_t l, const struct layer_rows *rows);
/* Returns 1 where the rows of layer l, an offloaded one, are in host memory that the device
 * reads. */
int offload_device_reads(const struct offload *, uint32_t l);
/* As the two functions before, where the device reads: arguments as of fetch_chosen(). */
void offload_start_on_device(struct offload *, uint32_t l, const struct chosen *,
    const struct layer_rows *rows, const struct low_rank *low, int ahead);
/* Orders later work of the device after all fetches ahead. The selection may change then. */
void offload_wait_all(struct offload *);
/* Waits until the rows of the step are on the device (a device orders its work after that), and
 * returns them in the order of the step, as rows of layer[l].device_rows; valid until the next
 * call. NULL: store->error. */
const struct chosen *offload_wait(struct offload *, uint32_t l);
/* Returns the bytes that the step of layer l has read for KV head g, where the host fills the
 * slots. */
uint64_t offload_step_bytes(const struct offload *, uint32_t l, uint32_t g);
/* bytes[G] <- all that the device has fetched for layer l so far. Waits for the device. */
void offload_fetched_bytes(struct offload *, uint32_t l, uint64_t *bytes);

#endif
