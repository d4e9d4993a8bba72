/* layer_reader.h - reads a snapshot for computing with it, one layer in memory at a time
 *
 * It loads a layer's rows, keys, values, observation queries and, if wanted, an index; or rows and
 * scores only. Other sections are checked and skipped. Two snapshots can be read in parallel.
 * Functions return an ENGINE_* code; for a damaged snapshot the message is the reader's. */
#ifndef KVPIPE_LAYER_READER_H
#define KVPIPE_LAYER_READER_H

#include "cache/index.h"
#include "engine/device_memory.h"
#include "engine/queries.h"

struct layer_reader {
	struct kv_reader *r;            /* the caller's */
	const struct kv_head *head;
	uint64_t n_tokens;              /* from the first layer on */
	uint64_t row_bytes;             /* of keys and values, of all layers so far */
	/* the current layer; rows and values are valid until the reader goes on */
	uint32_t layer;
	const struct kv_rows *rows;
	/* packed, of the types in on_device: as stored, but with a residual as numbers in
	 * f32 */
	const char *keys, *values;
	struct queries queries;         /* n 0: none */
	/* start and len of each KV head; keys and values on the device after
	 * layer_reader_upload() */
	struct layer_rows on_device;

	/* the layer's index of the kind in layer_reader_want_index() */
	const struct device *index_device;      /* NULL: none is wanted */
	enum kv_kind kind;
	struct layer_index index;

	/* after layer_reader_want_scores(): the scores of the layer, NULL if it has none, and the
	 * label of the first layer with scores */
	const float *score;             /* [sum S] heads in order */
	char score_label[KV_SCORE_LABEL];

	int scores_only;
	float *score_memory;
	size_t score_capacity;
	char *key_memory, *value_memory;        /* the second: values as f32, with a residual */
	size_t key_capacity, value_capacity;
	struct area area_keys, area_values, area_positions;
};

/* Initializes s with r, which has just been opened, is the caller's, and stays open until
 * layer_reader_free(). */
int layer_reader_init(struct layer_reader *, struct kv_reader *r, struct engine_error *);
/* Has indexes of this kind loaded to the device. Call it before the first layer. */
int layer_reader_want_index(struct layer_reader *, const struct device *, enum kv_kind kind,
    struct engine_error *);
/* Has only rows and scores loaded: keys and values are not even checked if the input can seek. Call
 * it before the first layer. */
void layer_reader_want_scores(struct layer_reader *);
/* Loads layer l, which is the next one. */
int layer_reader_next(struct layer_reader *, uint32_t l, struct engine_error *);
/* Copies rows, keys and values to the device. */
int layer_reader_upload(struct layer_reader *, const struct device *, struct engine_error *);
/* Reads the sections after the last layer, to the end marker. */
int layer_reader_finish(struct layer_reader *, struct engine_error *);
/* d NULL: no device was used. All zero is allowed. */
void layer_reader_free(struct layer_reader *, const struct device *d);

/* Prefixes a message about memory of the device (ENGINE_ENOROOM) with the current layer, "a.kv:
 * layer 3: ". Returns the code. */
int layer_reader_place(const struct layer_reader *, struct engine_error *);

#endif
