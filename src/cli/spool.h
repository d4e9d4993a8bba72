/* spool.h - a list of records that is written, then read from its start, and may be long
 *
 * For what is known before it can be printed. Up to RECORDS_MEMORY bytes are in memory, more in a
 * temporary file in $TMPDIR, which has no name and is gone when the program ends. */
#ifndef KVPIPE_SPOOL_H
#define KVPIPE_SPOOL_H

#include <stddef.h>
#include <stdint.h>

enum { RECORDS_MEMORY = 16 << 20 };

struct spool {
	size_t size;            /* the caller's: bytes of a record, at least 1 */
	/* the rest is spool.c's; all zero: no record yet */
	char *memory;           /* [room] records */
	size_t n, room, at;     /* records in memory; of them read */
	int fd;                 /* of the file, when there is one */
	uint64_t filed;         /* records in it that are not read yet */
	int has_file;
};

/* Both die. */
void spool_add(struct spool *, const void *record);
/* The next one, in the order in which they were added, until the call after this one. None is added
 * after the first was read, and not more are read than were added. */
const void *spool_next(struct spool *);
void spool_free(struct spool *);    /* all zero is allowed */

#endif
