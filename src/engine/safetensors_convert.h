/* safetensors_convert.h - a snapshot as a safetensors file, which any Python can read, and back
 *
 * The tensors, in this order, so that each begins where its type wants it:
 *
 *   tokens              I64 [1][T]         all that the sequence has seen
 *   layers.L.positions  I64 [1 or G][S]    of its rows; one list when all KV heads have the same.
 *                                          -1 behind the rows of a KV head that has fewer than
 *                                          others: S is the most that one has
 *   logits              F32 [1][V]         where the snapshot has them
 *   layers.L.keys       dtype [1][G][S][E] after rotary embedding; zeros where the position is -1
 *   layers.L.values     dtype [1][G][S][E]
 *
 * and in the metadata "kv-snapshot": the text of HEAD. What judges rows and what finds them stays
 * behind (queries, attention, scores, indexes), and so does the event log, since nobody knows what
 * happens to the rows elsewhere. Neither direction holds more than the positions of a layer. */
#ifndef KVPIPE_SAFETENSORS_CONVERT_H
#define KVPIPE_SAFETENSORS_CONVERT_H

#include <stdio.h>

#include "engine/engine_error.h"
#include "forward/forward.h"
#include "libkvfile/kvfile.h"
#include "model/safetensors.h"

/* A snapshot that becomes a file. It is read three times, each time from its start; all zero at
 * first. */
struct export {
	struct kv_head head;
	uint64_t tokens;
	int logits;
	uint32_t left;                  /* set of kinds, 1 << kind: sections that stay behind */
	struct export_layer {
		uint32_t *count;        /* [G] */
		uint32_t most;          /* of them */
		int one_list;           /* all KV heads have the same positions */
	} *layer;                       /* [L] */
	FILE *to;
	const char *name;               /* of it, for messages */
	struct step_hook step;          /* layers; call NULL = none */
};

/* The first time: how large everything is. Fails as the reader does. */
int export_measure(struct export *, struct kv_reader *r, struct engine_error *);
/* The second time, with x->to and its name: the header, and all but keys and values. */
int export_begin(struct export *, struct kv_reader *r, struct engine_error *);
/* The third time: keys and values. */
int export_rows(struct export *, struct kv_reader *r, struct engine_error *);
void export_free(struct export *);

/* A file that becomes a snapshot. */
struct import {
	const struct safetensors *from;
	const char *name;               /* for messages */
	struct kv_head head;
	struct step_hook step;          /* layers; call NULL = none */
};

/* x->head <- what the metadata say, or, when it says nothing, the model of `like` (NULL: that is
 * refused) and the position behind the last one. Checks the shape of each tensor. ENGINE_EDAMAGED,
 * naming the tensor. */
int import_head(struct import *, const struct kv_head *like, struct engine_error *);
/* All sections. A failure of w is its own. */
int import_write(const struct import *, struct kv_writer *w, struct engine_error *);

#endif
