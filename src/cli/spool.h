/* spool.h - a possibly long list of records, written once, then read once from its start
 *
 * For results that are known before they can be printed. Up to RECORDS_MEMORY bytes are in
 * memory, the rest in a temporary file in $TMPDIR without a name, deleted when the program
 * ends. */
#ifndef KVPIPE_SPOOL_H
#define KVPIPE_SPOOL_H

#include <stddef.h>
#include <stdint.h>

enum { RECORDS_MEMORY = 16 << 20 };

struct spool {
	size_t size;            /* set by the caller: bytes of a record, at least 1 */
	/* private to spool.c; all zero: empty */
	char *memory;           /* [room] records */
	size_t n, room, at;     /* records in memory, room for, already read */
	int fd;                 /* of the temporary file */
	uint64_t filed;         /* unread records in the file */
	int has_file;
};

/* Appends a record. Call before the first spool_next(). Dies. */
void spool_add(struct spool *, const void *record);
/* Returns the next record in the order of spool_add(), valid until the next call. At most as
 * many calls as records. Dies. */
const void *spool_next(struct spool *);
void spool_free(struct spool *);    /* all zero is allowed */

#endif
