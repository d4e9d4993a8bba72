/* gpu_quantised_codes.h - the codes of quantised rows as operands of tensor cores: pairs of f16,
 * exact, without their scale
 *
 * A tile of rows lies in shared memory as it is stored, each row at a multiple of 4 bytes, for
 * widths E that are a multiple of 64; the functions below read what one lane has of an operand. The
 * scale is that of a block of 32 channels, so no product reaches over the end of one; which
 * channels of a block a lane has is free, and chosen so that few and aligned loads find them.
 *
 * A byte or four bits become f16 by an or with the exponent in which they are the last bits: 1024 +
 * code, or 64 + code for four bits that lie 4 higher. What is too much is subtracted. */
#ifndef GPU_QUANTISED_CODES_H
#define GPU_QUANTISED_CODES_H

#include "gpu/gpu_quantised.h"
#include "gpu/port_codes.h"

/* Codes of 4 bits, of q5_0 with a fifth one elsewhere? */
static inline __host__ __device__ constexpr bool
is_nibbles(uint32_t type)
{
	return type == KV_ROW_Q4_0 || type == KV_ROW_Q4_1 || type == KV_ROW_Q5_0;
}

DEVICE uint32_t
word_at(const unsigned char *p)
{
	return *(const uint32_t *)p;
}

/* ---- codes to pairs of f16 ---- */

/* pair[0], pair[1] <- the signed bytes 0 and 2, 1 and 3 of a word */
DEVICE void
pairs_of_bytes(uint32_t pair[2], uint32_t w)
{
	pair[0] = add_f16x2(and_xor(w, 0x00ff00ff, 0x64806480), 0xe480e480);   /* -1152 */
	pair[1] = add_f16x2(and_xor(w >> 8, 0x00ff00ff, 0x64806480), 0xe480e480);
}

/* What is subtracted from 1024 + code and from 64 + code, as a pair: negative */
template <uint32_t TYPE> constexpr uint32_t MINUS_LOWER = TYPE == KV_ROW_Q4_0 ? 0xe408e408 :
    TYPE == KV_ROW_Q4_1 ? 0xe400e400 : 0xe410e410;
template <uint32_t TYPE> constexpr uint32_t MINUS_UPPER = TYPE == KV_ROW_Q4_0 ? 0xd480d480 :
    TYPE == KV_ROW_Q4_1 ? 0xd400d400 : 0xd500d500;

/* pair[0], pair[1] <- the lower and the upper four bits of the bytes 0 and 2, pair[2], pair[3] of
 * the bytes 1 and 3. fifth[i]: of q5_0, for pair i, the fifth bits and else anything: bits 4 and
 * 20 of lower, 8 and 24 of upper codes */
template <uint32_t TYPE>
DEVICE void
pairs_of_nibbles(uint32_t pair[4], uint32_t w, const uint32_t fifth[4])
{
UNROLL	for (int i = 0; i < 4; i++) {
		const uint32_t from = i < 2 ? w : w >> 8;
		uint32_t magic = i % 2 == 0 ? 0x64006400 : 0x54005400;

		if constexpr (TYPE == KV_ROW_Q5_0)
			magic = and_xor(fifth[i], i % 2 == 0 ? 0x00100010 : 0x01000100, magic);
		pair[i] = add_f16x2(and_xor(from, i % 2 == 0 ? 0x000f000f : 0x00f000f0, magic),
		    i % 2 == 0 ? MINUS_LOWER<TYPE> : MINUS_UPPER<TYPE>);
	}
}

/* ---- keys ----
 *
 * Lane (g, c), g = lane / 4, c = lane % 4, has 8 channels of each block of a row, in 4 pairs, of
 * which two are for each product of 16 channels. */

/* Blocks that begin at a multiple of 4 have codes that do not: their lanes begin 2 bytes later, and
 * the last lane's are from the end and the beginning. */
template <uint32_t TYPE>
DEVICE constexpr uint32_t
rotation(uint32_t block)
{
	return TYPE != KV_ROW_Q4_1 && block % 2 == 0 ? 2 : 0;
}

/* The channel of half e of pair i of a lane's codes of a block */
template <uint32_t TYPE, int E>
DEVICE uint32_t
key_channel(uint32_t block, uint32_t c, uint32_t i, uint32_t e)
{
	if constexpr (is_nibbles(TYPE))
		return block * 32 + i % 2 * 16 +
		    (4 * c + rotation<TYPE>(block) + i / 2 + 2 * e) % 16;
	else if constexpr (TYPE == KV_ROW_Q8_0)
		return block * 32 +
		    (4 * c + rotation<TYPE>(block) + i / 2 * 16 + i % 2 + 2 * e) % 32;
	else
		return 4 * (c % 2 + c / 2 * (E / 8) + 4 * block + 2 * (i / 2)) +
		    (TYPE == KV_ROW_FP8 ? i % 2 * 2 + e : i % 2 + 2 * e);
}

/* A lane's word that begins 2 bytes late: with the first two bytes of codes, the upper half of
 * `first`, for the last lane */
DEVICE uint32_t
turned(uint32_t word, uint32_t first, uint32_t c)
{
	return __byte_perm(word, first, c == 3 ? 0x7610 : 0x3210);
}

/* fifth[] for pairs_of_nibbles(): bits j .. j + 3 of each half of the fifth bits of a block */
DEVICE void
fifth_of_keys(uint32_t fifth[4], uint32_t bits, uint32_t j)
{
	const uint32_t lower = __byte_perm(bits, bits, 0x1010) >> j & 15;
	const uint32_t upper = __byte_perm(bits, bits, 0x3232) >> j & 15;

	fifth[0] = lower * (1u << 4 | 1u << 18);
	fifth[1] = upper * (1u << 8 | 1u << 22);
	fifth[2] = lower * (1u << 3 | 1u << 17);
	fifth[3] = upper * (1u << 7 | 1u << 21);
}

/* pair[4] <- this lane's codes of a block with 4-bit codes; scale, least <- the block's */
template <uint32_t TYPE>
DEVICE void
nibbles_of_key(uint32_t pair[4], float &scale, float &least, const unsigned char *block,
    uint32_t number, uint32_t c)
{
	const uint32_t head = number % 2 == 0 || TYPE == KV_ROW_Q4_1 ? word_at(block) :
	    load_16(block);
	uint32_t w, fifth[4] = {};

	scale = widen_half(head);
	if constexpr (TYPE == KV_ROW_Q4_1) {
		least = widen_half(head >> 16);
		w = word_at(block + 4 + 4 * c);
	} else if (TYPE == KV_ROW_Q4_0) {
		w = number % 2 == 0 ? turned(word_at(block + 4 + 4 * c), head, c) :
		    word_at(block + 2 + 4 * c);
	} else if (number % 2 == 0) {
		const uint32_t next = word_at(block + 4);

		w = turned(word_at(block + 8 + 4 * c), next, c);
		fifth_of_keys(fifth, __byte_perm(head, next, 0x5432), 4 * c + 2);
	} else {
		w = word_at(block + 6 + 4 * c);
		fifth_of_keys(fifth, word_at(block + 2), 4 * c);
	}
	pairs_of_nibbles<TYPE>(pair, w, fifth);
}

/* pair[4] <- this lane's codes of a block of a row; scale, least <- the block's, where the type has
 * blocks, and least where it has one */
template <uint32_t TYPE, int E>
DEVICE void
codes_of_key(uint32_t pair[4], float &scale, float &least, const unsigned char *row,
    uint32_t number, uint32_t c)
{
	if constexpr (is_nibbles(TYPE)) {
		nibbles_of_key<TYPE>(pair, scale, least, row + number * block_bytes(TYPE), number,
		    c);
	} else if constexpr (TYPE == KV_ROW_Q8_0) {
		const unsigned char *const block = row + number * block_bytes(TYPE);
		const uint32_t head = number % 2 == 0 ? word_at(block) : load_16(block);
		const unsigned char *const code = block + 2 + rotation<TYPE>(number) + 4 * c;
		const uint32_t upper = word_at(code + 16);

		scale = widen_half(head);
		pairs_of_bytes(pair, word_at(code));
		pairs_of_bytes(pair + 2, number % 2 == 0 ? turned(upper, head, c) : upper);
	} else {
		const unsigned char *const code = row + 4 + 4 * (c % 2 + c / 2 * (E / 8)) +
		    16 * number;

UNROLL		for (int i = 0; i < 2; i++) {
			const uint32_t w = word_at(code + 8 * i);

			if constexpr (TYPE == KV_ROW_INT8) {
				pairs_of_bytes(pair + 2 * i, w);
			} else {
				pair[2 * i] = f16x2_of_e4m3(w);
				pair[2 * i + 1] = f16x2_of_e4m3(w >> 16);
			}
		}
	}
}

/* ---- values ----
 *
 * Lane (g, c) has 4 channels of each block of two rows, in pairs of the rows. */

/* Channel i of the 4 of a lane */
template <uint32_t TYPE, int E>
DEVICE uint32_t
value_channel(uint32_t block, uint32_t g, uint32_t i)
{
	if constexpr (is_nibbles(TYPE))
		return block * 32 + 2 * g + i / 2 + i % 2 * 16;
	else if constexpr (TYPE == KV_ROW_Q8_0)
		return block * 32 + 4 * g + i;
	else
		return 4 * (g % 4 + 4 * block + g / 4 * (E / 8)) + i;
}

/* fifth[] for pairs_of_nibbles(), of two blocks */
DEVICE void
fifth_of_values(uint32_t fifth[4], const unsigned char *first, const unsigned char *second,
    uint32_t g)
{
	const uint32_t lower =
	    __byte_perm(load_16(first + 2), load_16(second + 2), 0x5410) >> 2 * g;
	const uint32_t upper =
	    __byte_perm(load_16(first + 4), load_16(second + 4), 0x5410) >> 2 * g;

	fifth[0] = lower << 4;
	fifth[1] = upper << 8;
	fifth[2] = lower << 3;
	fifth[3] = upper << 7;
}

/* pair[4] <- this lane's codes of a block of two rows */
template <uint32_t TYPE, int E>
DEVICE void
codes_of_values(uint32_t pair[4], const unsigned char *first, const unsigned char *second,
    uint32_t number, uint32_t g)
{
	if constexpr (has_blocks(TYPE)) {
		first += number * block_bytes(TYPE);
		second += number * block_bytes(TYPE);
	}
	if constexpr (is_nibbles(TYPE)) {
		const uint32_t at = head_bytes(TYPE) + 2 * g;
		uint32_t fifth[4] = {};

		if constexpr (TYPE == KV_ROW_Q5_0)
			fifth_of_values(fifth, first, second, g);
		pairs_of_nibbles<TYPE>(pair, __byte_perm(load_16(first + at), load_16(second + at),
		    0x5410), fifth);
	} else if (TYPE == KV_ROW_Q8_0 && number % 2 == 0) {
		const uint32_t at = 4 * g;

		pairs_of_bytes(pair,
		    __byte_perm(word_at(first + at), word_at(second + at), 0x7632));
		pairs_of_bytes(pair + 2,
		    __byte_perm(word_at(first + at + 4), word_at(second + at + 4), 0x5410));
	} else {
		const uint32_t at = TYPE == KV_ROW_Q8_0 ? 2 + 4 * g :
		    4 + 4 * (g % 4 + 4 * number + g / 4 * (E / 8));
		const uint32_t a = word_at(first + at), b = word_at(second + at);

		if constexpr (TYPE == KV_ROW_FP8) {
			const uint32_t lower = __byte_perm(a, b, 0x5140);
			const uint32_t upper = __byte_perm(a, b, 0x7362);

			pair[0] = f16x2_of_e4m3(lower);
			pair[1] = f16x2_of_e4m3(lower >> 16);
			pair[2] = f16x2_of_e4m3(upper);
			pair[3] = f16x2_of_e4m3(upper >> 16);
		} else {
			pairs_of_bytes(pair, __byte_perm(a, b, 0x5410));
			pairs_of_bytes(pair + 2, __byte_perm(a, b, 0x7632));
		}
	}
}

#endif
