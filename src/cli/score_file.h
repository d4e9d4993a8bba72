/* score_file.h - the scores of a snapshot's rows from a file that another program has written
 *
 * A .npy file, or text with a line for each row: layer, KV head, position, score, layer after
 * layer; kv-score(1) describes both. They are read layer by layer as the snapshot is, so that a
 * file of any length needs no memory. Dies, naming the file and the place. */
#ifndef KVPIPE_SCORE_FILE_H
#define KVPIPE_SCORE_FILE_H

#include "cli/npy.h"
#include "libkvfile/kvfile.h"

enum { SCORE_LINE = 512 };      /* bytes of the longest line that is not a comment */

struct score_file {
	const char *name;
	FILE *file;
	struct kv_model model;
	int is_npy;
	struct npy npy;
	/* the rest is of the text form */
	size_t number;                  /* of the line that was read last */
	char line[SCORE_LINE];
	int waiting;                    /* that line, below, is of a later layer */
	uint32_t layer, head, position;
	float score;
};

/* "-" is standard input. */
void score_file_open(struct score_file *, const char *path, const struct kv_model *);
/* score[sum S] <- those of the rows of the next layer. */
void score_file_layer(struct score_file *, uint32_t layer, const struct kv_rows *, float *score);
/* Behind the last layer: the file ends. */
void score_file_close(struct score_file *);

#endif
