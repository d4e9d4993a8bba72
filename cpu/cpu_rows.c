/* cpu_rows.c - ops that handle one row at a time: embed, rmsnorm, rope, store, swiglu */
#include <math.h>

#include "cpu/cpu_internal.h"

/* Elements below which waking the other threads takes longer than the work. */
#define WORTH_THREADS 32768

void
cpu_embed(struct dev *d, float *x, const struct mat *table, const uint32_t *tok, uint32_t N)
{
	const size_t D = table->in, row = D * kv_dtype_size(table->dtype);
	uint32_t n;

	if (d->error[0] != '\0')
		return;
	for (n = 0; n < N; n++)
		if (tok[n] >= table->out) {
			cpu_fail(d, "embed: token %u of a vocabulary of %u", tok[n], table->out);
			return;
		}
#pragma omp parallel for num_threads(d->threads) if (N * D > WORTH_THREADS)
	for (n = 0; n < N; n++)
		d->simd->widen(x + n * D, (const char *)table->data + tok[n] * row,
		    table->dtype, D);
}

void
cpu_rmsnorm(struct dev *d, float *y, const float *x, const float *w, uint32_t N, uint32_t D,
    float eps)
{
	uint32_t n;

	if (d->error[0] != '\0')
		return;
#pragma omp parallel for num_threads(d->threads) if ((size_t)N * D > WORTH_THREADS)
	for (n = 0; n < N; n++)
		d->simd->rmsnorm(y + (size_t)n * D, x + (size_t)n * D, w, D, eps);
}

/* The angle grows with the position: at position 100000 an f32 angle would be wrong in its
 * second decimal. It is therefore computed in double, once per row for all heads; only its
 * sine and cosine are f32. */
void
cpu_rope(struct dev *d, float *x, const uint32_t *pos, const double *freq, uint32_t N,
    uint32_t heads, uint32_t E)
{
	const size_t half = E / 2, table = 2 * PADDED(half);
	float *scratch;
	uint32_t n;

	if (d->error[0] != '\0' || (scratch = cpu_scratch(d, N * table * sizeof *scratch)) == NULL)
		return;
#pragma omp parallel for num_threads(d->threads) if ((size_t)N * heads * E > WORTH_THREADS)
	for (n = 0; n < N; n++) {
		float *c = scratch + n * table, *s = c + PADDED(half);
		double angle;
		size_t i;

		for (i = 0; i < half; i++) {
			angle = pos[n] * freq[i];
			c[i] = (float)cos(angle);
			s[i] = (float)sin(angle);
		}
		d->simd->rotate(x + (size_t)n * heads * E, c, s, heads, E);
	}
}

void
cpu_store(struct dev *d, struct layer_rows *c, const float *k, const float *v,
    const uint32_t *pos, uint32_t N)
{
	const size_t E = c->width, size = kv_dtype_size(c->dtype);
	uint32_t g, n;

	if (d->error[0] != '\0')
		return;
	for (g = 0; g < c->heads; g++)
		if (c->len[g] > c->room[g] || N > c->room[g] - c->len[g]) {
			cpu_fail(d, "store: KV head %u has %u rows of %u, no room for %u", g,
			    c->len[g], c->room[g], N);
			return;
		}
#pragma omp parallel for collapse(2) num_threads(d->threads) if (N * c->heads * E > WORTH_THREADS)
	for (g = 0; g < c->heads; g++)
		for (n = 0; n < N; n++) {
			size_t row = c->start[g] + c->len[g] + n;
			size_t from = ((size_t)n * c->heads + g) * E;

			kv_from_f32((char *)c->k + row * E * size, k + from, c->dtype, E);
			if (c->v != NULL)
				kv_from_f32((char *)c->v + row * E * size, v + from, c->dtype, E);
			c->pos[row] = pos[n];
		}
	for (g = 0; g < c->heads; g++)
		c->len[g] += N;
}

void
cpu_swiglu(struct dev *d, float *y, const float *gate, const float *up, uint32_t N, uint32_t F)
{
	uint32_t n;

	if (d->error[0] != '\0')
		return;
#pragma omp parallel for num_threads(d->threads) if ((size_t)N * F > WORTH_THREADS)
	for (n = 0; n < N; n++)
		d->simd->swiglu(y + (size_t)n * F, gate + (size_t)n * F, up + (size_t)n * F, F);
}
