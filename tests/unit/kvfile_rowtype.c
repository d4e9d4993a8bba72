/* kvfile_rowtype.c - quantised rows: ggml's bytes to the bit, e4m3 code by code, int8 by its
 * formula, and rows that cannot be stored
 *
 * tests/fixtures/rows is what tests/oracle/ggml_rows.py has recorded. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kvfile_sample.h"
#include "libkvfile/rowtype.h"

#define WIDTH 96

static const enum kv_row_type ggml[] = { KV_ROW_Q8_0, KV_ROW_Q4_0, KV_ROW_Q4_1, KV_ROW_Q5_0 };
static const enum kv_row_type scaled[] = { KV_ROW_INT8, KV_ROW_FP8 };
#define COUNT(a) (sizeof (a) / sizeof (a)[0])

static void
check_ggml(enum kv_row_type type)
{
	const char *name = kv_row_type_name(type);
	struct bytes x = fixture("rows", "f32"), want = fixture(name, "rows");
	struct bytes numbers = fixture(name, "f32");
	const size_t n = x.size / sizeof(float) / WIDTH, size = n * kv_row_bytes(type, WIDTH);
	unsigned char *got = malloc(size);
	float *back = malloc(x.size);
	size_t i;

	check(want.size == size && numbers.size == x.size, "%s: %zu bytes of %zu rows", name, size,
	    n);
	check(kv_rows_from_f32(got, (float *)(void *)x.data, type, WIDTH, n) == n,
	    "%s: all rows can be stored", name);
	for (i = 0; i < size && got[i] == want.data[i]; i++)
		;
	check(i == size, "%s: byte %zu of row %zu is %02x", name, i % (size / n), i / (size / n),
	    i < size ? got[i] : 0);
	kv_rows_to_f32(back, want.data, type, WIDTH, n);
	check(memcmp(back, numbers.data, x.size) == 0, "%s: the numbers are ggml's", name);
	check(kv_rows_check(want.data, type, WIDTH, n) == n, "%s: no row is at fault", name);
	free(got);
	free(back);
	free(x.data);
	free(want.data);
	free(numbers.data);
}

/* A row of one code, with scale 1, and a row of 448 and one number, whose scale is 1 */
static void
check_e4m3(void)
{
	struct bytes codes = fixture("fp8", "codes"), values = fixture("fp8", "f32");
	struct bytes numbers = fixture("fp8", "numbers"), nearest = fixture("fp8", "nearest");
	const float one = 1;
	unsigned char row[6];
	float x[2] = { 448 }, want;
	size_t i, bad = 0;

	memcpy(row, &one, 4);
	for (i = 0; i < codes.size; i++) {
		row[4] = codes.data[i];
		memcpy(&want, values.data + 4 * i, 4);
		kv_rows_to_f32(x + 1, row, KV_ROW_FP8, 1, 1);
		bad += memcmp(x + 1, &want, 4) != 0;
	}
	check(bad == 0, "fp8: %zu codes are other numbers", bad);
	for (i = bad = 0; i < nearest.size; i++) {
		memcpy(x + 1, numbers.data + 4 * i, 4);
		kv_rows_from_f32(row, x, KV_ROW_FP8, 2, 1);
		bad += row[5] != nearest.data[i];
	}
	check(bad == 0, "fp8: %zu of %zu numbers become other codes", bad, nearest.size);
	free(codes.data);
	free(values.data);
	free(numbers.data);
	free(nearest.data);
}

/* Every number is within half a step of its code, and one has the largest code. */
static void
check_int8(void)
{
	struct bytes x = fixture("rows", "f32");
	const size_t width = 7, n = x.size / sizeof(float) / width;
	const size_t size = kv_row_bytes(KV_ROW_INT8, width);
	const float *numbers = (float *)(void *)x.data;
	unsigned char *rows = malloc(n * size);
	float *back = malloc(n * width * sizeof *back), scale;
	size_t i, c, bad = 0, most;

	kv_rows_from_f32(rows, numbers, KV_ROW_INT8, width, n);
	kv_rows_to_f32(back, rows, KV_ROW_INT8, width, n);
	for (i = 0; i < n; i++) {
		memcpy(&scale, rows + i * size, 4);
		for (c = most = 0; c < width; c++) {
			most |= abs((signed char)rows[i * size + 4 + c]) == 127;
			bad += fabsf(back[i * width + c] - numbers[i * width + c]) >
			    scale * 0.50001f;
		}
		bad += scale != 0 && !most;
	}
	check(bad == 0, "int8: %zu numbers are too far from theirs", bad);
	free(rows);
	free(back);
	free(x.data);
}

static void
check_names(void)
{
	static const struct {
		const char *name;
		size_t bytes;              /* of 128 channels */
	} known[] = { { "f32", 512 }, { "f16", 256 }, { "bf16", 256 }, { "q8_0", 136 },
		{ "q4_0", 72 }, { "q4_1", 80 }, { "q5_0", 88 }, { "int8", 132 }, { "fp8", 132 } };
	enum kv_row_type type;
	size_t i;

	for (i = 0; i < COUNT(known); i++) {
		type = kv_row_type_named(known[i].name);
		check(strcmp(kv_row_type_name(type), known[i].name) == 0, "name of %s",
		    known[i].name);
		check(kv_row_bytes(type, 128) == known[i].bytes, "%s: %zu bytes", known[i].name,
		    kv_row_bytes(type, 128));
		check(kv_row_type_quantised(type) == (i > 2), "%s: quantised", known[i].name);
		check((kv_row_bytes(type, 80) == 0) == (kv_row_type_multiple(type) == 32),
		    "%s: 80 channels", known[i].name);
	}
	check(kv_row_type_named("q4_k") == 0 && kv_row_type_named("") == 0, "names of no type");
	check(kv_row_type_name((enum kv_row_type)0) == NULL &&
	    kv_row_type_name((enum kv_row_type)12) == NULL &&
	    kv_row_bytes((enum kv_row_type)12, 32) == 0, "no type");
}

/* The transform by its definition: sign of the number of bits that i and j share */
static void
check_transform(size_t width)
{
	struct bytes x = fixture("rows", "f32");
	const float *row = (float *)(void *)x.data;
	float turned[KV_ROW_WIDTH_MOST], back[KV_ROW_WIDTH_MOST];
	double sum, size = 0;
	size_t i, j, bad = 0;

	memcpy(turned, row, width * sizeof *row);
	kv_rows_rotate(turned, width, 1);
	memcpy(back, turned, sizeof back);
	kv_rows_rotate(back, width, 1);
	for (i = 0; i < width; i++)
		size += fabs((double)row[i]);
	for (j = 0; j < width; j++) {
		for (i = 0, sum = 0; i < width; i++)
			sum += __builtin_popcountll(i & j) % 2 ? -(double)row[i] : (double)row[i];
		bad += fabs(sum / sqrt((double)width) - (double)turned[j]) > 1e-6 * size;
		bad += fabs((double)back[j] - (double)row[j]) > 1e-6 * size;
	}
	check(bad == 0, "transform of %zu: %zu numbers are others", width, bad);
	free(x.data);
}

/* Rows of a rotated type are those of the type, of the transform. */
static void
check_rotated(enum kv_row_type type)
{
	const enum kv_row_type rotated = (enum kv_row_type)(type | KV_ROW_HADAMARD);
	const char *name = kv_row_type_name(rotated);
	struct bytes x = fixture("rows", "f32");
	const size_t n = 5, size = kv_row_bytes(type, 64);
	float turned[5 * 64], want[5 * 64], got[5 * 64];
	unsigned char a[5 * 80], b[5 * 80];

	check(kv_row_type_named(name) == rotated && kv_row_type_base(rotated) == type &&
	    kv_row_type_quantised(rotated), "%s: its name", name);
	check(kv_row_bytes(rotated, 64) == size && kv_row_bytes(rotated, 96) == 0 &&
	    kv_row_bytes(rotated, 2048) == 0, "%s: its widths", name);
	memcpy(turned, x.data, sizeof turned);
	kv_rows_rotate(turned, 64, n);
	check(kv_rows_from_f32(a, turned, type, 64, n) == n &&
	    kv_rows_from_f32(b, (float *)(void *)x.data, rotated, 64, n) == n &&
	    memcmp(a, b, n * size) == 0, "%s: its bytes", name);
	kv_rows_to_f32(want, a, type, 64, n);
	kv_rows_rotate(want, 64, n);
	kv_rows_to_f32(got, b, rotated, 64, n);
	check(memcmp(got, want, sizeof got) == 0, "%s: its numbers", name);
	b[2 * size] = b[2 * size + 1] = b[2 * size + 2] = b[2 * size + 3] = 0xff;
	check(kv_rows_check(b, rotated, 64, n) == 2, "%s: row 2 has no scale", name);
	free(x.data);
}

/* A number that is not finite, or too large for the scale, in the last row of three */
static void
check_refused(enum kv_row_type type, float large)
{
	static const float bad[] = { NAN, INFINITY, -INFINITY };
	const char *name = kv_row_type_name(type);
	float x[3 * 64] = { 1, -2, 3 };
	unsigned char rows[3 * 70];
	size_t i;

	for (i = 0; i < COUNT(bad); i++) {
		x[2 * 64 + 40] = bad[i];
		check(kv_rows_from_f32(rows, x, type, 64, 3) == 2, "%s: row 2 has %g", name,
		    bad[i]);
	}
	x[2 * 64 + 40] = large;
	check(kv_rows_from_f32(rows, x, type, 64, 3) == 2, "%s: row 2 has %g", name, large);
	x[2 * 64 + 40] = 1e-38f;               /* a scale whose inverse is infinite */
	check(kv_rows_from_f32(rows, x, type, 64, 3) == 3 &&
	    kv_rows_check(rows, type, 64, 3) == 3, "%s: 1e-38", name);
	kv_rows_to_f32(x, rows, type, 64, 3);
	check(x[2 * 64] == 0 && fabsf(x[2 * 64 + 40]) < 1.01e-38f, "%s: %g of 1e-38", name,
	    x[2 * 64 + 40]);
}

/* Scales, and minima, that are not finite; NaN among codes of e4m3 */
static void
check_faults(void)
{
	unsigned char rows[3 * 80] = { 0 };
	const float nan = NAN;
	size_t i, size;

	for (i = 0; i < COUNT(ggml); i++) {
		size = kv_row_bytes(ggml[i], 64);
		memset(rows, 0, sizeof rows);
		rows[size + size / 2 + 1] = 0x7c;              /* row 1, block 1: infinity */
		check(kv_rows_check(rows, ggml[i], 64, 3) == 1, "%s: a scale that is infinite",
		    kv_row_type_name(ggml[i]));
	}
	memset(rows, 0, sizeof rows);
	rows[2 * 40 + 3] = 0xfe;
	check(kv_rows_check(rows, KV_ROW_Q4_1, 64, 3) == 2, "q4_1: a minimum that is none");
	for (i = 0; i < COUNT(scaled); i++) {
		size = kv_row_bytes(scaled[i], 10);
		memset(rows, 0, sizeof rows);
		memcpy(rows + size, &nan, 4);
		check(kv_rows_check(rows, scaled[i], 10, 3) == 1, "%s: a scale that is none",
		    kv_row_type_name(scaled[i]));
	}
	memset(rows, 0, sizeof rows);
	rows[14 + 4 + 9] = 0xff;
	check(kv_rows_check(rows, KV_ROW_FP8, 10, 3) == 1, "fp8: a code that is none");
	check(kv_rows_check(rows, KV_ROW_INT8, 10, 3) == 3, "int8: every code is one");
}

int
main(void)
{
	size_t i;

	for (i = 0; i < COUNT(ggml); i++) {
		check_ggml(ggml[i]);
		check_refused(ggml[i], 3e38f);
		check_rotated(ggml[i]);
	}
	for (i = 0; i < COUNT(scaled); i++) {
		check_refused(scaled[i], INFINITY);
		check_rotated(scaled[i]);
	}
	for (i = 1; i <= KV_ROW_WIDTH_MOST; i *= 2)
		check_transform(i);
	check_e4m3();
	check_int8();
	check_names();
	check_faults();
	return check_done();
}
