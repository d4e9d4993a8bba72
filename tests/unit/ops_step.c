/* ops_step.c - a step of decoding that stays on the device: the next token (argmax), its row
 * (embed_ids), and steps as CUDA graphs */
#include <stdio.h>
#include <string.h>

#include "forward/sample.h"
#include "ops/compose.h"
#include "tests/unit/ops_check.h"

/* ---- argmax ---- */

extern int cuda_emulated_failure __attribute__((weak));
size_t cuda_emulated_held(void) __attribute__((weak));

/* What sample() takes at temperature 0 */
static uint32_t
ref_argmax(const float *x, uint32_t n)
{
	uint32_t i, best = UINT32_MAX;

	for (i = 0; i < n; i++)
		if (isfinite(x[i]) && (best == UINT32_MAX || x[i] > x[best]))
			best = i;
	return best;
}

/* Of three rows: x, a row of numbers that are not finite, and x from its middle on. offset: of the
 * first score, in floats */
static void
check_argmax(const float *x, uint32_t n, uint32_t offset, const char *what)
{
	float *row = malloc(3 * (size_t)n * sizeof *row);
	uint32_t want[3], got[5], i;
	int k;

	for (i = 0; i < n; i++) {
		row[i] = x[i];
		row[n + i] = i % 2 == 0 ? NAN : INFINITY;
		row[2 * n + i] = x[(n / 2 + i) % n];
	}
	for (i = 0; i < 3; i++)
		want[i] = ref_argmax(row + (size_t)i * n, n);

	for (k = 0; k < devices; k++) {
		struct device *d = &device[k];
		float *dx = d->ops->alloc(d->dev, (3 * (size_t)n + offset + 1) * 4);
		uint32_t *tok = to_device(d, (uint32_t[]){ 7, 7, 7, 7, 7 }, 20);

		d->ops->put(d->dev, dx + offset, row, 3 * (size_t)n * 4);
		d->ops->argmax(d->dev, tok + 1, dx + offset, n, 3);
		d->ops->get(d->dev, got, tok, 20);
		verdict(d->ops->sync(d->dev) == NULL && memcmp(got + 1, want, 12) == 0 &&
		    got[0] == 7 && got[4] == 7, "%s: argmax of %u, %s: %u %u %u, not %u %u %u",
		    d->name, n, what, got[1], got[2], got[3], want[0], want[1], want[2]);
		d->ops->free(d->dev, dx);
		d->ops->free(d->dev, tok);
	}
	free(row);
}

static void
test_argmax(uint32_t n)
{
	float *x = floats(n + 1, 30);
	uint32_t i;

	check_argmax(x, n, 0, "random");
	check_argmax(x, n, 1, "at an odd place");
	for (i = 0; i < n; i++)
		x[i] = -3 - x[i] * x[i];
	check_argmax(x, n, 0, "all negative");
	for (i = 0; i < 5 && n > 0; i++)
		x[draw(n)] = i % 2 == 0 ? 0.0f : -0.0f;
	check_argmax(x, n, 0, "zeros of both signs");
	for (i = 0; i < 9 && n > 0; i++)
		x[draw(n)] = 4e-39f;
	check_argmax(x, n, 0, "equal and subnormal");
	for (i = 0; i < n; i++)
		if (draw(3) > 0)
			x[i] = i % 3 == 0 ? NAN : i % 3 == 1 ? INFINITY : -INFINITY;
	check_argmax(x, n, 0, "many not finite");
	for (i = 0; i < n; i++)
		x[i] = i % 3 == 0 ? -NAN : i % 3 == 1 ? INFINITY : -INFINITY;
	check_argmax(x, n, 0, "none finite");
	if (n > 0)
		x[n - 1] = -3.4028235e38f;
	check_argmax(x, n, 0, "one finite, the last");
	free(x);
}

/* ---- embed_ids ---- */

/* As embed(), and an id that is none gives NaN. */
static void
test_embed_ids(enum kv_dtype type, uint32_t D, int offset)
{
	enum { V = 11, N = 5 };
	static const uint32_t tok[N] = { 3, V, 10, UINT32_MAX, 0 };
	float *table = floats((size_t)V * D, 3), *got;
	uint32_t n, i, wrong;
	int k;

	round_to(table, type, (size_t)V * D);
	for (k = 0; k < devices; k++) {
		struct device *d = &device[k];
		struct mat m = { to_device_as(d, table, type, (size_t)V * D),
			weight_type_of(type), V, D };
		float *x = d->ops->alloc(d->dev, (N * D + offset) * 4);
		uint32_t *at = to_device(d, tok, sizeof tok);

		d->ops->embed_ids(d->dev, x + offset, &m, at, N);
		got = from_device(d, x + offset, N * D);
		for (n = 0, wrong = 0; n < N; n++)
			for (i = 0; i < D; i++)
				wrong += tok[n] < V ? got[n * D + i] != table[tok[n] * D + i] :
				    !isnan(got[n * D + i]);
		verdict(d->ops->sync(d->dev) == NULL && wrong == 0, "%s: embed_ids %s %u: %u wrong",
		    d->name, kv_dtype_name(type), D, wrong);
		free(got);
		d->ops->free(d->dev, (void *)m.data);
		d->ops->free(d->dev, x);
		d->ops->free(d->dev, at);
	}
	free(table);
}

/* ---- graph_begin, graph_end, graph_launch ---- */

enum { D = 48, F = 72, V = 101, H = 6, G = 2, LAST = 9, ROOM = 32 };  /* LAST, ROOM: steps */

/* A model of one layer on one device, and what is between its ops */
struct small {
	struct device *on;
	struct mat embed, q, k, v, o;
	struct ffn ffn;
	struct norm norm;
	struct layer_rows rows;
	uint64_t start[G];
	uint32_t len[G], capacity[G];
	double *freq;
	uint32_t *tok, *pos;
	float *logits;
	float *x, *xn, *heads, *key, *value, *out, *gate, *up;
	uint32_t window;
	float softcap;
};

enum { FIRST = 300, SHORT = 140, LONG = 240, ROWS = SHORT + LONG + G * ROOM };
/* When a step is captured there are two more, 384 in all: six splits of 64 for attend() on the
 * emulator. Each appended row makes splits longer, so that a head ends in another one. */
static const uint32_t some_rows[G] = { SHORT, LONG };

/* Weights are small, so that logits are, and each row of the cache counts. */
static struct mat
matrix(struct device *d, enum kv_dtype type, uint32_t out, uint32_t in)
{
	float *w = floats((size_t)out * in, 0.1f);
	struct mat m = { to_device_as(d, w, type, (size_t)out * in),
		weight_type_of(type), out, in };

	free(w);
	return m;
}

static void
open_rows(struct small *s, enum kv_dtype type, uint32_t E)
{
	struct device *d = s->on;
	uint32_t pos[ROWS] = { 0 }, g, i;
	float *x = floats(ROWS * E, 0.5f);

	for (g = 0; g < G; g++) {
		s->start[g] = g == 0 ? 0 : s->start[g - 1] + s->capacity[g - 1];
		s->len[g] = some_rows[g];
		s->capacity[g] = some_rows[g] + ROOM;
		for (i = 0; i < some_rows[g]; i++)
			pos[s->start[g] + i] = FIRST - some_rows[g] + i;
	}
	s->rows = (struct layer_rows){ .k = to_device_as(d, x, type, ROWS * E),
	    .v = to_device_as(d, x, type, ROWS * E), .pos = to_device(d, pos, sizeof pos),
	    .start = s->start, .len = s->len, .capacity = s->capacity, .heads = G, .width = E,
	    .dtype = type };
	free(x);
}

static void
open_small(struct small *s, struct device *d, enum kv_dtype type, uint32_t E)
{
	static const float zeros[F + V + 256 * H];
	float *ones = floats(D, 1);
	double freq[64];
	uint32_t i;

	*s = (struct small){ .on = d, .embed = matrix(d, type, V, D), .q = matrix(d, type, H * E,
	    D), .k = matrix(d, type, G * E, D), .v = matrix(d, type, G * E, D),
	    .o = matrix(d, type, D, H * E),
	    .norm = { .w = to_device(d, ones, D * 4), .eps = 1e-5f } };
	s->ffn = (struct ffn){ s->norm, matrix(d, type, F, D), matrix(d, type, F, D),
	    matrix(d, type, D, F), 0, { 0, 0, 0, 0 } };
	open_rows(s, type, E);
	for (i = 0; i < E / 2; i++)
		freq[i] = pow(10000, -2.0 * i / E);
	s->freq = to_device(d, freq, E / 2 * sizeof *freq);
	s->tok = to_device(d, (uint32_t[]){ 17 }, 4);
	s->pos = to_device(d, (uint32_t[]){ FIRST }, 4);
	s->logits = to_device(d, zeros, V * 4);
	s->x = to_device(d, zeros, D * 4);
	s->xn = to_device(d, zeros, D * 4);
	s->heads = to_device(d, zeros, H * E * 4);
	s->key = to_device(d, zeros, G * E * 4);
	s->value = to_device(d, zeros, G * E * 4);
	s->out = to_device(d, zeros, H * E * 4);
	s->gate = to_device(d, zeros, F * 4);
	s->up = to_device(d, zeros, F * 4);
	free(ones);
}

static void *
copied(const struct device *d, const void *from, size_t bytes)
{
	void *to = d->ops->alloc(d->dev, bytes);

	d->ops->copy(d->dev, to, from, bytes);
	return to;
}

/* The same, with rows, token, position and logits of its own */
static void
twin_of(struct small *s, const struct small *from)
{
	const size_t bytes = ROWS * from->rows.width * kv_dtype_size(from->rows.dtype);

	*s = *from;
	s->rows.k = copied(s->on, from->rows.k, bytes);
	s->rows.v = copied(s->on, from->rows.v, bytes);
	s->rows.pos = copied(s->on, from->rows.pos, ROWS * 4);
	s->rows.start = s->start;
	s->rows.len = s->len;
	s->rows.capacity = s->capacity;
	s->tok = copied(s->on, from->tok, 4);
	s->pos = copied(s->on, from->pos, 4);
	s->logits = copied(s->on, from->logits, V * 4);
}

static void
close_small(struct small *s, int twin)
{
	void *const all[] = { s->rows.k, s->rows.v, s->rows.pos, s->tok, s->pos, s->logits,
		s->freq, s->x, s->xn, s->heads, s->key, s->value, s->out, s->gate, s->up,
		(void *)s->embed.data, (void *)s->q.data, (void *)s->k.data, (void *)s->v.data,
		(void *)s->o.data, (void *)s->norm.w, (void *)s->ffn.gate.data,
		(void *)s->ffn.up.data, (void *)s->ffn.down.data };
	size_t i;

	for (i = 0; i < (twin ? 6 : sizeof all / sizeof all[0]); i++)
		s->on->ops->free(s->on->dev, all[i]);
}

/* From the token at its position to the next token */
static void
ops_of_step(struct small *s)
{
	const struct ops *o = s->on->ops;
	struct dev *d = s->on->dev;
	const struct product qkv[] = { { s->heads, &s->q, NULL }, { s->key, &s->k, NULL },
		{ s->value, &s->v, NULL } };
	const struct product head = { s->logits, &s->embed, NULL };
	const struct query query = { .q = s->heads, .pos = s->pos, .N = 1, .H = H,
		.window = s->window, .softcap = s->softcap };

	o->embed_ids(d, s->x, &s->embed, s->tok, 1);
	run_project(o, d, qkv, 3, s->x, &s->norm, s->xn, 1);
	run_rope_append(o, d, &s->rows, s->heads, s->key, s->value, s->pos,
	    &(struct rotary){ s->freq, s->rows.width, 1, 0 }, 1, H);
	o->attend(d, s->out, NULL, &query, &s->rows);
	o->matmul(d, s->x, s->out, &s->o, NULL, 1, 1);
	run_ffn(o, d, s->x, &s->ffn, s->xn, s->gate, s->up, 1);
	run_project(o, d, &head, 1, s->x, &s->norm, s->xn, 1);
	o->argmax(d, s->tok, s->logits, V, 1);
}

static void
plain_step(struct small *s, uint32_t position)
{
	s->on->ops->put(s->on->dev, s->pos, &position, 4);
	ops_of_step(s);
}

/* Captures a step. Returns the graph; 0: none, and len is unchanged. failing: number of the call of
 * the runtime that fails meanwhile; 0: none */
static uint32_t
capture_step(struct small *s, uint32_t position, int failing)
{
	uint32_t len[G], graph = 0;

	memcpy(len, s->len, sizeof len);
	s->on->ops->put(s->on->dev, s->pos, &position, 4);
	if (failing > 0)
		cuda_emulated_failure = failing;
	if (s->on->ops->graph_begin(s->on->dev)) {
		ops_of_step(s);
		graph = s->on->ops->graph_end(s->on->dev, s->pos);
	}
	if (!graph)
		memcpy(s->len, len, sizeof len);
	return graph;
}

/* Do both have the same rows, token and logits? */
static int
same_small(const struct small *a, const struct small *b)
{
	const struct device *d = a->on;
	const size_t bytes = ROWS * a->rows.width * kv_dtype_size(a->rows.dtype);
	const struct { const void *a, *b; size_t bytes; } part[] = {
		{ a->rows.k, b->rows.k, bytes }, { a->rows.v, b->rows.v, bytes },
		{ a->rows.pos, b->rows.pos, ROWS * 4 }, { a->tok, b->tok, 4 },
		{ a->logits, b->logits, V * 4 },
	};
	char *x = malloc(bytes + (ROWS + V) * 4), *y = malloc(bytes + (ROWS + V) * 4);
	int same = memcmp(a->len, b->len, sizeof a->len) == 0;
	size_t i;

	for (i = 0; i < sizeof part / sizeof part[0]; i++) {
		d->ops->get(d->dev, x, part[i].a, part[i].bytes);
		d->ops->get(d->dev, y, part[i].b, part[i].bytes);
		same &= memcmp(x, y, part[i].bytes) == 0;
	}
	free(x);
	free(y);
	return same && d->ops->sync(d->dev) == NULL;
}

/* One runs step by step; of its twin one step is captured, and the graph is launched for the
 * others. */
static void
test_launches(struct device *d, enum kv_dtype type, uint32_t E, uint32_t window, float softcap)
{
	const struct ops *o = d->ops;
	struct small plain, twin;
	uint32_t i, g, pos = 0, graph;

	open_small(&plain, d, type, E);
	plain.window = window;
	plain.softcap = softcap;
	twin_of(&twin, &plain);
	plain_step(&plain, FIRST);
	plain_step(&twin, FIRST);
	graph = capture_step(&twin, FIRST + 1, 0);
	verdict(graph != 0, "%s: capture: %s", d->name, o->describe(d->dev));
	for (i = 1; i < LAST; i++) {
		plain_step(&plain, FIRST + i);
		for (g = 0; g < G && i > 1; g++)
			twin.len[g]++;
		verdict(o->graph_launch(d->dev, graph, i - 1) && same_small(&plain, &twin),
		    "%s: launch %u of a step, %s, width %u, window %u", d->name, i,
		    kv_dtype_name(type), E, window);
		if (i == LAST / 2) {                    /* another token than the argmax */
			o->put(d->dev, plain.tok, (uint32_t[]){ 5 }, 4);
			o->put(d->dev, twin.tok, (uint32_t[]){ 5 }, 4);
		}
	}
	o->get(d->dev, &pos, twin.pos, 4);
	verdict(pos == FIRST + LAST, "%s: position %u after %d steps", d->name, pos, LAST);
	close_small(&twin, 1);
	close_small(&plain, 0);
}

/* What cannot be captured, and when a graph cannot be launched */
static void
test_no_graph(struct device *d)
{
	const struct ops *o = d->ops;
	uint32_t list[64], i, first, second;
	struct query query = { .N = 1, .H = H };
	struct small s;
	float *at;

	for (i = 0; i < 64; i++)
		list[i] = i + 1;
	open_small(&s, d, KV_F32, 16);
	at = d->ops->alloc(d->dev, 64 * D * sizeof *at);
	verdict(!o->graph_launch(d->dev, 0, 0) && !o->graph_end(d->dev, s.pos), "%s: nothing "
	    "captured", d->name);
	query.q = s.heads;
	plain_step(&s, FIRST);
	o->key_scores(d->dev, at, ROWS, &query, &s.rows);      /* loads its kernel */
	verdict(o->graph_begin(d->dev), "%s: graph_begin", d->name);
	o->put(d->dev, s.tok, list, 4);
	verdict(!o->graph_end(d->dev, s.pos), "%s: put captured", d->name);
	verdict(o->graph_begin(d->dev), "%s: graph_begin", d->name);
	o->get(d->dev, list, s.tok, 4);
	verdict(!o->graph_end(d->dev, s.pos), "%s: get captured", d->name);
	verdict(o->graph_begin(d->dev), "%s: graph_begin", d->name);
	o->key_scores(d->dev, at, ROWS, &query, &s.rows);
	first = o->graph_end(d->dev, s.pos);
	verdict(first && !o->graph_launch(d->dev, first, 1) && o->graph_launch(d->dev, first, 0),
	    "%s: scores captured, for the lengths of the capture", d->name);
	first = capture_step(&s, FIRST + 1, 0);
	verdict(first && o->graph_launch(d->dev, first, 0), "%s: launch", d->name);
	o->embed(d->dev, at, &s.embed, list, 64);       /* takes scratch for the list */
	verdict(!o->graph_launch(d->dev, first, 0), "%s: launch after scratch has moved", d->name);
	second = capture_step(&s, FIRST + 2, 0);
	verdict(second && o->graph_launch(d->dev, second, 0) && !o->graph_launch(d->dev, first, 0),
	    "%s: launch of the last graph", d->name);
	verdict(o->sync(d->dev) == NULL, "%s: %s", d->name, o->sync(d->dev));
	o->free(d->dev, at);
	close_small(&s, 0);
}

/* Whichever call fails during a capture, eager steps go on as if there had been none. */
static void
test_capture_failures(struct device *d)
{
	struct small plain, twin;
	uint32_t i, graph = 0;
	int left = 0;

	open_small(&plain, d, KV_BF16, 16);
	twin_of(&twin, &plain);
	plain_step(&plain, FIRST);
	plain_step(&twin, FIRST);
	for (i = 1; i < ROOM && left == 0; i++) {
		plain_step(&plain, FIRST + i);
		graph = capture_step(&twin, FIRST + i, (int)i);
		left = cuda_emulated_failure;
		cuda_emulated_failure = 0;
		verdict((graph != 0) == (left > 0) && (graph != 0 || strstr(
		    d->ops->describe(d->dev), "not captured: ") != NULL),
		    "%s: call %u fails: %scaptured: %s", d->name, i, graph ? "" : "not ",
		    d->ops->describe(d->dev));
		if (!graph)
			plain_step(&twin, FIRST + i);
		else
			d->ops->graph_launch(d->dev, graph, 0);
		verdict(same_small(&plain, &twin), "%s: call %u of a capture fails: %s", d->name, i,
		    d->ops->sync(d->dev));
	}
	verdict(i > 3 && i < ROOM, "%s: %u calls in a capture", d->name, i);
	cuda_emulated_failure = 1;
	verdict(!d->ops->graph_launch(d->dev, graph, 0) && d->ops->sync(d->dev) != NULL,
	    "%s: a launch that fails", d->name);
	close_small(&twin, 1);
	close_small(&plain, 0);
}

/* On a new device, which has no scratch yet */
static void
with_own(const struct device *d, void (*test)(struct device *))
{
	const size_t held = emulated() ? cuda_emulated_held() : 0;
	struct device own = *d;
	char err[256];

	own.dev = d->ops->open(d->threads, 1, err, sizeof err);
	verdict(own.dev != NULL, "%s: %s", d->name, err);
	test(&own);
	d->ops->close(own.dev);
	verdict(!emulated() || cuda_emulated_held() == held, "%s: not all is given back", d->name);
}

static void
test_graphs(struct device *d)
{
	static const uint32_t width[] = { 16, 64, 7 };
	static const enum kv_dtype type[] = { KV_BF16, KV_F16, KV_F32 };
	size_t i;

	if (d->ops->graph_begin == NULL)
		return;
	for (i = 0; i < 9; i++) {
		if (!in_sample())
			continue;
		test_launches(d, type[i / 3], width[i % 3], 0, 0);
		/* within the first steps, the short KV head's first row leaves this window */
		test_launches(d, type[i / 3], width[i % 3], SHORT + 4, i % 2 ? 0.1f : 0);
	}
	test_launches(d, KV_F16, 64, 7, 0);
	with_own(d, test_no_graph);
	if (emulated() && d->threads == RANDOM_ORDER)   /* one order is enough */
		with_own(d, test_capture_failures);
}

void
test_step(void)
{
	static const uint32_t n[] = { 0, 1, 3, 4, 31, 32, 1000, 1023, 1024, 1028, 65537, 262144 };
	static const enum kv_dtype type[] = { KV_BF16, KV_F16, KV_F32 };
	size_t i;
	int k;

	for (i = 0; i < sizeof n / sizeof n[0]; i++)
		test_argmax(n[i]);
	for (i = 0; i < 3; i++) {
		test_embed_ids(type[i], 70, 0);
		test_embed_ids(type[i], 2056, 0);
		test_embed_ids(type[i], 64, 1);
	}
	for (k = 0; k < devices; k++)
		test_graphs(&device[k]);
}
