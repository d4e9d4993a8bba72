/* kv-decode - continue a snapshot: generate text token by token */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cache/cache_sections.h"
#include "cli/decode_batch.h"
#include "cli/decode_forced.h"
#include "cli/decode_questions.h"
#include "cli/decode_text.h"
#include "cli/json.h"
#include "cli/mapped_file.h"
#include "cli/opt_draft.h"
#include "cli/opt_evict.h"
#include "cli/opt_evict_cache.h"
#include "cli/opt_gate.h"
#include "cli/opt_retrieve.h"
#include "cli/opt_score.h"
#include "cli/report.h"
#include "cli/retrieval_report.h"
#include "cli/session.h"
#include "cli/snapshot_io.h"
#include "cli/tool.h"
#include "engine/decode.h"
#include "engine/retrieval_check.h"
#include "forward/forward.h"

#define TOKENS 128             /* default limit of generated tokens */
#define ROOM 4096              /* most rows reserved before the first token */

#define AT_ONCE 16             /* default number of snapshots at once */

static struct decode_text_options text = { .limit = NOT_GIVEN, .top_p = 1 };
static uint32_t at_once = AT_ONCE;
static int plain;                       /* special tokens in texts are plain text */
static uint32_t every;
static int mass, query_stats, audit, stream, keep;   /* keep: write the snapshot after the text */
static uint32_t observe;
static uint64_t device_memory;
static const char *score, *evict, *stats, *ask;
static const char *folder;              /* of several outputs; NULL: at most one output */
static struct questions questions;      /* of use with --questions */
static struct decode_forced forced;            /* of use with --force */
static int retrieves;                   /* --retrieve was given */
static struct retrieval_options retrieve_options;
static struct cache_evictor evictor;    /* of use with --evict */
static struct sequence_options want;    /* the options for each snapshot */
static struct draft draft;              /* of use with --draft */

static const struct opt opts[] = {
	{ 0, "questions", OPT_STRING, &ask, 0, "FILE",
	    "answer each line of FILE, text or JSON, after the same snapshot", OPT_READS },
	{ 0, "force", OPT_STRING, &decode_forced_options.text, 0, "FILE",
	    "print the likelihood of each token of FILE (teacher forcing)", OPT_READS },
	{ 0, "against", OPT_STRING, &decode_forced_options.against, 0, "FILE",
	    "with --force: compare with the logits of another run", OPT_READS },
	{ 0, "plain", OPT_FLAG, &plain, 1, NULL,
	    "treat special tokens in questions and --force as plain text", OPT_READS },
	{ 'n', "tokens", OPT_COUNT, &text.limit, 0, "N", "generate at most N tokens (128)",
	    OPT_HOW },
	{ 't', "temperature", OPT_REAL, &text.temperature, 0, "T",
	    "divide the logits by T; 0 is greedy (0)", OPT_HOW },
	{ 0, "top-p", OPT_REAL, &text.top_p, 0, "P",
	    "sample from the likeliest tokens with total probability P (1)", OPT_HOW },
	{ 0, "min-p", OPT_REAL, &text.min_p, 0, "P",
	    "leave out tokens less likely than P times the likeliest (0)", OPT_HOW },
	{ 's', "seed", OPT_SEED, &text.seed, 0, "N", "random seed (0)", OPT_HOW },
	{ 0, "stop", OPT_STRINGS, &text.stops, 0, "TEXT",
	    "end before TEXT; may be given several times", OPT_HOW },
	{ 0, "ignore-eos", OPT_FLAG, &text.ignore_eos, 1, NULL, "continue after an end token",
	    OPT_HOW },
	{ 0, "evict", OPT_STRING, &evict, 0, "WORDS",
	    "evict after every token: 'OPTION=VALUE ...' of kv-evict", OPT_HOW },
	{ 0, "score", OPT_STRING, &score, 0, "WORDS",
	    "how --evict scores rows: 'METHOD [OPTION=VALUE ...]' of kv-score", OPT_HOW },
	OPT_DRAFT,
	{ 0, "offload", OPT_FLAG, &retrieve_options.offload, 1, NULL,
	    "with --retrieve: leave rows in the snapshot's file (with a GPU: in host memory)",
	    OPT_HOW },
	{ 0, "stream", OPT_FLAG, &stream, 1, NULL,
	    "leave all rows there, and read them whole for each step, by layers", OPT_HOW },
	{ 0, "device-memory", OPT_BYTES, &device_memory, 1, "LIMIT",
	    "specontext: offload as many layers as needed to stay within LIMIT bytes", OPT_HOW },
	{ 0, "batch", OPT_COUNT, &at_once, 0, "N",
	    "decode up to N snapshots at once (16)", OPT_HOW },
	{ 0, "ids", OPT_FLAG, &text.ids, 1, NULL,
	    "print token ids, one a line, instead of text; with --force read them", OPT_WRITES },
	{ 'w', "observe", OPT_COUNT, &observe, 0, "W",
	    "keep the queries of the last W tokens in FILE", OPT_WRITES },
	{ 0, "every", OPT_COUNT, &every, 1, "N",
	    "with --evict: evict after every N tokens, not after each", OPT_HOW },
	{ 0, "mass", OPT_FLAG, &mass, 1, NULL,
	    "keep the attention mass of each row in FILE", OPT_WRITES },
	{ 0, "query-stats", OPT_FLAG, &query_stats, 1, NULL,
	    "keep mean and covariance of the queries in FILE", OPT_WRITES },
	OPT_GATE,
	{ 0, "logits", OPT_STRING, &decode_forced_options.logits, 0, "FILE",
	    "with --force: write the logits of each token, as a .npy file", OPT_WRITES },
	{ 0, "stats", OPT_STRING, &stats, 0, "REPORT",
	    "with --retrieve or --draft: write how much was read, as JSON", OPT_WRITES },
	{ 0, "audit", OPT_FLAG, &audit, 1, NULL,
	    "with --retrieve: measure recall and mass against exact attention", OPT_WRITES },
	{ 0 }
};

static const struct tool tool = {
	.name = "kv-decode",
	.synopsis = "-m MODEL [-qvz] [-j N] [-n N] [-o FILE] [-s N] [-t T] [-w W]\n"
	    "[--against FILE] [--allow-config KEY] [--allow-tensor NAME] [--batch N]\n"
	    "[--device DEVICE] [--draft SMALL] [--draft-tokens N] [--evict WORDS]\n"
	    "[--every N] [--force FILE] [--gate DIR]\n"
	    "[--ids | --json] [--ignore-eos] [--logits FILE] [--mass] [--min-p P]\n"
	    "[--plain] [--products TYPE] [--progress WHEN] [--query-stats]\n"
	    "[--questions FILE] [--report FILE] [--score WORDS] [--stop TEXT]\n"
	    "[--stream] [--top-p P] [--retrieve WORDS\n"
	    "[--audit] [--device-memory LIMIT] [--offload] [--stats REPORT]]\n"
	    "[snapshot ...]",
	.example = "kv-decode -m examples/demo-model --stop . small.kv",
	.opts = opts,
	.more = retrieve_opts,
	.takes = TAKES_MODEL | TAKES_CONFIG | TAKES_OUTPUT | TAKES_THREADS | TAKES_JSON |
	    TAKES_PROGRESS | TAKES_FOLDER,
	.max_operands = -1u
};

/* Refuses options that need all rows on the device or change them. The formula behind
 * --device-memory is for one method only. */
static void
check_offload(void)
{
	const char *name = device_memory != 0 ? "device-memory" : "offload";
	const char *other = audit ? "audit" : evict != NULL ? "evict" : NULL;

	if (device_memory != 0 && retrieve_options.method != RETRIEVE_SPECONTEXT)
		die(EXIT_USAGE, "--device-memory is for --retrieve specontext; with %s use "
		    "--offload", retrieve_name(retrieve_options.method));
	if (retrieve_options.offload && other != NULL)
		die(EXIT_USAGE, "--%s does not go with --%s: the rows stay in the snapshot's file",
		    other, name);
}

/* The same of --stream, which reads all rows. */
static void
check_stream(void)
{
	const char *other = evict != NULL ? "evict" : mass ? "mass" : NULL;

	if (stream && retrieves && draft_file == NULL)
		die(EXIT_USAGE, "--stream does not go with --retrieve, which reads some of the "
		    "rows: use --offload");
	if (stream && other != NULL)
		die(EXIT_USAGE, "--%s does not go with --stream: the rows stay in the file", other);
}

static void
check_retrieval(void)
{
	const char *alone;

	retrieves = opt_retrieve(&retrieve_options);
	retrieve_options.offload |= device_memory != 0;
	retrieve_options.audit = audit;
	retrieve_options.overlap = stats != NULL || settings.json;
	alone = device_memory != 0 ? "device-memory" : retrieve_options.offload ? "offload" :
	    draft_file != NULL ? NULL : stats != NULL ? "stats" : audit ? "audit" : NULL;
	if (!retrieves && alone != NULL)
		die(EXIT_USAGE, "--%s: nothing is chosen without --retrieve", alone);
	stats_refuse(stats);
	if (!retrieves)
		return;
	if (evict != NULL && retrieve_kinds(retrieve_options.method) != 0)
		die(EXIT_USAGE, "--evict does not go with --retrieve %s: an eviction would drop "
		    "the index", retrieve_name(retrieve_options.method));
	if (retrieve_options.method == RETRIEVE_SPECONTEXT && opt_retrieve_head() == NULL)
		die(EXIT_USAGE, "--retrieve specontext: by which retrieval head? Give head=DIR");
	if (evict != NULL && (evict_cache_needs(&evictor) & NEED_MASS))
		die(EXIT_USAGE, "--score %s does not go with --retrieve: rows that are not read "
		    "get no attention mass", evictor.scorer.method->name);
	check_offload();
	if (mass)
		die(EXIT_USAGE, "--mass does not go with --retrieve: rows that are not read get "
		    "no attention mass");
}

/* Refuses options that change the rows, which must be restored before the next question. */
static void
check_questions(const char *snapshot)
{
	if (ask == NULL)
		return;
	if (strcmp(settings.output, "-") != 0)
		die(EXIT_USAGE, "--output does not go with --questions: each begins with the same "
		    "rows, and none are kept");
	if (evict != NULL)
		die(EXIT_USAGE, "--evict does not go with --questions: rows that are evicted for "
		    "one are gone for the next");
	if (retrieves && draft_file == NULL)
		die(EXIT_USAGE, "--retrieve does not go with --questions: entries that one adds to "
		    "an index stay for the next");
	if (strcmp(ask, "-") == 0 && strcmp(snapshot, "-") == 0)
		die(EXIT_USAGE, "the snapshot and the questions cannot both come from standard "
		    "input");
}

/* With --force nothing is sampled, stopped or printed. */
static void
check_forced(const char *snapshot)
{
	const char *other = text.stops.n > 0 ? "stop" : text.ignore_eos ? "ignore-eos" :
	    draft_file != NULL ? "draft" : ask != NULL ? "questions" : text.temperature > 0 ?
	    "temperature" : text.limit != NOT_GIVEN ? "tokens" : NULL;

	opt_forced();
	if (decode_forced_options.text == NULL) {
		text.limit = text.limit != NOT_GIVEN ? text.limit : TOKENS;
		return;
	}
	if (other != NULL)
		die(EXIT_USAGE, "--%s does not go with --force: each token is given", other);
	if (strcmp(decode_forced_options.text, "-") == 0 && strcmp(snapshot, "-") == 0)
		die(EXIT_USAGE, "the snapshot and the text cannot both come from standard input");
	decode_forced_options.ids = text.ids;
}

static void
check_options(void)
{
	size_t i;

	if (text.temperature < 0)
		die(EXIT_USAGE, "--temperature %g: want 0 or more", text.temperature);
	if (text.top_p <= 0 || text.top_p > 1)
		die(EXIT_USAGE, "--top-p %g: want more than 0 and at most 1",
		    text.top_p);
	if (text.min_p < 0 || text.min_p > 1)
		die(EXIT_USAGE, "--min-p %g: want 0 to 1", text.min_p);
	for (i = 0; i < text.stops.n; i++)
		if (text.stops.at[i][0] == '\0')
			die(EXIT_USAGE, "--stop: the text is empty");
	if ((observe > 0 || mass || query_stats) && strcmp(settings.output, "-") == 0)
		die(EXIT_USAGE, "--%s: no snapshot is kept without -o FILE",
		    observe > 0 ? "observe" : mass ? "mass" : "query-stats");
	if (plain && ask == NULL && (decode_forced_options.text == NULL || text.ids))
		die(EXIT_USAGE, "--plain: which text? Give --questions, or --force without --ids");
	if (text.ids && settings.json && decode_forced_options.text == NULL)
		die(EXIT_USAGE, "--ids: the object of --json has the ids");
	if (score != NULL && evict == NULL)
		die(EXIT_USAGE, "--score: which rows go? Give --evict, too");
	if (evict != NULL && opt_evict_cache(&evictor, score, evict) != NULL)
		die(EXIT_USAGE, "--score %s predicts the answer before its first token: use "
		    "kv-prefill or kv-observe", evictor.scorer.method->name);
	if (every != 0 && evict == NULL)
		die(EXIT_USAGE, "--every: what is evicted then? Give --evict, too");
	if (evict != NULL && (evict_cache_needs(&evictor) & NEED_NONCAUSAL))
		die(EXIT_USAGE, "--score %s: a token that runs alone attends to no chunk: evict "
		    "the prompt so, and decode without it", evictor.scorer.method->name);
	evictor.every = every;
	opt_gate(evict != NULL ? &evictor : NULL);
	if (gate_folder != NULL && evict == NULL && strcmp(settings.output, "-") == 0)
		die(EXIT_USAGE, "--gate: no snapshot is kept without -o FILE");
	if (evict != NULL && evictor.evictor.options.first_stage > 0)
		die(EXIT_USAGE, "--evict first-stage: after each token the values of all rows "
		    "would be multiplied by the output projection: evict the prompt so, and "
		    "decode without it");
	check_retrieval();
	check_stream();
}

/* Options that name one file are refused with several snapshots. */
static void
check_several(char **name, int n)
{
	const char *one = ask != NULL ? "questions" : decode_forced_options.text != NULL ? "force" :
	    draft_file != NULL ? "draft" : stats != NULL ? "stats" : NULL;
	int i, standard = 0;

	if (at_once == 0 || at_once > BATCH_MOST)
		die(EXIT_USAGE, "--batch %u: want 1 to %d", at_once, BATCH_MOST);
	if (n < 2)
		return;
	if (one != NULL)
		die(EXIT_USAGE, "--%s does not go with several snapshots: %s", one,
		    strcmp(one, "stats") == 0 ? "--json has what was read of each" :
		    "name one at a time");
	for (i = 0; i < n; i++)
		standard += strcmp(name[i], "-") == 0;
	if (standard > 1)
		die(EXIT_USAGE, "standard input is named twice");
	if (keep && folder == NULL)
		die(EXIT_USAGE, "--output %s: want a folder for the snapshots of several texts",
		    settings.output);
}

/* --output may name a folder: then each snapshot keeps its name there. */
static void
choose_output(char **name, int n)
{
	struct stat st;

	keep = strcmp(settings.output, "-") != 0;       /* standard output is used for the text */
	if (keep && stat(settings.output, &st) == 0 && S_ISDIR(st.st_mode))
		folder = settings.output;
	if (folder == NULL)
		output_refuse("--output", settings.output);
	if (folder == NULL || n > 1)
		return;
	if (n == 0 || strcmp(name[0], "-") == 0)
		die(EXIT_USAGE, "--output %s: a snapshot from standard input has no name for a "
		    "folder",
		    folder);
	settings.output = name_in_folder(folder, name[0]);
	report_refuse(settings.output);
	output_refuse("--output", settings.output);
	folder = NULL;
}

/* Returns how many of the last queries the method uses. */
static uint32_t
window(void)
{
	if (evict == NULL || (evict_cache_needs(&evictor) & NEED_WINDOW) == 0)
		return 0;
	return scorer_queries(&evictor.scorer, observe != 0 ? observe : EVICT_WINDOW);
}

/* Sets the options for each snapshot, except the room to reserve. */
static void
choose_want(uint32_t requests)
{
	const unsigned kinds = retrieves ? retrieve_kinds(retrieve_options.method) : 0;
	const unsigned needs = evict != NULL ? evict_cache_needs(&evictor) : 0;

	mass |= (needs & NEED_MASS) != 0;
	query_stats |= (needs & NEED_QUERY_STATS) != 0;
	want = (struct sequence_options){ .answers = ask == NULL, .mapper = &mapped_files,
	    .observe = observe, .queries_on_device = 1,
	    .window = window(), .mass = mass, .query_stats = query_stats,
	    .evict = evict != NULL ? &evictor : NULL, .indexes = keep ? KV_ALL_INDEXES : kinds,
	    .retrieve = retrieves ? &retrieve_options : NULL,
	    .device_memory = device_memory, .requests = requests, .stream = stream,
	    .notice = { .call = warn_notice } };
}

static void
end_retrieval(struct retrieval *t, const struct model *m)
{
	if (t == NULL)
		return;
	retrieval_note(t, m->id.layers, m->id.kv_heads);
	if (stats != NULL && draft_file == NULL)
		retrieval_report(stats, t, m->id.layers, m->id.kv_heads);
}

/* Fails, without an output, if the file from which offloaded rows are read has changed. */
static int
save(struct open_sequence *x, struct kv_reader *from, const char *path, struct engine_error *e)
{
	const struct offload *offload = x->sequence.offload;
	const struct cache *c = x->sequence.cache;
	struct kv_head head;
	struct kv_writer *w;
	int code;

	if (x->obs.buffer != NULL && observation_to_host(&x->obs, c->model) != 0)
		die(EXIT_RUN, "no memory for %u observation queries", x->obs.window);
	snapshot_head(c, &head);
	w = output_create_at(path, &head);
	code = sequence_save(w, &x->sequence, observe > 0 ? &x->obs : NULL);
	if (offload != NULL && offload_store_check(offload->store) != KV_OK) {
		output_discard(w);
		return engine_fail(e, ENGINE_ERUN, "%s", offload->store->error);
	}
	output_check(w, code);
	warn_dropped_indexes(c->index_dropped);
	if (evict != NULL) {
		if (score != NULL)
			opt_score_sign(&evictor.scorer, window());
		opt_evict_sign(&evictor.evictor);
	}
	if (x->sequence.retrieval != NULL)
		opt_retrieve_sign(retrieval_options(x->sequence.retrieval));
	sign_count("observe", observe);
	sign_count("tokens", text.limit);
	sign_real("temperature", text.temperature);
	if (text.temperature > 0) {
		sign_real("top_p", text.top_p);
		sign_real("min_p", text.min_p);
		sign_count("seed", text.seed);
	}
	output_commit(w, from);
	return ENGINE_OK;
}

/* Runs the given text (--force). */
static void
follow(const struct session *s, struct decode *d, struct open_sequence *x, struct kv_reader *r)
{
	struct engine_error e;
	json_t *o;

	d->greedy = 0;                          /* copies the logits of each token to the host */
	if (evict != NULL)
		must(decode_evict(d, &e), &e);
	must(decode_init(d, &e), &e);
	decode_forced_run(&forced, d, keep);
	if (keep) {
		must(decode_finish(d, &e), &e);
		must(save(x, r, settings.output, &e), &e);
	}
	decode_free(d);
	if (!settings.json) {
		decode_forced_print(&forced, kv_reader_name(r));
	} else {
		o = decode_forced_json(&forced, kv_reader_name(r));
		if (x->sequence.retrieval != NULL)
			put_value(o, "retrieval", retrieval_json(x->sequence.retrieval,
			    s->model->id.layers, s->model->id.kv_heads));
		print_json(o);
	}
	decode_forced_free(&forced);
}

/* Generates after the snapshot itself. */
static void
answer(const struct session *s, struct decode *d, struct open_sequence *x, struct kv_reader *r,
    double load)
{
	struct decode_text a = { .options = &text, .tokenizer = s->tokenizer, .keep = keep,
	    .collect = settings.json, .generated = { .load = load } };
	struct decode_result *g = &a.generated;
	double t0 = seconds();
	struct engine_error e;
	json_t *o;

	if (evict != NULL)
		must(decode_evict(d, &e), &e);
	decode_text_run(&a, s, d);
	g->generate = seconds() - t0;
	note("%u tokens in %.2f s (%.1f tokens/s), next position %u", g->n, g->generate,
	    g->n / g->generate, d->sequence->cache->next_position);
	if (keep)
		must(save(x, r, settings.output, &e), &e);
	if (!settings.json)
		return;
	o = decode_result_json(g, kv_reader_name(r));
	if (x->sequence.retrieval != NULL)
		put_value(o, "retrieval", retrieval_json(x->sequence.retrieval, s->model->id.layers,
		    s->model->id.kv_heads));
	if (draft_file != NULL)
		put_value(o, "draft", draft_json(&draft));
	print_json(o);
}

/* Returns the number of rows to reserve, for a text of at most so many tokens. */
static uint32_t
room(void)
{
	return text.limit < ROOM ? text.limit : ROOM;
}

static enum tokenizer_need
need(void)
{
	return text.ids && text.stops.n == 0 && ask == NULL ? TOKENIZER_IF_THERE : TOKENIZER_NEEDED;
}

/* Returns the flags for encoding a text that continues the snapshot. */
static unsigned
text_flags(const struct session *s, struct kv_reader *r)
{
	const struct decode_forced_options *f = &decode_forced_options;
	const int given = ask != NULL || (f->text != NULL && !f->ids);

	return (plain ? TOK_PLAIN : 0) | (given ? text_behind(s->tokenizer, r) : 0);
}

/* Loads the model, with room for the tokens to come, those of a question too. Returns how many
 * rows run at once. */
static uint32_t
open_model(struct session *s, struct kv_reader *r)
{
	unsigned flags;
	uint32_t rows;

	session_open(s, r, need());
	if (draft_file != NULL)
		draft_open_file(&draft, s, r);
	if (opt_retrieve_head() != NULL)
		session_head(s, opt_retrieve_head());
	want.head = s->head;
	opt_gate_open(s, want.evict);
	want.gate = s->gate;
	flags = text_flags(s, r);
	if (decode_forced_options.text != NULL) {
		decode_forced_read(&forced, s, flags);
		text.limit = (uint32_t)forced.ids.n;
	}
	if (ask != NULL)
		questions_read(&questions, ask, s->tokenizer, flags,
		    s->model->id.vocabulary);
	if (questions.longest > UINT32_MAX - room())
		die(EXIT_DAMAGED, "%s: a question of %zu tokens", ask, questions.longest);
	rows = ops_tile(s->device.ops);
	want.spare = room() + (uint32_t)questions.longest;
	rows = questions.longest < rows ? (uint32_t)questions.longest : rows;
	rows = rows < AHEAD_MOST && draft_file != NULL ? AHEAD_MOST : rows == 0 ? 1 : rows;
	session_load(s, &(struct memory_demand){ .tokens = want.spare, .at_once = rows,
	    .rows = cache_most_rows_of(s->model, want.spare), .stored = kv_reader_head(r),
	    .lists = retrieval_demand(want.retrieve, s->model, s->head, want.spare,
	        1 + (uint64_t)kv_reader_head(r)->next_position) });
	return rows;
}

/* Returns the exit code. */
static int
decode_several(struct session *s, char **name, size_t n)
{
	const struct decode_batch b = { .session = s, .need = need(), .want = &want,
	    .head = opt_retrieve_head(), .generation = &text, .operand = name, .n = n,
	    .most = at_once, .folder = folder, .save = save };

	decode_batch_check(&b);
	want.spare = room();
	return decode_batch_run(&b);
}

static void
decode_one(struct session *s, const char *name)
{
	const double t0 = seconds();
	struct kv_reader *r = input_open(name);
	const uint32_t rows = open_model(s, r);
	struct engine_error e;
	struct open_sequence x;
	struct workspace *ws;
	struct decode d;
	const char *where;

	report_enter(REPORT_LOAD);
	if (draft_file != NULL)
		draft_take_options(&draft, &want, keep);
	must(open_sequence(&x, s->model, &want, r, &s->plan, &e), &e);
	if (draft_file != NULL)
		draft_load(&draft, s);
	report_leave();
	if ((ws = workspace_new(s->model, rows)) == NULL)
		die(EXIT_RUN, "no memory to run the model");
	d = (struct decode){ .sequence = &x.sequence, .ws = ws, .evict = want.evict,
	    .obs = x.obs.window > 0 ? &x.obs : NULL, .greedy = text.temperature == 0,
	    .offload = sequence_plan(&x) };
	if (draft_file != NULL)
		draft_start(&draft, &d, ask != NULL);
	if (decode_forced_options.text != NULL)
		follow(s, &d, &x, r);
	else if (ask != NULL)
		questions_answer(&questions, s, &d, &text, kv_reader_name(r), seconds() - t0);
	else
		answer(s, &d, &x, r, seconds() - t0);
	end_retrieval(draft_file != NULL ? draft.open.sequence.retrieval : x.sequence.retrieval,
	    s->model);
	if (draft_file != NULL)
		draft_end(&draft, s, stats);
	if ((where = sequence_offloaded_to(&x)) != NULL)
		note("layers %u to %u are %s", x.sequence.offload_from, s->model->id.layers - 1,
		    where);
	report_count("tokens_run", x.sequence.cache->ran);
	if (keep)
		report_count("tokens", x.sequence.cache->n_tokens);
	kv_close(r);
	workspace_free(ws, s->model);
	close_sequence(&x);
}

int
main(int argc, char **argv)
{
	const int first = tool_start(&tool, argc, argv), n = argc - first;
	struct session s = { .model = NULL };
	int status = EXIT_OK;

	check_options();
	choose_output(argv + first, n);
	check_forced(operand(argc, argv, first));
	check_questions(operand(argc, argv, first));
	opt_draft(evict != NULL ? "evict" : mass ? "mass" : query_stats ? "query-stats" :
	    observe > 0 ? "observe" : NULL, operand(argc, argv, first));
	check_several(argv + first, n);
	choose_want(n < 2 ? 1 : (uint32_t)n < at_once ? (uint32_t)n : at_once);
	if (n > 1)
		status = decode_several(&s, argv + first, (size_t)n);
	else
		decode_one(&s, operand(argc, argv, first));
	opt_evict_tell(&evictor.evictor, 0);
	evict_cache_free(&evictor);
	if (s.model != NULL)
		session_close(&s);
	return finish_with(status);
}
