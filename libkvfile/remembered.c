/* remembered.c - a small text file in which programs remember results that take long to find */
#include "remembered.h"
#include "temporary.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

enum {
	END = 17,                       /* of the file: 16 digits, newline */
	LARGEST = 64 + KV_REMEMBERED_KEYS * (KV_REMEMBERED_LINE + 2) + END
};

static size_t
put_end(char *text, size_t n)
{
	return n + (size_t)snprintf(text + n, END + 1, "%016" PRIx64 "\n", XXH3_64bits(text, n));
}

/* Is this what we have written? Cuts off the first and the last line: returns the lines between, as
 * a string, or NULL. */
static char *
lines_of(const char *format, char *text, size_t n)
{
	const size_t header = strlen(format) + 1;
	char end[END + 1];

	if (n < header + END || memcmp(text, format, header - 1) != 0 || text[header - 1] != '\n')
		return NULL;
	snprintf(end, sizeof end, "%016" PRIx64 "\n", XXH3_64bits(text, n - END));
	if (memcmp(text + n - END, end, END) != 0 || text[n - END - 1] != '\n')
		return NULL;
	text[n - END] = '\0';
	return strlen(text) == n - END ? text + header : NULL;
}

/* text[LARGEST + 1] <- the file, if it is ours alone. Returns its lines, or NULL. */
static char *
read_lines(const struct kv_remembered *r, char *text)
{
	const int fd = open(r->file, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
	struct stat st;
	size_t n = 0;
	ssize_t got;

	if (fd == -1)
		return NULL;
	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid() &&
	    (st.st_mode & (S_IWGRP | S_IWOTH)) == 0 && st.st_size <= LARGEST)
		while (n < LARGEST && (got = read(fd, text + n, LARGEST - n)) > 0)
			n += (size_t)got;
	close(fd);
	return lines_of(r->format, text, n);
}

/* The folder of the file, and the one that this is in. */
static void
make_folders(const char *file)
{
	char *path = strdup(file), *last = path != NULL ? strrchr(path, '/') : NULL, *upper;

	if (last != NULL && last > path) {
		*last = '\0';
		if (mkdir(path, 0700) == -1 && errno == ENOENT &&
		    (upper = strrchr(path, '/')) != NULL && upper > path) {
			*upper = '\0';
			(void)mkdir(path, 0700);
			*upper = '/';
			(void)mkdir(path, 0700);
		}
	}
	free(path);
}

static void
replace(const char *file, const char *text, size_t n)
{
	struct kv_temporary t;
	int fd, written;

	make_folders(file);
	if ((fd = kv_temporary_create(&t, file, 0600)) == -1)
		return;
	written = write(fd, text, n) == (ssize_t)n;
	if (close(fd) == 0 && written)
		(void)kv_temporary_rename(&t, file);
	kv_temporary_end(&t);
}

/* Returns the value behind the key where the line has it, else NULL. */
static const char *
value_behind(const char *line, const char *key)
{
	const size_t n = strlen(key);

	return strncmp(line, key, n) == 0 && line[n] == ' ' ? line + n + 1 : NULL;
}

int
kv_remembered_find(const struct kv_remembered *r, const char *key, char *value, size_t size)
{
	char *text = r->file != NULL ? malloc(LARGEST + 1) : NULL, *line, *rest;
	const char *at;
	int found = 0;

	rest = text != NULL ? read_lines(r, text) : NULL;
	while ((line = strsep(&rest, "\n")) != NULL && !found)
		if ((at = value_behind(line, key)) != NULL && strlen(at) < size) {
			strcpy(value, at);
			found = 1;
		}
	free(text);
	return found;
}

/* Writes the file: the newest of the old lines, without that of the key, and then the new line. to:
 * scratch for it */
static void
add_line(const struct kv_remembered *r, char *old, char *to, const char *key, const char *value)
{
	size_t n = (size_t)sprintf(to, "%s\n", r->format), lines = 0;
	char *rest, *line, *at;

	for (at = old; at != NULL && *at != '\0'; at++)
		lines += *at == '\n';
	rest = old;
	while ((line = strsep(&rest, "\n")) != NULL && *line != '\0')
		if (lines-- < KV_REMEMBERED_KEYS && value_behind(line, key) == NULL)
			n += (size_t)sprintf(to + n, "%s\n", line);
	n += (size_t)sprintf(to + n, "%s %s\n", key, value);
	replace(r->file, to, put_end(to, n));
}

void
kv_remembered_add(const struct kv_remembered *r, const char *key, const char *value)
{
	char *old, *text;

	if (r->file == NULL || strlen(key) + strlen(value) > KV_REMEMBERED_LINE)
		return;
	old = malloc(LARGEST + 1);
	/* by one line longer than what has been read */
	text = malloc(LARGEST + KV_REMEMBERED_LINE + END + 2);
	if (old != NULL && text != NULL)
		add_line(r, read_lines(r, old), text, key, value);
	free(old);
	free(text);
}
