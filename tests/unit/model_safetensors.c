/* model_safetensors - safetensors files: valid, damaged, lying; shards and their index */

#include "model/safetensors.h"
#include "tests/unit/model_folder.h"

#define T(name, type, shape, begin, end) \
	"\"" name "\":{\"dtype\":\"" type "\",\"shape\":" shape \
	",\"data_offsets\":[" begin "," end "]}"

/* What was said while a file was opened, one after the other */
static char said[4096];

static void
listen(void *with, const char *text)
{
	const size_t n = strlen(said);

	(void)with;
	snprintf(said + n, sizeof said - n, "%s\n", text);
}

static const char *const allowed[] = { "twice" };
static struct overrides listening = { .notice = { listen, NULL } };

/* Opens, and expects a refusal with this message. */
static void
refuse(const char *what, const char *dir, int code, const char *message)
{
	struct tensor_set *st = (struct tensor_set *)&st;
	char err[512] = "";
	int rc = safetensors_open(dir, &listening, &st, err, sizeof err);

	check_refused(what, rc, code, err, message);
	CHECK(rc == MODEL_OK || st == NULL, "%s: out is not NULL", what);
	if (rc == MODEL_OK)
		safetensors_close(st);
}

static struct tensor_set *
accept(const char *dir)
{
	struct tensor_set *st;
	char err[512] = "";
	int rc;

	said[0] = '\0';
	rc = safetensors_open(dir, &listening, &st, err, sizeof err);

	CHECK(rc == MODEL_OK, "code %d: %s", rc, err);
	if (rc != MODEL_OK)
		exit(1);
	return st;
}

static void
test_valid(void)
{
	char *dir = make_dir();
	struct tensor_set *st;
	const struct tensor *t;

	/* in no order; with an empty tensor, a scalar, types that we only measure or do not know */
	write_safetensors(dir, "model.safetensors", "{\"__metadata__\":{\"format\":\"pt\"},"
	    T("b", "F32", "[2,3]", "8", "32") "," T("a", "BF16", "[4]", "0", "8") ","
	    T("empty", "F16", "[0,5]", "32", "32") "," T("scalar", "F32", "[]", "32", "36") ","
	    T("B", "F8_E4M3", "[3]", "36", "39") "," T("four", "F4", "[2]", "39", "40") ","
	    T("future", "Q3_K", "[7,7]", "40", "43") "}", 1, NULL, 43);
	st = accept(dir);
	CHECK(safetensors_count(st) == 7, "%zu", safetensors_count(st));
	CHECK(strcmp(safetensors_at(st, 0)->name, "B") == 0, "sorted as bytes");
	CHECK(strcmp(safetensors_at(st, 6)->name, "scalar") == 0, "sorted as bytes");
	CHECK(safetensors_at(st, 7) == NULL, "past the end");
	t = safetensors_find(st, "b");
	CHECK(t != NULL && t->dtype == KV_F32 && t->ndim == 2 && t->dim[0] == 2 &&
	    t->dim[1] == 3, "b");
	CHECK(t != NULL && t->bytes == 24 && ((const uint8_t *)t->data)[0] == 56, "b's data");
	t = safetensors_find(st, "empty");
	CHECK(t != NULL && t->bytes == 0 && t->dtype == KV_F16, "empty");
	t = safetensors_find(st, "scalar");
	CHECK(t != NULL && t->bytes == 4 && t->ndim == 0, "scalar");
	t = safetensors_find(st, "B");
	CHECK(t != NULL && t->dtype == 0 && strcmp(t->type, "F8_E4M3") == 0,
	    "a type we do not compute with");
	t = safetensors_find(st, "future");
	CHECK(t != NULL && t->dtype == 0 && strcmp(t->type, "Q3_K") == 0 && t->bytes == 3,
	    "a type we do not know");
	CHECK(safetensors_find(st, "c") == NULL && safetensors_find(st, "__metadata__") == NULL,
	    "not there");
	safetensors_close(st);

	write_safetensors(dir, "model.safetensors", "{}", 1, NULL, 0);
	st = accept(dir);
	CHECK(safetensors_count(st) == 0 && safetensors_find(st, "a") == NULL, "no tensors");
	safetensors_close(st);
	safetensors_close(NULL);
	free(dir);
}

/* Every shorter file, and one that is longer. */
static void
test_truncated(void)
{
	static const char header[] = "{" T("a", "F32", "[2]", "0", "8") "," T("b", "BF16",
	    "[3]", "8", "14") "}";
	char *dir = make_dir(), path[256], what[64];
	uint8_t file[256];
	size_t size, n;
	FILE *f;

	write_safetensors(dir, "model.safetensors", header, 1, NULL, 14);
	safetensors_close(accept(dir));
	snprintf(path, sizeof path, "%s/model.safetensors", dir);
	f = fopen(path, "rb");
	size = fread(file, 1, sizeof file - 1, f);
	fclose(f);
	file[size] = 0;
	for (n = 0; n <= size + 1; n++) {
		if (n == size)
			continue;
		write_file(dir, "model.safetensors", file, n);
		snprintf(what, sizeof what, "%zu bytes of %zu", n, size);
		refuse(what, dir, MODEL_EINVALID, n == 0 ?
		    "/model.safetensors: it is empty" : n < size - 14 ? "/model.safetensors: "
		    "truncated" : n < size ? "are outside of the" : "the tensors end at byte");
	}
	free(dir);
}

static void
test_length(void)
{
	static const struct { uint8_t length[8]; const char *message; } bad[] = {
		{ { 255, 255, 255, 255, 255, 255, 255, 255 },
		    "header of 18446744073709551615 bytes" },
		{ { 0, 0, 0, 0, 0, 0, 0, 128 }, "header of 9223372036854775808 bytes" },
		{ { 1, 225, 245, 5, 0, 0, 0, 0 },
		    "header of 100000001 bytes, more than 100000000" },
		{ { 0, 225, 245, 5, 0, 0, 0, 0 },
		    "truncated: header of 100000000 bytes, file of 24" },
		{ { 17, 0, 0, 0, 0, 0, 0, 0 }, "truncated: header of 17 bytes" },
		{ { 0, 0, 0, 0, 0, 0, 0, 0 }, "does not begin with '{'" },
		{ { 1, 0, 0, 0, 0, 0, 0, 0 }, "header, byte 9" },
	};
	char *dir = make_dir();
	uint8_t file[24];
	size_t i;

	for (i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		memcpy(file, bad[i].length, 8);
		memcpy(file + 8, "{}              ", 16);
		write_file(dir, "model.safetensors", file, sizeof file);
		refuse("length", dir, MODEL_EINVALID, bad[i].message);
	}
	free(dir);
}

/* Headers that lie, all with 16 bytes of data. */
static const struct {
	const char *header;
	int code;
	const char *message;
} lies[] = {
	{ T("a", "F32", "[2]", "0", "8") "," T("b", "F32", "[2]", "4", "12"), MODEL_EINVALID,
	    "b: overlap" },
	{ T("a", "F32", "[2]", "0", "8") "," T("b", "F32", "[2]", "0", "8"), MODEL_EINVALID,
	    "overlap" },
	{ T("a", "F32", "[1]", "0", "4") "," T("b", "F32", "[2]", "8", "16"), MODEL_EINVALID,
	    "b: hole" },
	{ T("a", "F32", "[2]", "8", "16"), MODEL_EINVALID, "a: hole" },
	{ T("a", "F32", "[2]", "0", "8"), MODEL_EINVALID, "the tensors end at byte" },
	{ "", MODEL_EINVALID, "the tensors end at byte" },
	{ T("a", "F32", "[5]", "0", "20"), MODEL_EINVALID,
	    "a: data_offsets [0,20] are outside of the 16 bytes" },
	{ T("a", "F32", "[4]", "0", "9223372036854775807"), MODEL_EINVALID, "are outside of" },
	{ T("a", "F32", "[4]", "0", "9223372036854775808"), MODEL_EINVALID, "too big integer" },
	{ T("a", "F32", "[4]", "-16", "0"), MODEL_EINVALID, "a: data_offsets are not two sizes" },
	{ T("a", "F32", "[4]", "16", "0"), MODEL_EINVALID, "are outside of" },
	{ T("a", "F32", "[4]", "0.0", "16"), MODEL_EINVALID, "not two sizes" },
	{ T("a", "F32", "[4]", "0,8", "16"), MODEL_EINVALID, "not two sizes" },
	{ T("a", "F32", "[3]", "0", "16"), MODEL_EINVALID, "a: its shape needs 96 bits of F32" },
	{ T("a", "BF16", "[4]", "0", "16"), MODEL_EINVALID, "a: its shape needs 64 bits of BF16" },
	{ T("a", "F64", "[4]", "0", "16"), MODEL_EINVALID, "needs 256 bits of F64" },
	{ T("a", "F6_E2M3", "[21]", "0", "15") "," T("b", "U8", "[1]", "15", "16"), MODEL_EINVALID,
	    "a: its shape needs 126 bits" },
	{ T("a", "F32", "[-4]", "0", "16"), MODEL_EINVALID, "a: shape is not a list of sizes" },
	{ T("a", "F32", "[4.0]", "0", "16"), MODEL_EINVALID, "not a list of sizes" },
	{ T("a", "F32", "4", "0", "16"), MODEL_EINVALID, "a: no shape" },
	{ T("a", "F32", "[4294967296,4294967296]", "0", "16"), MODEL_EINVALID,
	    "a: shape is too large" },
	{ T("a", "F32", "[2147483648,4294967296,2]", "0", "16"), MODEL_EINVALID,
	    "shape is too large" },
	{ T("a", "F32", "[4611686018427387905]", "0", "16"), MODEL_EINVALID, "shape is too large" },
	{ T("a", "F32", "[1,1,1,1,1,1,1,1,4]", "0", "16"), MODEL_EUNSUPPORTED,
	    "a: more than 8 dimensions: 9" },
	{ T("a", "F32", "[4]", "0", "16") "," T("a", "F32", "[4]", "0", "16"), MODEL_EINVALID,
	    "duplicate" },
	{ "\"a\":{\"dtype\":\"F32\",\"shape\":[4]}", MODEL_EINVALID,
	    "a: not an object of dtype, shape" },
	{ "\"a\":{\"dtype\":4,\"shape\":[4],\"data_offsets\":[0,16]}", MODEL_EINVALID,
	    "a: no dtype" },
	{ "\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16],\"scale\":2}",
	    MODEL_EINVALID, "a: not an object" },
	{ "\"a\":[]", MODEL_EINVALID, "a: not an object" },
	{ "\"a\":", MODEL_EINVALID, "header, byte" },
	{ "\"a\\u0000b\":1", MODEL_EINVALID, "header, byte" },
	{ "\"\xff\":1", MODEL_EINVALID, "header, byte" },
};

static void
test_lies(void)
{
	char *dir = make_dir(), header[512];
	size_t i;

	for (i = 0; i < sizeof lies / sizeof lies[0]; i++) {
		snprintf(header, sizeof header, "{%s}", lies[i].header);
		write_safetensors(dir, "model.safetensors", header, 1, NULL, 16);
		refuse(lies[i].header, dir, lies[i].code, lies[i].message);
	}
	free(dir);
}

/* A header that is not padded: bytes stay where they are, numbers are copied. */
static void
test_unaligned(void)
{
	char *dir = make_dir();
	struct tensor_set *st;
	const struct tensor *t;
	uint8_t data[16];
	unsigned i;

	for (i = 0; i < sizeof data; i++)
		data[i] = (uint8_t)(3 * i + 1);
	write_safetensors(dir, "model.safetensors", "{" T("a", "U8", "[16]", "0", "16") "}", 0,
	    data, 16);
	st = accept(dir);
	CHECK(safetensors_at(st, 0)->copy == NULL && said[0] == '\0', "bytes: %s", said);
	safetensors_close(st);
	write_safetensors(dir, "model.safetensors", "{" T("a", "U8", "[1]", "0", "1") ","
	    T("b", "BF16", "[2]", "1", "5") "," T("c", "F32", "[2]", "5", "13") ","
	    T("d", "U8", "[3]", "13", "16") "}", 1, data, 16);
	st = accept(dir);
	t = safetensors_find(st, "b");
	CHECK((uintptr_t)t->data % 2 == 0 && memcmp(t->data, data + 1, 4) == 0, "b");
	t = safetensors_find(st, "c");
	CHECK((uintptr_t)t->data % 4 == 0 && memcmp(t->data, data + 5, 8) == 0, "c");
	CHECK(safetensors_find(st, "d")->copy == NULL, "d");
	CHECK(strstr(said, "data is not aligned (b): copied 12 bytes") != NULL, "%s", said);
	safetensors_close(st);
	free(dir);
}

/* ---- shards ---- */

#define INDEX(map) "{\"metadata\":{\"total_size\":16},\"weight_map\":{" map "}}"

static void
test_shards(void)
{
	static const struct { const char *index; int code; const char *message; } bad[] = {
		{ INDEX("\"a\":\"1.st\",\"b\":\"3.st\""), MODEL_EIO,
		    "index.json: missing shard 3.st" },
		{ INDEX("\"a\":\"../x/1.st\""), MODEL_EINVALID,
		    "a is not mapped to a file in this folder" },
		{ INDEX("\"a\":\"/etc/passwd\""), MODEL_EINVALID, "a is not mapped to a file" },
		{ INDEX("\"a\":\"..\""), MODEL_EINVALID, "a is not mapped to a file" },
		{ INDEX("\"a\":\"\""), MODEL_EINVALID, "a is not mapped to a file" },
		{ INDEX("\"a\":1"), MODEL_EINVALID, "a is not mapped to a file" },
		{ INDEX("\"a\":\"1.st\",\"a\":\"2.st\""), MODEL_EINVALID, "duplicate object key" },
		{ "{\"weight_map\":[]}", MODEL_EINVALID, "no weight_map" },
		{ "{", MODEL_EINVALID, "index.json: line 1" },
	};
	static const struct { const char *index, *said; } lags[] = {
		{ INDEX("\"a\":\"1.st\",\"b\":\"2.st\""), "" },
		{ INDEX("\"a\":\"2.st\",\"b\":\"1.st\""),
		    "index.json: the index is wrong and the shards are used: 2 tensors (a, ...)" },
		{ INDEX("\"a\":\"1.st\",\"b\":\"2.st\",\"c\":\"2.st\""), "1 tensor (c)" },
		{ INDEX("\"b\":\"2.st\",\"c\":\"1.st\""), "2 tensors (a, ...)" },
	};
	char *dir = make_dir();
	struct tensor_set *st;
	size_t i;

	refuse("nothing", dir, MODEL_EIO,
	    "no model.safetensors and no model.safetensors.index.json");
	write_safetensors(dir, "1.st", "{" T("a", "F32", "[2]", "0", "8") "}", 1, NULL, 8);
	write_safetensors(dir, "2.st", "{" T("b", "F32", "[2]", "0", "8") "}", 1, NULL, 8);
	for (i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		write_text(dir, "model.safetensors.index.json", bad[i].index);
		refuse(bad[i].index, dir, bad[i].code, bad[i].message);
	}
	for (i = 0; i < sizeof lags / sizeof lags[0]; i++) {
		write_text(dir, "model.safetensors.index.json", lags[i].index);
		st = accept(dir);
		CHECK(safetensors_count(st) == 2, "%s: %zu tensors", lags[i].index,
		    safetensors_count(st));
		CHECK(strstr(said, lags[i].said) != NULL, "%s: %s", lags[i].index, said);
		CHECK(lags[i].said[0] != '\0' || said[0] == '\0', "%s: %s", lags[i].index, said);
		safetensors_close(st);
	}
	write_text(dir, "model.safetensors.index.json", INDEX("\"a\":\"1.st\",\"b\":\"2.st\""));
	st = accept(dir);
	CHECK(safetensors_count(st) == 2, "two shards");
	CHECK(strstr(safetensors_find(st, "b")->file, "/2.st") != NULL, "knows its file");
	safetensors_close(st);

	write_safetensors(dir, "model.safetensors", "{" T("a", "F32", "[2]", "0", "8") "}", 1,
	    NULL, 8);
	st = accept(dir);
	CHECK(safetensors_count(st) == 1, "a single file comes first");
	safetensors_close(st);
	free(dir);
}

/* One of the same bytes is taken; of different ones that of the index, for who allows it by
 * name. */
static void
test_doubles(void)
{
	char *dir = make_dir();
	struct tensor_set *st;

	write_safetensors(dir, "1.st", "{" T("a", "F32", "[2]", "0", "8") ","
	    T("twice", "F32", "[2]", "8", "16") "}", 1, (const uint8_t *)"aaaaaaaatttttttt", 16);
	write_safetensors(dir, "2.st", "{" T("b", "F32", "[2]", "0", "8") ","
	    T("twice", "F32", "[2]", "8", "16") "}", 1, (const uint8_t *)"bbbbbbbbtttttttt", 16);
	write_text(dir, "model.safetensors.index.json",
	    INDEX("\"a\":\"1.st\",\"b\":\"2.st\",\"twice\":\"2.st\""));
	st = accept(dir);
	CHECK(safetensors_count(st) == 3, "%zu", safetensors_count(st));
	CHECK(strstr(said, "tensors in two shards, of which one is used: 1 (twice)") != NULL, "%s",
	    said);
	CHECK(strchr(said, '\n') == strrchr(said, '\n'), "one line: %s", said);
	safetensors_close(st);

	write_safetensors(dir, "2.st", "{" T("b", "F32", "[2]", "0", "8") ","
	    T("twice", "F32", "[2]", "8", "16") "}", 1, (const uint8_t *)"bbbbbbbbttttTttt", 16);
	refuse("other bytes", dir, MODEL_EINVALID, "2.st has it, too, with other values");
	refuse("other bytes", dir, MODEL_EINVALID, "(--allow-tensor NAME takes that of the index)");
	listening.tensors = (struct name_list){ allowed, 1, NULL };
	st = accept(dir);
	CHECK(memcmp(safetensors_find(st, "twice")->data, "ttttTttt", 8) == 0, "that of the index");
	safetensors_close(st);
	write_text(dir, "model.safetensors.index.json", INDEX("\"a\":\"1.st\",\"b\":\"2.st\""));
	refuse("not in the index", dir, MODEL_EINVALID, "save the model again");
	listening.tensors.n = 0;
	write_safetensors(dir, "2.st", "{" T("b", "F32", "[2]", "0", "8") ","
	    T("twice", "F32", "[1,2]", "8", "16") "}", 1, (const uint8_t *)"bbbbbbbbtttttttt", 16);
	refuse("another shape", dir, MODEL_EINVALID, "with other values");
	free(dir);
}

static void
test_name_lists(void)
{
	static const struct { const char *pattern, *name; int matches; } list[] = {
		{ "a.b", "a.b", 1 }, { "a.b", "a.bc", 0 }, { "a.*", "a.", 1 }, { "a.*", "a", 0 },
		{ "*", "", 1 }, { "*", "x", 1 }, { "", "", 1 }, { "", "x", 0 },
		{ "a.*.b", "a.17.b", 1 }, { "a.*.b", "a.b", 0 }, { "a.*.b", "a..b", 1 },
		{ "*a*b*", "xaxbx", 1 }, { "*a*b*", "xbxax", 0 }, { "*ab", "aab", 1 },
		{ "*a*a", "a", 0 }, { "*a*a", "aa", 1 }, { "a**b", "ab", 1 }, { "ab*ba", "aba", 0 },
	};
	unsigned char there[1];
	size_t i;

	for (i = 0; i < sizeof list / sizeof list[0]; i++) {
		struct name_list one = { &list[i].pattern, 1, there };

		there[0] = 0;
		CHECK(name_list_matches(&one, list[i].name) == list[i].matches, "'%s' '%s'",
		    list[i].pattern, list[i].name);
		CHECK(there[0] == list[i].matches, "'%s' is marked", list[i].pattern);
	}
}

int
main(void)
{
	make_scratch();
	test_valid();
	test_truncated();
	test_length();
	test_lies();
	test_unaligned();
	test_shards();
	test_doubles();
	test_name_lists();
	return failures != 0;
}
