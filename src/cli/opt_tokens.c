/* opt_tokens.c - the options of token selection, and of the search for a layer */
#include <string.h>

#include "cli/opt_tokens.h"


static uint32_t tsp_layer = NOT_GIVEN, tsp_window, tsp_kernel;
static double tsp_rate;                         /* 0 = not given */
static const char *tsp_pool, *pyramid_text;
static int find;
static uint32_t max_layer = NOT_GIVEN, gem_layer = NOT_GIVEN, gem_budget = NOT_GIVEN;
static double tolerance = REAL_NOT_GIVEN, gem_rate;    /* gem_rate 0 = not given */

const struct opt token_opts[] = {
	{ 0, "tsp-layer", OPT_COUNT, &tsp_layer, 0, "LAYER",
	    "FastKV: after this layer only selected tokens go on" },
	{ 0, "tsp-rate", OPT_SHARE, &tsp_rate, 0, "R", "this share of them (0.2)" },
	{ 0, "tsp-window", OPT_COUNT, &tsp_window, 1, "W",
	    "the last W tokens decide, and always go on (8)" },
	{ 0, "tsp-kernel", OPT_COUNT, &tsp_kernel, 1, "K", "pooling width, odd (7)" },
	{ 0, "tsp-pool", OPT_STRING, &tsp_pool, 0, "HOW", "avg or max (max)" },
	{ 0, "find-tsp-layer", OPT_FLAG, &find, 1, NULL,
	    "compare layers for --tsp-layer over the prompts, write no snapshot" },
	{ 0, "max-layer", OPT_COUNT, &max_layer, 0, "LAYER",
	    "the last layer to try (half of the layers)" },
	{ 0, "tol", OPT_REAL, &tolerance, 0, "X",
	    "choose the earliest layer within 1 + X times the least distance" },
	{ 0, "gemfilter-layer", OPT_COUNT, &gem_layer, 0, "LAYER",
	    "GemFilter: this layer selects tokens, which are run alone" },
	{ 0, "gemfilter-budget", OPT_COUNT, &gem_budget, 0, "N", "GemFilter: N tokens" },
	{ 0, "gemfilter-rate", OPT_SHARE, &gem_rate, 0, "R",
	    "GemFilter: this share of the tokens" },
	{ 0, "pyramid-infer", OPT_STRING, &pyramid_text, 0, "WORDS",
	    "PyramidInfer, with decay=, interval=, recent=, weight=, min=" },
	{ .name = NULL }
};

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

int
opt_tsp_search_wanted(void)
{
	return find;
}

static void
check_tsp(void)
{
	int given = tsp_rate != 0 || tsp_window != 0 || tsp_kernel != 0 || tsp_pool != NULL;

	if (given && tsp_layer == NOT_GIVEN && !find)
		die(EXIT_USAGE, "--tsp-rate, --tsp-window, --tsp-kernel and --tsp-pool go with "
		    "--tsp-layer or --find-tsp-layer");
	if ((max_layer != NOT_GIVEN || tolerance != REAL_NOT_GIVEN) && !find)
		die(EXIT_USAGE, "--max-layer and --tol go with --find-tsp-layer");
	if (tolerance < 0)
		die(EXIT_USAGE, "--tol %g: less than nothing", tolerance);
	if (tsp_kernel != 0 && tsp_kernel % 2 == 0)
		die(EXIT_USAGE, "--tsp-kernel %u: want an odd number", tsp_kernel);
	if (tsp_pool != NULL && strcmp(tsp_pool, "avg") != 0 && strcmp(tsp_pool, "max") != 0)
		die(EXIT_USAGE, "--tsp-pool %s: want avg or max", tsp_pool);
}

static void
check_gemfilter(void)
{
	int budget = gem_budget != NOT_GIVEN, rate = gem_rate != 0;

	if (gem_layer == NOT_GIVEN && (budget || rate))
		die(EXIT_USAGE, "--gemfilter-budget and --gemfilter-rate go with "
		    "--gemfilter-layer");
	if (gem_layer != NOT_GIVEN && budget == rate)
		die(EXIT_USAGE, "--gemfilter-layer: give --gemfilter-budget or "
		    "--gemfilter-rate, and not both");
	if (gem_budget == 0)
		die(EXIT_USAGE, "--gemfilter-budget 0 would select nothing");
}

static void
check_pyramid(void)
{
	if (pyramid_text != NULL)
		options_words("pyramid-infer", pyramid_text, pyramid_opts);
	if (pyramid.interval == 0)
		die(EXIT_USAGE, "--pyramid-infer: interval=0: want at least 1");
	if (!(pyramid.weight > 0))
		die(EXIT_USAGE, "--pyramid-infer: weight=%g: want more than 0", pyramid.weight);
}

static struct tsp
tsp_options(void)
{
	struct tsp tsp = { .rate = 0.2, .window = 8, .kernel = 7, .pool = POOL_MAX };

	if (tsp_rate != 0)
		tsp.rate = tsp_rate;
	if (tsp_window != 0)
		tsp.window = tsp_window;
	if (tsp_kernel != 0)
		tsp.kernel = tsp_kernel;
	if (tsp_pool != NULL)
		tsp.pool = strcmp(tsp_pool, "avg") == 0 ? POOL_AVG : POOL_MAX;
	return tsp;
}

static void
say_selected(void *with, uint32_t layer, uint32_t rows)
{
	const struct token_select *t = with;

	note("layer %u: %u %s", layer, rows, t->rule == TOKENS_GEMFILTER ? "tokens are run again" :
	    "rows go on");
}

void
opt_tokens(struct token_select *t, struct tsp_search *search)
{
	if ((tsp_layer != NOT_GIVEN) + (gem_layer != NOT_GIVEN) + (pyramid_text != NULL) + find > 1)
		die(EXIT_USAGE, "give one of --tsp-layer, --gemfilter-layer, --pyramid-infer and "
		    "--find-tsp-layer");
	check_tsp();
	check_gemfilter();
	check_pyramid();
	*search = (struct tsp_search){ .tsp = tsp_options(),
	    .max_layer = max_layer != NOT_GIVEN ? max_layer : TSP_HALF,
	    .tolerance = tolerance != REAL_NOT_GIVEN ? tolerance : 0 };
	*t = (struct token_select){ .tsp = search->tsp, .pyramid = pyramid, .rate = gem_rate,
	    .budget = gem_budget != NOT_GIVEN ? gem_budget : 0,
	    .selected = { say_selected, t } };
	if (tsp_layer != NOT_GIVEN) {
		t->rule = TOKENS_TSP;
		t->layer = tsp_layer;
	} else if (gem_layer != NOT_GIVEN) {
		t->rule = TOKENS_GEMFILTER;
		t->layer = gem_layer;
	} else if (pyramid_text != NULL) {
		t->rule = TOKENS_PYRAMIDINFER;
	}
}

struct tsp_distance *
opt_tsp_search_run(struct tsp_search *search, const struct model *m, struct workspace *ws,
    enum kv_dtype dtype, const struct prompt *prompts, size_t n, uint32_t *chosen)
{
	struct tsp_distance *d = must_alloc((size_t)tsp_search_max(search, m) + 1, sizeof *d);
	struct engine_error e;

	search->step.call = progress_step;
	progress_start("layers", tsp_search_total(search, m, n), "passes");
	must(tsp_search_run(search, m, ws, dtype, prompts, n, d, chosen, &e), &e);
	progress_end();
	return d;
}

void
opt_tokens_sign(const struct token_select *t)
{
	if (t->rule == TOKENS_TSP) {
		sign_count("tsp-kernel", t->tsp.kernel);
		sign_count("tsp-layer", t->layer);
		sign_text("tsp-pool", t->tsp.pool == POOL_AVG ? "avg" : "max");
		sign_real("tsp-rate", t->tsp.rate);
		sign_count("tsp-window", t->tsp.window);
	}
	if (t->rule == TOKENS_GEMFILTER) {
		sign_count("gemfilter-layer", t->layer);
		if (t->budget != 0)
			sign_count("gemfilter-budget", t->budget);
		else
			sign_real("gemfilter-rate", t->rate);
	}
	if (t->rule == TOKENS_PYRAMIDINFER) {
		sign_real("pyramid-infer-decay", t->pyramid.decay);
		sign_count("pyramid-infer-interval", t->pyramid.interval);
		sign_count("pyramid-infer-min", t->pyramid.least);
		sign_real("pyramid-infer-recent", t->pyramid.recent);
		sign_real("pyramid-infer-weight", t->pyramid.weight);
	}
}
