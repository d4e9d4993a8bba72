/* engine_two_methods.c - several methods at the same time, each with a budget policy of its own
 *
 * Caches of the same prompt are evicted at the same time in one process, layers in turn, and some
 * of them begun before others are finished. Each keeps the rows that it keeps alone, and those are
 * the rows that methods/ chooses by itself from what the cache holds. On the CPU, on a backend that
 * has neither the CPU's memory nor device versions of methods, and on the GPU where there is one.
 *
 * engine_two_methods DIR, or without DIR the demo model. */
#include <stdlib.h>
#include <string.h>

#include "engine/evict_cache.h"
#include "forward/forward.h"
#include "tests/unit/methods_check.h"

enum { TOKENS = 120, TILE = 64, WINDOW = 16, LANES = 6 };

/* A cache that is evicted */
struct lane {
	struct cache *c;
	struct observation obs;
	struct cache_evictor v;
};

static char err[512];
static struct engine_error e;

static void
must(int good, const char *what)
{
	if (!good) {
		fprintf(stderr, "two methods: %s: %s %s\n", what, err, e.text);
		exit(1);
	}
}

/* ---- the methods ---- */

static const struct {
	const char *method, *policy;
	struct evict_options evict;
	uint32_t kernel;                /* 0: the method's own */
	enum pool pool;
} plan[LANES] = {
	{ "snapkv", "uniform", { .rate = 0.25, .sink = 2 }, 7, POOL_MAX },
	{ "knorm", "ada", { .budget = 30, .alpha = 0.2 }, 0, POOL_AVG },
	{ "snapkv", "pyramid", { .budget = 24 }, 1, POOL_AVG },
	{ "keydiff", "uniform", { .rate = 0.4, .recent = 5 }, 0, POOL_AVG },
	{ "h2o", "ada-kvpress", { .budget = 20 }, 0, POOL_AVG },
	{ "tova", "uniform", { .budget = 12, .same_rows = 1 }, 0, POOL_AVG },
};

static void
lane_method(struct cache_evictor *v, int i)
{
	const struct method *m = method_named(plan[i].method);
	struct score_options score = m->defaults;
	struct evict_options evict = plan[i].evict;

	if (plan[i].kernel != 0) {
		score.kernel = plan[i].kernel;
		score.pool = plan[i].pool;
	}
	evict.policy = policy_named(plan[i].policy);
	scorer_init(&v->scorer, m, &score, 2);
	evictor_init(&v->evictor, &evict);
}

/* ---- caches ---- */

static void
lane_open(struct lane *t, const struct model *m, int i)
{
	struct workspace *ws = workspace_new(m, TILE);
	uint32_t ids[TOKENS], n;

	for (n = 0; n < TOKENS; n++)
		ids[n] = (n * n * 7 + n * 31 + 5) % m->id.vocabulary;
	memset(t, 0, sizeof *t);
	lane_method(&t->v, i);
	t->c = cache_new(m, KV_F16);
	must(ws != NULL && t->c != NULL && cache_want_mass(t->c) == 0 &&
	    observation_init(&t->obs, m, WINDOW) == 0, "memory");
	must(run_tokens(m, &(struct sequence){ .cache = t->c }, ws, ids, TOKENS, &t->obs, NULL, err,
	    sizeof err) == 0, "prompt");
	workspace_free(ws, m);
}

static void
lane_close(struct lane *t)
{
	observation_free(&t->obs, t->c->model);
	evict_cache_free(&t->v);
	cache_free(t->c);
}

static void
check_rows(const struct cache *c, uint32_t l, const struct kv_rows *want, int i, const char *how)
{
	const struct kv_rows got = cache_rows(c, l);
	uint32_t g;

	for (g = 0; g < want->heads; g++)
		check(got.count[g] == want->count[g] && memcmp(got.pos[g], want->pos[g],
		    got.count[g] * sizeof *got.pos[g]) == 0,
		    "%s on %s, %s: layer %u head %u keeps %u rows, must keep %u, or others",
		    plan[i].method, c->model->ops->name, how, l, g, got.count[g], want->count[g]);
}

/* ---- what methods/ chooses ---- */

/* [H] lists of the device, `stride` apart; to be freed */
static float *
read_lists(const struct model *m, const float *from, size_t stride)
{
	const size_t bytes = m->id.query_heads * stride * sizeof *from;
	float *to = malloc(bytes);

	must(to != NULL, "memory");
	m->ops->get(m->dev, to, from, bytes);
	return to;
}

/* The attention of the window's last W queries, by the op: [H][TOKENS]. */
static float *
window_attention(const struct lane *t, uint32_t l, uint32_t W)
{
	const struct model *m = t->c->model;
	const size_t row = (size_t)m->id.query_heads * m->id.head_width, n = W * row;
	const size_t bytes = m->id.query_heads * TOKENS * sizeof(float);
	float *q = m->ops->alloc(m->dev, n * sizeof *q), *made = m->ops->alloc(m->dev, bytes),
	    *mass;
	uint32_t *pos = m->ops->alloc(m->dev, W * sizeof *pos);

	must(q != NULL && made != NULL && pos != NULL, "memory");
	m->ops->put(m->dev, q, t->obs.q[l] + (WINDOW - W) * row, n * sizeof *q);
	m->ops->put(m->dev, pos, t->obs.pos + WINDOW - W, W * sizeof *pos);
	m->ops->round(m->dev, q, n, t->c->dtype);
	m->ops->window_mass(m->dev, made, TOKENS, &(struct query){ .q = q, .pos = pos, .N = W,
	    .H = m->id.query_heads }, &t->c->layer[l], NULL, QUERIES_SUM);
	mass = read_lists(m, made, TOKENS);
	m->ops->free(m->dev, q);
	m->ops->free(m->dev, made);
	m->ops->free(m->dev, pos);
	return mass;
}

/* [G][TOKENS][E] of the cache's dtype; to be freed */
static char *
read_keys(const struct cache *c, uint32_t l)
{
	const struct layer_rows *rows = &c->layer[l];
	const size_t row = rows->width * kv_dtype_size(rows->dtype);
	char *keys = malloc(rows->heads * TOKENS * row);
	uint32_t g;

	must(keys != NULL, "memory");
	for (g = 0; g < rows->heads; g++)
		c->model->ops->get(c->model->dev, keys + g * TOKENS * row,
		    (const char *)rows->k + rows->start[g] * row, TOKENS * row);
	return keys;
}

/* kept <- the rows of layer l that stay, before it is evicted */
static void
choose_alone(const struct lane *t, uint32_t l, struct kept *kept)
{
	const struct model *m = t->c->model;
	const struct method *method = t->v.scorer.method;
	const struct kv_rows rows = cache_rows(t->c, l);
	const uint32_t H = m->id.query_heads, W = scorer_queries(&t->v.scorer, WINDOW);
	float *made = window_attention(t, l, W > 0 ? W : 1), *lists, *mass, *score;
	char *keys = read_keys(t->c, l);
	struct score_input in = { .layer = l, .query_heads = H, .width = m->id.head_width,
	    .rows = &rows, .keys = keys, .key_type = rows_k_type(&t->c->layer[l]),
	    .window_mass = made,
	    .stride = TOKENS, .window = W, .window_pos = t->obs.pos + WINDOW - W,
	    .next_position = TOKENS };
	struct evict_input choice = { .layer = l, .layers = m->id.layers, .rows = &rows,
	    .next_position = TOKENS };
	uint32_t h;

	mass = malloc(H * TOKENS * sizeof *mass);
	score = malloc(H * TOKENS * sizeof *score);
	lists = read_lists(m, t->c->mass[l].sum, t->c->mass[l].stride);
	must(mass != NULL && score != NULL, "memory");
	for (h = 0; h < H; h++)
		memcpy(mass + h * TOKENS, lists + h * t->c->mass[l].stride, TOKENS * sizeof *mass);
	in.mass = mass;
	must(method_score(method, &in, &t->v.scorer.options, 1, score) == 0, "scores");
	choice.score = score;
	must(evict_choose(&choice, &t->v.evictor.options, kept, err, sizeof err) == EVICT_OK,
	    "choice");
	free(made);
	free(lists);
	free(mass);
	free(score);
	free(keys);
}

/* Positions of rows that stay; to be freed by rows_free(). */
static struct kv_rows
rows_kept(const struct kv_rows *rows, const struct kept *kept)
{
	uint32_t **pos = calloc(kept->heads, sizeof *pos), *count, g, i;

	must(pos != NULL && (count = calloc(kept->heads, sizeof *count)) != NULL, "memory");
	for (g = 0; g < kept->heads; g++) {
		must((pos[g] = calloc(kept->count[g] + 1, sizeof **pos)) != NULL, "memory");
		count[g] = kept->count[g];
		for (i = 0; i < count[g]; i++)
			pos[g][i] = rows->pos[g][kept->keep[g][i]];
	}
	return (struct kv_rows){ kept->heads, count, (const uint32_t *const *)pos };
}

static void
rows_free(struct kv_rows *rows)
{
	uint32_t g;

	for (g = 0; g < rows->heads; g++)
		free((void *)(uintptr_t)rows->pos[g]);
	free((void *)(uintptr_t)rows->pos);
	free((void *)(uintptr_t)rows->count);
}

/* ---- one after another, and at the same time ---- */

/* want[L] <- the rows of the lane that stay, as methods/ has it. The lane, evicted alone, keeps
 * them. */
static void
check_alone(const struct model *m, int i, struct kv_rows *want)
{
	struct kept kept;
	struct kv_rows rows;
	struct lane t;
	uint32_t l;

	lane_open(&t, m, i);
	for (l = 0; l < m->id.layers; l++) {
		rows = cache_rows(t.c, l);
		choose_alone(&t, l, &kept);
		want[l] = rows_kept(&rows, &kept);
		kept_free(&kept);
	}
	must(evict_cache_all(&t.v, t.c, &t.obs, &e) == ENGINE_OK, "alone");
	for (l = 0; l < m->id.layers; l++)
		check_rows(t.c, l, &want[l], i, "alone");
	lane_close(&t);
}

/* In each turn every lane begins a layer and finishes one; lane i is i % 3 layers behind, and some
 * begin before the lanes in front of them have finished. */
static void
check_together(const struct model *m, struct kv_rows *const *want)
{
	const uint32_t L = m->id.layers;
	static struct lane lane[LANES];
	uint32_t l, behind;
	int i;

	for (i = 0; i < LANES; i++)
		lane_open(&lane[i], m, i);
	for (l = 0; l < L + 2; l++) {
		for (i = 0; l < L && i < LANES; i++)
			must(evict_cache_begin(&lane[i].v, lane[i].c, l, &lane[i].obs,
			    &e) == ENGINE_OK, "begin");
		for (i = LANES - 1; i >= 0; i--) {
			behind = (uint32_t)i % 3;
			if (l >= behind && l - behind < L)
				must(evict_cache_finish(&lane[i].v, lane[i].c, l - behind,
				    &e) == ENGINE_OK, "finish");
		}
	}
	for (i = 0; i < LANES; i++) {
		for (l = 0; l < L; l++)
			check_rows(lane[i].c, l, &want[i][l], i, "beside others");
		lane_close(&lane[i]);
	}
}

/* A failure is a code and a text that names the place; others go on. */
static void
check_failure(const struct model *m)
{
	struct lane bad, good;

	lane_open(&bad, m, 1);
	lane_open(&good, m, 3);
	bad.v.evictor.options.sink = 31;
	bad.v.evictor.options.refuse_small = 1;
	e.text[0] = '\0';
	check(evict_cache_all(&bad.v, bad.c, &bad.obs, &e) == ENGINE_EOPTION &&
	    strstr(e.text, "layer 0 KV head 0: a budget of 30 of 120 rows is too small") != NULL,
	    "code %d, '%s'", e.code, e.text);
	must(evict_cache_all(&good.v, good.c, &good.obs, &e) == ENGINE_OK, "beside a failure");
	lane_close(&bad);
	lane_close(&good);
}

/* ---- devices ---- */

static void
check_device(const struct ops *ops, const char *folder)
{
	struct dev *d = ops->open(0, 0, err, sizeof err);
	struct kv_rows *want[LANES];
	struct model *m;
	uint32_t l;
	int i;

	if (d == NULL)
		return;                 /* a backend that finds no device here */
	must(model_load(folder, ops, d, &m, err, sizeof err) == 0, folder);
	for (i = 0; i < LANES; i++) {
		must((want[i] = calloc(m->id.layers, sizeof *want[i])) != NULL, "memory");
		check_alone(m, i, want[i]);
	}
	check_together(m, want);
	check_failure(m);
	for (i = 0; i < LANES; i++) {
		for (l = 0; l < m->id.layers; l++)
			rows_free(&want[i][l]);
		free(want[i]);
	}
	model_free(m);
	ops->close(d);
}

int
main(int argc, char **argv)
{
	const char *folder = argc > 1 ? argv[1] : DEMO_MODEL;
	struct ops bare = cpu_ops;

	/* memory that is taken for a device's, work that is behind the host, no op of a method */
	bare.name = "bare";
	bare.runs_ahead = 1;
	bare.shares_memory = 0;
	bare.knorm = NULL;
	bare.keydiff = NULL;
	check_device(&cpu_ops, folder);
	check_device(&bare, folder);
	if (gpu_ops.open != NULL)
		check_device(&gpu_ops, folder);
	return failures != 0;
}
