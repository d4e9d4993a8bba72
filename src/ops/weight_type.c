/* weight_type.c - the types that weights are stored in, and how blocks become numbers */
#include "ops/weight_type.h"

enum { SUPER = 256 };           /* numbers of the largest blocks */

static const struct type {
	const char *name;
	uint32_t block;              /* numbers */
} types[WEIGHT_TYPES] = {
	[WEIGHT_F32] = { "f32", 1 },
	[WEIGHT_F16] = { "f16", 1 },
	[WEIGHT_BF16] = { "bf16", 1 },
	[WEIGHT_Q4_0] = { "q4_0", 32 },
	[WEIGHT_Q4_1] = { "q4_1", 32 },
	[WEIGHT_Q5_0] = { "q5_0", 32 },
	[WEIGHT_Q5_1] = { "q5_1", 32 },
	[WEIGHT_Q8_0] = { "q8_0", 32 },
	[WEIGHT_MXFP4] = { "mxfp4", 32 },
	[WEIGHT_Q4_K] = { "q4_k", SUPER },
	[WEIGHT_Q5_K] = { "q5_k", SUPER },
	[WEIGHT_Q6_K] = { "q6_k", SUPER },
};

static int
is_valid(enum weight_type type)
{
	return type > 0 && type < WEIGHT_TYPES;
}

uint32_t
weight_block(enum weight_type type)
{
	return is_valid(type) ? types[type].block : 0;
}

const char *
weight_type_name(enum weight_type type)
{
	return is_valid(type) ? types[type].name : NULL;
}

static float
half(const uint8_t *p)
{
	float x;

	kv_to_f32(&x, p, KV_F16, 1);
	return x;
}

/* ---- blocks of 32 numbers ---- */

/* Code i of 32 nibbles: the lower ones first, then the upper ones. */
static int
nibble(const uint8_t *q, int i)
{
	return i < 16 ? q[i] & 15 : q[i - 16] >> 4;
}

static int
bit(const uint8_t *bits, int i)
{
	return bits[i / 8] >> i % 8 & 1;
}

static void
q4_0(float *x, const uint8_t *b)
{
	const float d = half(b);
	int i;

	for (i = 0; i < 32; i++)
		x[i] = (float)(nibble(b + 2, i) - 8) * d;
}

static void
q4_1(float *x, const uint8_t *b)
{
	const float d = half(b), m = half(b + 2);
	int i;

	for (i = 0; i < 32; i++)
		x[i] = (float)nibble(b + 4, i) * d + m;
}

static void
q5_0(float *x, const uint8_t *b)
{
	const float d = half(b);
	int i;

	for (i = 0; i < 32; i++)
		x[i] = (float)((nibble(b + 6, i) | bit(b + 2, i) << 4) - 16) * d;
}

static void
q5_1(float *x, const uint8_t *b)
{
	const float d = half(b), m = half(b + 2);
	int i;

	for (i = 0; i < 32; i++)
		x[i] = (float)(nibble(b + 8, i) | bit(b + 4, i) << 4) * d + m;
}

static void
q8_0(float *x, const uint8_t *b)
{
	const float d = half(b);
	int i;

	for (i = 0; i < 32; i++)
		x[i] = (float)(int8_t)b[2 + i] * d;
}

static void
mxfp4(float *x, const uint8_t *b)
{
	static const int8_t twice[16] = { 0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12 };
	const float d = weight_mxfp4_scale(b[0]);
	int i;

	for (i = 0; i < 32; i++)
		x[i] = (float)twice[nibble(b + 1, i)] * d;
}

/* ---- blocks of 256 numbers ---- */

/* Q4_K; high: the fifth bits of Q5_K, bit g of byte i is that of number i of group g; NULL: none */
static void
k_groups(float *x, const uint8_t *b, const uint8_t *high, const uint8_t *codes)
{
	const float d = half(b), m = half(b + 2);
	uint64_t scales, mins;
	int g, i, q;

	weight_k_scales(b + 4, &scales, &mins);
	for (g = 0; g < 8; g++) {
		const float by = d * (float)(scales >> 8 * g & 63);
		const float less = m * (float)(mins >> 8 * g & 63);

		for (i = 0; i < 32; i++) {
			q = codes[g / 2 * 32 + i] >> g % 2 * 4 & 15;
			if (high != NULL)
				q |= (high[i] >> g & 1) << 4;
			x[g * 32 + i] = by * (float)q - less;
		}
	}
}

static void
q4_k(float *x, const uint8_t *b)
{
	k_groups(x, b, NULL, b + 16);
}

static void
q5_k(float *x, const uint8_t *b)
{
	k_groups(x, b, b + 16, b + 48);
}

/* Each half of 128 numbers: four runs of 32, whose lower four bits are in two bytes' halves, and
 * whose upper two are side by side in one byte. */
static void
q6_k(float *x, const uint8_t *b)
{
	const int8_t *scale = (const int8_t *)b + 192;
	const float d = half(b + 208);
	int i;

	for (i = 0; i < SUPER; i++) {
		const int of = i / 128, run = i % 128 / 32, at = i % 32;
		const int low = b[of * 64 + run % 2 * 32 + at] >> run / 2 * 4 & 15;
		const int high = b[128 + of * 32 + at] >> run * 2 & 3;

		x[i] = d * (float)scale[i / 16] * (float)((low | high << 4) - 32);
	}
}

void
weight_to_f32(float *dst, const void *src, enum weight_type type, size_t n)
{
	static void (*const block[WEIGHT_TYPES])(float *, const uint8_t *) = {
		[WEIGHT_Q4_0] = q4_0, [WEIGHT_Q4_1] = q4_1, [WEIGHT_Q5_0] = q5_0,
		[WEIGHT_Q5_1] = q5_1, [WEIGHT_Q8_0] = q8_0, [WEIGHT_MXFP4] = mxfp4,
		[WEIGHT_Q4_K] = q4_k, [WEIGHT_Q5_K] = q5_k, [WEIGHT_Q6_K] = q6_k,
	};
	const uint32_t numbers = weight_block(type);
	size_t i;

	if (!weight_is_block(type)) {
		kv_to_f32(dst, src, (enum kv_dtype)type, n);
		return;
	}
	for (i = 0; i < n; i += numbers)
		block[type](dst + i, (const uint8_t *)src + weight_row_bytes(type, i));
}
