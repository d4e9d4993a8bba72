/* kv-tsp-layer - find the layer for FastKV's token selection (TSP) over some prompts */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/json.h"
#include "cli/opt_select.h"
#include "cli/positions.h"
#include "cli/progress.h"
#include "cli/prompt_input.h"
#include "cli/session.h"
#include "cli/tool.h"
#include "engine/tsp_search.h"

static struct prompt_input input;
static uint32_t chunk = NOT_GIVEN;
static const char *dtype_name;
static struct tsp_search search = { .max_layer = TSP_HALF };

static const struct opt opts[] = {
	{ 0, "ids", OPT_FLAG, &input.ids, 1, NULL, "prompts are lists of token ids", OPT_READS },
	{ 0, "no-template", OPT_FLAG, &input.no_template, 1, NULL,
	    "do not put the tokenizer's first tokens (BOS) before the text", OPT_READS },
	{ 0, "plain", OPT_FLAG, &input.plain, 1, NULL,
	    "treat special tokens in the text as plain text", OPT_READS },
	{ 0, "max-layer", OPT_COUNT, &search.max_layer, 0, "LAYER",
	    "the last layer to try (half of the layers)", OPT_HOW },
	{ 0, "tol", OPT_REAL, &search.tolerance, 0, "X",
	    "choose the earliest layer within 1 + X times the least distance (0)", OPT_HOW },
	{ 'c', "chunk", OPT_COUNT, &chunk, 1, "N",
	    "run N tokens at a time (512, on a GPU 4096)", OPT_HOW },
	{ 0, "dtype", OPT_STRING, &dtype_name, 0, "TYPE",
	    "type of keys and values: bf16, f16, f32 (as the weights)", OPT_HOW },
	{ 0 }
};

static const struct tool tool = {
	.name = "kv-tsp-layer",
	.synopsis = "-m MODEL [-qv] [-c N] [-j N] [--allow-config KEY] [--allow-tensor NAME]\n"
	    "[--device DEVICE] [--dtype TYPE] [--ids] [--json] [--kernel K] [--max-layer LAYER]\n"
	    "[--no-template] [--plain] [--pool HOW] [--products TYPE] [--progress WHEN]\n"
	    "[--rate R] [--report FILE] [--tol X] [--window W] [prompt ...]",
	.example = "kv-tsp-layer -m examples/demo-model examples/prompts/harbour.txt",
	.opts = opts,
	.more = tsp_opts,
	.takes = TAKES_MODEL | TAKES_CONFIG | TAKES_THREADS | TAKES_JSON | TAKES_PROGRESS,
	.max_operands = UINT_MAX
};

/* Returns the type of keys and values: --dtype, or that of the weights. */
static enum kv_dtype
rows_dtype(const struct model *m)
{
	return dtype_name != NULL ? option_dtype(dtype_name) : m->id.weights_dtype;
}

/* Reads the prompts, and checks that they suit the search. Returns the length of the longest. */
static size_t
read_prompts(const struct session *s, char **paths, size_t n, struct prompt *prompts,
    struct ids *ids)
{
	struct engine_error e;
	size_t i, longest = 0;

	for (i = 0; i < n; i++) {
		prompt_read(&input, paths[i], s->tokenizer, s->model->id.vocabulary, NULL,
		    &ids[i]);
		must(tsp_search_fit(&search, s->model, ids[i].n, &e), &e);
		prompts[i] = (struct prompt){ ids[i].ids, ids[i].n };
		longest = ids[i].n > longest ? ids[i].n : longest;
	}
	return longest;
}

/* Loads the weights if there is room for the longest prompt. */
static struct workspace *
load_model(struct session *s, size_t longest)
{
	const uint32_t most = ops_tile(s->device.ops), tile = chunk < most ? chunk : most;
	const struct kv_head stored = { .model = s->model->id, .dtype = rows_dtype(s->model) };
	struct memory_demand d = { .tokens = longest, .stored = &stored,
	    .at_once = longest < tile ? (uint32_t)longest : tile };
	struct workspace *ws;

	warn_of_positions(s->model, longest);
	model_expect_text(s->model, longest);
	tsp_search_demand(s->model, longest, &d);
	session_load(s, &d);
	if ((ws = workspace_new(s->model, d.at_once)) == NULL)
		die(EXIT_RUN, "no memory for %u tokens at a time", tile);
	return ws;
}

/* distance[0 .. tsp_search_max()] <- the distance with TSP at each layer. Returns the layer to
 * choose. */
static uint32_t
run_search(const struct session *s, struct workspace *ws, const struct prompt *prompts, size_t n,
    size_t longest, struct tsp_distance *distance)
{
	struct engine_error e;
	uint32_t chosen = 0;

	search.step.call = progress_step;
	progress_start("layers", tsp_search_total(&search, s->model, n, longest), "passes");
	must(tsp_search_run(&search, s->model, ws, rows_dtype(s->model), prompts, n, distance,
	    &chosen, &e), &e);
	progress_end();
	return chosen;
}

static void
print_curve_json(const struct tsp_distance *d, uint32_t max, size_t prompts, uint32_t chosen)
{
	json_t *curve = json_array(), *all = json_object(), *one;
	uint32_t l;

	for (l = 0; l <= max; l++) {
		if (!d[l].tried)
			continue;
		one = json_object();
		put_count(one, "layer", l);
		put_real(one, "last", d[l].last);
		put_real(one, "surviving", d[l].surviving);
		json_array_append_new(curve, one);
	}
	put_value(all, "layers", curve);
	put_count(all, "prompts", prompts);
	put_count(all, "tsp_layer", chosen);
	print_json(all);
}

static void
print_curve(const struct tsp_distance *d, uint32_t max, uint32_t chosen)
{
	uint32_t l;

	printf("%5s  %12s  %12s\n", "layer", "last", "surviving");
	for (l = 0; l <= max; l++)
		if (d[l].tried)
			printf("%5u  %12.6g  %12.6g\n", l, d[l].last, d[l].surviving);
	printf("tsp-layer %u\n", chosen);
}

int
main(int argc, char **argv)
{
	const int first = tool_start(&tool, argc, argv);
	char *standard_input[] = { "-" }, **paths = first < argc ? argv + first : standard_input;
	const size_t n = first < argc ? (size_t)(argc - first) : 1;
	struct prompt *prompts = must_alloc(n, sizeof *prompts);
	struct ids *ids = must_alloc(n, sizeof *ids);
	struct tsp_distance *distance;
	struct workspace *ws;
	struct session s;
	uint32_t max, chosen;
	size_t i, longest;

	if (search.tolerance < 0)
		die(EXIT_USAGE, "--tol %g: less than nothing", search.tolerance);
	search.tsp = opt_tsp();
	session_open(&s, NULL, input.ids ? TOKENIZER_IF_THERE : TOKENIZER_NEEDED);
	longest = read_prompts(&s, paths, n, prompts, ids);
	ws = load_model(&s, longest);
	max = tsp_search_max(&search, s.model);
	distance = must_alloc((size_t)max + 1, sizeof *distance);
	chosen = run_search(&s, ws, prompts, n, longest, distance);
	if (settings.json)
		print_curve_json(distance, max, n, chosen);
	else
		print_curve(distance, max, chosen);
	free(distance);
	workspace_free(ws, s.model);
	for (i = 0; i < n; i++)
		free(ids[i].ids);
	free(ids);
	free(prompts);
	session_close(&s);
	return finish();
}
