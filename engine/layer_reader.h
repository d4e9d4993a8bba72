/* layer_reader.h - a snapshot that is read for computing with it, one layer in memory at a time
 *
 * Of a layer there are rows, keys, values, observation queries and, where it is wanted, an index;
 * everything else is passed over, and checked on the way. Two snapshots can be read in step. All
 * functions die. */
#ifndef KVPIPE_LAYER_READER_H
#define KVPIPE_LAYER_READER_H

#include "model/index.h"
#include "cli/device.h"
#include "engine/queries.h"

struct layerwise {
	struct kv_reader *r;
	const struct kv_head *head;
	uint32_t *tokens;               /* [n_tokens], from the first layer on */
	uint64_t n_tokens;
	/* the current layer: rows and values are the reader's, until it goes on */
	uint32_t layer;
	const struct kv_rows *rows;
	const char *keys, *values;      /* packed, head->dtype */
	struct queries queries;         /* n 0: none */
	struct layer_rows there;        /* the same rows on the device; layerwise_upload() */

	/* what the layer has of the kind that layerwise_want_index() names */
	const struct device *index_device;      /* NULL: none is wanted */
	enum index_kind kind;
	struct layer_index index;

	char *key_memory;
	size_t key_room;
	struct area area_keys, area_values, area_positions;
};

/* "-" is standard input. */
void layerwise_open(struct layerwise *, const char *path);
/* From now on indexes of this kind are loaded on the device. Before the first layer. */
void layerwise_want_index(struct layerwise *, const struct device *, enum index_kind kind);
/* Goes to layer l, which is the next one. */
void layerwise_next(struct layerwise *, uint32_t l);
/* Puts rows, keys and values on the device. */
void layerwise_upload(struct layerwise *, const struct device *);
/* Reads what follows the last layer, to the end marker. */
void layerwise_finish(struct layerwise *);
/* d NULL: nothing was put there. */
void layerwise_close(struct layerwise *, const struct device *d);

#endif
