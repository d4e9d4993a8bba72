/* score_file.h - reads scores of a snapshot's rows that another program has written
 *
 * A .npy file, or text with a line for each row: layer, KV head, position, score, layer after
 * layer; kv-score(1) describes both. Scores are read layer by layer, along with the snapshot,
 * so memory does not grow with the file. All functions die and name the file and the place. */
#ifndef KVPIPE_SCORE_FILE_H
#define KVPIPE_SCORE_FILE_H

#include "cli/npy.h"
#include "libkvfile/kvfile.h"

enum { SCORE_LINE = 512 };      /* most bytes of a line that is not a comment */

struct score_file {
	const char *name;
	FILE *file;
	struct kv_model model;
	int is_npy;
	struct npy npy;
	/* the rest is for text files */
	size_t number;                  /* of the last line read */
	char line[SCORE_LINE];
	int waiting;                    /* `line` belongs to a later layer */
	uint32_t layer, head, position;
	float score;
};

/* "-" is standard input. */
void score_file_open(struct score_file *, const char *path, const struct kv_model *);
/* score[sum S] <- the scores of the next layer's rows. */
void score_file_layer(struct score_file *, uint32_t layer, const struct kv_rows *, float *score);
/* Checks that the file ends after the last layer. */
void score_file_close(struct score_file *);

#endif
