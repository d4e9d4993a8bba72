/* simd_pack.c - entries of indexes from keys: one bit a channel, and bounds of pages
 * (kv-snapshot(5), 4.15 and 4.16)
 *
 * Channels stand along the lanes, so that a row's keys are read as they lie and nothing runs
 * across lanes. The bits of 32 rows are collected in one vector of words, which for entries of 32
 * rows is what the file holds. Keys are read from memory once; the second pass over an entry
 * finds them in L1. */
#include "cpu/simd.h"

#define COLS 2                   /* vectors of channels that one pass handles */

/* Channels e .. e+n-1 of row i; n is VL, or less at the end of the row */
INLINE vf
load_keys(const void *keys, const enum kv_dtype type, size_t E, size_t i, size_t e, const size_t n)
{
	return n == VL ? vload_as(keys, i * E + e, type) : vload_part(keys, i * E + e, n, type);
}

/* to[n] of type <- v; f32 and bf16 hold v exactly, to f16 it is rounded */
INLINE void
store_as(void *to, vf v, const enum kv_dtype type, const size_t n)
{
	vh_any h;
#if VL == 4
	uint16_t half[VL];
#endif

	switch (type) {
	case KV_F32:
		memcpy(to, &v, n * sizeof(float));
		return;
	case KV_BF16:
		h = __builtin_convertvector((vu)v >> 16, vh_any);
		break;
	case KV_F16:
#if VL == 16
		h = (vh_any)_mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT);
#elif VL == 8
		h = (vh_any)_mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT);
#else
		kv_from_f32(half, (const float *)&v, KV_F16, VL);
		memcpy(&h, half, sizeof h);
#endif
		break;
	}
	memcpy(to, &h, n * sizeof(uint16_t));
}

/* Minimum and maximum over u rows, for nc vectors of channels; prefetches the next u rows. NaNs
 * are ignored; where all are NaN, the results are infinity and -infinity. */
INLINE void
bounds(vf *least, vf *most, const void *keys, const enum kv_dtype type, size_t u, size_t E,
    size_t e, const int nc, const size_t n)
{
	const size_t size = type == KV_F32 ? 4 : 2;
	size_t i, at;
	vf k;
	int c;

UNROLL	for (c = 0; c < nc; c++) {
		least[c] = vset(INFINITY);
		most[c] = vset(-INFINITY);
	}
	for (i = 0; i < u; i++)
UNROLL		for (c = 0; c < nc; c++) {
			at = i * E + e + c * VL;
			__builtin_prefetch((const char *)keys + (at + u * E) * size);
			k = load_keys(keys, type, E, i, e + c * VL, n);
			least[c] = vmin(k, least[c]);
			most[c] = vmax(k, most[c]);
		}
}

/* v where the mask is set, else 0 */
INLINE vf
masked(vu mask, vf v)
{
	return (vf)((vu)v & mask);
}

/* to[n] f16 <- v, at most 65504 either way; what rounds to 0 has no sign. A NaN, the scale of
 * keys that are all the same infinity, becomes 0. */
INLINE void
store_half(void *to, vf v, const size_t n)
{
	v = vmin(vset(65504), vmax(vset(-65504), v));
	v = masked((vu)(v > vset(0x1p-25f)) | (vu)(v < vset(-0x1p-25f)), v);
	store_as(to, v, KV_F16, n);
}

/* The words of n channels, of `rows` bits each, to places `step` bytes apart */
INLINE void
store_words(unsigned char *to, vu word, size_t rows, size_t step, const size_t n)
{
	vh_any narrow;
	size_t i;

	if (step == 2) {
		narrow = __builtin_convertvector(word, vh_any);
		memcpy(to, &narrow, n * 2);
	} else if (step == 4)
		memcpy(to, &word, n * 4);
	else
		for (i = 0; i < n; i++)
			memcpy(to + i * step, (const char *)&word + i * 4, rows / 8);
}

/* nc vectors of channels of one entry: zero and scale, then a bit for each key above their middle.
 * Twice the distance to the minimum is exact, where half the scale may not be. */
INLINE void
pack_columns(unsigned char *to, const void *keys, const enum kv_dtype type, size_t u,
    size_t E, size_t e, const int nc, const size_t n)
{
	vf least[COLS], most[COLS], scale[COLS], d;
	vu word[COLS], bit, valid;
	size_t i, at, rows = u < 32 ? u : 32;
	int c;

	bounds(least, most, keys, type, u, E, e, nc, n);
UNROLL	for (c = 0; c < nc; c++) {
		valid = (vu)(least[c] <= most[c]);    /* 0: all keys are NaN */
		least[c] = masked(valid, least[c]);
		most[c] = masked(valid, most[c]);
		scale[c] = most[c] - least[c];
		store_half(to + 2 * (e + c * VL), least[c], n);
		store_half(to + 2 * (E + e + c * VL), scale[c], n);
	}
	for (at = 0; at < u; at += rows) {
UNROLL		for (c = 0; c < nc; c++)
			word[c] = (vu){ 0 };
		for (i = 0, bit = (vu){ 0 } + 1; i < rows; i++, bit += bit)
UNROLL			for (c = 0; c < nc; c++) {
				d = load_keys(keys, type, E, at + i, e + c * VL, n) - least[c];
				word[c] |= (vu)(d + d > scale[c]) & bit;
			}
UNROLL		for (c = 0; c < nc; c++)
			store_words(to + 4 * E + (e + c * VL) * (u / 8) + at / 8, word[c], rows,
			    u / 8, n);
	}
}

INLINE void
pack_bits(void *to, const void *keys, const enum kv_dtype type, size_t u, size_t E)
{
	size_t e = 0;

	for (; e + COLS * VL <= E; e += COLS * VL)
		pack_columns(to, keys, type, u, E, e, COLS, VL);
	for (; e + VL <= E; e += VL)
		pack_columns(to, keys, type, u, E, e, 1, VL);
	if (e < E)
		pack_columns(to, keys, type, u, E, e, 1, E - e);
}

void
FN(pack_bits)(void *to, const void *keys, enum kv_dtype type, size_t u, size_t E)
{
	switch (type) {
	case KV_BF16:
		pack_bits(to, keys, KV_BF16, u, E);
		break;
	case KV_F16:
		pack_bits(to, keys, KV_F16, u, E);
		break;
	case KV_F32:
		pack_bits(to, keys, KV_F32, u, E);
		break;
	}
}

/* to: the minima of all channels, then the maxima. Adding 0 turns -0 into 0. */
INLINE void
page_columns(char *to, const void *keys, const enum kv_dtype type, size_t u, size_t E, size_t e,
    const int nc, const size_t n)
{
	const size_t size = type == KV_F32 ? 4 : 2;
	vf least[COLS], most[COLS];
	vu none;
	int c;

	bounds(least, most, keys, type, u, E, e, nc, n);
UNROLL	for (c = 0; c < nc; c++) {
		none = (vu)(least[c] > most[c]);
		least[c] = masked(~none, least[c] + 0.0f);
		most[c] = masked(~none, most[c] + 0.0f);
		none &= 0x7fc00000;
		store_as(to + (e + c * VL) * size, (vf)((vu)least[c] | none), type, n);
		store_as(to + (E + e + c * VL) * size, (vf)((vu)most[c] | none), type, n);
	}
}

INLINE void
pack_page(char *to, const void *keys, const enum kv_dtype type, size_t u, size_t E)
{
	size_t e = 0;

	for (; e + COLS * VL <= E; e += COLS * VL)
		page_columns(to, keys, type, u, E, e, COLS, VL);
	for (; e + VL <= E; e += VL)
		page_columns(to, keys, type, u, E, e, 1, VL);
	if (e < E)
		page_columns(to, keys, type, u, E, e, 1, E - e);
}

void
FN(pack_page)(void *to, const void *keys, enum kv_dtype type, size_t u, size_t E)
{
	switch (type) {
	case KV_BF16:
		pack_page(to, keys, KV_BF16, u, E);
		break;
	case KV_F16:
		pack_page(to, keys, KV_F16, u, E);
		break;
	case KV_F32:
		pack_page(to, keys, KV_F32, u, E);
		break;
	}
}
