/* score_table.h - reads tables of scores at footprints, and computes the critical footprint of
 * each method
 *
 * A line has a method, a footprint and a score, separated by blanks or tabs; the last two
 * fields are the numbers, so that a method's name may contain blanks. Blank lines and lines
 * that begin with # are ignored. */
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
	struct point *points;           /* scratch, for one method */
	double full;                    /* score of the full cache */
};

/* The result for one method. */
struct verdict {
	const char *method;
	struct critical at;
};

/* Reads a table; "-" is standard input. full: the score of the full cache, NaN = that of the
 * method "full" in the table. Dies for an invalid table and names the line. */
void score_table_read(struct score_table *t, const char *path, double full);
void score_table_free(struct score_table *t);

/* Computes the next method's result, in the order of the table. Returns 1, or 0 at the end;
 * dies if the method has two scores at one footprint. */
int score_table_next(struct score_table *t, double want, struct verdict *v);

/* Returns "once", "always", "never" or "non-monotone". */
const char *verdict_word(const struct verdict *v);

#endif
