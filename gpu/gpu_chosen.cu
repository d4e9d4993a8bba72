/* gpu_chosen.cu - selected rows: struct chosen as a kernel's argument, gather, and rows that come
 * from the host */
#include "gpu/gpu_quantised.h"

/* Rows of n selected entries: the last entry of the KV head, which may have fewer rows, is
 * one of them. */
static uint32_t
rows_of(uint32_t n, uint32_t rows, uint32_t len)
{
	const uint32_t cut = (rows - len % rows) % rows;
	const uint64_t all = n == 0 ? 0 : (uint64_t)n * rows - cut;

	return all < len ? (uint32_t)all : len;
}

int
gpu_row_list_of(struct dev *d, struct row_list *p, const struct layer_rows *l,
    const struct chosen *c)
{
	uint32_t g;

	*p = { .at = NULL, .stride = 0, .rows = 1, .reciprocal = 1u << 31, .shift = 0, .n = {} };
	for (g = 0; g < l->heads && c == NULL; g++)
		p->n[g] = l->len[g];
	if (c == NULL)
		return gpu_ok(d);
	if (c->rows == 0)
		gpu_fail(d, "chosen entries of 0 rows");
	for (g = 0; g < l->heads && gpu_ok(d); g++) {
		if (c->n[g] > c->stride)
			gpu_fail(d, "%u entries chosen of KV head %u, in a list of %zu", c->n[g], g,
			    c->stride);
		p->n[g] = rows_of(c->n[g], c->rows, l->len[g]);
		if (p->n[g] > INT32_MAX)
			gpu_fail(d, "%u rows chosen of KV head %u", p->n[g], g);
	}
	if (!gpu_ok(d))
		return 0;
	p->at = c->at;
	p->stride = c->stride;
	p->rows = c->rows;
	for (p->shift = 0; (uint64_t)1 << p->shift < p->rows; p->shift++)
		;
	p->reciprocal =
	    (uint32_t)((((uint64_t)1 << (31 + p->shift)) + p->rows - 1) / p->rows);
	return 1;
}

/* ---- gather ---- */

constexpr uint32_t THREADS = 256;
constexpr uint32_t PIECES = 4;           /* units of keys, and of values, that a thread copies */

/* The destination, in units of which a row is a multiple */
struct gather_target {
	void *k, *v;
	uint32_t *pos;
	uint64_t start[MAX_HEADS];
	uint32_t units;          /* of a row */
};

/* Copies the listed rows of KV head blockIdx.y: U is the unit, uint4 or uint16_t. Each thread
 * issues the loads of PIECES units of keys and of values before it stores the first. */
template <class U>
static __global__ void __launch_bounds__(THREADS)
gather(const struct gather_target to, const struct rows from, const struct row_list list)
{
	const uint32_t g = blockIdx.y, units = to.units, rows = list.n[g];
	const size_t first = (size_t)blockIdx.x * THREADS * PIECES;
	const uint32_t first_row = (uint32_t)(first / units), before = (uint32_t)(first % units);
	const U *from_k = (const U *)from.k, *from_v = (const U *)from.v;
	const uint64_t from_start = from.start[g] * units, to_start = to.start[g] * units + first;
	U *to_k = (U *)to.k, *to_v = (U *)to.v, k[PIECES], v[PIECES];
	uint32_t row[PIECES];

UNROLL	for (uint32_t i = 0; i < PIECES; i++) {
		const uint32_t unit = before + i * THREADS + threadIdx.x;
		const uint32_t n = first_row + unit / units;

		row[i] = n < rows ? listed_row(list, g, n) : NO_ROW;
		if (row[i] == NO_ROW)
			continue;
		k[i] = from_k[from_start + (size_t)row[i] * units + unit % units];
		if (to.v != NULL)
			v[i] = from_v[from_start + (size_t)row[i] * units + unit % units];
	}
UNROLL	for (uint32_t i = 0; i < PIECES; i++) {
		const uint32_t at = i * THREADS + threadIdx.x, unit = before + at;

		if (row[i] == NO_ROW)
			continue;
		to_k[to_start + at] = k[i];
		if (to.v != NULL)
			to_v[to_start + at] = v[i];
		if (unit % units == 0)
			to.pos[to.start[g] + first_row + unit / units] =
			    from.pos[from.start[g] + row[i]];
	}
}

template <class U>
static void
launch_gather(struct dev *d, struct gather_target into, const struct rows &rows,
    const struct row_list &list, uint32_t most, size_t bytes)
{
	into.units = (uint32_t)(bytes / sizeof(U));
	LAUNCH(d, gather<U>, dim3(parts_of((size_t)most * into.units, THREADS * PIECES), rows.G),
	    THREADS, 0, into, rows, list);
}

/* Rows of quantised types, of which keys and values have sizes of their own: each by itself, as if
 * they were keys */
static void
gather_quantised(struct dev *d, const struct gather_target &into, const struct rows &rows,
    const struct row_list &list, uint32_t most, const struct layer_rows *from)
{
	for (int which = 0; which < (into.v != NULL ? 2 : 1); which++) {
		const size_t bytes = which ? rows_v_bytes(from) : rows_k_bytes(from);
		struct gather_target to = into;
		struct rows one = rows;

		to.k = which ? into.v : into.k;
		one.k = which ? rows.v : rows.k;
		to.v = NULL;
		with_unit(d, (uintptr_t)to.k | (uintptr_t)one.k | bytes, [&](auto u) {
			launch_gather<decltype(u)>(d, to, one, list, most, bytes);
		});
	}
}

void
gpu_gather(struct dev *d, struct layer_rows *to, const struct layer_rows *from,
    const struct chosen *chosen)
{
	const size_t bytes = from->width * kv_dtype_size(from->dtype);
	const int values = own_values(to) != NULL && from->v != NULL;
	struct gather_target into = { .k = to->k, .v = values ? to->v : NULL, .pos = to->pos,
		.start = {}, .units = 0 };
	const uintptr_t places = (uintptr_t)to->k | (uintptr_t)into.v | (uintptr_t)from->k |
	    (uintptr_t)from->v;
	struct row_list list;
	struct rows rows;
	uint32_t g, most = 0;

	if (!gpu_rows_of(d, &rows, from, from->heads, "gather") ||
	    !gpu_row_list_of(d, &list, from, chosen))
		return;
	for (g = 0; g < from->heads; g++) {
		into.start[g] = to->start[g];
		to->len[g] = list.n[g];
		most = most > to->len[g] ? most : to->len[g];
	}
	if (most == 0)
		return;
	if (has_quantised(from))
		gather_quantised(d, into, rows, list, most, from);
	else if (!d->reference && (bytes | places) % sizeof(uint4) == 0)
		launch_gather<uint4>(d, into, rows, list, most, bytes);
	else
		launch_gather<uint16_t>(d, into, rows, list, most, bytes);
}

/* ---- rows from the host ---- */

/* Scatter: one thread for each unit U of the n elements, which have `units` */
template <class U>
static __global__ void __launch_bounds__(THREADS)
scatter(U *to, const uint64_t *at, const U *from, uint32_t units, size_t all)
{
	const size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;

	if (i < all)
		to[at[i / units] * units + i % units] = from[i];
}

void
gpu_put_scattered(struct dev *d, void *dst, const uint64_t *at, uint32_t n, const void *rows,
    size_t bytes)
{
	const size_t size = (n * bytes + sizeof *at - 1) / sizeof *at * sizeof *at;
	const bool wide = !d->reference && ((uintptr_t)dst | bytes) % sizeof(uint4) == 0;
	const bool odd = bytes % 2 != 0;               /* int8 and fp8 of odd widths */
	const size_t units = bytes / (wide ? sizeof(uint4) : odd ? 1 : sizeof(uint16_t));
	char *from;

	if (n == 0 || units == 0 ||
	    (from = (char *)gpu_scratch(d, SCRATCH_LIST, size + n * sizeof *at)) == NULL)
		return;
	gpu_put(d, from, rows, n * bytes);
	gpu_put(d, from + size, at, n * sizeof *at);
	if (wide)
		LAUNCH(d, scatter<uint4>, parts_of(n * units, THREADS), THREADS, 0, (uint4 *)dst,
		    (const uint64_t *)(from + size), (const uint4 *)from, (uint32_t)units,
		    n * units);
	else if (odd)
		LAUNCH(d, scatter<uint8_t>, parts_of(n * units, THREADS), THREADS, 0,
		    (uint8_t *)dst, (const uint64_t *)(from + size), (const uint8_t *)from,
		    (uint32_t)units, n * units);
	else
		LAUNCH(d, scatter<uint16_t>, parts_of(n * units, THREADS), THREADS, 0,
		    (uint16_t *)dst, (const uint64_t *)(from + size), (const uint16_t *)from,
		    (uint32_t)units, n * units);
}
