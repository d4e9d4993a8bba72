/* ptx_hopper.cc - mbarriers, numbered barriers, products of warpgroups
 *
 * Who waits for whom is the emulator's (tests/cuda/emulator_hopper.cc). A product is computed when
 * it is issued; its operands in shared memory count as read then, and again when it is waited for,
 * so that a write between the two is a race. */
#include <stdlib.h>

#include <map>
#include <vector>

#include "tests/ptx/ptx_hopper.h"

namespace ptx {

/* ---- barriers ---- */

/* Of a barrier: how many arrive in a phase, how many have not yet; what those of this phase have
 * told, and those of the last */
struct phase {
	u32 count, left;
	struct knowledge *now, *last;
};
static std::map<u64, struct phase> phases;

static void
use_clocks(void)
{
	if (clocked)
		return;
	begin_vector_clocks();
	phases.clear();
}

static struct phase *
phase_of(u64 address, int line)
{
	const auto found = phases.find(address);

	if (!clocked || found == phases.end())
		stop(line, "an mbarrier at %#lx that is not initialised", (unsigned long)address);
	return &found->second;
}

/* The current thread arrives. What earlier phases have told stays true. */
static void
arrive_at(struct phase *p)
{
	tell(p->now);
	if (--p->left > 0)
		return;
	p->left = p->count;
	*p->last = *p->now;
}

void
mbarrier_init(u64 address, u32 count, int line)
{
	void *at = shared_at(address, 8, line);

	use_clocks();
	phases[address] = { count, count, new_knowledge(), new_knowledge() };
	emulator::mbarrier_init((uint64_t *)at, count);
}

void
mbarrier_arrive(u64 address, int line)
{
	void *at = shared_at(address, 8, line);

	arrive_at(phase_of(address, line));
	emulator::mbarrier_arrive((uint64_t *)at);
}

bool
mbarrier_wait(u64 address, u32 parity, int line)
{
	struct phase *p = phase_of(address, line);

	emulator::mbarrier_wait((uint64_t *)shared_at(address, 8, line), parity);
	learn(p->last);
	return true;
}

void
barrier(u32 number, u32 threads, bool waits, int line)
{
	use_clocks();
	struct phase *p = &phases[number];

	if (p->now == NULL)
		*p = { threads, threads, new_knowledge(), new_knowledge() };
	if (p->count != threads && p->left != p->count)
		fault(line, "barrier %u of %u threads, and of %u", number, threads, p->count);
	if (p->left == p->count)
		p->count = p->left = threads;
	arrive_at(p);
	emulator::bar(number, threads, waits);
	if (waits)
		learn(p->last);
}

/* ---- products ---- */

/* Addresses in descriptors have 18 bits: those of dynamic memory less DYNAMIC. */
struct matrix {
	u64 start;
	u32 leading, stride;           /* bytes */
};

static struct matrix
matrix_of(u64 descriptor, int line)
{
	if (descriptor >> 62 != 1 || (descriptor >> 49 & 7) != 0)
		stop(line, "a matrix that is not swizzled by 128 bytes: descriptor %#lx",
		    (unsigned long)descriptor);
	return { DYNAMIC + (descriptor & 0x3fff) * 16, (u32)(descriptor >> 16 & 0x3fff) * 16,
		(u32)(descriptor >> 32 & 0x3fff) * 16 };
}

/* Bits 4 to 6 of an address, by bits 7 to 9 */
static inline u64
swizzled(u64 address)
{
	return address ^ (address >> 7 & 7) << 4;
}

/* Where 16 bytes begin that have element (i, k) in their 8: i: a row of a, a column of b. Lines
 * along k have 128 bytes, 8 of them follow each other, and 8 more stand `stride` further on; of
 * lines along n a line has 64 elements, 64 more stand `leading` further on, 8 more lines
 * `stride`. */
static inline u64
along_k(const struct matrix *m, u32 i, u32 k)
{
	return swizzled(m->start + i / 8 * m->stride + i % 8 * 128 + k / 8 * 16);
}

static inline u64
along_n(const struct matrix *m, u32 n, u32 k)
{
	return swizzled(m->start + n / 64 * m->leading + k / 8 * m->stride + k % 8 * 128 +
	    n % 64 / 8 * 16);
}

static inline f32
number(u16 bits, bool is_bf16)
{
	return is_bf16 ? bf16_to_f32(bits) : half_to_f32(bits);
}

/* What a warp reads of shared memory in products that it has not waited for */
struct reading {
	u32 group;
	int line;
	std::vector<u64> pieces;       /* of 16 bytes */
};
static std::vector<struct reading> readings[emulator::MAX_THREADS];
static u32 groups[emulator::MAX_THREADS];
static const struct entry *last_kernel;

static void
note_pieces(const struct reading *r)
{
	for (u64 at : r->pieces)
		for (u32 i = 0; i < 16 && clocked; i += 4)
			clocked_access(at + i, WARP_READ, r->line);
}

/* 8 numbers at an address in shared memory; lane 0 keeps the address for the warp. */
static void
take(f32 to[8], u64 at, bool is_bf16, struct reading *r)
{
	u16 bits[8];

	memcpy(bits, shared_at(at, 16, r->line), 16);
	for (int i = 0; i < 8; i++)
		to[i] = number(bits[i], is_bf16);
	if (emulator::lane == 0)
		r->pieces.push_back(at);
}

/* a: the thread's two rows, 8 apart */
static void
take_a(f32 a[2][16], const struct product *p, struct reading *r)
{
	const u32 row = emulator::current->number / 32 % 4 * 16;
	const u32 none[4] = {}, g = emulator::lane / 4;
	const u32 (*all)[8] = emulator::exchange(p->a == NULL ? none : p->a, 4, 0xffffffff);

	if (p->a == NULL) {
		const struct matrix m = matrix_of(p->a_matrix, r->line);

		for (u32 i = 0; i < 2; i++)
			for (u32 k = 0; k < 16; k += 8)
				take(&a[i][k], along_k(&m, row + g + 8 * i, k), p->is_bf16, r);
		for (u32 i = 1; i < 8 && emulator::lane == 0; i++)     /* the warp's other rows */
			for (u32 k = 0; k < 32; k += 8)
				r->pieces.push_back(along_k(&m, row + i + k / 16 * 8, k % 16));
		return;
	}
	for (u32 i = 0; i < 2; i++)
		for (u32 k = 0; k < 16; k++)
			a[i][k] = number((u16)(all[4 * g + k % 8 / 2][i + k / 8 * 2] >> k % 2 * 16),
			    p->is_bf16);
}

static void
take_b(f32 (*b)[16], const struct product *p, struct reading *r)
{
	const struct matrix m = matrix_of(p->b_matrix, r->line);
	f32 eight[8];

	for (u32 n = 0; n < p->n && !p->turned; n++)
		for (u32 k = 0; k < 16; k += 8)
			take(&b[n][k], along_k(&m, n, k), p->is_bf16, r);
	for (u32 k = 0; k < 16 && p->turned; k++)
		for (u32 n = 0; n < p->n; n += 8) {
			take(eight, along_n(&m, n, k), p->is_bf16, r);
			for (u32 i = 0; i < 8; i++)
				b[n + i][k] = eight[i];
		}
}

void
wgmma(f32 *d, const struct product *p, int line)
{
	const unsigned me = emulator::current->number;
	struct reading r = { groups[me], line, {} };
	f32 a[2][16], b[256][16];

	if (last_kernel != running)
		for (auto &old : readings)
			old.clear();
	last_kernel = running;
	take_a(a, p, &r);
	take_b(b, p, &r);
	for (u32 e = 0; e < p->n / 2; e++) {
		const f32 *x = a[e / 2 % 2], *y = b[e / 4 * 8 + emulator::lane % 4 * 2 + e % 2];
		f64 sum = 0;

		for (u32 k = 0; k < 16; k++)
			sum += (f64)x[k] * y[k];
		d[e] = (f32)((p->adds ? d[e] : 0) + sum);
	}
	r.group = groups[me];
	if (emulator::lane == 0) {
		note_pieces(&r);
		readings[me].push_back(r);
	}
}

void
say_under_way(int line)
{
	fault(line, "NOT WAITED FOR: a register of a product of wgmma that may be under way");
}

void
say_not_fenced(int line)
{
	fault(line, "NOT FENCED: registers of wgmma that were written without wgmma.fence");
}

void
wgmma_commit(void)
{
	groups[emulator::current->number]++;
}

void
wgmma_wait(u32 all_but)
{
	const unsigned me = emulator::current->number;
	size_t done = 0;

	for (const struct reading &r : readings[me]) {
		if (r.group + all_but >= groups[me])
			break;
		note_pieces(&r);
		done++;
	}
	readings[me].erase(readings[me].begin(), readings[me].begin() + (ptrdiff_t)done);
}

} // namespace ptx
