/* kv-prefill - run a prompt through a model and write its KV cache as a snapshot */
#include <stdlib.h>
#include <string.h>

#include "cli/device.h"
#include "cli/logits_file.h"
#include "cli/opt_evict_cache.h"
#include "cli/opt_gate.h"
#include "cli/opt_prefill.h"
#include "cli/opt_prefix.h"
#include "cli/opt_rows.h"
#include "cli/opt_select.h"
#include "cli/positions.h"
#include "cli/prompt_input.h"
#include "cli/report.h"
#include "cli/session.h"
#include "cli/snapshot_io.h"
#include "cli/tool.h"
#include "engine/grow_clusters.h"
#include "engine/open_sequence.h"
#include "forward/forward.h"
#include "tokenizer/tokenizer.h"

static uint32_t observe, chunk = NOT_GIVEN, tile, noncausal = NOT_GIVEN;
static int mass, query_stats, norms_wanted;
static const char *resume, *dtype_name, *logits_path, *head_folder, *select_words;
static struct prompt_input prompt;
static struct prefill prefill;
static struct prefix prefix;
static struct kv_head stored;    /* dtype and row types of the snapshot that is made */

static const struct opt opts[] = {
	{ 'p', "prompt", OPT_STRING, &prompt.text, 0, "TEXT",
	    "the prompt, instead of a file", OPT_READS },
	{ 0, "ids", OPT_FLAG, &prompt.ids, 1, NULL,
	    "the prompt is a list of token ids", OPT_READS },
	{ 0, "no-template", OPT_FLAG, &prompt.no_template, 1, NULL,
	    "do not put the tokenizer's first tokens (BOS) before the text", OPT_READS },
	{ 0, "plain", OPT_FLAG, &prompt.plain, 1, NULL,
	    "treat special tokens in the text as plain text", OPT_READS },
	{ 'r', "resume", OPT_STRING, &resume, 0, "SNAPSHOT", "continue this snapshot", OPT_READS },
	{ 0, "reuse", OPT_STRING, &prefix_options.reuse, 0, "SNAPSHOT",
	    "reuse its rows for the beginning of the prompt", OPT_READS },
	{ 0, "store", OPT_STRING, &prefix_options.store, 0, "DIR",
	    "prefix cache: reuse rows in this folder, and add new ones", OPT_READS },
	{ 0, "store-size", OPT_BYTES, &prefix_options.store_size, 1, "N",
	    "largest size of the --store folder, e.g. 10g (no limit)", OPT_READS },
	{ 'c', "chunk", OPT_COUNT, &chunk, 0, "N", "run N tokens at a time (512, on a GPU 4096)",
	    OPT_HOW },
	{ 0, "score", OPT_STRING, &prefill_options.score, 0, "WORDS",
	    "score rows during prefill: 'METHOD [OPTION=VALUE ...]' of kv-score", OPT_HOW },
	{ 0, "evict", OPT_STRING, &prefill_options.evict, 0, "WORDS",
	    "drop rows during prefill: 'OPTION=VALUE ...' of kv-evict", OPT_HOW },
	{ 0, "once", OPT_FLAG, &prefill_options.once, 1, NULL,
	    "score and drop only the rows of the current chunk", OPT_HOW },
	{ 0, "patch", OPT_COUNT, &prefill_options.patch, 1, "W",
	    "let the prompt's last W tokens score each chunk", OPT_HOW },
	{ 0, "select", OPT_STRING, &select_words, 0, "WORDS",
	    "run later layers on some tokens: 'tsp layer=N', gemfilter, pyramidinfer", OPT_HOW },
	{ 0, "retrieval-head", OPT_STRING, &head_folder, 0, "DIR",
	    "keep the keys of this head, for kv-decode --retrieve specontext", OPT_WRITES },
	OPT_GATE,
	{ 0, "noncausal", OPT_COUNT, &noncausal, 0, "FIRST",
	    "keep non-causal attention within chunks of 256 from row FIRST on", OPT_WRITES },
	{ 'w', "observe", OPT_COUNT, &observe, 0, "W",
	    "keep the queries of the last W tokens for kv-score", OPT_WRITES },
	{ 0, "mass", OPT_FLAG, &mass, 1, NULL,
	    "keep the attention mass of each row, for kv-score", OPT_WRITES },
	{ 0, "query-stats", OPT_FLAG, &query_stats, 1, NULL,
	    "keep mean and covariance of the queries, for kv-score", OPT_WRITES },
	{ 0, "value-norms", OPT_FLAG, &norms_wanted, 1, NULL,
	    "keep norms of values behind the output projection, for kv-evict", OPT_WRITES },
	{ 0, "dtype", OPT_STRING, &dtype_name, 0, "TYPE",
	    "type of keys and values: bf16, f16, f32 (as the weights)", OPT_WRITES },
	{ 0, "keys", OPT_STRING, &rows_options.keys, 0, "TYPE",
	    "quantise keys: q8_0, q4_0, q4_1, q5_0, int8, fp8, or TYPE-hadamard", OPT_WRITES },
	{ 0, "values", OPT_STRING, &rows_options.values, 0, "TYPE",
	    "quantise values, as --keys", OPT_WRITES },
	{ 0, "logits", OPT_STRING, &logits_path, 0, "FILE",
	    "write the logits after every token that runs, as a .npy file", OPT_WRITES },
	{ 0 }
};

static const struct tool tool = {
	.name = "kv-prefill",
	.synopsis = "-m MODEL [-qvz] [-c N] [-j N] [-o FILE] [-r SNAPSHOT] [-w W]\n"
	    "[--allow-config KEY] [--allow-tensor NAME] [--device DEVICE] [--dtype TYPE]\n"
	    "[--evict WORDS] [--gate DIR] [--ids] [--keys TYPE] [--logits FILE] [--mass]\n"
	    "[--no-template] [--noncausal FIRST] [--once] [--patch W] [--plain]\n"
	    "[--products TYPE] [--progress WHEN] [--query-stats] [--report FILE]\n"
	    "[--retrieval-head DIR] [--reuse SNAPSHOT | --store DIR [--store-size N]]\n"
	    "[--score WORDS] [--select WORDS] [--value-norms] [--values TYPE]\n"
	    "[-p TEXT | prompt]",
	.example = "kv-prefill -m examples/demo-model --observe 16 -o full.kv "
	    "examples/prompts/harbour.txt",
	.opts = opts,
	.takes = TAKES_MODEL | TAKES_CONFIG | TAKES_OUTPUT | TAKES_THREADS | TAKES_PROGRESS,
	.max_operands = 1
};

/* Returns whether --score, --evict or a related option is given. */
static int
evicts(void)
{
	return prefill.schedule != PREFILL_PLAIN;
}

static int
wants_mass(void)
{
	return mass || (evict_cache_needs(&prefill.evict) & NEED_MASS);
}

static int
wants_query_stats(void)
{
	return query_stats || (evict_cache_needs(&prefill.evict) & NEED_QUERY_STATS);
}

/* Non-causal attention that the method needs begins at the first row that it scores. */
static void
choose_noncausal(void)
{
	const struct scorer *s = &prefill.evict.scorer;

	if (noncausal == NOT_GIVEN && (evict_cache_needs(&prefill.evict) & NEED_NONCAUSAL))
		noncausal = s->options.sink;
	if (noncausal == NOT_GIVEN)
		return;
	if (prefill.select.rule != TOKENS_ALL)
		die(EXIT_USAGE, "--noncausal, and methods that need it, do not go with --select: "
		    "chunks of tokens that are not selected would have holes");
	if (prefix_options.store != NULL)
		die(EXIT_USAGE, "--noncausal, and methods that need it, do not go with --store: it "
		    "keeps no non-causal attention; use --reuse, or run the whole prompt");
	if (chunk != NOT_GIVEN && chunk < NONCAUSAL_CHUNK)
		die(EXIT_USAGE, "--chunk %u: non-causal attention is within chunks of %d tokens, "
		    "which run together: want at least as many", chunk, NONCAUSAL_CHUNK);
	if (prefill.schedule == PREFILL_CHUNKS && (noncausal != 0 || chunk % NONCAUSAL_CHUNK != 0))
		die(EXIT_USAGE, "--chunk %u with --evict would cut chunks of non-causal attention, "
		    "which begin at row %u: want a multiple of %d%s", chunk, noncausal,
		    NONCAUSAL_CHUNK, noncausal != 0 ? ", and --noncausal 0" : "");
}

/* stored <- how rows are stored: as those of the snapshot to continue; else by --dtype, or as the
 * weights, and by --keys and --values. */
static void
set_stored(const struct model *m, const struct kv_reader *from)
{
	const enum kv_dtype asked = dtype_name != NULL ? option_dtype(dtype_name) : 0;
	const char *kivi;

	if (from != NULL) {
		stored = *kv_reader_head(from);
		if (asked != 0 && asked != stored.dtype)
			die(EXIT_USAGE, "--dtype %s: %s holds %s", dtype_name,
			    kv_reader_name(from), kv_dtype_name(stored.dtype));
		opt_rows_same(&stored, kv_reader_name(from));
		if (stored.residual != 0 && norms_wanted)
			input_refuse_residual(from, "norms of value outputs are made of rows of "
			    "one type: leave out --value-norms");
		if (stored.residual != 0 && noncausal != NOT_GIVEN)
			input_refuse_residual(from, "its tokens run one by one, and attend to no "
			    "chunk: leave out --noncausal");
		if (stored.residual != 0 && (evicts() || prefill.adapter != NULL))
			input_refuse_residual(from, "no single row can be dropped: evict before "
			    "kv-quantize");
		return;
	}
	stored = (struct kv_head){ .model = m->id,
	    .dtype = asked != 0 ? asked : m->id.weights_dtype };
	if ((kivi = opt_rows_kivi()) != NULL && m->id.latent_rank == 0)
		die(EXIT_USAGE, "--keys, --values: as in the KIVI paper, a prompt runs with full "
		    "rows, which are quantised afterwards: kv-prefill | kv-quantize --keys %s "
		    "--values %s", kivi, kivi);
	opt_rows_head(&stored);
}

/* Opens the text to continue: that of the snapshot, or an empty one with reused rows. window:
 * queries to keep. */
static void
open_text(struct open_sequence *x, const struct session *e, struct kv_reader *from, uint32_t window,
    size_t room)
{
	const struct sequence_options want = { .stored = &stored,
	    .spare = (uint32_t)room, .observe = window, .mass = wants_mass(), .head = e->head,
	    .query_stats = wants_query_stats(), .gate = e->gate,
	    .noncausal = noncausal != NOT_GIVEN, .noncausal_first = noncausal,
	    .indexes = from != NULL ? KV_ALL_INDEXES : 0,
	    .evict = evicts() ? &prefill.evict : NULL, .notice = { .call = warn_notice } };
	struct engine_error error;

	report_enter(REPORT_LOAD);
	must(open_sequence(x, e->model, &want, from, &e->plan, &error), &error);
	report_leave();
	prefix_load(&prefix, e, x->sequence.cache, tile);
}

static void
choose_tile(const struct session *e)
{
	tile = ops_tile(e->device.ops);
	if (chunk != NOT_GIVEN && !(evicts() && chunk > tile))
		tile = chunk;
}

/* Returns how many rows run at once, of n tokens and of those that run after them. */
static uint32_t
rows_at_once(size_t n)
{
	const uint32_t rows = n < tile ? (uint32_t)n : tile, least = prefill_least_rows(&prefill);

	return rows > least ? rows : least;
}

/* Loads the weights if there is room for at least n tokens, in addition to the prompt's reused
 * rows. */
static void
load_model(struct session *e, size_t n)
{
	struct memory_demand d = { .tokens = n, .stored = &stored,
	    .mass = wants_mass(), .query_stats = (uint32_t)wants_query_stats(),
	    .at_once = rows_at_once(n) };

	prefill_demand(&prefill, e->model, n, &d);
	if (logits_path != NULL)
		d.logits = each_logits_rows(e->model, d.at_once);
	d.tokens += prefix.tokens;
	d.rows += prefix.rows;
	session_load(e, &d);
}

static void
tell(const struct cache *c, size_t n, double seconds)
{
	report_count("tokens_run", c->ran);
	note("%zu tokens in %.2f s (%.0f tokens/s), next position %u, keys and values %.1f MiB",
	    n, seconds, (double)n / seconds, c->next_position, (double)cache_bytes(c) / (1 << 20));
}

static void
check_logits(const char *path)
{
	if (logits_path == NULL)
		return;
	if (prefill.select.rule != TOKENS_ALL)
		die(EXIT_USAGE, "--logits does not go with --select: tokens that are not selected "
		    "never reach the last layer");
	if (prefix_options.reuse != NULL || prefix_options.store != NULL)
		die(EXIT_USAGE, "--logits does not go with --%s: tokens whose rows are there "
		    "already are not run", prefix_options.reuse != NULL ? "reuse" : "store");
	logits_file_check(logits_path, "snapshot", (const char *[]){ path, resume }, 2);
}

/* Opens adapter, gate and retrieval head. The head must see all tokens, and one with features also
 * the model's hidden state of each. */
static void
open_beside(struct session *s)
{
	if (prefill_options.adapter != NULL)
		session_adapter(s, prefill_options.adapter);
	prefill.adapter = s->adapter;
	opt_gate_open(s, &prefill.evict);
	if (head_folder == NULL)
		return;
	if (prefill.select.rule == TOKENS_GEMFILTER)
		die(EXIT_USAGE, "--retrieval-head does not go with --select gemfilter, which gives "
		    "rows other positions than in the text");
	session_head(s, head_folder);
	if (!s->head->has_features)
		return;
	if (prefill.select.rule != TOKENS_ALL)
		die(EXIT_UNSUPPORTED, "--retrieval-head: this head has features, and does not go "
		    "with --select: tokens that are not selected never reach their layers");
	if (prefix_options.reuse != NULL || prefix_options.store != NULL)
		die(EXIT_UNSUPPORTED, "--retrieval-head: this head has features, and does not go "
		    "with --%s: tokens whose rows are there already are not run",
		    prefix_options.reuse != NULL ? "reuse" : "store");
}

static void
check_options(const char *path)
{
	if (chunk == 0)
		die(EXIT_USAGE, "--chunk 0: want at least one token at a time");
	opt_rows();
	opt_select(&prefill.select, select_words);
	opt_prefill(&prefill, chunk != NOT_GIVEN ? chunk : 0, observe);
	opt_gate(&prefill.evict);
	choose_noncausal();
	opt_prefix(&prefill, path, resume, wants_mass(), wants_query_stats(), gate_folder != NULL);
	if (resume != NULL && strcmp(resume, "-") == 0 && strcmp(path, "-") == 0)
		die(EXIT_USAGE, "the snapshot and the prompt cannot both come from standard input");
	check_logits(path);
}

static struct workspace *
make_workspace(const struct model *m, size_t n)
{
	struct workspace *ws = workspace_new(m, rows_at_once(n));

	if (ws == NULL)
		die(EXIT_RUN, "no memory for %u tokens at a time", tile);
	return ws;
}

/* The engine has checked the last hidden state, so a bad logit means a bad lm_head. */
static void
refuse_logits(const struct cache *c)
{
	struct engine_error error;

	if (c->logits != NULL)
		must(logits_check(c->model, c->logits, c->next_position - 1, &error),
		    &error);
}

/* The store gets all rows. Rows out of the window of later queries are in no snapshot, so they
 * are stored before they are dropped. */
static void
store_unseen(struct prefix *x, struct cache *c)
{
	if (!c->keeps_unseen || c->model->id.window == 0)
		return;
	prefix_keep(x, c, 0);
	c->keeps_unseen = 0;
	if (cache_slide_all(c, c->next_position, 0, c->model->id.layers) != 0)
		die(EXIT_RUN, "no memory to drop rows");
}

/* Runs the prompt, after the rows that it already has. */
static void
run(struct sequence *s, const uint32_t *ids, size_t n, struct observation *obs)
{
	struct cache *c = s->cache;
	struct workspace *ws = make_workspace(c->model, n);
	struct engine_error error;
	struct logits_file logits;
	double t0 = seconds();

	c->keeps_unseen = prefix.store.dir != NULL && !evicts();
	logits_file_open(&logits, logits_path, n, c->model->id.vocabulary);
	if (logits_path != NULL)
		prefill.logits = (struct logits_sink){ logits_file_put, &logits };
	opt_prefill_run(&prefill, s, ws, ids, n, obs);
	refuse_logits(c);
	logits_file_close(&logits);
	store_unseen(&prefix, c);
	evict_cache_free(&prefill.evict);
	must(grow_clusters(s, &error), &error);
	tell(c, n, seconds() - t0);
	workspace_free(ws, c->model);
}

static void
save(const struct sequence *s, const struct observation *obs, size_t n,
    const struct kv_reader *from)
{
	const struct cache *c = s->cache;
	struct kv_head head;
	struct kv_writer *w;

	s->cache->saves_value_norms = norms_wanted;
	snapshot_head(c, &head);
	w = output_create(&head);
	output_check(w, sequence_save(w, s, obs));
	warn_dropped_indexes(c->index_dropped);
	sign_count("chunk", chunk != NOT_GIVEN ? chunk : tile);
	if (mass)
		sign_count("mass", 1);
	if (noncausal != NOT_GIVEN)
		sign_count("noncausal", noncausal);
	sign_count("observe", observe);
	if (query_stats)
		sign_count("query-stats", 1);
	if (prefix.tokens > 0)
		sign_count("reused", prefix.tokens);
	sign_count("tokens", n);
	if (norms_wanted)
		sign_count("value-norms", 1);
	opt_rows_sign();
	opt_prefill_sign(&prefill);
	opt_select_sign(&prefill.select);
	output_commit(w, from);
	report_count("tokens", c->n_tokens);
}

/* Limits the number of queries to keep to the n tokens and the queries that obs has already. */
static void
limit_queries(size_t n, struct observation *obs, int resumed)
{
	const size_t there = n + obs->have;

	prefill.queries = there < UINT32_MAX ? (uint32_t)there : UINT32_MAX;
	if (observe > there) {
		if (resumed)
			warning("--observe %u: %zu tokens, and the snapshot has %u queries before "
			    "them: only %zu queries are kept", observe, n, obs->have, there);
		else
			warning("--observe %u: the prompt has %zu tokens: only %zu queries are "
			    "kept", observe, n, there);
		observe = prefill.observe = (uint32_t)there;
	}
	if (prefill.patch > n) {
		warning("--patch %u: the prompt has %zu tokens: all of them are the patch",
		    prefill.patch, n);
		prefill.patch = (uint32_t)n;
	}
	if (obs->window > prefill_window(&prefill))
		obs->window = prefill_window(&prefill);
}

int
main(int argc, char **argv)
{
	int first = tool_start(&tool, argc, argv);
	const char *path = prompt_name(&prompt, argc, argv, first);
	struct kv_reader *from = NULL;
	struct open_sequence x = { .model = NULL };
	struct session e;
	struct ids ids = { 0 };
	struct engine_error error;
	uint32_t window;
	size_t n;
	int rc;

	check_options(path);
	output_refuse_terminal();
	if (resume != NULL)
		from = input_open(resume);
	prefix_open(&prefix);
	session_open(&e, from != NULL ? from : prefix.from,
	    prompt.ids ? TOKENIZER_IF_THERE : TOKENIZER_NEEDED);
	open_beside(&e);
	prompt_read(&prompt, path, e.tokenizer, e.model->id.vocabulary, from, &ids);
	if (from == NULL && prefix.from == NULL)
		model_expect_text(e.model, ids.n);
	if (from == NULL)
		limit_queries(ids.n, &x.obs, 0);
	must(token_select_fit(&prefill.select, e.model, ids.n, observe, from != NULL, &error),
	    &error);
	choose_tile(&e);
	window = prefill_window(&prefill);
	set_stored(e.model, from);
	prefix_find(&prefix, e.model, &stored, &prefill, &ids, window > 0 ? window : 1);
	load_model(&e, ids.n - prefix.tokens);
	open_text(&x, &e, from, window, prefill_spare(&prefill, ids.n - prefix.tokens));
	prefill.reused = prefix.tokens;
	n = ids.n - prefix.tokens;
	if (from != NULL)
		limit_queries(ids.n, &x.obs, 1);
	must(prefill_fit(&prefill, e.model, ids.n, x.obs.have, &error), &error);
	warn_of_positions(e.model, x.sequence.cache->next_position + n);
	run(&x.sequence, ids.ids + prefix.tokens, n, window ? &x.obs : NULL);
	save(&x.sequence, observe ? &x.obs : NULL, ids.n, from);
	rc = finish();          /* our reader need not wait for the store */
	prefix_keep(&prefix, x.sequence.cache, evicts());
	kv_close(from);
	prefix_close(&prefix);
	close_sequence(&x);
	free(ids.ids);
	session_close(&e);
	return rc;
}
