/* gpu_chosen.cu - only the rows that were chosen: lists of entries, gather, rebuild */
#include "gpu/gpu_internal.h"

int
gpu_picks_of(struct dev *d, struct picks *p, const struct layer_rows *l, const struct chosen *c)
{
	uint32_t g;

	*p = { .at = NULL, .stride = 0, .rows = 1, .n = {} };
	for (g = 0; g < l->heads && c == NULL; g++)
		p->n[g] = l->len[g];
	if (c == NULL)
		return gpu_ok(d);
	if (c->rows == 0)
		gpu_fail(d, "chosen entries of 0 rows");
	p->at = c->at;
	p->stride = c->stride;
	p->rows = c->rows;
	for (g = 0; g < l->heads; g++) {
		if (c->n[g] > c->stride)
			gpu_fail(d, "%u entries chosen of KV head %u, in a list of %zu", c->n[g], g,
			    c->stride);
		p->n[g] = c->n[g];
	}
	return gpu_ok(d);
}

/* ---- gather ---- */

enum {
	THREADS = 256,
	PIECES = 4,              /* of keys and as many of values that a thread has on their way */
};

/* Where rows go, and where they come from: in units U that a row is a multiple of */
struct gathering {
	void *k, *v;
	uint32_t *pos;
	uint64_t start[MAX_HEADS];
	uint32_t units;          /* of a row */
};

/* Each thread copies up to PIECES units of the keys, and of the values, of the rows of a KV head's
 * list, one row after the other. All its loads are under way before the first is stored. */
template <class U>
static __global__ void __launch_bounds__(THREADS)
gather(const struct gathering to, const struct rows from, const struct picks list)
{
	const uint32_t g = blockIdx.y, units = to.units, rows = listed_rows(list, from, g);
	const size_t first = (size_t)blockIdx.x * THREADS * PIECES;
	const uint32_t first_row = (uint32_t)(first / units), before = (uint32_t)(first % units);
	const U *from_k = (const U *)from.k + from.start[g] * units;
	const U *from_v = (const U *)from.v + from.start[g] * units;
	U k[PIECES], v[PIECES];
	size_t at[PIECES];

	UNROLL
	for (int i = 0; i < PIECES; i++) {
		const uint32_t unit = before + i * THREADS + threadIdx.x;
		const uint32_t n = first_row + unit / units, u = unit % units;
		const uint32_t row = n < rows ? picked_row(list, g, n) : UINT32_MAX;

		at[i] = SIZE_MAX;
		if (row >= from.len[g])
			continue;
		at[i] = (to.start[g] + n) * units + u;
		k[i] = from_k[(size_t)row * units + u];
		if (to.v != NULL)
			v[i] = from_v[(size_t)row * units + u];
		if (u == 0)
			to.pos[to.start[g] + n] = from.pos[from.start[g] + row];
	}
	UNROLL
	for (int i = 0; i < PIECES; i++) {
		if (at[i] == SIZE_MAX)
			continue;
		((U *)to.k)[at[i]] = k[i];
		if (to.v != NULL)
			((U *)to.v)[at[i]] = v[i];
	}
}

static __global__ void
count_rows(uint32_t *n, const struct rows from, const struct picks list)
{
	n[threadIdx.x] = picked_rows(list, from, threadIdx.x);
}

/* to->len[g] <- rows of the list of each KV head. The host knows it, unless a list may end with an
 * entry that is cut by the end of the rows: then it has to ask, and waits. */
static void
set_lengths(struct dev *d, struct layer_rows *to, const struct rows *from, const struct picks *list)
{
	const uint32_t G = from->G;
	uint32_t *counted, g, entries;
	int known = 1;

	for (g = 0; g < G; g++) {
		entries = parts_of(from->len[g], list->rows);
		known &= list->n[g] == 0 || list->n[g] == entries ||
		    (list->n[g] < entries && from->len[g] % list->rows == 0);
		to->len[g] = listed_rows(*list, *from, g);
	}
	if (known || (counted = (uint32_t *)gpu_scratch(d, SCRATCH_LIST, G * sizeof *counted)) == NULL)
		return;
	LAUNCH(d, count_rows, 1, G, 0, counted, *from, *list);
	if (gpu_check(d, "gather", cudaMemcpyAsync(to->len, counted, G * sizeof *counted,
	    cudaMemcpyDeviceToHost, d->stream)))
		gpu_check(d, "gather", cudaStreamSynchronize(d->stream));
}

void
gpu_gather(struct dev *d, struct layer_rows *to, const struct layer_rows *from,
    const struct chosen *chosen)
{
	const size_t bytes = from->width * kv_dtype_size(from->dtype);
	struct gathering into = { .k = to->k, .v = from->v == NULL ? NULL : to->v, .pos = to->pos,
		.start = {}, .units = 0 };
	const uintptr_t places = (uintptr_t)to->k | (uintptr_t)into.v | (uintptr_t)from->k |
	    (uintptr_t)(into.v == NULL ? NULL : from->v);
	struct picks list;
	struct rows rows;
	uint32_t g, most = 0;

	if (!gpu_rows_of(d, &rows, from, from->heads, "gather") ||
	    !gpu_picks_of(d, &list, from, chosen))
		return;
	set_lengths(d, to, &rows, &list);
	for (g = 0; g < from->heads; g++) {
		into.start[g] = to->start[g];
		most = most > to->len[g] ? most : to->len[g];
	}
	if (most == 0)
		return;
	if (!d->reference && (bytes | places) % sizeof(uint4) == 0) {
		into.units = (uint32_t)(bytes / sizeof(uint4));
		LAUNCH(d, gather<uint4>, dim3(parts_of((size_t)most * into.units, THREADS * PIECES),
		    from->heads), THREADS, 0, into, rows, list);
	} else {
		into.units = (uint32_t)(bytes / sizeof(uint16_t));
		LAUNCH(d, gather<uint16_t>, dim3(parts_of((size_t)most * into.units, THREADS *
		    PIECES), from->heads), THREADS, 0, into, rows, list);
	}
}
