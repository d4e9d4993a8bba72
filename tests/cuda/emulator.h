/* emulator.h - what the files of the emulator share; what kernels and gpu/ see of it is cuda_runtime.h
 *
 * emulator_threads.cc  grids, blocks, threads as fibers, barriers, launches
 * emulator_warps.cc    exchanges within a warp, copies ahead (cp.async)
 * emulator_pdl.cc    kernels that start before those ahead of them have ended
 * emulator_memory.cc   device memory, shared memory, pinned memory
 * emulator_streams.cc  streams, events, copies
 * emulator_graphs.cc   streams that are captured, graphs
 * emulator_devices.cc  the three devices, errors
 * emulator_faults.cc   how tests bring errors about
 * emulator_cublas.cc   the product that stands for cuBLAS, and the loading of it */
#ifndef EMULATOR_H
#define EMULATOR_H

#include <cuda_runtime.h>


#include <mutex>

#if defined(__SANITIZE_ADDRESS__)
#define ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ASAN 1
#endif
#endif

namespace emulator {

/* Shared memory of a block: at most, and without being asked for */
enum { MAX_THREADS = 1024, MOST_SHARED = 227 << 10, PLAIN_SHARED = 48 << 10 };

/* Programs may have a device for each of several threads: one call or kernel at a time. */
extern std::recursive_mutex one_at_a_time;
#define ALONE() std::lock_guard<std::recursive_mutex> alone(emulator::one_at_a_time)

/* ---- threads ---- */

struct fiber {
	uint3 id;
	unsigned number, phase;
	bool live, started;
	const unsigned *waits;         /* until this is no longer .. */
	unsigned seen;                 /* .. this */
	void *state[5];
	void *fake_stack;              /* AddressSanitizer's */
};

struct barrier {
	unsigned generation, arrived, expected;
};

/* The thread that runs */
extern struct fiber *current;

/* It waits until as many have arrived as are expected. */
void arrive(struct barrier *);

/* granted: shared_granted() at the launch */
void run_grid(const char *name, dim3 grid, dim3 block, size_t dynamic, size_t granted,
    const std::function<void(void)> &body);

/* ---- warps ---- */

/* A block of so many threads starts. */
void start_warps(unsigned threads);

/* ---- memory ---- */

/* Device memory may be touched between the two. */
void uncover(void);
void cover(void);

/* Dies when something was written behind a piece of device memory, which must be uncovered */
void check_margins(void);

/* size bytes for shared memory, full of NaNs; free() */
void *poisoned(size_t size, size_t align);
/* What shared() gave to the block is gone; returns how many bytes that were. */
size_t end_shared(void);
/* How much dynamic shared memory was asked for, for this kernel; 0: never */
size_t shared_granted(const void *kernel);

/* Is [p, p + bytes) within one piece of device memory? Dies when only a part is. */
bool on_device(const void *p, size_t bytes);
bool is_pinned(const void *p, size_t bytes);

/* The size of a device: $KV_EMULATED_MEMORY MiB, or 16 GiB */
size_t device_bytes(void);
/* Bytes of memory, both kinds, that were taken and not given back */
size_t memory_held(void);

/* ---- streams ---- */

/* What was asked of any stream so far is done. */
void finish_all(void);
size_t streams_held(void);

/* ---- graphs ---- */

/* Is the stream being captured? */
bool capturing(cudaStream_t);
/* Work for it goes to the graph; an error when the capture has been broken. */
cudaError_t take_down(std::function<void(void)> &&);
/* A call that breaks this thread's capture, and the error that it returns then; else cudaSuccess. */
cudaError_t breaks_capture(cudaError_t);
size_t graphs_held(void);

/* ---- devices ---- */

/* The one that calls go to; which threads and blocks go on first is its */
extern int device;

/* ---- faults ---- */

/* cudaSuccess, or what a test wants of the function that asks */
cudaError_t wanted(const char *call = __builtin_FUNCTION());
/* e, which is the caller's thread's last error, too, unless it is cudaSuccess */
cudaError_t told(cudaError_t e);
/* Both, for functions of the runtime */
cudaError_t failure(const char *call = __builtin_FUNCTION());
/* Is the kernel that is to run one that faults? Then it does nothing. Does not return when it is
 * one that hangs. */
bool kernel_faults(const char *kernel);
/* What $NAME says, or otherwise */
int setting(const char *name, int otherwise);

/* What was asked for so far besides kernels (cuda_launches). $KV_EMULATED_TOTALS, of any value: a
 * line about it on standard error at the end of the program. */
extern struct total {
	unsigned long up, down, within;        /* copies; with memsets */
	unsigned long waits;                   /* of the host for an event or a stream */
} total;

} // namespace emulator

#endif
