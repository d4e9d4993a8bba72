/* rowtype.c - quantised rows: ggml's block types, int8 and fp8 with a scale for each row, KIVI's
 * blocks
 *
 * Everything is computed in f32, each operation rounded by itself (-std=c11 contracts none), so
 * that the bytes are ggml's on every processor. */
#include "rowtype.h"

#include "bytes.h"
#include "kivi.h"
#include "rowblock.h"

#include <math.h>

enum { BLOCK = 32 };                   /* channels of a block of ggml's */

/* A row is blocks, one after another: a head of so many bytes, and codes of so many bits. */
static const struct {
	const char *name, *rotated;    /* the second with KV_ROW_HADAMARD */
	uint32_t channels;             /* of a block; 0: the whole row is one */
	uint32_t head, bits;
} types[] = {
	[KV_ROW_F32] = { "f32", NULL, 0, 0, 32 },
	[KV_ROW_F16] = { "f16", NULL, 0, 0, 16 },
	[KV_ROW_BF16] = { "bf16", NULL, 0, 0, 16 },
	[KV_ROW_Q8_0] = { "q8_0", "q8_0-hadamard", BLOCK, 2, 8 },
	[KV_ROW_Q4_0] = { "q4_0", "q4_0-hadamard", BLOCK, 2, 4 },
	[KV_ROW_Q4_1] = { "q4_1", "q4_1-hadamard", BLOCK, 4, 4 },
	[KV_ROW_Q5_0] = { "q5_0", "q5_0-hadamard", BLOCK, 6, 4 },
	[KV_ROW_INT8] = { "int8", "int8-hadamard", 0, 4, 8 },
	[KV_ROW_FP8] = { "fp8", "fp8-hadamard", 0, 4, 8 },
	[KV_ROW_KIVI2] = { "kivi2", NULL, BLOCK, 4, 2 },
	[KV_ROW_KIVI4] = { "kivi4", NULL, BLOCK, 4, 4 },
};
#define NTYPES (sizeof types / sizeof types[0])

/* The blocks of rows of a width, or of no row where the type has none of this width */
struct blocks {
	size_t channels, bytes;        /* of one */
	size_t in_row;
};

enum kv_row_type
kv_row_type_base(enum kv_row_type type)
{
	return (enum kv_row_type)((unsigned)type & ~(unsigned)KV_ROW_HADAMARD);
}

static int
is_rotated(enum kv_row_type type)
{
	return ((unsigned)type & KV_ROW_HADAMARD) != 0;
}

const char *
kv_row_type_name(enum kv_row_type type)
{
	const size_t base = kv_row_type_base(type);

	if (base >= NTYPES)
		return NULL;
	return is_rotated(type) ? types[base].rotated : types[base].name;
}

enum kv_row_type
kv_row_type_named(const char *name)
{
	size_t i;

	for (i = 1; i < NTYPES; i++) {
		if (strcmp(name, types[i].name) == 0)
			return (enum kv_row_type)i;
		if (types[i].rotated != NULL && strcmp(name, types[i].rotated) == 0)
			return (enum kv_row_type)(i | KV_ROW_HADAMARD);
	}
	return (enum kv_row_type)0;
}

int
kv_row_type_quantised(enum kv_row_type type)
{
	return kv_row_type_name(type) != NULL && types[kv_row_type_base(type)].head > 0;
}

unsigned
kv_row_type_bits(enum kv_row_type type)
{
	if (kv_row_type_name(type) == NULL)
		return 0;
	return kv_row_type_base(type) == KV_ROW_Q5_0 ? 5 : types[kv_row_type_base(type)].bits;
}

uint32_t
kv_row_type_multiple(enum kv_row_type type)
{
	if (kv_row_type_name(type) == NULL)
		return 0;
	return types[kv_row_type_base(type)].channels > 0 ? BLOCK : 1;
}

static int
is_allowed(enum kv_row_type type, size_t width)
{
	const uint32_t multiple = kv_row_type_multiple(type);

	if (multiple == 0 || width % multiple != 0)
		return 0;
	return !is_rotated(type) ||
	    (width > 0 && width <= KV_ROW_WIDTH_MOST && (width & (width - 1)) == 0);
}

static struct blocks
blocks_of(enum kv_row_type type, size_t width)
{
	const enum kv_row_type base = kv_row_type_base(type);
	struct blocks b = { 0 };

	if (!is_allowed(type, width))
		return b;
	b.channels = types[base].channels > 0 ? BLOCK : width;
	b.bytes = types[base].head + b.channels * types[base].bits / 8;
	b.in_row = types[base].channels > 0 ? width / BLOCK : 1;
	return b;
}

size_t
kv_row_bytes(enum kv_row_type type, size_t width)
{
	const struct blocks b = blocks_of(type, width);

	return b.in_row * b.bytes;
}

unsigned
kv_row_element(enum kv_row_type type)
{
	return kv_row_type_quantised(type) ? 1 : (unsigned)kv_dtype_size((enum kv_dtype)type);
}

/* ---- e4m3: 1 sign, 4 exponent, 3 fraction bits, no infinity; 0x7f and 0xff are NaN ---- */

enum { E4M3_NAN = 0x7f };
#define E4M3_MOST 448.0f

/* x 2^exponent, exponent -126 to 127 */
static float
scaled(float x, int exponent)
{
	const uint32_t bits = (uint32_t)(exponent + 127) << 23;
	float power;

	memcpy(&power, &bits, sizeof power);
	return x * power;
}

/* To the nearest integer, ties away from 0 */
static int
nearest_away(float x)
{
	const int whole = (int)x;

	return fabsf(x - (float)whole) < 0.5f ? whole : whole + (x < 0 ? -1 : 1);
}

static float
e4m3_to_f32(unsigned code)
{
	const int exponent = (int)(code >> 3 & 15), fraction = (int)(code & 7);
	const float x = exponent > 0 ? scaled((float)(8 + fraction), exponent - 10) :
	    scaled((float)fraction, -9);

	return code & 0x80 ? -x : x;
}

/* Nearest, ties to even; |x| is at most E4M3_MOST, or rounds to it. */
static unsigned
f32_to_e4m3(float x)
{
	const float a = fabsf(x);
	int exponent, units;
	uint32_t bits;
	unsigned code;

	memcpy(&bits, &a, sizeof bits);
	exponent = (int)(bits >> 23) - 126;    /* a = f 2^exponent, f of 0.5 to 1 */
	if (exponent < -5)                     /* below 2^-6: multiples of 2^-9 */
		exponent = -5;
	/* 8 to 16 of 2^(exponent - 4) */
	units = (int)kv_nearest_even(scaled(a, 4 - exponent));
	code = (unsigned)((exponent + 5) * 8 + units);  /* 16 units: the next exponent's 8 */
	if (code > E4M3_NAN - 1)
		code = E4M3_NAN - 1;
	return code | (signbit(x) ? 0x80 : 0);
}

/* ---- one block, or one row with a scale of its own ---- */

/* 0 of 0, and of a scale so small that its inverse is not finite: ggml leaves open what it stores
 * then. */
static float
inverse(float scale)
{
	const float inv = scale != 0 ? 1 / scale : 0;

	return isfinite(inv) ? inv : 0;
}

/* The number of largest magnitude, the first of equals. Not finite when one of them is not. */
static float
largest(const float *x, size_t n)
{
	float most = 0;
	size_t i;

	for (i = 0; i < n; i++) {
		if (!isfinite(x[i]))
			return x[i];
		if (fabsf(x[i]) > fabsf(most))
			most = x[i];
	}
	return most;
}

static unsigned
at_most(unsigned code, unsigned most)
{
	return code < most ? code : most;
}

static float
put_q8_0(unsigned char *to, const float *x)
{
	const float scale = fabsf(largest(x, BLOCK)) / 127, inv = inverse(scale);
	int i;

	kv_put_half(to, scale);
	for (i = 0; i < BLOCK && isfinite(scale); i++)
		to[2 + i] = (unsigned char)nearest_away(x[i] * inv);
	return kv_get_half(to);
}

static float
put_q4_0(unsigned char *to, const float *x)
{
	const float scale = largest(x, BLOCK) / -8, inv = inverse(scale);
	int i;

	kv_put_half(to, scale);
	for (i = 0; i < BLOCK / 2 && isfinite(scale); i++)
		to[2 + i] = (unsigned char)(
		    at_most((unsigned)(x[i] * inv + 8.5f), 15) |
		    at_most((unsigned)(x[i + BLOCK / 2] * inv + 8.5f), 15) << 4);
	return kv_get_half(to);
}

static float
put_q4_1(unsigned char *to, const float *x)
{
	float least = x[0], most = x[0], scale, inv;
	int i;

	if (!isfinite(largest(x, BLOCK)))
		return NAN;
	for (i = 1; i < BLOCK; i++) {
		if (x[i] < least)
			least = x[i];
		if (x[i] > most)
			most = x[i];
	}
	scale = (most - least) / 15;
	inv = inverse(scale);
	kv_put_half(to, scale);
	kv_put_half(to + 2, least);
	for (i = 0; i < BLOCK / 2 && isfinite(scale); i++)
		to[4 + i] = (unsigned char)(
		    at_most((unsigned)((x[i] - least) * inv + 0.5f), 15) |
		    at_most((unsigned)((x[i + BLOCK / 2] - least) * inv + 0.5f), 15) << 4);
	return kv_get_half(to) + kv_get_half(to + 2);
}

static float
put_q5_0(unsigned char *to, const float *x)
{
	const float scale = largest(x, BLOCK) / -16, inv = inverse(scale);
	unsigned low, high;
	uint32_t fifth = 0;
	int i;

	kv_put_half(to, scale);
	for (i = 0; i < BLOCK / 2 && isfinite(scale); i++) {
		low = at_most((unsigned)(x[i] * inv + 16.5f), 31);
		high = at_most((unsigned)(x[i + BLOCK / 2] * inv + 16.5f), 31);
		to[6 + i] = (unsigned char)((low & 15) | (high & 15) << 4);
		fifth |= (uint32_t)(low >> 4) << i | (uint32_t)(high >> 4) << (i + BLOCK / 2);
	}
	put32(to + 2, fifth);
	return kv_get_half(to);
}

/* The scale, in f32, before the codes */
static void
put_scale(unsigned char *to, float scale)
{
	uint32_t bits;

	memcpy(&bits, &scale, sizeof bits);
	put32(to, bits);
}

static float
get_scale(const unsigned char *from)
{
	const uint32_t bits = get32(from);
	float scale;

	memcpy(&scale, &bits, sizeof scale);
	return scale;
}

/* -127 to 127, also where the scale is so small that it has few bits */
static int
int8_code(float x, float scale)
{
	const float code = scale != 0 ? x / scale : 0;

	return (int)kv_nearest_even(code > 127 ? 127 : code < -127 ? -127 : code);
}

static float
put_int8(unsigned char *to, const float *x, size_t width)
{
	const float scale = fabsf(largest(x, width)) / 127;
	size_t i;

	put_scale(to, scale);
	for (i = 0; i < width && isfinite(scale); i++)
		to[4 + i] = (unsigned char)int8_code(x[i], scale);
	return scale;
}

static float
put_fp8(unsigned char *to, const float *x, size_t width)
{
	const float scale = fabsf(largest(x, width)) / E4M3_MOST;
	size_t i;

	put_scale(to, scale);
	for (i = 0; i < width && isfinite(scale); i++)
		to[4 + i] = scale == 0 ? 0 : (unsigned char)f32_to_e4m3(x[i] / scale);
	return scale;
}

/* Returns the scale as it is stored, with q4_1 plus the minimum: not finite where the type cannot
 * store this block. */
static float
put_block(unsigned char *to, const float *x, enum kv_row_type type, size_t channels)
{
	switch (type) {
	case KV_ROW_Q8_0:
		return put_q8_0(to, x);
	case KV_ROW_Q4_0:
		return put_q4_0(to, x);
	case KV_ROW_Q4_1:
		return put_q4_1(to, x);
	case KV_ROW_Q5_0:
		return put_q5_0(to, x);
	case KV_ROW_KIVI2:
	case KV_ROW_KIVI4:
		return kv_kivi_put(to, x, 1, types[type].bits);
	case KV_ROW_INT8:
		return put_int8(to, x, channels);
	default:
		return put_fp8(to, x, channels);
	}
}

static float
block_scale(const unsigned char *from, enum kv_row_type type)
{
	return types[type].channels > 0 ? kv_get_half(from) : get_scale(from);
}

static float
block_least(const unsigned char *from, enum kv_row_type type)
{
	return type == KV_ROW_Q4_1 || kv_row_type_kivi(type) ? kv_get_half(from + 2) : 0;
}

static void
get_block(float *x, const unsigned char *from, enum kv_row_type type, size_t channels)
{
	const float scale = block_scale(from, type), least = block_least(from, type);
	const uint32_t fifth = type == KV_ROW_Q5_0 ? get32(from + 2) : 0;
	const unsigned char *code = from + types[type].head;
	size_t i;

	for (i = 0; i < channels; i++) {
		const unsigned four = code[i % (BLOCK / 2)] >> (i < BLOCK / 2 ? 0 : 4) & 15;

		switch (type) {
		case KV_ROW_Q4_0:
			x[i] = (float)((int)four - 8) * scale;
			break;
		case KV_ROW_Q4_1:
			x[i] = (float)four * scale + least;
			break;
		case KV_ROW_Q5_0:
			x[i] = (float)((int)(four | (fifth >> i & 1) << 4) - 16) * scale;
			break;
		case KV_ROW_FP8:
			x[i] = e4m3_to_f32(code[i]) * scale;
			break;
		default:
			x[i] = (float)(signed char)code[i] * scale;
		}
	}
}

/* Would a writer have made it? */
static int
is_block(const unsigned char *from, enum kv_row_type type, size_t channels)
{
	size_t i;

	for (i = 0; type == KV_ROW_FP8 && i < channels; i++)
		if ((from[types[type].head + i] & 0x7f) == E4M3_NAN)
			return 0;
	return isfinite(block_scale(from, type)) && isfinite(block_least(from, type));
}

/* ---- rows ---- */

void
kv_rows_rotate(float *rows, size_t width, size_t n)
{
	const float root_half = 0.70710678f;
	float scale = 1, a, b;
	size_t h, i;

	for (h = width; h >= 4; h /= 4)
		scale /= 2;
	if (h == 2)
		scale *= root_half;
	for (; n > 0; n--, rows += width) {
		for (h = 1; h < width; h *= 2)
			for (i = 0; i < width; i += i % h == h - 1 ? h + 1 : 1) {
				a = rows[i];
				b = rows[i + h];
				rows[i] = a + b;
				rows[i + h] = a - b;
			}
		for (i = 0; i < width; i++)
			rows[i] *= scale;
	}
}

static void
get_row(float *x, const unsigned char *from, enum kv_row_type type, const struct blocks *b)
{
	size_t i;

	for (i = 0; i < b->in_row; i++)
		if (kv_row_type_kivi(type))
			kv_kivi_get(x + i * b->channels, 1, from + i * b->bytes, types[type].bits);
		else
			get_block(x + i * b->channels, from + i * b->bytes, type, b->channels);
}

/* Returns 0 where the type cannot store the row. */
static int
put_row(unsigned char *to, const float *x, enum kv_row_type type, const struct blocks *b)
{
	size_t i;

	for (i = 0; i < b->in_row; i++)
		if (!isfinite(put_block(to + i * b->bytes, x + i * b->channels, type, b->channels)))
			return 0;
	return 1;
}

void
kv_rows_to_f32(float *dst, const void *rows, enum kv_row_type type, size_t width, size_t n)
{
	const struct blocks b = blocks_of(type, width);
	const unsigned char *from = rows;

	if (!kv_row_type_quantised(type)) {
		kv_to_f32(dst, rows, (enum kv_dtype)type, n * width);
		return;
	}
	for (; n > 0; n--, dst += width, from += b.in_row * b.bytes) {
		get_row(dst, from, kv_row_type_base(type), &b);
		if (is_rotated(type))
			kv_rows_rotate(dst, width, 1);
	}
}

size_t
kv_rows_from_f32(void *rows, const float *src, enum kv_row_type type, size_t width, size_t n)
{
	const struct blocks b = blocks_of(type, width);
	float turned[KV_ROW_WIDTH_MOST];
	unsigned char *to = rows;
	size_t i;

	if (!kv_row_type_quantised(type)) {
		kv_from_f32(rows, src, (enum kv_dtype)type, n * width);
		return n;
	}
	for (i = 0; i < n; i++, src += width, to += b.in_row * b.bytes) {
		const float *x = src;

		if (is_rotated(type) && b.in_row > 0) {
			memcpy(turned, src, width * sizeof *src);
			kv_rows_rotate(turned, width, 1);
			x = turned;
		}
		if (!put_row(to, x, kv_row_type_base(type), &b))
			break;
	}
	return i;
}

size_t
kv_rows_check(const void *rows, enum kv_row_type type, size_t width, size_t n)
{
	const struct blocks b = blocks_of(type, width);
	const enum kv_row_type base = kv_row_type_base(type);
	size_t i;

	for (i = 0; kv_row_type_quantised(type) && i < n * b.in_row; i++)
		if (!is_block((const unsigned char *)rows + i * b.bytes, base, b.channels))
			return i / b.in_row;
	return n;
}
