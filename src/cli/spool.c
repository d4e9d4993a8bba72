/* spool.c - a possibly long list of records */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/spool.h"
#include "cli/tool.h"

/* Appends the records in memory to the file. */
static void
put_away(struct spool *r)
{
	const char *p = r->memory, *end = p + r->n * r->size;
	ssize_t n;

	if (!r->has_file)
		r->fd = temporary_file();
	r->has_file = 1;
	for (; p < end; p += n)
		if ((n = write(r->fd, p, (size_t)(end - p))) < 0) {
			if (errno != EINTR)
				die(EXIT_RUN, "a temporary file in %s: write:", temporary_folder());
			n = 0;
		}
	r->filed += r->n;
	r->n = 0;
}

void
spool_add(struct spool *r, const void *record)
{
	const size_t most = r->size < RECORDS_MEMORY ? RECORDS_MEMORY / r->size : 1;

	if (r->n == most)
		put_away(r);
	if (r->n == r->room) {
		r->room = 2 * r->room + 64 < most ? 2 * r->room + 64 : most;
		if ((r->memory = realloc(r->memory, r->room * r->size)) == NULL)
			die(EXIT_RUN, "out of memory");
	}
	memcpy(r->memory + r->n++ * r->size, record, r->size);
}

/* Reads records from the file into memory. */
static void
fetch(struct spool *r)
{
	const size_t n = r->filed < r->room ? (size_t)r->filed : r->room;
	char *p = r->memory, *end = p + n * r->size;
	ssize_t got;

	for (; p < end; p += got)
		if ((got = read(r->fd, p, (size_t)(end - p))) <= 0) {
			if (got == 0 || errno != EINTR)
				die(EXIT_RUN, "a temporary file in %s: read:", temporary_folder());
			got = 0;
		}
	r->filed -= n;
	r->n = n;
	r->at = 0;
}

const void *
spool_next(struct spool *r)
{
	if (r->has_file && r->at == 0 && r->filed > 0 && r->n > 0) {
		/* before the first read, so that all are read from the file */
		put_away(r);
		if (lseek(r->fd, 0, SEEK_SET) != 0)
			die(EXIT_RUN, "a temporary file in %s: seek:", temporary_folder());
	}
	if (r->at == r->n)
		fetch(r);
	return r->memory + r->at++ * r->size;
}

void
spool_free(struct spool *r)
{
	if (r->has_file)
		close(r->fd);
	free(r->memory);
	*r = (struct spool){ .size = r->size };
}
