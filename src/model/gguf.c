/* gguf.c - reads the header of a GGUF file: metadata and the directory of tensors
 *
 * A file is: "GGUF", u32 version, u64 tensors, u64 keys; the keys with their values; the directory
 * (name, dimensions, type, offset of each tensor); the data, at a multiple of general.alignment.
 * Nothing in the header is believed before it was compared with the size of the file. Memory is
 * allocated for what has been read, never for what a count announces. */
#include <sys/mman.h>

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model/gguf.h"
#include "model/model.h"
#include "model/model_files.h"

#define MAGIC "GGUF"

enum { DEFAULT_ALIGNMENT = 32, MOST_ALIGNMENT = 1 << 20, MOST_DEPTH = 4, MOST_NAME = 65535 };

static const unsigned sizes[GGUF_KINDS] = {
	[GGUF_U8] = 1, [GGUF_I8] = 1, [GGUF_BOOL] = 1, [GGUF_U16] = 2, [GGUF_I16] = 2,
	[GGUF_U32] = 4, [GGUF_I32] = 4, [GGUF_F32] = 4,
	[GGUF_U64] = 8, [GGUF_I64] = 8, [GGUF_F64] = 8
};

/* Where the reader is */
struct reader {
	struct gguf *g;
	const uint8_t *at, *end;
	char *err;
	size_t errlen;
};

#define FAIL(r, code, ...) model_file_fail((r)->err, (r)->errlen, code, (r)->g->path, __VA_ARGS__)
#define BAD(r, ...) FAIL(r, MODEL_EINVALID, __VA_ARGS__)

static uint64_t
room(const struct reader *r)
{
	return (uint64_t)(r->end - r->at);
}

static int
truncated(struct reader *r, const char *what)
{
	return BAD(r, "byte %td: truncated: %s goes on behind the end of the file, at byte %zu",
	    r->at - r->g->map, what, r->g->size);
}

/* Reads so many bytes; NULL: the file ends before. */
static const uint8_t *
take(struct reader *r, uint64_t bytes)
{
	const uint8_t *p = r->at;

	if (bytes > room(r))
		return NULL;
	r->at += bytes;
	return p;
}

static int
take_u32(struct reader *r, uint32_t *v, const char *what)
{
	const uint8_t *p = take(r, sizeof *v);

	*v = 0;
	if (p == NULL)
		return truncated(r, what);
	memcpy(v, p, sizeof *v);
	*v = le32toh(*v);
	return MODEL_OK;
}

static int
take_u64(struct reader *r, uint64_t *v, const char *what)
{
	const uint8_t *p = take(r, sizeof *v);

	*v = 0;
	if (p == NULL)
		return truncated(r, what);
	memcpy(v, p, sizeof *v);
	*v = le64toh(*v);
	return MODEL_OK;
}

/* *name <- a string of printable characters, to be freed */
static int
take_name(struct reader *r, char **name, const char *what)
{
	const uint8_t *from = r->at, *p;
	uint64_t n, i;
	int rc = take_u64(r, &n, what);

	*name = NULL;
	if (rc != MODEL_OK)
		return rc;
	if ((p = take(r, n)) == NULL)
		return truncated(r, what);
	if (n == 0 || n > MOST_NAME)
		return BAD(r, "byte %td: %s of %" PRIu64 " bytes, not 1 to %d", from - r->g->map,
		    what, n, MOST_NAME);
	for (i = 0; i < n; i++)
		if (p[i] <= ' ' || p[i] >= 0x7f)
			return BAD(r, "byte %td: %s with a character that is not printable ASCII",
			    p + i - r->g->map, what);
	if ((*name = strndup((const char *)p, n)) == NULL)
		return FAIL(r, MODEL_ENOMEM, "out of memory");
	return MODEL_OK;
}

/* ---- metadata ---- */

static int skip_array(struct reader *, const char *key, enum gguf_kind *of, uint64_t *count,
    unsigned depth);

static int
skip_string(struct reader *r, const char *key)
{
	uint64_t n;
	int rc = take_u64(r, &n, key);

	if (rc == MODEL_OK && take(r, n) == NULL)
		return truncated(r, key);
	return rc;
}

/* Goes behind the elements of an array: fixed ones at once, others one after the other. */
static int
skip_elements(struct reader *r, const char *key, enum gguf_kind of, uint64_t count, unsigned depth)
{
	enum gguf_kind inner;
	uint64_t bytes, i, n;
	int rc = MODEL_OK;

	if (sizes[of] != 0) {
		if (__builtin_mul_overflow(count, sizes[of], &bytes) || take(r, bytes) == NULL)
			return BAD(r, "byte %td: key %s: an array of %" PRIu64 " elements goes on "
			    "behind the end of the file, at byte %zu", r->at - r->g->map, key,
			    count, r->g->size);
		return MODEL_OK;
	}
	for (i = 0; rc == MODEL_OK && i < count; i++)
		rc = of == GGUF_STRING ? skip_string(r, key) :
		    skip_array(r, key, &inner, &n, depth + 1);
	return rc;
}

static int
skip_array(struct reader *r, const char *key, enum gguf_kind *of, uint64_t *count, unsigned depth)
{
	uint32_t kind;
	int rc;

	if (depth == MOST_DEPTH)
		return FAIL(r, MODEL_EUNSUPPORTED, "key %s: arrays in arrays, more than %d deep",
		    key, MOST_DEPTH);
	if ((rc = take_u32(r, &kind, key)) != MODEL_OK || (rc = take_u64(r, count, key)) !=
	    MODEL_OK)
		return rc;
	if (kind >= GGUF_KINDS)
		return BAD(r, "key %s: an array of elements of unknown type %" PRIu32, key, kind);
	*of = (enum gguf_kind)kind;
	return skip_elements(r, key, *of, *count, depth);
}

static int
take_value(struct reader *r, struct gguf_value *v)
{
	uint32_t kind;
	int rc;

	if ((rc = take_name(r, &v->key, "a key")) != MODEL_OK ||
	    (rc = take_u32(r, &kind, v->key)) != MODEL_OK)
		return rc;
	if (kind >= GGUF_KINDS)
		return BAD(r, "key %s: a value of unknown type %" PRIu32, v->key, kind);
	v->kind = (enum gguf_kind)kind;
	v->data = r->at;
	if (v->kind == GGUF_ARRAY) {
		rc = skip_array(r, v->key, &v->of, &v->count, 0);
		v->data += sizeof(uint32_t) + sizeof(uint64_t);
		return rc;
	}
	if (v->kind == GGUF_STRING) {
		if ((rc = take_u64(r, &v->count, v->key)) != MODEL_OK)
			return rc;
		v->data = r->at;
		return take(r, v->count) != NULL ? MODEL_OK : truncated(r, v->key);
	}
	return take(r, sizes[v->kind]) != NULL ? MODEL_OK : truncated(r, v->key);
}

/* Room for one more element of an array that has n, which grows in powers of two. */
static void *
grown(void *array, size_t n, size_t size)
{
	if ((n & (n - 1)) != 0)
		return array;
	return reallocarray(array, n == 0 ? 1 : 2 * n, size);
}

static int
by_key(const void *a, const void *b)
{
	return strcmp(((const struct gguf_value *)a)->key, ((const struct gguf_value *)b)->key);
}

static int
take_values(struct reader *r, uint64_t n)
{
	struct gguf *g = r->g;
	struct gguf_value *v;
	size_t i;
	int rc = MODEL_OK;

	while (rc == MODEL_OK && g->values < n) {
		if ((v = grown(g->value, g->values, sizeof *v)) == NULL)
			return FAIL(r, MODEL_ENOMEM, "out of memory");
		g->value = v;
		v += g->values++;
		*v = (struct gguf_value){ .key = NULL };
		rc = take_value(r, v);
	}
	if (rc != MODEL_OK)
		return rc;
	if (g->values > 1)
		qsort(g->value, g->values, sizeof *g->value, by_key);
	for (i = 1; i < g->values; i++)
		if (strcmp(g->value[i - 1].key, g->value[i].key) == 0)
			return BAD(r, "key %s is there twice", g->value[i].key);
	return MODEL_OK;
}

/* ---- the directory of tensors ---- */

#define BAD_TENSOR(r, t, fmt, ...) BAD(r, "tensor %s: " fmt, (t)->name, ##__VA_ARGS__)

/* Fills ndim, dim, bytes. */
static int
take_shape(struct reader *r, struct gguf_tensor *t, uint64_t *elements)
{
	uint32_t n;
	unsigned i;
	int rc = take_u32(r, &n, t->name);

	if (rc != MODEL_OK)
		return rc;
	if (n > GGUF_DIMENSIONS)
		return BAD_TENSOR(r, t, "%" PRIu32 " dimensions, more than %d", n, GGUF_DIMENSIONS);
	t->ndim = n;
	*elements = 1;
	for (i = 0; i < n; i++) {
		if ((rc = take_u64(r, &t->dim[i], t->name)) != MODEL_OK)
			return rc;
		if (__builtin_mul_overflow(*elements, t->dim[i], elements))
			return BAD_TENSOR(r, t, "shape is too large");
	}
	return MODEL_OK;
}

/* *offset <- where it begins in the data */
static int
take_tensor(struct reader *r, struct gguf_tensor *t, uint64_t *offset)
{
	uint64_t elements = 0, row;
	uint32_t type;
	int rc;

	if ((rc = take_name(r, &t->name, "the name of a tensor")) != MODEL_OK ||
	    (rc = take_shape(r, t, &elements)) != MODEL_OK ||
	    (rc = take_u32(r, &type, t->name)) != MODEL_OK ||
	    (rc = take_u64(r, offset, t->name)) != MODEL_OK)
		return rc;
	if ((t->type = ggml_type(type)) == NULL)
		return FAIL(r, MODEL_EUNSUPPORTED, "tensor %s: unknown type %" PRIu32, t->name,
		    type);
	row = t->ndim > 0 ? t->dim[0] : 1;
	if (row % t->type->block != 0)
		return BAD_TENSOR(r, t, "rows of %" PRIu64 " numbers are not whole blocks of %s, "
		    "of %" PRIu32, row, t->type->name, t->type->block);
	if (__builtin_mul_overflow(elements / t->type->block, t->type->bytes, &t->bytes))
		return BAD_TENSOR(r, t, "shape is too large");
	return MODEL_OK;
}

static int
take_alignment(struct reader *r, uint64_t *alignment)
{
	int rc = gguf_whole(r->g, "general.alignment", alignment, r->err, r->errlen);

	if (rc == MODEL_OK && (*alignment == 0 || *alignment > MOST_ALIGNMENT ||
	    (*alignment & (*alignment - 1)) != 0))
		return BAD(r, "general.alignment is %" PRIu64 ", not a power of two up to %d",
		    *alignment, MOST_ALIGNMENT);
	return rc;
}

/* data <- where it is; begin: where the data begins in the file */
static int
place(struct reader *r, struct gguf_tensor *t, uint64_t offset, uint64_t begin, uint64_t alignment)
{
	const struct gguf *g = r->g;
	const uint64_t have = begin < g->size ? g->size - begin : 0;

	if (offset % alignment != 0)
		return BAD_TENSOR(r, t, "offset %" PRIu64 " is not a multiple of %" PRIu64, offset,
		    alignment);
	if (offset > have || t->bytes > have - offset)
		return BAD_TENSOR(r, t, "%" PRIu64 " bytes at offset %" PRIu64 " end outside of "
		    "the %" PRIu64 " bytes of data: truncated, or not a whole download", t->bytes,
		    offset, have);
	t->data = t->bytes > 0 ? g->map + begin + offset : g->map;
	return MODEL_OK;
}

static int
by_place(const void *a, const void *b)
{
	const struct gguf_tensor *x = *(const struct gguf_tensor *const *)a;
	const struct gguf_tensor *y = *(const struct gguf_tensor *const *)b;

	if (x->data != y->data)
		return x->data < y->data ? -1 : 1;
	return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

static int
by_name(const void *a, const void *b)
{
	return strcmp((*(const struct gguf_tensor *const *)a)->name,
	    (*(const struct gguf_tensor *const *)b)->name);
}

/* Names that are there twice, and tensors that overlap */
static int
check_directory(struct reader *r)
{
	struct gguf *g = r->g;
	struct gguf_tensor **t = calloc(g->tensors + 1, sizeof *t);
	size_t i;
	int rc = MODEL_OK;

	if (t == NULL)
		return FAIL(r, MODEL_ENOMEM, "out of memory");
	for (i = 0; i < g->tensors; i++)
		t[i] = &g->tensor[i];
	qsort(t, g->tensors, sizeof *t, by_name);
	for (i = 1; rc == MODEL_OK && i < g->tensors; i++)
		if (strcmp(t[i - 1]->name, t[i]->name) == 0)
			rc = BAD_TENSOR(r, t[i], "is there twice");
	qsort(t, g->tensors, sizeof *t, by_place);
	for (i = 1; rc == MODEL_OK && i < g->tensors; i++)
		if (t[i]->bytes > 0 && t[i - 1]->data + t[i - 1]->bytes > t[i]->data)
			rc = BAD_TENSOR(r, t[i], "begins at byte %td, before the end of tensor %s",
			    t[i]->data - g->map, t[i - 1]->name);
	free(t);
	return rc;
}

static int
take_tensors(struct reader *r, uint64_t n)
{
	uint64_t alignment = DEFAULT_ALIGNMENT, begin, *offset = NULL, *o;
	struct gguf *g = r->g;
	struct gguf_tensor *t;
	size_t i;
	int rc = take_alignment(r, &alignment);

	if (rc != MODEL_OK)
		return rc;
	while (rc == MODEL_OK && g->tensors < n) {
		t = grown(g->tensor, g->tensors, sizeof *t);
		g->tensor = t != NULL ? t : g->tensor;
		o = grown(offset, g->tensors, sizeof *o);
		offset = o != NULL ? o : offset;
		if (t == NULL || o == NULL) {
			rc = FAIL(r, MODEL_ENOMEM, "out of memory");
			break;
		}
		t += g->tensors;
		*t = (struct gguf_tensor){ .name = NULL };
		rc = take_tensor(r, t, &offset[g->tensors++]);
	}
	begin = ((uint64_t)(r->at - g->map) + alignment - 1) / alignment * alignment;
	for (i = 0; rc == MODEL_OK && i < g->tensors; i++)
		rc = place(r, &g->tensor[i], offset[i], begin, alignment);
	free(offset);
	return rc == MODEL_OK ? check_directory(r) : rc;
}

/* ---- the file ---- */

static int
check_version(struct reader *r, uint32_t version)
{
	if (version != 0 && (version & 0xffff) == 0)
		return FAIL(r, MODEL_EUNSUPPORTED, "a big-endian GGUF file is not supported");
	if (version == 1)
		return FAIL(r, MODEL_EUNSUPPORTED, "GGUF version 1 is not supported: convert the "
		    "model again, to version 2 or 3");
	if (version != 2 && version != 3)
		return FAIL(r, MODEL_EUNSUPPORTED, "GGUF version %" PRIu32 " is not supported: "
		    "want 2 or 3", version);
	return MODEL_OK;
}

static int
parse(struct reader *r)
{
	/* of a key and of a tensor at least: lengths, types, and what they stand for */
	enum { LEAST_KEY = 14, LEAST_TENSOR = 25 };
	uint64_t tensors, keys;
	uint32_t version;
	int rc;

	if (take(r, sizeof MAGIC - 1) == NULL || memcmp(r->g->map, MAGIC, sizeof MAGIC - 1) != 0)
		return BAD(r, "not a GGUF file");
	if ((rc = take_u32(r, &version, "the version")) != MODEL_OK ||
	    (rc = check_version(r, version)) != MODEL_OK ||
	    (rc = take_u64(r, &tensors, "the number of tensors")) != MODEL_OK ||
	    (rc = take_u64(r, &keys, "the number of keys")) != MODEL_OK)
		return rc;
	if (keys > room(r) / LEAST_KEY || tensors > room(r) / LEAST_TENSOR)
		return BAD(r, "byte 8: %" PRIu64 " tensors and %" PRIu64 " keys have no room in a "
		    "file of %zu bytes", tensors, keys, r->g->size);
	if ((rc = take_values(r, keys)) != MODEL_OK)
		return rc;
	return take_tensors(r, tensors);
}

static int
map_file(struct reader *r)
{
	struct gguf *g = r->g;
	uint64_t size;
	void *map;
	int fd;

	if ((fd = model_file_open(g->path, &size, r->err, r->errlen)) < 0)
		return fd;
	if (size == 0 || size > SIZE_MAX) {
		close(fd);
		return BAD(r, "truncated: %" PRIu64 " bytes", size);
	}
	map = fstat(fd, &g->opened) == 0 ? mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0) :
	    MAP_FAILED;
	if (map == MAP_FAILED)
		FAIL(r, MODEL_EIO, "%s", strerror(errno));
	close(fd);
	if (map == MAP_FAILED)
		return MODEL_EIO;
	g->map = map;
	g->size = size;
	r->at = g->map;
	r->end = g->map + size;
	return MODEL_OK;
}

int
gguf_open(const char *path, struct gguf **out, char *err, size_t errlen)
{
	struct reader r = { .g = calloc(1, sizeof *r.g), .err = err, .errlen = errlen };
	int rc;

	*out = NULL;
	if (r.g == NULL || (r.g->path = strdup(path)) == NULL) {
		free(r.g);
		return model_file_fail(err, errlen, MODEL_ENOMEM, path, "out of memory");
	}
	if ((rc = map_file(&r)) == MODEL_OK)
		rc = parse(&r);
	if (rc != MODEL_OK) {
		gguf_close(r.g);
		return rc;
	}
	*out = r.g;
	return MODEL_OK;
}

int
gguf_open_model(const char *path, struct gguf **out, char *err, size_t errlen)
{
	uint64_t no = 0;
	int rc = gguf_open(path, out, err, errlen);

	if (rc == MODEL_OK && (rc = gguf_whole(*out, "split.no", &no, err, errlen)) == MODEL_OK &&
	    no > 0)
		rc = model_file_fail(err, errlen, MODEL_EUNSUPPORTED, path, "part %" PRIu64 " of a "
		    "split model: name the first one, whose name has -00001-of-", no + 1);
	if (rc != MODEL_OK) {
		gguf_close(*out);
		*out = NULL;
	}
	return rc;
}

void
gguf_close(struct gguf *g)
{
	size_t i;

	if (g == NULL)
		return;
	for (i = 0; i < g->values; i++)
		free(g->value[i].key);
	for (i = 0; i < g->tensors; i++)
		free(g->tensor[i].name);
	if (g->map != NULL)
		munmap((void *)g->map, g->size);
	free(g->value);
	free(g->tensor);
	free(g->path);
	free(g);
}

int
gguf_is(const char *path)
{
	/* O_NONBLOCK: a FIFO is not waited for */
	const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	char magic[sizeof MAGIC - 1];
	struct stat st;
	int is;

	if (fd == -1)
		return 0;
	is = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
	    pread(fd, magic, sizeof magic, 0) == sizeof magic &&
	    memcmp(magic, MAGIC, sizeof magic) == 0;
	close(fd);
	return is;
}
