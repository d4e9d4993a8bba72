/* model_gguf - GGUF files: valid, cut anywhere, with each byte changed, lying about themselves */

#include "model/gguf.h"
#include "model/safetensors.h"
#include "tests/unit/model_folder.h"

enum { U32 = 4, F32 = 6, STRING = 8, ARRAY = 9, U64 = 10 };

/* A file as it is built */
static uint8_t file[65536];
static size_t size;

static void
add_bytes(const void *data, size_t n)
{
	memcpy(file + size, data, n);
	size += n;
}

static void
put_u32(uint32_t v)
{
	const uint8_t b[4] = { (uint8_t)v, (uint8_t)(v >> 8), (uint8_t)(v >> 16),
		(uint8_t)(v >> 24) };

	add_bytes(b, sizeof b);
}

static void
put_u64(uint64_t v)
{
	put_u32((uint32_t)v);
	put_u32((uint32_t)(v >> 32));
}

static void
put_text(const char *text)
{
	put_u64(strlen(text));
	add_bytes(text, strlen(text));
}

static void
begin_file(uint32_t version, uint64_t tensors, uint64_t keys)
{
	size = 0;
	add_bytes("GGUF", 4);
	put_u32(version);
	put_u64(tensors);
	put_u64(keys);
}

static void
key_text(const char *key, const char *value)
{
	put_text(key);
	put_u32(STRING);
	put_text(value);
}

static void
key_u32(const char *key, uint32_t value)
{
	put_text(key);
	put_u32(U32);
	put_u32(value);
}

static void
tensor(const char *name, uint32_t ndim, uint64_t a, uint64_t b, uint32_t type, uint64_t offset)
{
	put_text(name);
	put_u32(ndim);
	if (ndim > 0)
		put_u64(a);
	if (ndim > 1)
		put_u64(b);
	put_u32(type);
	put_u64(offset);
}

static void
data(size_t n)
{
	size = (size + 31) / 32 * 32;
	memset(file + size, 7, n);
	size += n;
}

static char path[256];
static const char *dir;

static int
open_file(struct gguf **g, char *err, size_t errlen)
{
	write_file(dir, "x.gguf", file, size);
	return gguf_open(path, g, err, errlen);
}

static void
refused(const char *what, int code, const char *message)
{
	struct gguf *g = (struct gguf *)&g;
	char err[512] = "";
	int rc = open_file(&g, err, sizeof err);

	check_refused(what, rc, code, err, message);
	CHECK(rc == MODEL_OK || g == NULL, "%s: out is not NULL", what);
	if (rc == MODEL_OK)
		gguf_close(g);
}

/* One of each kind of value, arrays in arrays, two tensors */
static void
valid(void)
{
	begin_file(3, 2, 5);
	key_text("general.architecture", "llama");
	key_u32("llama.attention.head_count", 2);
	put_text("a.array");
	put_u32(ARRAY);
	put_u32(ARRAY);
	put_u64(2);
	put_u32(STRING);
	put_u64(2);
	put_text("one");
	put_text("two");
	put_u32(U64);
	put_u64(1);
	put_u64(5);
	put_text("a.float");
	put_u32(F32);
	add_bytes("\xac\xc5\x27\x37", 4);             /* 1e-05 */
	put_text("a.list");
	put_u32(ARRAY);
	put_u32(U32);
	put_u64(3);
	put_u32(8);
	put_u32(8);
	put_u32(8);
	tensor("blk.0.attn_q.weight", 2, 3, 4, 0, 0);
	tensor("output_norm.weight", 1, 5, 0, 1, 64);
	data(64 + 10);
}

static void
test_valid(void)
{
	const struct tensor *t;
	struct tensor_set *st;
	struct gguf *g;
	uint64_t whole = 1;
	double real = 0;
	char err[512] = "";

	valid();
	CHECK(open_file(&g, err, sizeof err) == MODEL_OK, "%s", err);
	CHECK(gguf_is(path), "not recognised");
	CHECK(gguf_whole(g, "a.list", &whole, err, sizeof err) == MODEL_OK && whole == 8,
	    "an array of equal numbers is %" PRIu64 ": %s", whole, err);
	CHECK(gguf_real(g, "a.float", &real, err, sizeof err) == MODEL_OK && real == 1e-5,
	    "%.17g: %s", real, err);
	CHECK(gguf_whole(g, "none", &whole, err, sizeof err) == MODEL_OK && whole == 8,
	    "an absent key changes the number: %s", err);
	check_refused("text", gguf_whole(g, "general.architecture", &whole, err, sizeof err),
	    MODEL_EINVALID, err, "is a string, not a whole number");
	check_refused("nested", gguf_whole(g, "a.array", &whole, err, sizeof err), MODEL_EINVALID,
	    err, "is an array of arrays, not a whole number");
	gguf_close(g);
	CHECK(safetensors_open(path, &no_overrides, &st, err, sizeof err) == MODEL_OK, "%s", err);
	t = safetensors_find(st, "model.layers.0.self_attn.q_proj.weight");
	CHECK(t != NULL && t->ndim == 2 && t->dim[0] == 4 && t->dim[1] == 3 && t->bytes == 48 &&
	    t->interleaved == 2 && t->dtype == KV_F32, "no such matrix");
	t = safetensors_find(st, "model.norm.weight");
	CHECK(t != NULL && t->dim[0] == 5 && t->bytes == 10 && t->dtype == KV_F16, "no such norm");
	safetensors_close(st);
}

static void
test_cut(void)
{
	struct gguf *g;
	char err[512];
	size_t all, n;

	valid();
	for (all = size, n = 0; n < all; n++) {
		size = n;
		CHECK(open_file(&g, err, sizeof err) == MODEL_EINVALID, "%zu of %zu bytes: %s", n,
		    all, err);
	}
}

/* Nothing but a code and a message, or a file that can be read whole */
static void
test_changed(void)
{
	static const uint8_t to[] = { 0x01, 0x80, 0xff };
	struct gguf *g;
	uint8_t was;
	char err[512];
	size_t i, j, k, ends = 0;

	valid();
	for (i = 0; i < size; i++)
		for (j = 0, was = file[i]; j < sizeof to; j++) {
			file[i] = to[j];
			if (open_file(&g, err, sizeof err) == MODEL_OK) {
				for (k = 0; k < g->tensors; k++)
					ends += g->tensor[k].bytes > 0 ?
					    g->tensor[k].data[g->tensor[k].bytes - 1] : 0;
				gguf_close(g);
			} else
				CHECK(strncmp(err, path, strlen(path)) == 0, "%s", err);
			file[i] = was;
		}
	CHECK(ends > 0, "none could be read");
}

static void
test_header(void)
{
	begin_file(1, 0, 0);
	refused("version 1", MODEL_EUNSUPPORTED, "GGUF version 1 is not supported");
	begin_file(4, 0, 0);
	refused("version 4", MODEL_EUNSUPPORTED, "GGUF version 4 is not supported: want 2 or 3");
	begin_file(0x03000000, 0, 0);
	refused("big-endian", MODEL_EUNSUPPORTED, "big-endian");
	begin_file(3, UINT64_MAX, 1);
	refused("tensors", MODEL_EINVALID, "18446744073709551615 tensors and 1 keys have no room");
	begin_file(3, 0, UINT64_MAX / 14);
	refused("keys", MODEL_EINVALID, "keys have no room in a file of 24 bytes");
	begin_file(3, 0, 0);
	put_u32(0);
	memcpy(file, "GGML", 4);
	refused("magic", MODEL_EINVALID, "not a GGUF file");
}

/* A key of this kind, with what has been put behind it; 64 bytes of room follow */
static void
refused_value(const char *what, uint32_t kind, const uint64_t *words, size_t n, int code,
    const char *message)
{
	size_t i;

	begin_file(3, 0, 1);
	put_text("some.key");
	put_u32(kind);
	for (i = 0; i < n; i++)
		i % 2 == 0 && kind == ARRAY ? put_u32((uint32_t)words[i]) : put_u64(words[i]);
	data(64);
	refused(what, code, message);
}

static void
test_values(void)
{
	const uint64_t many = UINT64_MAX / 2, deep[] = { ARRAY, 1, ARRAY, 1, ARRAY, 1, ARRAY, 1,
		ARRAY, 1, U32, 1, 7 };

	refused_value("kind", 13, NULL, 0, MODEL_EINVALID,
	    "key some.key: a value of unknown type 13");
	refused_value("string", STRING, (uint64_t[]){ many }, 1, MODEL_EINVALID,
	    "some.key goes on");
	refused_value("array", ARRAY, (uint64_t[]){ U32, many }, 2, MODEL_EINVALID,
	    "key some.key: an array of 9223372036854775807 elements goes on behind");
	refused_value("array of strings", ARRAY, (uint64_t[]){ STRING, many }, 2, MODEL_EINVALID,
	    "truncated");
	refused_value("array of a kind", ARRAY, (uint64_t[]){ 99, 1 }, 2, MODEL_EINVALID,
	    "elements of unknown type 99");
	refused_value("array of arrays", ARRAY, (uint64_t[]){ ARRAY, many }, 2, MODEL_EINVALID,
	    "key some.key");
	refused_value("deep", ARRAY, deep, 13, MODEL_EUNSUPPORTED, "more than 4 deep");
	begin_file(3, 0, 2);
	key_u32("a.b", 1);
	key_u32("a.b", 2);
	refused("a key twice", MODEL_EINVALID, "key a.b is there twice");
	begin_file(3, 0, 1);
	key_u32("", 1);
	data(64);
	refused("no name", MODEL_EINVALID, "a key of 0 bytes");
	begin_file(3, 0, 1);
	key_u32("a\tb", 1);
	data(64);
	refused("a tab", MODEL_EINVALID, "not printable ASCII");
	begin_file(3, 1, 1);
	key_u32("general.alignment", 24);
	tensor("t", 1, 2, 0, 0, 0);
	data(64);
	refused("alignment", MODEL_EINVALID, "general.alignment is 24, not a power of two");
	begin_file(3, 0, 1);
	key_u32("general.alignment", 0);
	refused("no alignment", MODEL_EINVALID, "general.alignment is 0, not a power of two");
}

/* A file with this tensor behind another one of 32 bytes, and 64 bytes of data */
static void
refused_tensor(const char *what, uint32_t ndim, uint64_t a, uint64_t b, uint32_t type,
    uint64_t offset, int code, const char *message)
{
	begin_file(3, 2, 0);
	tensor("first", 1, 8, 0, 0, 0);
	tensor("second", ndim, a, b, type, offset);
	data(64);
	refused(what, code, message);
}

static void
test_tensors(void)
{
	const uint64_t huge = UINT64_MAX / 2;

	refused_tensor("overlap", 1, 8, 0, 0, 0, MODEL_EINVALID, "before the end of tensor");
	refused_tensor("outside", 1, 9, 0, 0, 32, MODEL_EINVALID,
	    "tensor second: 36 bytes at offset 32 end outside of the 64 bytes of data");
	refused_tensor("offset", 1, 8, 0, 0, huge + 1, MODEL_EINVALID, "end outside");
	refused_tensor("unaligned", 1, 2, 0, 0, 36, MODEL_EINVALID,
	    "offset 36 is not a multiple of 32");
	refused_tensor("product", 2, huge, 3, 0, 32, MODEL_EINVALID, "shape is too large");
	refused_tensor("bytes", 1, huge, 0, 0, 32, MODEL_EINVALID, "shape is too large");
	refused_tensor("dimensions", 5, 1, 1, 0, 32, MODEL_EINVALID, "5 dimensions, more than 4");
	refused_tensor("type", 1, 8, 0, 4, 32, MODEL_EUNSUPPORTED, "tensor second: unknown type 4");
	refused_tensor("types", 1, 8, 0, 4000, 32, MODEL_EUNSUPPORTED, "unknown type 4000");
	refused_tensor("blocks", 1, 8, 0, 8, 32, MODEL_EINVALID,
	    "rows of 8 numbers are not whole blocks of Q8_0, of 32");
	begin_file(3, 2, 0);
	tensor("same", 1, 2, 0, 0, 0);
	tensor("same", 1, 2, 0, 0, 32);
	data(64);
	refused("a name twice", MODEL_EINVALID, "tensor same: is there twice");
}

/* The parts of a split file */
static void
write_part(const char *name, uint32_t no, uint32_t count, uint32_t all, const char *tensor_name)
{
	begin_file(3, 1, 4);
	key_text("general.architecture", "llama");
	key_u32("split.no", no);
	key_u32("split.count", count);
	key_u32("split.tensors.count", all);
	tensor(tensor_name, 1, 8, 0, 0, 0);
	data(32);
	write_file(dir, name, file, size);
}

static void
split_refused(const char *what, const char *name, int code, const char *message)
{
	struct tensor_set *st;
	char err[512] = "", first[256];
	int rc;

	snprintf(first, sizeof first, "%s/%s", dir, name);
	rc = safetensors_open(first, &no_overrides, &st, err, sizeof err);
	check_refused(what, rc, code, err, message);
	safetensors_close(st);
}

static void
test_split(void)
{
	struct tensor_set *st;
	char first[256], err[512] = "";

	write_part("m-00001-of-00002.gguf", 0, 2, 2, "output_norm.weight");
	split_refused("alone", "m-00001-of-00002.gguf", MODEL_EIO,
	    "m-00002-of-00002.gguf: No such file");
	write_part("m-00002-of-00002.gguf", 1, 2, 2, "output.weight");
	snprintf(first, sizeof first, "%s/m-00001-of-00002.gguf", dir);
	CHECK(safetensors_open(first, &no_overrides, &st, err, sizeof err) == MODEL_OK, "%s", err);
	CHECK(safetensors_count(st) == 2 && safetensors_find(st, "lm_head.weight") != NULL,
	    "%zu tensors", safetensors_count(st));
	CHECK(safetensors_file(st, 1, NULL) != NULL && safetensors_file(st, 2, NULL) == NULL,
	    "not two files");
	safetensors_close(st);
	split_refused("second", "m-00002-of-00002.gguf", MODEL_EUNSUPPORTED,
	    "part 2 of a split model: name the first");
	write_part("m-00002-of-00002.gguf", 1, 2, 2, "output_norm.weight");
	split_refused("twice", "m-00001-of-00002.gguf", MODEL_EINVALID,
	    "tensor model.norm.weight is there twice");
	write_part("m-00002-of-00002.gguf", 0, 2, 2, "output.weight");
	split_refused("number", "m-00001-of-00002.gguf", MODEL_EINVALID,
	    "part 1 of 2 by its keys, and 2 of 2 by its name");
	write_part("m-00002-of-00002.gguf", 1, 2, 3, "output.weight");
	write_part("m-00001-of-00002.gguf", 0, 2, 3, "output_norm.weight");
	split_refused("sum", "m-00001-of-00002.gguf", MODEL_EINVALID,
	    "split.tensors.count is 3, the parts have 2");
	write_part("other.gguf", 0, 2, 2, "output_norm.weight");
	split_refused("name", "other.gguf", MODEL_EINVALID,
	    "does not end with -00001-of-00002.gguf");
}

int
main(void)
{
	make_scratch();
	dir = make_dir();
	snprintf(path, sizeof path, "%s/x.gguf", dir);
	test_valid();
	test_cut();
	test_changed();
	test_header();
	test_values();
	test_tensors();
	test_split();
	return failures != 0;
}
