/* kv-prefill - run a prompt through a model and write its KV cache as a snapshot */
#include <stdlib.h>
#include <string.h>

#include "model/forward.h"
#include "model/tokenizer.h"
#include "tools/device.h"
#include "tools/engine.h"
#include "tools/tool.h"

static uint32_t observe, chunk = 512;
static int ids_in, mass, no_template, plain;
static const char *resume, *dtype_name;

static const struct opt opts[] = {
	{ 'w', "observe", OPT_COUNT, &observe, 0, "W",
	    "keep the queries of the last W tokens for kv-score" },
	{ 0, "mass", OPT_FLAG, &mass, 1, NULL,
	    "add up the attention that each row receives, for kv-score" },
	{ 'c', "chunk", OPT_COUNT, &chunk, 0, "N", "run N tokens at a time (512)" },
	{ 'r', "resume", OPT_STRING, &resume, 0, "SNAPSHOT", "continue this snapshot" },
	{ 0, "dtype", OPT_STRING, &dtype_name, 0, "TYPE",
	    "type of keys and values: bf16, f16, f32 (as the weights)" },
	{ 0, "ids", OPT_FLAG, &ids_in, 1, NULL, "the prompt is a list of token ids" },
	{ 0, "no-template", OPT_FLAG, &no_template, 1, NULL,
	    "do not put the tokenizer's first tokens (BOS) before the text" },
	{ 0, "plain", OPT_FLAG, &plain, 1, NULL, "take the text of special tokens literally" },
	{ 0 }
};

static const struct tool tool = {
	.name = "kv-prefill",
	.about = "run a prompt through a model and write its KV cache as a snapshot",
	.synopsis = "-m DIR [-qvz] [-c N] [-j N] [-o FILE] [-r SNAPSHOT] [-w W] [--device DEVICE]\n"
	    "[--dtype TYPE] [--ids] [--mass] [--no-template] [--plain] [--progress WHEN]\n"
	    "[prompt]",
	.opts = opts,
	.takes = TAKES_MODEL | TAKES_OUTPUT | TAKES_THREADS | TAKES_PROGRESS,
	.max_operands = 1
};

/* The prompt's ids: text through the tokenizer, or the ids themselves. */
static void
read_prompt(const char *path, const struct tokenizer *tok, uint32_t vocabulary, struct ids *out)
{
	const char *name = strcmp(path, "-") == 0 ? "stdin" : path;
	unsigned flags = plain ? TOK_PLAIN : 0;
	char *text, err[512];
	size_t len;

	must_read_all(path, &text, &len);
	if (ids_in)
		parse_ids(name, text, len, vocabulary, out);
	else if (len > 0) {
		if (!no_template && resume == NULL)
			flags |= TOK_TEMPLATE;
		if (tokenizer_encode(tok, text, len, flags, out, err, sizeof err) != 0)
			die(EXIT_DAMAGED, "%s: %s", name, err);
	}
	free(text);
	if (out->n == 0)
		die(EXIT_DAMAGED, "%s: the prompt is empty", name);
}

/* What earlier queries have paid cannot be found out later. */
static void
refuse_partial_mass(const struct cache *c, const struct kv_reader *from)
{
	uint32_t l;

	for (l = 0; c->mass != NULL && l < c->model->id.layers; l++)
		if (!c->mass[l].whole)
			die(EXIT_RUN, "%s: layer %u has rows without attention mass, and --mass "
			    "cannot add it: make it with kv-prefill --mass from the start",
			    kv_reader_name(from), l);
}

/* The cache to continue: that of the snapshot, or an empty one. */
static struct cache *
start_cache(const struct model *m, struct kv_reader *from, struct observation *obs, size_t room)
{
	enum kv_dtype dtype = from ? kv_reader_head(from)->dtype : m->id.weights_dtype;
	struct cache *c;
	int rc;

	if (dtype_name != NULL) {
		enum kv_dtype asked = kv_dtype_named(dtype_name);

		if (asked == 0)
			die(EXIT_USAGE, "--dtype %s: want bf16, f16 or f32", dtype_name);
		if (from != NULL && asked != dtype)
			die(EXIT_USAGE, "--dtype %s: %s holds %s", dtype_name, kv_reader_name(from),
			    kv_dtype_name(dtype));
		dtype = asked;
	}
	if ((c = cache_new(m, dtype)) == NULL)
		die(EXIT_RUN, "no memory for the cache");
	if (mass && cache_want_mass(c) != 0)
		die(EXIT_RUN, "no memory for attention mass");
	c->spare = (uint32_t)room;
	if (from != NULL && (rc = snapshot_load(from, c, obs)) < 0)
		input_failed(from, rc);
	refuse_partial_mass(c, from);
	return c;
}

/* Each chunk is an event of its own. */
static struct cache *logged;

static void
log_chunk(uint64_t done)
{
	static uint64_t before;

	if (cache_log(logged, KV_EVENT_PREFILL, (uint32_t)(done - before), 0,
	    logged->model->id.layers) != 0)
		die(EXIT_RUN, "no memory for the event log");
	before = done;
	progress(done);
}

static void
report(const struct cache *c, size_t n, double seconds)
{
	note("%zu tokens in %.2f s (%.0f tokens/s), next position %u, keys and values %.1f MiB",
	    n, seconds, (double)n / seconds, c->next_position, (double)cache_bytes(c) / (1 << 20));
}

int
main(int argc, char **argv)
{
	int first = tool_start(&tool, argc, argv);
	const char *path = operand(argc, argv, first);
	struct kv_reader *from = NULL;
	struct observation obs = { 0 };
	struct workspace *ws;
	struct kv_writer *w;
	struct engine e;
	struct cache *c;
	struct ids ids = { 0 };
	struct kv_head head;
	char err[512];
	double t0;

	if (chunk == 0)
		die(EXIT_USAGE, "--chunk 0: want at least one token at a time");
	if (resume != NULL && strcmp(resume, "-") == 0 && strcmp(path, "-") == 0)
		die(EXIT_USAGE, "the snapshot and the prompt cannot both come from standard input");
	output_refuse_terminal();
	if (resume != NULL)
		from = input_open(resume);
	engine_open(&e, from);
	read_prompt(path, e.tokenizer, e.model->id.vocabulary, &ids);
	if (observe > 0 && observation_init(&obs, e.model, observe) != 0)
		die(EXIT_RUN, "no memory for %u observation queries", observe);

	c = start_cache(e.model, from, observe ? &obs : NULL, ids.n);
	if (observe > obs.have + ids.n)
		die(EXIT_USAGE, "--observe %u: the prompt has %zu tokens%s", observe, ids.n,
		    from ? " and the snapshot too few queries before them" : "");
	if (c->next_position + ids.n > e.model->max_position)
		warning("%zu tokens end at position %zu: the model was made for %u", ids.n,
		    c->next_position + ids.n - 1, e.model->max_position);
	if ((ws = workspace_new(e.model, ids.n < chunk ? (uint32_t)ids.n : chunk)) == NULL)
		die(EXIT_RUN, "no memory for %u tokens at a time", chunk);
	logged = c;
	t0 = seconds();
	progress_start("prefill", ids.n, "tokens");
	if (run_tokens(e.model, c, ws, ids.ids, ids.n, observe ? &obs : NULL, log_chunk, err,
	    sizeof err) != 0)
		die(EXIT_RUN, "%s", err);
	progress_end();
	report(c, ids.n, seconds() - t0);

	snapshot_head(c, &head);
	w = output_create(&head);
	output_check(w, snapshot_save(w, c, observe ? &obs : NULL));
	sign_count("chunk", chunk);
	if (mass)
		sign_count("mass", 1);
	sign_count("observe", observe);
	sign_count("tokens", ids.n);
	output_commit(w, from);
	kv_close(from);
	workspace_free(ws, e.model);
	observation_free(&obs, e.model);
	cache_free(c);
	free(ids.ids);
	engine_close(&e);
	return finish();
}
