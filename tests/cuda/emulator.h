/* emulator.h - what the files of the emulator share; what kernels and gpu/ see of it is
 * cuda_runtime.h
 *
 * emulator_threads.cc  grids, blocks, threads as fibers, barriers, launches
 * emulator_warps.cc    warp shuffles, asynchronous copies (cp.async)
 * emulator_hopper.cc   mbarriers, numbered barriers, products of warpgroups (wgmma)
 * emulator_pdl.cc      programmatic dependent launch
 * emulator_memory.cc   device memory, shared memory, pinned memory
 * emulator_streams.cc  streams, events, copies
 * emulator_graphs.cc   stream capture, graphs
 * emulator_devices.cc  the three devices, errors
 * emulator_faults.cc   error injection for tests
 * emulator_cublas.cc   a plain product in place of cuBLAS, and the loading of it */
#ifndef EMULATOR_H
#define EMULATOR_H

#include <cuda_runtime.h>

#include <mutex>
#include <string>

#if defined(__SANITIZE_ADDRESS__)
#define ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ASAN 1
#endif
#endif
#ifdef ASAN
#include <sanitizer/common_interface_defs.h>
#endif

namespace emulator {

/* Shared memory of a block: at most, and without an opt-in */
enum { MAX_THREADS = 1024, MOST_SHARED = 227 << 10, PLAIN_SHARED = 48 << 10 };

/* Programs may use devices from several threads: one call or kernel runs at a time. */
extern std::recursive_mutex one_at_a_time;
#define ALONE() std::lock_guard<std::recursive_mutex> alone(emulator::one_at_a_time)

/* ---- threads ---- */

/* What every switch needs is in one line of the processor's cache. */
struct alignas(64) fiber {
	void *state[5];
	struct fiber *next;            /* that waits at the same barrier */
	uint16_t number, place;        /* in the block, and in the order of its threads */
	uint16_t x, y, z;
	uint8_t phase;
	bool started;
	void *fake_stack;              /* AddressSanitizer's */
};

struct barrier {
	unsigned generation, arrived, expected;
	struct fiber *waiting;
};

/* The thread that runs */
extern struct fiber *current;

/* Context switches use the compiler's builtin setjmp and longjmp, in functions that
 * AddressSanitizer does not instrument: before a longjmp(), or a call that does not return, it
 * clears its state of the whole stack and asks the kernel for the signal stack, which would be
 * half of the time. No jump here leaves a frame that is not resumed, so there is nothing to
 * clear.
 *
 * Other threads run in between, so a caller may rely on callee-saved registers only. GCC
 * would assume that other registers are preserved, too, when it sees that nothing here uses
 * them (noipa). */
#ifndef __clang__
#define JUMPS __attribute__((noipa, no_sanitize("address")))
#else
#define JUMPS __attribute__((noinline, no_sanitize("address")))
#endif

/* The current thread is suspended, and another one resumes; for functions with JUMPS. A macro: the
 * processor mispredicts every return from a function behind a switch to another stack. */
#define SWITCH() do { \
	if (__builtin_setjmp(emulator::current->state) == 0) \
		emulator::leave(); \
	FINISH_SWITCH(); \
} while (0)
#ifdef ASAN
#define FINISH_SWITCH() __sanitizer_finish_switch_fiber(emulator::current->fake_stack, NULL, NULL)
#else
#define FINISH_SWITCH() ((void)0)
#endif

/* Of dynamic shared memory, of the kernel that runs */
extern size_t dynamic_bytes;

/* Resumes the next thread in the current one's place, whose state has been saved. */
void leave(void);

/* The current thread arrives at a barrier. True: it opens, since the expected number has arrived;
 * false: the thread is not runnable until then, and the caller must SWITCH(). */
bool arrive(struct barrier *);
/* The same, without waiting: another one of the expected number has arrived. */
void signal_at(struct barrier *);
/* The current thread waits until the barrier opens, without being one of those: SWITCH(). */
void wait_at(struct barrier *);

/* granted: shared_granted() at the launch */
void run_grid(const char *name, dim3 grid, dim3 block, size_t dynamic, size_t granted,
    const std::function<void(void)> &body);

/* ---- warps ---- */

/* Resets the warps for a block of so many threads; its mbarriers and products */
void start_warps(unsigned threads);
void start_hopper(unsigned threads);

/* ---- programmatic dependent launch ---- */

/* Is device memory protected, since not all threads of the block have called pdl_wait()? */
extern bool pdl_covered;

/* ---- memory ---- */

/* Device memory is within RANGE bytes from here; NULL before the first allocation. */
constexpr size_t RANGE = (size_t)64 << 30;
extern char *range;

/* Device memory is accessible between the two. */
void uncover(void);
void cover(void);

/* Dies when guard bytes behind an allocation were written; device memory must be uncovered. */
void check_margins(void);

/* size bytes for shared memory, filled with NaNs; free() */
void *poisoned(size_t size, size_t align);
/* Frees what shared() gave to the block; returns its size. */
size_t end_shared(void);
/* The kernel's opt-in for dynamic shared memory; 0: none */
size_t shared_granted(const void *kernel);

/* Is [p, p + bytes) within one device allocation? Dies when only a part of it is. */
bool on_device(const void *p, size_t bytes);
/* The device allocation that p is in, or whose margin behind it; false: none */
bool allocation_of(const void *p, const char **from, const char **to);
bool is_pinned(const void *p, size_t bytes);

/* Only programs that are linked with tests/ptx have these. Memory of the device has been allocated,
 * or written by other work than a kernel: a copy, from the host or (from not NULL) from memory of
 * the device, a memset, a product of cuBLAS. */
void note_allocated(const void *p, size_t bytes) __attribute__((weak));
void note_written(const void *to, const void *from, size_t bytes) __attribute__((weak));

/* What cudaFree() does when nothing uses the memory any more */
void release(void *p);

/* The size of a device: $KV_EMULATED_MEMORY MiB, or 16 GiB */
size_t device_bytes(void);
/* Bytes of device and pinned memory that are allocated, and pools */
size_t memory_held(void);

/* ---- streams ---- */

/* A kernel that runs when the stream comes to it */
void enqueue_kernel(cudaStream_t, std::function<void(void)> &&);
/* release() when the stream comes to it */
void enqueue_release(cudaStream_t, void *p);
/* Executes all pending work of all streams. */
void finish_all(void);
/* The last work on the stream, in words; NULL: a kernel of ours, or none yet */
void set_last(cudaStream_t, const char *what);
const char *last_of(cudaStream_t);
size_t streams_held(void);

/* ---- graphs ---- */

/* Is the stream being captured? */
bool capturing(cudaStream_t);
/* A kernel, or a product of cuBLAS with all that decides about its kernel, is launched on the
 * current device: dies when the first time is in a capture, where it may not be loaded. */
void load(cudaStream_t, const std::string &kernel, const char *name);
/* Adds work to the captured graph; an error when the capture has been invalidated. */
cudaError_t capture_work(std::function<void(void)> &&);
/* Called by functions that a capture does not allow: invalidates this thread's capture and
 * returns e; without one, cudaSuccess. */
cudaError_t invalidates_capture(cudaError_t e);
size_t graphs_held(void);

/* ---- devices ---- */

/* The current one; the order of threads and blocks depends on it */
extern int device;

/* ---- faults ---- */

/* cudaSuccess, or the error that a test injects into the calling function */
cudaError_t wanted(const char *call = __builtin_FUNCTION());
/* Returns e and, unless it is cudaSuccess, sets the thread's last error to it. */
cudaError_t told(cudaError_t e);
/* Both, for functions of the runtime */
cudaError_t failure(const char *call = __builtin_FUNCTION());
/* Does a test want this kernel to fault, or to do nothing? Then it is not run. Does not return for
 * one that is to hang. */
bool kernel_faults(const char *kernel);
/* The value of $NAME, or otherwise */
int setting(const char *name, int otherwise);

/* Work so far besides kernels (cuda_launches). With $KV_EMULATED_TOTALS, of any value, a line
 * about it on standard error at the end of the program. */
extern struct total {
	unsigned long up, down, within;        /* copies; with memsets */
	unsigned long up_bytes, down_bytes;
	unsigned long read_bytes;              /* that kernels have read from the host's memory */
	unsigned long waits;                   /* of the host for an event or a stream */
	/* calls for memory that wait for the GPU to be idle */
	unsigned long blocking;
} total;

} // namespace emulator

#endif
