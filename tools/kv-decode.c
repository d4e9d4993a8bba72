/* kv-decode - continue a snapshot: generate text token by token */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/forced.h"
#include "cli/generated.h"
#include "cli/json.h"
#include "cli/opt_evict.h"
#include "cli/opt_evict_cache.h"
#include "cli/opt_retrieve.h"
#include "cli/opt_score.h"
#include "cli/questions.h"
#include "cli/report.h"
#include "cli/retrieval_report.h"
#include "cli/session.h"
#include "cli/token_printer.h"
#include "cli/tool.h"
#include "engine/decode.h"
#include "engine/retrieval_check.h"
#include "model/forward.h"
#include "model/sample.h"
#include "model/snapshot.h"

#define TOKENS 128             /* that are generated where nobody says how many */
#define ROOM 4096              /* rows to leave free at most before the first token */

static uint32_t limit = NOT_GIVEN;
static double temperature, top_p = 1, min_p;
static uint64_t seed;
static struct strings stops;
static int ignore_eos, ids_out, mass, audit;
static uint32_t observe;
static const char *score, *evict, *stats, *ask;
static struct questions questions;      /* of use with --questions */
static struct forced forced;            /* of use with --force */
static int retrieves;                   /* --retrieve was given */
static struct retrieval_options retrieve_options;
static struct cache_evictor evictor;    /* of use with --evict */

static const struct opt opts[] = {
	{ 'n', "tokens", OPT_COUNT, &limit, 0, "N", "generate at most N tokens (128)" },
	{ 't', "temperature", OPT_REAL, &temperature, 0, "T",
	    "divide the logits by T; 0 is greedy (0)" },
	{ 0, "top-p", OPT_REAL, &top_p, 0, "P",
	    "sample from the likeliest tokens that make up P (1)" },
	{ 0, "min-p", OPT_REAL, &min_p, 0, "P",
	    "leave out tokens below P times the likeliest (0)" },
	{ 's', "seed", OPT_SEED, &seed, 0, "N", "seed of the random generator (0)" },
	{ 0, "stop", OPT_STRINGS, &stops, 0, "TEXT",
	    "end before TEXT; may be given several times" },
	{ 0, "ignore-eos", OPT_FLAG, &ignore_eos, 1, NULL, "go on after an end token" },
	{ 0, "ids", OPT_FLAG, &ids_out, 1, NULL,
	    "print token ids, one a line, instead of text; with --force read them" },
	{ 0, "evict", OPT_STRING, &evict, 0, "WORDS",
	    "evict after every token: 'OPTION=VALUE ...' of kv-evict" },
	{ 0, "score", OPT_STRING, &score, 0, "WORDS",
	    "how to score rows for that: 'METHOD [OPTION=VALUE ...]' of kv-score" },
	{ 'w', "observe", OPT_COUNT, &observe, 0, "W",
	    "keep the queries of the last W tokens in FILE" },
	{ 0, "mass", OPT_FLAG, &mass, 1, NULL,
	    "go on adding up the attention that each row receives, in FILE" },
	{ 0, "questions", OPT_STRING, &ask, 0, "FILE",
	    "answer each line of FILE, text or JSON, behind the same snapshot" },
	{ 0, "force", OPT_STRING, &forced_options.text, 0, "FILE",
	    "go on with the text of FILE, and say how likely each token of it was" },
	{ 0, "logits", OPT_STRING, &forced_options.logits, 0, "FILE",
	    "with --force: write the logits of each token, as a .npy file" },
	{ 0, "against", OPT_STRING, &forced_options.against, 0, "FILE",
	    "with --force: compare with the logits of another run" },
	{ 0, "stats", OPT_STRING, &stats, 0, "REPORT",
	    "with --retrieve: write what was read, as JSON" },
	{ 0, "audit", OPT_FLAG, &audit, 1, NULL,
	    "with --retrieve: compare each choice with that of the true logits" },
	{ 0 }
};

static const struct tool tool = {
	.name = "kv-decode",
	.about = "continue a snapshot: generate text token by token",
	.synopsis = "-m DIR [-qvz] [-j N] [-n N] [-o FILE] [-s N] [-t T] [-w W]\n"
	    "[--against FILE] [--allow-config KEY] [--device DEVICE] [--evict WORDS]\n"
	    "[--force FILE] [--ids | --json] [--ignore-eos] [--logits FILE] [--mass] [--min-p P]\n"
	    "[--products TYPE] [--progress WHEN] [--questions FILE] [--report FILE]\n"
	    "[--score WORDS] [--stop TEXT] [--top-p P] [--retrieve METHOD --budget N [--reduce HOW] [--dense-layers N]\n"
	    "[--stats REPORT] [--audit]]\n"
	    "[snapshot]",
	.example = "kv-decode -m examples/demo-model --stop . small.kv",
	.opts = opts,
	.more = retrieve_opts,
	.takes = TAKES_MODEL | TAKES_CONFIG | TAKES_OUTPUT | TAKES_THREADS | TAKES_JSON |
	    TAKES_PROGRESS,
	.max_operands = 1
};

static void
check_retrieval(void)
{
	retrieves = opt_retrieve(&retrieve_options);
	retrieve_options.audit = audit;
	retrieve_options.overlap = stats != NULL || settings.json;
	if (!retrieves && (stats != NULL || audit))
		die(EXIT_USAGE, "--%s: nothing is chosen without --retrieve",
		    stats != NULL ? "stats" : "audit");
	if (!retrieves)
		return;
	if (evict != NULL)
		die(EXIT_USAGE, "--retrieve: an eviction would drop the index: --evict does not go "
		    "with it");
	if (mass)
		die(EXIT_USAGE, "--mass: rows that are not read receive nothing that is known: "
		    "it does not go with --retrieve");
	if (stats != NULL && strcmp(stats, "-") == 0)
		die(EXIT_USAGE, "--stats -: standard output is for the text");
	if (stats != NULL && strcmp(stats, settings.output) == 0)
		die(EXIT_USAGE, "--stats and --output name the same file, %s", stats);
}

/* What a question leaves behind has to be taken back before the next one. */
static void
check_questions(const char *snapshot)
{
	if (ask == NULL)
		return;
	if (strcmp(settings.output, "-") != 0)
		die(EXIT_USAGE, "--questions: each begins with the same rows, and none are kept: "
		    "--output does not go with it");
	if (evict != NULL)
		die(EXIT_USAGE, "--questions: rows that are evicted for one are gone for the next: "
		    "--evict does not go with it");
	if (retrieves)
		die(EXIT_USAGE, "--questions: what an index has learned from one stays for the next: "
		    "--retrieve does not go with it");
	if (strcmp(ask, "-") == 0 && strcmp(snapshot, "-") == 0)
		die(EXIT_USAGE, "the snapshot and the questions cannot both come from standard input");
}

/* A text that is given leaves nothing to sample, to stop or to print. */
static void
check_forced(const char *snapshot)
{
	const char *other = stops.n > 0 ? "stop" : ignore_eos ? "ignore-eos" : ask != NULL ?
	    "questions" : temperature > 0 ? "temperature" : limit != NOT_GIVEN ? "tokens" : NULL;

	opt_forced();
	if (forced_options.text == NULL) {
		limit = limit != NOT_GIVEN ? limit : TOKENS;
		return;
	}
	if (other != NULL)
		die(EXIT_USAGE, "--force: each token is given: --%s has nothing to do", other);
	if (strcmp(forced_options.text, "-") == 0 && strcmp(snapshot, "-") == 0)
		die(EXIT_USAGE, "the snapshot and the text cannot both come from standard input");
	forced_options.ids = ids_out;
}

static void
check_options(void)
{
	size_t i;

	if (temperature < 0)
		die(EXIT_USAGE, "--temperature %g: want 0 or more", temperature);
	if (top_p <= 0 || top_p > 1)
		die(EXIT_USAGE, "--top-p %g: want more than 0 and at most 1", top_p);
	if (min_p < 0 || min_p > 1)
		die(EXIT_USAGE, "--min-p %g: want 0 to 1", min_p);
	for (i = 0; i < stops.n; i++)
		if (stops.at[i][0] == '\0')
			die(EXIT_USAGE, "--stop: the text is empty");
	if ((observe > 0 || mass) && strcmp(settings.output, "-") == 0)
		die(EXIT_USAGE, "--%s: no snapshot is kept without -o FILE",
		    observe > 0 ? "observe" : "mass");
	if (ids_out && settings.json && forced_options.text == NULL)
		die(EXIT_USAGE, "--ids: the object of --json has the ids");
	if (score != NULL && evict == NULL)
		die(EXIT_USAGE, "--score: which rows are to go? Give --evict, too");
	if (evict != NULL && opt_evict_cache(&evictor, score, evict) != NULL)
		die(EXIT_USAGE, "--score: method %s stands for an answer that has not begun: score "
		    "with kv-prefill or kv-observe", evictor.scorer.method->name);
	check_retrieval();
}

static int
is_eos(const struct model *m, uint32_t id)
{
	uint32_t i;

	for (i = 0; i < m->n_eos; i++)
		if (m->eos[i] == id)
			return 1;
	return 0;
}

/* Text that comes on a terminal shows how far it is, and would be mixed up with the line. */
static int
shows_progress(void)
{
	return settings.json || !isatty(STDOUT_FILENO) || !isatty(STDERR_FILENO);
}

/* Generates and prints. Every token that is printed, the last one too when the snapshot is
 * kept, has gone through the model afterwards, so tokens, rows and logits of the cache agree. */
static void
generate(const struct session *s, struct decode *d, int keep, struct generated *g)
{
	struct sampler sampler = { .temperature = temperature, .top_p = top_p, .min_p = min_p };
	struct token_printer p = { .tokenizer = s->tokenizer, .stops = &stops, .ids = ids_out,
	    .to = ask != NULL ? stdout : NULL };
	struct cache *c = d->cache;
	struct engine_error e;
	uint32_t n, id = 0;
	int stopped = 0;

	must(decode_init(d, &e), &e);
	sampler_seed(&sampler, seed);
	if (settings.json)
		generated_collect(g, &p);
	if (shows_progress())
		progress_start("decode", limit, "tokens");
	for (n = 0; n < limit && !stopped; n++) {
		if (n == 0 || !d->greedy)
			id = sample(&sampler, c->logits, s->model->id.vocabulary);
		report_first_token();
		if (id == UINT32_MAX)
			die(EXIT_RUN, "position %u: no logit is finite", c->next_position);
		if (!ignore_eos && is_eos(s->model, id)) {
			g->stop = STOP_EOS;
			break;
		}
		if (token_stops(&p, id)) {
			g->stop = STOP_TEXT;
			g->stop_text = p.stopped;
			break;
		}
		generated_add(g, id);
		report_enter_descriptor(STDOUT_FILENO, REPORT_WRITE);
		stopped = print_token(&p, id);
		report_leave();
		if (keep || (!stopped && n + 1 < limit)) {
			report_step_begin();
			must(decode_step(d, id, &id, &e), &e);
			report_step_end();
		}
		progress(n + 1);
	}
	progress_end();
	report_enter_descriptor(STDOUT_FILENO, REPORT_WRITE);
	print_tokens_end(&p);
	report_leave();
	g->n = n;
	if (stopped) {
		g->stop = STOP_TEXT;
		g->stop_text = p.stopped;
	}
	if (keep)
		must(decode_finish(d, &e), &e);
	if (d->generator != NULL && generator_launches(d->generator) > 0)
		note("%" PRIu64 " steps repeated from a recording", generator_launches(d->generator));
	if (d->generator != NULL && generator_capture_failed(d->generator))
		note("no step is repeated: %s", s->device.ops->describe(s->device.dev));
	decode_free(d);
}

/* Queries that the method looks at, of the last tokens. */
static uint32_t
window(void)
{
	if (evict == NULL || (evict_cache_needs(&evictor) & NEED_WINDOW) == 0)
		return 0;
	return scorer_queries(&evictor.scorer, observe != 0 ? observe : EVICT_WINDOW);
}

/* Queries, attention and indexes that scoring, retrieval, or the snapshot asks for: they are loaded
 * with the rows. */
static void
expect(struct cache *c, struct observation *obs, int keep)
{
	uint32_t most = window() > observe ? window() : observe;
	unsigned kinds = keep ? KV_ALL_INDEXES :
	    retrieves ? 1u << retrieve_needs(retrieve_options.method) : 0;

	if (most > 0 && observation_init(obs, c->model, most) != 0)
		die(EXIT_RUN, "no memory for %u observation queries", most);
	if (evict != NULL && (evict_cache_needs(&evictor) & NEED_MASS))
		mass = 1;
	if (mass && cache_want_mass(c) != 0)
		die(EXIT_RUN, "no memory for attention mass");
	if (kinds != 0 && cache_want_indexes(c, kinds) != 0)
		die(EXIT_RUN, "no memory for indexes");
}

/* As in the other programs a window that nobody asked for is at most what there is: it grows with the
 * tokens that are generated. */
static void
check_window(const struct observation *obs, const char *name)
{
	const uint32_t wanted = window();

	if (obs->have >= wanted)
		return;
	if (obs->have == 0 || evictor.scorer.options.window != 0)
		die(EXIT_RUN, "%s: %u observation queries, and the method looks at %u: make the "
		    "snapshot with kv-prefill --observe", name, obs->have, wanted);
	warning("%s: %u observation queries: the method looks at these and at those to come, up to "
	    "%u of them", name, obs->have, wanted);
}

/* What cannot be found out later has to be there already. */
static void
check_loaded(const struct cache *c, const struct observation *obs, const struct kv_reader *from)
{
	struct engine_error e;
	uint32_t l;

	if (c->logits == NULL && ask == NULL)
		die(EXIT_RUN,
		    "%s holds no logits to start from: continue it with kv-prefill --resume",
		    kv_reader_name(from));
	for (l = 0; mass && l < c->model->id.layers; l++)
		if (!c->mass[l].whole)
			die(EXIT_RUN, "%s: layer %u has no attention mass: make the snapshot with "
			    "kv-prefill --mass", kv_reader_name(from), l);
	for (l = 0; retrieves && l < c->model->id.layers; l++)
		must(retrieval_check(&retrieve_options, kv_reader_name(from), &c->model->id, l,
		    &c->index[l], &e), &e);
	if (evict == NULL)
		return;
	must(evict_cache_fit(&evictor, c->model->id.layers, &e), &e);
	must(evict_cache_check_log(&evictor, c, kv_reader_name(from), &e), &e);
	check_window(obs, kv_reader_name(from));
}

/* Each question behind the same rows, and what is generated behind it */
static void
answer_all(const struct session *s, struct decode *d, const char *name, double load)
{
	struct cache_mark mark;
	struct engine_error e;
	size_t i;

	if (cache_mark(d->cache, &mark) != 0)
		die(EXIT_RUN, "no memory for the cache");
	for (i = 0; i < questions.n; i++) {
		const struct question *q = &questions.at[i];
		struct generated g = { .load = load };
		double t0 = seconds();

		must(decode_ask(d, q->ids.ids, q->ids.n, &e), &e);
		generate(s, d, 0, &g);
		g.generate = seconds() - t0;
		note("question %zu: %zu tokens, and %u tokens in %.2f s", i + 1, q->ids.n, g.n,
		    g.generate);
		if (settings.json)
			print_answer(&g, name, q->asked);
		else if (putchar('\n') == EOF || fflush(stdout) != 0)
			die(EXIT_RUN, "stdout:");
		cache_go_back(d->cache, &mark);
	}
	free(mark.len);
	questions_free(&questions);
}

/* From now on tokens attend to what they retrieve. NULL when that is not wanted. */
static struct retrieval *
start_retrieval(struct cache *c)
{
	const struct model *m = c->model;
	struct retrieval *t;

	if (!retrieves)
		return NULL;
	t = retrieval_new(m->ops, m->dev, &retrieve_options, m->id.layers, m->id.query_heads,
	    m->id.kv_heads, m->id.head_width, c->dtype, m->rope.freq);
	if (t == NULL || cache_retrieve(c, t) != 0)
		die(EXIT_RUN, "no memory for retrieval");
	return t;
}

static void
end_retrieval(struct retrieval *t, const struct model *m)
{
	if (t == NULL)
		return;
	retrieval_note(t, m->id.layers, m->id.kv_heads);
	if (stats != NULL)
		retrieval_report(stats, t, m->id.layers, m->id.kv_heads);
	retrieval_free(t);
}

static void
save(const struct cache *c, struct kv_reader *from, struct observation *obs)
{
	struct kv_head head;
	struct kv_writer *w;

	if (obs->buffer != NULL && observation_to_host(obs, c->model) != 0)
		die(EXIT_RUN, "no memory for %u observation queries", obs->window);
	snapshot_head(c, &head);
	w = output_create(&head);
	output_check(w, snapshot_save(w, c, observe > 0 ? obs : NULL));
	warn_dropped_indexes(c->index_dropped);
	if (evict != NULL) {
		if (score != NULL)
			opt_score_sign(&evictor.scorer, window());
		opt_evict_sign(&evictor.evictor);
	}
	if (retrieves)
		opt_retrieve_sign(&retrieve_options);
	sign_count("observe", observe);
	sign_count("tokens", limit);
	sign_real("temperature", temperature);
	if (temperature > 0) {
		sign_real("top_p", top_p);
		sign_real("min_p", min_p);
		sign_count("seed", seed);
	}
	output_commit(w, from);
	report_count("tokens", c->n_tokens);
}

/* The text that is given */
static void
follow(const struct session *s, struct decode *d, struct kv_reader *r, struct observation *obs)
{
	const int keep = strcmp(settings.output, "-") != 0;
	const struct retrieval *t = d->cache->retrieval;
	struct engine_error e;
	json_t *o;

	d->greedy = 0;                          /* the logits of each token come to the host */
	if (evict != NULL)
		must(decode_evict(d, &e), &e);
	must(decode_init(d, &e), &e);
	forced_run(&forced, d, keep);
	if (keep) {
		must(decode_finish(d, &e), &e);
		save(d->cache, r, obs);
	}
	decode_free(d);
	if (!settings.json) {
		forced_print(&forced, kv_reader_name(r));
	} else {
		o = forced_json(&forced, kv_reader_name(r));
		if (t != NULL)
			put(o, "retrieval", retrieval_json(t, s->model->id.layers,
			    s->model->id.kv_heads));
		print_json(o);
	}
	forced_free(&forced);
}

/* The text behind the snapshot itself */
static void
answer(const struct session *s, struct decode *d, struct kv_reader *r, struct observation *obs,
    double load)
{
	const int keep = strcmp(settings.output, "-") != 0;
	const struct retrieval *t = d->cache->retrieval;
	struct generated g = { .load = load };
	double t0 = seconds();
	struct engine_error e;

	if (evict != NULL)
		must(decode_evict(d, &e), &e);
	generate(s, d, keep, &g);
	g.generate = seconds() - t0;
	note("%u tokens in %.2f s (%.1f tokens/s), next position %u", g.n, g.generate,
	    g.n / g.generate, d->cache->next_position);
	if (keep)
		save(d->cache, r, obs);
	if (settings.json)
		print_generated(&g, kv_reader_name(r), t != NULL ? retrieval_json(t,
		    s->model->id.layers, s->model->id.kv_heads) : NULL);
}

/* Opens the model on the device, with room for the tokens to come: those of a question, too. */
static void
open_model(struct session *s, const struct kv_reader *r, uint32_t *spare, uint32_t *at_once)
{
	const uint32_t room = limit < ROOM ? limit : ROOM;
	uint32_t tile;

	session_open(s, r, ids_out && stops.n == 0 && ask == NULL ?
	    TOKENIZER_IF_THERE : TOKENIZER_NEEDED);
	if (forced_options.text != NULL) {
		forced_read(&forced, s);
		limit = (uint32_t)forced.ids.n;
	}
	if (ask != NULL)
		questions_read(&questions, ask, s->tokenizer, s->model->id.vocabulary);
	if (questions.longest > UINT32_MAX - room)
		die(EXIT_DAMAGED, "%s: a question of %zu tokens", ask, questions.longest);
	tile = workspace_tile(s->device.ops);
	*spare = room + (uint32_t)questions.longest;
	*at_once = questions.longest < tile ? (uint32_t)questions.longest : tile;
	if (*at_once == 0)
		*at_once = 1;
	session_load(s, &(struct memory_demand){ .tokens = *spare,
	    .rows = cache_most_rows_of(s->model, (uint32_t)*spare),
	    .dtype = kv_reader_head(r)->dtype, .at_once = *at_once });
}

int
main(int argc, char **argv)
{
	int first = tool_start(&tool, argc, argv);
	struct observation obs = { 0 };
	struct retrieval *retrieval;
	struct workspace *ws;
	struct kv_reader *r;
	struct decode d;
	struct session e;
	struct cache *c;
	uint32_t spare, at_once;
	double t0 = seconds();

	check_options();
	check_forced(operand(argc, argv, first));
	check_questions(operand(argc, argv, first));
	r = input_open(operand(argc, argv, first));
	open_model(&e, r, &spare, &at_once);
	if ((c = cache_new(e.model, kv_reader_head(r)->dtype)) == NULL)
		die(EXIT_RUN, "no memory for the cache");
	c->spare = spare;
	expect(c, &obs, strcmp(settings.output, "-") != 0);     /* standard output is for the text */
	session_load_rows(&e, r, c, obs.window > 0 ? &obs : NULL);
	check_loaded(c, &obs, r);
	if (obs.window > 0 && e.model->ops->runs_ahead && observation_to_device(&obs, e.model) != 0)
		die(EXIT_RUN, "no memory for %u observation queries", obs.window);
	retrieval = start_retrieval(c);
	if ((ws = workspace_new(e.model, at_once)) == NULL)
		die(EXIT_RUN, "no memory to run the model");
	d = (struct decode){ .cache = c, .ws = ws, .evict = evict != NULL ? &evictor : NULL,
	    .obs = obs.window > 0 ? &obs : NULL, .greedy = temperature == 0 };
	if (forced_options.text != NULL)
		follow(&e, &d, r, &obs);
	else if (ask != NULL)
		answer_all(&e, &d, kv_reader_name(r), seconds() - t0);
	else
		answer(&e, &d, r, &obs, seconds() - t0);
	end_retrieval(retrieval, e.model);
	report_count("tokens_run", c->ran);
	kv_close(r);
	workspace_free(ws, e.model);
	observation_free(&obs, e.model);
	opt_evict_tell(&evictor.evictor, 0);
	evict_cache_free(&evictor);
	cache_free(c);
	session_close(&e);
	return finish();
}
