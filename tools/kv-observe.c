/* kv-observe - run probe tokens on a snapshot without storing them: keep their queries, or the
 * attention mass of the stored rows */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/json.h"
#include "cli/positions.h"
#include "cli/progress.h"
#include "cli/report.h"
#include "cli/session.h"
#include "cli/snapshot_io.h"
#include "cli/text_input.h"
#include "cli/tool.h"
#include "libkvfile/codec.h"
#include "engine/observe.h"
#include "engine/open_sequence.h"
#include "forward/probe_mass.h"
#include "model/adapter.h"

static struct observe_options how = { .chunk = 2000, .sink = 4 };
static uint32_t keep_window;
static const char *ids_from, *lookahead, *accumulate;
static const char *instruction = "\n\nWrite out the text above once more, word for word:\n";

static const struct opt opts[] = {
	{ 0, "ids-from", OPT_STRING, &ids_from, 0, "FILE",
	    "run the token ids in FILE, \"-\" for standard input", OPT_READS },
	{ 0, "lookahead", OPT_STRING, &lookahead, 0, "DIR",
	    "run the learned tokens of this adapter (LookaheadKV)", OPT_READS },
	{ 0, "repeat-context", OPT_FLAG, &how.repeat, 1, NULL,
	    "run the snapshot's own tokens again, as if to repeat them (KVzip)", OPT_HOW },
	{ 0, "accumulate", OPT_STRING, &accumulate, 0, "HOW",
	    "keep the sum or max of the attention mass instead of the queries", OPT_WRITES },
	{ 0, "value-norms", OPT_FLAG, &how.weigh, 1, NULL,
	    "weigh the mass by value outputs and hidden states (KVzip+)", OPT_HOW },
	{ 0, "keep-window", OPT_COUNT, &keep_window, 0, "W",
	    "keep the snapshot's last W queries before the new ones", OPT_WRITES },
	{ 0, "chunk", OPT_COUNT, &how.chunk, 0, "N", "repeat N tokens at a time (2000)", OPT_HOW },
	{ 0, "instruction", OPT_STRING, &instruction, 0, "TEXT",
	    "the request to repeat, before each chunk", OPT_HOW },
	{ 0, "sink", OPT_COUNT, &how.sink, 0, "N",
	    "always keep the first N positions, do not repeat them (4)", OPT_HOW },
	{ 0 }
};

static const struct tool tool = {
	.name = "kv-observe",
	.synopsis = "-m MODEL --ids-from FILE | --lookahead DIR | --repeat-context [-qvz] [-j N]\n"
	    "[-o FILE]\n"
	    "[--accumulate HOW] [--allow-config KEY] [--allow-tensor NAME] [--chunk N]\n"
	    "[--device DEVICE] [--instruction TEXT] [--json] [--keep-window W] [--products TYPE]\n"
	    "[--progress WHEN] [--report FILE] [--sink N] [--value-norms] [snapshot]",
	.example = "kv-observe -m examples/demo-model --repeat-context -o seen.kv full.kv",
	.opts = opts,
	.takes = TAKES_MODEL | TAKES_CONFIG | TAKES_OUTPUT | TAKES_THREADS | TAKES_JSON |
	    TAKES_PROGRESS,
	.max_operands = 1
};

/* ---- the snapshot: sections that are not in the cache are copied ---- */

struct held {
	struct kv_section sec;
	void *content;                  /* NULL if written from the cache */
	struct held *next;
};

/* The sections to copy, in the order of the snapshot */
struct held_list {
	struct held *first, **tail;
};

/* Keeps a section, except provenance, which is inherited. */
static int
hold(void *with, struct kv_reader *r, const struct kv_section *sec)
{
	struct held_list *list = with;
	struct held *h;
	const void *content;
	int rc;

	if (sec->kind == KV_PROV)
		return KV_OK;
	h = *list->tail = must_alloc(1, sizeof *h);
	list->tail = &h->next;
	h->sec = *sec;
	if (sec->kind == KV_TOKS || sec->kind == KV_KEYS || sec->kind == KV_VALS ||
	    sec->kind == KV_EVNT)
		return KV_OK;
	if ((rc = kv_load(r, &content)) != KV_OK)
		return rc;
	h->content = must_alloc(sec->raw_size, 1);
	if (sec->raw_size > 0)
		memcpy(h->content, content, sec->raw_size);
	return KV_OK;
}

static void
free_held(struct held *h)
{
	struct held *next;

	for (; h != NULL; h = next) {
		next = h->next;
		free(h->content);
		free(h);
	}
}

/* ---- writing ---- */

/* Writes the label of pAID, which says how its values were made. */
static void
make_label(char *label, size_t size, size_t tokens)
{
	const char *weighed = how.weigh ? " value-norms" : "";

	if (how.repeat)
		snprintf(label, size, "repeat-context over=%s chunk=%u sink=%u%s", accumulate,
		    how.chunk, how.sink, weighed);
	else
		snprintf(label, size, "%s over=%s n=%zu%s",
		    lookahead != NULL ? "lookahead" : "tokens", accumulate, tokens, weighed);
}

static void
write_mass(struct kv_writer *w, const struct sequence *s, uint32_t l, size_t tokens)
{
	const struct cache *c = s->cache;
	const struct kv_model *id = &c->model->id;
	char label[KV_SCORE_LABEL];
	struct kv_values mass = { label, 0, s->probe_mass->mass[l] };
	uint32_t g;

	for (g = 0; g < id->kv_heads; g++)
		mass.n += (uint64_t)c->layer[l].len[g] * (id->query_heads / id->kv_heads);
	make_label(label, sizeof label, tokens);
	output_check(w, kv_write_values(w, KV_PAID, l, &mass));
}

/* Writes the snapshot with the new section in each layer. */
static void
write_snapshot(struct kv_writer *w, const struct held *h, const struct sequence *s,
    const struct observation *obs, size_t tokens)
{
	const enum kv_kind new = obs != NULL ? KV_OBSQ : KV_PAID;
	uint32_t written = 0;                   /* layers that have it */

	for (; h != NULL; h = h->next) {
		const enum kv_kind kind = h->sec.kind;
		uint32_t l = h->sec.layer;
		struct kv_span span = { h->content, h->sec.raw_size };

		/* in front of what comes after pAID in a layer, at the latest of KEYS */
		if (obs == NULL && written == l && kv_kind_place(kind) > kv_kind_place(KV_PAID) &&
		    kv_kind_place(kind) <= kv_kind_place(KV_KEYS)) {
			write_mass(w, s, l, tokens);
			written++;
		}
		if (kind == new || (obs != NULL && kind == KV_SINK))
			continue;
		if (h->content == NULL)
			output_check(w, snapshot_put(w, s->cache, NULL, kind, l));
		else
			output_check(w, kv_write(w, h->sec.type, l, h->sec.element_size, &span, 1));
		if (obs != NULL && kind == KV_POSN)
			output_check(w, snapshot_put(w, s->cache, obs, KV_OBSQ, l));
	}
}

/* ---- options, and the run ---- */

static void
check_options(const char *path)
{
	if ((ids_from != NULL) + (lookahead != NULL) + how.repeat != 1)
		die(EXIT_USAGE, "give --ids-from, --lookahead or --repeat-context, and one of them "
		    "only");
	if (accumulate != NULL && strcmp(accumulate, "sum") != 0 && strcmp(accumulate, "max") != 0)
		die(EXIT_USAGE, "--accumulate: '%s' is neither sum nor max", accumulate);
	if (how.repeat && accumulate == NULL)
		accumulate = "max";
	how.mass = accumulate != NULL;
	how.over = how.mass && strcmp(accumulate, "sum") == 0 ? QUERIES_SUM : QUERIES_MAX;
	if (how.weigh && accumulate == NULL)
		die(EXIT_USAGE, "--value-norms weighs attention mass: give --repeat-context or "
		    "--accumulate");
	if (keep_window > 0 && accumulate != NULL)
		die(EXIT_USAGE, "--keep-window: with --accumulate no queries are kept");
	if (settings.json && strcmp(settings.output, "-") == 0)
		die(EXIT_USAGE, "--json: standard output is for the snapshot: give -o FILE");
	if (how.chunk == 0)
		die(EXIT_USAGE, "--chunk 0: want at least one token at a time");
	if (ids_from != NULL && strcmp(ids_from, "-") == 0 && strcmp(path, "-") == 0)
		die(EXIT_USAGE, "the snapshot and the ids cannot both come from standard input");
}

/* Returns the ids to run: the file's, or those that ask for a repetition. For learned tokens
 * only their number counts. */
static struct ids
read_ids(const struct session *s, struct kv_reader *r)
{
	const char *name = ids_from == NULL || strcmp(ids_from, "-") != 0 ? ids_from : "stdin";
	struct ids ids = { 0 };
	char *text;
	size_t len;

	if (s->adapter != NULL)
		ids.n = s->adapter->n;
	if (s->adapter != NULL)
		return ids;
	if (how.repeat) {
		len = strlen(instruction);
		if (len > 0)
			encode_text(s->tokenizer, "--instruction", instruction, len,
			    text_behind(s->tokenizer, r), s->model->id.vocabulary, EXIT_USAGE,
			    &ids);
		return ids;
	}
	must_read_list(ids_from, &text, &len);
	parse_ids(name, text, len, s->model->id.vocabulary, &ids);
	free(text);
	refuse_no_token(name, &ids);
	return ids;
}

/* Runs the probe tokens. Returns their number. */
static size_t
run(struct sequence *s, struct observation *obs, const struct ids *ids)
{
	const struct cache *c = s->cache;
	const struct step_hook step = { progress_step, NULL };
	const size_t longest = observe_longest(&how, c->next_position, ids->n);
	struct engine_error e;
	size_t tokens;

	warn_of_positions(c->model, c->next_position + longest);
	progress_start("observe", observe_total(&how, c->next_position, ids->n), "tokens");
	must(observe(s, &how, ids->ids, ids->n, obs, &step, &tokens, &e), &e);
	progress_end();
	return tokens;
}

static void
sign(size_t tokens)
{
	if (accumulate != NULL)
		sign_text("accumulate", accumulate);
	else
		sign_count("keep_window", keep_window);
	if (how.repeat) {
		sign_count("chunk", how.chunk);
		sign_text("instruction", instruction);
		sign_count("repeat_context", 1);
		sign_count("sink", how.sink);
	}
	if (how.adapter != NULL)
		sign_text("lookahead", how.adapter->id);
	sign_count("tokens", tokens);
	if (how.weigh)
		sign_count("value-norms", 1);
}

/* Loads the weights if there is room for at least a run of n tokens. */
static void
load_model(struct session *s, const struct kv_reader *r, size_t n)
{
	const struct kv_model *id = &s->model->id;

	session_load(s, &(struct memory_demand){ .tokens = n,
	    .rows = (uint64_t)n * id->layers * id->kv_heads, .stored = kv_reader_head(r),
	    .at_once = observe_rows(s->device.ops, n) });
}

/* Loads the snapshot, with room for the longest run; *held <- the sections to copy. queries:
 * how many to keep, those of the snapshot included; 0: none. */
static void
load(struct open_sequence *x, struct session *s, struct kv_reader *r, size_t longest,
    uint32_t queries, struct held_list *held)
{
	const struct section_hook hook = { hold, held };
	const struct sequence_options want = { .observe = queries, .section = &hook,
	    .spare = longest < UINT32_MAX ? (uint32_t)longest : UINT32_MAX,
	    .notice = { .call = warn_notice } };
	struct engine_error e;

	held->tail = &held->first;
	must(open_sequence(x, s->model, &want, r, &s->plan, &e), &e);
	if (x->obs.have < keep_window)
		die(EXIT_USAGE, "--keep-window %u: %s holds %u queries of stored tokens",
		    keep_window, kv_reader_name(r), x->obs.have);
	if (how.repeat)
		must(observe_check(&how, x->sequence.cache, kv_reader_name(r), &e), &e);
}

/* Prints the report; kv-observe(1) explains the keys. queries: NULL if attention was kept */
static void
print_report(const struct kv_reader *r, const struct observation *queries, size_t tokens,
    double load_time, double run_time)
{
	json_t *o = json_object(), *times = json_object();

	put_text(o, "snapshot", kv_reader_name(r));
	put_text(o, "output", settings.output);
	put_count(o, "tokens", tokens);
	put_value(o, "lookahead", how.adapter != NULL ? json_string(how.adapter->id) : json_null());
	put_value(o, "repeat_context", json_boolean(how.repeat));
	if (queries != NULL) {
		put_value(o, "accumulate", json_null());
		put_count(o, "queries", queries->have);
	} else {
		put_text(o, "accumulate", accumulate);
		put_value(o, "queries", json_null());
	}
	put_value(o, "seconds", times);
	put_real(times, "load", load_time);
	put_real(times, "run", run_time);
	print_json(o);
}

int
main(int argc, char **argv)
{
	int first = tool_start(&tool, argc, argv);
	const char *path = operand(argc, argv, first);
	struct held_list held = { NULL, NULL };
	struct observation *kept;
	struct open_sequence x;
	struct kv_reader *r;
	struct kv_writer *w;
	struct session s;
	struct ids ids;
	size_t longest, tokens;
	double t0 = seconds(), load_time, run_time;

	check_options(path);
	output_refuse_terminal();
	r = input_open(path);
	input_refuse_residual(r, "probe tokens are not run on them: run kv-observe before "
	    "kv-quantize");
	session_open(&s, r, how.repeat && instruction[0] != '\0' ? TOKENIZER_NEEDED :
	    TOKENIZER_IF_THERE);
	if (lookahead != NULL)
		session_adapter(&s, lookahead);
	how.adapter = s.adapter;
	ids = read_ids(&s, r);
	longest = observe_longest(&how, kv_reader_head(r)->next_position, ids.n);
	load_model(&s, r, longest);
	load(&x, &s, r, longest, accumulate == NULL ? keep_window + (uint32_t)ids.n : 0, &held);
	kept = x.obs.window > 0 ? &x.obs : NULL;
	load_time = seconds() - t0;
	tokens = run(&x.sequence, kept, &ids);
	run_time = seconds() - t0 - load_time;
	note("%zu tokens in %.2f s, none of them stored", tokens, run_time);

	w = output_create(kv_reader_head(r));
	write_snapshot(w, held.first, &x.sequence, kept, tokens);
	sign(tokens);
	output_commit(w, r);
	report_count("tokens_run", x.sequence.cache->ran);
	if (settings.json)
		print_report(r, kept, tokens, load_time, run_time);
	kv_close(r);
	free_held(held.first);
	close_sequence(&x);
	free(ids.ids);
	session_close(&s);
	return finish();
}
