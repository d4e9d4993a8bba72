/* bench_layer.c - benchmark of matmul and of a layer of Llama 3.1 8B, for one row and for
 * many */
#include <stdio.h>
#include <stdlib.h>

#include "ops/compose.h"
#include "tests/gpu/bench_gpu.h"

/* Switch of the backend for devices opened from now on: no programmatic dependent launch */
extern void gpu_force_no_pdl(int);

struct multiplied {
	float *x, *y;
	struct mat w[MOST_COPIES];
	uint32_t N;
	int copies;
};

static void
call_matmul(void *arg, int i)
{
	struct multiplied *p = arg;

	o->matmul(dev, p->y, p->x, &p->w[i % p->copies], NULL, p->N, 0);
}

void
bench_matmul(void)
{
	static const uint32_t N[] = { 1, 8, 8192 };
	static const struct {
		uint32_t in, out;
	} shape[] = { { 4096, 4096 }, { 4096, 1024 }, { 4096, 14336 }, { 14336, 4096 },
		{ 4096, 128256 } };
	size_t n, s;
	char what[80];

	for (n = 0; n < 3; n++)
		for (s = 0; s < 5; s++) {
			const uint32_t in = tiny ? 64 : shape[s].in, out = tiny ? 100 :
			    shape[s].out;
			const size_t bytes = (size_t)in * out * 2;
			struct multiplied p = { .N = tiny ? N[n] % 100 : N[n] };
			int c;

			if (s == 4 && n > 0)
				continue;
			p.copies = n == 2 || tiny ? 1 : (int)(400e6 / (double)bytes) + 1;
			if (p.copies > MOST_COPIES)
				p.copies = MOST_COPIES;
			p.x = fill((size_t)p.N * in, KV_F32, 1);
			p.y = device_alloc((size_t)p.N * out * 4);
			for (c = 0; c < p.copies; c++)
				p.w[c] = (struct mat){ fill((size_t)in * out, KV_BF16, 1),
					WEIGHT_BF16, out, in };
			snprintf(what, sizeof what, "matmul N %u, %u -> %u", p.N, in, out);
			/* cuBLAS is not captured */
			(n == 2 ? report_launched : report)(what, call_matmul, &p, (double)bytes,
			    2.0 * p.N * in * out);
			for (c = 0; c < p.copies; c++)
				o->free(dev, (void *)p.w[c].data);
			o->free(dev, p.x);
			o->free(dev, p.y);
		}
}

/* ---- a layer ---- */

enum { LAYERS = 4 };                 /* 1.7 GB of weights: none stays in L2 */

struct shape {
	uint32_t N, D, F, H, G, E, S;
};

struct stack {
	struct shape s;
	struct {
		struct mat q, k, v, o;
		struct ffn ffn;
		struct layer_rows rows;
		uint64_t start[8];
		uint32_t len[8], capacity[8];
	} layer[LAYERS];
	float *x, *xn, *q, *k, *v, *gate, *up;
	uint32_t *pos;
	double *freq;
};

static struct mat
matrix(uint32_t out, uint32_t in)
{
	return (struct mat){ fill((size_t)out * in, KV_BF16, 0.02f), WEIGHT_BF16, out, in };
}

/* S rows of each KV head, at the first positions, and capacity for N more */
static void
make_cache(struct layer_rows *rows, const struct shape *s)
{
	const size_t n = (size_t)s->G * (s->S + s->N);
	uint32_t *pos = count_up(s->S + s->N, 0), g;

	rows->k = fill(n * s->E, KV_BF16, 1);
	rows->v = fill(n * s->E, KV_BF16, 1);
	rows->pos = device_alloc(n * sizeof *rows->pos);
	rows->heads = s->G;
	rows->width = s->E;
	rows->dtype = KV_BF16;
	for (g = 0; g < s->G; g++) {
		rows->start[g] = (uint64_t)g * (s->S + s->N);
		rows->capacity[g] = s->S + s->N;
		o->copy(dev, rows->pos + rows->start[g], pos, rows->capacity[g] * sizeof *pos);
	}
	o->free(dev, pos);
}

static void
make_stack(struct stack *t, struct shape s)
{
	const size_t x = (size_t)s.N * s.D, q = (size_t)s.N * s.H * s.E;
	const size_t kv = (size_t)s.N * s.G * s.E, y = (size_t)s.N * s.F;
	double freq[64] = { 1 };
	int l;

	*t = (struct stack){ .s = s, .x = fill(x, KV_F32, 1), .xn = device_alloc(x * 4),
		.q = fill(q, KV_F32, 1), .k = fill(kv, KV_F32, 1), .v = fill(kv, KV_F32, 1),
		.gate = device_alloc(y * 4), .up = device_alloc(y * 4), .pos = count_up(s.N, s.S),
		.freq = device_alloc(sizeof freq) };
	o->put(dev, t->freq, freq, sizeof freq);
	for (l = 0; l < LAYERS; l++) {
		struct mat gate = matrix(2 * s.F, s.D), up = gate;     /* as a model's lie */

		gate.out = up.out = s.F;
		up.data = (const uint16_t *)gate.data + (size_t)s.F * s.D;
		t->layer[l].q = matrix(s.H * s.E, s.D);
		t->layer[l].k = matrix(s.G * s.E, s.D);
		t->layer[l].v = matrix(s.G * s.E, s.D);
		t->layer[l].o = matrix(s.D, s.H * s.E);
		t->layer[l].ffn = (struct ffn){ .norm = { .w = fill(s.D, KV_F32, 1), .eps = 1e-5f },
			.gate = gate, .up = up, .down = matrix(s.D, s.F) };
		t->layer[l].rows.start = t->layer[l].start;
		t->layer[l].rows.len = t->layer[l].len;
		t->layer[l].rows.capacity = t->layer[l].capacity;
		make_cache(&t->layer[l].rows, &s);
	}
}

static void
free_stack(struct stack *t)
{
	void *const all[] = { t->x, t->xn, t->q, t->k, t->v, t->gate, t->up, t->pos, t->freq };
	size_t i;
	int l;

	for (i = 0; i < sizeof all / sizeof all[0]; i++)
		o->free(dev, all[i]);
	for (l = 0; l < LAYERS; l++) {
		const struct mat m[] = { t->layer[l].q, t->layer[l].k, t->layer[l].v, t->layer[l].o,
			t->layer[l].ffn.gate, t->layer[l].ffn.down };

		for (i = 0; i < sizeof m / sizeof m[0]; i++)
			o->free(dev, (void *)m[i].data);
		o->free(dev, (void *)t->layer[l].ffn.norm.w);
		o->free(dev, t->layer[l].rows.k);
		o->free(dev, t->layer[l].rows.v);
		o->free(dev, t->layer[l].rows.pos);
	}
}

static void
call_project(void *arg, int i)
{
	struct stack *t = arg;
	const int l = i % LAYERS;
	const struct product qkv[] = { { t->q, &t->layer[l].q, NULL },
		{ t->k, &t->layer[l].k, NULL }, { t->v, &t->layer[l].v, NULL } };

	run_project(o, dev, qkv, 3, t->x, &t->layer[l].ffn.norm, t->xn, t->s.N);
}

static void
call_rope_append(void *arg, int i)
{
	struct stack *t = arg;
	struct layer_rows *rows = &t->layer[i % LAYERS].rows;
	uint32_t g;

	for (g = 0; g < t->s.G; g++)
		rows->len[g] = t->s.S;
	run_rope_append(o, dev, rows, t->q, t->k, t->v, t->pos, &(struct rotary){ t->freq, t->s.E,
	    1, 0 }, t->s.N, t->s.H);
}

static void
call_ffn(void *arg, int i)
{
	struct stack *t = arg;

	run_ffn(o, dev, t->x, &t->layer[i % LAYERS].ffn, t->xn, t->gate, t->up, t->s.N);
}

static void
call_layer(void *arg, int i)
{
	struct stack *t = arg;
	const struct query query = { .q = t->q, .pos = t->pos, .N = t->s.N, .H = t->s.H };

	call_project(t, i);
	call_rope_append(t, i);
	o->attend(dev, t->gate, NULL, &query, &t->layer[i % LAYERS].rows);
	o->matmul(dev, t->x, t->gate, &t->layer[i % LAYERS].o, NULL, t->s.N, 1);
	call_ffn(t, i);
}

static double
report_layer(const char *op, void (*call)(void *, int), struct stack *t, double bytes, double flop,
    const char *how)
{
	char what[80];

	snprintf(what, sizeof what, "%s N %u%s", op, t->s.N, how);
	/* cuBLAS, which multiplies many rows, is not captured. */
	return (t->s.N > 1 ? report_launched : report)(what, call, t, bytes, flop);
}

/* All ops of a layer, and the layer; returns the seconds of the layer. */
static double
report_stack(struct stack *t, const char *how)
{
	const struct shape s = t->s;
	const double attention = (double)s.H * s.E, kv = (double)s.G * s.E;
	const double qkv = s.D * (attention + 2 * kv), ffn = 3.0 * s.D * s.F;
	const double rows = 4 * kv * (s.S + s.N), all = qkv + s.D * attention + ffn;

	report_layer("project", call_project, t, 2 * qkv + 4 * s.N * (s.D + attention + 2 * kv),
	    2 * s.N * qkv, how);
	report_layer("place", call_rope_append, t, s.N * (8 * attention + 12 * kv), 0, how);
	report_layer("ffn", call_ffn, t, 2 * ffn + 8.0 * s.N * s.D, 2 * s.N * ffn, how);
	return report_layer("layer", call_layer, t, 2 * all + rows, 2 * s.N * all +
	    4.0 * s.N * (s.S + s.N / 2.0) * attention, how);
}

/* Measures the layer without programmatic dependent launch, and its ratio to s seconds */
static void
report_stack_in_turn(struct stack *t, double s)
{
	struct dev *before = dev;
	char err[256];

	gpu_force_no_pdl(1);
	dev = o->open(0, 0, err, sizeof err);
	gpu_force_no_pdl(0);
	if (dev != NULL) {
		printf("{\"what\": \"layer N 1, in turn / early\", \"ratio\": %.3f}\n",
		    report_stack(t, ", in turn") / s);
		o->close(dev);
	}
	dev = before;
}

/* Decoding with a context of 8192 rows; also without programmatic dependent launch. Then a chunk
 * of a prompt. */
void
bench_layer(void)
{
	const struct shape one = { 1, 4096, 14336, 32, 8, 128, 8192 };
	const struct shape tiny_one = { 1, 64, 100, 4, 2, 16, 50 };
	struct stack t;
	double s;

	make_stack(&t, tiny ? tiny_one : one);
	sync_or_die("layer");
	s = report_stack(&t, "");
	report_stack_in_turn(&t, s);
	free_stack(&t);
	t.s.S = 0;
	t.s.N = tiny ? 20 : 4096;
	make_stack(&t, t.s);
	report_stack(&t, "");
	free_stack(&t);
}
