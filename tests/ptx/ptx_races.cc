/* ptx_races.cc - races, and reads of shared memory that was never written
 *
 * A cell for each 4 bytes of shared memory, and for each 2 of device memory, has the last write
 * and the reads since: when, and by whom. When is an epoch: a number that grows with each barrier
 * of the block, over all blocks and launches, so that epochs of different blocks differ. Two
 * accesses of a block are ordered when they have different epochs, are of one thread, or of one
 * warp with a bar.warp.sync between. Two blocks of a launch are never ordered.
 *
 * What is not exact: of accesses to different bytes of one cell by several threads only the last
 * is known.
 * $PTX_NO_RACES, of any value: nothing of this is checked. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "tests/ptx/ptx_hopper.h"

namespace ptx {

/* Who: a thread, all lanes of a warp (WARP + its number), or threads of several warps */
constexpr u16 WARP = 0x4000, SEVERAL = 0x8000;

struct cell {
	u32 wrote, read;               /* epochs */
	u32 read_before;               /* the last read by another block than that of `read` */
	u32 wrote_at, read_at;         /* times of ptx_clocks.cc */
	u16 writer, reader;
	u16 write_sync, read_sync;     /* how many bar.warp.sync their warps had passed */
	/* which bytes: of the last write, of `read`, of `read_before`, written in this block */
	u8 write_mask : 4, read_mask : 4, before_mask : 4, valid : 4;
	bool atomic;                   /* the last write */
	u16 copying;                   /* the thread whose cp.async is on its way here, plus 1 */
};

static const bool off = getenv("PTX_NO_RACES") != NULL;
static u32 launch_base = 1, block_base = 1, newest = 1;
static u32 epoch[emulator::MAX_THREADS];
static u16 syncs[emulator::MAX_THREADS];
static struct cell of_dynamic[emulator::MOST_SHARED / 4], of_static[(64 << 10) / 4];

void
begin_clocks(bool new_launch)
{
	clocked = false;
	block_base = ++newest;
	if (new_launch)
		launch_base = block_base;
	for (int i = 0; i < emulator::MAX_THREADS; i++) {
		epoch[i] = block_base;
		syncs[i] = 0;
	}
}

void
tick_warp(void)
{
	syncs[emulator::current->number]++;
	if (clocked)
		pass_warp();
}

void
tick_block(void)
{
	u32 &mine = epoch[emulator::current->number];

	if (++mine > newest)
		newest = mine;
	if (clocked)
		pass_block(mine);
}

/* ---- order ---- */

/* Does thread me know, from mbarriers or numbered barriers, that an access at that time comes
 * before? Of several threads all must have told something since the last one's. */
static bool
told_before(u32 at, u16 who, unsigned me)
{
	if (who & SEVERAL)
		return knows(me, 0, emulator::MAX_THREADS, at);
	return who & WARP ? knows(me, (who & ~WARP) * 32u, 32, at) : knows(me, who, 1, at);
}

/* Does an access of this block come before what thread `me` does now? */
static inline bool
before(u32 when, u16 who, u16 sync, u32 at, unsigned me)
{
	if (when < epoch[me] || who == me)
		return true;
	if (!(who & SEVERAL) && sync < syncs[me] &&
	    (who & WARP ? (who & ~WARP) == (int)(me / 32) : who / 32 == (int)(me / 32)))
		return true;
	return clocked && told_before(at, who, me);
}

static const char *
words_of(enum access how)
{
	static const char *const words[] = { "a read", "a write", "an atomic", "a cp.async" };

	return words[how];
}

struct at {
	const char *memory;
	u64 address;
	int line;
};

/* since: the first epoch that counts */
static void
check(const struct cell *c, u8 mask, enum access how, u32 since, const struct at *at, unsigned me)
{
	const unsigned long address = (unsigned long)at->address;
	const bool both_atomic = how == ATOMIC && c->atomic;

	if (c->copying != 0 && c->wrote >= block_base)
		fault(at->line, "RACE: %s of %s memory at %#lx, to which a cp.async of thread %u "
		    "is on its way", words_of(how), at->memory, address, c->copying - 1);
	if (c->wrote >= since && c->write_mask & mask && !both_atomic) {
		if (c->wrote < block_base)
			fault(at->line, "RACE between blocks: %s of %s memory at %#lx behind a "
			    "write", words_of(how), at->memory, address);
		else if (!before(c->wrote, c->writer, c->write_sync, c->wrote_at, me))
			fault(at->line, "RACE: %s of %s memory at %#lx behind a write by thread %d",
			    words_of(how), at->memory, address, c->writer);
	}
	if (how == READ)
		return;
	if ((c->read_before >= since && c->before_mask & mask) ||
	    (c->read >= since && c->read < block_base && c->read_mask & mask))
		fault(at->line, "RACE between blocks: %s of %s memory at %#lx behind a read",
		    words_of(how), at->memory, address);
	else if (c->read >= since && c->read_mask & mask &&
	    !before(c->read, c->reader, c->read_sync, c->read_at, me))
		fault(at->line, "RACE: %s of %s memory at %#lx behind a read by %s %d",
		    words_of(how), at->memory, address, c->reader & WARP ? "warp" :
		    c->reader & SEVERAL ? "several warps," : "thread",
		    c->reader & ~(WARP | SEVERAL));
}

/* Reads that are ordered before this one need not be known any more. */
static void
note_read(struct cell *c, u8 mask, u32 since, unsigned me)
{
	const u16 warp = (u16)(WARP | me / 32);
	const bool together = c->read == epoch[me] && c->read_mask & mask;

	if (c->read >= since && c->read < block_base) {
		c->before_mask = c->read_before >= since ? c->before_mask | c->read_mask :
		    c->read_mask;
		c->read_before = c->read;
	}
	if (together && !before(c->read, c->reader, c->read_sync, c->read_at, me)) {
		c->read_mask |= mask;
		if (c->reader < WARP && c->reader / 32 == (int)(me / 32))
			c->reader = warp;
		else if (c->reader != warp)
			c->reader = SEVERAL;
	} else {
		c->read_mask = c->read == epoch[me] && c->reader == me ? c->read_mask | mask : mask;
		c->reader = (u16)me;
	}
	c->read = epoch[me];
	c->read_at = clock_now;
	c->read_sync = syncs[me];
}

static void
note_write(struct cell *c, u8 mask, enum access how, unsigned me)
{
	const u16 who = how == ATOMIC ? SEVERAL : (u16)me;

	c->valid = c->wrote < block_base ? mask : c->valid | mask;
	c->write_mask = c->wrote == epoch[me] && c->writer == who ? c->write_mask | mask : mask;
	c->wrote = epoch[me];
	c->wrote_at = clock_now;
	c->writer = who;
	c->write_sync = syncs[me];
	c->atomic = how == ATOMIC;
	c->copying = how == COPY ? (u16)(me + 1) : 0;
}

/* ---- shared memory ---- */

static inline struct cell *
shared_cell(u64 address)
{
	return address >= DYNAMIC ? &of_dynamic[(address - DYNAMIC) / 4] :
	    &of_static[(address - STATIC) / 4];
}

void
note_shared(u64 address, u32 bytes, enum access how, int line)
{
	const unsigned me = emulator::current->number;
	const u8 mask = bytes >= 4 ? 15 : (u8)(((1u << bytes) - 1) << address % 4);
	struct cell *c = shared_cell(address);
	struct at at = { "shared", address, line };

	if (off)
		return;
	for (u32 i = 0; i < (bytes + 3) / 4; i++, c++, at.address += 4) {
		if (how != WRITE && how != COPY && (c->wrote < block_base || mask & ~c->valid))
			fault(line, "UNINITIALISED: %s of shared memory at %#lx", words_of(how),
			    (unsigned long)at.address);
		if (clocked)
			clocked_access(at.address & ~(u64)3, how, line);
		else
			check(c, mask, how, block_base, &at, me);
		if (how == READ)
			note_read(c, mask, block_base, me);
		else
			note_write(c, mask, how, me);
	}
}

void
note_arrival(u64 address)
{
	const unsigned me = emulator::current->number;
	struct cell *c = shared_cell(address);

	for (u32 i = 0; i < 4 && !off; i++) {
		note_write(c + i, 15, WRITE, me);
		if (clocked)
			clocked_access(address + 4 * i, ARRIVED, 0);
	}
}

/* ---- device memory ---- */

static struct cell *
global_cell(u64 address)
{
	static struct cell *all;

	if (all == NULL) {
		all = (struct cell *)mmap(NULL, emulator::RANGE / 2 * sizeof *all,
		    PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (all == MAP_FAILED) {
			perror("ptx: no address space for races");
			abort();
		}
	}
	return all + (address - (u64)(uintptr_t)emulator::range) / 2;
}

void
note_global(u64 address, u32 bytes, enum access how, int line)
{
	const unsigned me = emulator::current->number;
	const u8 mask = bytes >= 2 ? 3 : (u8)(1u << address % 2);
	struct at at = { "device", address, line };

	if (off || address - (u64)(uintptr_t)emulator::range >= emulator::RANGE)
		return;                /* the host's, or an argument */
	if (how != WRITE)
		check_written(address, bytes, words_of(how), line);
	if (how != READ)
		set_written(address, bytes);
	struct cell *c = global_cell(address);
	for (u32 i = 0; i < (bytes + 1) / 2; i++, c++, at.address += 2) {
		check(c, mask, how, launch_base, &at, me);
		if (how == READ)
			note_read(c, mask, launch_base, me);
		else
			note_write(c, mask, how, me);
	}
}

} // namespace ptx
