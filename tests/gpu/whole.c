/* whole.c - benchmark of a whole model on a GPU, one JSON object a line
 *
 * whole -m MODEL PART:N ...: a prompt of N tokens, and steps of decoding behind it.
 *
 * full    all tokens run, all rows are kept
 * scored  each layer is scored and evicted during prefill: the cost of scoring and eviction
 * tsp     FastKV: a fifth of the tokens runs through the second half of the layers, then each
 *         layer keeps rows for a tenth of all tokens
 * fier    full, then decode steps that read 11 % of the rows, found by 1-bit keys
 *
 * One process runs all parts, after a short prompt, so that kernels and libraries are loaded
 * before anything is timed. A time is the median of ROUNDS prompts, or that of the only one
 * where a prompt is longer than LONG. Each time is printed with the least possible work:
 * floating-point operations of a prompt, bytes of weights and rows of a step.
 *
 * Memory for the rows is allocated before the clock starts, except in scored, whose layers take
 * over each other's memory as they are evicted: that is part of what eviction costs. Steps are
 * launches of a captured graph, except those of fier: a row says which ("graph"), and the program
 * fails where they should have been and were not. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "forward/generate.h"
#include "tests/bench/median.h"
#include "cli/session.h"
#include "engine/prefill.h"
#include "engine/token_select.h"
#include "cli/tool.h"

enum { ROUNDS = 3, LONG = 32768, TILE = 4096, WARM = 4, WINDOW = 32, GROUP = 32 };

static const char *logits;
static uint32_t in_round = 32;

static const struct opt opts[] = {
	{ 0, "logits", OPT_STRING, &logits, 0, "FOLDER",
	    "write the logits behind a full prompt there", OPT_HOW },
	{ 0, "steps", OPT_COUNT, &in_round, 0, "N", "steps of a round (32)", OPT_HOW },
	{ .name = NULL }
};

static const struct tool tool = {
	.name = "whole",
	.about = "how fast a whole model runs on a GPU",
	.synopsis = "-m MODEL [--logits FOLDER] [--steps N] [-j N] [--device DEVICE]\n"
	    "full|scored|tsp|fier:N ...",
	.opts = opts,
	.takes = TAKES_MODEL | TAKES_THREADS,
	.min_operands = 1,
	.max_operands = 64
};

static struct session session;
static struct model *m;
static struct workspace *many, *one;
static struct prefill snapkv = { .schedule = PREFILL_LAYERS };
static struct prefill fastkv;
static uint32_t *ids, tsp_layer;
static char err[512];

/* Tokens that FastKV selects of N */
static uint32_t
selected(uint32_t N)
{
	return (uint32_t)(0.2 * N + 1e-9);
}

static void
must_run(int rc)
{
	if (rc != 0)
		die(EXIT_RUN, "%s", err[0] != '\0' ? err : "no memory");
}

/* Waits for the device. Returns 0, or MODEL_EIO. */
static int
synced(void)
{
	const char *failure = m->ops->sync(m->dev);

	if (failure == NULL)
		return 0;
	snprintf(err, sizeof err, "%s", failure);
	return MODEL_EIO;
}

/* ---- lower bounds of the work ---- */

/* Elements of the matrices of a layer */
static double
layer_elements(void)
{
	const struct kv_model *id = &m->id;
	double D = id->hidden, E = id->head_width;

	return 2 * D * E * (id->query_heads + id->kv_heads) + 3 * D * id->ffn;
}

/* Operations for n tokens through so many layers */
static double
layers_flop(double layers, double n)
{
	return layers * (2 * layer_elements() * n +
	    2.0 * m->id.query_heads * m->id.head_width * n * n);
}

static double
head_elements(void)
{
	return (double)m->id.vocabulary * m->id.hidden;
}

/* Bytes of all matrices that a token is multiplied with */
static double
weight_bytes(void)
{
	return (double)kv_dtype_size(m->id.weights_dtype) *
	    (m->id.layers * layer_elements() + head_elements());
}

/* ---- prefill ---- */

enum reserve { RESERVE_NOTHING, RESERVE_ALL, RESERVE_SELECTED };

/* Rows that steps() appends, twice where retrieval is measured, too */
static uint32_t
step_rows(void)
{
	return 2 * (WARM + ROUNDS * in_round);
}

/* Memory for N tokens; of those that token selection keeps, behind its layer */
static void
reserve(struct cache *c, uint32_t N, enum reserve what)
{
	const uint32_t L = m->id.layers, l = what == RESERVE_SELECTED ? tsp_layer + 1 : L;

	if (what != RESERVE_NOTHING && (cache_reserve_layers(c, N + step_rows(), 0, l) != 0 ||
	    cache_reserve_layers(c, selected(N) + step_rows(), l, L) != 0))
		must_run(MODEL_ENOMEM);
	must_run(synced());
}

static void
run_full(struct cache *c, uint32_t N, struct observation *obs)
{
	(void)obs;
	must_run(run_tokens(m, &(struct sequence){ .cache = c }, many, ids, N, NULL, NULL, err,
	    sizeof err));
}

static void
run_scored(struct cache *c, uint32_t N, struct observation *obs)
{
	struct engine_error e;

	must(prefill_run(&snapkv, &(struct sequence){ .cache = c }, many, ids, N, obs, &e), &e);
	scorer_free(&snapkv.evict.scorer);
}

static void
run_tsp(struct cache *c, uint32_t N, struct observation *obs)
{
	struct engine_error e;

	must(prefill_run(&fastkv, &(struct sequence){ .cache = c }, many, ids, N, obs, &e), &e);
}

/* Runs the prompt ROUNDS times. Returns the cache of the last run; *seconds_of is the median.
 * obs (NULL = none) is that of the last run, too. */
static struct cache *
prompt(void (*run)(struct cache *, uint32_t, struct observation *), uint32_t N,
    enum reserve what, struct observation *obs, int indexes, double *seconds_of)
{
	const int rounds = N > LONG ? 1 : ROUNDS;
	double t[ROUNDS], from;
	struct cache *c = NULL;
	int r;

	for (r = 0; r < rounds; r++) {
		cache_free(c);
		if ((c = cache_new(m, m->id.weights_dtype)) == NULL ||
		    (indexes && cache_want_indexes(c, 1u << KV_BITS) != 0))
			must_run(MODEL_ENOMEM);
		if (obs != NULL && r > 0)
			observation_free(obs, m);
		if (obs != NULL)
			must_run(observation_init(obs, m, WINDOW));
		reserve(c, N, what);
		from = seconds();
		run(c, N, obs);
		t[r] = seconds() - from;
	}
	*seconds_of = median(t, rounds);
	return c;
}

/* ---- decoding ---- */

/* Seconds of a decode step that continues the cache; *replayed: all that were timed were
 * launches of a graph */
static double
steps(struct sequence *s, int *replayed)
{
	struct generator *r = generator_new(s, one);
	double t[ROUNDS], from;
	uint32_t next = 1, i;
	uint64_t launches;
	int round;

	/* a cache that grows would end the graph */
	if (r == NULL || sequence_reserve(s, WARM + ROUNDS * in_round) != 0)
		must_run(MODEL_ENOMEM);
	for (i = 0; i < WARM; i++)
		must_run(generator_run(r, next, NULL, &next, err, sizeof err));
	launches = generator_launches(r);
	for (round = 0; round < ROUNDS; round++) {
		from = seconds();
		for (i = 0; i < in_round; i++)
			must_run(generator_run(r, next, NULL, &next, err, sizeof err));
		t[round] = (seconds() - from) / in_round;
	}
	*replayed = generator_launches(r) - launches == (uint64_t)ROUNDS * in_round;
	generator_free(r);
	return median(t, ROUNDS);
}

/* What steps took, after a prompt of N tokens; step 0: there were none */
struct steps {
	double seconds, bytes;
	int replayed;
};

static int not_replayed;             /* parts whose steps should have been launches of a graph */

static void
report(const char *part, uint32_t N, double prefill, double flop, const struct steps *s)
{
	printf("{\"what\": \"kvpipe %s %u\", \"prefill ms\": %.2f, \"TFLOP\": %.6g", part, N,
	    prefill * 1e3, flop * 1e-12);
	if (s != NULL)
		printf(", \"step ms\": %.3f, \"step GB\": %.6g, \"graph\": %d",
		    s->seconds * 1e3, s->bytes * 1e-9, s->replayed);
	printf("}\n");
	if (s != NULL && !s->replayed && strcmp(part, "fier") != 0) {
		warning("%s %u: steps were not replayed from a graph (%s)", part, N,
		    m->ops->describe(m->dev));
		not_replayed++;
	}
}

/* ---- the parts ---- */

static void
write_logits(const struct cache *c, uint32_t N)
{
	char path[4096];
	FILE *f;

	snprintf(path, sizeof path, "%s/logits.%u", logits, N);
	if ((f = fopen(path, "wb")) == NULL ||
	    fwrite(c->logits, sizeof *c->logits, m->id.vocabulary, f) != m->id.vocabulary ||
	    fclose(f) != 0)
		die(EXIT_RUN, "%s:", path);
}

/* Mean bytes of the cache that a step has read */
static double
retrieved_bytes(const struct retrieval *t)
{
	const struct retrieval_stats *s = retrieval_stats(t);
	double bytes = 0;
	size_t i;

	for (i = 0; i < (size_t)m->id.layers * m->id.kv_heads; i++)
		bytes += (double)(s[i].index_bytes + s[i].key_bytes + s[i].value_bytes);
	return bytes / (double)s[0].steps;
}

/* Decode steps with retrieval after a full prompt */
static void
fier(struct cache *c, uint32_t N, double prefill)
{
	const struct kv_model *id = &m->id;
	const struct retrieval_options o = { .method = RETRIEVE_FIER, .budget = N * 11 / 100,
		.reduce = REDUCE_MAX, .dense = id->layers > 2 ? 2 : 0 };
	struct retrieval *t = retrieval_new(m->ops, m->dev, &o, id->layers, id->query_heads,
	    id->kv_heads, id->head_width, c->dtype, m->rope.freq);
	struct sequence q = { .cache = c };
	struct steps s;
	uint32_t l;

	for (l = 0; l < id->layers; l++) {
		index_start(&c->index[l], KV_BITS, GROUP);
		must_run(index_reserve(&c->index[l], &c->layer[l]));
		index_extend(&c->index[l], &c->layer[l]);
	}
	if (t == NULL || sequence_retrieve(&q, t) != 0)
		must_run(MODEL_ENOMEM);
	s.seconds = steps(&q, &s.replayed);
	s.bytes = weight_bytes() + retrieved_bytes(t);
	report("fier", N, prefill, layers_flop(id->layers, N), &s);
	retrieval_free(t);
}

static void
bench_full(uint32_t N, int and_fier)
{
	double prefill;
	struct steps s;
	struct cache *c = prompt(run_full, N, RESERVE_ALL, NULL, and_fier, &prefill);

	if (logits != NULL && !and_fier)
		write_logits(c, N);
	s.bytes = weight_bytes() + (double)cache_bytes(c);
	s.seconds = steps(&(struct sequence){ .cache = c }, &s.replayed);
	report(and_fier ? "fier full" : "full", N, prefill,
	    layers_flop(m->id.layers, N) + 2 * head_elements(), &s);
	if (and_fier)
		fier(c, N, prefill);
	cache_free(c);
}

static void
bench_scored(uint32_t N)
{
	struct observation obs = { 0 };
	double prefill;

	cache_free(prompt(run_scored, N, RESERVE_NOTHING, &obs, 0, &prefill));
	observation_free(&obs, m);
	report("scored", N, prefill, layers_flop(m->id.layers, N) + 2 * head_elements(), NULL);
}

static void
bench_tsp(uint32_t N)
{
	const double before = tsp_layer + 1;
	struct observation obs = { 0 };
	double prefill, flop, from;
	struct steps s;
	struct engine_error e;
	struct cache *c = prompt(run_tsp, N, RESERVE_SELECTED, &obs, 0, &prefill);

	from = seconds();
	must(evict_cache_all(&snapkv.evict, c, &obs, &e), &e);
	must(device_synced(&session.device, &e), &e);
	printf("{\"what\": \"kvpipe evict %u, tsp\", \"ms\": %.2f}\n", N, (seconds() - from) * 1e3);
	scorer_free(&snapkv.evict.scorer);
	observation_free(&obs, m);
	s.bytes = weight_bytes() + (double)cache_bytes(c);
	s.seconds = steps(&(struct sequence){ .cache = c }, &s.replayed);
	flop = layers_flop(before, N) + layers_flop(m->id.layers - before, selected(N));
	report("tsp", N, prefill, flop + 2 * head_elements(), &s);
	cache_free(c);
}

static void
bench(const char *part)
{
	const char *colon = strchr(part, ':');
	const size_t n = colon != NULL ? (size_t)(colon - part) : 0;
	uint32_t N = colon != NULL ? (uint32_t)strtoul(colon + 1, NULL, 10) : 0, i;
	struct engine_error e;

	if (N < 2 * WINDOW)
		die(EXIT_USAGE, "%s: want PART:N, N at least %d", part, 2 * WINDOW);
	if ((ids = realloc(ids, N * sizeof *ids)) == NULL)
		must_run(MODEL_ENOMEM);
	for (i = 0; i < N; i++)                 /* as peers.py has them */
		ids[i] = (uint32_t)((i * UINT64_C(7919) + 13) % 1400);
	must(token_select_fit(&fastkv.select, m, N, WINDOW, 0, &e), &e);
	must(prefill_fit(&snapkv, m, N, 0, &e), &e);
	if (strncmp(part, "full", n) == 0)
		bench_full(N, 0);
	else if (strncmp(part, "scored", n) == 0)
		bench_scored(N);
	else if (strncmp(part, "tsp", n) == 0)
		bench_tsp(N);
	else if (strncmp(part, "fier", n) == 0)
		bench_full(N, 1);
	else
		die(EXIT_USAGE, "%s: there is no such part", part);
}

/* ---- the model ---- */

/* FastKV after half of the layers; SnapKV selects the rows of every layer */
static void
choose_methods(uint32_t layers)
{
	struct score_options o;

	tsp_layer = layers / 2 - 1;
	fastkv = (struct prefill){ .observe = WINDOW, .select = { .rule = TOKENS_TSP,
	    .layer = tsp_layer,
	    .tsp = { .rate = 0.2, .window = WINDOW, .kernel = 7, .pool = POOL_MAX } } };
	o = method_named("snapkv")->defaults;
	o.window = 32;
	o.kernel = 7;
	scorer_init(&snapkv.evict.scorer, method_named("snapkv"), &o, processors());
	evictor_init(&snapkv.evict.evictor, &(struct evict_options){ .rate = 0.1 });
	snapkv.evict.evictor.of_tokens = 1;
}

/* Loads the model and runs a short prompt, which loads kernels and libraries. */
static void
load(void)
{
	const uint32_t n = 2 * WINDOW;
	struct kv_head stored;
	struct cache *c;
	double t;

	session_open(&session, NULL, TOKENIZER_NEEDED);
	m = session.model;
	printf("{\"device\": \"%s\"}\n", m->ops->describe(m->dev));
	choose_methods(m->id.layers);
	t = seconds();
	stored = (struct kv_head){ .model = m->id, .dtype = m->id.weights_dtype };
	session_load(&session, &(struct memory_demand){ .stored = &stored, .at_once = TILE });
	t = seconds() - t;
	printf("{\"what\": \"kvpipe weights\", \"s\": %.3f, \"GB/s\": %.2f}\n", t,
	    (double)(m->matrix_bytes + m->constant_bytes) * 1e-9 / t);
	if ((many = workspace_new(m, TILE)) == NULL || (one = workspace_new(m, 1)) == NULL ||
	    (c = cache_new(m, m->id.weights_dtype)) == NULL ||
	    (ids = calloc(n, sizeof *ids)) == NULL)
		die(EXIT_RUN, "no memory");
	must_run(run_tokens(m, &(struct sequence){ .cache = c }, many, ids, n, NULL, NULL, err,
	    sizeof err));
	cache_free(c);
}

int
main(int argc, char **argv)
{
	int i = tool_start(&tool, argc, argv);

	setvbuf(stdout, NULL, _IOLBF, 0);
	load();
	for (; i < argc; i++)
		bench(argv[i]);
	workspace_free(one, m);
	workspace_free(many, m);
	free(ids);
	session_close(&session);
	if (not_replayed > 0)
		die(EXIT_RUN, "%d parts decoded without a graph", not_replayed);
	return finish();
}
