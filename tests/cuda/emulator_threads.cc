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

#ifdef ASAN
#include <sanitizer/common_interface_defs.h>
#endif

/* For tests: kernels launched so far */
extern "C" unsigned long cuda_launches;
unsigned long cuda_launches;

namespace emulator {

std::recursive_mutex one_at_a_time;

uint3 thread, block;
dim3 block_dim, grid_dim;
unsigned lane;
unsigned char *dynamic_shared;
struct fiber *current;

namespace {

constexpr size_t STACK = 256 << 10;

struct fiber fibers[MAX_THREADS];
struct barrier whole;
int either[2], every[2];               /* of sync_block_or(), double-buffered */
char *stacks;
void *scheduler[5];
const char *kernel = "no kernel";
const std::function<void(void)> *kernel_body;
unsigned threads;
uint64_t random_state = 88172645463325252u;

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

JUMPS void
jump(void **to)
{
	__builtin_longjmp(to, 1);
}

JUMPS void
leave(void)
{
#ifdef ASAN
	__sanitizer_start_switch_fiber(&current->fake_stack, main_stack, main_stack_size);
#endif
	jump(scheduler);
}

JUMPS void
wait(const unsigned *generation)
{
	current->waits = generation;
	current->seen = *generation;
	if (__builtin_setjmp(current->state) == 0)
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

} // namespace

void
arrive(struct barrier *b)
{
	if (++b->arrived < b->expected)
		wait(&b->generation);
	else
		open_barrier(b);
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
		current->live = false;
		if (--whole.expected > 0 && whole.arrived >= whole.expected)
			open_barrier(&whole);
		if (__builtin_setjmp(current->state) == 0)
			leave();
#ifdef ASAN
		__sanitizer_finish_switch_fiber(current->fake_stack, NULL, NULL);
#endif
	}
}

JUMPS void
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
	if (__builtin_setjmp(scheduler) == 0) {
#ifdef ASAN
		__sanitizer_start_switch_fiber(&fake_stack, stack, STACK);
#endif
		if (f->started)
			jump(f->state);
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
	start_warps(threads);
	for (i = 0; i < threads; i++) {
		fibers[i].id = { i % block_dim.x, i / block_dim.x % block_dim.y,
			i / (block_dim.x * block_dim.y) };
		fibers[i].number = i;
		fibers[i].phase = 0;
		fibers[i].live = true;
		fibers[i].waits = NULL;
	}
}

void
run_block(size_t dynamic, size_t granted)
{
	static unsigned order[MAX_THREADS];
	size_t declared;
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
			struct fiber *f =
			    &fibers[order[i + first < threads ? i + first : i + first - threads]];

			if (!f->live || (f->waits != NULL && *f->waits == f->seen))
				continue;
			enter(f);
			moved = true;
			left -= !f->live;
		}
		if (!moved && left > 0)
			die("%u of %u threads wait for others that will not come", left, threads);
	}
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
		dynamic_shared = dynamic > 0 ? (unsigned char *)poisoned(dynamic, 1024) : NULL;
		run_block(dynamic, granted);
		free(dynamic_shared);
	}
	check_margins();
	cover();
	kernel = "no kernel";
}

} // namespace emulator
