/* gate_lists.h - the scores of a gate, a number for each row of a cache (kv-snapshot(5), 4.24)
 *
 * They are made while tokens run, and lie on the host, in the order of the host's copy of the
 * positions: what changes that copy changes these lists. Letters as in ops.h. */
#ifndef KVPIPE_GATE_LISTS_H
#define KVPIPE_GATE_LISTS_H

#include "libkvfile/codec.h"
#include "model/gate.h"

struct gate_lists {
	const struct gate *gate;
	/* [L][G] -> [rows], in one allocation for each layer; NULL: no row has been reserved */
	float ***at;
	/* [L] 1: each row has its score; 0: rows were loaded without, or with those of another
	 * gate */
	unsigned char *whole;
	int paused;                     /* 1: rows that run will not stay, and get no scores */
};

/* Returns lists of no rows; NULL without memory. */
struct gate_lists *gate_lists_new(const struct gate *);
void gate_lists_free(struct gate_lists *);              /* NULL is allowed */
/* Moves the lists of layer l to memory for `total` rows, those of KV head g from start[g] on; rows:
 * the present rows. Returns 0, or MODEL_ENOMEM. */
int gate_lists_resize(struct gate_lists *, uint32_t l, const struct layer_rows *rows,
    const uint64_t *start, uint64_t total);
/* Pauses the lists, or goes on. NULL is allowed. */
void gate_lists_pause(struct gate_lists *, int paused);
/* Frees the lists of layer l. */
void gate_lists_clear(struct gate_lists *, uint32_t l);
/* Adds scores[N][G] of N tokens behind the present rows, which are appended later. */
void gate_lists_expect(struct gate_lists *, uint32_t l, const struct layer_rows *rows,
    const float *scores, uint32_t N);
/* Keeps the scores keep[0 .. n-1], ascending, of KV head g. */
void gate_lists_keep(struct gate_lists *, uint32_t l, uint32_t g, const uint32_t *keep, uint32_t n);

/* packed[sum S] <- the scores of the present rows. */
void gate_lists_pack(const struct gate_lists *, uint32_t l, const struct layer_rows *rows,
    float *packed);
/* To and from the section of layer l, of which `rows` may be the first rows of each KV head only.
 * Scores of another gate are passed over, and `whole` stays 0. Return KV_* codes. */
int gate_lists_load(struct gate_lists *, uint32_t l, const struct layer_rows *rows,
    struct kv_reader *);
int gate_lists_save(const struct gate_lists *, uint32_t l, const struct layer_rows *rows,
    struct kv_writer *);

#endif
