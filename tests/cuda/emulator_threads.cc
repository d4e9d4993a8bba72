/* emulator_threads.cc - runs kernels: fibers, barriers, blocks, grids
 *
 * The blocks of a grid run one after another. A block has one fiber for each thread; a fiber
 * runs until its thread waits for others. That is the greatest possible distance between
 * threads, so that a missing barrier nearly always gives a wrong result. The device
 * determines the order in which runnable threads resume: 0 in order, 1 reversed, 2 random. */
#include "tests/cuda/emulator.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <numeric>

/* For tests: kernels launched so far */
extern "C" unsigned long cuda_launches;
unsigned long cuda_launches;

namespace emulator {

std::recursive_mutex one_at_a_time;

uint3 thread, block;
dim3 block_dim, grid_dim;
unsigned lane;
unsigned char *dynamic_shared;
size_t dynamic_bytes;
struct fiber *current;

namespace {

constexpr size_t STACK = (256 << 10) + 576;

struct fiber fibers[MAX_THREADS];
struct barrier whole;
int either[2], every[2];               /* of sync_block_or(), double-buffered */
char *stacks;
void *scheduler[5];
struct fiber *to_start;                /* by the scheduler; NULL: all wait, or have ended */
const char *kernel = "no kernel";
const std::function<void(void)> *kernel_body;
unsigned threads, left;                /* of the block; that have not ended */
uint64_t random_state = 88172645463325252u;

unsigned
draw(unsigned below)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return (unsigned)((random_state >> 32) * below >> 32);
}

/* ---- the order of threads ----
 *
 * Each thread of a block has a place in its order. Threads resume in passes: those that are
 * runnable when the pass comes to them, from the place FIRST on and around to it. */

unsigned order[MAX_THREADS];           /* places -> threads */
uint64_t runnable[MAX_THREADS / 64];   /* a bit for each place */
unsigned first, place;                 /* of the pass: its first place, the one that is next */
bool around, moved;                    /* it has begun again at place 0; has resumed a thread */

void
begin_order(void)
{
	unsigned i, j, t;

	for (i = 0; i < threads; i++)
		order[i] = device == 1 ? threads - 1 - i : i;
	for (i = threads - 1; device == 2 && i > 0; i--) {
		j = draw(i + 1);
		t = order[i];
		order[i] = order[j];
		order[j] = t;
	}
	for (i = 0; i < threads; i++)
		fibers[order[i]].place = (uint16_t)i;
	for (i = 0; i < MAX_THREADS / 64; i++)
		runnable[i] = threads <= i * 64 ? 0 : threads < i * 64 + 64 ?
		    ((uint64_t)1 << threads % 64) - 1 : ~(uint64_t)0;
	first = place = device == 2 ? draw(threads) : 0;
	around = moved = false;
}

void
set_runnable(const struct fiber *f, bool may_run)
{
	const uint64_t bit = (uint64_t)1 << f->place % 64;

	if (may_run)
		runnable[f->place / 64] |= bit;
	else
		runnable[f->place / 64] &= ~bit;
}

/* The first runnable place of from .. end - 1, or end */
unsigned
find_runnable(unsigned from, unsigned end)
{
	uint64_t bits;

	for (; from < end; from = from / 64 * 64 + 64)
		if ((bits = runnable[from / 64] >> from % 64) != 0) {
			from += (unsigned)__builtin_ctzll(bits);
			return from < end ? from : end;
		}
	return end;
}

/* Function next_fiber(), where the next place's thread is not runnable */
[[gnu::noinline]] struct fiber *
search_fiber(void)
{
	for (;;) {
		const unsigned end = around ? first : threads;

		if ((place = find_runnable(place, end)) < end) {
			moved = true;
			return &fibers[order[place++]];
		}
		if (!around) {
			around = true;
			place = 0;
			continue;
		}
		if (!moved || left == 0)
			return NULL;
		first = place = device == 2 ? draw(threads) : 0;
		around = moved = false;
	}
}

/* The thread that resumes next; NULL: all have ended, or wait */
struct fiber *
next_fiber(void)
{
	if (place >= (around ? first : threads) || !(runnable[place / 64] >> place % 64 & 1))
		return search_fiber();
	moved = true;
	return &fibers[order[place++]];
}

/* ---- fibers ---- */

#ifdef ASAN
const void *main_stack;
size_t main_stack_size;
#endif

char *
stack_of(const struct fiber *f)
{
	return stacks + (size_t)f->number * STACK;
}

void
make_current(struct fiber *f)
{
	current = f;
	thread = { f->x, f->y, f->z };
	lane = f->number % 32;
}

void
open_barrier(struct barrier *b)
{
	struct fiber *f;

	for (f = b->waiting; f != NULL; f = f->next)
		set_runnable(f, true);
	b->waiting = NULL;
	b->arrived = 0;
	b->generation++;
}

} // namespace

void
wait_at(struct barrier *b)
{
	current->next = b->waiting;
	b->waiting = current;
	set_runnable(current, false);
}

bool
arrive(struct barrier *b)
{
	if (++b->arrived >= b->expected) {
		open_barrier(b);
		return true;
	}
	wait_at(b);
	return false;
}

void
signal_at(struct barrier *b)
{
	if (++b->arrived >= b->expected)
		open_barrier(b);
}

/* Only the scheduler can start a fiber. */
JUMPS void
leave(void)
{
	struct fiber *f = next_fiber();
#ifdef ASAN
	void **fake_stack = &current->fake_stack;
#endif

	if (f == NULL || !f->started) {
		to_start = f;
#ifdef ASAN
		__sanitizer_start_switch_fiber(fake_stack, main_stack, main_stack_size);
#endif
		__builtin_longjmp(scheduler, 1);
	}
	make_current(f);
#ifdef ASAN
	__sanitizer_start_switch_fiber(fake_stack, stack_of(f), STACK);
#endif
	__builtin_longjmp(f->state, 1);
}

namespace {

/* A fiber's main loop; it is reused for the thread of the same number in all later blocks. */
JUMPS void
run_fiber(void)
{
#ifdef ASAN
	__sanitizer_finish_switch_fiber(NULL, &main_stack, &main_stack_size);
#endif
	for (;;) {
		(*kernel_body)();
		left--;
		set_runnable(current, false);
		if (--whole.expected > 0 && whole.arrived >= whole.expected)
			open_barrier(&whole);
		SWITCH();
	}
}

/* Resumes or starts f, and returns when no thread can resume, or to_start is to be started. */
JUMPS void
enter(struct fiber *f)
{
	ucontext_t context;
#ifdef ASAN
	void *fake_stack = NULL;
#endif

	make_current(f);
	if (__builtin_setjmp(scheduler) == 0) {
#ifdef ASAN
		__sanitizer_start_switch_fiber(&fake_stack, stack_of(f), STACK);
#endif
		if (f->started)
			__builtin_longjmp(f->state, 1);
		f->started = true;
		getcontext(&context);
		context.uc_stack.ss_sp = stack_of(f);
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

	whole = { 0, 0, threads, NULL };
	start_warps(threads);
	start_hopper(threads);
	for (i = 0; i < threads; i++) {
		fibers[i].x = (uint16_t)(i % block_dim.x);
		fibers[i].y = (uint16_t)(i / block_dim.x % block_dim.y);
		fibers[i].z = (uint16_t)(i / (block_dim.x * block_dim.y));
		fibers[i].number = (uint16_t)i;
		fibers[i].phase = 0;
	}
}

void
run_block(size_t dynamic, size_t granted)
{
	size_t declared;
	struct fiber *f;

	start_block();
	begin_order();
	left = threads;
	for (f = next_fiber(); f != NULL; f = to_start)
		enter(f);
	if (left > 0)
		die("%u of %u threads wait for others that will not come", left, threads);
	declared = end_shared();
	if (dynamic > 0)               /* DYN_SHARED is behind that, aligned */
		declared = (declared + 1023) / 1024 * 1024;
	if (declared + dynamic > (dynamic > granted ? PLAIN_SHARED : MOST_SHARED))
		die("%zu bytes of shared memory and %zu dynamic ones: nobody has asked for that",
		    declared, dynamic);
}

/* The ith of n blocks in the order of the device. A multiplier coprime to n visits each once. */
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

JUMPS void
sync_block(void)
{
	if (!arrive(&whole))
		SWITCH();
}

JUMPS int
sync_block_or(int mine, int all)
{
	unsigned turn = whole.generation & 1;

	if (whole.arrived == 0) {
		either[turn] = 0;
		every[turn] = 1;
	}
	either[turn] |= mine;
	every[turn] &= mine;
	if (!arrive(&whole))
		SWITCH();
	return all ? every[turn] : either[turn];
}

void
run_grid(const char *name, dim3 grid, dim3 blocks, size_t dynamic, size_t granted,
    const std::function<void(void)> &body)
{
	const size_t n = (size_t)grid.x * grid.y * grid.z;

	cuda_launches++;
	kernel = name;
	kernel_body = &body;
	grid_dim = grid;
	block_dim = blocks;
	threads = blocks.x * blocks.y * blocks.z;
	if (threads == 0 || threads > MAX_THREADS)
		die("%u threads in a block", threads);
	if (n == 0 || grid.y > 65535 || grid.z > 65535 || grid.x > 2147483647)
		die("a grid of %u x %u x %u blocks", grid.x, grid.y, grid.z);
	if (dynamic > MOST_SHARED)
		die("%zu bytes of shared memory", dynamic);
	if (kernel_faults(name)) {
		kernel = "no kernel";
		return;
	}
	if (stacks == NULL)
		stacks = (char *)mmap(NULL, (size_t)MAX_THREADS * STACK, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	uncover();
	for (size_t i = 0; i < n; i++) {
		size_t b = nth_block(i, n);

		block = { (unsigned)(b % grid.x), (unsigned)(b / grid.x % grid.y),
			(unsigned)(b / ((size_t)grid.x * grid.y)) };
		dynamic_bytes = dynamic;
		dynamic_shared = dynamic > 0 ? (unsigned char *)poisoned(dynamic, 1024) : NULL;
		run_block(dynamic, granted);
		free(dynamic_shared);
	}
	check_margins();
	cover();
	kernel = "no kernel";
}

} // namespace emulator
