/* npy.c - matrices of f32 as NumPy's .npy files, row by row */
#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/npy.h"
#include "cli/tool.h"

#define MAGIC "\x93NUMPY\x01"   /* and a zero, the minor version */
#define BEFORE 10               /* bytes before the text: magic, version, the text's length */
#define HEAD 128                /* bytes that we write before the numbers: a multiple of 64 */

FILE *
npy_create(const char *path, uint64_t rows, uint64_t columns)
{
	FILE *f = text_create(path);
	char head[HEAD] = MAGIC;
	int n;

	head[8] = HEAD - BEFORE;
	n = snprintf(head + BEFORE, sizeof head - BEFORE, "{'descr': '<f4', 'fortran_order': False, "
	    "'shape': (%" PRIu64 ", %" PRIu64 "), }", rows, columns);
	memset(head + BEFORE + n, ' ', sizeof head - BEFORE - (size_t)n - 1);
	head[HEAD - 1] = '\n';
	if (fwrite(head, 1, sizeof head, f) != sizeof head)
		die(EXIT_RUN, "%s:", path);
	return f;
}

void
npy_put(FILE *f, const char *path, const float *row, uint64_t columns)
{
	if (fwrite(row, sizeof *row, columns, f) != columns)
		die(EXIT_RUN, "%s:", path);
}

/* The number behind a word of the text, "'shape': (12, 7)" and the like; *end <- what follows it. */
static int
number_at(const char *text, uint64_t *n, char **end)
{
	while (*text == ' ' || *text == '(' || *text == ',')
		text++;
	if (!isdigit((unsigned char)*text))
		return 0;
	*n = strtoull(text, end, 10);
	return 1;
}

/* Does the text say f32, and rows one after the other? */
static int
is_f32(const char *text)
{
	const char *descr = strstr(text, "'descr':"), *order = strstr(text, "'fortran_order':");

	return descr != NULL && order != NULL && strstr(descr, "'<f4'") != NULL &&
	    strncmp(order + strlen("'fortran_order':"), " False", 6) == 0;
}

FILE *
npy_open(const char *path, uint64_t *rows, uint64_t columns)
{
	FILE *f = fopen(path, "rb");
	unsigned char before[BEFORE];
	char text[UINT16_MAX + 1], *end;
	const char *shape;
	uint64_t width;
	size_t n;

	if (f == NULL)
		die(EXIT_RUN, "%s:", path);
	if (fread(before, 1, BEFORE, f) != BEFORE || memcmp(before, MAGIC, 8) != 0)
		die(EXIT_DAMAGED, "%s: not a .npy file of version 1.0", path);
	n = before[8] | (size_t)before[9] << 8;
	if (fread(text, 1, n, f) != n)
		die(EXIT_DAMAGED, "%s: it ends within its header", path);
	text[n] = '\0';
	shape = strstr(text, "'shape':");
	if (!is_f32(text) || shape == NULL || !number_at(shape + strlen("'shape':"), rows, &end) ||
	    !number_at(end, &width, &end))
		die(EXIT_DAMAGED, "%s: want a matrix of f32 in C order, little-endian", path);
	if (width != columns)
		die(EXIT_MODEL, "%s: rows of %" PRIu64 " numbers, and the vocabulary has %" PRIu64,
		    path, width, columns);
	return f;
}

void
npy_get(FILE *f, const char *path, float *row, uint64_t columns)
{
	if (fread(row, sizeof *row, columns, f) == columns)
		return;
	if (ferror(f))
		die(EXIT_RUN, "%s:", path);
	die(EXIT_DAMAGED, "%s: it ends before its last row", path);
}
