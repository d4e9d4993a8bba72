/* ptx_written.cc - reads of device memory that nobody has written since it was allocated
 *
 * A bit for each byte. Copies within the device copy the bits. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "tests/ptx/ptx_runtime.h"

namespace ptx {

static u8 *bits;

static u8 *
bits_of(u64 address)
{
	if (bits == NULL) {
		bits = (u8 *)mmap(NULL, emulator::RANGE / 8 + 8, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (bits == MAP_FAILED) {
			perror("ptx: no address space for what is written");
			abort();
		}
	}
	return bits + (address - (u64)(uintptr_t)emulator::range) / 8;
}

static inline u32
mask_of(u64 address, u32 bytes)
{
	return ((1u << bytes) - 1) << address % 8;
}

/* At most 16 bytes, aligned to their number */
void
check_written(u64 address, u32 bytes, const char *what, int line)
{
	const u32 mask = mask_of(address, bytes);
	u32 found = 0;

	memcpy(&found, bits_of(address), mask > 255 ? 2 : 1);
	if (mask & ~found)
		fault(line, "UNINITIALISED: %s of device memory at %#lx", what,
		    (unsigned long)address);
}

void
set_written(u64 address, u32 bytes)
{
	const u32 mask = mask_of(address, bytes);
	u8 *p = bits_of(address);

	p[0] |= (u8)mask;
	if (mask > 255)
		p[1] |= (u8)(mask >> 8);
}

static inline bool
is_written(u64 address)
{
	return *bits_of(address) >> address % 8 & 1;
}

static void
set_one(u64 address, bool written)
{
	const u8 bit = (u8)(1u << address % 8);
	u8 *p = bits_of(address);

	*p = written ? *p | bit : *p & ~bit;
}

static bool
is_device(u64 address)
{
	return address - (u64)(uintptr_t)emulator::range < emulator::RANGE;
}

} // namespace ptx

/* Allocations are aligned to 256 bytes, and margins behind them are nobody's. */
void
emulator::note_allocated(const void *p, size_t bytes)
{
	memset(ptx::bits_of((u64)(uintptr_t)p), 0, (bytes + 7) / 8);
}

void
emulator::note_written(const void *to, const void *from, size_t bytes)
{
	const u64 t = (u64)(uintptr_t)to, f = (u64)(uintptr_t)from;
	const bool within = from != NULL && ptx::is_device(f);
	size_t i = 0;

	if (!ptx::is_device(t))
		return;
	for (; i < bytes && (within || (t + i) % 8 != 0); i++)
		ptx::set_one(t + i, !within || ptx::is_written(f + i));
	if (i < bytes)
		memset(ptx::bits_of(t + i), 0xff, (bytes - i) / 8);
	for (i += (bytes - i) / 8 * 8; i < bytes; i++)
		ptx::set_one(t + i, true);
}
