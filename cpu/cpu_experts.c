/* cpu_experts.c - a mixture of experts: each row through the experts that its router chooses
 *
 * Rows are grouped by expert, so that the weights of an expert are read once for all its rows, and
 * those of an expert without rows not at all. Experts with few rows run together, their weight rows
 * cut into items for all threads: a step has one row at each of its experts. One with more is a
 * matrix product of its own, as any other (cpu_matmul.c), with the same limit between both.
 *
 * The sums of a row do not depend on the other rows as long as all experts have few, and never on
 * the number of threads; what experts add to a row is summed in the order in which it chose
 * them. */
#include <math.h>

#include "cpu/cpu_blocks.h"
#include "cpu/cpu_experts.h"

#define DOT_BYTES 65536      /* weights of one item, in eights of rows */

/* One of the three products (gate, up, down), for all experts that have few rows */
struct few {
	const struct mixing *j;
	const struct expert_mats *w;
	int second;                  /* 1: up; y is behind that of gate */
	int down;                    /* 1: from hidden to x */
	size_t row;                  /* bytes of a row of x as the inner loops take it */
	size_t step, items;          /* weight rows of an item; items of an expert */
	char *x;                     /* scratch [places][row] */
	char *decoded;               /* scratch of each thread: a weight row */
	size_t decoded_bytes;        /* of a thread */
};

/* Places of an expert */
static size_t
rows_of(const struct mixing *j, uint32_t e)
{
	return j->r.first[e + 1] - j->r.first[e];
}

static int
has_few(const struct mixing *j, const struct expert_mats *w, uint32_t e)
{
	return cpu_few_rows(j->d, rows_of(j, e), w->type);
}

/* gate . x of the first place of an expert, or of any with up */
static float *
hidden_of(const struct mixing *j, uint32_t e, int up)
{
	const size_t F = j->e->down.in;

	return j->r.hidden + 2 * F * j->r.first[e] + (up ? F * rows_of(j, e) : 0);
}

/* ---- experts with few rows ---- */

/* A place: the row of x for the inner loops */
static void
arrange_item(void *arg, size_t place, int thread)
{
	const struct few *f = arg;
	const struct mixing *j = f->j;
	const size_t in = f->w->in;
	const uint32_t e = j->r.of[place];
	const float *x = f->down ? hidden_of(j, e, 0) + (place - j->r.first[e]) * in :
	    j->x + j->r.row[place] * in;
	void *to = f->x + place * f->row;

	(void)thread;
	if (!has_few(j, f->w, e))
		return;
	if (weight_is_block(f->w->type) && !j->d->exact)
		j->d->simd->round_x(to, x, 1, in);
	else
		j->d->simd->arrange(to, x, 1, in, weight_is_block(f->w->type) ? KV_F32 :
		    (enum kv_dtype)f->w->type);
}

/* y[n][ldy] <- the products of n places with `rows` weight rows at w */
static void
multiply_few(const struct few *f, float *y, const char *x, size_t n, const char *w, size_t rows,
    const float *bias, int thread)
{
	const struct dev *d = f->j->d;
	const size_t in = f->w->in, out = f->w->out, bytes = weight_row_bytes(f->w->type, in);
	void *decoded = f->decoded + (size_t)thread * f->decoded_bytes;
	const struct block_product job = { .y = y, .ldy = out, .x = (const void *)x, .N = n,
		.w = w, .rows = rows, .in = in, .bias = bias, .decoded = decoded };
	size_t o;

	if (!weight_is_block(f->w->type))
		d->simd->dots(y, out, (const void *)x, n, w, (enum kv_dtype)f->w->type, rows, in,
		    bias, 0);
	else if (!d->exact)
		d->block_dots(&job, f->w->type);
	else
		for (o = 0; o < rows; o++) {
			d->simd->widen_blocks(decoded, w + o * bytes, f->w->type, in);
			d->simd->dots(y + o, out, (const void *)x, n, decoded, KV_F32, 1, in,
			    bias == NULL ? NULL : bias + o, 0);
		}
}

/* Some weight rows of one of the experts that have rows */
static void
few_item(void *arg, size_t item, int thread)
{
	const struct few *f = arg;
	const struct mixing *j = f->j;
	const struct expert_mats *w = f->w;
	const uint32_t e = j->r.busy[1 + item / f->items];
	const size_t o = item % f->items * f->step, first = j->r.first[e];
	const size_t rows = w->out - o < f->step ? w->out - o : f->step;
	float *y = f->down ? j->r.x + first * w->out : hidden_of(j, e, f->second);

	if (has_few(j, w, e))
		multiply_few(f, y + o, f->x + first * f->row, rows_of(j, e),
		    (const char *)w->at[e] + o * weight_row_bytes(w->type, w->in), rows,
		    w->bias == NULL ? NULL : w->bias + (size_t)e * w->out + o, thread);
}

static void
run_few(struct few *f)
{
	const struct mixing *j = f->j;
	struct dev *d = j->d;
	const size_t in = f->w->in, places = j->N * j->e->router.chosen;
	const int rounds = weight_is_block(f->w->type) && !d->exact;

	f->row = rounds ? chunks_of(in) * sizeof(struct x_chunk) : DOTS_LD(in) * sizeof(float);
	f->decoded_bytes = weight_is_block(f->w->type) ? ((d->exact ? in * sizeof(float) :
	    chunks_of(in) * sizeof(struct chunk)) + 4159) / 64 * 64 : 0;
	f->step = (DOT_BYTES / weight_row_bytes(f->w->type, in) + 8) / 8 * 8;
	f->items = (f->w->out + f->step - 1) / f->step;
	if ((f->x = cpu_scratch(d, places * f->row + (size_t)d->threads * f->decoded_bytes)) ==
	    NULL)
		return;
	f->decoded = f->x + places * f->row;
	if (!f->second || f->w->type != j->e->gate.type)
		cpu_run(d, arrange_item, f, places, places * in);
	cpu_run(d, few_item, f, j->r.busy[0] * f->items, places * in * f->w->out);
}

/* ---- experts with more ---- */

static void
gather_item(void *arg, size_t place, int thread)
{
	const struct mixing *j = arg;
	const size_t D = j->e->gate.in;

	(void)thread;
	if (!has_few(j, &j->e->gate, j->r.of[place]) || !has_few(j, &j->e->up, j->r.of[place]))
		memcpy(j->r.x + place * D, j->x + j->r.row[place] * D, D * sizeof *j->x);
}

/* The product of each expert that has more than few rows */
static void
run_more(const struct few *f)
{
	const struct mixing *j = f->j;
	const struct expert_mats *w = f->w;
	uint32_t i;

	for (i = 1; i <= j->r.busy[0]; i++) {
		const uint32_t e = j->r.busy[i];
		const struct mat m = { w->at[e], w->type, w->out, w->in };
		float *x = j->r.x + j->r.first[e] * (size_t)j->e->gate.in;
		float *hidden = hidden_of(j, e, f->second);

		if (!has_few(j, w, e))
			cpu_matmul(j->d, f->down ? x : hidden, f->down ? hidden : x, &m,
			    w->bias == NULL ? NULL : w->bias + (size_t)e * w->out,
			    (uint32_t)rows_of(j, e), 0);
	}
}

/* ---- the whole ---- */

static void
activate_limited(float *gate, const float *up, size_t n, float limit)
{
	size_t i;

	for (i = 0; i < n; i++) {
		/* a NaN stays one */
		const float g = gate[i] > limit ? limit : gate[i];
		const float u = up[i] > limit ? limit : up[i] < -limit ? -limit : up[i];

		gate[i] = g / (1 + expf(-1.702F * g)) * (u + 1);
	}
}

static void
activate_item(void *arg, size_t place, int thread)
{
	const struct mixing *j = arg;
	const size_t F = j->e->down.in;
	const uint32_t e = j->r.of[place];
	const size_t i = (place - j->r.first[e]) * F;
	float *gate = hidden_of(j, e, 0) + i;

	(void)thread;
	if (j->e->limit > 0)
		activate_limited(gate, hidden_of(j, e, 1) + i, F, j->e->limit);
	else
		(j->e->act == ACT_GELU_TANH ? j->d->simd->geglu : j->d->simd->swiglu)(gate, gate,
		    hidden_of(j, e, 1) + i, F);
}

/* A row: the weighted sum of what its experts add */
static void
sum_item(void *arg, size_t n, int thread)
{
	const struct mixing *j = arg;
	const size_t D = j->e->down.out, K = j->e->router.chosen;
	float *y = j->y + n * D;
	size_t k, i;

	(void)thread;
	for (k = 0; k < K; k++) {
		const float weight = j->r.weight[n * K + k];
		const float *x = j->r.x + j->r.place[n * K + k] * D;

		for (i = 0; i < D; i++)
			y[i] = weight * x[i] + (k == 0 ? 0 : y[i]);
	}
}

void
cpu_experts(struct dev *d, float *y, const float *x, const struct experts *e, void *scratch,
    uint32_t N)
{
	struct mixing j = { .d = d, .e = e, .x = x, .y = y, .N = N };
	struct few gate = { .j = &j, .w = &e->gate }, up = { .j = &j, .w = &e->up, .second = 1 };
	struct few down = { .j = &j, .w = &e->down, .down = 1 };
	const size_t places = (size_t)N * e->router.chosen;

	if (d->error[0] != '\0' || N == 0)
		return;
	expert_rows_at(&j.r, scratch, e, N);
	cpu_route(&j);
	if (d->error[0] != '\0')
		return;
	run_few(&gate);
	run_few(&up);
	cpu_run(d, gather_item, &j, places, places * e->gate.in);
	run_more(&gate);
	run_more(&up);
	cpu_run(d, activate_item, &j, places, places * e->down.in * 16);
	run_few(&down);
	run_more(&down);
	if (d->error[0] == '\0')
		cpu_run(d, sum_item, &j, N, places * e->down.out);
}
