/* gpu_quantised_tiles.h - tiles of quantised rows on their way to shared memory, as they are stored
 *
 * A warp copies a tile by cp.async, 16 aligned bytes at a time: neighbouring rows as one piece of
 * memory, chosen rows each by itself. Rows begin at multiples of 4 bytes, so a tile or a chosen
 * row begins up to 12 bytes behind the first byte that is copied. W: ROWS of a tile, PLACES, the
 * bytes of a slot before its keys, and B blocks of a row. */
#ifndef GPU_QUANTISED_TILES_H
#define GPU_QUANTISED_TILES_H

#include "gpu/gpu_decode_warp.h"
#include "gpu/gpu_quantised.h"
#include "gpu/port_codes.h"

/* A tensor as a warp copies it */
struct code_rows {
	uintptr_t first;             /* row 0 of the KV head; 0: there are none */
	uintptr_t next;              /* the first row of the tile that is copied next */
	uint32_t bytes;              /* of a row */
	uint32_t stride;             /* room for one that begins at any multiple of 4 */
	uint32_t type;
};

/* Room for a row that begins at any multiple of 4 */
static inline __host__ __device__ uint32_t
room_of_row(uint32_t bytes)
{
	return (bytes + 12 + 15) / 16 * 16;
}

/* The rows of a tensor from row `row` of a KV head on */
DEVICE struct code_rows
code_rows_of(const void *rows, uint64_t start, const struct row_format &f, uint32_t row)
{
	const uintptr_t first = (uintptr_t)rows + start * f.bytes;

	if (rows == NULL)
		return { 0, 0, 0, 0, f.type };
	return { first, first + (size_t)row * f.bytes, f.bytes, room_of_row(f.bytes), f.type };
}

/* Where a lane reads a tile, in bytes from the begin of keys or values: rows 2g, 2g + 1 of keys;
 * rows 4c .. 4c + 3 of values; rows 2g, 2g + 1 of them */
struct places {
	uint32_t key[2], value[4], scale[2];
};

/* ---- copies ---- */

/* Starts to copy 16 rows that are neighbours and aligned to 16 bytes: as many pieces as a row has
 * bytes. from: this lane's first piece */
template <class W>
DEVICE void
copy_whole(unsigned char *to, uintptr_t from, uint32_t bytes)
{
	constexpr uint32_t MOST = W::B * 34;
	const uint32_t lane = threadIdx.x % 32;

UNROLL	for (uint32_t i = 0; i < MOST; i += 32)
		if (i + lane < bytes)
			cp_async16(to + (i + lane) * 16, (const void *)(from + i * 16), true);
}

/* Starts to copy n <= 16 rows that are neighbours, the first one at `from`, and zeros behind. */
DEVICE void
copy_neighbours(unsigned char *to, uintptr_t from, uint32_t bytes, uint32_t n)
{
	const uintptr_t shift = from % 16, end = from + (size_t)n * bytes;

ROLLED	for (uint32_t i = threadIdx.x % 32; i <= bytes; i += 32) {
		const uintptr_t at = from - shift + i * 16;

		cp_async16_part(to + i * 16, (const void *)at,
		    at >= end ? 0 : (uint32_t)min(end - at, (uintptr_t)16));
	}
}

/* Starts to copy a row, NO_ROW: zeros, by two lanes, of which this one is number `half`. Returns
 * where it begins. */
DEVICE uint32_t
copy_chosen(unsigned char *to, const struct code_rows &t, uint32_t row, uint32_t half)
{
	const uintptr_t from = row == NO_ROW ? 0 : t.first + (size_t)row * t.bytes;
	const uintptr_t shift = from % 16, end = from + t.bytes;

ROLLED	for (uint32_t i = half; i < t.stride / 16; i += 2) {
		const uintptr_t at = from - shift + i * 16;

		cp_async16_part(to + i * 16, (const void *)at,
		    row == NO_ROW || at >= end ? 0 : (uint32_t)min(end - at, (uintptr_t)16));
	}
	return (uint32_t)shift;
}

/* Starts to copy a tile of chosen rows. */
template <class W>
DEVICE void
load_chosen(unsigned char *slot, struct cursor &cursor, const struct row_list &list,
    const struct code_rows &k, const struct code_rows &v)
{
	unsigned char *const keys = slot + W::PLACES, *const values = keys + W::ROWS * k.stride;
	const uint32_t lane = threadIdx.x % 32, r = lane % W::ROWS;
	const uint32_t row = next_row<W>(cursor, list);
	const uint32_t of_key = copy_chosen(keys + r * k.stride, k, row, lane / W::ROWS);
	uint32_t of_value = 0;

	if (v.first != 0)
		of_value = copy_chosen(values + r * v.stride, v, row, lane / W::ROWS);
	if (lane < W::ROWS)
		((uint32_t *)slot)[r] = (r * k.stride + of_key) |
		    (r * v.stride + of_value) << 16;
}

/* Starts to copy the next tile of neighbours, at entry `at` of the list; nothing behind its end. */
template <class W>
DEVICE void
load_neighbours(unsigned char *slot, const struct cursor &cursor, struct code_rows &k,
    struct code_rows &v, uint32_t at)
{
	unsigned char *const keys = slot + W::PLACES, *const values = keys + W::ROWS * k.stride;
	const uint32_t lane = threadIdx.x % 32;

	if (at + W::ROWS <= cursor.end && ((k.next | v.next) & 15) == 0) {
		copy_whole<W>(keys, k.next + lane * 16, k.bytes);
		if (v.first != 0)
			copy_whole<W>(values, v.next + lane * 16, v.bytes);
	} else if (at < cursor.end) {
		const uint32_t n = min(cursor.end - at, (uint32_t)W::ROWS);

		copy_neighbours(keys, k.next, k.bytes, n);
		if (v.first != 0)
			copy_neighbours(values, v.next, v.bytes, n);
	}
	k.next += WARPS * W::ROWS * k.bytes;
	v.next += WARPS * W::ROWS * v.bytes;
}

/* The next tile: a group of copies, also behind the end */
template <class W>
DEVICE void
load_tile(unsigned char *slot, struct cursor &cursor, const struct row_list &list,
    struct code_rows &k, struct code_rows &v, uint32_t at)
{
	if (list.at != NULL)
		load_chosen<W>(slot, cursor, list, k, v);
	else
		load_neighbours<W>(slot, cursor, k, v, at);
	cp_async_commit();
}

/* Places of rows that are neighbours: the same in all tiles of a warp */
DEVICE struct places
places_of_neighbours(const struct code_rows &k, const struct code_rows &v)
{
	const uint32_t g = threadIdx.x % 32 / 4, c = threadIdx.x % 4;
	const uint32_t key = (uint32_t)k.next % 16, value = (uint32_t)v.next % 16;
	struct places p;

UNROLL	for (uint32_t i = 0; i < 4; i++)
		p.value[i] = value + (4 * c + i) * v.bytes;
UNROLL	for (uint32_t i = 0; i < 2; i++) {
		p.key[i] = key + (2 * g + i) * k.bytes;
		p.scale[i] = value + (2 * g + i) * v.bytes;
	}
	return p;
}

DEVICE struct places
places_of_chosen(const unsigned char *slot)
{
	const uint32_t g = threadIdx.x % 32 / 4, c = threadIdx.x % 4;
	const uint32_t *const at = (const uint32_t *)slot;
	struct places p;

UNROLL	for (uint32_t i = 0; i < 4; i++)
		p.value[i] = at[4 * c + i] >> 16;
UNROLL	for (uint32_t i = 0; i < 2; i++) {
		p.key[i] = at[2 * g + i] & 0xffff;
		p.scale[i] = at[2 * g + i] >> 16;
	}
	return p;
}

#endif
