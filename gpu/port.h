/* port.h - what kernels use that is not plain CUDA C
 *
 * Every kernel is compiled twice: by nvcc for GPUs, and by the C++ compiler against the
 * emulator in tests/cuda, which defines CUDA_EMULATED. What differs between the two is here and
 * nowhere else: launches, shared memory, element types, and the instructions that CUDA C has
 * no name for. Such an instruction has a function here, with its PTX and with a model of it
 * that moves the same elements between the same lanes. */
#ifndef GPU_PORT_H
#define GPU_PORT_H

#include <cuda_runtime.h>

#include "libkvfile/dtype.h"

#ifndef CUDA_EMULATED
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

#define DEVICE static __device__ __forceinline__
#define ALL_LANES 0xffffffffu

/* Before a loop whose array indices must be constants, so that the arrays are in registers; and
 * before one that is short, and better not unrolled */
#ifndef CUDA_EMULATED
#define UNROLL _Pragma("unroll")
#define UNROLL_BY(n) UNROLL_PRAGMA(unroll n)
#define UNROLL_PRAGMA(x) _Pragma(#x)
#else
#define UNROLL
#define UNROLL_BY(n)
#endif
#define ROLLED UNROLL_BY(1)

/* LAUNCH(d, kernel, grid, block, shared, arguments ...): on the stream of d, with so many bytes of
 * dynamic shared memory; an error is remembered under the kernel's name. A kernel with commas in
 * its template arguments stands in parentheses.
 *
 * LAUNCH_EARLY(the same): the kernel may start while the one before it on the stream still runs
 * (programmatic dependent launch, sm_90). See earlier_done() below for what it must do then.
 *
 * DYN_SHARED(T, name): the dynamic shared memory, as T *name, aligned to 1024 bytes.
 * SHARED(T, name): a variable in shared memory; T may be an array: SHARED(float[32], sum). */
#ifndef CUDA_EMULATED
#define LAUNCH(d, kernel, grid, block, shared, ...) do { \
	if (gpu_may_launch(d, (const void *)(kernel), (shared))) { \
		(kernel)<<<(grid), (block), (shared), (d)->stream>>>(__VA_ARGS__); \
		gpu_launched(d, #kernel); \
	} } while (0)
#define LAUNCH_EARLY(d, kernel, grid, block, shared, ...) do { \
	if (gpu_may_launch(d, (const void *)(kernel), (shared))) { \
		launch_early((d)->stream, (d)->early, (d)->one_split, (kernel), (grid), (block), \
		    (shared), __VA_ARGS__); \
		gpu_launched(d, #kernel); \
	} } while (0)
#define DYN_SHARED(T, name) \
	extern __shared__ __align__(1024) unsigned char dynamic_shared_memory[]; \
	T *const name = reinterpret_cast<T *>(dynamic_shared_memory)
template <class T> struct same { typedef T type; };
#define SHARED(T, name) __shared__ typename same<T>::type name
#else
#define LAUNCH(d, kernel, grid, block, shared, ...) do { \
	if (gpu_may_launch(d, (const void *)(kernel), (shared))) { \
		emulator::launch((d)->stream, #kernel, (grid), (block), (shared), (kernel), \
		    __VA_ARGS__); \
		gpu_launched(d, #kernel); \
	} } while (0)
#define LAUNCH_EARLY(d, kernel, ...) LAUNCH(d, (emulator::early<(kernel)>::run), __VA_ARGS__)
#define DYN_SHARED(T, name) T *const name = reinterpret_cast<T *>(emulator::dynamic_shared)
#define SHARED(T, name) auto &name = *static_cast<std::add_pointer_t<T>>(emulator::shared( \
	[] { static const char place = 0; return &place; }(), sizeof(T), alignof(T)))
#endif

/* ---- kernels that start before those ahead of them have ended ----
 *
 * A kernel of LAUNCH_EARLY calls earlier_done() in all its threads before it reads or writes any
 * memory of the device. What it may do before is to compute, to load_ahead(), which changes nothing
 * and gives nothing that could be too old, and to load_settled().
 *
 * Why this is right: earlier_done() returns when the kernel before this one has ended and all that
 * it wrote is visible. If that one was launched by LAUNCH_EARLY too, it did not end before its own
 * earlier_done() had returned, so that the one before it has ended as well, and so on back to one
 * that was launched by LAUNCH. That, a copy or an event begins when all before it on the
 * stream is over, as ever. So every kernel finds memory as if they had run one after another.
 *
 * What is gained is the time between two kernels, in which the memory of weights would be idle:
 * blocks are in place, and their first weights in the second-level cache, when the last
 * block of the kernel before has ended.
 *
 * A multiprocessor's memory is split between first-level cache and shared memory, as the driver
 * thinks best for a kernel. Blocks of the next one may have to wait until it can be split
 * otherwise; then it helps if all these kernels ask for the same (one_split). Nobody has measured
 * that yet: bench_gpu does, and it is off. */

#ifndef CUDA_EMULATED
template <class... P>
static inline void
launch_early(cudaStream_t stream, bool early, bool one_split, void (*kernel)(P...), dim3 grid,
    dim3 block, size_t shared, typename same<P>::type... args)
{
	cudaLaunchAttribute how[2] = {};
	cudaLaunchConfig_t config = {};

	how[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
	how[0].val.programmaticStreamSerializationAllowed = 1;
	how[1].id = cudaLaunchAttributePreferredSharedMemoryCarveout;
	how[1].val.sharedMemCarveout = cudaSharedmemCarveoutMaxShared;
	config.gridDim = grid;
	config.blockDim = block;
	config.dynamicSmemBytes = shared;
	config.stream = stream;
	config.attrs = how;
	config.numAttrs = !early ? 0 : one_split ? 2 : 1;
	cudaLaunchKernelEx(&config, kernel, args...);
}
#endif

/* Waits until memory is as the kernels before this one leave it. */
DEVICE void
earlier_done(void)
{
#ifdef CUDA_EMULATED
	emulator::earlier_done();
#elif __CUDA_ARCH__ >= 900
	asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* The kernel behind this one, if it was launched by LAUNCH_EARLY, may start when all blocks have
 * said so or ended. Only a question of speed: it is that kernel which waits for what it needs. */
DEVICE void
next_may_start(void)
{
#if !defined CUDA_EMULATED && __CUDA_ARCH__ >= 900
	asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/* *p, which was written before a kernel of LAUNCH that is ahead of this one, or before the recorded
 * step that this one is of, and not since: it may be read before earlier_done(). From the
 * second-level cache, where it is for sure: the first-level one may be older than this kernel. */
DEVICE uint32_t
load_settled(const uint32_t *p)
{
#ifndef CUDA_EMULATED
	return __ldcg(p);
#else
	return emulator::load_settled(p);
#endif
}

/* ---- element types: 16 bits that are not a number until they are widened ---- */

struct bf16 { uint16_t bits; };
struct f16 { uint16_t bits; };

DEVICE float
widen(float x)
{
	return x;
}

DEVICE float
widen(bf16 x)
{
	return __uint_as_float((unsigned)x.bits << 16);
}

DEVICE float
widen(f16 x)
{
#ifndef CUDA_EMULATED
	return __half2float(__ushort_as_half(x.bits));
#else
	float f;

	kv_to_f32(&f, &x, KV_F16, 1);
	return f;
#endif
}

/* Rounded to nearest, ties to even; a NaN stays a NaN. */
template <class T> DEVICE T narrow(float);

template <>
__device__ __forceinline__ float
narrow<float>(float x)
{
	return x;
}

template <>
__device__ __forceinline__ bf16
narrow<bf16>(float x)
{
	uint32_t u = __float_as_uint(x);

	if ((u & 0x7fffffff) > 0x7f800000)
		return { (uint16_t)(u >> 16 | 0x40) };
	return { (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16) };
}

template <>
__device__ __forceinline__ f16
narrow<f16>(float x)
{
	f16 h;

#ifndef CUDA_EMULATED
	h.bits = __half_as_ushort(__float2half_rn(x));
#else
	kv_from_f32(&h, &x, KV_F16, 1);
#endif
	return h;
}

/* Two elements in a register, the first in the lower half; rounded as by narrow() */
template <class T> DEVICE uint32_t pair(float first, float second);

template <>
__device__ __forceinline__ uint32_t
pair<bf16>(float first, float second)
{
#ifndef CUDA_EMULATED
	uint32_t both;

	asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(second), "f"(first));
	return both;
#else
	return narrow<bf16>(first).bits | (uint32_t)narrow<bf16>(second).bits << 16;
#endif
}

template <>
__device__ __forceinline__ uint32_t
pair<f16>(float first, float second)
{
#ifndef CUDA_EMULATED
	uint32_t both;

	asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(second), "f"(first));
	return both;
#else
	return narrow<f16>(first).bits | (uint32_t)narrow<f16>(second).bits << 16;
#endif
}

/* Element e of 16 bytes, widened; e is known when the kernel is compiled */
template <class T>
DEVICE float
element(const uint4 &v, unsigned e)
{
	const uint32_t words[4] = { v.x, v.y, v.z, v.w };

	return widen(T{ (uint16_t)(words[e / 2] >> 16 * (e % 2)) });
}

template <>
__device__ __forceinline__ float
element<bf16>(const uint4 &v, unsigned e)
{
	const uint32_t words[4] = { v.x, v.y, v.z, v.w };

	return __uint_as_float(e % 2 == 0 ? words[e / 2] << 16 : words[e / 2] & 0xffff0000u);
}

template <>
__device__ __forceinline__ float
element<float>(const uint4 &v, unsigned e)
{
	const uint32_t words[4] = { v.x, v.y, v.z, v.w };

	return __uint_as_float(words[e]);
}

/* N elements side by side, moved as one where they are 4, 8 or 16 bytes and aligned to that */
template <class T, int N>
struct alignas(sizeof(T) * N) pack {
	T at[N];
};

/* ---- arithmetic ---- */

#define LN2 0.693147181f

/* 2^x, 2 ulp; 0 for -inf */
DEVICE float
exp2_fast(float x)
{
#ifndef CUDA_EMULATED
	float y;

	asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
	return y;
#else
	return exp2f(x);
#endif
}

/* Two f16 at a time, those below 2^-14 too */
DEVICE uint32_t
multiply_halves(uint32_t x, uint32_t y)
{
#ifndef CUDA_EMULATED
	uint32_t z;

	asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(z) : "r"(x), "r"(y));
	return z;
#else
	return pair<f16>(widen(f16{ (uint16_t)x }) * widen(f16{ (uint16_t)y }),
	    widen(f16{ (uint16_t)(x >> 16) }) * widen(f16{ (uint16_t)(y >> 16) }));
#endif
}

/* The greater ones; what is not NaN */
DEVICE uint32_t
greater_halves(uint32_t x, uint32_t y)
{
#ifndef CUDA_EMULATED
	uint32_t z;

	asm("max.f16x2 %0, %1, %2;" : "=r"(z) : "r"(x), "r"(y));
	return z;
#else
	return pair<f16>(fmaxf(widen(f16{ (uint16_t)x }), widen(f16{ (uint16_t)y })),
	    fmaxf(widen(f16{ (uint16_t)(x >> 16) }), widen(f16{ (uint16_t)(y >> 16) })));
#endif
}

/* 16 bytes that are read once: not kept in the first-level cache. They must not change as long as the
 * kernel is there, from before earlier_done() on, and the compiler may ask for them earlier than it
 * says here: in a kernel that starts early only what load_settled() may read, as weights are. */
DEVICE uint4
load_once(const void *p)
{
#ifndef CUDA_EMULATED
	uint4 v;

	asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
		     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
	return v;
#else
	return *(const uint4 *)p;
#endif
}

/* The line that p is in comes to the second-level cache; nobody waits for it. */
DEVICE void
load_ahead(const void *p)
{
#ifndef CUDA_EMULATED
	asm volatile("prefetch.global.L2 [%0];" :: "l"(p));
#else
	emulator::load_ahead(p);
#endif
}

/* ---- tensor cores ---- */

/* d[16][8] += a[16][16] . b[16][8] by a warp (PTX mma.m16n8k16, row.col). With g = lane / 4 and
 * c = lane % 4: d[0], d[1] are row g, columns 2c, 2c+1, and d[2], d[3] the same of row g + 8.
 * a[0]: row g, columns 2c, 2c+1; a[1]: row g + 8; a[2], a[3]: the same, columns 8 further.
 * b[0]: rows 2c, 2c+1 of column g; b[1]: rows 8 further. */
#ifdef CUDA_EMULATED
template <class T>
DEVICE void
mma_model(float d[4], const uint32_t a[4], const uint32_t b[2])
{
	const uint32_t mine[6] = { a[0], a[1], a[2], a[3], b[0], b[1] };
	const uint32_t (*all)[8] = emulator::exchange(mine, 6, ALL_LANES);
	const unsigned g = emulator::lane / 4, c = emulator::lane % 4;

	for (unsigned e = 0; e < 4; e++) {
		const unsigned column = 2 * c + e % 2;
		double sum = 0;

		for (unsigned k = 0; k < 16; k++) {
			const unsigned from = k % 8 / 2, half = 16 * (k % 2);
			const uint32_t x = all[g * 4 + from][e / 2 + 2 * (k / 8)];
			const uint32_t y = all[column * 4 + from][4 + k / 8];

			sum += (double)widen(T{ (uint16_t)(x >> half) }) *
			    widen(T{ (uint16_t)(y >> half) });
		}
		d[e] = (float)(d[e] + sum);
	}
}
#endif

DEVICE void
mma(bf16, float d[4], const uint32_t a[4], const uint32_t b[2])
{
#ifndef CUDA_EMULATED
	asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
		     "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
		     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
		     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
	mma_model<bf16>(d, a, b);
#endif
}

DEVICE void
mma(f16, float d[4], const uint32_t a[4], const uint32_t b[2])
{
#ifndef CUDA_EMULATED
	asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
		     "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
		     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
		     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
	mma_model<f16>(d, a, b);
#endif
}

/* Four 8 x 8 matrices of 16-bit elements from shared memory (PTX ldmatrix.x4). Lane 8m + r gives
 * the address of row r, 16 bytes, of matrix m; r[m] of lane 4i + j is its elements [i][2j] and
 * [i][2j + 1], or of the transposed matrix. */
template <bool TRANSPOSED>
DEVICE void
load_matrices(uint32_t r[4], const void *row)
{
#ifndef CUDA_EMULATED
	const uint32_t at = (uint32_t)__cvta_generic_to_shared(row);

	if (TRANSPOSED)
		asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
			     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at));
	else
		asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
			     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at));
#else
	const uint32_t (*all)[8] = emulator::exchange(&row, 2, ALL_LANES);
	const unsigned i = emulator::lane / 4, j = emulator::lane % 4;

	if ((uintptr_t)row % 16 != 0)
		emulator::die("load_matrices: a row at %p", row);
	for (unsigned m = 0; m < 4; m++) {
		uint16_t h[2];

		for (unsigned e = 0; e < 2; e++) {
			const uint16_t *p;

			memcpy(&p, all[8 * m + (TRANSPOSED ? 2 * j + e : i)], sizeof p);
			h[e] = p[TRANSPOSED ? i : 2 * j + e];
		}
		r[m] = h[0] | (uint32_t)h[1] << 16;
	}
#endif
}

/* ---- copies to shared memory that go on while the thread does (PTX cp.async) ---- */

/* 16 bytes; zeros instead where !there, and `from` is then not read. In a group with the other
 * copies since the last copies_group(). */
DEVICE void
copy_ahead(void *to, const void *from, bool there)
{
#ifndef CUDA_EMULATED
	asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::
	    "r"((uint32_t)__cvta_generic_to_shared(to)), "l"(from), "r"(there ? 16 : 0) : "memory");
#else
	emulator::copy_ahead(to, from, there);
#endif
}

DEVICE void
copies_group(void)
{
#ifndef CUDA_EMULATED
	asm volatile("cp.async.commit_group;" ::: "memory");
#else
	emulator::copies_group();
#endif
}

/* Waits until all but the last N groups of this thread have arrived. Other threads see them after
 * a barrier. */
template <int N>
DEVICE void
copies_wait(void)
{
#ifndef CUDA_EMULATED
	asm volatile("cp.async.wait_group %0;" :: "n"(N) : "memory");
#else
	emulator::copies_wait(N);
#endif
}

/* ---- whole numbers of a warp's lanes ---- */

/* The sum over all lanes, in all of them */
DEVICE uint32_t
warp_count(uint32_t x)
{
	return __reduce_add_sync(ALL_LANES, x);
}

/* The sum over the lanes up to and with this one */
DEVICE uint32_t
warp_scan(uint32_t x)
{
	const uint32_t lane = threadIdx.x % 32;

	for (uint32_t by = 1; by < 32; by *= 2) {
		const uint32_t before = __shfl_up_sync(ALL_LANES, x, by);

		x += lane >= by ? before : 0;
	}
	return x;
}

/* ---- sums and maxima over a warp, in all lanes; in an order that is always the same ---- */

DEVICE float
warp_sum(float x)
{
	for (int bit = 16; bit > 0; bit /= 2)
		x += __shfl_xor_sync(ALL_LANES, x, bit);
	return x;
}

DEVICE float
warp_max(float x)
{
	for (int bit = 16; bit > 0; bit /= 2)
		x = fmaxf(x, __shfl_xor_sync(ALL_LANES, x, bit));
	return x;
}

#endif
