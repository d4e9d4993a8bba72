/* safetensors_convert.h - converts a snapshot to a safetensors file, which any Python can read, and
 * back
 *
 * The tensors, in this order, so that each is aligned for its type:
 *
 *   tokens              I64 [1][T]         all that the sequence has seen
 *   layers.L.positions  I64 [1 or G][S]    of its rows; one list when all KV heads have the same.
 *                                          -1 after the rows of a KV head that has fewer than
 *                                          others: S is the most that one has
 *   logits              F32 [1][V]         where the snapshot has them
 *   layers.L.keys       dtype [1][G][S][E] after rotary embedding; zeros where the position is -1
 *   layers.L.values     dtype [1][G][S][E]
 *
 * Quantised rows become elements of dtype, or stay as they are: U8 [1][G][S][bytes of a row].
 *
 * and in the metadata "kv-snapshot": the text of HEAD, whose row_types are of rows as they are.
 * Queries, attention, scores and indexes are not exported, nor is the event log, since other
 * programs may change the rows. Neither direction has more than the positions of a layer in
 * memory. */
#ifndef KVPIPE_SAFETENSORS_CONVERT_H
#define KVPIPE_SAFETENSORS_CONVERT_H

#include <stdio.h>

#include "engine/engine_error.h"
#include "forward/forward.h"
#include "libkvfile/kvfile.h"
#include "model/safetensors.h"

/* An export. It reads the snapshot three times, each time from its start. All members that the
 * caller does not set are zero at first. */
struct export {
	struct kv_head head;            /* of the file */
	int as_stored;                  /* set by the caller. 1: quantised rows stay as they are */
	uint64_t tokens;
	int logits;
	uint32_t left;                  /* set of kinds, 1 << kind, that are not exported */
	struct export_layer {
		uint32_t *count;        /* [G] */
		uint32_t most;          /* greatest count */
		int one_list;           /* all KV heads have the same positions */
	} *layer;                       /* [L] */
	FILE *to;
	const char *name;               /* of the file, for messages */
	struct step_hook step;          /* layers; call NULL = none */
};

/* First reading: determines all sizes. Fails as the reader does. */
int export_measure(struct export *, struct kv_reader *r, struct engine_error *);
/* Second reading: writes the header and all but keys and values to x->to, which the caller has set,
 * with its name. */
int export_begin(struct export *, struct kv_reader *r, struct engine_error *);
/* Third reading: writes keys and values. */
int export_rows(struct export *, struct kv_reader *r, struct engine_error *);
void export_free(struct export *);

/* An import of a file as a snapshot */
struct import {
	const struct tensor_set *from;
	const char *name;               /* for messages */
	struct kv_head head;
	struct step_hook step;          /* layers; call NULL = none */
};

/* x->head <- HEAD in the metadata, or, without it, the model of `like` (NULL: refused) and the
 * position after the last row's. Checks the shape of each tensor. ENGINE_EDAMAGED, naming the
 * tensor. */
int import_head(struct import *, const struct kv_head *like, struct engine_error *);
/* Writes all sections. A failure of w has its message in w. */
int import_write(const struct import *, struct kv_writer *w, struct engine_error *);

#endif
