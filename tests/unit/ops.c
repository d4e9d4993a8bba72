/* ops.c - every op of ops/ops.h against the same formula in double precision (ops_reference.c)
 *
 * ops [-v] [-g] [-a] [-s] [part ...]: with -v also prints the largest error of each op; with -g
 * only on a GPU, which must be there; with -a in all orders of threads that the emulator has; with
 * -s a sample of the cases. ops -l prints the names of the parts. This file: ops of one row, and
 * errors. Products are in ops_matmul.c, attention is in ops_attend.c, retrieval in ops_choose.c
 * and ops_chosen.c. */
#include <stdio.h>

#include "cpu/cpu_internal.h"
#include "tests/unit/ops_check.h"

/* ---- ops of one row ---- */

static void
test_embed(enum kv_dtype type, uint32_t D)
{
	enum { V = 37, N = 9 };
	float *table = floats((size_t)V * D, 3), *got;
	double *want = malloc(N * D * sizeof *want);
	uint32_t tok[N], n, i;
	void *x, *t;
	int k;

	table[0] = INFINITY;
	table[1] = -INFINITY;
	table[2] = 6e-8f;                      /* subnormal in f16 */
	round_to(table, type, (size_t)V * D);
	for (n = 0; n < N; n++)
		for (tok[n] = n == 0 ? 0 : draw(V), i = 0; i < D; i++)
			want[n * D + i] = table[tok[n] * D + i];
	new_case();
	for (k = 0; k < devices; k++) {
		struct device *d = &device[k];
		struct mat m = { t = to_device_as(d, table, type, (size_t)V * D),
			weight_type_of(type), V, D };

		x = d->ops->alloc(d->dev, N * D * 4);
		d->ops->embed(d->dev, x, &m, tok, N);
		got = from_device(d, x, N * D);
		compare(d, EMBED, "embed", got, want, N * D);
		free(got);
		d->ops->free(d->dev, x);
		d->ops->free(d->dev, t);
	}
	free(table);
	free(want);
}

static void
test_rmsnorm(uint32_t N, uint32_t D, float scale, int in_place)
{
	float *x = floats((size_t)N * D, scale), *w = floats(D, 2), *got;
	double *want = malloc(N * D * sizeof *want);
	int k;

	ref_rmsnorm(want, x, w, N, D, 1e-5f);
	new_case();
	for (k = 0; k < devices; k++) {
		struct device *d = &device[k];
		float *dx = to_device(d, x, N * D * 4), *dw = to_device(d, w, D * 4);
		float *dy = in_place ? dx : d->ops->alloc(d->dev, N * D * 4);

		d->ops->rmsnorm(d->dev, dy, dx, dw, N, D, 1e-5f);
		got = from_device(d, dy, N * D);
		compare(d, RMSNORM, "rmsnorm", got, want, N * D);
		free(got);
		if (!in_place)
			d->ops->free(d->dev, dy);
		d->ops->free(d->dev, dx);
		d->ops->free(d->dev, dw);
	}
	free(x);
	free(w);
	free(want);
}

static void
test_rope(uint32_t N, uint32_t heads, uint32_t E, uint32_t dims, float factor)
{
	const size_t n = (size_t)N * heads * E, some = (size_t)N * heads * dims;
	const size_t room = (some + 1) * sizeof(double);
	float *x = floats(n, 1), *got;
	double *want = malloc(n * sizeof *want), *freq = malloc((E / 2 + 1) * sizeof *freq);
	double *bound = malloc(n * sizeof *bound), *part_want = malloc(room);
	double *part_bound = malloc(room);
	float *part = malloc(room);
	uint32_t *pos = malloc(N * sizeof *pos), i;
	size_t at;
	int k;

	for (i = 0; i < N; i++)
		/* an f32 angle would fail */
		pos[i] = i == 0 ? 0 : i == 1 ? 99999989 : i * 7919 % 1000003;
	for (i = 0; i < dims / 2; i++)
		freq[i] = pow(500000, -2.0 * i / dims);
	for (at = 0; at < some; at++)
		part[at] = x[at / dims * E + at % dims];
	ref_rope(part_want, part, pos, freq, N, heads, dims);
	rope_bound(part_bound, part, pos, freq, N, heads, dims);
	for (at = 0; at < n; at++) {
		const size_t from = at / E * dims + at % E;

		want[at] = at % E < dims ? part_want[from] * factor : x[at];
		bound[at] = at % E < dims ? 2 * part_bound[from] * factor : 0;
	}
	new_case();
	for (k = 0; k < devices; k++) {
		struct device *d = &device[k];
		void *dx = to_device(d, x, n * 4), *dp = to_device(d, pos, N * 4),
		     *df = to_device(d, freq, E / 2 * 8);

		d->ops->rope(d->dev, dx, dp, &(struct rotary){ df, dims, factor, 0 }, N, heads, E);
		got = from_device(d, dx, n);
		compare_each(d, ROPE, "rope", got, want, bound, n);
		free(got);
		d->ops->free(d->dev, dx);
		d->ops->free(d->dev, dp);
		d->ops->free(d->dev, df);
	}
	free(x);
	free(part);
	free(part_want);
	free(part_bound);
	free(bound);
	free(want);
	free(freq);
	free(pos);
}

static void
test_gated(int gelu, uint32_t N, uint32_t F, float scale, int in_place)
{
	const size_t n = (size_t)N * F;
	float *gate = floats(n, scale), *up = floats(n, 1), *got;
	double *want = malloc(n * sizeof *want);
	int k;

	(gelu ? ref_geglu : ref_swiglu)(want, gate, up, n);
	new_case();
	for (k = 0; k < devices; k++) {
		struct device *d = &device[k];
		float *dg = to_device(d, gate, n * 4), *du = to_device(d, up, n * 4);
		float *dy = in_place ? dg : d->ops->alloc(d->dev, n * 4);

		(gelu ? d->ops->geglu : d->ops->swiglu)(d->dev, dy, dg, du, N, F);
		got = from_device(d, dy, n);
		compare(d, SWIGLU, gelu ? "geglu" : "swiglu", got, want, n);
		free(got);
		if (!in_place)
			d->ops->free(d->dev, dy);
		d->ops->free(d->dev, dg);
		d->ops->free(d->dev, du);
	}
	free(gate);
	free(up);
	free(want);
}

/* As it would come back from a cache of that type */
static void
test_round(size_t n, enum kv_dtype dtype)
{
	float *x = floats(n, 1000), *got;
	void *stored = malloc(n * sizeof *x);
	int k;

	x[0] = NAN;
	x[n / 2] = 1.00390625f;                 /* between two of bf16 */
	x[n - 1] = 1e-7f;
	for (k = 0; k < devices; k++) {
		struct device *d = &device[k];
		float *dx = to_device(d, x, n * sizeof *x), *want = malloc(n * sizeof *want);

		d->ops->round(d->dev, dx, n, dtype);
		got = from_device(d, dx, n);
		kv_from_f32(stored, x, dtype, n);
		kv_to_f32(want, stored, dtype, n);
		verdict(isnan(got[0]) && memcmp(got + 1, want + 1, (n - 1) * sizeof *x) == 0,
		    "%s: %zu numbers rounded to %s", d->name, n, kv_dtype_name(dtype));
		d->ops->free(d->dev, dx);
		free(want);
		free(got);
	}
	free(stored);
	free(x);
}

/* Two appends, the second behind the first, to heads of different lengths: KV head g has g rows
 * before */
struct append_case {
	float *k, *v;                  /* [N][APPEND_HEADS][E], rounded to the type of the rows */
	enum kv_dtype type;
	uint32_t E, N, cap;            /* cap: rows of each KV head */
	size_t all;                    /* elements of the rows */
};

enum { APPEND_HEADS = 3, APPEND_MOST = 64 };

/* want <- the keys, and behind them the values, that are in the rows then */
static double *
stored(const struct append_case *s)
{
	double *want = calloc(2 * s->all, sizeof *want);
	uint32_t round, n, g, e;
	size_t to, from;

	for (round = 0; round < 2; round++)
		for (n = 0; n < s->N; n++)
			for (g = 0; g < APPEND_HEADS; g++)
				for (e = 0; e < s->E; e++) {
					from = ((size_t)n * APPEND_HEADS + g) * s->E + e;
					to = ((size_t)g * s->cap + g + round * s->N + n) * s->E + e;
					want[to] = s->k[from];
					want[s->all + to] = s->v[from];
				}
	return want;
}

static void
append_on(struct device *d, const struct append_case *s, const double *want)
{
	const size_t n = (size_t)s->N * APPEND_HEADS * s->E,
	    bytes = s->all * kv_dtype_size(s->type);
	const struct ops *o = d->ops;
	uint64_t start[APPEND_HEADS] = { 0, s->cap, 2 * s->cap };
	uint32_t len[APPEND_HEADS] = { 0, 1, 2 }, capacity[APPEND_HEADS] = { s->cap, s->cap,
	    s->cap };
	uint32_t pos[APPEND_MOST], round, i, g, *p = calloc(APPEND_HEADS * s->cap, sizeof *p);
	void *back = calloc(1, bytes), *dk = to_device(d, s->k, n * 4),
	    *dv = to_device(d, s->v, n * 4);
	struct layer_rows c = { .k = to_device(d, back, bytes), .v = to_device(d, back, bytes),
		.pos = o->alloc(d->dev, APPEND_HEADS * s->cap * 4), .start = start, .len = len,
		.capacity = capacity, .heads = APPEND_HEADS, .width = s->E, .dtype = s->type };
	float *got = malloc(2 * s->all * sizeof *got);

	for (round = 0; round < 2; round++) {
		void *dp;

		for (i = 0; i < s->N; i++)
			pos[i] = 100 * round + 2 * i;
		dp = to_device(d, pos, s->N * 4);
		o->append(d->dev, &c, dk, dv, dp, s->N);
		o->free(d->dev, dp);
	}
	o->get(d->dev, back, c.k, bytes);
	kv_to_f32(got, back, s->type, s->all);
	o->get(d->dev, back, c.v, bytes);
	kv_to_f32(got + s->all, back, s->type, s->all);
	compare(d, APPEND, "append", got, want, 2 * s->all);
	o->get(d->dev, p, c.pos, APPEND_HEADS * s->cap * 4);
	for (g = 0; g < APPEND_HEADS; g++) {
		verdict(len[g] == g + 2 * s->N, "append: head %u has %u rows", g, len[g]);
		verdict(p[start[g] + g] == 0 &&
		    p[start[g] + g + 2 * s->N - 1] == 100 + 2 * (s->N - 1),
		    "append: positions of head %u", g);
	}
	free(got);
	free(back);
	free(p);
	o->free(d->dev, dk);
	o->free(d->dev, dv);
	o->free(d->dev, c.k);
	o->free(d->dev, c.v);
	o->free(d->dev, c.pos);
}

static void
test_append(enum kv_dtype type, uint32_t E, uint32_t N)
{
	const size_t n = (size_t)N * APPEND_HEADS * E;
	struct append_case s = { floats(n, 2), floats(n, 2), type, E, N, 2 * N + 3,
		(size_t)APPEND_HEADS * (2 * N + 3) * E };
	double *want;
	int k;

	round_to(s.k, type, n);        /* rounding itself: tests of libkvfile */
	round_to(s.v, type, n);
	want = stored(&s);
	new_case();
	for (k = 0; k < devices; k++)
		append_on(&device[k], &s, want);
	free(s.k);
	free(s.v);
	free(want);
}

/* ---- what is refused ---- */

/* The first failure stays, is reported, and ends all work. */
static void
test_errors(void)
{
	float x[8] = { 0 }, w[8] = { 0 };
	struct mat table = { w, WEIGHT_F32, 2, 4 };
	uint64_t start[3] = { 0 };
	uint32_t len[3] = { 0 }, room[3] = { 1, 1, 1 }, pos[1] = { 0 }, tok = 2;
	struct layer_rows c = { .k = w,
		.v = w,
		.pos = pos,
		.start = start,
		.len = len,
		.capacity = room,
		.heads = 3,
		.width = 1,
		.dtype = KV_F32 };
	char err[128] = "";
	const char *text;
	struct dev *d;

	verdict(cpu_ops.open(1, 0, err, sizeof err) == NULL && strstr(err, "not 1") != NULL,
	    "open of device 1: \"%s\"", err);
	verdict(
	    cpu_ops.open(0, -1, err, sizeof err) == NULL && strstr(err, "-1 threads") != NULL,
	    "-1 threads: \"%s\"", err);
	verdict(!cpu_force_isa("vax"), "an instruction set that is not there");

	d = cpu_ops.open(0, 0, err, sizeof err);
	verdict(strstr(cpu_ops.describe(d), "oneDNN") != NULL, "describe: \"%s\"",
	    cpu_ops.describe(d));
	verdict(cpu_ops.sync(d) == NULL, "no failure at first");
	cpu_ops.embed(d, x, &table, &tok, 1);
	text = cpu_ops.sync(d);
	verdict(text != NULL && strstr(text, "token 2 of a vocabulary of 2") != NULL,
	    "embed: \"%s\"", text);
	tok = 1;
	w[4] = x[0] = 5;
	cpu_ops.embed(d, x + 4, &table, &tok, 1);
	verdict(x[4] == 0, "an op after a failure does nothing");
	cpu_ops.close(d);

	d = cpu_ops.open(0, 1, err, sizeof err);
	cpu_ops.attend(d, x, NULL, &(struct query){ .q = x, .pos = pos, .N = 1, .H = 4 }, &c);
	text = cpu_ops.sync(d);
	verdict(text != NULL && strstr(text, "4 query heads over 3 KV heads") != NULL,
	    "attend: \"%s\"", text);
	cpu_ops.close(d);

	d = cpu_ops.open(0, 1, err, sizeof err);
	cpu_ops.append(d, &c, x, x, pos, 2);
	text = cpu_ops.sync(d);
	verdict(text != NULL && strstr(text, "no room for 2") != NULL && len[0] == 0,
	    "append: \"%s\"", text);
	cpu_ops.close(d);
	cpu_ops.close(NULL);
}

/* Memory is aligned, also of no bytes; sizes that cannot be are refused; weights are used
 * in place. */
static void
test_memory(void)
{
	static const size_t bytes[] = { 0, 1, 63, 4096, (size_t)5 << 20 };
	char err[128], *p;
	struct dev *d = cpu_ops.open(0, 1, err, sizeof err);
	size_t i;

	for (i = 0; i < sizeof bytes / sizeof bytes[0]; i++) {
		p = cpu_ops.alloc(d, bytes[i]);
		verdict(p != NULL && (uintptr_t)p % 64 == 0, "alloc of %zu bytes: %p", bytes[i],
		    (void *)p);
		if (bytes[i] > 0)
			p[bytes[i] - 1] = 1;
		cpu_ops.free(d, p);
	}
	verdict(cpu_ops.alloc(d, SIZE_MAX - 100) == NULL, "alloc of nearly SIZE_MAX");
	verdict(cpu_ops.weights(d, err, sizeof err) == err, "weights are not copied");
	cpu_ops.put(d, NULL, NULL, 0);
	cpu_ops.close(d);
}

static void
test_rows(void)
{
	static const enum kv_dtype type[] = { KV_BF16, KV_F16, KV_F32 };
	size_t i;

	for (i = 0; i < 3; i++) {
		test_embed(type[i], 70);
		test_embed(type[i], 2056);
		test_append(type[i], 33, 5);
		test_append(type[i], 64, 33);
	}
	test_rmsnorm(1, 2048, 1, 0);
	test_rmsnorm(33, 2051, 1000, 1);
	test_rmsnorm(3, 5, 1e-3f, 0);
	test_rmsnorm(9, 8, 1, 1);
	test_rmsnorm(7, 2060, 1, 1);
	test_rmsnorm(2, 16384, 1, 0);
	test_rmsnorm(6, 16388, 1, 0);
	test_rope(1, 3, 64, 64, 1);
	test_rope(17, 32, 128, 128, 1);
	test_rope(130, 1, 34, 34, 1);
	test_rope(3, 2, 33, 32, 1);
	test_rope(2, 13, 96, 96, 1);
	test_rope(40, 5, 8, 8, 1);
	test_rope(3, 2, 256, 256, 1);
	test_rope(2, 13, 96, 96, 1.25f);
	test_rope(5, 3, 128, 96, 1.19f);
	test_rope(3, 7, 10, 6, 1);
	test_rope(130, 2, 64, 2, 0.5f);
	test_rope(2, 2, 16, 0, 1);
	test_gated(0, 1, 8195, 10, 0);
	test_gated(1, 1, 8195, 10, 0);
	test_gated(0, 33, 1027, 200, 1);
	test_gated(1, 33, 1027, 200, 1);
	test_gated(0, 3, 1028, 200, 1);
	test_gated(1, 3, 1028, 200, 1);
	test_round(3, KV_F16);
	test_round(5000, KV_F16);
	test_round(1027, KV_BF16);
	test_round(300, KV_F32);
}

static void
test_cpu(void)
{
	test_memory();
	test_errors();
}

int
main(int argc, char *argv[])
{
	static const struct {
		const char *name;
		void (*run)(void);
	} part[] = {
		{ "memory", test_memory_ops }, { "keep", test_compact }, { "ranks", test_keep },
		{ "rows", test_rows },
		{ "keys", test_keys }, { "query_stats", test_query_stats },
		{ "value_norms", test_value_norms }, { "gates", test_gates },
		{ "matmul", test_matmuls }, { "bf16", test_bf16 }, { "blocks", test_blocks },
		    { "layer", test_layer },
		{ "between", test_between }, { "step", test_step },
		{ "chosen", test_chosen }, { "fetch", test_fetch }, { "cpu", test_cpu },
		    { "attend", test_attention }, { "each", test_each },
		{ "apart", test_apart },
		{ "mass", test_mass }, { "windows", test_windows },
		{ "sinks", test_sinks }, { "choose", test_choose },
		    { "index", test_indexes },
		{ "quantised", test_quantised }, { "recent", test_recent },
		{ "growth", test_growing },
		{ "families", test_families }, { "experts", test_experts },
		{ "latent", test_latent },
	};
	int verbose = 0, gpu = 0, all = 0, list = 0, a, first, named;
	size_t i;

	for (first = 1; first < argc && argv[first][0] == '-'; first++) {
		verbose |= strcmp(argv[first], "-v") == 0;
		gpu |= strcmp(argv[first], "-g") == 0;
		all |= strcmp(argv[first], "-a") == 0;
		only_sample |= strcmp(argv[first], "-s") == 0;
		list |= strcmp(argv[first], "-l") == 0;
	}
	for (i = 0; list && i < sizeof part / sizeof part[0]; i++)
		puts(part[i].name);
	if (list)
		return 0;
	open_devices(gpu, all);
	for (i = 0; i < sizeof part / sizeof part[0]; i++) {
		named = first == argc;
		for (a = first; a < argc; a++)
			named |= strcmp(argv[a], part[i].name) == 0;
		if (named) {
			restart_draws();
			part[i].run();
		}
	}
	close_devices();
	if (verbose)
		print_errors();
	printf("%d passed, %d failed\n", passed, failed);
	return failed > 0;
}
