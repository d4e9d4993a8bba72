/* emulator_memory.cc - device memory, shared memory, pinned memory
 *
 * Device memory lies in one range of addresses that cannot be read or written except while a
 * kernel or a copy runs: host code that follows a device pointer dies. What is allocated,
 * and shared memory at the start of a block, is filled with NaNs. Behind each piece of
 * memory there are bytes that nobody may write (looked at after each kernel) or, under
 * AddressSanitizer, touch at all. */
#include "tests/cuda/emulator.h"

#include <stdlib.h>
#include <sys/mman.h>

#include <map>

#ifdef ASAN
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(p, n) ((void)0)
#define ASAN_UNPOISON_MEMORY_REGION(p, n) ((void)0)
#endif

namespace emulator {
namespace {

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
std::map<char *, size_t> pinned;

enum { MOST_PLACES = 16 };

struct place {
	const void *key;
	void *at;
	size_t size;
} places[MOST_PLACES];
unsigned n_places;
std::map<const void *, size_t> granted;        /* dynamic shared memory, to kernels */

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

} // namespace

size_t
device_bytes(void)
{
	const char *text = getenv("KV_EMULATED_MEMORY");

	return text != NULL ? (size_t)strtoul(text, NULL, 10) << 20 : (size_t)16 << 30;
}

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

void *
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
	if (n_places == MOST_PLACES)
		die("more than %d shared variables", MOST_PLACES);
	places[n_places] = { key, poisoned(size, align), size };
	return places[n_places++].at;
}

size_t
end_shared(void)
{
	size_t sum = 0;

	for (; n_places > 0; n_places--) {
		sum += places[n_places - 1].size;
		free(places[n_places - 1].at);
	}
	return sum;
}

size_t
shared_granted(const void *kernel)
{
	const auto found = granted.find(kernel);

	return found == granted.end() ? 0 : found->second;
}

size_t
memory_held(void)
{
	size_t held = in_use;

	for (const auto &[at, bytes] : pinned)
		held += bytes;
	return held;
}

bool
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

bool
is_pinned(const void *p, size_t bytes)
{
	auto after = pinned.upper_bound((char *)p);

	return after != pinned.begin() && (const char *)p + bytes <=
	    std::prev(after)->first + std::prev(after)->second;
}

} // namespace emulator

using namespace emulator;

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
	if (breaks_capture(cudaErrorStreamCaptureUnsupported))
		return cudaErrorStreamCaptureUnsupported;
	if (bytes == 0)
		return cudaSuccess;
	if (const cudaError_t e = failure(); e != cudaSuccess)
		return e == cudaErrorIllegalAddress ? e : cudaErrorMemoryAllocation;
	if (bytes > device_bytes() || in_use > device_bytes() - bytes)
		return told(cudaErrorMemoryAllocation);
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
			return told(cudaErrorMemoryAllocation);
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
	if (breaks_capture(cudaErrorStreamCaptureUnsupported))
		return cudaErrorStreamCaptureUnsupported;
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
	if (breaks_capture(cudaErrorStreamCaptureUnsupported))
		return cudaErrorStreamCaptureUnsupported;
	if (failure() || (*p = malloc(bytes)) == NULL)
		return cudaErrorMemoryAllocation;
	pinned[(char *)*p] = bytes;
	return cudaSuccess;
}

cudaError_t
cudaFreeHost(void *p)
{
	ALONE();
	if (breaks_capture(cudaErrorStreamCaptureUnsupported))
		return cudaErrorStreamCaptureUnsupported;
	finish_all();
	if (p != NULL && pinned.erase((char *)p) == 0)
		die("cudaFreeHost(%p): not allocated", p);
	free(p);
	return cudaSuccess;
}

cudaError_t
cudaHostRegister(void *p, size_t bytes, unsigned)
{
	ALONE();
	if (breaks_capture(cudaErrorStreamCaptureUnsupported))
		return cudaErrorStreamCaptureUnsupported;
	if (const cudaError_t e = failure(); e != cudaSuccess)
		return e;
	if (is_pinned(p, 1))
		die("cudaHostRegister(%p): pinned already", p);
	pinned[(char *)p] = bytes;
	return cudaSuccess;
}

/* It does not wait for copies: who unpins memory that is still copied has not waited. */
cudaError_t
cudaHostUnregister(void *p)
{
	ALONE();
	if (breaks_capture(cudaErrorStreamCaptureUnsupported))
		return cudaErrorStreamCaptureUnsupported;
	if (pinned.erase((char *)p) == 0)
		die("cudaHostUnregister(%p): not pinned", p);
	return cudaSuccess;
}

cudaError_t
cudaFuncSetAttribute(const void *kernel, cudaFuncAttribute, int bytes)
{
	ALONE();
	if (bytes > MOST_SHARED)
		return told(cudaErrorInvalidValue);
	granted[kernel] = (size_t)bytes;
	return cudaSuccess;
}
