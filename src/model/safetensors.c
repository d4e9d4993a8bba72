/* safetensors.c - reads a safetensors file without copying tensors that lie as they are computed
 * with
 *
 * A file is: u64 little-endian length of the header, the header (JSON: name -> dtype, shape,
 * data_offsets; and "__metadata__", which we skip), the data. Nothing in the header is believed
 * before it was compared with the size of the file.
 *
 * Files are mapped and never read as a whole. Truncating one that is in use gives SIGBUS, as with
 * any mapping: programs end then, and name it (cli/bus_error.h). */

#include <sys/mman.h>
#include <sys/stat.h>

#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model/file_kind.h"
#include "model/gguf.h"
#include "model/gguf_tensors.h"
#include "model/safetensors_internal.h"

enum { HEADER_MAX = 100000000 };        /* bytes; the format's own limit */

/* bits of one element; kv 0: a type that we know only the size of */
static const struct type {
	const char *name;
	enum kv_dtype kv;
	unsigned bits;
} types[] = {
	{ "BF16", KV_BF16, 16 }, { "F16", KV_F16, 16 }, { "F32", KV_F32, 32 },
	{ "BOOL", 0, 8 }, { "U8", 0, 8 }, { "I8", 0, 8 }, { "U16", 0, 16 }, { "I16", 0, 16 },
	{ "U32", 0, 32 }, { "I32", 0, 32 }, { "U64", 0, 64 }, { "I64", 0, 64 }, { "F64", 0, 64 },
	{ "C64", 0, 64 }, { "F8_E4M3", 0, 8 }, { "F8_E5M2", 0, 8 }, { "F8_E8M0", 0, 8 },
	{ "F6_E2M3", 0, 6 }, { "F6_E3M2", 0, 6 }, { "F4", 0, 4 },
};

static int
get_size(const json_t *v, uint64_t *out)
{
	if (!json_is_integer(v) || json_integer_value(v) < 0)
		return -1;
	*out = (uint64_t)json_integer_value(v);
	return 0;
}

/* ---- one tensor of a header ---- */

/* Fills ndim, dim and *elements. */
static int
parse_shape(struct tensor_set *st, struct tensor *t, const json_t *shape, uint64_t *elements)
{
	size_t i, n = json_array_size(shape);

	*elements = 1;
	if (!json_is_array(shape))
		return BAD_TENSOR(st, t, "no shape");
	if (n > TENSOR_DIMENSIONS)
		return FAIL(st, MODEL_EUNSUPPORTED, t->file, "%s: more than %d dimensions: %zu",
		    t->name, TENSOR_DIMENSIONS, n);
	t->ndim = (unsigned)n;
	for (i = 0; i < n; i++) {
		if (get_size(json_array_get(shape, i), &t->dim[i]) == -1)
			return BAD_TENSOR(st, t, "shape is not a list of sizes");
		if (__builtin_mul_overflow(*elements, t->dim[i], elements))
			return BAD_TENSOR(st, t, "shape is too large");
	}
	return MODEL_OK;
}

/* Fills dtype and type. Where the type is one we know, checks the bytes against the shape. */
static int
parse_type(struct tensor_set *st, struct tensor *t, const json_t *name, uint64_t elements)
{
	uint64_t bits;
	size_t i;

	if ((t->type = json_string_value(name)) == NULL)
		return BAD_TENSOR(st, t, "no dtype");
	for (i = 0; i < sizeof types / sizeof types[0]; i++)
		if (strcmp(types[i].name, t->type) == 0)
			break;
	if (i == sizeof types / sizeof types[0])
		return MODEL_OK;               /* newer than this program: refused when asked for */
	t->dtype = types[i].kv;
	t->weight = (enum weight_type)types[i].kv;
	if (__builtin_mul_overflow(elements, types[i].bits, &bits))
		return BAD_TENSOR(st, t, "shape is too large");
	if (bits % 8 != 0 || bits / 8 != t->bytes)
		return BAD_TENSOR(st, t, "its shape needs %" PRIu64 " bits of %s, data_offsets "
		    "span %" PRIu64 " bytes", bits, t->type, t->bytes);
	return MODEL_OK;
}

/* base: where the data begins in the file. */
static int
parse_tensor(struct tensor_set *st, const struct shard *sh, uint64_t base, struct tensor *t,
    const json_t *v)
{
	const json_t *offsets = json_object_get(v, "data_offsets");
	uint64_t begin, end, elements, room = sh->size - base;
	int rc;

	if (json_object_size(v) != 3)
		return BAD_TENSOR(st, t, "not an object of dtype, shape and data_offsets");
	if (json_array_size(offsets) != 2 || get_size(json_array_get(offsets, 0), &begin) == -1 ||
	    get_size(json_array_get(offsets, 1), &end) == -1)
		return BAD_TENSOR(st, t, "data_offsets are not two sizes");
	if (begin > end || end > room)
		return BAD_TENSOR(st, t, "data_offsets [%" PRIu64 ",%" PRIu64 "] are outside of "
		    "the %" PRIu64 " bytes of data", begin, end, room);
	t->data = sh->map + base + begin;
	t->bytes = end - begin;
	if ((rc = parse_shape(st, t, json_object_get(v, "shape"), &elements)) != MODEL_OK)
		return rc;
	return parse_type(st, t, json_object_get(v, "dtype"), elements);
}

/* ---- one file ---- */

static int
by_place(const void *a, const void *b)
{
	const struct tensor *x = a, *y = b;

	if (x->data != y->data)
		return (const uint8_t *)x->data < (const uint8_t *)y->data ? -1 : 1;
	return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

int
safetensors_by_name(const void *a, const void *b)
{
	return strcmp(((const struct tensor *)a)->name, ((const struct tensor *)b)->name);
}

/* The tensors must cover the data exactly: no overlap, no hole, nothing behind the last one. */
static int
check_cover(struct tensor_set *st, const struct shard *sh, uint64_t base, struct tensor *t,
    size_t n)
{
	const uint8_t *end = sh->map + base, *begin;
	size_t i;

	qsort(t, n, sizeof *t, by_place);
	for (i = 0; i < n; i++) {
		begin = t[i].data;
		if (begin != end)
			return BAD_TENSOR(st, &t[i], "%s: it begins at byte %td, byte %td is next",
			    begin < end ? "overlap" : "hole", begin - sh->map, end - sh->map);
		end = begin + t[i].bytes;
	}
	if (end != sh->map + sh->size)
		return BAD(st, sh->path, "the tensors end at byte %td of %zu", end - sh->map,
		    sh->size);
	return MODEL_OK;
}

/* Reads the JSON of the header; *base becomes the offset of the data. */
static int
parse_header(struct tensor_set *st, struct shard *sh, uint64_t *base)
{
	json_error_t e;
	uint64_t len;

	if (sh->size < 8)
		return BAD(st, sh->path, "truncated: %zu bytes, no header", sh->size);
	memcpy(&len, sh->map, sizeof len);
	len = le64toh(len);
	if (len > HEADER_MAX)
		return BAD(st, sh->path, "header of %" PRIu64 " bytes, more than %d", len,
		    HEADER_MAX);
	if (len > sh->size - 8)
		return BAD(st, sh->path, "truncated: header of %" PRIu64 " bytes, file of %zu", len,
		    sh->size);
	if (len == 0 || sh->map[8] != '{')
		return BAD(st, sh->path, "byte 8: the header does not begin with '{'");
	sh->header = json_loadb((const char *)sh->map + 8, len, JSON_REJECT_DUPLICATES, &e);
	if (sh->header == NULL && json_error_code(&e) == json_error_out_of_memory)
		return FAIL(st, MODEL_ENOMEM, sh->path, "out of memory");
	if (sh->header == NULL)
		return BAD(st, sh->path, "header, byte %d: %s", e.position + 8,
		    json_words(&e));
	*base = 8 + len;
	return MODEL_OK;
}

/* Appends the tensors of a mapped file. */
static int
parse_shard(struct tensor_set *st, struct shard *sh)
{
	struct tensor *t;
	const char *key;
	json_t *v;
	uint64_t base = 0;
	size_t first = st->n;
	int rc;

	if ((rc = parse_header(st, sh, &base)) != MODEL_OK)
		return rc;
	t = realloc(st->tensor, (first + json_object_size(sh->header) + 1) * sizeof *t);
	if (t == NULL)
		return FAIL(st, MODEL_ENOMEM, sh->path, "out of memory");
	st->tensor = t;
	json_object_foreach(sh->header, key, v) {
		if (strcmp(key, "__metadata__") == 0)
			continue;
		t = &st->tensor[st->n++];
		*t = (struct tensor){ .name = key, .file = sh->path };
		if ((rc = parse_tensor(st, sh, base, t, v)) != MODEL_OK)
			return rc;
	}
	return check_cover(st, sh, base, st->tensor + first, st->n - first);
}

static int
map_shard(struct tensor_set *st, struct shard *sh)
{
	uint64_t size;
	void *map;
	int fd;

	if ((fd = model_file_open(sh->path, &size, st->err, st->errlen)) < 0)
		return fd;
	if (size == 0 || size > SIZE_MAX) {
		close(fd);
		return BAD(st, sh->path, "truncated: %" PRIu64 " bytes, no header", size);
	}
	map = fstat(fd, &sh->opened) == 0 ? mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0) :
	    MAP_FAILED;
	if (map == MAP_FAILED)
		FAIL(st, MODEL_EIO, sh->path, "%s", strerror(errno));
	close(fd);
	if (map == MAP_FAILED)
		return MODEL_EIO;
	sh->map = map;
	sh->size = size;
	return MODEL_OK;
}

int
safetensors_add(struct tensor_set *st, const char *dir, const char *name)
{
	struct shard *sh;
	char kind[512];
	int rc;

	sh = realloc(st->shard, (st->shards + 1) * sizeof *sh);
	if (sh == NULL)
		return FAIL(st, MODEL_ENOMEM, dir, "out of memory");
	st->shard = sh;
	sh += st->shards;
	*sh = (struct shard){ .path = model_file_path(dir, name) };
	if (sh->path == NULL)
		return FAIL(st, MODEL_ENOMEM, dir, "out of memory");
	st->shards++;
	sh->name = sh->path + strlen(dir) + 1;
	if ((rc = map_shard(st, sh)) == MODEL_OK)
		rc = parse_shard(st, sh);
	if (rc == MODEL_EINVALID && file_kind(sh->path, WANT_SAFETENSORS, kind, sizeof kind))
		return BAD(st, sh->path, "%s", kind);
	return rc;
}

/* Those whose values we compute with must lie at multiples of their size. A header that is not
 * padded leaves all of its file elsewhere: these tensors are copied. */
static int
align_tensors(struct tensor_set *st)
{
	const struct tensor *first = NULL;
	struct tensor *t;
	uint64_t bytes = 0;

	for (t = st->tensor; t < st->tensor + st->n; t++) {
		if (t->dtype == 0 || t->bytes == 0 ||
		    (uintptr_t)t->data % kv_dtype_size(t->dtype) == 0)
			continue;
		if ((t->copy = malloc(t->bytes)) == NULL)
			return FAIL(st, MODEL_ENOMEM, t->file, "%s: not aligned for %s, no memory "
			    "for a copy of %" PRIu64 " bytes: save it again with a padded header",
			    t->name, t->type, t->bytes);
		memcpy(t->copy, t->data, t->bytes);
		t->data = t->copy;
		bytes += t->bytes;
		first = first == NULL ? t : first;
	}
	if (first != NULL)
		notice(&st->overrides->notice, "%s: data is not aligned (%s): copied "
		    "%" PRIu64 " bytes; save it again with a padded header", first->file,
		    first->name, bytes);
	return MODEL_OK;
}

/* name: of the one file; NULL: those of a model */
static int
open_files(const char *dir, const char *name, const struct overrides *overrides,
    struct tensor_set **out, char *err, size_t errlen)
{
	struct tensor_set *st;
	int rc;

	*out = NULL;
	if ((st = calloc(1, sizeof *st)) == NULL)
		return model_file_fail(err, errlen, MODEL_ENOMEM, dir, "out of memory");
	st->err = err;
	st->errlen = errlen;
	st->overrides = overrides;
	if (name == NULL)
		rc = gguf_is(dir) ? gguf_tensors_add(st, dir) : safetensors_add_folder(st, dir);
	else if ((rc = safetensors_add(st, dir, name)) == MODEL_OK && st->n > 0)
		qsort(st->tensor, st->n, sizeof *st->tensor, safetensors_by_name);
	if (rc != MODEL_OK || (rc = align_tensors(st)) != MODEL_OK) {
		safetensors_close(st);
		return rc;
	}
	*out = st;
	return MODEL_OK;
}

int
safetensors_open(const char *dir, const struct overrides *overrides, struct tensor_set **out,
    char *err, size_t errlen)
{
	return open_files(dir, NULL, overrides, out, err, errlen);
}

int
safetensors_open_file(const char *dir, const char *name, const struct overrides *overrides,
    struct tensor_set **out, char *err, size_t errlen)
{
	return open_files(dir, name, overrides, out, err, errlen);
}

void
safetensors_close(struct tensor_set *st)
{
	size_t i, j;

	if (st == NULL)
		return;
	for (i = 0; i < st->shards; i++) {
		for (j = 0; j < st->shard[i].n_names; j++)
			free(st->shard[i].names[j]);
		free(st->shard[i].names);
		if (st->shard[i].map != NULL)
			munmap((void *)st->shard[i].map, st->shard[i].size);
		json_decref(st->shard[i].header);
		free(st->shard[i].path);
	}
	for (i = 0; i < st->n; i++)
		free(st->tensor[i].copy);
	free(st->shard);
	free(st->tensor);
	free(st);
}

/* ---- reading ---- */

const struct tensor *
safetensors_find(const struct tensor_set *st, const char *name)
{
	struct tensor key = { .name = name };

	if (st->n == 0)
		return NULL;
	return bsearch(&key, st->tensor, st->n, sizeof key, safetensors_by_name);
}

const char *
safetensors_metadata(const struct tensor_set *st, const char *key)
{
	return json_string_value(json_object_get(json_object_get(st->shard[0].header,
	    "__metadata__"), key));
}

size_t
safetensors_count(const struct tensor_set *st)
{
	return st->n;
}

const struct tensor *
safetensors_at(const struct tensor_set *st, size_t i)
{
	return i < st->n ? &st->tensor[i] : NULL;
}

const char *
safetensors_file(const struct tensor_set *st, size_t i, struct stat *opened)
{
	if (i >= st->shards)
		return NULL;
	if (opened != NULL)
		*opened = st->shard[i].opened;
	return st->shard[i].path;
}

#ifdef FUZZ
/* make fuzz-safetensors: any bytes as one file; what is accepted must be readable. Few mutations
 * keep the length of the header right, so each input is tried with a right one, too: up to the last
 * '}'. */
int LLVMFuzzerTestOneInput(const uint8_t *, size_t);

static void
fuzz_file(const uint8_t *data, size_t size)
{
	struct shard sh = { .path = (char *)"fuzz", .name = "fuzz", .map = data, .size = size };
	char err[256];
	struct tensor_set st = { .err = err, .errlen = sizeof err };
	volatile uint8_t read;
	size_t i, j;

	if (parse_shard(&st, &sh) == MODEL_OK) {
		for (i = 0; i < st.n; i++)
			for (j = 0; j < st.tensor[i].bytes; j++)
				read = ((const uint8_t *)st.tensor[i].data)[j];
		(void)read;
	}
	json_decref(sh.header);
	free(st.tensor);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t *copy, *end;
	uint64_t len;

	fuzz_file(data, size);
	if (size > 8 && (copy = malloc(size)) != NULL) {
		memcpy(copy, data, size);
		end = memrchr(copy + 8, '}', size - 8);
		len = htole64(end == NULL ? 0 : (uint64_t)(end - copy - 7));
		memcpy(copy, &len, sizeof len);
		fuzz_file(copy, size);
		free(copy);
	}
	return 0;
}
#endif
