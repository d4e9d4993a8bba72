/* ptx_warps.cc - instructions of a warp or a block: shuffles, barriers, matrices */
#include <cfenv>
#include <stdlib.h>

#include <algorithm>

#include "tests/ptx/ptx_runtime.h"

namespace ptx {

const int wobble = emulator::setting("PTX_WOBBLE", 0);
constexpr u32 ALL = 0xffffffff;

/* The compiler does not know of rounding modes: what is computed in one is volatile. */
f32
fma_rm(f32 a, f32 b, f32 c)
{
	volatile f32 x = a, y = b, z = c, r;

	fesetround(FE_DOWNWARD);
	r = fmaf(x, y, z);
	fesetround(FE_TONEAREST);
	return r;
}

f32
add_rz(f32 a, f32 b)
{
	volatile f32 x = a, y = b, r;

	fesetround(FE_TOWARDZERO);
	r = x + y;
	fesetround(FE_TONEAREST);
	return r;
}

/* ---- lanes ---- */

typedef const u32 (*words)[8];

/* What each lane of the mask has published; the last word is the instruction's line, which must be
 * the same. */
template <size_t N>
static words
meet(const u32 (&mine)[N], u32 mask, int line)
{
	const words all = emulator::exchange(mine, N, mask);

	for (int i = 0; i < 32; i++)
		if (mask >> i & 1 && all[i][N - 1] != (u32)line) {
			fault(line, "lanes of a warp meet at different instructions: line %u, too",
			    all[i][N - 1]);
			break;
		}
	return all;
}

u32
shfl(enum shuffle how, u32 value, u32 b, u32 c, u32 mask, bool *in_range, int line)
{
	const u32 mine[2] = { value, (u32)line }, lane = emulator::lane;
	const u32 by = b & 31, bound = c & 31, segment = c >> 8 & 31;
	const u32 most = (lane & segment) | (bound & ~segment & 31), least = lane & segment;
	const words all = meet(mine, mask, line);
	s32 from;

	switch (how) {
	case IDX: from = (s32)(least | (by & ~segment & 31)); break;
	case BFLY: from = (s32)(lane ^ by); break;
	case UP: from = (s32)(lane - by); break;
	default: from = (s32)(lane + by);
	}
	*in_range = how == UP ? from >= (s32)most : from <= (s32)most;
	if (!*in_range)
		from = (s32)lane;
	if (!(mask >> from & 1))
		fault(line, "a shuffle reads lane %d, which is not in its mask", from);
	return all[from][0];
}

u32
ballot(bool p, u32 mask, int line)
{
	const u32 mine[2] = { p, (u32)line };
	const words all = meet(mine, mask, line);
	u32 lanes = 0;

	for (int i = 0; i < 32; i++)
		if (mask >> i & 1)
			lanes |= all[i][0] << i;
	return lanes;
}

u32
redux_add(u32 value, u32 mask, int line)
{
	const u32 mine[2] = { value, (u32)line };
	const words all = meet(mine, mask, line);
	u32 sum = 0;

	for (int i = 0; i < 32; i++)
		if (mask >> i & 1)
			sum += all[i][0];
	return sum;
}

void
warp_sync(u32 mask)
{
	emulator::sync_warp(mask);
	tick_warp();
}

void
block_sync(void)
{
	emulator::sync_block();
	tick_block();
}

bool
block_sync_or(bool p)
{
	const bool any = emulator::sync_block_or(p, 0) != 0;

	tick_block();
	return any;
}

/* ---- matrices ---- */

/* Lane 8m + r has the address of row r of matrix m, 16 bytes. Lane 4i + j gets elements 2j and
 * 2j + 1 of row i, or, transposed, of column i, the first in the lower half. */
void
ldmatrix_x4(u32 to[4], u64 address, bool transposed, int line)
{
	const u32 mine[3] = { (u32)address, (u32)(address >> 32), (u32)line };
	const words all = meet(mine, ALL, line);
	const u32 i = emulator::lane / 4, j = emulator::lane % 4;

	for (u32 m = 0; m < 4; m++) {
		u16 half[2];

		for (u32 e = 0; e < 2; e++) {
			const u32 row = transposed ? 2 * j + e : i;
			const u32 column = transposed ? i : 2 * j + e;
			const u32 *const at = all[8 * m + row];
			const u64 from = (u64)at[1] << 32 | at[0];

			memcpy(&half[e], (char *)shared_at(from, 16, line) + 2 * column, 2);
			note_shared(from + 2 * column, 2, READ, line);
		}
		to[m] = half[0] | (u32)half[1] << 16;
	}
}

/* A matrix of 8 x 8 as ldmatrix gives it, transposed */
u32
movmatrix_trans(u32 from, int line)
{
	const u32 mine[2] = { from, (u32)line }, i = emulator::lane / 4, j = emulator::lane % 4;
	const words all = meet(mine, ALL, line);
	const u32 low = all[8 * j + i / 2][0], high = all[8 * j + 4 + i / 2][0];

	return (low >> 16 * (i % 2) & 0xffff) | (high >> 16 * (i % 2)) << 16;
}

/* A product's 16 terms, and the exponent of the greatest */
struct terms {
	f64 of[16], sum;
	int greatest;
};

static inline int
exponent_of(f64 x)
{
	int e;

	frexp(x, &e);
	return e - 1;
}

/* As tensor cores of Ampere and Hopper are known to add: all are aligned to the greatest exponent
 * with two more bits than f32 has, and cut off, and so is the sum. */
static f32
cut_off(const struct terms *t, f32 c)
{
	int greatest = t->greatest;
	f64 unit, sum;
	f32 r;

	if (c != 0)
		greatest = std::max(greatest, exponent_of(c));
	if (greatest == std::numeric_limits<int>::min())
		return c;
	unit = ldexp(1, greatest - 25);
	sum = trunc(c / unit);
	for (f64 x : t->of)
		sum += trunc(x / unit);
	sum *= unit;
	r = (f32)sum;
	return fabs((f64)r) > fabs(sum) ? nextafterf(r, 0) : r;
}

/* Element `index` of the 8 of a lane's part of a, or the 4 of b, behind it in what it published */
static inline f64
element(const u32 *published, u32 index, bool is_bf16)
{
	const u16 bits = (u16)(published[index / 2] >> 16 * (index & 1));

	return is_bf16 ? bf16_to_f32(bits) : half_to_f32(bits);
}

/* Element i of lane 4g + t: a: row g, and g + 8 for i of 2, 3, 6, 7; column 2t + i % 2, and 8 more
 * from i = 4 on. b: column g, row 2t + i % 2, and 8 more from 2 on. c, d: row g, and g + 8 from 2
 * on; column 2t + i % 2. */
void
mma(f32 d[4], const u32 a[4], const u32 b[2], const f32 c[4], bool is_bf16, int line)
{
	static const bool cuts = getenv("PTX_CUT_SUMS") != NULL;
	const u32 mine[7] = { a[0], a[1], a[2], a[3], b[0], b[1], (u32)line };
	const words all = meet(mine, ALL, line);
	const u32 g = emulator::lane / 4, t = emulator::lane % 4;

	for (u32 i = 0; i < 4; i++) {
		const u32 column = 2 * t + i % 2;
		struct terms x = { {}, 0, std::numeric_limits<int>::min() };

		for (u32 k = 0; k < 16; k++) {
			const u32 *const of_a = all[4 * g + k % 8 / 2];
			const u32 *const of_b = all[4 * column + k % 8 / 2] + 4;
			const f64 p = element(of_a, k % 2 + i / 2 * 2 + k / 8 * 4, is_bf16);
			const f64 q = element(of_b, k % 2 + k / 8 * 2, is_bf16);

			x.of[k] = p * q;
			x.sum += x.of[k];
			if (cuts && x.of[k] != 0 && std::isfinite(x.of[k]))
				x.greatest = std::max(x.greatest, exponent_of(p) + exponent_of(q));
		}
		d[i] = (f32)(c[i] + x.sum);
		if (cuts && std::isfinite(d[i]))
			d[i] = cut_off(&x, c[i]);
	}
}

/* The same of bytes: i of a: row g, and g + 8 for 4 .. 7 and 12 .. 15; column 4t + i % 4, and 16
 * more from 8 on. b: column g, row 4t + i % 4, and 16 more from 4 on. */
void
mma_u8(u32 d[4], const u32 a[4], const u32 b[2], const u32 c[4], int line)
{
	const u32 mine[7] = { a[0], a[1], a[2], a[3], b[0], b[1], (u32)line };
	const words all = meet(mine, ALL, line);
	const u32 g = emulator::lane / 4, t = emulator::lane % 4;

	for (u32 i = 0; i < 4; i++) {
		const u32 column = 2 * t + i % 2;

		d[i] = c[i];
		for (u32 k = 0; k < 32; k++) {
			const u32 *const of_a = all[4 * g + k % 16 / 4] + k / 16 * 2 + i / 2;
			const u32 *const of_b = all[4 * column + k % 16 / 4] + 4 + k / 16;
			u8 x, y;

			memcpy(&x, (const char *)of_a + k % 4, 1);
			memcpy(&y, (const char *)of_b + k % 4, 1);
			d[i] += (u32)x * y;
		}
	}
}

} // namespace ptx
