/* token_select.c - a prompt of which only chosen tokens reach later layers, or the model at all */
#include <stdlib.h>
#include <string.h>

#include "engine/token_select.h"

#define NOT_GIVEN UINT32_MAX

static uint32_t tsp_layer = NOT_GIVEN, tsp_window, tsp_kernel;
static double tsp_rate;                         /* 0 = not given */
static const char *tsp_pool, *pyramid_text;
static int find;
static uint32_t max_layer = NOT_GIVEN, gem_layer = NOT_GIVEN, gem_budget = NOT_GIVEN;
static double tolerance = -1, gem_rate;         /* -1, 0 = not given */

const struct opt selecting_opts[] = {
	{ 0, "tsp-layer", OPT_COUNT, &tsp_layer, 0, "LAYER",
	    "FastKV: after this layer only selected tokens go on" },
	{ 0, "tsp-rate", OPT_SHARE, &tsp_rate, 0, "R", "this share of them (0.2)" },
	{ 0, "tsp-window", OPT_COUNT, &tsp_window, 0, "W",
	    "the last W tokens decide, and always go on (8)" },
	{ 0, "tsp-kernel", OPT_COUNT, &tsp_kernel, 0, "K", "pooling width, odd (7)" },
	{ 0, "tsp-pool", OPT_STRING, &tsp_pool, 0, "HOW", "avg or max (max)" },
	{ 0, "find-tsp-layer", OPT_FLAG, &find, 1, NULL,
	    "compare layers for --tsp-layer over the prompts, write no snapshot" },
	{ 0, "max-layer", OPT_COUNT, &max_layer, 0, "LAYER",
	    "the last layer to try (half of the layers)" },
	{ 0, "tol", OPT_REAL, &tolerance, 0, "X",
	    "choose the earliest layer within 1 + X times the least distance" },
	{ 0, "gemfilter-layer", OPT_COUNT, &gem_layer, 0, "LAYER",
	    "GemFilter: this layer selects tokens, which are run alone" },
	{ 0, "budget", OPT_COUNT, &gem_budget, 0, "N", "GemFilter: N tokens" },
	{ 0, "rate", OPT_SHARE, &gem_rate, 0, "R", "GemFilter: this share of the tokens" },
	{ 0, "pyramid-infer", OPT_STRING, &pyramid_text, 0, "WORDS",
	    "PyramidInfer, with decay=, interval=, recent=, weight=, min=" },
	{ .name = NULL }
};

static struct tsp tsp = { .rate = 0.2, .window = 8, .kernel = 7, .pool = POOL_MAX };
static struct pyramidinfer pyramid = {
	.interval = 1, .decay = 0.9, .recent = 0.2, .weight = 1.2, .least = 64
};

static const struct opt pyramid_opts[] = {
	{ 0, "decay", OPT_SHARE, &pyramid.decay, 0, "P", "" },
	{ 0, "interval", OPT_COUNT, &pyramid.interval, 0, "N", "" },
	{ 0, "recent", OPT_SHARE, &pyramid.recent, 0, "R", "" },
	{ 0, "weight", OPT_REAL, &pyramid.weight, 0, "X", "" },
	{ 0, "min", OPT_COUNT, &pyramid.least, 0, "N", "" },
	{ .name = NULL }
};

/* ---- options ---- */

int
selecting_wanted(void)
{
	return tsp_layer != NOT_GIVEN || gem_layer != NOT_GIVEN || pyramid_text != NULL;
}

int
finding_wanted(void)
{
	return find;
}

uint32_t
selecting_layers(void)
{
	return tsp_layer != NOT_GIVEN ? tsp_layer + 1 : gem_layer != NOT_GIVEN ? gem_layer + 1 : 1;
}

static void
check_tsp(void)
{
	int given = tsp_rate != 0 || tsp_window != 0 || tsp_kernel != 0 || tsp_pool != NULL;

	if (given && tsp_layer == NOT_GIVEN && !find)
		die(EXIT_USAGE, "--tsp-rate, --tsp-window, --tsp-kernel and --tsp-pool go with "
		    "--tsp-layer or --find-tsp-layer");
	if ((max_layer != NOT_GIVEN || tolerance >= 0) && !find)
		die(EXIT_USAGE, "--max-layer and --tol go with --find-tsp-layer");
	if (tolerance < 0 && tolerance != -1)
		die(EXIT_USAGE, "--tol %g: less than nothing", tolerance);
	if (tsp_kernel != 0 && tsp_kernel % 2 == 0)
		die(EXIT_USAGE, "--tsp-kernel %u: want an odd number", tsp_kernel);
	if (tsp_pool != NULL && strcmp(tsp_pool, "avg") != 0 && strcmp(tsp_pool, "max") != 0)
		die(EXIT_USAGE, "--tsp-pool %s: want avg or max", tsp_pool);
	if (tsp_rate != 0)
		tsp.rate = tsp_rate;
	if (tsp_window != 0)
		tsp.window = tsp_window;
	if (tsp_kernel != 0)
		tsp.kernel = tsp_kernel;
	if (tsp_pool != NULL)
		tsp.pool = strcmp(tsp_pool, "avg") == 0 ? POOL_AVG : POOL_MAX;
}

static void
check_gemfilter(void)
{
	int budget = gem_budget != NOT_GIVEN, rate = gem_rate != 0;

	if (gem_layer == NOT_GIVEN && (budget || rate))
		die(EXIT_USAGE, "--budget and --rate go with --gemfilter-layer");
	if (gem_layer != NOT_GIVEN && budget == rate)
		die(EXIT_USAGE, "--gemfilter-layer: give --budget or --rate, and not both");
	if (gem_budget == 0)
		die(EXIT_USAGE, "--budget 0 would select nothing");
}

void
selecting_check(void)
{
	if ((tsp_layer != NOT_GIVEN) + (gem_layer != NOT_GIVEN) + (pyramid_text != NULL) + find > 1)
		die(EXIT_USAGE, "give one of --tsp-layer, --gemfilter-layer, --pyramid-infer and "
		    "--find-tsp-layer");
	check_tsp();
	check_gemfilter();
	if (pyramid_text != NULL)
		options_words("pyramid-infer", pyramid_text, pyramid_opts);
	if (pyramid.interval == 0)
		die(EXIT_USAGE, "--pyramid-infer: interval=0: want at least 1");
	if (!(pyramid.weight > 0))
		die(EXIT_USAGE, "--pyramid-infer: weight=%g: want more than 0", pyramid.weight);
}

static uint32_t
gem_tokens(size_t n)
{
	uint32_t k = gem_budget != NOT_GIVEN ? gem_budget : budget_of_rate((uint32_t)n, gem_rate);

	return k < n ? k : (uint32_t)n;
}

static void
check_layer(const char *option, uint32_t layer, const struct model *m)
{
	if (layer != NOT_GIVEN && layer >= m->id.layers)
		die(EXIT_USAGE, "--%s %u: the model has layers 0 to %u", option, layer,
		    m->id.layers - 1);
}

void
selecting_fit(const struct model *m, size_t n, uint32_t observe, int resumed)
{
	uint32_t keep = UINT32_MAX, k;

	check_layer("tsp-layer", tsp_layer, m);
	check_layer("max-layer", max_layer, m);
	check_layer("gemfilter-layer", gem_layer, m);
	if (resumed && (gem_layer != NOT_GIVEN || pyramid_text != NULL))
		die(EXIT_USAGE, "--%s begins with a whole prompt: it cannot resume",
		    pyramid_text != NULL ? "pyramid-infer" : "gemfilter-layer");
	if (tsp_layer != NOT_GIVEN || find) {
		keep = tsp.window;
		k = budget_of_rate((uint32_t)n, tsp.rate);
		if (tsp.window > n)
			die(EXIT_USAGE, "--tsp-window %u: the prompt has %zu tokens", tsp.window, n);
		if (k < tsp.window)
			die(EXIT_USAGE, "--tsp-rate %g of %zu tokens is %u: less than the window "
			    "of %u", tsp.rate, n, k, tsp.window);
	}
	if (gem_layer != NOT_GIVEN && (keep = gem_tokens(n)) == 0)
		die(EXIT_USAGE, "--rate %g of %zu tokens is none", gem_rate, n);
	if (pyramid_text != NULL)
		keep = pyramidinfer_tail(&pyramid, (uint32_t)n);
	if (selecting_wanted() && observe > keep)
		die(EXIT_USAGE, "--observe %u: only the last %u tokens are sure to reach the last "
		    "layer", observe, keep);
}

void
selecting_sign(void)
{
	if (tsp_layer != NOT_GIVEN) {
		sign_count("tsp-kernel", tsp.kernel);
		sign_count("tsp-layer", tsp_layer);
		sign_text("tsp-pool", tsp.pool == POOL_AVG ? "avg" : "max");
		sign_real("tsp-rate", tsp.rate);
		sign_count("tsp-window", tsp.window);
	}
	if (gem_layer != NOT_GIVEN) {
		sign_count("gemfilter-layer", gem_layer);
		if (gem_budget != NOT_GIVEN)
			sign_count("budget", gem_budget);
		else
			sign_real("rate", gem_rate);
	}
	if (pyramid_text != NULL) {
		sign_real("pyramid-infer-decay", pyramid.decay);
		sign_count("pyramid-infer-interval", pyramid.interval);
		sign_count("pyramid-infer-min", pyramid.least);
		sign_real("pyramid-infer-recent", pyramid.recent);
		sign_real("pyramid-infer-weight", pyramid.weight);
	}
}

uint32_t
finding_max_layer(const struct model *m)
{
	return max_layer != NOT_GIVEN ? max_layer : m->id.layers / 2;
}

double
finding_tolerance(void)
{
	return tolerance >= 0 ? tolerance : 0;
}

/* ---- running ---- */

static char err[512];

static void
must_run(int rc)
{
	if (rc == MODEL_ENOMEM && err[0] == '\0')
		die(EXIT_RUN, "no memory for the tokens that go on");
	if (rc != 0)
		die(EXIT_RUN, "%s", err);
}

/* Scores that are no numbers cannot be compared. */
static void
refuse_nan(const float *score, size_t n, uint32_t layer)
{
	size_t i;

	for (i = 0; i < n; i++)
		if (score[i] != score[i])
			die(EXIT_RUN, "layer %u: attention is not a number", layer);
}

/* mass[H][N] of the watched queries. */
static float *
attention(struct prompt_stream *s, double last)
{
	size_t H = s->cache->model->id.query_heads;
	float *mass = must_alloc(H * s->N, sizeof *mass);

	must_run(prompt_mass(s, last, mass, err, sizeof err));
	refuse_nan(mass, H * s->N, s->watched_layer);
	return mass;
}

void
selecting_watch_tsp(struct prompt_stream *s, uint32_t l)
{
	must_run(prompt_watch(s, l, tsp.window));
}

uint32_t *
selecting_tsp(struct prompt_stream *s, uint32_t *k)
{
	float *mass = attention(s, 1);
	uint32_t *keep;

	*k = budget_of_rate(s->N, tsp.rate);
	keep = must_alloc(*k, sizeof *keep);
	if (keep_tsp(&tsp, mass, s->cache->model->id.query_heads, s->N, *k, keep) != 0)
		must_run(MODEL_ENOMEM);
	free(mass);
	return keep;
}

/* Rows run so far are shown as tokens that have gone through all layers. */
static uint32_t layers;

static void
show(void *with, uint64_t done)
{
	(void)with;
	progress(done / layers);
}

static const struct step_hook step = { show, NULL };

static void
run_tsp(struct prompt_stream *s, struct workspace *ws)
{
	uint32_t *keep, k = budget_of_rate(s->N, tsp.rate);

	progress_start("prefill", ((uint64_t)s->N * (tsp_layer + 1) +
	    (uint64_t)k * (layers - tsp_layer - 1)) / layers, "tokens");
	selecting_watch_tsp(s, tsp_layer);
	must_run(prompt_run(s, ws, 0, tsp_layer + 1, &step, err, sizeof err));
	keep = selecting_tsp(s, &k);
	must_run(prompt_keep(s, keep, k));
	must_run(prompt_run(s, ws, tsp_layer + 1, layers, &step, err, sizeof err));
	free(keep);
	note("layer %u: %u rows go on", tsp_layer, k);
}

static void
run_pyramid(struct prompt_stream *s, struct workspace *ws)
{
	uint32_t tail = pyramidinfer_tail(&pyramid, s->N), *keep, l, k;
	uint64_t total = 0;
	float *mass;

	for (l = 0, k = s->N; l < layers; k = pyramidinfer_rows(&pyramid, l++, layers, k, tail))
		total += k;
	progress_start("prefill", total / layers, "tokens");
	for (l = 0; l < layers; l++) {
		k = pyramidinfer_rows(&pyramid, l, layers, s->N, tail);
		if (l + 1 == layers || k == s->N) {
			must_run(prompt_run(s, ws, l, l + 1, &step, err, sizeof err));
			continue;
		}
		must_run(prompt_watch(s, l, tail));
		must_run(prompt_run(s, ws, l, l + 1, &step, err, sizeof err));
		mass = attention(s, pyramid.weight);
		keep = must_alloc(k, sizeof *keep);
		if (keep_pyramidinfer(mass, s->cache->model->id.query_heads, s->N, tail, k,
		    keep) != 0)
			must_run(MODEL_ENOMEM);
		must_run(prompt_keep(s, keep, k));
		note("layer %u: %u rows go on", l, k);
		free(mass);
		free(keep);
	}
}

/* The first run, up to the layer that selects: picked[k] <- the ids that it selects. Its cache is
 * dropped, and the log says that it was there. */
static void
pick_gems(struct cache *c, struct workspace *ws, const uint32_t *ids, size_t n, uint32_t *picked,
    uint32_t k)
{
	struct attention_mass *mass = c->mass;        /* wanted of the second run only */
	float *product = must_alloc(n, sizeof *product);
	uint32_t *keep = must_alloc(k, sizeof *keep), i;
	struct prompt_stream s;

	c->mass = NULL;
	must_run(prompt_open(&s, c, NULL, ids, n, err, sizeof err));
	must_run(prompt_watch(&s, gem_layer, 1));
	must_run(prompt_run(&s, ws, 0, gem_layer + 1, &step, err, sizeof err));
	must_run(prompt_products(&s, product, err, sizeof err));
	refuse_nan(product, n, gem_layer);
	if (keep_gemfilter(product, (uint32_t)n, k, keep) != 0)
		must_run(MODEL_ENOMEM);
	for (i = 0; i < k; i++)
		picked[i] = ids[keep[i]];
	prompt_close(&s);
	free(product);
	free(keep);
	must_run(cache_clear(c));
	c->mass = mass;
}

static uint64_t shown_before;

static void
show_again(void *with, uint64_t done)
{
	show(with, shown_before + done);
}

static void
run_gemfilter(struct cache *c, struct workspace *ws, const uint32_t *ids, size_t n,
    struct observation *obs)
{
	uint32_t k = gem_tokens(n), *picked = must_alloc(k, sizeof *picked);
	struct prompt_stream s;

	shown_before = (uint64_t)n * (gem_layer + 1);
	progress_start("prefill", shown_before / layers + k, "tokens");
	pick_gems(c, ws, ids, n, picked, k);
	must_run(prompt_open(&s, c, obs, picked, k, err, sizeof err));
	must_run(prompt_run(&s, ws, 0, layers, &(struct step_hook){ show_again, NULL }, err,
	    sizeof err));
	must_run(prompt_logits(&s, ws, err, sizeof err));
	prompt_close(&s);
	c->n_tokens = n;                        /* all ids were seen, these k a second time */
	note("layer %u: %u tokens are run again", gem_layer, k);
	free(picked);
}

void
selecting_run(struct cache *c, struct workspace *ws, const uint32_t *ids, size_t n,
    struct observation *obs)
{
	struct prompt_stream s;

	layers = c->model->id.layers;
	if (gem_layer != NOT_GIVEN) {
		run_gemfilter(c, ws, ids, n, obs);
	} else {
		must_run(prompt_open(&s, c, obs, ids, n, err, sizeof err));
		if (tsp_layer != NOT_GIVEN)
			run_tsp(&s, ws);
		else
			run_pyramid(&s, ws);
		must_run(prompt_logits(&s, ws, err, sizeof err));
		prompt_close(&s);
	}
	progress_end();
}
