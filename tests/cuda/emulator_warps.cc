/* emulator_warps.cc - warp shuffles and barriers, and asynchronous copies (cp.async) */
#include "tests/cuda/emulator.h"

#include <vector>

namespace emulator {
namespace {

struct warp {
	struct barrier barrier;
	unsigned mask, arrived;        /* of the current exchange */
	uint32_t slot[2][32][8];
};

struct warp warps[MAX_THREADS / 32];

/* Pending copies of each thread; groups: the number of the open group */
struct async_copy {
	void *to;
	const void *from;
	unsigned n;
	unsigned group;
};
std::vector<struct async_copy> copies[MAX_THREADS];
unsigned groups[MAX_THREADS];

} // namespace

void
start_warps(unsigned threads)
{
	unsigned i;

	for (i = 0; i < (threads + 31) / 32; i++) {
		warps[i].barrier = {};
		warps[i].arrived = 0;
	}
	for (i = 0; i < threads; i++) {
		copies[i].clear();
		groups[i] = 0;
	}
}

/* Does the current thread wait for others of the mask? */
static bool
waits_for_warp(struct warp *w, unsigned mask)
{
	if (!(mask >> lane & 1))
		die("a lane is not in the mask that it gives, %#x", mask);
	if (w->arrived == 0) {
		w->mask = mask;
		w->barrier.expected = (unsigned)__builtin_popcount(mask);
	} else if (w->mask != mask)
		die("lanes of a warp meet with masks %#x and %#x", w->mask, mask);
	w->arrived |= 1u << lane;
	if (w->arrived == mask)
		w->arrived = 0;
	return !arrive(&w->barrier);
}

JUMPS void
sync_warp(unsigned mask)
{
	if (waits_for_warp(&warps[current->number / 32], mask))
		SWITCH();
}

JUMPS const uint32_t (*exchange(const void *mine, int n, unsigned mask))[8]
{
	struct warp *w = &warps[current->number / 32];
	unsigned phase = current->phase ^= 1;

	if (n == 1)                    /* so that it is one move */
		memcpy(w->slot[phase][lane], mine, 4);
	else
		memcpy(w->slot[phase][lane], mine, 4 * (size_t)n);
	if (waits_for_warp(w, mask))
		SWITCH();
	return w->slot[phase];
}

void
cp_async16_part(void *to, const void *from, unsigned n)
{
	const unsigned t = current->number;

	if ((uintptr_t)to % 16 != 0 || n > 16 || (n > 0 && (uintptr_t)from % 16 != 0))
		die("cp_async16 of %u bytes from %p to %p", n, from, to);
	copies[t].push_back({ to, from, n, groups[t] });
}

void
cp_async16(void *to, const void *from, bool valid)
{
	cp_async16_part(to, from, valid ? 16 : 0);
}

void
cp_async_commit(void)
{
	groups[current->number]++;
}

void
cp_async_wait(int all_but)
{
	const unsigned t = current->number;
	size_t done = 0;

	for (const struct async_copy &c : copies[t]) {
		if (c.group + (unsigned)all_but >= groups[t])
			break;
		if (c.n > 0)
			memcpy(c.to, c.from, c.n);
		memset((char *)c.to + c.n, 0, 16 - c.n);
		done++;
	}
	copies[t].erase(copies[t].begin(), copies[t].begin() + (ptrdiff_t)done);
}

} // namespace emulator
