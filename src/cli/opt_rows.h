/* opt_rows.h - how rows are stored: --keys TYPE and --values TYPE of kv-prefill and kv-quantize
 *
 * Functions die with EXIT_USAGE; with EXIT_UNSUPPORTED where the options are right and this model
 * or snapshot does not allow them. */
#ifndef KVPIPE_OPT_ROWS_H
#define KVPIPE_OPT_ROWS_H

#include "libkvfile/kvfile.h"

/* The options as given; NULL: not given. */
struct rows_options {
	const char *keys, *values;
	int rotate;                     /* quantised types are those of the transform, -hadamard */
	const char *skip_layers;        /* layers that stay as they are */
	uint32_t residual;              /* the last rows that stay full; NOT_GIVEN */
};
extern struct rows_options rows_options;

/* Dies unless the options name types. */
void opt_rows(void);
/* Returns the type of KIVI that the options name, or NULL. */
const char *opt_rows_kivi(void);
/* *head <- the types of the options that were given, in all layers but the skipped ones; others
 * stay. Call it when head->dtype, the model's shape and the number of layers are known. Dies if a
 * type does not allow the head width. */
void opt_rows_head(struct kv_head *head);
/* Dies if options were given and the rows of `there`, in a file of this name, have other types. */
void opt_rows_same(const struct kv_head *there, const char *name);
/* Adds the options to the provenance. */
void opt_rows_sign(void);
/* Returns words for the types of a snapshot's rows, for messages: "bf16", "q8_0 keys and q4_0
 * values", or "rows of several types". */
enum { ROWS_WORDS = 64 };
const char *rows_words(char text[ROWS_WORDS], const struct kv_head *head);

#endif
