/* ptx_hopper.h - instructions of Hopper (sm_90a), by the text of the PTX ISA: mbarriers, numbered
 * barriers, products of warpgroups; and what orders accesses to shared memory in kernels that use
 * such barriers, where __syncthreads() is not all that does (ptx_clocks.cc) */
#ifndef PTX_HOPPER_H
#define PTX_HOPPER_H

#include "tests/ptx/ptx_runtime.h"

namespace ptx {

void mbarrier_init(u64 address, u32 count, int line);
void mbarrier_arrive(u64 address, int line);
/* Waits until the phase of that parity has ended: always true. */
bool mbarrier_wait(u64 address, u32 parity, int line);
/* Barrier `number` of so many threads: bar.sync, or, without waiting, bar.arrive */
void barrier(u32 number, u32 threads, bool waits, int line);

/* What this thread has written is seen by wgmma from here on. */
void fence_proxy(void);
void wgmma_commit(void);
void wgmma_wait(u32 all_but);
/* d[n / 2] of this thread <- a b (+ d): 64 x 16 and 16 x n. a: of the warp's rows in registers, or
 * NULL: by its descriptor. turned: b is stored with n along its lines, not k. */
struct product {
	u32 n;
	const u32 *a;
	u64 a_matrix, b_matrix;
	bool adds, turned, is_bf16;
};
void wgmma(f32 *d, const struct product *, int line);
/* The current instruction uses registers of a product of that group: groups up to `ended` have been
 * waited for. A product uses registers that were written, or not, since the last fence. */
void say_under_way(int line);
void say_not_fenced(int line);
static inline void
under_way(u32 group, u32 ended, int line)
{
	if (group > ended)
		say_under_way(line);
}
static inline void
registers_fenced(bool written, int line)
{
	if (written)
		say_not_fenced(line);
}

/* ---- clocks ---- */

/* Of the block that runs: has it initialised an mbarrier, or used a numbered barrier? */
extern bool clocked;
void begin_vector_clocks(void);
extern u32 clock_now;
/* Does thread me know that accesses of n threads until that time, in this block since its clocks
 * began, come before? */
bool knows(unsigned me, unsigned first, unsigned n, u32 at);
/* An access of the current thread to 4 bytes of shared memory; ARRIVED: a cp.async has arrived,
 * WARP_READ: an instruction of the warp as a whole reads. */
enum { ARRIVED = COPY + 1, WARP_READ };
void clocked_access(u64 address, int how, int line);
/* The current thread has passed __syncthreads(), the nth of the block, or __syncwarp(). */
void pass_block(u32 nth);
void pass_warp(void);

/* What is known by those who arrive at a barrier, for those who wait for it: of each thread, up to
 * which time its accesses come before */
struct knowledge {
	u32 until[emulator::MAX_THREADS];
};
struct knowledge *new_knowledge(void);
/* The current thread tells what it knows; and knows what has been told. */
void tell(struct knowledge *);
void learn(const struct knowledge *);

} // namespace ptx

#endif
