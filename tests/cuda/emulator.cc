/* emulator.cc - runs CUDA kernels on the CPU: fibers, barriers, shuffles, memory
 *
 * A grid's blocks run one after another. A block has one fiber for each thread, and a fiber runs
 * until its thread waits for others: the greatest distance between threads that there can
 * be, so that a missing barrier nearly always gives a wrong result. In which order those that
 * may go on do so is the device's: 0 in order, 1 reversed, 2 random.
 *
 * Device memory lies in one range of addresses that cannot be read or written except while a
 * kernel or a copy runs: host code that follows a device pointer dies. What is allocated,
 * and shared memory at the start of a block, is filled with NaNs. Behind each piece of
 * memory there are bytes that nobody may write (looked at after each kernel) or, under
 * AddressSanitizer, touch at all. */
#include <cuda_runtime.h>
#include <cublas_v2.h>
#include <dlfcn.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <deque>
#include <map>
#include <mutex>
#include <numeric>
#include <set>
#include <vector>

#include "libkvfile/dtype.h"

#if defined(__SANITIZE_ADDRESS__)
#define ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ASAN 1
#endif
#endif
#ifdef ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#else
#define ASAN_POISON_MEMORY_REGION(p, n) ((void)0)
#define ASAN_UNPOISON_MEMORY_REGION(p, n) ((void)0)
#endif

enum { MAX_THREADS = 1024, STACK = 256 << 10, MOST_SHARED = 227 << 10, PLACES = 16 };

/* For tests: kernels launched so far */
extern "C" unsigned long cuda_launches;
unsigned long cuda_launches;

/* Programs may have a device for each of several threads: one call or kernel at a time. */
static std::recursive_mutex one_at_a_time;
#define ALONE() std::lock_guard<std::recursive_mutex> alone(one_at_a_time)

namespace emulator {

uint3 thread, block;
dim3 block_dim, grid_dim;
unsigned lane;
unsigned char *dynamic_shared;

namespace {

struct barrier {
	unsigned generation, arrived, expected;
};

struct warp {
	struct barrier barrier;
	unsigned mask, here;           /* of the exchange that is going on */
	uint32_t slot[2][32][8];
};

struct fiber {
	uint3 id;
	unsigned number, phase;
	bool live, started;
	const unsigned *waits;         /* until this is no longer .. */
	unsigned seen;                 /* .. this */
	jmp_buf state;
	void *fake_stack;              /* AddressSanitizer's */
};

struct fiber fibers[MAX_THREADS];
struct warp warps[MAX_THREADS / 32];
struct barrier whole;
int either[2], every[2];               /* of sync_block_or(), for turns */
struct fiber *current;
char *stacks;
jmp_buf scheduler;
const char *kernel = "no kernel";
void (*kernel_body)(void *);
void *kernel_arg;
unsigned threads;
int device;
uint64_t random_state = 88172645463325252u;

/* Copies that a thread has asked for and not waited for: groups of them, the last one open */
struct ahead {
	void *to;
	const void *from;
	bool there;
	unsigned group;
};
std::vector<struct ahead> copies[MAX_THREADS];
unsigned groups[MAX_THREADS];

struct place {
	const void *key;
	void *at;
} places[PLACES];
unsigned n_places;

unsigned
draw(unsigned below)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return (unsigned)((random_state >> 32) * below >> 32);
}

/* ---- fibers ---- */

#ifdef ASAN
const void *main_stack;
size_t main_stack_size;
#endif

void
leave(void)
{
#ifdef ASAN
	__sanitizer_start_switch_fiber(&current->fake_stack, main_stack, main_stack_size);
#endif
	_longjmp(scheduler, 1);
}

void
wait(const unsigned *generation)
{
	current->waits = generation;
	current->seen = *generation;
	if (_setjmp(current->state) == 0)
		leave();
#ifdef ASAN
	__sanitizer_finish_switch_fiber(current->fake_stack, NULL, NULL);
#endif
}

void
open_barrier(struct barrier *b)
{
	b->arrived = 0;
	b->generation++;
}

void
arrive(struct barrier *b)
{
	if (++b->arrived < b->expected)
		wait(&b->generation);
	else
		open_barrier(b);
}

/* One fiber; it is used again for the thread of the same number of all later blocks. */
void
run_fiber(void)
{
#ifdef ASAN
	__sanitizer_finish_switch_fiber(NULL, &main_stack, &main_stack_size);
#endif
	for (;;) {
		kernel_body(kernel_arg);
		current->live = false;
		if (--whole.expected > 0 && whole.arrived >= whole.expected)
			open_barrier(&whole);
		if (_setjmp(current->state) == 0)
			leave();
#ifdef ASAN
		__sanitizer_finish_switch_fiber(current->fake_stack, NULL, NULL);
#endif
	}
}

void
enter(struct fiber *f)
{
	char *stack = stacks + (size_t)f->number * STACK;
	ucontext_t context;
#ifdef ASAN
	void *fake_stack = NULL;
#endif

	current = f;
	thread = f->id;
	lane = f->number % 32;
	f->waits = NULL;
	if (_setjmp(scheduler) == 0) {
#ifdef ASAN
		__sanitizer_start_switch_fiber(&fake_stack, stack, STACK);
#endif
		if (f->started)
			_longjmp(f->state, 1);
		f->started = true;
		getcontext(&context);
		context.uc_stack.ss_sp = stack;
		context.uc_stack.ss_size = STACK;
		context.uc_link = NULL;
		makecontext(&context, run_fiber, 0);
		setcontext(&context);
	}
#ifdef ASAN
	__sanitizer_finish_switch_fiber(fake_stack, NULL, NULL);
#endif
	current = NULL;
}

/* ---- one block ---- */

void
start_block(void)
{
	unsigned i;

	whole = { 0, 0, threads };
	for (i = 0; i < (threads + 31) / 32; i++) {
		warps[i].barrier = {};
		warps[i].here = 0;
	}
	for (i = 0; i < threads; i++) {
		fibers[i].id = { i % block_dim.x, i / block_dim.x % block_dim.y,
			i / (block_dim.x * block_dim.y) };
		fibers[i].number = i;
		fibers[i].phase = 0;
		fibers[i].live = true;
		fibers[i].waits = NULL;
		copies[i].clear();
		groups[i] = 0;
	}
}

void
run_block(void)
{
	static unsigned order[MAX_THREADS];
	unsigned left = threads, i, j, t, first;
	bool moved;

	start_block();
	for (i = 0; i < threads; i++)
		order[i] = device == 1 ? threads - 1 - i : i;
	for (i = threads - 1; device == 2 && i > 0; i--) {
		j = draw(i + 1);
		t = order[i];
		order[i] = order[j];
		order[j] = t;
	}
	while (left > 0) {
		first = device == 2 ? draw(threads) : 0;
		moved = false;
		for (i = 0; i < threads; i++) {
			struct fiber *f = &fibers[order[i + first < threads ? i + first : i + first - threads]];

			if (!f->live || (f->waits != NULL && *f->waits == f->seen))
				continue;
			enter(f);
			moved = true;
			left -= !f->live;
		}
		if (!moved && left > 0)
			die("%u of %u threads wait for others that will not come", left, threads);
	}
	for (i = 0; i < n_places; i++)
		free(places[i].at);
	n_places = 0;
}

/* ---- device memory ---- */

constexpr size_t RANGE = (size_t)64 << 30, ALIGN = 256, MARGIN = 256;
constexpr unsigned char MARK = 0xa5;

struct piece {
	size_t bytes, whole;
};
std::map<char *, struct piece> pieces;
std::multimap<size_t, char *> unused;  /* by whole */
char *range, *range_end;
size_t in_use;
int opened, key = -1;                  /* of the range's pages; -1: the processor has no keys */

/* $KV_EMULATED_MEMORY MiB, or 16 GiB */
size_t
device_bytes(void)
{
	const char *text = getenv("KV_EMULATED_MEMORY");

	return text != NULL ? (size_t)strtoul(text, NULL, 10) << 20 : (size_t)16 << 30;
}

void
make_range(void)
{
	range = range_end = (char *)mmap(NULL, RANGE, PROT_NONE,
	    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	madvise(range, RANGE, MADV_HUGEPAGE);   /* few of them to cover and uncover */
	if ((key = pkey_alloc(0, PKEY_DISABLE_ACCESS)) >= 0 &&
	    pkey_mprotect(range, RANGE, PROT_READ | PROT_WRITE, key) != 0)
		key = -1;
}

/* Device memory may be touched from here on .. */
void
uncover(void)
{
	if (opened++ > 0)
		return;
	if (key >= 0)
		pkey_set(key, 0);
	else if (range_end > range)
		mprotect(range, (size_t)(range_end - range), PROT_READ | PROT_WRITE);
}

/* .. to here. */
void
cover(void)
{
	if (--opened > 0)
		return;
	if (key >= 0)
		pkey_set(key, PKEY_DISABLE_ACCESS);
	else if (range_end > range)
		mprotect(range, (size_t)(range_end - range), PROT_NONE);
}

void
check_margins(void)
{
	for (const auto &[at, piece] : pieces) {
		ASAN_UNPOISON_MEMORY_REGION(at + piece.bytes, piece.whole - piece.bytes);
		for (size_t i = piece.bytes; i < piece.whole; i++)
			if ((unsigned char)at[i] != MARK)
				die("byte %zu of %zu at %p was written", i, piece.bytes,
				    (void *)at);
		ASAN_POISON_MEMORY_REGION(at + piece.bytes, piece.whole - piece.bytes);
	}
}

/* Block number i of n, in the order of the device: a multiplier without a common factor visits
 * each once. */
size_t
nth_block(size_t i, size_t n)
{
	size_t step = 2654435761u;

	if (device == 0)
		return i;
	if (device == 1)
		return n - 1 - i;
	while (std::gcd(step, n) != 1)
		step++;
	return (i * (step % n) + n / 2) % n;
}

} // namespace

void
die(const char *fmt, ...)
{
	va_list ap;

	fprintf(stderr, "emulator: %s: ", kernel);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fprintf(stderr, " (block %u,%u,%u thread %u,%u,%u)\n", block.x, block.y, block.z, thread.x,
	    thread.y, thread.z);
	abort();
}

void
sync_block(void)
{
	arrive(&whole);
}

int
sync_block_or(int mine, int all)
{
	unsigned turn = whole.generation & 1;

	if (whole.arrived == 0) {
		either[turn] = 0;
		every[turn] = 1;
	}
	either[turn] |= mine;
	every[turn] &= mine;
	arrive(&whole);
	return all ? every[turn] : either[turn];
}

void
sync_warp(unsigned mask)
{
	struct warp *w = &warps[current->number / 32];

	if (!(mask >> lane & 1))
		die("a lane is not in the mask that it gives, %#x", mask);
	if (w->here == 0) {
		w->mask = mask;
		w->barrier.expected = (unsigned)__builtin_popcount(mask);
	} else if (w->mask != mask)
		die("lanes of a warp meet with masks %#x and %#x", w->mask, mask);
	w->here |= 1u << lane;
	if (w->here == mask)
		w->here = 0;
	arrive(&w->barrier);
}

const uint32_t (*exchange(const void *mine, int n, unsigned mask))[8]
{
	struct warp *w = &warps[current->number / 32];
	unsigned phase = current->phase ^= 1;

	if (n == 1)                    /* so that it is one move */
		memcpy(w->slot[phase][lane], mine, 4);
	else
		memcpy(w->slot[phase][lane], mine, 4 * (size_t)n);
	sync_warp(mask);
	return w->slot[phase];
}

void
copy_ahead(void *to, const void *from, bool there)
{
	const unsigned t = current->number;

	if ((uintptr_t)to % 16 != 0 || (there && (uintptr_t)from % 16 != 0))
		die("copy_ahead of 16 bytes from %p to %p", from, to);
	copies[t].push_back({ to, from, there, groups[t] });
}

void
copies_group(void)
{
	groups[current->number]++;
}

void
copies_wait(int all_but)
{
	const unsigned t = current->number;
	size_t done = 0;

	for (const struct ahead &c : copies[t]) {
		if (c.group + (unsigned)all_but >= groups[t])
			break;
		if (c.there)
			memcpy(c.to, c.from, 16);
		else
			memset(c.to, 0, 16);
		done++;
	}
	copies[t].erase(copies[t].begin(), copies[t].begin() + (ptrdiff_t)done);
}

static void *
poisoned(size_t size, size_t align)
{
	void *p;

	if (posix_memalign(&p, align < sizeof(void *) ? sizeof(void *) : align, size) != 0)
		die("no memory");
	memset(p, 0xff, size);
	return p;
}

void *
shared(const void *key, size_t size, size_t align)
{
	for (unsigned i = 0; i < n_places; i++)
		if (places[i].key == key)
			return places[i].at;
	if (n_places == PLACES)
		die("more than %d shared variables", PLACES);
	places[n_places].key = key;
	places[n_places].at = poisoned(size, align);
	return places[n_places++].at;
}

void
launch(const char *name, dim3 grid, dim3 blocks, size_t dynamic, void (*body)(void *), void *arg)
{
	ALONE();
	const size_t n = (size_t)grid.x * grid.y * grid.z;

	cuda_launches++;
	kernel = name;
	kernel_body = body;
	kernel_arg = arg;
	grid_dim = grid;
	block_dim = blocks;
	threads = blocks.x * blocks.y * blocks.z;
	if (threads == 0 || threads > MAX_THREADS)
		die("%u threads in a block", threads);
	if (n == 0 || grid.y > 65535 || grid.z > 65535 || grid.x > 2147483647)
		die("a grid of %u x %u x %u blocks", grid.x, grid.y, grid.z);
	if (dynamic > MOST_SHARED)
		die("%zu bytes of shared memory", dynamic);
	if (stacks == NULL)
		stacks = (char *)mmap(NULL, (size_t)MAX_THREADS * STACK, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	uncover();
	for (size_t i = 0; i < n; i++) {
		size_t b = nth_block(i, n);

		block = { (unsigned)(b % grid.x), (unsigned)(b / grid.x % grid.y),
			(unsigned)(b / ((size_t)grid.x * grid.y)) };
		dynamic_shared = dynamic > 0 ? (unsigned char *)poisoned(dynamic, 1024) : NULL;
		run_block();
		free(dynamic_shared);
	}
	check_margins();
	cover();
	kernel = "no kernel";
}

} // namespace emulator

using namespace emulator;

/* What the tests know it by */
extern "C" const int cuda_emulated = 1;
/* The so-manyth call from now on that can fail does; 0: none. */
extern "C" { int cuda_emulated_failure; }

/* ---- streams: what was asked for and is not done yet, in order ---- */

struct pending {
	void *to = NULL;
	const void *from = NULL;       /* NULL: a byte instead */
	size_t bytes = 0;
	int byte = 0;
	cudaStream_t stream = NULL;    /* not NULL: waits until so much of that stream is done */
	uint64_t until = 0;
};

struct emulated_stream {
	std::deque<struct pending> queue;
	uint64_t queued, done;
};

struct emulated_event {
	cudaStream_t stream;           /* NULL: not recorded yet */
	uint64_t until;
};

static std::set<cudaStream_t> streams;
static std::map<char *, size_t> pinned;

/* What was taken and not given back: bytes of memory, and streams */
extern "C" size_t
cuda_emulated_held(void)
{
	ALONE();
	size_t held = in_use + streams.size();

	for (const auto &[at, bytes] : pinned)
		held += bytes;
	return held;
}

static cudaError_t
failure(void)
{
	return cuda_emulated_failure > 0 && --cuda_emulated_failure == 0 ? cudaErrorUnknown :
	    cudaSuccess;
}

static void
finish(cudaStream_t s, uint64_t until)
{
	while (s->done < until && !s->queue.empty()) {
		const struct pending p = s->queue.front();

		s->queue.pop_front();
		s->done++;
		if (p.stream != NULL) {
			if (streams.count(p.stream) > 0)
				finish(p.stream, p.until);
			continue;
		}
		uncover();
		if (p.from != NULL)
			memcpy(p.to, p.from, p.bytes);
		else
			memset(p.to, p.byte, p.bytes);
		cover();
	}
}

static void
finish_all(void)
{
	for (cudaStream_t s : streams)
		finish(s, UINT64_MAX);
}

static void
enqueue(cudaStream_t s, const struct pending &p)
{
	if (streams.count(s) == 0)
		die("work for a stream that is not there");
	s->queue.push_back(p);
	s->queued++;
}

void
emulator::finish_stream(cudaStream_t s)
{
	ALONE();
	finish(s, UINT64_MAX);
}

/* ---- the runtime ---- */

const char *
cudaGetErrorName(cudaError_t e)
{
	switch (e) {
	case cudaSuccess: return "cudaSuccess";
	case cudaErrorInvalidValue: return "cudaErrorInvalidValue";
	case cudaErrorMemoryAllocation: return "cudaErrorMemoryAllocation";
	case cudaErrorInsufficientDriver: return "cudaErrorInsufficientDriver";
	case cudaErrorNoDevice: return "cudaErrorNoDevice";
	case cudaErrorInvalidDevice: return "cudaErrorInvalidDevice";
	case cudaErrorUnknown: return "cudaErrorUnknown";
	}
	return "unknown";
}

const char *cudaGetErrorString(cudaError_t e) { return cudaGetErrorName(e); }
cudaError_t cudaGetLastError(void) { return cudaSuccess; }
cudaError_t cudaDriverGetVersion(int *v) { *v = 13000; return cudaSuccess; }
cudaError_t cudaRuntimeGetVersion(int *v) { *v = 13000; return cudaSuccess; }
cudaError_t cudaGetDeviceCount(int *n) { *n = 3; return cudaSuccess; }

cudaError_t
cudaSetDevice(int d)
{
	ALONE();
	if (d < 0 || d > 2)
		return cudaErrorInvalidDevice;
	device = d;
	return cudaSuccess;
}

cudaError_t
cudaGetDeviceProperties(cudaDeviceProp *p, int d)
{
	static const char *const order[] = { "in order", "reversed", "random order" };

	*p = {};
	snprintf(p->name, sizeof p->name, "emulated, %s", order[d]);
	p->totalGlobalMem = device_bytes();
	p->sharedMemPerBlockOptin = MOST_SHARED;
	p->major = 8;
	p->multiProcessorCount = 3;
	p->l2CacheSize = 4 << 20;
	return cudaSuccess;
}

cudaError_t
cudaMemGetInfo(size_t *free, size_t *total)
{
	ALONE();
	*total = device_bytes();
	*free = in_use < *total ? *total - in_use : 0;
	return failure();
}

cudaError_t
cudaMalloc(void **p, size_t bytes)
{
	ALONE();
	const size_t whole = (bytes + MARGIN + ALIGN - 1) / ALIGN * ALIGN;
	char *at;

	*p = NULL;
	if (bytes == 0)
		return cudaSuccess;
	if (bytes > device_bytes() || in_use > device_bytes() - bytes || failure())
		return cudaErrorMemoryAllocation;
	if (range == NULL)
		make_range();
	auto found = unused.lower_bound(whole);
	if (found != unused.end() && found->first <= 2 * whole) {
		at = found->second;
		pieces[at] = { bytes, found->first };
		unused.erase(found);
	} else {
		at = range_end;
		if (whole > RANGE - (size_t)(range_end - range))
			return cudaErrorMemoryAllocation;
		range_end += whole;
		pieces[at] = { bytes, whole };
	}
	in_use += bytes;
	uncover();
	ASAN_UNPOISON_MEMORY_REGION(at, pieces[at].whole);
	memset(at, 0xff, bytes);
	memset(at + bytes, MARK, pieces[at].whole - bytes);
	ASAN_POISON_MEMORY_REGION(at + bytes, pieces[at].whole - bytes);
	cover();
	*p = at;
	return cudaSuccess;
}

cudaError_t
cudaFree(void *p)
{
	ALONE();
	if (p == NULL)
		return cudaSuccess;
	finish_all();
	auto found = pieces.find((char *)p);
	if (found == pieces.end())
		die("cudaFree(%p): not allocated", p);
	in_use -= found->second.bytes;
	ASAN_POISON_MEMORY_REGION(p, found->second.whole);
	unused.emplace(found->second.whole, (char *)p);
	pieces.erase(found);
	return cudaSuccess;
}

cudaError_t
cudaMallocHost(void **p, size_t bytes)
{
	ALONE();
	*p = NULL;
	if (failure() || (*p = malloc(bytes)) == NULL)
		return cudaErrorMemoryAllocation;
	pinned[(char *)*p] = bytes;
	return cudaSuccess;
}

cudaError_t
cudaFreeHost(void *p)
{
	ALONE();
	finish_all();
	if (p != NULL && pinned.erase((char *)p) == 0)
		die("cudaFreeHost(%p): not allocated", p);
	free(p);
	return cudaSuccess;
}

/* Is [p, p + bytes) within one piece of device memory? */
static bool
on_device(const void *p, size_t bytes)
{
	const char *c = (const char *)p;

	if (range == NULL || c < range || c >= range_end)
		return false;
	auto after = pieces.upper_bound((char *)p);
	if (after == pieces.begin())
		die("copy at %p: not allocated", p);
	--after;
	if (bytes > after->second.bytes - (size_t)(c - after->first))
		die("copy of %zu bytes at %zu of %zu", bytes, (size_t)(c - after->first),
		    after->second.bytes);
	return true;
}

static bool
is_pinned(const void *p, size_t bytes)
{
	auto after = pinned.upper_bound((char *)p);

	return after != pinned.begin() && (const char *)p + bytes <=
	    std::prev(after)->first + std::prev(after)->second;
}

/* As late as may be: a buffer that is filled again too early, or read before it was waited for, is
 * then wrong. Memory that is not pinned is copied at once, as a GPU's driver does. */
cudaError_t
cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind, cudaStream_t s)
{
	ALONE();
	const bool to_device = bytes > 0 && on_device(to, bytes);
	const bool from_device = bytes > 0 && on_device(from, bytes);

	if (failure())
		return cudaErrorUnknown;
	if (bytes == 0)
		return cudaSuccess;
	if (kind != cudaMemcpyDefault &&
	    (to_device != (kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice) ||
	    from_device != (kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice)))
		die("copy of the wrong kind, %d", (int)kind);
	if (from_device && !to_device && is_pinned(to, bytes))
		memset(to, 0xff, bytes);
	enqueue(s, { .to = to, .from = from, .bytes = bytes });
	if ((!to_device && !is_pinned(to, bytes)) || (!from_device && !is_pinned(from, bytes)))
		finish(s, UINT64_MAX);
	return cudaSuccess;
}

cudaError_t
cudaMemsetAsync(void *p, int byte, size_t bytes, cudaStream_t s)
{
	ALONE();
	if (failure())
		return cudaErrorUnknown;
	if (bytes == 0)
		return cudaSuccess;
	if (!on_device(p, bytes))
		die("memset of host memory");
	enqueue(s, { .to = p, .bytes = bytes, .byte = byte });
	return cudaSuccess;
}

cudaError_t
cudaStreamCreateWithFlags(cudaStream_t *s, unsigned)
{
	ALONE();
	*s = NULL;
	if (failure())
		return cudaErrorUnknown;
	streams.insert(*s = new emulated_stream());
	return cudaSuccess;
}

cudaError_t
cudaStreamDestroy(cudaStream_t s)
{
	ALONE();
	finish_all();
	if (streams.erase(s) == 0)
		die("a stream that is not there is destroyed");
	delete s;
	return cudaSuccess;
}

cudaError_t
cudaStreamSynchronize(cudaStream_t s)
{
	ALONE();
	finish(s, UINT64_MAX);
	return failure();
}

cudaError_t
cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned)
{
	ALONE();
	if (failure())
		return cudaErrorUnknown;
	if (e->stream != NULL)
		enqueue(s, { .stream = e->stream, .until = e->until });
	return cudaSuccess;
}

cudaError_t
cudaEventCreateWithFlags(cudaEvent_t *e, unsigned)
{
	ALONE();
	*e = NULL;
	if (failure())
		return cudaErrorUnknown;
	*e = new emulated_event();
	return cudaSuccess;
}

cudaError_t
cudaEventDestroy(cudaEvent_t e)
{
	delete e;
	return cudaSuccess;
}

cudaError_t
cudaEventRecord(cudaEvent_t e, cudaStream_t s)
{
	ALONE();
	e->stream = s;
	e->until = s->queued;
	return failure();
}

cudaError_t
cudaEventSynchronize(cudaEvent_t e)
{
	ALONE();
	if (e->stream != NULL)
		finish(e->stream, e->until);
	return failure();
}

/* ---- cuBLAS ---- */

struct emulated_cublas {
	cudaStream_t stream;
};

cublasStatus_t
cublasCreate_v2(cublasHandle_t *h)
{
	*h = new emulated_cublas();
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t
cublasDestroy_v2(cublasHandle_t h)
{
	delete h;
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t
cublasSetStream_v2(cublasHandle_t h, cudaStream_t s)
{
	h->stream = s;
	return CUBLAS_STATUS_SUCCESS;
}

const char *cublasGetStatusString(cublasStatus_t) { return "not supported by the emulator"; }

cublasStatus_t
cublasSetWorkspace_v2(cublasHandle_t, void *, size_t)
{
	return CUBLAS_STATUS_SUCCESS;
}

/* columns columns of p, each of k elements, in f32 and one after another; up to a multiple of
 * BLOCK zeros follow. */
static constexpr int BLOCK = 16;

static std::vector<float>
widened(const void *p, int columns, int k, int ld, cudaDataType_t type)
{
	const size_t size = type == CUDA_R_32F ? 4 : 2;
	std::vector<float> all((size_t)(columns + BLOCK - 1) / BLOCK * BLOCK * k);

	for (int i = 0; i < columns; i++)
		kv_to_f32(&all[(size_t)i * k], (const char *)p + (size_t)i * ld * size,
		    type == CUDA_R_32F ? KV_F32 : type == CUDA_R_16BF ? KV_BF16 : KV_F16, (size_t)k);
	return all;
}

/* BLOCK columns side by side: of each its first element, its second ... */
static std::vector<float>
interleaved(const std::vector<float> &all, int k)
{
	std::vector<float> to(all.size());

	for (size_t i = 0; i < all.size(); i++) {
		const size_t column = i / k, x = i % k;

		to[(column / BLOCK * k + x) * BLOCK + column % BLOCK] = all[i];
	}
	return to;
}

/* Only what gpu/ asks for: a transposed, b not */
cublasStatus_t
cublasGemmEx(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k,
    const void *alpha, const void *a, cudaDataType_t atype, int lda, const void *b,
    cudaDataType_t btype, int ldb, const void *beta, void *c, cudaDataType_t ctype, int ldc,
    cublasComputeType_t, cublasGemmAlgo_t)
{
	ALONE();
	if (ctype != CUDA_R_32F || atype != btype || ta != CUBLAS_OP_T || tb != CUBLAS_OP_N)
		return CUBLAS_STATUS_NOT_SUPPORTED;
	finish_stream(h->stream);
	uncover();
	const std::vector<float> wa = interleaved(widened(a, m, k, lda, atype), k);
	const std::vector<float> wb = widened(b, n, k, ldb, btype);
	for (int i = 0; i < m; i += BLOCK)
		for (int j = 0; j < n; j++) {
			const float *p = &wa[(size_t)i * k], *q = &wb[(size_t)j * k];
			float *to = (float *)c + (size_t)j * ldc + i, sum[BLOCK] = {};

			for (int x = 0; x < k; x++, p += BLOCK)
				for (int e = 0; e < BLOCK; e++)
					sum[e] += p[e] * q[x];
			for (int e = 0; e < BLOCK && i + e < m; e++)
				to[e] = *(const float *)alpha * sum[e] +
				    (*(const float *)beta != 0 ? *(const float *)beta * to[e] : 0);
		}
	cover();
	return CUBLAS_STATUS_SUCCESS;
}

/* ---- loading it ---- */

int cublas_missing;

void *
emulated_dlopen(const char *, int)
{
	return cublas_missing ? NULL : (void *)&cublas_missing;
}

const char *
emulated_dlerror(void)
{
	return "the emulator was told to have no libcublas";
}

void *
emulated_dlsym(void *, const char *name)
{
	static const struct { const char *name; void *at; } function[] = {
		{ "cublasCreate_v2", (void *)cublasCreate_v2 },
		{ "cublasDestroy_v2", (void *)cublasDestroy_v2 },
		{ "cublasSetStream_v2", (void *)cublasSetStream_v2 },
		{ "cublasSetWorkspace_v2", (void *)cublasSetWorkspace_v2 },
		{ "cublasGetStatusString", (void *)cublasGetStatusString },
		{ "cublasGemmEx", (void *)cublasGemmEx },
	};

	for (const auto &f : function)
		if (strcmp(f.name, name) == 0)
			return f.at;
	return NULL;
}
