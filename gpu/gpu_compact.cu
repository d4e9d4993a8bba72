/* gpu_compact.cu - stream compaction of a layer's rows, in place, after an eviction
 *
 * With an eviction after every token, each KV head drops a row or two somewhere, and the rows
 * behind move up by one: little work in many places. So all arrays of a layer (keys, values,
 * positions, attention mass) are compacted in one launch.
 *
 * Blocks run in any order, and no block may write what another has still to read. So each
 * block owns a stripe: 32 bytes (a DRAM sector) of every row of keys or of values of a KV
 * head, or a whole list of positions or of mass. It goes down the stripe in pieces: all
 * threads read, a barrier, all write. That is safe because row i never moves to a higher
 * index: the next piece to read is behind everything written so far. Each byte is read and
 * written once; rows that do not move are not touched. */
#include "gpu/gpu_internal.h"

constexpr uint32_t THREADS = 256;
constexpr uint32_t PIECES = 8;           /* loads of a thread in flight before its first store */
constexpr uint32_t STRIPE = 32;          /* bytes */

/* The rows that move: in KV head g row first[g] + i comes from row list[from[g] + i], i <
 * n[g] */
struct moves {
	const uint32_t *list;
	uint64_t start[MAX_HEADS], from[MAX_HEADS];
	uint32_t first[MAX_HEADS], n[MAX_HEADS], len[MAX_HEADS];
};

/* Keys or values, in units; at NULL: there are none */
struct tensor {
	void *at;
	uint32_t units, stripes;         /* of a row */
};

/* The arrays of the layer */
struct layer_arrays {
	struct tensor k, v;
	uint32_t *pos;
	float *mass;                     /* NULL: none */
	size_t stride;
	uint32_t G, R;
};

/* Compacts one stripe, COLUMNS units wide, of an array of rows of `units` units; by a whole
 * block */
template <class T, uint32_t COLUMNS>
DEVICE void
move_up(T *at, uint32_t units, uint32_t stripe, const uint32_t *from, uint32_t first, uint32_t n)
{
	constexpr uint32_t ROWS = THREADS / COLUMNS;      /* that the block reads together */
	const uint32_t column = stripe * COLUMNS + threadIdx.x % COLUMNS;
	const uint32_t row = threadIdx.x / COLUMNS;
	T held[PIECES];

	for (uint64_t base = row; base - row < n; base += PIECES * ROWS) {
		uint32_t moves = 0;      /* bit j: row j of this thread is held */

UNROLL		for (uint32_t j = 0; j < PIECES; j++) {
			const uint64_t i = base + j * ROWS;

			if (i < n && column < units && from[i] != first + i) {
				held[j] = at[(size_t)from[i] * units + column];
				moves |= 1u << j;
			}
		}
		__syncthreads();
UNROLL		for (uint32_t j = 0; j < PIECES; j++) {
			const uint64_t i = base + j * ROWS;

			if (moves >> j & 1)
				at[(size_t)(first + i) * units + column] = held[j];
		}
	}
}

/* Blocks: the stripes of the keys of each KV head, then those of the values, then the lists of
 * positions, then the lists of mass */
template <class T>
static __global__ void __launch_bounds__(THREADS)
compact(const struct layer_arrays p, const struct moves m)
{
	const uint32_t keys = p.G * p.k.stripes, all = keys + p.G * p.v.stripes;
	uint32_t b = blockIdx.x, g;

	if (b < all) {
		const struct tensor &t = b < keys ? p.k : p.v;

		b -= b < keys ? 0 : keys;
		g = b / t.stripes;
		move_up<T, STRIPE / sizeof(T)>((T *)t.at + m.start[g] * t.units, t.units,
		    b % t.stripes, m.list + m.from[g], m.first[g], m.n[g]);
		return;
	}
	b -= all;
	if (b < p.G) {
		move_up<uint32_t, 1>(p.pos + m.start[b], 1, 0, m.list + m.from[b], m.first[b],
		    m.n[b]);
		return;
	}
	b -= p.G;
	g = b / p.R;
	float *const mass = p.mass + b * p.stride;
	move_up<float, 1>(mass, 1, 0, m.list + m.from[g], m.first[g], m.n[g]);
	for (uint32_t i = m.first[g] + m.n[g] + threadIdx.x; i < m.len[g]; i += THREADS)
		mass[i] = 0;
}

/* blockIdx.y is the KV head; one thread for each column of bytes of keys and values, and for each
 * other list; row after row. */
static __global__ void __launch_bounds__(THREADS)
reference_compact(const struct layer_arrays p, const struct moves m)
{
	const uint32_t g = blockIdx.y, *from = m.list + m.from[g], first = m.first[g], n = m.n[g];
	const uint32_t i = blockIdx.x * THREADS + threadIdx.x;
	const uint32_t other = i - p.k.units - p.v.units;

	if (i < p.k.units + p.v.units) {
		const struct tensor &t = i < p.k.units ? p.k : p.v;
		unsigned char *at = (unsigned char *)t.at + m.start[g] * t.units +
		    (i < p.k.units ? i : i - p.k.units);

		for (uint32_t j = 0; j < n; j++)
			at[(size_t)(first + j) * t.units] = at[(size_t)from[j] * t.units];
	} else if (other == 0) {
		uint32_t *pos = p.pos + m.start[g];

		for (uint32_t j = 0; j < n; j++)
			pos[first + j] = pos[from[j]];
	} else if (p.mass != NULL && other <= p.R) {
		float *mass = p.mass + (size_t)(g * p.R + other - 1) * p.stride;

		for (uint32_t j = 0; j < n; j++)
			mass[first + j] = mass[from[j]];
		for (uint32_t j = first + n; j < m.len[g]; j++)
			mass[j] = 0;
	}
}

/* Leaves out the first rows of each KV head, which do not move. Returns how many rows move. */
static uint64_t
find_moves(struct moves *m, const struct layer_rows *l, const uint32_t *count,
    uint32_t *const *keep)
{
	uint64_t total = 0;
	uint32_t g, first;

	for (g = 0; g < l->heads; g++) {
		for (first = 0; first < count[g] && keep[g][first] == first; first++)
			;
		m->start[g] = l->start[g];
		m->from[g] = total;
		m->first[g] = first;
		m->n[g] = count[g] - first;
		m->len[g] = l->len[g];
		total += m->n[g];
	}
	return total;
}

/* Copies the source rows of all moves to the device, head by head: m->list */
static void
put_list(struct dev *d, struct moves *m, uint32_t G, uint32_t *const *keep, uint64_t total)
{
	uint32_t *to = (uint32_t *)gpu_scratch(d, SCRATCH_LIST, total * sizeof *to);
	uint32_t g = 0, done = 0;        /* rows of KV head g that have been copied */
	uint64_t at;
	size_t bytes, i, n;

	m->list = to;
	for (at = 0; at < total && gpu_ok(d); at += bytes / sizeof *to) {
		bytes = (total - at) * sizeof *to;
		uint32_t *p = (uint32_t *)gpu_put_next(d, &bytes);

		for (i = 0; p != NULL && i < bytes / sizeof *to; i += n) {
			for (; done == m->n[g]; g++)
				done = 0;
			n = bytes / sizeof *to - i;
			if (n > m->n[g] - done)
				n = m->n[g] - done;
			memcpy(p + i, keep[g] + m->first[g] + done, n * sizeof *to);
			done += (uint32_t)n;
		}
		gpu_put_done(d, to + at, p, bytes);
	}
}

static void
split_rows(struct tensor *t, size_t row, size_t unit)
{
	t->units = t->at != NULL ? (uint32_t)(row / unit) : 0;
	t->stripes = t->at != NULL ? parts_of(row, STRIPE) : 0;
}

template <class T>
static void
launch_compact(struct dev *d, struct layer_arrays *p, const struct moves *m,
    const struct layer_rows *l)
{
	const uint32_t lists = p->G * (1 + (p->mass != NULL ? p->R : 0));

	split_rows(&p->k, rows_k_bytes(l), sizeof(T));
	split_rows(&p->v, rows_v_bytes(l), sizeof(T));
	LAUNCH(d, compact<T>, p->G * (p->k.stripes + p->v.stripes) + lists, THREADS, 0, *p, *m);
}

/* The checks of compact() and compact_listed(). Returns 0 after a failure, or when no row is
 * dropped. */
static int
begin_compact(struct dev *d, struct layer_arrays *p, const struct layer_rows *l, uint32_t H,
    const uint32_t *count)
{
	int dropped = 0;

	gpu_fixes_lengths(d);
	if (l->heads == 0 || l->heads > MAX_HEADS || H % l->heads != 0)
		gpu_fail(d, "keep: %u query heads over %u KV heads", H, l->heads);
	for (uint32_t g = 0; g < l->heads && gpu_ok(d); g++) {
		if (count[g] > l->len[g])
			gpu_fail(d, "keep: %u of %u rows of KV head %u", count[g], l->len[g], g);
		dropped |= count[g] < l->len[g];
	}
	if (!gpu_ok(d) || !dropped)
		return 0;
	p->R = H / l->heads;
	return 1;
}

static void
run_compact(struct dev *d, struct layer_arrays *p, const struct moves *m, struct layer_rows *l,
    const uint32_t *count, uint64_t moving)
{
	const size_t v_bytes = own_values(l) != NULL ? rows_v_bytes(l) : 0;
	const uintptr_t alignment = rows_k_bytes(l) | v_bytes | (uintptr_t)l->k | (uintptr_t)l->v;

	if (d->reference) {
		split_rows(&p->k, rows_k_bytes(l), 1);
		split_rows(&p->v, rows_v_bytes(l), 1);
		LAUNCH(d, reference_compact, dim3(parts_of(p->k.units + p->v.units + 1 + p->R,
		    THREADS), p->G), THREADS, 0, *p, *m);
	} else if (moving > 0 || p->mass != NULL) {
		if (alignment % sizeof(uint4) == 0)
			launch_compact<uint4>(d, p, m, l);
		else if (alignment % sizeof(uint32_t) == 0)
			launch_compact<uint32_t>(d, p, m, l);
		else if (alignment % sizeof(uint16_t) == 0)
			launch_compact<uint16_t>(d, p, m, l);
		else                           /* int8 and fp8 of odd widths */
			launch_compact<uint8_t>(d, p, m, l);
	}
	for (uint32_t g = 0; g < l->heads; g++)
		l->len[g] = count[g];
}

static struct layer_arrays
arrays_of(const struct layer_rows *l, float *mass, size_t stride)
{
	return { .k = { l->k, 0, 0 }, .v = { own_values(l), 0, 0 }, .pos = l->pos, .mass = mass,
		.stride = stride, .G = l->heads, .R = 0 };
}

void
gpu_compact(struct dev *d, struct layer_rows *l, float *mass, size_t stride, uint32_t H,
    const uint32_t *count, uint32_t *const *keep)
{
	struct layer_arrays p = arrays_of(l, mass, stride);
	struct moves m = {};
	uint64_t moving;

	if (!begin_compact(d, &p, l, H, count))
		return;
	if ((moving = find_moves(&m, l, count, keep)) > 0)
		put_list(d, &m, l->heads, keep, moving);
	run_compact(d, &p, &m, l, count, moving);
}

/* The host does not know which rows stay where they are: all are listed, and those are skipped. */
void
gpu_compact_listed(struct dev *d, struct layer_rows *l, float *mass, size_t stride, uint32_t H,
    const struct chosen *kept)
{
	struct layer_arrays p = arrays_of(l, mass, stride);
	struct moves m = {};
	uint64_t moving = 0;

	if (!begin_compact(d, &p, l, H, kept->n))
		return;
	m.list = kept->at;
	for (uint32_t g = 0; g < l->heads; g++) {
		m.start[g] = l->start[g];
		m.from[g] = g * kept->stride;
		m.n[g] = kept->n[g];
		m.len[g] = l->len[g];
		moving += kept->n[g];
	}
	run_compact(d, &p, &m, l, kept->n, moving);
}
