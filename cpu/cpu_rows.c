/* cpu_rows.c - ops that handle one row at a time: embed, rmsnorm, rope, append, round, swiglu,
 * mix, repeat_heads, lse_merge, argmax */
#include <math.h>

#include "cpu/cpu_internal.h"

/* What the items of one op read and write; each op uses some of it. Item n is row n. */
struct rows {
	struct dev *d;               /* append */
	const struct simd *simd;
	float *y;
	const float *x, *w;          /* append: keys and values */
	size_t width;                /* elements of one row; rope, append: of one head */
	size_t heads;
	const uint32_t *pos;
	const struct rotary *rope;
	float *scratch;
	const struct mat *table;
	const uint32_t *tok;
	struct layer_rows *cache;
	float eps;
};

static void
embed_row(void *arg, size_t n, int thread)
{
	const struct rows *r = arg;
	size_t i;

	(void)thread;
	if (r->tok[n] < r->table->out)
		cpu_widen_rows(r->simd, r->y + n * r->width, r->table, r->tok[n], 1);
	else
		for (i = 0; i < r->width; i++)
			r->y[n * r->width + i] = NAN;
}

void
cpu_embed_ids(struct dev *d, float *x, const struct mat *table, const uint32_t *tok, uint32_t N)
{
	struct rows r = { .simd = d->simd, .y = x, .width = table->in, .table = table, .tok = tok };

	if (d->error[0] == '\0')
		cpu_run(d, embed_row, &r, N, N * r.width);
}

void
cpu_embed(struct dev *d, float *x, const struct mat *table, const uint32_t *tok, uint32_t N)
{
	uint32_t n;

	for (n = 0; n < N; n++)
		if (tok[n] >= table->out)
			cpu_fail(d, "embed: token %u of a vocabulary of %u", tok[n], table->out);
	cpu_embed_ids(d, x, table, tok, N);
}

static void
rmsnorm_row(void *arg, size_t n, int thread)
{
	const struct rows *r = arg;

	(void)thread;
	r->simd->rmsnorm(r->y + n * r->width, r->x + n * r->width, r->w, r->width, r->eps);
}

void
cpu_rmsnorm(struct dev *d, float *y, const float *x, const float *w, uint32_t N, uint32_t D,
    float eps)
{
	struct rows r = { .simd = d->simd, .y = y, .x = x, .w = w, .width = D, .eps = eps };

	if (d->error[0] == '\0')
		cpu_run(d, rmsnorm_row, &r, N, N * r.width);
}

/* Sine and cosine are computed once per row for all heads. */
static void
rope_row(void *arg, size_t n, int thread)
{
	const struct rows *r = arg;
	const size_t dims = r->rope->dims, half = dims / 2;
	float *c = r->scratch + (size_t)thread * 2 * PADDED(half), *s = c + PADDED(half);
	float *x = r->y + n * r->heads * r->width;
	size_t i;

	r->simd->cos_sin(c, s, r->pos[n], r->rope->freq, half);
	for (i = 0; r->rope->factor != 1 && i < half; i++) {
		c[i] *= r->rope->factor;
		s[i] *= r->rope->factor;
	}
	if (dims == r->width)
		r->simd->rotate(x, c, s, r->heads, r->width);
	else
		for (i = 0; i < r->heads; i++)
			r->simd->rotate(x + i * r->width, c, s, 1, dims);
}

void
cpu_rope(struct dev *d, float *x, const uint32_t *pos, const struct rotary *rope, uint32_t N,
    uint32_t heads, uint32_t E)
{
	struct rows r = { .simd = d->simd, .y = x, .pos = pos, .rope = rope, .heads = heads,
	    .width = E };
	size_t tables = (size_t)d->threads * 2 * PADDED(rope->dims / 2) * sizeof *r.scratch;

	if (d->error[0] == '\0' && (r.scratch = cpu_scratch(d, tables)) != NULL)
		cpu_run(d, rope_row, &r, N, N * r.heads * r.width);
}

void
cpu_store_row(struct dev *d, void *rows, size_t row, const float *x, enum kv_row_type type,
    size_t width, const char *what, size_t g)
{
	char *at = (char *)rows + row * kv_row_bytes(type, width);

	if (kv_rows_from_f32(at, x, type, width, 1) < 1)
		cpu_fail(d, "store: a %s of KV head %zu is not finite, or too large for %s", what,
		    g, kv_row_type_name(type));
}

static void
append_row(void *arg, size_t n, int thread)
{
	const struct rows *r = arg;
	const struct layer_rows *c = r->cache;
	size_t g, row, from;

	(void)thread;
	for (g = 0; g < r->heads; g++) {
		row = c->start[g] + c->len[g] + n;
		from = (n * r->heads + g) * r->width;
		cpu_store_row(r->d, c->k, row, r->x + from, rows_k_type(c), r->width, "key",
		    g);
		if (c->v != NULL && !c->v_in_k)
			cpu_store_row(r->d, c->v, row, r->w + from, rows_v_type(c), r->width,
			    "value", g);
		c->pos[row] = r->pos[n];
	}
}

void
cpu_append(struct dev *d, struct layer_rows *c, const float *k, const float *v,
    const uint32_t *pos, uint32_t N)
{
	struct rows r = { .d = d, .x = k, .w = v, .pos = pos, .cache = c, .heads = c->heads,
	    .width = c->width };
	uint32_t g;

	if (d->error[0] != '\0')
		return;
	if (rows_k_bytes(c) == 0 || rows_v_bytes(c) == 0)
		cpu_fail(d, "store: rows of width %u of types %d and %d", c->width,
		    (int)rows_k_type(c), (int)rows_v_type(c));
	for (g = 0; g < c->heads; g++)
		if (c->len[g] > c->capacity[g] || N > c->capacity[g] - c->len[g]) {
			cpu_fail(d, "store: KV head %u has %u rows of %u, no room for %u", g,
			    c->len[g], c->capacity[g], N);
			return;
		}
	if (d->error[0] != '\0')
		return;
	if (c->recent != NULL)
		cpu_append_recent(d, c, k, v, pos, N);
	else
		cpu_run(d, append_row, &r, N, N * r.heads * r.width);
	for (g = 0; g < c->heads && d->error[0] == '\0'; g++)
		c->len[g] += N;
}

void
cpu_round(struct dev *d, float *x, size_t n, enum kv_dtype dtype)
{
	unsigned char rounded[4096];
	const size_t most = sizeof rounded / sizeof *x;
	size_t part;

	for (; n > 0 && dtype != KV_F32 && d->error[0] == '\0'; x += part, n -= part) {
		part = n < most ? n : most;
		kv_from_f32(rounded, x, dtype, part);
		kv_to_f32(x, rounded, dtype, part);
	}
}

/* A gated activation of N rows */
struct gated {
	void (*row)(float *y, const float *gate, const float *up, size_t n);
	float *y;
	const float *gate, *up;
	size_t width;
};

static void
gated_row(void *arg, size_t n, int thread)
{
	const struct gated *r = arg;
	const size_t at = n * r->width;

	(void)thread;
	r->row(r->y + at, r->gate + at, r->up + at, r->width);
}

void
cpu_swiglu(struct dev *d, float *y, const float *gate, const float *up, uint32_t N, uint32_t F)
{
	struct gated r = { d->simd->swiglu, y, gate, up, F };

	if (d->error[0] == '\0')
		cpu_run(d, gated_row, &r, N, N * r.width);
}

void
cpu_geglu(struct dev *d, float *y, const float *gate, const float *up, uint32_t N, uint32_t F)
{
	struct gated r = { d->simd->geglu, y, gate, up, F };

	if (d->error[0] == '\0')
		cpu_run(d, gated_row, &r, N, N * r.width);
}

struct mix {
	float *y;
	const float *x;
	size_t n;
	float a, b;
};

enum { MIX_PART = 4096 };

static void
mix_part(void *arg, size_t part, int thread)
{
	const struct mix *m = arg;
	const size_t end = (part + 1) * MIX_PART < m->n ? (part + 1) * MIX_PART : m->n;
	size_t i = part * MIX_PART;

	(void)thread;
	if (m->b == 0)
		for (; i < end; i++)
			m->y[i] = m->a * m->x[i];
	else
		for (; i < end; i++)
			m->y[i] = m->a * m->x[i] + m->b * m->y[i];
}

void
cpu_mix(struct dev *d, float *y, const float *x, size_t n, float a, float b)
{
	struct mix m = { y, x, n, a, b };

	if (d->error[0] == '\0')
		cpu_run(d, mix_part, &m, (n + MIX_PART - 1) / MIX_PART, n);
}

struct repeat {
	float *y;
	const float *x;
	size_t width;
	uint32_t times;
};

static void
repeat_row(void *arg, size_t n, int thread)
{
	const struct repeat *r = arg;
	float *y = r->y + n * r->times * r->width;
	uint32_t i;

	(void)thread;
	for (i = 0; i < r->times; i++, y += r->width)
		memcpy(y, r->x + n * r->width, r->width * sizeof *y);
}

void
cpu_repeat_heads(struct dev *d, float *y, const float *x, size_t n, uint32_t times, uint32_t E)
{
	struct repeat r = { y, x, E, times };

	if (d->error[0] == '\0')
		cpu_run(d, repeat_row, &r, n, n * times * E);
}

struct softcap {
	const struct simd *simd;
	float *x;
	size_t n;
	float cap;
};

static void
softcap_part(void *arg, size_t part, int thread)
{
	const struct softcap *c = arg;
	const size_t at = part * MIX_PART, n = c->n - at < MIX_PART ? c->n - at : MIX_PART;

	(void)thread;
	c->simd->cap(c->x + at, n, c->cap);
}

void
cpu_softcap(struct dev *d, float *x, size_t n, float cap)
{
	struct softcap c = { d->simd, x, n, cap };

	if (d->error[0] == '\0')
		cpu_run(d, softcap_part, &c, (n + MIX_PART - 1) / MIX_PART, n);
}

void
cpu_add_lse(float *lse, const float *other, size_t n)
{
	float high, low;
	size_t i;

	for (i = 0; i < n; i++) {
		high = lse[i] > other[i] ? lse[i] : other[i];
		low = lse[i] > other[i] ? other[i] : lse[i];
		lse[i] = low == -INFINITY ? high : high + log1pf(expf(low - high));
	}
}

void
cpu_lse_merge(struct dev *d, float *lse, const float *other, size_t n)
{
	if (d->error[0] == '\0')
		cpu_add_lse(lse, other, n);
}

void
cpu_argmax(struct dev *d, uint32_t *tok, const float *x, uint32_t n, uint32_t N)
{
	uint32_t i, row;

	for (row = 0; row < N && d->error[0] == '\0'; row++, x += n) {
		float most = -INFINITY;

		tok[row] = UINT32_MAX;
		for (i = 0; i < n; i++)
			if (x[i] > most && x[i] < INFINITY) {
				most = x[i];
				tok[row] = i;
			}
	}
}
