/* text_input.c - reads text files: lists, tables, JSON, and texts for a model
 *
 * Editors mark the encoding of a file (U+FEFF at its beginning), end lines in CR LF, and write
 * UTF-16. Other forms of the same text are accepted; bytes that are not UTF-8 text are refused,
 * since a model would answer to them too. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/report.h"
#include "cli/text_input.h"
#include "cli/tool.h"

enum { MARK_SIZE = sizeof TEXT_MARK - 1, LOOKED_AT = 64 };

static int
open_input(const char *path)
{
	const int fd = strcmp(path, "-") == 0 ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);

	if (fd == -1 && (errno == ENOENT || errno == ENAMETOOLONG))
		die(EXIT_RUN, "%s: %s: want the name of a file, or - for standard input", path,
		    strerror(errno));
	if (fd == -1)
		die(EXIT_RUN, "%s:", path);
	return fd;
}

/* Returns the bytes, zero-terminated. */
static char *
read_bytes(const char *path, size_t *len)
{
	const int fd = open_input(path);
	size_t size = 0, room = 0;
	ssize_t got = 1;
	char *text = NULL;

	path = fd == STDIN_FILENO ? "stdin" : path;
	while (got > 0) {
		if (room - size < 2) {
			room = room == 0 ? 65536 : room * 2;
			if ((text = realloc(text, room)) == NULL)
				die(EXIT_RUN, "%s: out of memory after %zu bytes", path, size);
		}
		report_enter_descriptor(fd, REPORT_LOAD);
		got = read(fd, text + size, room - size - 1);
		report_leave();
		if (got == -1 && errno == EINTR)
			got = 1;
		else if (got == -1)
			die(EXIT_RUN, "%s:", path);
		else
			size += (size_t)got;
	}
	text[size] = '\0';
	report_bytes_in(size);
	if (fd != STDIN_FILENO)
		close(fd);
	*len = size;
	return text;
}

/* UTF-16 and UTF-32 begin with a mark, or have a NUL in every other byte if the text begins in
 * ASCII. */
static int
is_wide(const char *text, size_t len)
{
	const size_t n = len < LOOKED_AT ? len & ~(size_t)1 : LOOKED_AT;
	size_t zeros[2] = { 0, 0 }, i;

	if (len >= 2 && (memcmp(text, "\xff\xfe", 2) == 0 || memcmp(text, "\xfe\xff", 2) == 0))
		return 1;
	for (i = 0; i < n; i++)
		zeros[i & 1] += text[i] == '\0';
	return n >= 4 && zeros[0] != zeros[1] && (zeros[0] == n / 2 || zeros[1] == n / 2);
}

/* Returns 1 if there was a mark, which is removed. */
static int
read_text(const char *path, char **text, size_t *len)
{
	*text = read_bytes(path, len);
	if (is_wide(*text, *len))
		die(EXIT_DAMAGED,
		    "%s: UTF-16 or UTF-32, want UTF-8: iconv -f UTF-16 -t UTF-8 converts it",
		    path_name(path));
	if (*len < MARK_SIZE || memcmp(*text, TEXT_MARK, MARK_SIZE) != 0)
		return 0;
	*len -= MARK_SIZE;
	memmove(*text, *text + MARK_SIZE, *len + 1);
	return 1;
}

/* Returns the number of the line that contains text[at]. */
static size_t
line_of(const char *text, size_t at)
{
	size_t line = 1, i;

	for (i = 0; i < at; i++)
		line += text[i] == '\n';
	return line;
}

const char *
path_name(const char *path)
{
	return strcmp(path, "-") == 0 ? "stdin" : path;
}

void
must_read_list(const char *path, char **text, size_t *len)
{
	const char *zero;

	read_text(path, text, len);
	if ((zero = memchr(*text, '\0', *len)) != NULL)
		die(EXIT_DAMAGED, "%s: line %zu: a NUL byte, which no text has", path_name(path),
		    line_of(*text, (size_t)(zero - *text)));
}

void
must_read_prose(const char *path, char **text, size_t *len)
{
	const char *name = path_name(path), *at;

	if (read_text(path, text, len))
		warning("%s: ignored the byte order mark at its beginning", name);
	if ((at = memchr(*text, '\0', *len)) != NULL)
		warning("%s: line %zu: a NUL byte: is it a text? The model reads it, too", name,
		    line_of(*text, (size_t)(at - *text)));
	if ((at = memmem(*text, *len, "\r\n", 2)) != NULL)
		warning("%s: line %zu ends in CR LF: the model reads the CR, too; tr -d '\\r' "
		    "removes "
		    "it",
		    name, line_of(*text, (size_t)(at - *text)));
}
