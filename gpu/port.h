/* port.h - everything that differs between a GPU and the emulator
 *
 * Every kernel is compiled twice: by nvcc for GPUs, and by the C++ compiler against the
 * emulator in tests/cuda, which defines CUDA_EMULATED. What differs is in this file, for codes of
 * quantised rows in port_codes.h, and nowhere else: launches, shared memory, 16-bit types, and PTX
 * instructions that CUDA C has no function for. Such an instruction has a function here, named
 * after it, with its PTX and with a model for the emulator that moves the same elements between
 * the same lanes. */
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

/* UNROLL: before a loop whose array indices must be constants, so that the arrays are in
 * registers. ROLLED: before a short loop that must not be unrolled. */
#ifndef CUDA_EMULATED
#define UNROLL _Pragma("unroll")
#define UNROLL_BY(n) UNROLL_PRAGMA(unroll n)
#define UNROLL_PRAGMA(x) _Pragma(#x)
#else
#define UNROLL
#define UNROLL_BY(n)
#endif
#define ROLLED UNROLL_BY(1)

/* LAUNCH(d, kernel, grid, block, shared, arguments ...): launches on the stream of d, with
 * `shared` bytes of dynamic shared memory. An error is remembered under the kernel's name. Write
 * a kernel with commas in its template arguments in parentheses. LAUNCH_ON(d, stream, the other
 * arguments): on another stream of d.
 *
 * LAUNCH_PDL(the same arguments): programmatic dependent launch (sm_90): the kernel may start
 * while the one before it on the stream still runs, if that is ours. It must call pdl_wait(),
 * see below.
 *
 * DYN_SHARED(T, name): declares T *name, the dynamic shared memory, aligned to 1024 bytes.
 * SHARED(T, name): declares a variable in shared memory; T may be an array: SHARED(float[32],
 * sum). */
#define LAUNCH(d, ...) LAUNCH_ON(d, (d)->stream, __VA_ARGS__)
#ifndef CUDA_EMULATED
#define LAUNCH_ON(d, on, kernel, grid, block, shared, ...) do { \
	if (gpu_may_launch(d, (const void *)(kernel), (shared))) { \
		(kernel)<<<(grid), (block), (shared), (on)>>>(__VA_ARGS__); \
		gpu_launched(d, #kernel); \
	} } while (0)
#define LAUNCH_PDL(d, kernel, grid, block, shared, ...) do { \
	if (gpu_may_launch(d, (const void *)(kernel), (shared))) { \
		launch_pdl((d)->stream, gpu_starts_early(d), (kernel), (grid), (block), (shared), \
		    __VA_ARGS__); \
		gpu_launched(d, #kernel); \
	} } while (0)
#define DYN_SHARED(T, name) \
	extern __shared__ __align__(1024) unsigned char dynamic_shared_memory[]; \
	T *const name = reinterpret_cast<T *>(dynamic_shared_memory)
template <class T> struct same { typedef T type; };
#define SHARED(T, name) __shared__ typename same<T>::type name
#else
#define LAUNCH_ON(d, on, kernel, grid, block, shared, ...) do { \
	if (gpu_may_launch(d, (const void *)(kernel), (shared))) { \
		emulator::launch((on), (on) != (d)->stream, #kernel, (grid), (block), (shared), \
		    (kernel), __VA_ARGS__); \
		gpu_launched(d, #kernel); \
	} } while (0)
#define LAUNCH_PDL(d, kernel, ...) do { \
	if (gpu_ok(d) && gpu_starts_early(d)) \
		emulator::starts_early((d)->stream, #kernel); \
	LAUNCH(d, (emulator::pdl_kernel<(kernel)>::run), __VA_ARGS__); \
	} while (0)
#define DYN_SHARED(T, name) T *const name = reinterpret_cast<T *>(emulator::dynamic_shared)
#define SHARED(T, name) auto &name = *static_cast<std::add_pointer_t<T>>(emulator::shared( \
	[] { static const char place = 0; return &place; }(), sizeof(T), alignof(T)))
#endif

/* ---- programmatic dependent launch (PDL) ----
 *
 * Contract: all threads of a kernel launched by LAUNCH_PDL call pdl_wait() before they read or
 * write device memory. Before that call a kernel may compute, prefetch_l2() and load_l2(), and
 * nothing else.
 *
 * Correctness: pdl_wait() returns when the previous kernel has ended and its writes are visible.
 * If the previous kernel was launched by LAUNCH_PDL, too, it cannot have ended before its own
 * pdl_wait() returned; so the kernel before that has ended as well, and so on, back to a kernel
 * that was launched by LAUNCH. A plain launch, a copy or an event starts when everything before
 * it on the stream has ended. So every kernel sees memory as if the kernels had run one after
 * another. A kernel of cuBLAS may be launched in any way and may trigger at any time: behind
 * one, LAUNCH_PDL launches like LAUNCH (gpu_starts_early()). So it does behind a copy, a memset, a
 * wait for another stream and a graph, and at the beginning of a capture: CUDA lets a kernel
 * overlap with "the previous kernel in the stream", allows such an edge of a graph between kernels
 * only, and does not say what a capture makes of one behind another node. Nothing is lost, since
 * only a kernel can let the next one start.
 *
 * Gain: memory is not idle between two kernels. When the last block of the previous kernel ends,
 * the blocks of this one are resident and their first weights are in L2.
 *
 * A layer of Llama-3.1-8B takes 3 % less time by it (H200). The driver divides an SM's memory into
 * L1 and shared memory for each kernel: asking for the same division for all took 3 % more. */

#ifndef CUDA_EMULATED
template <class... P>
static inline void
launch_pdl(cudaStream_t stream, bool early, void (*kernel)(P...), dim3 grid, dim3 block,
    size_t shared, typename same<P>::type... args)
{
	cudaLaunchAttribute how = {};
	cudaLaunchConfig_t config = {};

	how.id = cudaLaunchAttributeProgrammaticStreamSerialization;
	how.val.programmaticStreamSerializationAllowed = 1;
	config.gridDim = grid;
	config.blockDim = block;
	config.dynamicSmemBytes = shared;
	config.stream = stream;
	config.attrs = &how;
	config.numAttrs = early;
	cudaLaunchKernelEx(&config, kernel, args...);
}
#endif

/* Waits until the kernels before this one have ended and their writes are visible
 * (griddepcontrol.wait). */
DEVICE void
pdl_wait(void)
{
#ifdef CUDA_EMULATED
	emulator::pdl_wait();
#elif __CUDA_ARCH__ >= 900
	asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* Lets the next kernel start, if LAUNCH_PDL launches it, as soon as all blocks of this one
 * have called this or ended (griddepcontrol.launch_dependents). Matters for speed only: the
 * next kernel waits for its inputs itself. */
DEVICE void
pdl_trigger(void)
{
#if !defined CUDA_EMULATED && __CUDA_ARCH__ >= 900
	asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/* *p, read from L2, also before pdl_wait(). Condition: *p was written before an earlier
 * kernel of LAUNCH, or before the graph launch that this kernel belongs to, and not since.
 * From L2, because a line in L1 may be older than this kernel. */
DEVICE uint32_t
load_l2(const uint32_t *p)
{
#ifndef CUDA_EMULATED
	return __ldcg(p);
#else
	return emulator::load_l2(p);
#endif
}

/* *p in the host's memory, which must be pinned: it comes over the bus. */
template <class T>
DEVICE T
load_pinned(const T *p)
{
#ifdef CUDA_EMULATED
	emulator::load_pinned(p, sizeof *p);
#endif
	return *p;
}

/* *p <- x in the host's memory, which must be pinned; the host sees it when it has waited for the
 * kernel. */
DEVICE void
store_pinned(uint32_t *p, uint32_t x)
{
#ifdef CUDA_EMULATED
	emulator::store_pinned(p, sizeof *p);
#endif
	*(volatile uint32_t *)p = x;
}

/* ---- 16-bit element types: bits, converted by widen() and narrow() ---- */

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

/* Element e of 16 bytes, widened; e is a compile-time constant */
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

/* N neighbouring elements; of 4, 8 or 16 bytes and aligned to that, they move in one
 * instruction */
template <class T, int N>
struct alignas(sizeof(T) * N) pack {
	T at[N];
};

/* ---- arithmetic ---- */

#define LN2 0.693147181f

/* 2^x to 2 ulp (ex2.approx.ftz); 0 for -inf */
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

/* Products of two pairs of f16, subnormals included */
DEVICE uint32_t
mul_f16x2(uint32_t x, uint32_t y)
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

/* Maxima of two pairs of f16; of a NaN and a number, the number */
DEVICE uint32_t
max_f16x2(uint32_t x, uint32_t y)
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

/* 16 bytes that are read once: not kept in L1, and through the non-coherent path
 * (ld.global.nc), so they must not change while the kernel runs. The compiler may move the
 * load up, even above pdl_wait(): in a kernel of LAUNCH_PDL use it only for what load_l2()
 * may read, such as weights. */
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

/* to[4] <- x, in one instruction, where the compiler would share the stores of another branch. */
DEVICE void
store_four(float *to, const float x[4])
{
#ifndef CUDA_EMULATED
	asm volatile("st.global.v4.f32 [%0], {%1,%2,%3,%4};" ::
	    "l"(to), "f"(x[0]), "f"(x[1]), "f"(x[2]), "f"(x[3]) : "memory");
#else
	*(float4 *)to = make_float4(x[0], x[1], x[2], x[3]);
#endif
}

/* Fetches the cache line of p into L2, without waiting. */
DEVICE void
prefetch_l2(const void *p)
{
#ifndef CUDA_EMULATED
	asm volatile("prefetch.global.L2 [%0];" :: "l"(p));
#else
	emulator::prefetch_l2(p);
#endif
}

/* x, which the compiler keeps in a register: it would rather compute some things again wherever
 * they are used. */
DEVICE uint32_t
kept(uint32_t x)
{
#ifndef CUDA_EMULATED
	asm volatile("" : "+r"(x));
#endif
	return x;
}

/* ---- tensor cores ---- */

/* d[16][8] += a[16][16] . b[16][8] by a warp (PTX mma.m16n8k16, row.col). With g = lane / 4
 * and c = lane % 4: d[0], d[1] are row g, columns 2c, 2c+1; d[2], d[3] are row g + 8, the
 * same columns. a[0]: row g, columns 2c, 2c+1; a[1]: row g + 8; a[2], a[3]: the same rows,
 * columns + 8. b[0]: rows 2c, 2c+1 of column g; b[1]: rows + 8. */
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

/* Loads four 8 x 8 matrices of 16-bit elements from shared memory (PTX ldmatrix.x4). Lane 8m
 * + r passes the address of row r, 16 bytes, of matrix m. Lane 4i + j gets, in r[m], elements
 * [i][2j] and [i][2j + 1] of matrix m, or of its transpose. */
template <bool TRANSPOSED>
DEVICE void
ldmatrix_x4(uint32_t r[4], const void *row)
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
		emulator::die("ldmatrix_x4: a row at %p", row);
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

/* ---- asynchronous copies to shared memory (PTX cp.async) ---- */

/* Copies 16 bytes; where !valid, it writes zeros and does not read `from`. The copies since
 * the last cp_async_commit() are a group. */
DEVICE void
cp_async16(void *to, const void *from, bool valid)
{
#ifndef CUDA_EMULATED
	asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::
	    "r"((uint32_t)__cvta_generic_to_shared(to)), "l"(from), "r"(valid ? 16 : 0) : "memory");
#else
	emulator::cp_async16(to, from, valid);
#endif
}

DEVICE void
cp_async_commit(void)
{
#ifndef CUDA_EMULATED
	asm volatile("cp.async.commit_group;" ::: "memory");
#else
	emulator::cp_async_commit();
#endif
}

/* Waits until all but the last N groups of this thread have arrived. Other threads see the
 * data after a barrier. */
template <int N>
DEVICE void
cp_async_wait(void)
{
#ifndef CUDA_EMULATED
	asm volatile("cp.async.wait_group %0;" :: "n"(N) : "memory");
#else
	emulator::cp_async_wait(N);
#endif
}

/* ---- integer reductions over a warp ---- */

/* The sum over all lanes, in all of them */
DEVICE uint32_t
warp_sum_u32(uint32_t x)
{
	return __reduce_add_sync(ALL_LANES, x);
}

/* Inclusive prefix sum: over the lanes up to this one */
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

/* ---- f32 reductions over a warp: the result is in all lanes, the order is fixed ---- */

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
