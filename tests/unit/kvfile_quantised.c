/* kvfile_quantised.c - snapshots with quantised rows: HEAD, sizes, rows at fault wherever a block
 * ends, copies */
#include <stdlib.h>
#include <string.h>

#include "kvfile_sample.h"
#include "libkvfile/rowcheck.h"

#define WIDTH 64
#define ROWS 40000               /* of each KV head: several blocks of 1 MiB in each type */

static const enum kv_row_type all[] = { KV_ROW_Q8_0, KV_ROW_Q4_0, KV_ROW_Q4_1, KV_ROW_Q5_0,
	KV_ROW_INT8, KV_ROW_FP8, (enum kv_row_type)(KV_ROW_Q4_0 | KV_ROW_HADAMARD) };
#define COUNT(a) (sizeof (a) / sizeof (a)[0])

/* Layer 0 has keys of this type, layer 1 values. */
static void
make_head(struct kv_head *head, enum kv_row_type type)
{
	sample_head(head, &small_sample);
	head->model.head_width = WIDTH;
	head->key_type[0] = head->value_type[1] = (uint8_t)type;
}

/* The content of KEYS or VALS: zeros, which every type allows */
static int
write_rows(struct kv_writer *w, const struct kv_head *head, enum kv_kind kind, uint32_t layer,
    const uint8_t *rows)
{
	const size_t size = 2 * ROWS * kv_head_row_bytes(head, kind, layer);
	const struct kv_span spans[] = { { rows, 1000 }, { rows + 1000, size - 1000 } };
	const int quantised = kv_row_type_quantised(kv_head_row_type(head, kind, layer));

	return kv_write(w, kv_kind_type(kind), layer, quantised ? 1 : 2, spans, 2);
}

static int
write_snapshot(const char *file, const struct kv_head *head, const uint8_t *keys, unsigned flags,
    char *error)
{
	static uint8_t zeros[2 * ROWS * WIDTH * 4];
	static uint32_t pos[ROWS];
	const uint32_t count[] = { ROWS, ROWS }, tokens[] = { 1, 2 };
	const uint32_t *const heads[] = { pos, pos };
	const struct kv_rows rows = { 2, count, heads };
	const struct kv_span span = { tokens, sizeof tokens };
	struct kv_writer *w;
	uint32_t i;
	int code = kv_create(file, head, flags, &w);

	for (i = 0; i < ROWS; i++)
		pos[i] = i;
	if (code == KV_OK)
		code = kv_write(w, "TOKS", KV_NO_LAYER, 4, &span, 1);
	for (i = 0; code == KV_OK && i < 2; i++) {
		code = kv_write_rows(w, i, &rows);
		if (code == KV_OK)
			code = write_rows(w, head, KV_KEYS, i, i == 0 && keys ? keys : zeros);
		if (code == KV_OK)
			code = write_rows(w, head, KV_VALS, i, zeros);
	}
	if (code == KV_OK)
		code = kv_commit(w);
	snprintf(error, 1024, "%s", kv_writer_error(w));
	kv_writer_free(w);
	return code;
}

/* As a file, as a pipe, compressed or not, loaded or in parts: the same head and sections */
static void
check_round_trip(enum kv_row_type type)
{
	const char *name = kv_row_type_name(type), *file = path("round");
	struct kv_head head;
	struct kv_section sec;
	struct kv_reader *r;
	struct bytes b;
	char error[1024];
	const void *data;
	int flags, code;

	make_head(&head, type);
	for (flags = 0; flags <= KV_LZ4; flags += KV_LZ4) {
		check(write_snapshot(file, &head, NULL, (unsigned)flags, error) == KV_OK, "%s: %s",
		    name, error);
		b = slurp(file);
		check(walk(feed(b, 777), name, error) == KV_OK, "%s: %s", name, error);
		check(kv_open(file, &r) == KV_OK, "%s: %s", name, kv_reader_error(r));
		check(memcmp(kv_reader_head(r), &head, sizeof head) == 0, "%s: its HEAD", name);
		while ((code = kv_next(r, &sec)) == 1)
			if (sec.kind == KV_KEYS && sec.layer == 0)
				check(kv_load(r, &data) == KV_OK && sec.element_size == 1 &&
				    sec.raw_size == 2 * ROWS * kv_row_bytes(type, WIDTH),
				    "%s: KEYS", name);
		check(code == KV_OK, "%s: %s", name, kv_reader_error(r));
		kv_close(r);
		check(copy_sections(in_memory(b, 0), path("copy"), 0, flags == 0) == KV_OK,
		    "%s: copied", name);
		free(b.data);
	}
}

/* A row with a number that is not finite is not written. */
static void
check_fault(enum kv_row_type type, uint32_t row)
{
	const char *name = kv_row_type_name(type);
	const size_t bytes = kv_row_bytes(type, WIDTH), size = 2 * ROWS * bytes;
	uint8_t *keys = calloc(size, 1);
	char error[1024], where[64];
	struct kv_head head;

	make_head(&head, type);
	memset(keys + row * bytes, 0xff, 4);           /* the scale, f16 or f32, is a NaN */
	snprintf(where, sizeof where, "KEYS layer 0: head %u row %u: no row of", row / ROWS,
	    row % ROWS);
	check(write_snapshot(path("fault"), &head, keys, 0, error) == KV_EINVAL &&
	    strstr(error, where) != NULL, "%s row %u: %s", name, row, error);
	free(keys);
}

/* Rows that pass in pieces of any size: the one with a NaN is named. */
static void
check_pieces(enum kv_row_type type)
{
	const char *name = kv_row_type_name(type);
	const size_t bytes = kv_row_bytes(type, WIDTH), size = 9 * bytes;
	const uint32_t count[] = { 4, 5 };
	const struct kv_rows rows = { 2, count, NULL };
	struct kv_header h = { .kind = KV_KEYS, .layer = 0 };
	uint8_t *data = calloc(size, 1);
	struct kv_row_check c;
	struct kv_message why;
	struct kv_head head;
	size_t piece, at, n;
	char where[32];
	uint32_t row;
	int code;

	make_head(&head, type);
	for (row = 0; row <= 9; row++) {
		memset(data, 0, size);
		if (row < 9)
			memset(data + row * bytes, 0xff, 4);
		snprintf(where, sizeof where, "head %u row %u:", row >= 4,
		    row >= 4 ? row - 4 : row);
		for (piece = 1; piece <= bytes + 3; piece++) {
			kv_row_check_start(&c, &head, &h);
			for (at = 0, code = KV_OK; code == KV_OK && at < size; at += n) {
				n = size - at < piece ? size - at : piece;
				code = kv_row_check(&c, &rows, data + at, n, &why);
			}
			check(row == 9 ? code == KV_OK : code == KV_ECORRUPT &&
			    strstr(why.text, where) != NULL,
			    "%s: row %u in pieces of %zu: %s", name, row, piece, why.text);
		}
	}
	free(data);
}

/* A HEAD that no reader takes is not written; the text of one is read back. */
static void
check_heads(void)
{
	struct kv_head head, again;
	struct kv_writer *w;
	char *json, text[256];

	make_head(&head, KV_ROW_Q4_0);
	check(kv_head_to_json(&head, &json) == KV_OK && strstr(json, ",\"row_types\":{\"keys\":"
	    "[\"q4_0\",\"bf16\"],\"values\":[\"bf16\",\"q4_0\"]}}") != NULL, "HEAD is %s",
	    json);
	check(kv_head_from_json(&again, json, strlen(json), text, sizeof text) == KV_OK &&
	    memcmp(&again, &head, sizeof head) == 0, "HEAD read back: %s", text);
	free(json);
	head.model.head_width = 80;
	check(kv_create(path("width"), &head, 0, &w) == KV_EINVAL &&
	    strstr(kv_writer_error(w), "q4_0 does not allow a head width of 80") != NULL,
	    "width 80: %s", kv_writer_error(w));
	kv_writer_free(w);
	make_head(&head, (enum kv_row_type)12);
	check(kv_create(path("type"), &head, 0, &w) == KV_EINVAL, "type 12");
	kv_writer_free(w);
}

/* Checks that a HEAD has `residual` where it is not 0, in its range; with KIVI's types it must. */
static void
check_residual(void)
{
	static const uint32_t bad[] = { 0, 1, 31, 48, 4128, UINT32_MAX - 31 };
	static const uint32_t any[] = { 0, 1, 33, 4096, 4097 };
	struct kv_head head, again;
	struct kv_writer *w;
	char *json, text[256];
	size_t i;

	make_head(&head, KV_ROW_KIVI4);
	head.residual = 96;
	check(kv_head_to_json(&head, &json) == KV_OK && strstr(json, ",\"row_types\":{\"keys\":"
	    "[\"kivi4\",\"bf16\"],\"residual\":96,\"values\":[\"bf16\",\"kivi4\"]}}") != NULL,
	    "HEAD is %s", json);
	check(kv_head_from_json(&again, json, strlen(json), text, sizeof text) == KV_OK &&
	    memcmp(&again, &head, sizeof head) == 0, "HEAD read back: %s", text);
	free(json);
	for (i = 0; i < COUNT(bad); i++) {
		head.residual = bad[i];
		check(kv_create(path("residual"), &head, 0, &w) == KV_EINVAL, "residual %u",
		    bad[i]);
		kv_writer_free(w);
	}
	make_head(&head, KV_ROW_Q4_0);
	for (i = 0; i < COUNT(any); i++) {
		head.residual = any[i];
		check(kv_create(path("residual"), &head, 0, &w) ==
		    (any[i] <= KV_RESIDUAL_MOST ? KV_OK : KV_EINVAL), "residual %u with q4_0",
		    any[i]);
		kv_writer_free(w);
	}
	head.residual = 7;
	check(kv_head_bytes(&head, KV_KEYS, 0, 10) == 3 * kv_head_row_bytes(&head, KV_KEYS, 0) +
	    7 * head.model.head_width * kv_dtype_size(head.dtype) &&
	    kv_head_bytes(&head, KV_KEYS, 0, 6) == 6 * head.model.head_width *
	    kv_dtype_size(head.dtype), "bytes of rows with 7 full ones");
}

/* Rows are copied into rows of the same type only, also where the bytes are as many. */
static void
check_copy_between_types(void)
{
	struct kv_head from, to;
	struct kv_section sec;
	struct kv_reader *r;
	struct kv_writer *w;
	char error[1024];
	int code;

	make_head(&from, KV_ROW_INT8);
	make_head(&to, KV_ROW_FP8);
	check(write_snapshot(path("from"), &from, NULL, 0, error) == KV_OK, "%s", error);
	check(kv_open(path("from"), &r) == KV_OK && kv_create(path("to"), &to, 0, &w) == KV_OK,
	    "opened");
	while ((code = kv_next(r, &sec)) == 1 && (code = kv_copy(r, w)) == KV_OK)
		;
	check(code == KV_EINVAL && sec.kind == KV_KEYS &&
	    strstr(kv_writer_error(w), "its rows have another type here") != NULL, "copied: %d %s",
	    code, kv_writer_error(w));
	kv_close(r);
	kv_writer_free(w);
}

int
main(void)
{
	size_t i;

	for (i = 0; i < COUNT(all); i++) {
		check_round_trip(all[i]);
		check_fault(all[i], 0);
		check_fault(all[i], (1 << 20) / (uint32_t)kv_row_bytes(all[i], WIDTH));
		check_fault(all[i], 2 * ROWS - 1);
		check_pieces(all[i]);
	}
	check_heads();
	check_residual();
	check_copy_between_types();
	return check_done();
}
