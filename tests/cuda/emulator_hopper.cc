/* emulator_hopper.cc - models of Hopper's instructions (gpu/port_hopper.h): mbarriers, numbered
 * barriers, products of warpgroups (wgmma)
 *
 * A product of a warpgroup is computed when its threads wait for it, as late as it may be, from
 * what its operands are then: shared memory that has been written again, or registers of the a
 * operand, spoil it. Until then its result is NaNs. Addresses within a matrix are those of the PTX
 * ISA for swizzling by 128 bytes, whatever the kernel uses. */
#include "tests/cuda/emulator.h"

#include <map>
#include <vector>

namespace emulator {
namespace {

/* ---- barriers ---- */

std::map<const uint64_t *, struct barrier> mbarriers;
struct barrier numbered[16];

struct barrier *
find_mbarrier(const uint64_t *b)
{
	const auto at = mbarriers.find(b);

	if (at == mbarriers.end())
		die("an mbarrier at %p that has not been initialised", (const void *)b);
	return &at->second;
}

/* True: the current thread must SWITCH(). */
bool
waits_for_phase(const uint64_t *b, uint32_t parity)
{
	struct barrier *m = find_mbarrier(b);

	if ((m->generation & 1) != (parity & 1))
		return false;
	wait_at(m);
	return true;
}

bool
waits_at(unsigned number, unsigned threads, bool waits)
{
	struct barrier *b = &numbered[number % 16];

	if (number == 0 || number > 15 || threads % 32 != 0)
		die("barrier %u of %u threads", number, threads);
	if (b->arrived == 0)
		b->expected = threads;
	else if (b->expected != threads)
		die("threads meet at barrier %u, of %u and of %u", number, b->expected, threads);
	if (waits)
		return !arrive(b);
	signal_at(b);
	return false;
}

/* ---- products ---- */

/* The sums of a thread while products add to them, in d when the last of these has ended */
struct sums {
	float *d;
	unsigned pending;
	std::vector<float> at;
};

struct product {
	struct sums *to;
	const uint32_t *a[4];          /* of the four lanes with this thread's rows; NULL: in ... */
	uint64_t a_matrix, b_matrix;   /* ... shared memory */
	bool transposed, adds;
	float (*widen)(uint16_t);
	unsigned group;
};

std::vector<struct product> products[MAX_THREADS];
std::map<float *, struct sums> sums[MAX_THREADS];
unsigned product_groups[MAX_THREADS];

/* Shared addresses, as a descriptor has them, begin here: no matrix is at 0. */
constexpr uint32_t FIRST_ADDRESS = 1024;

/* The element of a matrix at these offsets in bytes, swizzled: bits 4 to 6 of the address by XOR
 * with bits 7 to 9 */
uint16_t
element_at(uint64_t matrix, uint32_t offset)
{
	uint32_t at = ((uint32_t)matrix & 0x3fff) * 16 + offset;
	uint16_t x;

	at ^= (at >> 7 & 7) << 4;
	if (at < FIRST_ADDRESS || at >= FIRST_ADDRESS + MOST_SHARED)
		die("a matrix in shared memory at %#x", at);
	memcpy(&x, dynamic_shared + at - FIRST_ADDRESS, sizeof x);
	return x;
}

uint32_t
stride_of(uint64_t matrix)
{
	return (uint32_t)(matrix >> 32 & 0x3fff) * 16;
}

uint32_t
leading_of(uint64_t matrix)
{
	return (uint32_t)(matrix >> 16 & 0x3fff) * 16;
}

/* Line i (a row of a, a column of b), element k of it */
uint16_t
k_major(uint64_t matrix, unsigned i, unsigned k)
{
	return element_at(matrix, i / 8 * stride_of(matrix) + i % 8 * 128 + k * 2);
}

uint16_t
n_major(uint64_t matrix, unsigned n, unsigned k)
{
	return element_at(matrix, n / 64 * leading_of(matrix) + k / 8 * stride_of(matrix) +
	    k % 8 * 128 + n % 64 * 2);
}

/* a: [2][16], the thread's two rows */
void
load_a(float (*a)[16], const struct product &p)
{
	const unsigned row = current->number / 32 % 4 * 16 + lane / 4;

	for (unsigned i = 0; i < 2; i++)
		for (unsigned k = 0; k < 16; k++)
			a[i][k] = p.widen(p.a[0] == NULL ? k_major(p.a_matrix, row + i * 8, k) :
			    (uint16_t)(p.a[k % 8 / 2][i + k / 8 * 2] >> k % 2 * 16));
}

void
run(const struct product &p)
{
	std::vector<float> &d = p.to->at;
	float a[2][16];

	load_a(a, p);
	for (unsigned e = 0; e < d.size(); e++) {
		const unsigned n = e / 4 * 8 + lane % 4 * 2 + e % 2;
		double sum = 0;

		for (unsigned k = 0; k < 16; k++)
			sum += (double)a[e % 4 / 2][k] * p.widen(p.transposed ?
			    n_major(p.b_matrix, n, k) : k_major(p.b_matrix, n, k));
		d[e] = (float)((p.adds ? d[e] : 0) + sum);
	}
	if (--p.to->pending == 0) {
		memcpy(p.to->d, d.data(), d.size() * sizeof d[0]);
		sums[current->number].erase(p.to->d);
	}
}

void
add_product(float *d, unsigned n, const struct product &p)
{
	const unsigned t = current->number;
	struct sums *s = &sums[t][d];

	if (s->pending++ == 0) {
		s->d = d;
		s->at.assign(d, d + n / 2);
		memset(d, 0xff, n / 2 * sizeof *d);
	}
	products[t].push_back(p);
	products[t].back().to = s;
	products[t].back().group = product_groups[t];
}

void
run_products(unsigned all_but)
{
	const unsigned t = current->number;
	size_t done = 0;

	for (const struct product &p : products[t]) {
		if (p.group + all_but >= product_groups[t])
			break;
		run(p);
		done++;
	}
	products[t].erase(products[t].begin(), products[t].begin() + (ptrdiff_t)done);
}

} // namespace

void
start_hopper(unsigned threads)
{
	mbarriers.clear();
	for (struct barrier &b : numbered)
		b = {};
	for (unsigned i = 0; i < threads; i++) {
		products[i].clear();
		sums[i].clear();
		product_groups[i] = 0;
	}
}

uint32_t
shared_address(const void *p)
{
	const ptrdiff_t at = (const unsigned char *)p - dynamic_shared;

	if (at < 0 || at >= MOST_SHARED)
		die("%p is not in dynamic shared memory", p);
	return FIRST_ADDRESS + (uint32_t)at;
}

void
mbarrier_init(uint64_t *b, uint32_t count)
{
	mbarriers[b] = { 0, 0, count, NULL };
}

void
mbarrier_arrive(uint64_t *b)
{
	signal_at(find_mbarrier(b));
}

JUMPS void
mbarrier_wait(uint64_t *b, uint32_t parity)
{
	if (waits_for_phase(b, parity))
		SWITCH();
}

JUMPS void
bar(unsigned number, unsigned threads, bool waits)
{
	if (waits_at(number, threads, waits))
		SWITCH();
}

void
wgmma(float *d, unsigned n, const uint32_t *a, uint64_t a_matrix, uint64_t b_matrix,
    bool transposed, bool adds, float (*widen)(uint16_t))
{
	const uint32_t (*all)[8] = exchange(&a, 2, ~0u);
	struct product p = { NULL, {}, a_matrix, b_matrix, transposed, adds, widen, 0 };

	for (unsigned i = 0; i < 4; i++)
		memcpy(&p.a[i], all[lane / 4 * 4 + i], sizeof p.a[i]);
	if (b_matrix >> 62 != 1 || (a == NULL && a_matrix >> 62 != 1))
		die("a matrix descriptor that is not swizzled by 128 bytes");
	add_product(d, n, p);
}

void
wgmma_commit(void)
{
	product_groups[current->number]++;
}

/* Other lanes may write their registers of the a operand when all have computed. */
void
wgmma_wait(unsigned all_but)
{
	sync_warp(~0u);
	run_products(all_but);
	sync_warp(~0u);
}

} // namespace emulator
