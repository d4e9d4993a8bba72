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

/* A section, KEYS or VALS, of two snapshots that differ in the types of their rows */
struct rows_conversion {
	const struct kv_head *from, *to;
	enum kv_kind kind;
	uint32_t layer;
	const struct kv_rows *rows;
	unsigned threads;
	const char *name;       /* "KEYS layer 3", for messages */
};

/* Returns the bytes of the section in the snapshot `to`. */
size_t converted_size(const struct rows_conversion *);

/* to[converted_size()] <- the content `from` in the types of the other snapshot. Adds to *error.
 * ENGINE_ERUN: a row that the type cannot store; the message names KV head and row. */
int convert_rows(void *to, const void *from, const struct rows_conversion *,
    struct rows_error *error, struct engine_error *);

#endif
