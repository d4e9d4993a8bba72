/* port_codes.h - instructions for codes of rows, quantised ones and those of one bit, on tensor
 * cores, as port.h has those of all kernels: each a function with its PTX and a model for the
 * emulator */
#ifndef GPU_PORT_CODES_H
#define GPU_PORT_CODES_H

#include "gpu/port.h"

/* Sums of two pairs of f16 */
DEVICE uint32_t
add_f16x2(uint32_t x, uint32_t y)
{
#ifndef CUDA_EMULATED
	uint32_t z;

	asm("add.rn.f16x2 %0, %1, %2;" : "=r"(z) : "r"(x), "r"(y));
	return z;
#else
	return pair<f16>(widen(f16{ (uint16_t)x }) + widen(f16{ (uint16_t)y }),
	    widen(f16{ (uint16_t)(x >> 16) }) + widen(f16{ (uint16_t)(y >> 16) }));
#endif
}

/* (x & mask) ^ bits in one instruction, where the compiler makes two of two constants */
DEVICE uint32_t
and_xor(uint32_t x, uint32_t mask, uint32_t bits)
{
#ifndef CUDA_EMULATED
	uint32_t y;

	asm("lop3.b32 %0, %1, %2, %3, 0x6a;" : "=r"(y) : "r"(x), "r"(mask), "r"(bits));
	return y;
#else
	return (x & mask) ^ bits;
#endif
}

/* The e4m3 in the lower two bytes as a pair of f16. Without an instruction (cvt.e4m3x2, sm_89): f16
 * has one bit of exponent more, so the bits of e4m3, shifted, are 2^8 too small. A NaN, which no
 * writer makes, becomes one or 480. */
DEVICE uint32_t
f16x2_of_e4m3(uint32_t two)
{
#if !defined CUDA_EMULATED && __CUDA_ARCH__ >= 890
	uint32_t z;

	asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(z) : "h"((uint16_t)two));
	return z;
#else
	const uint32_t upper = __byte_perm(two, 0, 0x1404);

	return mul_f16x2((upper & 0x80008000) | (upper >> 1 & 0x3f803f80), 0x5c005c00);
#endif
}

/* The transpose of an 8 x 8 matrix of 16-bit elements (PTX movmatrix): lane 4i + j passes elements
 * [i][2j] and [i][2j + 1], and gets those of the transpose. */
DEVICE uint32_t
transpose_8x8(uint32_t x)
{
#ifndef CUDA_EMULATED
	uint32_t y;

	asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y) : "r"(x));
	return y;
#else
	const uint32_t (*all)[8] = emulator::exchange(&x, 1, ALL_LANES);
	const unsigned i = emulator::lane / 4, j = emulator::lane % 4, half = 16 * (i % 2);

	return (all[8 * j + i / 2][0] >> half & 0xffff) |
	    (all[8 * j + 4 + i / 2][0] >> half & 0xffff) << 16;
#endif
}

/* Copies the first n of 16 bytes, and writes zeros behind them. */
DEVICE void
cp_async16_part(void *to, const void *from, uint32_t n)
{
#ifndef CUDA_EMULATED
	asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::
	    "r"((uint32_t)__cvta_generic_to_shared(to)), "l"(from), "r"(n) : "memory");
#else
	emulator::cp_async16_part(to, from, n);
#endif
}

/* d[16][8] += a[16][32] . b[32][8] of unsigned bytes, by a warp (PTX mma.m16n8k32): d as in mma().
 * a[0]: row g, columns 4c .. 4c + 3, the first in the lowest byte; a[1]: row g + 8; a[2], a[3]: the
 * same rows, columns + 16. b[0]: rows 4c .. 4c + 3 of column g; b[1]: rows + 16. */
DEVICE void
mma_u8(uint32_t d[4], const uint32_t a[4], const uint32_t b[2])
{
#ifndef CUDA_EMULATED
	asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.u8.u8.s32 "
		     "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
		     : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
		     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
	const uint32_t mine[6] = { a[0], a[1], a[2], a[3], b[0], b[1] };
	const uint32_t (*all)[8] = emulator::exchange(mine, 6, ALL_LANES);
	const unsigned g = emulator::lane / 4, c = emulator::lane % 4;

	for (unsigned e = 0; e < 4; e++)
		for (unsigned k = 0; k < 32; k++) {
			const unsigned from = k % 16 / 4, byte = 8 * (k % 4);
			const uint32_t x = all[g * 4 + from][e / 2 + 2 * (k / 16)];
			const uint32_t y = all[(2 * c + e % 2) * 4 + from][4 + k / 16];

			d[e] += (x >> byte & 255) * (y >> byte & 255);
		}
#endif
}

#endif
