/* gpu_rows.h - vectorised loads and stores, 16 bytes at a time, for rows aligned to that
 *
 * A thread has V elements of a row: 4 or 8; 1 where rows are not aligned, and in naive
 * kernels. */
#ifndef GPU_ROWS_H
#define GPU_ROWS_H

#include "gpu/gpu_internal.h"

/* Are rows of so many bytes, the first of them at p, aligned to 16 bytes? */
static inline bool
aligned_16(const struct dev *d, const void *p, size_t bytes)
{
	return !d->reference && (uintptr_t)p % 16 == 0 && bytes % 16 == 0;
}

/* Loads V elements as floats, 16 bytes at a time */
template <int V, class T>
DEVICE void
load_floats(float *to, const T *from)
{
	constexpr int most = 16 / sizeof(T), W = V < most ? V : most;

	for (int i = 0; i < V; i += W) {
		const pack<T, W> p = *(const pack<T, W> *)(from + i);

		for (int e = 0; e < W; e++)
			to[i + e] = widen(p.at[e]);
	}
}

template <int V>
DEVICE void
store_floats(float *to, const float *from)
{
	constexpr int W = V < 4 ? V : 4;

	for (int i = 0; i < V; i += W) {
		pack<float, W> p;

		for (int e = 0; e < W; e++)
			p.at[e] = from[i + e];
		*(pack<float, W> *)(to + i) = p;
	}
}

template <class T, int V>
DEVICE void
store_narrow(T *to, const float *from)
{
	pack<T, V> p;

	for (int e = 0; e < V; e++)
		p.at[e] = narrow<T>(from[e]);
	*(pack<T, V> *)to = p;
}

#endif
