/* layer_reader.h - a snapshot that is read for computing with it, one layer in memory at a time
 *
 * Of a layer there are rows, keys, values, observation queries and, where it is wanted, an index;
 * or rows and scores alone. Everything else is passed over, and checked on the way. Two snapshots
 * can be read in step. What fails returns an ENGINE_* code; what is wrong with the snapshot has the
 * message of its reader. */
#ifndef KVPIPE_LAYER_READER_H
#define KVPIPE_LAYER_READER_H

#include "cache/index.h"
#include "engine/device_memory.h"
#include "engine/queries.h"

struct layer_reader {
	struct kv_reader *r;            /* the caller's */
	const struct kv_head *head;
	uint64_t n_tokens;              /* from the first layer on */
	/* the current layer: rows and values are the reader's, until it goes on */
	uint32_t layer;
	const struct kv_rows *rows;
	const char *keys, *values;      /* packed, head->dtype */
	struct queries queries;         /* n 0: none */
	/* where each KV head begins among the rows; on the device after layer_reader_upload() */
	struct layer_rows on_device;

	/* what the layer has of the kind that layer_reader_want_index() names */
	const struct device *index_device;      /* NULL: none is wanted */
	enum kv_kind kind;
	struct layer_index index;

	/* after layer_reader_want_scores(): those of the layer, NULL where it has none, and how
	 * they were made, of the first layer that has some */
	const float *score;             /* [sum S] heads in order */
	char score_label[KV_SCORE_LABEL];

	int scores_only;
	float *score_memory;
	size_t score_capacity;
	char *key_memory;
	size_t key_capacity;
	struct area area_keys, area_values, area_positions;
};

/* r has just been opened; it stays the caller's, and open until layer_reader_free(). */
int layer_reader_init(struct layer_reader *, struct kv_reader *r, struct engine_error *);
/* From now on indexes of this kind are loaded on the device. Before the first layer. */
int layer_reader_want_index(struct layer_reader *, const struct device *, enum kv_kind kind,
    struct engine_error *);
/* From now on rows and scores are read, and nothing else: keys and values are not even checked
 * where the input can seek. Before the first layer. */
void layer_reader_want_scores(struct layer_reader *);
/* Goes to layer l, which is the next one. */
int layer_reader_next(struct layer_reader *, uint32_t l, struct engine_error *);
/* Puts rows, keys and values on the device. */
int layer_reader_upload(struct layer_reader *, const struct device *, struct engine_error *);
/* Reads what follows the last layer, to the end marker. */
int layer_reader_finish(struct layer_reader *, struct engine_error *);
/* d NULL: nothing was put there. All zero is allowed. */
void layer_reader_free(struct layer_reader *, const struct device *d);

/* Names the current layer, "a.kv: layer 3: ", in front of a message about memory of the device
 * (ENGINE_ENOROOM). Returns its code. */
int layer_reader_place(const struct layer_reader *, struct engine_error *);

#endif
