/* npy.c - reads and writes arrays as NumPy's .npy files, front to back */
#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/npy.h"
#include "cli/report.h"
#include "cli/snapshot_io.h"
#include "cli/tool.h"
#include "libkvfile/dtype.h"

#define MAGIC "\x93NUMPY\x01"   /* including the minor version 0 */
#define BEFORE 10               /* bytes before the header text: magic, version, length */
#define HEAD 128                /* bytes of a written header: a multiple of 64 */
#define AT_ONCE 512             /* numbers read at a time */

FILE *
npy_create(const char *path, uint64_t rows, uint64_t columns)
{
	FILE *f = text_create(path);
	char head[HEAD] = MAGIC;
	int n;

	head[8] = HEAD - BEFORE;
	n = snprintf(head + BEFORE, sizeof head - BEFORE, "{'descr': '<f4', 'fortran_order': "
	    "False, 'shape': (%" PRIu64 ", %" PRIu64 "), }", rows, columns);
	memset(head + BEFORE + n, ' ', sizeof head - BEFORE - (size_t)n - 1);
	head[HEAD - 1] = '\n';
	if (fwrite(head, 1, sizeof head, f) != sizeof head)
		die(EXIT_RUN, "%s:", path);
	return f;
}

void
npy_put(FILE *f, const char *path, const float *row, uint64_t columns)
{
	report_enter(REPORT_WRITE);
	if (fwrite(row, sizeof *row, columns, f) != columns)
		die(EXIT_RUN, "%s:", path);
	report_leave();
}

/* ---- headers ---- */

/* Returns the value of a key in the header text, "'shape': (12, 7)" and so on. */
static const char *
value_of(const struct npy *x, const char *text, const char *key)
{
	const char *at = strstr(text, key);

	if (at == NULL)
		die(EXIT_DAMAGED, "%s: its header has no %s", x->path, key);
	at += strlen(key);
	return at + strspn(at, " :");
}

static void
read_type(struct npy *x, const char *text)
{
	const char *type = value_of(x, text, "'descr'");

	if (strncmp(type, "'<f", 3) != 0 || strchr("248", type[3]) == NULL || type[4] != '\'')
		die(EXIT_DAMAGED, "%s: numbers of type %.*s: want '<f2', '<f4' or '<f8'", x->path,
		    (int)strcspn(type, ","), type);
	x->item = (unsigned)(type[3] - '0');
	if (strncmp(value_of(x, text, "'fortran_order'"), "False", 5) != 0)
		die(EXIT_DAMAGED, "%s: the array is in Fortran order: numpy.ascontiguousarray() "
		    "gives it C order", x->path);
}

static void
read_shape(struct npy *x, const char *text)
{
	const char *at = value_of(x, text, "'shape'");
	char *end;

	at += *at == '(';
	for (x->axes = 0; isdigit((unsigned char)*at); x->axes++, at = end + strspn(end, ", ")) {
		if (x->axes == NPY_AXES)
			die(EXIT_DAMAGED, "%s: more than %d axes", x->path, NPY_AXES);
		x->axis[x->axes] = strtoull(at, &end, 10);
	}
	if (*at != ')')
		die(EXIT_DAMAGED, "%s: its shape cannot be read", x->path);
}

int
npy_begins(FILE *f)
{
	const int first = getc(f);

	if (first != EOF)
		ungetc(first, f);
	return first == (unsigned char)MAGIC[0];
}

void
npy_start(struct npy *x, FILE *f, const char *path)
{
	unsigned char before[BEFORE];
	char text[UINT16_MAX + 1];
	size_t n;

	*x = (struct npy){ .file = f, .path = path };
	if (fread(before, 1, BEFORE, f) != BEFORE || memcmp(before, MAGIC, 8) != 0)
		die(EXIT_DAMAGED, "%s: not a .npy file of version 1.0", path);
	n = before[8] | (size_t)before[9] << 8;
	if (fread(text, 1, n, f) != n)
		die(EXIT_DAMAGED, "%s: it ends within its header", path);
	text[n] = '\0';
	read_type(x, text);
	read_shape(x, text);
}

/* ---- numbers ---- */

/* Dies: fewer items than expected. */
static void
ended(const struct npy *x, const char *before)
{
	if (ferror(x->file))
		die(EXIT_RUN, "%s:", x->path);
	die(EXIT_DAMAGED, "%s: it ends before its last %s", x->path, before);
}

/* value[n] <- items of x's type, n <= AT_ONCE */
static void
take_some(struct npy *x, double *value, size_t n)
{
	union { double d[AT_ONCE]; unsigned char bytes[8 * AT_ONCE]; } in;
	float wide[AT_ONCE];
	size_t i;

	if (fread(in.bytes, x->item, n, x->file) != n)
		ended(x, "number");
	if (x->item == 8) {
		memcpy(value, in.d, n * sizeof *value);
		return;
	}
	kv_to_f32(wide, in.bytes, x->item == 2 ? KV_F16 : KV_F32, n);
	for (i = 0; i < n; i++)
		value[i] = wide[i];
}

void
npy_take(struct npy *x, double *value, size_t n)
{
	size_t i, some;

	for (i = 0; i < n; i += some) {
		some = n - i < AT_ONCE ? n - i : AT_ONCE;
		take_some(x, value + i, some);
	}
}

void
npy_end(struct npy *x)
{
	if (getc(x->file) != EOF)
		die(EXIT_DAMAGED, "%s: there are bytes after its last number", x->path);
	if (ferror(x->file))
		die(EXIT_RUN, "%s:", x->path);
}

/* ---- matrices of f32 ---- */

FILE *
npy_open(const char *path, uint64_t *rows, uint64_t columns)
{
	FILE *f = fopen(path, "rb");
	struct npy x;

	if (f == NULL)
		die(EXIT_RUN, "%s:", path);
	npy_start(&x, f, path);
	if (x.item != sizeof(float) || x.axes != 2)
		die(EXIT_DAMAGED, "%s: want a matrix of f32 in C order, little-endian", path);
	if (x.axis[1] != columns)
		die(EXIT_MODEL, "%s: rows of %" PRIu64 " numbers, and the vocabulary has %" PRIu64,
		    path, x.axis[1], columns);
	*rows = x.axis[0];
	return f;
}

void
npy_get(FILE *f, const char *path, float *row, uint64_t columns)
{
	const struct npy x = { .file = f, .path = path };

	if (fread(row, sizeof *row, columns, f) != columns)
		ended(&x, "row");
}
