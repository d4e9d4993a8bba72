/* row_lists.h - a number for each row of a cache, made while tokens run and kept on the host: the
 * scores of a gate, non-causal attention (kv-snapshot(5), 4.24, 4.25)
 *
 * They are in the order of the host's copy of the positions: what changes that copy changes these
 * lists. Letters as in ops.h. */
#ifndef KVPIPE_ROW_LISTS_H
#define KVPIPE_ROW_LISTS_H

#include "libkvfile/codec.h"
#include "model/model.h"

struct row_lists {
	enum kv_kind kind;              /* of the section, which has one list for each KV head */
	const char *label;              /* the section's; the caller's */
	uint32_t layers, heads;
	/* [L][G] -> [rows], in one allocation for each layer; NULL: no row has been reserved */
	float ***at;
	/* [L] 1: each row has its number; 0: rows were loaded without, or with those of another
	 * label */
	unsigned char *whole;
	int paused;                     /* 1: rows that run will not stay, and get no number */
};

/* Returns lists of no rows; NULL without memory. */
struct row_lists *row_lists_new(const struct kv_model *, enum kv_kind, const char *label);
void row_lists_free(struct row_lists *);                /* NULL is allowed */
/* Moves the lists of layer l to memory for `total` rows, those of KV head g from start[g] on; rows:
 * the present rows. Returns 0, or MODEL_ENOMEM. */
int row_lists_resize(struct row_lists *, uint32_t l, const struct layer_rows *rows,
    const uint64_t *start, uint64_t total);
/* Are numbers to be made? NULL is allowed. */
int row_lists_wanted(const struct row_lists *);
/* Frees the lists of layer l. */
void row_lists_clear(struct row_lists *, uint32_t l);
/* Sets numbers[N][G], of N rows of each KV head, which begin `back` rows before its end. */
void row_lists_put(struct row_lists *, uint32_t l, const struct layer_rows *rows, uint32_t back,
    const float *numbers, uint32_t N);
/* Keeps the numbers keep[0 .. n-1], ascending, of KV head g. */
void row_lists_keep(struct row_lists *, uint32_t l, uint32_t g, const uint32_t *keep, uint32_t n);

/* packed[sum S] <- the numbers of the present rows. */
void row_lists_pack(const struct row_lists *, uint32_t l, const struct layer_rows *rows,
    float *packed);
/* To and from the section of layer l, of which `rows` may be the first rows of each KV head only.
 * Numbers of another label are passed over, and `whole` stays 0. Return KV_* codes. */
int row_lists_load(struct row_lists *, uint32_t l, const struct layer_rows *rows,
    struct kv_reader *);
int row_lists_save(const struct row_lists *, uint32_t l, const struct layer_rows *rows,
    struct kv_writer *);
/* Returns a layer that is not whole; `layers` if all are, and for NULL. */
uint32_t row_lists_missing(const struct row_lists *, uint32_t layers);

#endif
