/* kv-plan - predict memory from settings: the longest text with offloaded layers, or the KV
 * footprint by the formula of PruLong's script */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/json.h"
#include "cli/snapshot_io.h"
#include "cli/tool.h"
#include "engine/row_bytes.h"
#include "methods/footprint.h"
#include "methods/offload_thresholds.h"

static const char *offload_text, *prulong_text;
static struct offload_plan offload = { .requests = 1 };
static struct prulong prulong = { .prompt = NOT_GIVEN };

static const struct opt opts[] = {
	{ 0, "offload", OPT_STRING, &offload_text, 0, "WORDS",
	    "longest text by offloaded layers: 'memory=LIMIT weights=N budget=N' (SpeContext)",
	    OPT_HOW },
	{ 0, "prulong", OPT_STRING, &prulong_text, 0, "WORDS",
	    "footprint and peak by PruLong's script: 'prompt=N [chunk=N ...]'", OPT_HOW },
	{ .name = NULL }
};

static const struct opt offload_words[] = {
	{ 0, "memory", OPT_BYTES, &offload.limit, 1, "LIMIT", "", OPT_HOW },
	{ 0, "weights", OPT_BYTES, &offload.weights, 1, "N", "", OPT_HOW },
	{ 0, "head-weights", OPT_BYTES, &offload.head_weights, 0, "N", "", OPT_HOW },
	{ 0, "budget", OPT_COUNT, &offload.budget, 1, "N", "", OPT_HOW },
	{ 0, "batch", OPT_COUNT, &offload.requests, 1, "N", "", OPT_HOW },
	{ .name = NULL }
};

static const struct opt prulong_words[] = {
	{ 0, "prompt", OPT_COUNT, &prulong.prompt, 0, "N", "", OPT_HOW },
	{ 0, "generate", OPT_COUNT, &prulong.generated, 0, "N", "", OPT_HOW },
	{ 0, "chunk", OPT_COUNT, &prulong.chunk, 0, "N", "", OPT_HOW },
	{ 0, "head-sparsity", OPT_REAL, &prulong.head_sparsity, 0, "SHARE", "", OPT_HOW },
	{ 0, "sink", OPT_COUNT, &prulong.sink, 0, "N", "", OPT_HOW },
	{ 0, "recent", OPT_COUNT, &prulong.recent, 0, "N", "", OPT_HOW },
	{ 0, "sparsity", OPT_REAL, &prulong.sparsity, 0, "SHARE", "", OPT_HOW },
	{ .name = NULL }
};

static const struct tool tool = {
	.name = "kv-plan",
	.synopsis = "--offload WORDS [-qv] [--json] [--report FILE] [snapshot]\n"
	    "kv-plan --prulong WORDS [-qv] [--json] [--report FILE]",
	.example = "kv-plan --offload 'memory=24g weights=16g budget=2048' full.kv",
	.opts = opts,
	.takes = TAKES_JSON,
	.max_operands = 1
};

/* ---- offloaded layers (SpeContext) ---- */

static json_t *
threshold_json(uint32_t i, int fits, uint64_t tokens)
{
	json_t *o = json_object();

	put_count(o, "layers", i);
	put_value(o, "tokens", fits ? json_integer((json_int_t)tokens) : json_null());
	return o;
}

static void
check_offload(void)
{
	if (offload.limit == 0 || offload.weights == 0 || offload.budget == 0)
		die(EXIT_USAGE, "--offload: give memory=LIMIT, weights=N (bytes of the model's "
		    "weights) and budget=N (rows that a step reads)");
	if (offload.weights >> 60 != 0 || offload.head_weights >> 60 != 0)
		die(EXIT_USAGE, "--offload: weights of 2^60 bytes and more");
}

/* Copies the shape of the snapshot's model. */
static void
take_shape(const struct kv_head *head)
{
	const struct kv_model *m = &head->model;

	offload.layers = m->layers;
	offload.kv_heads = m->kv_heads;
	offload.width = m->head_width;
	offload.group = m->query_heads / m->kv_heads;
	offload.element = (uint32_t)kv_dtype_size(head->dtype);
	if ((offload.row_bytes = row_bytes_of_layers(head)) == NULL)
		die(EXIT_RUN, "no memory");
}

static void
plan_offload(const char *path)
{
	struct kv_reader *r = input_open(path);
	json_t *list = json_array(), *all = json_object();
	uint64_t tokens;
	uint32_t i;
	int fits;

	input_refuse_residual(r, "layers of such rows are not offloaded: use q4_0, q5_0 or q8_0 "
	    "rows without residual");
	take_shape(kv_reader_head(r));
	/* thresholds ascend or descend: if neither end has a token, none has */
	if ((!offload_threshold(&offload, offload.layers, &tokens) || tokens < 1) &&
	    (!offload_threshold(&offload, 0, &tokens) || tokens < 1))
		die(EXIT_RUN, "--offload: not a token fits into %" PRIu64 " bytes: the weights "
		    "take %.0f with what runs", offload.limit, 1.3 * ((double)offload.weights +
		    (double)offload.head_weights));
	if (!settings.json)
		printf("%6s  %12s\n", "layers", "tokens");
	for (i = 0; i <= offload.layers; i++) {
		fits = offload_threshold(&offload, i, &tokens);
		if (settings.json)
			json_array_append_new(list, threshold_json(i, fits, tokens));
		else if (fits)
			printf("%6u  %12" PRIu64 "\n", i, tokens);
		else
			printf("%6u  %12s\n", i, "-");
	}
	put_value(all, "thresholds", list);
	if (settings.json)
		print_json(all);
	else
		json_decref(all);
	kv_close(r);
}

/* ---- the formula of PruLong's script ---- */

static void
check_share(const char *word, double share)
{
	if (share < 0 || share > 1)
		die(EXIT_USAGE, "--prulong: %s=%g: want 0 to 1", word, share);
}

static void
check_prulong(void)
{
	if (prulong.prompt == NOT_GIVEN)
		die(EXIT_USAGE, "--prulong: give prompt=N");
	check_share("head-sparsity", prulong.head_sparsity);
	check_share("sparsity", prulong.sparsity);
	if (prulong.generated > UINT32_MAX - prulong.prompt ||
	    prulong.prompt + prulong.generated == 0)
		die(EXIT_USAGE, "--prulong: prompt=%u and generate=%u: want 1 to 2^32 - 1 tokens",
		    prulong.prompt, prulong.generated);
}

static void
plan_prulong(void)
{
	const struct prulong_result r = footprint_prulong(&prulong);
	json_t *o;

	if (!settings.json) {
		printf("%9s %9s\n%8.2f%% %8.2f%%\n", "footprint", "peak", 100 * r.footprint,
		    100 * r.peak);
		return;
	}
	o = json_object();
	put_value(o, "footprint", json_real(r.footprint));
	put_value(o, "peak", json_real(r.peak));
	put_count(o, "streaming_entries", r.streaming);
	put_count(o, "evicting_entries", r.evicting);
	put_count(o, "full_entries", r.full);
	print_json(o);
}

int
main(int argc, char **argv)
{
	const int first = tool_start(&tool, argc, argv);

	if ((offload_text != NULL) + (prulong_text != NULL) != 1)
		die(EXIT_USAGE, "give --offload or --prulong");
	if (offload_text != NULL) {
		options_words("offload", offload_text, offload_words);
		check_offload();
		plan_offload(operand(argc, argv, first));
		return finish();
	}
	if (first < argc)
		die(EXIT_USAGE, "--prulong reads no snapshot");
	options_words("prulong", prulong_text, prulong_words);
	check_prulong();
	plan_prulong();
	return finish();
}
