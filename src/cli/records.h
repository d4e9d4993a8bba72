/* records.h - a list of records that is written, then read from its start, and may be long
 *
 * For what is known before it can be printed. Up to RECORDS_MEMORY bytes are in memory, more in a
 * temporary file in $TMPDIR, which has no name and is gone when the program ends. */
#ifndef KVPIPE_RECORDS_H
#define KVPIPE_RECORDS_H

#include <stddef.h>
#include <stdint.h>

enum { RECORDS_MEMORY = 16 << 20 };

struct records {
	size_t size;            /* the caller's: bytes of a record, at least 1 */
	/* the rest is records.c's; all zero: no record yet */
	char *memory;           /* [room] records */
	size_t n, room, at;     /* records in memory; of them read */
	int fd;                 /* of the file, when there is one */
	uint64_t filed;         /* records in it that are not read yet */
	int has_file;
};

/* Both die. */
void records_add(struct records *, const void *record);
/* The next one, in the order in which they were added, until the call after this one. None is added
 * after the first was read, and not more are read than were added. */
const void *records_next(struct records *);
void records_free(struct records *);    /* all zero is allowed */

#endif
