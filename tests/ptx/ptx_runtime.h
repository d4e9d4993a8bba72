/* ptx_runtime.h - what kernels call that ptx_to_c.py has translated from PTX
 *
 * They run on the emulator (tests/cuda), which finds them by the names of the C++ kernels.
 * ptx_values.h    numbers
 * ptx_kernels.cc  which kernels there are, what has run, reports
 * ptx_memory.cc   addresses: bounds, alignment; copies to shared memory
 * ptx_races.cc    what happened to memory: races, reads of what was never written
 * ptx_warps.cc    shuffles, barriers, matrices
 *
 * The last argument, line, is the instruction's line in the PTX file. */
#ifndef PTX_RUNTIME_H
#define PTX_RUNTIME_H

#include "tests/cuda/emulator.h"
#include "tests/ptx/ptx_values.h"

namespace ptx {

/* ---- kernels ---- */

struct entry {
	struct emulator::translated call;
	const char *name, *file;       /* mangled; of the PTX */
	u32 shared_bytes, instructions;
	bool ran;
};

/* A kernel, or a constant of the module; of a file with translated kernels */
struct registered {
	registered(struct entry *);
	registered(const void *, size_t);
	registered(decltype(nullptr)) {}
};

extern u64 executed;                   /* instructions */
extern const struct entry *running;

/* A thread of a kernel begins. */
void enter(struct entry *, const unsigned char *param);
/* Is [p, p + bytes) within the current thread's arguments? */
bool in_arguments(const char *p, size_t bytes);
/* Something is wrong: said once for each place and kind of fault. */
void fault(int line, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The same, and the end of the program */
[[noreturn]] void stop(int line, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- memory ---- */

/* Addresses of shared memory: static and dynamic; the first KiB is the system's. */
constexpr u64 STATIC = 0x400, DYNAMIC = 0x80000;

/* Size, alignment and bounds are checked. */
void *shared_at(u64 address, u32 bytes, int line);
void *global_at(u64 address, u32 bytes, int line);
const unsigned char *param_at(const unsigned char *param, u32 size, u64 address, u32 bytes,
    int line);
void *local_at(unsigned char *array, u32 size, u64 address, u32 bytes, int line);

/* What is noted of an access */
enum access { READ, WRITE, ATOMIC, COPY };
void note_shared(u64 address, u32 bytes, enum access, int line);
void note_global(u64 address, u32 bytes, enum access, int line);
/* Device memory: which bytes have been written since they were allocated. A read of others is a
 * fault. */
void check_written(u64 address, u32 bytes, const char *what, int line);
void set_written(u64 address, u32 bytes);
/* A copy to 16 bytes of shared memory has arrived. */
void note_arrival(u64 address);
/* The threads' clocks, when a block begins, and behind barriers */
void begin_clocks(bool new_launch);
void tick_warp(void);
void tick_block(void);

template <class T, int N>
static inline vec<T, N>
load_shared(u64 address, int line)
{
	vec<T, N> v;

	memcpy(&v, shared_at(address, sizeof v, line), sizeof v);
	note_shared(address, sizeof v, READ, line);
	return v;
}

template <class T, int N>
static inline void
store_shared(u64 address, const vec<T, N> &v, int line)
{
	memcpy(shared_at(address, sizeof v, line), &v, sizeof v);
	note_shared(address, sizeof v, WRITE, line);
}

template <class T, int N>
static inline vec<T, N>
load_global(u64 address, int line)
{
	vec<T, N> v;

	memcpy(&v, global_at(address, sizeof v, line), sizeof v);
	note_global(address, sizeof v, READ, line);
	return v;
}

template <class T, int N>
static inline void
store_global(u64 address, const vec<T, N> &v, int line)
{
	memcpy(global_at(address, sizeof v, line), &v, sizeof v);
	note_global(address, sizeof v, WRITE, line);
}

template <class T, int N>
static inline vec<T, N>
load_param(const unsigned char *at)
{
	vec<T, N> v;

	memcpy(&v, at, sizeof v);
	return v;
}

template <class T, int N>
static inline void
store_param(unsigned char *at, const vec<T, N> &v)
{
	memcpy(at, &v, sizeof v);
}

template <class T, int N>
static inline vec<T, N>
load_local(unsigned char *array, u32 size, u64 address, int line)
{
	vec<T, N> v;

	memcpy(&v, local_at(array, size, address, sizeof v, line), sizeof v);
	return v;
}

template <class T, int N>
static inline void
store_local(unsigned char *array, u32 size, u64 address, const vec<T, N> &v, int line)
{
	memcpy(local_at(array, size, address, sizeof v, line), &v, sizeof v);
}

u32 load_l2(u64 address, int line);
void prefetch(u64 address);

/* *p becomes change(*p, x); returns what it was. Threads switch at barriers only. */
template <class F>
static inline u32
atomic_shared(u64 address, F change, u32 x, int line)
{
	u32 *p = (u32 *)shared_at(address, 4, line), old = *p;

	note_shared(address, 4, ATOMIC, line);
	*p = change(old, x);
	return old;
}

template <class F>
static inline u32
atomic_global(u64 address, F change, u32 x, int line)
{
	u32 *p = (u32 *)global_at(address, 4, line), old = *p;

	note_global(address, 4, ATOMIC, line);
	*p = change(old, x);
	return old;
}

/* cp.async of 16 bytes, of which size are copied: they arrive in cp_wait(). */
void cp_async(u64 to, u64 from, u32 size, int line);
void cp_commit(void);
void cp_wait(u32 all_but);
void forget_copies(void);

/* ---- warps and blocks ---- */

enum shuffle { IDX, BFLY, UP, DOWN };
u32 shfl(enum shuffle, u32 value, u32 b, u32 c, u32 mask, bool *in_range, int line);
u32 ballot(bool, u32 mask, int line);
u32 redux_add(u32 value, u32 mask, int line);
void warp_sync(u32 mask);
void block_sync(void);
bool block_sync_or(bool);
void ldmatrix_x4(u32 to[4], u64 address, bool transposed, int line);
u32 movmatrix_trans(u32 from, int line);
/* d = a b + c, of 16 x 16 and 16 x 8; with $PTX_CUT_SUMS cut off as tensor cores do it */
void mma(f32 d[4], const u32 a[4], const u32 b[2], const f32 c[4], bool is_bf16, int line);
void mma_u8(u32 d[4], const u32 a[4], const u32 b[2], const u32 c[4], int line);

} // namespace ptx

#endif
