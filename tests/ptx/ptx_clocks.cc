/* ptx_clocks.cc - races in shared memory where threads wait at other barriers than __syncthreads()
 *
 * Time is counted over all threads, and grows when one of them tells something. A thread knows of
 * each other thread up to which time that one's accesses come before its own: it learns that at
 * barriers from those who have arrived there (vector clocks). An access races with the last write
 * to the same 4 bytes, or with a warp's last read of them, if it does not know of it. */
#include <stdlib.h>

#include <algorithm>
#include <deque>

#include "tests/ptx/ptx_hopper.h"

namespace ptx {

enum { MOST_WARPS = emulator::MAX_THREADS / 32 };
constexpr u8 ALL_OF_WARP = 32, SOME_OF_WARP = 33;

struct place {
	u32 wrote;
	u16 writer;
	u16 copying;                   /* the thread whose cp.async is on its way, plus 1 */
	u32 read[MOST_WARPS];          /* the last time */
	u8 reader[MOST_WARPS];         /* lane, or all together, or several */
	struct lanes *lanes[MOST_WARPS];       /* when, of several; 0: not */
};
struct lanes {
	u32 read[32];
};

bool clocked;
u32 clock_now = 1;
static u32 block_start = 1;
static struct knowledge known[emulator::MAX_THREADS];
static struct knowledge of_block, of_warp[MOST_WARPS];
static u32 passed_block, fenced[emulator::MAX_THREADS];
static unsigned leaving[MOST_WARPS];
static std::deque<struct knowledge> told;
static std::deque<struct lanes> several;       /* of this block */
static struct place of_dynamic[emulator::MOST_SHARED / 4], of_static[(64 << 10) / 4];

static unsigned
threads(void)
{
	return emulator::block_dim.x * emulator::block_dim.y * emulator::block_dim.z;
}

void
begin_vector_clocks(void)
{
	clocked = true;
	block_start = ++clock_now;
	for (unsigned i = 0; i < threads(); i++)
		std::fill_n(known[i].until, threads(), block_start);
	std::fill_n(leaving, MOST_WARPS, 0);
	passed_block = 0;
	told.clear();
	several.clear();
	clock_now++;
}

struct knowledge *
new_knowledge(void)
{
	told.push_back({});
	return &told.back();
}

static void
join(struct knowledge *to, const struct knowledge *from)
{
	for (unsigned i = 0; i < threads(); i++)
		to->until[i] = std::max(to->until[i], from->until[i]);
}

void
tell(struct knowledge *k)
{
	join(k, &known[emulator::current->number]);
	k->until[emulator::current->number] = clock_now++;
}

void
learn(const struct knowledge *k)
{
	join(&known[emulator::current->number], k);
}

bool
knows(unsigned me, unsigned first, unsigned n, u32 at)
{
	const u32 *until = known[me].until;

	for (unsigned i = first; i < first + n && i < threads(); i++)
		if (i != me && at > until[i])
			return false;
	return at > block_start;
}

void
fence_proxy(void)
{
	fenced[emulator::current->number] = clock_now++;
}

void
pass_block(u32 nth)
{
	if (nth != passed_block) {             /* the first that leaves: all have arrived */
		std::fill_n(of_block.until, threads(), clock_now++);
		passed_block = nth;
	}
	learn(&of_block);
}

void
pass_warp(void)
{
	const unsigned warp = emulator::current->number / 32, first = warp * 32;

	if (leaving[warp] == 0) {
		of_warp[warp] = {};
		for (unsigned i = first; i < first + 32; i++) {
			join(&of_warp[warp], &known[i]);
			of_warp[warp].until[i] = clock_now;
		}
		clock_now++;
		leaving[warp] = 32;
	}
	leaving[warp]--;
	learn(&of_warp[warp]);
}

/* ---- accesses ---- */

/* Does thread me know that the last reads by that warp come before? */
static bool
knows_reads(unsigned me, const struct place *p, unsigned warp)
{
	const u32 *until = known[me].until + 32 * warp, when = p->read[warp];
	const u8 reader = p->reader[warp];

	if (when <= block_start || (reader < 32 && warp * 32 + reader == me))
		return true;
	if (reader < 32)
		return when <= until[reader];
	if (reader == ALL_OF_WARP)             /* any of its lanes can tell */
		return warp == me / 32 || when <= *std::max_element(until, until + 32);
	for (unsigned i = 0; i < 32; i++)
		if (warp * 32 + i != me && p->lanes[warp]->read[i] > until[i])
			return false;
	return true;
}

static void
clocked_read(struct place *p, int how, unsigned me)
{
	const unsigned warp = me / 32, lane = me % 32;
	const u8 reader = how == WARP_READ ? ALL_OF_WARP : (u8)lane, last = p->reader[warp];

	if (knows_reads(me, p, warp)) {
		p->reader[warp] = reader;
	} else if (last != reader) {
		if (last != SOME_OF_WARP) {
			several.push_back({});
			p->lanes[warp] = &several.back();
			p->reader[warp] = SOME_OF_WARP;
			for (unsigned i = 0; i < 32; i++)
				if (last == ALL_OF_WARP || last == i)
					p->lanes[warp]->read[i] = p->read[warp];
		}
		p->lanes[warp]->read[lane] = clock_now;
	}
	p->read[warp] = clock_now;
}

void
clocked_access(u64 address, int how, int line)
{
	static const char *const words[] = { "a read", "a write", "an atomic", "a cp.async", "",
		"a read by wgmma" };
	const unsigned me = emulator::current->number, warps = (threads() + 31) / 32;
	const unsigned long at = (unsigned long)address;
	const bool reads = how == READ || how == WARP_READ;
	struct place *p;

	p = address < DYNAMIC ? &of_static[(address - STATIC) / 4] :
	    &of_dynamic[(address - DYNAMIC) / 4];
	if (how != ARRIVED) {
		if (p->wrote > block_start && p->copying != 0)
			fault(line, "RACE: %s of shared memory at %#lx, to which a cp.async of "
			    "thread %u is on its way", words[how], at, p->copying - 1);
		if (p->writer != me && p->wrote > known[me].until[p->writer])
			fault(line, "RACE: %s of shared memory at %#lx behind a write by thread %u",
			    words[how], at, p->writer);
	}
	for (unsigned w = 0; w < warps && !reads && how != ARRIVED; w++)
		if (!knows_reads(me, p, w))
			fault(line, "RACE: %s of shared memory at %#lx behind a read by warp %u",
			    words[how], at, w);
	if (how == WARP_READ && p->wrote > block_start && p->wrote > fenced[p->writer])
		fault(line, "NOT FENCED: wgmma reads shared memory at %#lx, which thread %u has "
		    "written without fence.proxy.async", at, p->writer);
	if (reads) {
		clocked_read(p, how, me);
		return;
	}
	p->wrote = clock_now;
	p->writer = (u16)me;
	p->copying = how == COPY ? (u16)(me + 1) : 0;
}

} // namespace ptx
