/* kvfile_kivi.c - rows of kivi2 and kivi4: the bytes of the authors' functions, the number of coded
 * rows, and rows that are refused
 *
 * tests/fixtures/rows/kivi* is what tests/oracle/kivi_rows.py has recorded. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kvfile_sample.h"
#include "libkvfile/rowcheck.h"

enum { ROWS = 96, WIDTH = 64, GROUP = KV_GROUP_ROWS, GROUPS = ROWS / GROUP,
	BLOCKS = ROWS * WIDTH / GROUP, BLOCK_MOST = 20, IN_GROUP = GROUP * WIDTH };

static const enum kv_row_type types[] = { KV_ROW_KIVI2, KV_ROW_KIVI4 };
#define COUNT(a) (sizeof (a) / sizeof (a)[0])

/* x[ROWS][WIDTH] <- the recorded rows */
static void
recorded_rows(float *x)
{
	struct bytes f16 = fixture("kivi", "f16");

	check(f16.size == ROWS * WIDTH * 2, "kivi.f16: %zu bytes", f16.size);
	kv_to_f32(x, f16.data, KV_F16, ROWS * WIDTH);
	free(f16.data);
}

/* Where word w of the codes of block b stands: [words of a group][channels] of keys */
static size_t
word_at(int keys, size_t b, size_t w, size_t words)
{
	return keys ? (b / WIDTH * words + w) * WIDTH + b % WIDTH : b * words + w;
}

/* Blocks one after another, beside codes u32, scales and least numbers f16 */
static void
check_blocks(const unsigned char *got, enum kv_row_type type, int keys)
{
	const char *name = kv_row_type_name(type);
	struct bytes want = fixture(name, keys ? "keys" : "values");
	const size_t words = kv_row_type_bits(type), size = 4 + 4 * words;
	const unsigned char *codes = (unsigned char *)want.data, zero[4] = { 0 };
	const unsigned char *scale = codes + (size_t)BLOCKS * 4 * words;
	size_t b, w, bad = 0, none = 0;

	check(want.size == BLOCKS * size, "%s: %zu bytes", name, want.size);
	for (b = 0; b < BLOCKS; b++, got += size) {
		const int is_none = scale[2 * b] == 0 && scale[2 * b + 1] == 0;

		none += (size_t)is_none;
		bad += memcmp(got, scale + 2 * b, 2) != 0;
		bad += memcmp(got + 2, scale + 2 * (BLOCKS + b), 2) != 0;
		/* they divide by a scale of 0, and we take code 0 */
		for (w = 0; w < words; w++)
			bad += memcmp(got + 4 + 4 * w, is_none ? zero :
			    codes + 4 * word_at(keys, b, w, words), 4) != 0;
	}
	check(bad == 0, "%s: %zu scales, minimums and words of codes of %s are others", name, bad,
	    keys ? "keys" : "values");
	check(none >= 2 && none <= 8, "%s: %zu scales are 0", name, none);
	free(want.data);
}

static void
check_authors(enum kv_row_type type)
{
	static float x[ROWS * WIDTH];
	static unsigned char got[BLOCKS * BLOCK_MOST];
	const size_t row = kv_row_bytes(type, WIDTH);
	size_t i;

	recorded_rows(x);
	for (i = 0; i < GROUPS; i++)
		check(kv_group_from_f32(got + i * GROUP * row, x + i * IN_GROUP, type, WIDTH),
		    "%s: group %zu", kv_row_type_name(type), i);
	check_blocks(got, type, 1);
	check(kv_rows_from_f32(got, x, type, WIDTH, ROWS) == ROWS, "%s: all values can be stored",
	    kv_row_type_name(type));
	check(kv_rows_check(got, type, WIDTH, ROWS) == ROWS, "%s: no row is at fault",
	    kv_row_type_name(type));
	check_blocks(got, type, 0);
}

/* The numbers of a block, by the formula: code * scale + least, lowest bits first */
static float
number(const unsigned char *block, unsigned bits, size_t i)
{
	const size_t bit = bits * i;
	float scale, least;

	kv_to_f32(&scale, block, KV_F16, 1);
	kv_to_f32(&least, block + 2, KV_F16, 1);
	return (float)(block[4 + bit / 8] >> bit % 8 & ((1u << bits) - 1)) * scale + least;
}

/* Numbers are those of the formula, a step or less from what was stored; of group and row alike */
static void
check_numbers(enum kv_row_type type)
{
	const unsigned bits = kv_row_type_bits(type);
	const size_t size = 4 + 4 * bits, row = kv_row_bytes(type, WIDTH);
	static float x[ROWS * WIDTH], back[ROWS * WIDTH];
	static unsigned char coded[BLOCKS * BLOCK_MOST];
	size_t i, e, bad = 0, far = 0;
	float scale;

	recorded_rows(x);
	kv_group_from_f32(coded, x, type, WIDTH);
	kv_group_to_f32(back, coded, type, WIDTH);
	for (i = 0; i < GROUP; i++)
		for (e = 0; e < WIDTH; e++) {
			kv_to_f32(&scale, coded + e * size, KV_F16, 1);
			bad += back[i * WIDTH + e] != number(coded + e * size, bits, i);
			/* 2 ^ -9: roundings to f16 of a difference of up to 15 steps */
			far += fabsf(back[i * WIDTH + e] - x[i * WIDTH + e]) >
			    scale * (0.5f + 15 / 512.0f) + fabsf(x[i * WIDTH + e]) / 512;
		}
	kv_rows_from_f32(coded, x, type, WIDTH, ROWS);
	kv_rows_to_f32(back, coded, type, WIDTH, ROWS);
	for (i = 0; i < ROWS; i++)
		for (e = 0; e < WIDTH; e++)
			bad += back[i * WIDTH + e] != number(coded + i * row + e / GROUP * size,
			    bits, e % GROUP);
	check(bad == 0 && far == 0, "%s: %zu numbers are others, %zu far from theirs",
	    kv_row_type_name(type), bad, far);
}

/* A group and a row of the same 32 numbers have the same block. */
static void
check_transposed(enum kv_row_type type)
{
	static float x[ROWS * WIDTH], turned[IN_GROUP];
	static unsigned char group[BLOCKS * BLOCK_MOST], rows[BLOCKS * BLOCK_MOST];
	size_t i, e;

	recorded_rows(x);
	for (i = 0; i < GROUP; i++)
		for (e = 0; e < WIDTH; e++)
			turned[e * GROUP + i] = x[i * WIDTH + e];
	check(kv_group_from_f32(group, x, type, WIDTH) &&
	    kv_rows_from_f32(rows, turned, type, GROUP, WIDTH) == WIDTH &&
	    memcmp(group, rows, WIDTH * kv_row_bytes(type, GROUP)) == 0,
	    "%s: a group is the values of its channels", kv_row_type_name(type));
}

static void
check_coded(void)
{
	static const struct {
		uint32_t rows, residual, keys, values;
	} known[] = { { 0, 32, 0, 0 }, { 31, 32, 0, 0 }, { 32, 32, 32, 0 }, { 33, 32, 32, 1 },
		{ 69, 32, 64, 37 }, { 96, 32, 96, 64 }, { 127, 128, 0, 0 }, { 128, 128, 128, 0 },
		{ 300, 128, 256, 172 }, { 4095, 4096, 0, 0 }, { 10000, 4096, 8192, 5904 },
		{ UINT32_MAX, 32, UINT32_MAX - 31, UINT32_MAX - 32 } };
	size_t i, t;

	for (i = 0; i < COUNT(known); i++) {
		const uint32_t n = known[i].rows, R = known[i].residual;

		for (t = 0; t < COUNT(types); t++)
			check(kv_coded_keys(types[t], n, R) == known[i].keys &&
			    kv_coded_values(types[t], n, R) == known[i].values,
			    "coded of %u rows with %u", n, R);
		check(kv_coded_keys(KV_ROW_Q8_0, n, R) == known[i].values &&
		    kv_coded_values(KV_ROW_Q4_0 | KV_ROW_HADAMARD, n, R) == known[i].values &&
		    kv_coded_values(KV_ROW_FP8, n, 0) == n &&
		    kv_coded_keys(KV_ROW_BF16, n, R) == n && kv_coded_values(KV_ROW_F32, n, R) == n,
		    "coded of %u rows of other types with %u", n, R);
	}
}

static void
check_names(void)
{
	static const struct {
		const char *name;
		unsigned bits;
		size_t bytes;              /* of 64 channels */
	} known[] = { { "kivi2", 2, 24 }, { "kivi4", 4, 40 } };
	enum kv_row_type type;
	size_t i;

	for (i = 0; i < COUNT(known); i++) {
		type = kv_row_type_named(known[i].name);
		check(type == types[i] && strcmp(kv_row_type_name(type), known[i].name) == 0,
		    "name of %s", known[i].name);
		check(kv_row_type_bits(type) == known[i].bits && kv_row_type_multiple(type) == 32 &&
		    kv_row_element(type) == 1, "%s: bits, multiple and element", known[i].name);
		check(kv_row_bytes(type, 64) == known[i].bytes && kv_row_bytes(type, 80) == 0 &&
		    kv_row_bytes(type, 1024) == 16 * known[i].bytes, "%s: bytes", known[i].name);
		check(kv_row_type_kivi(type) && kv_row_type_quantised(type), "%s: of KIVI",
		    known[i].name);
		type = (enum kv_row_type)(type | KV_ROW_HADAMARD);
		check(kv_row_type_name(type) == NULL && kv_row_bytes(type, 64) == 0 &&
		    !kv_row_type_quantised(type), "%s is not transformed", known[i].name);
	}
	check(!kv_row_type_kivi(KV_ROW_Q4_1) && !kv_row_type_kivi(KV_ROW_F16), "others of KIVI");
	check(kv_row_type_named("kivi") == 0 && kv_row_type_named("kivi3") == 0 &&
	    kv_row_type_named("kivi2-hadamard") == 0, "names of no type");
}

/* A number that is none in f16, and numbers so far apart that the scale is none */
static void
check_refused(enum kv_row_type type)
{
	static const float bad[] = { NAN, INFINITY, -INFINITY, 65520, -7e4f, 3e38f };
	static float x[IN_GROUP];
	static unsigned char coded[IN_GROUP];
	const char *name = kv_row_type_name(type);
	size_t i;

	for (i = 0; i < COUNT(bad); i++) {
		memset(x, 0, sizeof x);
		x[5 * WIDTH + 40] = bad[i];
		check(!kv_group_from_f32(coded, x, type, WIDTH), "%s: a group has %g", name,
		    bad[i]);
		check(kv_rows_from_f32(coded, x, type, WIDTH, GROUP) == 5, "%s: row 5 has %g", name,
		    bad[i]);
	}
	x[5 * WIDTH + 40] = 65519;             /* 65504 in f16 */
	check(kv_group_from_f32(coded, x, type, WIDTH) &&
	    kv_rows_from_f32(coded, x, type, WIDTH, GROUP) == GROUP, "%s: 65519", name);
	x[5 * WIDTH + 41] = x[6 * WIDTH + 40] = -65504;
	check(!kv_group_from_f32(coded, x, type, WIDTH) &&
	    kv_rows_from_f32(coded, x, type, WIDTH, GROUP) == 5, "%s: 65519 beside -65504", name);
}

/* Scales and minimums that are not finite */
static void
check_faults(enum kv_row_type type)
{
	static const unsigned char bad[][2] = { { 0, 0x7c }, { 0, 0xfc }, { 1, 0x7e },
		{ 1, 0xfc } };
	const size_t row = kv_row_bytes(type, WIDTH), at = 2 * row + row / 2;
	unsigned char rows[3 * 40];
	size_t i, minimum;

	for (i = 0; i < COUNT(bad); i++)
		for (minimum = 0; minimum < 2; minimum++) {
			memset(rows, 0xfb, sizeof rows);       /* the least finite number */
			check(kv_rows_check(rows, type, WIDTH, 3) == 3, "%s: no fault",
			    kv_row_type_name(type));
			memcpy(rows + at + 2 * minimum, bad[i], 2);
			check(kv_rows_check(rows, type, WIDTH, 3) == 2, "%s: %s %zu of row 2",
			    kv_row_type_name(type), minimum ? "minimum" : "scale", i);
		}
}

/* Where a message must say that block b of KV head 1 is */
static void
put_place(char where[64], enum kv_kind kind, size_t b)
{
	const size_t row = b / WIDTH * GROUP;

	if (kind == KV_KEYS)
		snprintf(where, 64, "head 1 rows %zu-%zu channel %zu:", row, row + GROUP - 1,
		    b % WIDTH);
	else
		snprintf(where, 64, "head 1 row %zu:", b / (WIDTH / GROUP));
}

/* Content passes in pieces of any size. A NaN where a block has its scale is found and named; in
 * full rows it may be. KV heads of 3 and 69 rows: keys end in 5 full rows, values in 32. */
static void
check_pieces(enum kv_row_type type, enum kv_kind kind)
{
	static const uint32_t count[] = { 3, 69 };
	static uint8_t data[2 * (69 + 3) * 2 * WIDTH];
	const struct kv_rows rows = { 2, count, NULL };
	const size_t block = kv_row_bytes(type, GROUP), front = 3 * 2 * WIDTH;
	const size_t blocks = kind == KV_KEYS ? 2 * WIDTH : 37 * WIDTH / GROUP;
	const size_t size = front + blocks * block + (kind == KV_KEYS ? 5 : 32) * 2 * WIDTH;
	const struct kv_header h = { .kind = kind, .layer = 0 };
	const size_t at_fault[] = { 0, blocks / 2 + 3, blocks - 1 };
	struct kv_row_check c;
	struct kv_message why;
	struct kv_head head;
	char where[64];
	size_t i, piece, at, n, b;
	int code;

	sample_head(&head, &small_sample);
	head.model.head_width = WIDTH;
	head.key_type[0] = head.value_type[0] = (uint8_t)type;
	head.residual = 32;
	check(kv_head_bytes(&head, kind, 0, 3) == front &&
	    kv_head_bytes(&head, kind, 0, 69) == size - front, "bytes of a KV head");
	for (i = 0; i <= COUNT(at_fault); i++) {
		memset(data, 0xff, size);
		memset(data + front, 0, blocks * block);
		b = i < COUNT(at_fault) ? at_fault[i] : 0;
		memset(data + front + b * block, i < COUNT(at_fault) ? 0xff : 0, 2);
		put_place(where, kind, b);
		for (piece = 1; piece < 3 * block; piece++) {
			kv_row_check_start(&c, &head, &h);
			for (at = 0, code = KV_OK; code == KV_OK && at < size; at += n) {
				n = size - at < piece ? size - at : piece;
				code = kv_row_check(&c, &rows, data + at, n, &why);
			}
			check(i == COUNT(at_fault) ? code == KV_OK : code == KV_ECORRUPT &&
			    strstr(why.text, where) != NULL, "%s: block %zu in pieces of %zu: %s",
			    kv_row_type_name(type), b, piece, why.text);
		}
	}
}

int
main(void)
{
	size_t i;

	for (i = 0; i < COUNT(types); i++) {
		check_authors(types[i]);
		check_numbers(types[i]);
		check_transposed(types[i]);
		check_refused(types[i]);
		check_faults(types[i]);
		check_pieces(types[i], KV_KEYS);
		check_pieces(types[i], KV_VALS);
	}
	check_coded();
	check_names();
	return check_done();
}
