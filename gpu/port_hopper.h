/* port_hopper.h - instructions of Hopper (sm_90a) for the kernels of warpgroups (gpu_..._wgmma.cu),
 * as port.h has those of every GPU: each a function with its PTX and a model for the emulator
 *
 * Code for other targets that calls them is compiled, too, but never run: the functions do nothing
 * there. Sections are those of the PTX ISA, 8.5 and later. */
#ifndef GPU_PORT_HOPPER_H
#define GPU_PORT_HOPPER_H

#include <type_traits>

#include "gpu/port.h"

#if defined __CUDA_ARCH_FEAT_SM90_ALL && !defined CUDA_EMULATED
#define HOPPER 1
#endif

DEVICE uint32_t
shared_address(const void *p)
{
#ifndef CUDA_EMULATED
	return (uint32_t)__cvta_generic_to_shared(p);
#else
	return emulator::shared_address(p);
#endif
}

/* ---- barriers in shared memory (mbarrier) ----
 *
 * A phase of an mbarrier ends when `count` arrivals have come; then the next one begins. Phases
 * are told apart by the parity of their number: 0, 1, 0, ... */

DEVICE void
mbarrier_init(uint64_t *b, uint32_t count)
{
#ifdef HOPPER
	asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::
	    "r"(shared_address(b)), "r"(count) : "memory");
#elif defined CUDA_EMULATED
	emulator::mbarrier_init(b, count);
#endif
}

/* What this thread has written before is visible to who waits for the phase. */
DEVICE void
mbarrier_arrive(uint64_t *b)
{
#ifdef HOPPER
	asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::
	    "r"(shared_address(b)) : "memory");
#elif defined CUDA_EMULATED
	emulator::mbarrier_arrive(b);
#endif
}

/* Waits for the end of the phase of that parity: returns at once where the current phase has the
 * other one. So parity 1 of a new mbarrier has ended. */
DEVICE void
mbarrier_wait(uint64_t *b, uint32_t parity)
{
#ifdef HOPPER
	asm volatile("{\n"
		     ".reg .pred ended;\n"
		     "again:\n"
		     "mbarrier.try_wait.parity.shared::cta.b64 ended, [%0], %1;\n"
		     "@!ended bra again;\n"
		     "}" :: "r"(shared_address(b)), "r"(parity) : "memory");
#elif defined CUDA_EMULATED
	emulator::mbarrier_wait(b, parity);
#endif
}

/* ---- numbered barriers of so many threads, whole warps: bar.sync waits, bar.arrive does not.
 * __syncthreads() is number 0. ---- */

DEVICE void
bar_sync(unsigned number, unsigned threads)
{
#ifdef HOPPER
	asm volatile("bar.sync %0, %1;" :: "r"(number), "r"(threads) : "memory");
#elif defined CUDA_EMULATED
	emulator::bar(number, threads, true);
#endif
}

DEVICE void
bar_arrive(unsigned number, unsigned threads)
{
#ifdef HOPPER
	asm volatile("bar.arrive %0, %1;" :: "r"(number), "r"(threads) : "memory");
#elif defined CUDA_EMULATED
	emulator::bar(number, threads, false);
#endif
}

/* ---- registers, proxies ---- */

/* The warps of a warpgroup have N registers a thread from here on: more, once others have given
 * up as many, or fewer (setmaxnreg). */
template <int N>
DEVICE void
more_registers(void)
{
#ifdef HOPPER
	asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" :: "n"(N));
#endif
}

template <int N>
DEVICE void
fewer_registers(void)
{
#ifdef HOPPER
	asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" :: "n"(N));
#endif
}

/* Between this thread's writes to shared memory, those of its cp.async that have arrived included,
 * and a barrier behind which wgmma reads them */
DEVICE void
fence_proxy_async(void)
{
#ifdef HOPPER
	asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

/* ---- products of a warpgroup, asynchronous (wgmma) ---- */

/* Matrix descriptor (PTX ISA, "Matrix descriptor"): a matrix of 16-bit elements in shared memory,
 * in atoms of 8 lines of 128 bytes that are adjacent and aligned to 1024, in which the 16-byte
 * units of line i are swizzled by XOR with i (the mode of 128 bytes). `leading` and `stride` are in
 * bytes. Where lines run along k (K-major) an atom is 8 rows or columns x 64 k, and the next 8 are
 * `stride` away; `leading` is not used. Where they run along m or n an atom is 64 of these x 8 k:
 * the next 8 k are `stride` away, the next 64 of m or n `leading`. */
DEVICE uint64_t
matrix_descriptor(const void *p, uint32_t leading, uint32_t stride)
{
	return (shared_address(p) & 0x3ffff) >> 4 | (uint64_t)(leading >> 4) << 16 |
	    (uint64_t)(stride >> 4) << 32 | (uint64_t)1 << 62;
}

/* Before the first wgmma, and where registers that it reads or adds to have been written */
DEVICE void
wgmma_fence(void)
{
#ifdef HOPPER
	asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}

/* The products since the last commit are a group. */
DEVICE void
wgmma_commit(void)
{
#ifdef HOPPER
	asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#elif defined CUDA_EMULATED
	emulator::wgmma_commit();
#endif
}

/* Waits until all but the last N groups have ended. */
template <int N>
DEVICE void
wgmma_wait(void)
{
#ifdef HOPPER
	asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(N) : "memory");
#elif defined CUDA_EMULATED
	emulator::wgmma_wait(N);
#endif
}

/* The compiler knows of no product that is under way: behind a wait, and in front of a fence, these
 * registers may have changed, so that no access to them moves across. */
template <int N>
DEVICE void
settled(float (&d)[N])
{
#ifdef HOPPER
UNROLL	for (int i = 0; i < N; i++)
		asm volatile("" : "+f"(d[i]) :: "memory");
#endif
}

/* d[64][N] = (adds ? d : 0) + a[64][16] . b[16][N] by a warpgroup (PTX wgmma.mma_async, m64nNk16).
 * Warp w of it has rows 16w .. 16w + 15 of d and a, each lane the elements that mma() has: d[4j] ..
 * d[4j + 3] are those of columns 8j .. 8j + 7. b: descriptor, K-major, or TRANSPOSED: N-major. d
 * has the sum, and a and b have been read, when wgmma_wait() has returned.
 *
 * wgmma_ss: a is a descriptor, K-major; wgmma_rs: in registers. */
#ifdef HOPPER
#define D_8(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), \
	"+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define D_32(i) D_8(i), D_8(i + 8), D_8(i + 16), D_8(i + 24)
#define D_64 D_32(0), D_32(32)
#define NAMES_32 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21," \
	"%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define NAMES_64 NAMES_32 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48," \
	"%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
/* The operands behind d: a, b, adds, TRANSPOSED */
#define WGMMA(n, type, names, a, b, adds, transposed) \
	"{\n.reg .pred adds;\nsetp.ne.b32 adds, " adds ", 0;\n" \
	"wgmma.mma_async.sync.aligned.m64n" n "k16.f32." type "." type " {" names "}, " a ", " b \
	", adds, 1, 1, " transposed ";\n}"
#define WGMMA_SS(n, type, names, outputs, x, y, z, w) \
	asm volatile(WGMMA(n, type, names, x, y, z, "0, " w) : outputs : \
	    "l"(a), "l"(b), "r"((int)adds), "n"(TRANSPOSED))
#define WGMMA_RS(n, type, names, outputs, x, y, z, w) \
	asm volatile(WGMMA(n, type, names, "{" x "}", y, z, w) : outputs : \
	    "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"((int)adds), "n"(TRANSPOSED))
#elif defined CUDA_EMULATED
template <class T>
static float
wgmma_widen(uint16_t bits)
{
	return widen(T{ bits });
}
#endif

template <class T, int N, bool TRANSPOSED>
DEVICE void
wgmma_ss(float (&d)[N / 2], uint64_t a, uint64_t b, bool adds)
{
	static_assert(N == 64 || N == 128);
#ifdef HOPPER
	if constexpr (N == 64 && std::is_same_v<T, bf16>)
		WGMMA_SS("64", "bf16", NAMES_32, D_32(0), "%32", "%33", "%34", "%35");
	else if constexpr (N == 64)
		WGMMA_SS("64", "f16", NAMES_32, D_32(0), "%32", "%33", "%34", "%35");
	else if constexpr (std::is_same_v<T, bf16>)
		WGMMA_SS("128", "bf16", NAMES_64, D_64, "%64", "%65", "%66", "%67");
	else
		WGMMA_SS("128", "f16", NAMES_64, D_64, "%64", "%65", "%66", "%67");
#elif defined CUDA_EMULATED
	emulator::wgmma(d, N, NULL, a, b, TRANSPOSED, adds, wgmma_widen<T>);
#endif
}

template <class T, int N, bool TRANSPOSED>
DEVICE void
wgmma_rs(float (&d)[N / 2], const uint32_t (&a)[4], uint64_t b, bool adds)
{
	static_assert(N == 64 || N == 128);
#ifdef HOPPER
	if constexpr (N == 64 && std::is_same_v<T, bf16>)
		WGMMA_RS("64", "bf16", NAMES_32, D_32(0), "%32,%33,%34,%35", "%36", "%37", "%38");
	else if constexpr (N == 64)
		WGMMA_RS("64", "f16", NAMES_32, D_32(0), "%32,%33,%34,%35", "%36", "%37", "%38");
	else if constexpr (std::is_same_v<T, bf16>)
		WGMMA_RS("128", "bf16", NAMES_64, D_64, "%64,%65,%66,%67", "%68", "%69", "%70");
	else
		WGMMA_RS("128", "f16", NAMES_64, D_64, "%64,%65,%66,%67", "%68", "%69", "%70");
#elif defined CUDA_EMULATED
	emulator::wgmma(d, N, a, 0, b, TRANSPOSED, adds, wgmma_widen<T>);
#endif
}

#endif
