/* cuda_runtime.h - replaces CUDA's header: kernels compiled for the CPU
 *
 * Sources of gpu/ compiled with -Itests/cuda include this file instead of the toolkit's and run
 * without a GPU. The emulator runs a grid one block after another, a block as one fiber for each
 * thread. README.md says what that shows and what it cannot show.
 *
 * Only what gpu/ uses is here. Device 0 resumes threads and blocks in order, 1 in reverse
 * order, 2 in random order: results must not depend on it. */
#ifndef CUDA_RUNTIME_H
#define CUDA_RUNTIME_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <functional>
#include <type_traits>

#define CUDA_EMULATED 1

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __restrict__
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(n) __attribute__((aligned(n)))
/* One block runs at a time. Shared memory that is declared by DYN_SHARED or SHARED of
 * gpu/port.h is poisoned before each block. */

/* ---- vector types ---- */

struct uint3 { unsigned x, y, z; };
struct dim3 {
	unsigned x, y, z;
	constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
struct __align__(8) float2 { float x, y; };
struct __align__(16) float4 { float x, y, z, w; };
struct __align__(8) uint2 { unsigned x, y; };
struct __align__(16) uint4 { unsigned x, y, z, w; };

static inline float2 make_float2(float x, float y) { return { x, y }; }
static inline float4 make_float4(float x, float y, float z, float w) { return { x, y, z, w }; }
static inline uint2 make_uint2(unsigned x, unsigned y) { return { x, y }; }
static inline uint4
make_uint4(unsigned x, unsigned y, unsigned z, unsigned w)
{
	return { x, y, z, w };
}

/* ---- a thread, its warp, its block ---- */

struct emulated_stream;
struct emulated_event;

namespace emulator {

/* Of the current thread */
extern uint3 thread, block;
extern dim3 block_dim, grid_dim;
extern unsigned lane;
extern unsigned char *dynamic_shared;

[[noreturn]] void die(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Barriers for the threads of the block, or of the warp's mask */
void sync_block(void);
int sync_block_or(int mine, int all);
void sync_warp(unsigned mask);
/* Publishes n words of this lane, waits for the lanes of mask, and returns what each lane
 * published. Valid until the lane's next but one exchange. */
const uint32_t (*exchange(const void *mine, int n, unsigned mask))[8];
/* size bytes of shared memory for the variable declared at this place in the source, the same
 * for all threads of a block, poisoned at the start of each block */
void *shared(const void *place, size_t size, size_t align);
/* cp.async, of n bytes and zeros behind them: data arrives in cp_async_wait() only. */
void cp_async16(void *to, const void *from, bool valid);
void cp_async16_part(void *to, const void *from, unsigned n);
void cp_async_commit(void);
void cp_async_wait(int all_but);
/* Hopper (gpu/port_hopper.h). p must be in dynamic shared memory. bar: of so many threads; wgmma:
 * d[64][n], the a operand in registers or (NULL) in a matrix */
uint32_t shared_address(const void *p);
void mbarrier_init(uint64_t *, uint32_t count);
void mbarrier_arrive(uint64_t *);
void mbarrier_wait(uint64_t *, uint32_t parity);
void bar(unsigned number, unsigned threads, bool waits);
void wgmma(float *d, unsigned n, const uint32_t *a, uint64_t a_matrix, uint64_t b_matrix,
    bool transposed, bool adds, float (*widen)(uint16_t));
void wgmma_commit(void);
void wgmma_wait(unsigned all_but);
/* Programmatic dependent launch (gpu/port.h, LAUNCH_PDL): device memory is inaccessible until
 * all threads of a block have called pdl_wait(). */
void pdl_begin(void);
void pdl_wait(void);
void pdl_end(void);
/* The kernel of that name is launched next, with the attribute that lets it start early. */
void starts_early(struct emulated_stream *, const char *name);
/* A kernel that tests/ptx has translated from nvcc's PTX: it gets its n parameters packed, each at
 * its offset; offset[n] is their size. */
struct translated {
	void (*run)(const unsigned char *param);
	unsigned n;
	const unsigned *offset;
};
/* Only programs that are linked with such kernels have it. NULL: the C++ kernel runs. */
const struct translated *find_translated(const void *kernel) __attribute__((weak));

inline const struct translated *
translation(const void *kernel)
{
	return find_translated == NULL ? NULL : find_translated(kernel);
}

template <class... P>
inline void
call(const struct translated *t, void (*kernel)(P...), const P &...args)
{
	if (t == NULL) {
		kernel(args...);
		return;
	}
	alignas(16) unsigned char packed[(16 + ... + (sizeof(P) + 16))];
	unsigned i = 0;

	if (t->n != sizeof...(P) || t->offset[t->n] > sizeof packed)
		die("%u parameters in PTX, %zu arguments", t->n, sizeof...(P));
	(memcpy(packed + t->offset[i++], &args, sizeof args), ...);
	t->run(packed);
}

template <auto KERNEL> struct pdl_kernel;
template <class... P, void (*KERNEL)(P...)>
struct pdl_kernel<KERNEL> {
	static void
	run(P... args)
	{
		static const struct translated *const t = translation((const void *)KERNEL);

		pdl_begin();
		call<P...>(t, KERNEL, args...);
		pdl_end();
	}
};
/* p must be pinned memory of the host. */
void load_pinned(const void *p, size_t bytes);
void store_pinned(void *p, size_t bytes);
/* p must be on the device. */
void prefetch_l2(const void *p);
uint32_t load_l2(const uint32_t *p);
/* Executes the pending work of a stream. */
void finish_stream(struct emulated_stream *);
/* Runs a kernel now, or (late) when something waits for it, or, while the stream is captured, in
 * each launch of the graph. */
void launch(struct emulated_stream *, bool late, const char *name, const void *kernel, dim3 grid,
    dim3 block, size_t dynamic, std::function<void(void)> &&body);

/* Arguments are copied, as they are for a GPU. */
template <class... P>
void
launch(struct emulated_stream *s, bool late, const char *name, dim3 grid, dim3 block,
    size_t dynamic, void (*kernel)(P...), std::type_identity_t<P>... args)
{
	const struct translated *const t = translation((const void *)kernel);

	launch(s, late, name, (const void *)kernel, grid, block, dynamic,
	    std::function<void(void)>([t, kernel, args...] { call<P...>(t, kernel, args...); }));
}

/* Inlined: a return behind a switch to other threads is mispredicted. */
#define INLINED [[gnu::always_inline]] inline

template <class T>
INLINED T
shuffle(unsigned mask, T v, unsigned from)
{
	static_assert(sizeof(T) == 4 || sizeof(T) == 8);
	const uint32_t (*all)[8] = exchange(&v, sizeof(T) / 4, mask);
	T got;

	if (!(mask >> (from & 31) & 1))
		die("a shuffle reads lane %u, which is not in its mask", from & 31);
	memcpy(&got, all[from & 31], sizeof got);
	return got;
}

} // namespace emulator

#define threadIdx (emulator::thread)
#define blockIdx (emulator::block)
#define blockDim (emulator::block_dim)
#define gridDim (emulator::grid_dim)
#define warpSize 32

static inline void __syncthreads(void) { emulator::sync_block(); }
static inline int __syncthreads_or(int p) { return emulator::sync_block_or(p != 0, 0); }
static inline int __syncthreads_and(int p) { return emulator::sync_block_or(p != 0, 1); }
static inline void __syncwarp(unsigned mask = ~0u) { emulator::sync_warp(mask); }

template <class T>
INLINED T
__shfl_sync(unsigned mask, T v, unsigned from, unsigned width = 32)
{
	return emulator::shuffle(mask, v, (emulator::lane & ~(width - 1)) | (from & (width - 1)));
}

template <class T>
INLINED T
__shfl_xor_sync(unsigned mask, T v, unsigned bits)
{
	return emulator::shuffle(mask, v, emulator::lane ^ bits);
}

template <class T>
INLINED T
__shfl_down_sync(unsigned mask, T v, unsigned by)
{
	return emulator::shuffle(mask, v, emulator::lane + by < 32 ? emulator::lane + by :
	    emulator::lane);
}

template <class T>
INLINED T
__shfl_up_sync(unsigned mask, T v, unsigned by)
{
	return emulator::shuffle(mask, v, emulator::lane >= by ? emulator::lane - by :
	    emulator::lane);
}

INLINED unsigned
__ballot_sync(unsigned mask, int p)
{
	uint32_t mine = p != 0, got = 0;
	const uint32_t (*all)[8] = emulator::exchange(&mine, 1, mask);

	for (int i = 0; i < 32; i++)
		if (mask >> i & 1)
			got |= all[i][0] << i;
	return got;
}

INLINED unsigned
__reduce_add_sync(unsigned mask, unsigned mine)
{
	const uint32_t (*all)[8] = emulator::exchange(&mine, 1, mask);
	unsigned sum = 0;

	for (int i = 0; i < 32; i++)
		if (mask >> i & 1)
			sum += all[i][0];
	return sum;
}

static inline int __any_sync(unsigned mask, int p) { return __ballot_sync(mask, p) != 0; }
static inline int __all_sync(unsigned mask, int p) { return __ballot_sync(mask, p) == mask; }

/* Threads switch only where they wait for each other, so everything is atomic. */
template <class T> T atomicAdd(T *p, T v) { T old = *p; *p = old + v; return old; }
template <class T> T atomicMax(T *p, T v) { T old = *p; *p = old < v ? v : old; return old; }
template <class T> T atomicMin(T *p, T v) { T old = *p; *p = v < old ? v : old; return old; }
template <class T> T atomicOr(T *p, T v) { T old = *p; *p = old | v; return old; }
template <class T> T atomicExch(T *p, T v) { T old = *p; *p = v; return old; }
static inline void __threadfence(void) {}
static inline void __threadfence_block(void) {}

static inline unsigned
__umulhi(unsigned x, unsigned y)
{
	return (unsigned)((uint64_t)x * y >> 32);
}

static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __clz(unsigned x) { return x == 0 ? 32 : __builtin_clz(x); }
static inline int __ffs(unsigned x) { return __builtin_ffs((int)x); }
static inline unsigned
__byte_perm(unsigned a, unsigned b, unsigned s)
{
	uint64_t both = (uint64_t)b << 32 | a;
	unsigned r = 0;

	for (int i = 0; i < 4; i++)
		r |= (unsigned)(both >> 8 * (s >> 4 * i & 7) & 255) << 8 * i;
	return r;
}

static inline float __int_as_float(int i) { float f; memcpy(&f, &i, 4); return f; }
static inline int __float_as_int(float f) { int i; memcpy(&i, &f, 4); return i; }
static inline float __uint_as_float(unsigned i) { float f; memcpy(&f, &i, 4); return f; }
static inline unsigned __float_as_uint(float f) { unsigned i; memcpy(&i, &f, 4); return i; }
static inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fsub_rn(float a, float b) { return a - b; }
static inline float __fdiv_rn(float a, float b) { return a / b; }
static inline void
sincospif(float x, float *s, float *c)
{
	*s = (float)sin(M_PI * x);
	*c = (float)cos(M_PI * x);
}
static inline float rsqrtf(float x) { return 1 / sqrtf(x); }
template <class T> T __ldg(const T *p) { return *p; }
template <class T> T min(T a, T b) { return b < a ? b : a; }
template <class T> T max(T a, T b) { return a < b ? b : a; }

/* ---- the runtime ---- */

enum cudaError_t {
	cudaSuccess = 0, cudaErrorInvalidValue = 1, cudaErrorMemoryAllocation = 2,
	cudaErrorInsufficientDriver = 35, cudaErrorNoDevice = 100, cudaErrorInvalidDevice = 101,
	cudaErrorIllegalAddress = 700, cudaErrorNotSupported = 801,
	cudaErrorStreamCaptureUnsupported = 900, cudaErrorStreamCaptureInvalidated = 901,
	cudaErrorStreamCaptureIsolation = 905, cudaErrorCapturedEvent = 907,
	cudaErrorUnknown = 999,
};
enum cudaMemcpyKind {
	cudaMemcpyHostToHost, cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost,
	cudaMemcpyDeviceToDevice, cudaMemcpyDefault,
};
enum cudaDeviceAttr { cudaDevAttrMemoryPoolsSupported = 115 };
enum cudaMemPoolAttr {
	cudaMemPoolAttrReleaseThreshold = 4, cudaMemPoolAttrReservedMemCurrent = 5,
	cudaMemPoolAttrUsedMemCurrent = 7,
};
enum cudaMemAllocationType { cudaMemAllocationTypePinned = 1 };
enum cudaMemLocationType { cudaMemLocationTypeDevice = 1 };
struct cudaMemPoolProps {
	cudaMemAllocationType allocType;
	struct { cudaMemLocationType type; int id; } location;
};
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
enum cudaStreamCaptureMode { cudaStreamCaptureModeThreadLocal = 1 };
enum { cudaStreamNonBlocking = 1, cudaEventDisableTiming = 2, cudaHostRegisterDefault = 0 };

typedef struct emulated_stream *cudaStream_t;
typedef struct emulated_event *cudaEvent_t;
typedef struct emulated_pool *cudaMemPool_t;
typedef struct emulated_graph *cudaGraph_t;
typedef struct emulated_graph_exec *cudaGraphExec_t;

struct cudaDeviceProp {
	char name[256];
	struct { char bytes[16]; } uuid;
	size_t totalGlobalMem, sharedMemPerBlockOptin;
	int major, minor, multiProcessorCount, l2CacheSize;
};

const char *cudaGetErrorString(cudaError_t);
const char *cudaGetErrorName(cudaError_t);
cudaError_t cudaGetLastError(void);
cudaError_t cudaDriverGetVersion(int *);
cudaError_t cudaRuntimeGetVersion(int *);
cudaError_t cudaGetDeviceCount(int *);
cudaError_t cudaSetDevice(int);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *, int);
cudaError_t cudaMemGetInfo(size_t *free, size_t *total);
cudaError_t cudaMalloc(void **, size_t);
cudaError_t cudaFree(void *);
cudaError_t cudaDeviceGetAttribute(int *, cudaDeviceAttr, int);
cudaError_t cudaMemPoolCreate(cudaMemPool_t *, const cudaMemPoolProps *);
cudaError_t cudaMemPoolDestroy(cudaMemPool_t);
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void *);
cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t, cudaMemPoolAttr, void *);
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, size_t);
cudaError_t cudaMallocFromPoolAsync(void **, size_t, cudaMemPool_t, cudaStream_t);
cudaError_t cudaFreeAsync(void *, cudaStream_t);
cudaError_t cudaMallocHost(void **, size_t);
cudaError_t cudaFreeHost(void *);
cudaError_t cudaDeviceSynchronize(void);
cudaError_t cudaHostRegister(void *, size_t, unsigned);
cudaError_t cudaHostUnregister(void *);
cudaError_t cudaMemcpyAsync(void *, const void *, size_t, cudaMemcpyKind, cudaStream_t);
cudaError_t cudaMemsetAsync(void *, int, size_t, cudaStream_t);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *, unsigned);
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *, unsigned, int);
cudaError_t cudaDeviceGetStreamPriorityRange(int *, int *);
cudaError_t cudaStreamDestroy(cudaStream_t);
cudaError_t cudaStreamSynchronize(cudaStream_t);
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *, unsigned);
cudaError_t cudaEventDestroy(cudaEvent_t);
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t);
cudaError_t cudaEventSynchronize(cudaEvent_t);
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to);
cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode);
cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t *);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *, cudaGraph_t, unsigned long long = 0);
cudaError_t cudaGraphLaunch(cudaGraphExec_t, cudaStream_t);
cudaError_t cudaGraphDestroy(cudaGraph_t);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t);
cudaError_t cudaFuncSetAttribute(const void *kernel, cudaFuncAttribute, int value);

#endif
