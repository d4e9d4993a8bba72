/* cpu_chosen.c - the rows that retrieval has chosen: gather, rebuild, and what attend_chosen() in
 * cpu_attend.c needs to know of them */
#include <oneapi/dnnl/dnnl.h>

#include "cpu/cpu_internal.h"

/* Only the last entry of a list can be cut: entries ascend. */
size_t
cpu_chosen_rows(const struct chosen *c, const struct layer_rows *rows, size_t g)
{
	const uint32_t *at = c->at + g * c->stride;
	const size_t len = rows->len[g];
	size_t n = c->n[g], last;

	while (n > 0 && (size_t)at[n - 1] * c->rows >= len)
		n--;
	if (n == 0)
		return 0;
	last = len - (size_t)at[n - 1] * c->rows;
	return (n - 1) * c->rows + (last < c->rows ? last : c->rows);
}

/* The row of the KV head that is number i of those chosen */
static size_t
chosen_row(const struct chosen *c, size_t g, size_t i)
{
	return (size_t)c->at[g * c->stride + i / c->rows] * c->rows + i % c->rows;
}

int
cpu_can_be_chosen(struct dev *d, const struct layer_rows *rows, const struct chosen *c)
{
	uint32_t g;

	(void)cpu_refuse_recent(d, rows, "chosen entries");
	if (c->rows == 0)
		cpu_fail(d, "chosen entries of 0 rows");
	for (g = 0; g < rows->heads; g++)
		if (c->n[g] > c->stride)
			cpu_fail(d, "%u entries chosen of KV head %u, in a list of %zu", c->n[g], g,
			    c->stride);
	return d->error[0] == '\0';
}

/* ---- gather ---- */

#define PIECE 256                /* entries of one item */

struct gather_call {
	struct layer_rows *to;
	const struct layer_rows *from;
	const struct chosen *chosen;
	size_t pieces;               /* items of one KV head */
};

static void
copy_rows(struct layer_rows *to, size_t dst, const struct layer_rows *from, size_t src, size_t n)
{
	const size_t k = rows_k_bytes(from), v = rows_v_bytes(from);

	memcpy((char *)to->k + dst * k, (const char *)from->k + src * k, n * k);
	if (to->v != NULL && from->v != NULL && !to->v_in_k)
		memcpy((char *)to->v + dst * v, (const char *)from->v + src * v, n * v);
	memcpy(to->pos + dst, from->pos + src, n * sizeof *to->pos);
}

/* PIECE entries of one KV head; only the last of a list can be cut */
static void
gather_item(void *arg, size_t item, int thread)
{
	const struct gather_call *p = arg;
	const struct chosen *c = p->chosen;
	const size_t g = item / p->pieces, rows = p->to->len[g];
	size_t i = item % p->pieces * PIECE * c->rows, end = i + PIECE * c->rows, n;

	(void)thread;
	for (end = end < rows ? end : rows; i < end; i += n) {
		n = end - i < c->rows ? end - i : c->rows;
		copy_rows(p->to, p->to->start[g] + i, p->from,
		    p->from->start[g] + chosen_row(c, g, i), n);
	}
}

void
cpu_gather(struct dev *d, struct layer_rows *to, const struct layer_rows *from,
    const struct chosen *chosen)
{
	struct gather_call p = { .to = to, .from = from, .chosen = chosen };
	size_t g, most = 0;

	if (d->error[0] != '\0' || !cpu_can_be_chosen(d, from, chosen))
		return;
	for (g = 0; g < from->heads; g++) {
		to->len[g] = (uint32_t)cpu_chosen_rows(chosen, from, g);
		most = to->len[g] > most ? to->len[g] : most;
	}
	p.pieces = (most + PIECE * (size_t)chosen->rows - 1) / (PIECE * (size_t)chosen->rows);
	cpu_run(d, gather_item, &p, from->heads * p.pieces, from->heads * most * from->width);
}

/* ---- rebuild ---- */

#define ROWS 128                 /* rows of one item */

struct rebuild_call {
	struct dev *d;
	const struct layer_rows *to;
	const struct chosen *chosen;
	const struct low_rank *low;
	const double *freq;
	size_t parts;                /* items of one KV head */
	size_t floats;               /* scratch of one thread */
	float *scratch;
};

/* dst[m] <- the rows of an item that are rebuilt, as numbers in to; x[m][rank] <- their left
 * factors. Returns m. */
static size_t
left_rows(const struct rebuild_call *b, size_t g, size_t first, uint32_t *dst, float *x)
{
	const struct low_rank *low = b->low;
	const size_t end = b->to->len[g] < first + ROWS ? b->to->len[g] : first + ROWS;
	const size_t bytes = low->rank * kv_dtype_size(low->dtype), chunks = low->n / low->chunk;
	const uint8_t *exact = low->exact + g * chunks;
	size_t i, row, m = 0;

	for (i = first; i < end; i++) {
		row = chosen_row(b->chosen, g, i);
		if (row >= low->n || exact[row / low->chunk])
			continue;
		b->d->simd->widen(x + m * low->rank, (const char *)low->left + row * bytes,
		    low->dtype, low->rank);
		dst[m++] = (uint32_t)i;
	}
	return m;
}

/* ROWS rows of one KV head: left factors times right factor (GEMM), then rotary embedding and
 * rounding row by row */
static void
rebuild_item(void *arg, size_t item, int thread)
{
	const struct rebuild_call *b = arg;
	const struct layer_rows *to = b->to;
	const struct simd *simd = b->d->simd;
	const size_t g = item / b->parts, E = to->width, rank = b->low->rank;
	const enum kv_dtype dtype = (enum kv_dtype)rows_k_type(to);
	const size_t size = kv_dtype_size(dtype), bytes = E * size;
	float *right = b->scratch + (size_t)thread * b->floats, *x = right + PADDED(E * rank);
	float *y = x + PADDED(ROWS * rank), *c = y + ROWS * E, *s = c + PADDED(E / 2);
	uint32_t dst[ROWS];
	size_t m = left_rows(b, g, item % b->parts * ROWS, dst, x), i, row;
	dnnl_status_t status;

	if (m == 0)
		return;
	simd->widen(right, (const char *)b->low->right + g * E * rank * size, dtype, E * rank);
	status = dnnl_sgemm('N', 'T', (dnnl_dim_t)m, (dnnl_dim_t)E, (dnnl_dim_t)rank, 1, x,
	    (dnnl_dim_t)rank, right, (dnnl_dim_t)rank, 0, y, (dnnl_dim_t)E);
	if (status != dnnl_success)
		cpu_fail(b->d, "rebuild: oneDNN sgemm %zux%zux%zu: status %d", m, E, rank,
		    (int)status);
	for (i = 0; i < m; i++) {
		row = to->start[g] + dst[i];
		simd->cos_sin(c, s, to->pos[row], b->freq, E / 2);
		simd->rotate(y + i * E, c, s, 1, E);
		kv_from_f32((char *)to->k + row * bytes, y + i * E, dtype, E);
	}
}

void
cpu_rebuild(struct dev *d, struct layer_rows *to, const struct chosen *chosen,
    const struct low_rank *low, const double *freq)
{
	const size_t E = to->width, rank = low->rank;
	struct rebuild_call b = { .d = d, .to = to, .chosen = chosen, .low = low, .freq = freq };
	size_t g;
	int before;

	if (d->error[0] != '\0' || !cpu_can_be_chosen(d, to, chosen))
		return;
	if (low->chunk == 0 || rank == 0 || (enum kv_row_type)low->dtype != rows_k_type(to)) {
		cpu_fail(d, "rebuild: rank %zu, chunks of %u rows, %s factors of %s keys", rank,
		    low->chunk, kv_dtype_name(low->dtype),
		    kv_row_type_name(rows_k_type(to)));
		return;
	}
	for (g = 0; g < to->heads; g++)
		if ((to->len[g] + (size_t)ROWS - 1) / ROWS > b.parts)
			b.parts = (to->len[g] + (size_t)ROWS - 1) / ROWS;
	b.floats = PADDED(E * rank) + PADDED(ROWS * rank) + ROWS * E + 2 * PADDED(E / 2);
	if ((b.scratch = cpu_scratch(d, d->threads * b.floats * sizeof *b.scratch)) == NULL)
		return;
	before = cpu_blas_threads(1);
	cpu_run(d, rebuild_item, &b, to->heads * b.parts, to->heads * b.parts * ROWS * E * rank);
	cpu_blas_threads(before);
}
