/* offload.h - offloaded layers: keys and values on the host, and on the device the rows of a step,
 * in slots
 *
 * SpeContext (Xu et al. 2025), section 5.4, elastic loading: of the rows S_now that a step reads,
 * those of the step before, S_last, are still in their slots; S_now - S_last is fetched into the
 * slots that S_last - S_now frees. The tail is on the device, after the slots: the appended rows,
 * and before them the last loaded rows, if an index does not cover them yet.
 *
 * If the offloaded rows are in host memory that the device reads (offload_store.h), the device
 * fills the slots (offload_device.h); else the host does (offload_host.h). Callers need not know.
 *
 * Steps that read all rows do without slots: offload_whole.h.
 *
 * Letters as in ops.h. */
#ifndef KVPIPE_OFFLOAD_H
#define KVPIPE_OFFLOAD_H

#include "offload/offload_store.h"
#include "ops/ops.h"

/* Which rows are in the slots of a KV head: n rows, ascending, and the slot of each; slot[n ..] are
 * the free slots. */
struct slot_table {
	uint32_t n;
	uint32_t *row, *slot;           /* [slots] */
};

/* ShadowKV: a step computes most keys from factors. It reads only the keys of exact chunks. */
struct offload_keys {
	/* host [G][chunks] 1: the keys of this chunk are read; NULL: all keys are */
	const uint8_t *exact;
	uint32_t rows, chunks;          /* rows of a chunk; chunks of a KV head */
};

/* What a step of a layer reads. */
struct offload_step {
	const struct chosen *chosen;    /* device: the selected rows; NULL: all rows */
	const struct layer_rows *rows;  /* the layer, with the lengths that `chosen` selects from */
	/* ShadowKV: selected keys that the caller computes from these factors are not read, but
	 * their positions are copied to the slots. exact: host [G][chunks], a copy of low->exact.
	 * NULL: keys are read */
	const struct low_rank *low;
	const uint8_t *exact;
	int ahead;                      /* other layers run before offload_wait() */
	int same;                       /* `chosen` is that of the last offload_start() */
};

struct offload_layer {
	/* host [G] how many rows are offloaded, the first ones; NULL: none */
	uint32_t *host_count;
	struct layer_rows device_rows;  /* of each KV head the slots, then the tail */
	/* the tail, with the row numbers of the layer: row s >= host_count[g] is at start[g] + s,
	 * modulo 2^64. offload_tail() */
	struct layer_rows tail;
	struct slot_table *slot_table;  /* host [G] */
	struct offload_keys keys;
	/* rows to fetch in this step: [G] how many, [G] of how many the key, too; [G][slots] the
	 * rows, and the slots for them */
	uint32_t *new, *new_keys, *row, *slot;
	/* host [G], [G][device_rows.capacity[0]]: the rows of the step, as rows of device_rows */
	uint32_t *n, *read_at;
	/* [G] bytes of keys and values that the host has fetched so far */
	uint64_t *fetched;
	int begun;                      /* a step was started, and offload_wait() not called yet */
	/* if the device fills the slots (else k is NULL): the slots; the rows of the step, as rows
	 * of device_rows; the number of the last fetch_chosen(), and its `ahead` */
	struct offload_slots slots;
	struct chosen list;
	uint64_t fetch;
	int ahead;
};

/* The layer that offload_whole() has copied: its rows, in memory of so many bytes; and, if the
 * device has memory of its own, memory on the host for a KV head */
struct whole_layer {
	struct layer_rows rows;
	void *keys, *values;            /* device */
	size_t key_bytes, value_bytes;
	void *staged;
	size_t staged_bytes;
};

struct offload {
	const struct ops *ops;
	struct dev *dev;
	struct offload_store *store;    /* the caller's */
	uint32_t L, G, slots;
	struct offload_layer *layer;    /* [L] */
	struct chosen chosen;           /* rows of a step, as rows of device_rows, from the host */
	/* host [G][chosen.stride], [G]: the rows of a step; listed: of the last one that was
	 * started */
	uint32_t *step_row, *step_n;
	int listed;
	uint32_t *free;                 /* host [slots] scratch: free slots */
	uint32_t *order;                /* host [slots] 0, 1, 2 ... */
	/* if the device has memory of its own: rows of a layer, to be copied to device_rows */
	struct staged { char *row; uint64_t *at; uint32_t n; } keys, values; /* host [G][slots] */
	struct offload_thread *thread;  /* reads rows ahead; NULL: none */
	int reads_whole;                /* 1: steps read layers whole, offload_whole.h */
	struct whole_layer whole;
};

/* Returns an offload for L layers of G KV heads, none of them offloaded yet; NULL without memory.
 * ahead: where the device shares memory with the host, a thread reads rows while other layers
 * run. */
struct offload *offload_new(const struct ops *, struct dev *, struct offload_store *,
    uint32_t layers, uint32_t heads, int ahead);
void offload_free(struct offload *);                    /* NULL allowed */

/* Returns 1 if layer l is offloaded. NULL: no layer is. */
int offload_has(const struct offload *, uint32_t l);
/* Marks layer l as offloaded; offload_open_layer() allocates its memory. Returns 0, or
 * KV_ENOMEM. */
int offload_mark(struct offload *, uint32_t l);
/* Sets the slots of each KV head: how many offloaded rows a step reads at most. Call after loading,
 * before offload_open_layer(). Returns 0, or KV_ENOMEM. */
int offload_set_slots(struct offload *, uint64_t slots);
/* Allocates the memory of a marked layer, and reads the rows from first[g] on of each KV head g
 * from the store into the tail, with room for `more` appended ones. rows has the positions. Returns
 * 0, KV_ENOMEM, or KV_EIO (store->error). */
int offload_open_layer(struct offload *, uint32_t l, const uint32_t *first,
    const struct layer_rows *rows, uint32_t more);
/* Offloads a layer that is on the device, `from`: copies rows before first[g] to the store, unless
 * it has them, and the others to the tail, with room for `more`. Returns 0, or KV_ENOMEM. */
int offload_move_layer(struct offload *, uint32_t l, const uint32_t *first,
    const struct layer_rows *from, uint32_t more);
/* Makes room for `more` rows in the tails of all layers. Returns 0, or KV_ENOMEM. */
int offload_reserve(struct offload *, uint32_t more);
/* Returns the tail of layer l with the row numbers and lengths of `rows`, the layer: of KV head g
 * only rows from host_count[g] on may be read. Valid until the layer changes. */
const struct layer_rows *offload_tail(struct offload *, uint32_t l, const struct layer_rows *rows);
/* Sets the length of an offloaded layer to len[G], after a graph has appended rows. Does nothing if
 * layer l is not offloaded. */
void offload_set_len(struct offload *, uint32_t l, const uint32_t *len);
/* to (host) <- the keys (KV_KEYS) or values of all rows of KV head g. Returns 0, or KV_EIO. */
int offload_get(struct offload *, uint32_t l, uint32_t g, enum kv_kind, void *to);

/* ---- a step ---- */

/* Starts a step of layer l: assigns slots to the selected offloaded rows that have none, at most
 * `slots` of each KV head, and begins to fetch them. Returns 0 if the device has failed, so that
 * nothing was started; the next sync() reports the failure. */
int offload_start(struct offload *, uint32_t l, const struct offload_step *);
/* Returns 1 if the rows of layer l, an offloaded one, are in host memory that the device reads. */
int offload_device_reads(const struct offload *, uint32_t l);
/* Orders later work of the device after all fetches ahead. The selection may be overwritten after
 * that. */
void offload_wait_all(struct offload *);
/* Waits until the rows of the step are in their slots, or orders later work of the device after
 * that, and returns them in the order of the step, as rows of layer[l].device_rows; valid until the
 * next call. NULL: a failure, in store->error. */
const struct chosen *offload_wait(struct offload *, uint32_t l);
/* bytes[G] <- the bytes of keys and values fetched into slots of layer l so far. Waits for the
 * device. */
void offload_fetched_bytes(struct offload *, uint32_t l, uint64_t *bytes);

#endif
