/* emulator_memory.cc - device memory, shared memory, pinned memory
 *
 * Device memory is one range of addresses that is protected except while a kernel or a copy
 * runs: host code that dereferences a device pointer dies. New allocations, and shared memory
 * at the start of a block, are filled with NaNs. Behind each allocation there are guard
 * bytes, which are checked after each kernel and, under AddressSanitizer, poisoned.
 *
 * A pool keeps what is freed: it is not free for anybody else until the pool is trimmed. Memory
 * that is freed in the order of a stream becomes NaNs when the stream comes to it. */
#include "tests/cuda/emulator.h"

#include <stdlib.h>
#include <sys/mman.h>

#include <map>
#include <set>

#ifdef ASAN
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(p, n) ((void)0)
#define ASAN_UNPOISON_MEMORY_REGION(p, n) ((void)0)
#endif

struct emulated_pool {
	size_t used, reserved;         /* bytes; reserved: that the device has given so far */
};

namespace emulator {

char *range;

namespace {

constexpr size_t ALIGN = 256, MARGIN = 256, HUGE_PAGE = 2 << 20;
constexpr unsigned char MARK = 0xa5;

struct piece {
	size_t bytes, whole;
	struct emulated_pool *pool;    /* NULL: none */
};
std::map<char *, struct piece> pieces;
std::map<char *, size_t> gaps;         /* free space: no two adjacent, none at range_end */
char *range_end;
size_t in_use;                         /* bytes that nobody else can have: with pools' */
std::set<struct emulated_pool *> pools;
int opened, key = -1;                  /* protection key of the range; -1: not supported */
std::map<char *, size_t> pinned;

enum { MOST_PLACES = 16 };

struct place {
	const void *key;
	void *at;
	size_t size;
} places[MOST_PLACES];
unsigned n_places;
std::map<const void *, size_t> granted;        /* dynamic shared memory, to kernels */

/* Without protection keys each kernel and copy needs two mprotect(), whose time is
 * proportional to the pages that change. So protection changes in whole huge pages: Linux
 * would split a huge page in whose middle protection ends, and never join the parts again. */
void
make_range(void)
{
	char *at = (char *)mmap(NULL, RANGE + HUGE_PAGE, PROT_NONE,
	    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	range = range_end = at + (HUGE_PAGE - (uintptr_t)at % HUGE_PAGE) % HUGE_PAGE;
	madvise(range, RANGE, MADV_HUGEPAGE);
	if ((key = pkey_alloc(0, PKEY_DISABLE_ACCESS)) >= 0 &&
	    pkey_mprotect(range, RANGE, PROT_READ | PROT_WRITE, key) != 0)
		key = -1;
}

void
protect(int how)
{
	const size_t used = (size_t)(range_end - range);

	if (used > 0)
		mprotect(range, (used + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE, how);
}

/* First fit, so that the range stays short; NULL: no space. */
char *
take(size_t whole)
{
	char *at = range_end;

	for (const auto &[from, bytes] : gaps)
		if (bytes >= whole) {
			const size_t left = bytes - whole;

			at = from;
			gaps.erase(at);
			if (left > 0)
				gaps[at + whole] = left;
			return at;
		}
	if (whole > RANGE - (size_t)(range_end - range))
		return NULL;
	range_end += whole;
	return at;
}

void
give_back(char *at, size_t whole)
{
	auto after = gaps.lower_bound(at);

	if (after != gaps.end() && at + whole == after->first) {
		whole += after->second;
		after = gaps.erase(after);
	}
	if (after != gaps.begin() && std::prev(after)->first + std::prev(after)->second == at) {
		at = std::prev(after)->first;
		whole += std::prev(after)->second;
		gaps.erase(at);
	}
	if (at + whole == range_end)
		range_end = at;
	else
		gaps[at] = whole;
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
	else
		protect(PROT_READ | PROT_WRITE);
}

void
cover(void)
{
	if (--opened > 0)
		return;
	if (key >= 0)
		pkey_set(key, PKEY_DISABLE_ACCESS);
	else
		protect(PROT_NONE);
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
	size_t held = in_use + pools.size();

	for (const struct emulated_pool *pool : pools)
		held -= pool->reserved - pool->used;
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
allocation_of(const void *p, const char **from, const char **to)
{
	const char *c = (const char *)p;

	if (range == NULL || c < range || c >= range_end)
		return false;
	auto after = pieces.upper_bound((char *)p);
	if (after == pieces.begin())
		return false;
	--after;
	*from = after->first;
	*to = after->first + after->second.bytes;
	return c < after->first + after->second.whole;
}

bool
is_pinned(const void *p, size_t bytes)
{
	auto after = pinned.upper_bound((char *)p);

	return after != pinned.begin() && (const char *)p + bytes <=
	    std::prev(after)->first + std::prev(after)->second;
}

void
load_pinned(const void *p, size_t bytes)
{
	if (!is_pinned(p, bytes))
		die("%zu bytes at %p are read from the host: they are not pinned", bytes, p);
	total.read_bytes += bytes;
}

void
store_pinned(void *p, size_t bytes)
{
	if (!is_pinned(p, bytes))
		die("%zu bytes at %p are written to the host: they are not pinned", bytes, p);
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

/* pool NULL: none */
static cudaError_t
allocate(void **p, size_t bytes, struct emulated_pool *pool)
{
	const size_t whole = (bytes + MARGIN + ALIGN - 1) / ALIGN * ALIGN;
	const size_t kept = pool != NULL ? pool->reserved - pool->used : 0;
	const size_t more = bytes > kept ? bytes - kept : 0;
	char *at;

	if (const cudaError_t e = wanted(pool != NULL ? "cudaMallocFromPoolAsync" : "cudaMalloc");
	    e != cudaSuccess)
		return told(e == cudaErrorIllegalAddress ? e : cudaErrorMemoryAllocation);
	if (more > device_bytes() || in_use > device_bytes() - more)
		return told(cudaErrorMemoryAllocation);
	if (range == NULL)
		make_range();
	if ((at = take(whole)) == NULL)
		return told(cudaErrorMemoryAllocation);
	pieces[at] = { bytes, whole, pool };
	in_use += more;
	if (pool != NULL) {
		pool->used += bytes;
		pool->reserved += more;
	}
	uncover();
	ASAN_UNPOISON_MEMORY_REGION(at, whole);
	memset(at, 0xff, bytes);
	memset(at + bytes, MARK, whole - bytes);
	ASAN_POISON_MEMORY_REGION(at + bytes, whole - bytes);
	cover();
	if (note_allocated != NULL)
		note_allocated(at, bytes);
	*p = at;
	return cudaSuccess;
}

cudaError_t
cudaMalloc(void **p, size_t bytes)
{
	ALONE();
	*p = NULL;
	if (invalidates_capture(cudaErrorStreamCaptureUnsupported))
		return cudaErrorStreamCaptureUnsupported;
	if (bytes == 0)
		return cudaSuccess;
	total.blocking++;
	return allocate(p, bytes, NULL);
}

/* The bytes are no longer its user's. */
static struct piece &
given_back(const char *call, void *p)
{
	const auto found = pieces.find((char *)p);

	if (found == pieces.end())
		die("%s(%p): not allocated", call, p);
	if (found->second.pool != NULL)
		found->second.pool->used -= found->second.bytes;
	else
		in_use -= found->second.bytes;
	return found->second;
}

/* The bytes are no longer there. */
void
emulator::release(void *p)
{
	const auto found = pieces.find((char *)p);

	uncover();
	memset(p, 0xff, found->second.bytes);
	cover();
	ASAN_POISON_MEMORY_REGION(p, found->second.whole);
	give_back((char *)p, found->second.whole);
	pieces.erase(found);
}

cudaError_t
cudaFree(void *p)
{
	ALONE();
	if (p == NULL)
		return cudaSuccess;
	if (invalidates_capture(cudaErrorStreamCaptureUnsupported))
		return cudaErrorStreamCaptureUnsupported;
	total.blocking++;
	finish_all();
	given_back("cudaFree", p);
	release(p);
	return cudaSuccess;
}

/* ---- pools ---- */

cudaError_t
cudaMemPoolCreate(cudaMemPool_t *pool, const cudaMemPoolProps *how)
{
	ALONE();
	*pool = NULL;
	if (const cudaError_t e = failure(); e != cudaSuccess)
		return e;
	if (how->allocType != cudaMemAllocationTypePinned ||
	    how->location.type != cudaMemLocationTypeDevice || how->location.id != device)
		die("a pool that is not of the current device");
	pools.insert(*pool = new emulated_pool());
	return cudaSuccess;
}

cudaError_t
cudaMemPoolDestroy(cudaMemPool_t pool)
{
	ALONE();
	if (pool->used > 0 || pools.erase(pool) == 0)
		die("a pool of which %zu bytes are in use is destroyed", pool->used);
	in_use -= pool->reserved;
	delete pool;
	return cudaSuccess;
}

cudaError_t
cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr which, void *value)
{
	ALONE();
	if (which != cudaMemPoolAttrReleaseThreshold || *(uint64_t *)value != UINT64_MAX)
		die("a pool that does not keep what is freed");        /* not used */
	return failure();
}

cudaError_t
cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr which, void *value)
{
	ALONE();
	*(uint64_t *)value = which == cudaMemPoolAttrUsedMemCurrent ? pool->used : pool->reserved;
	return failure();
}

cudaError_t
cudaMemPoolTrimTo(cudaMemPool_t pool, size_t)
{
	ALONE();
	in_use -= pool->reserved - pool->used;
	pool->reserved = pool->used;
	return failure();
}

cudaError_t
cudaMallocFromPoolAsync(void **p, size_t bytes, cudaMemPool_t pool, cudaStream_t s)
{
	ALONE();
	*p = NULL;
	if (capturing(s))
		die("an allocation in a graph");                /* possible, but not used */
	return bytes == 0 ? cudaSuccess : allocate(p, bytes, pool);
}

cudaError_t
cudaFreeAsync(void *p, cudaStream_t s)
{
	ALONE();
	if (capturing(s))
		die("memory is freed in a graph");
	given_back("cudaFreeAsync", p);
	enqueue_release(s, p);
	return cudaSuccess;
}

/* ---- pinned memory ---- */

cudaError_t
cudaMallocHost(void **p, size_t bytes)
{
	ALONE();
	total.blocking++;
	*p = NULL;
	if (invalidates_capture(cudaErrorStreamCaptureUnsupported))
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
	total.blocking += p != NULL;
	if (invalidates_capture(cudaErrorStreamCaptureUnsupported))
		return cudaErrorStreamCaptureUnsupported;
	finish_all();
	if (p != NULL && pinned.erase((char *)p) == 0)
		die("cudaFreeHost(%p): not allocated", p);
	free(p);
	return cudaSuccess;
}

cudaError_t
cudaDeviceSynchronize(void)
{
	ALONE();
	if (invalidates_capture(cudaErrorStreamCaptureUnsupported))
		return cudaErrorStreamCaptureUnsupported;
	finish_all();
	return cudaSuccess;
}

cudaError_t
cudaHostRegister(void *p, size_t bytes, unsigned)
{
	ALONE();
	total.blocking++;
	if (invalidates_capture(cudaErrorStreamCaptureUnsupported))
		return cudaErrorStreamCaptureUnsupported;
	if (const cudaError_t e = failure(); e != cudaSuccess)
		return e;
	if (is_pinned(p, 1))
		die("cudaHostRegister(%p): pinned already", p);
	pinned[(char *)p] = bytes;
	return cudaSuccess;
}

/* Does not wait for copies: unpinning memory that is still being copied is a bug. */
cudaError_t
cudaHostUnregister(void *p)
{
	ALONE();
	total.blocking++;
	if (invalidates_capture(cudaErrorStreamCaptureUnsupported))
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
