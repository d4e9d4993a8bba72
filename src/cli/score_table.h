/* score_table.h - tables of scores at footprints, and the critical footprint of each method in one
 *
 * A line of a table has a method, a footprint and a score, separated by blanks or tabs; the last
 * two fields are the numbers, so that the name of a method may have blanks in it. Lines that
 * begin with # and blank ones say nothing. */
#ifndef KVPIPE_SCORE_TABLE_H
#define KVPIPE_SCORE_TABLE_H

#include <stddef.h>

#include "methods/footprint.h"

struct score_line {
	const char *method;
	struct point at;
	int done;
};

struct score_table {
	const char *name;               /* of the file */
	char *text;
	struct score_line *line;
	size_t n, next;
	struct point *points;           /* room for those of one method */
	double full;                    /* score of the full cache */
};

/* One method: where it reaches the score. */
struct verdict {
	const char *method;
	struct critical at;
};

/* Reads a table; "-" is standard input. full: the score of the full cache, NaN = that of the
 * method "full" in the table. Dies when the table cannot be right, naming the line. */
void score_table_read(struct score_table *t, const char *path, double full);
void score_table_free(struct score_table *t);

/* The next method, in the order of the table. 1, or 0 at the end; dies when it has two scores
 * at one footprint. */
int score_table_next(struct score_table *t, double want, struct verdict *v);

/* "once", "always", "never" or "non-monotone". */
const char *verdict_word(const struct verdict *v);

#endif
