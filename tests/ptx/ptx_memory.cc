/* ptx_memory.cc - what addresses of kernels are: bounds, alignment; copies to shared memory
 *
 * An access that is out of bounds or not aligned to its size ends the program. */
#include <stdio.h>
#include <stdlib.h>

#include <vector>

#include "tests/ptx/ptx_runtime.h"

extern "C" unsigned long cuda_launches;

namespace ptx {

static struct constant {
	const char *from;
	size_t bytes;
} constants[16];
static unsigned n_constants;

registered::registered(const void *from, size_t bytes)
{
	if (n_constants == sizeof constants / sizeof constants[0])
		abort();
	constants[n_constants++] = { (const char *)from, bytes };
}

/* ---- shared memory ---- */

void *
shared_at(u64 address, u32 bytes, int line)
{
	static const char place = 0;
	const u32 declared = running->shared_bytes;

	if (address % bytes != 0)
		stop(line, "%u bytes of shared memory at %#lx: not aligned", bytes,
		    (unsigned long)address);
	if (address >= DYNAMIC && address - DYNAMIC + bytes <= emulator::dynamic_bytes)
		return emulator::dynamic_shared + (address - DYNAMIC);
	if (address >= STATIC && address - STATIC + bytes <= declared)
		return (char *)emulator::shared(&place, declared, 1024) + (address - STATIC);
	stop(line, "%u bytes of shared memory at %#lx: out of bounds of %u static ones from %#lx "
	    "and %zu dynamic ones from %#lx", bytes, (unsigned long)address, declared,
	    (unsigned long)STATIC, emulator::dynamic_bytes, (unsigned long)DYNAMIC);
}

/* ---- device memory ---- */

/* Of memory that kernels may read besides the device's: the host's that is pinned, constants of
 * the module, the kernel's arguments. */
static bool
elsewhere(const char *p, u32 bytes)
{
	for (unsigned i = 0; i < n_constants; i++)
		if (p >= constants[i].from && p + bytes <= constants[i].from + constants[i].bytes)
			return true;
	if (in_arguments(p, bytes))
		return true;
	if (!emulator::is_pinned(p, bytes))
		return false;
	emulator::total.read_bytes += bytes;
	return true;
}

/* Dies when the bytes are in no memory that a kernel may use. Is it the device's? */
static bool
find(u64 address, u32 bytes, u32 align, int line)
{
	struct span {
		const char *from, *to;
	};
	static struct span recent[8], s;
	static unsigned next;
	static unsigned long launch;
	const char *p = (const char *)(uintptr_t)address;

	if (address % align != 0)
		stop(line, "%u bytes at %p: not aligned", bytes, (const void *)p);
	if (launch != cuda_launches)
		memset(recent, 0, sizeof recent);
	launch = cuda_launches;
	for (const struct span &known : recent)
		if (p >= known.from && p + bytes <= known.to)
			return true;
	if (emulator::allocation_of(p, &s.from, &s.to)) {
		if (p + bytes > s.to)
			stop(line, "%u bytes at %zu: out of bounds of %zu bytes of device memory",
			    bytes, (size_t)(p - s.from), (size_t)(s.to - s.from));
		recent[next++ % 8] = s;
		return true;
	}
	if (!elsewhere(p, bytes))
		stop(line, "%u bytes at %p: in no memory of the device", bytes, (const void *)p);
	return false;
}

void *
global_at(u64 address, u32 bytes, int line)
{
	if (find(address, bytes, bytes, line) && emulator::pdl_covered)
		stop(line, "device memory is used before griddepcontrol.wait");
	return (void *)(uintptr_t)address;
}

const unsigned char *
param_at(const unsigned char *param, u32 size, u64 address, u32 bytes, int line)
{
	const u64 at = address - (u64)(uintptr_t)param;

	if (at > size || bytes > size - at)
		stop(line, "%u bytes at %ld: out of bounds of %u bytes of arguments", bytes,
		    (long)at, size);
	return param + at;
}

void *
local_at(unsigned char *array, u32 size, u64 address, u32 bytes, int line)
{
	const u64 at = address - (u64)(uintptr_t)array;

	if (at > size || bytes > size - at || at % bytes != 0)
		stop(line, "%u bytes at %ld: out of bounds of %u bytes of local memory", bytes,
		    (long)at, size);
	return array + at;
}

u32
load_l2(u64 address, int line)
{
	find(address, 4, 4, line);
	return emulator::load_l2((const u32 *)(uintptr_t)address);
}

void
prefetch(u64 address)
{
	emulator::prefetch_l2((const void *)(uintptr_t)address);
}

/* ---- copies to shared memory ---- */

struct copy {
	u64 to, from;
	u32 size, group;
	int line;
};
static std::vector<struct copy> copies[emulator::MAX_THREADS];
static u32 group[emulator::MAX_THREADS];

void
forget_copies(void)
{
	for (int i = 0; i < emulator::MAX_THREADS; i++) {
		copies[i].clear();
		group[i] = 0;
	}
}

void
cp_async(u64 to, u64 from, u32 size, int line)
{
	const unsigned me = emulator::current->number;

	if (size > 16)
		stop(line, "cp.async of %u bytes", size);
	shared_at(to, 16, line);
	if (size > 0) {
		if (find(from, size, 16, line) && emulator::pdl_covered)
			stop(line, "device memory is used before griddepcontrol.wait");
		note_global(from, size, READ, line);
	}
	note_shared(to, 16, COPY, line);
	copies[me].push_back({ to, from, size, group[me], line });
}

void
cp_commit(void)
{
	group[emulator::current->number]++;
}

void
cp_wait(u32 all_but)
{
	const unsigned me = emulator::current->number;
	size_t done = 0;

	for (const struct copy &c : copies[me]) {
		if (c.group + all_but >= group[me])
			break;
		char *to = (char *)shared_at(c.to, 16, c.line);
		memset(to, 0, 16);
		memcpy(to, (const void *)(uintptr_t)c.from, c.size);
		note_arrival(c.to);
		done++;
	}
	copies[me].erase(copies[me].begin(), copies[me].begin() + (ptrdiff_t)done);
}

} // namespace ptx
