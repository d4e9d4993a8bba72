/* convert_rows.h - rows of one type as rows of another: quantises, dequantises, or both */
#ifndef KVPIPE_CONVERT_ROWS_H
#define KVPIPE_CONVERT_ROWS_H

#include "engine/engine_error.h"
#include "libkvfile/kvfile.h"

/* Sums over all numbers of the rows that were converted */
struct rows_error {
	double squares;         /* of the numbers before */
	double error_squares;   /* of the differences that the conversion has made */
};

/* Rows of a section: their types, number in each KV head, and the width E */
struct rows_conversion {
	enum kv_row_type from, to;
	const struct kv_rows *rows;
	uint32_t width;
	unsigned threads;
	const char *name;       /* "KEYS layer 3", for messages */
};

/* to <- rows[sum of rows->count] as rows of the other type. Adds to *error. ENGINE_ERUN: a row that
 * the type cannot store; the message names KV head and row. */
int convert_rows(void *to, const void *from, const struct rows_conversion *,
    struct rows_error *error, struct engine_error *);

#endif
