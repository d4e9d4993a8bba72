/* kv-observe - run tokens on top of a snapshot without storing them: keep their queries, or the
 * attention that they pay */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/probe_mass.h"
#include "cli/session.h"
#include "cli/tool.h"
#include "model/snapshot.h"

/* Tokens that run together, which bounds the memory of activations; as kv-prefill has it */
enum { AT_A_TIME = 512, AT_A_TIME_AHEAD = 4096 };

#define REPEATED_BEFORE 8       /* tokens of the chunk before that lead into a chunk */

static uint32_t chunk = 2000, sink = 4, keep_window;
static const char *ids_from, *accumulate;
static const char *instruction = "\n\nWrite out the text above once more, word for word:\n";
static int repeat;

static const struct opt opts[] = {
	{ 0, "ids-from", OPT_STRING, &ids_from, 0, "FILE",
	    "run the token ids in FILE, \"-\" for standard input" },
	{ 0, "repeat-context", OPT_FLAG, &repeat, 1, NULL,
	    "run the snapshot's own tokens again, as if to repeat them (KVzip)" },
	{ 0, "accumulate", OPT_STRING, &accumulate, 0, "HOW",
	    "keep the attention paid, its sum or max, instead of the queries" },
	{ 0, "keep-window", OPT_COUNT, &keep_window, 0, "W",
	    "keep the snapshot's last W queries in front of the new ones" },
	{ 0, "chunk", OPT_COUNT, &chunk, 0, "N", "repeat N tokens at a time (2000)" },
	{ 0, "instruction", OPT_STRING, &instruction, 0, "TEXT",
	    "what asks the model to repeat, before each chunk" },
	{ 0, "sink", OPT_COUNT, &sink, 0, "N",
	    "the first N tokens are not repeated and always kept (4)" },
	{ 0 }
};

static const struct tool tool = {
	.name = "kv-observe",
	.about = "run tokens on top of a snapshot without storing them, and keep what they look at",
	.synopsis = "-m DIR --ids-from FILE | --repeat-context [-qvz] [-j N] [-o FILE]\n"
	    "[--accumulate HOW] [--chunk N] [--device DEVICE] [--instruction TEXT]\n"
	    "[--keep-window W] [--progress WHEN] [--sink N] [snapshot]",
	.opts = opts,
	.takes = TAKES_MODEL | TAKES_OUTPUT | TAKES_THREADS | TAKES_PROGRESS,
	.max_operands = 1
};

/* ---- the snapshot: all but keys and values is passed on as it came ---- */

struct held {
	struct kv_section sec;
	void *content;                  /* NULL for KEYS and VALS, which are in the cache */
	struct held *next;
};

static struct held *
hold(struct kv_reader *r, const struct kv_section *sec)
{
	struct held *h = must_alloc(1, sizeof *h);
	const void *content;

	h->sec = *sec;
	if (strcmp(sec->type, "KEYS") == 0 || strcmp(sec->type, "VALS") == 0)
		return h;
	content = input_load(r);
	h->content = must_alloc(sec->raw_size, 1);
	if (sec->raw_size > 0)
		memcpy(h->content, content, sec->raw_size);
	return h;
}

static struct held *
read_snapshot(const struct session *e, struct kv_reader *r, struct cache *c,
    struct observation *obs)
{
	struct held *first = NULL, **tail = &first;
	struct kv_section sec;
	int code;

	while (input_next(r, &sec)) {
		if (strcmp(sec.type, "pROv") == 0)
			continue;               /* inherited */
		if ((code = snapshot_take(r, &sec, c, obs)) == KV_ENOMEM)
			session_no_room(e, kv_reader_name(r));
		else if (code < 0)
			input_failed(r, code);
		*tail = hold(r, &sec);
		tail = &(*tail)->next;
	}
	c->next_position = kv_reader_head(r)->next_position;
	return first;
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

/* The text that says how the values of pAID were made. */
static void
make_label(char *label, size_t size, size_t tokens)
{
	if (repeat)
		snprintf(label, size, "repeat-context over=%s chunk=%u sink=%u", accumulate, chunk,
		    sink);
	else
		snprintf(label, size, "tokens over=%s n=%zu", accumulate, tokens);
}

static void
write_paid(struct kv_writer *w, const struct cache *c, uint32_t l, size_t tokens)
{
	const struct kv_model *id = &c->model->id;
	char label[KV_SCORE_LABEL] = "";
	struct kv_span content[2] = { { label, sizeof label }, { c->probe_mass->paid[l], 0 } };
	uint32_t g;

	for (g = 0; g < id->kv_heads; g++)
		content[1].size += c->layer[l].len[g] * (id->query_heads / id->kv_heads) *
		    sizeof(float);
	make_label(label, sizeof label, tokens);
	output_check(w, kv_write(w, "pAID", l, sizeof(float), content, 2));
}

/* The snapshot as it came, with the new section of each layer in its place. */
static void
write_snapshot(struct kv_writer *w, const struct held *h, const struct cache *c,
    const struct observation *obs, size_t tokens)
{
	const char *new = obs != NULL ? "oBSq" : "pAID";
	uint32_t written = 0;                   /* layers that have it */

	for (; h != NULL; h = h->next) {
		const char *type = h->sec.type;
		uint32_t l = h->sec.layer;
		struct kv_span span = { h->content, h->sec.raw_size };

		/* what must not stand before pAID in its layer */
		if (obs == NULL && written == l &&
		    (strcmp(type, "sCOR") == 0 || strcmp(type, "KEYS") == 0)) {
			write_paid(w, c, l, tokens);
			written++;
		}
		if (strcmp(type, new) == 0)
			continue;
		if (h->content == NULL)
			output_check(w, snapshot_put(w, c, NULL, type, l));
		else
			output_check(w, kv_write(w, type, l, h->sec.element_size, &span, 1));
		if (obs != NULL && strcmp(type, "POSN") == 0)
			output_check(w, snapshot_put(w, c, obs, "oBSq", l));
	}
}

/* ---- running ---- */

static uint64_t done_before;            /* tokens of earlier runs */

static void
show(void *with, uint64_t done)
{
	(void)with;
	progress(done_before + done);
}

static void
run(struct session *e, struct cache *c, struct workspace *ws, const struct ids *ids,
    struct observation *obs)
{
	const struct step_hook step = { show, NULL };
	char err[512];

	if (run_unstored(e->model, c, ws, ids->ids, ids->n, obs, &step, err, sizeof err) != 0)
		die(EXIT_RUN, "%s", err);
	done_before += ids->n;
}

static void
pay(struct cache *c, uint32_t from, uint32_t to)
{
	if (probe_mass_begin(c->probe_mass, c, repeat ? sink : 0, from, to) != 0)
		die(EXIT_RUN, "no memory for the attention that is paid to positions %u to %u",
		    from, to);
}

static void
append(struct ids *to, const uint32_t *ids, size_t n)
{
	if (n == 0)
		return;
	memcpy(to->ids + to->n, ids, n * sizeof *ids);
	to->n += n;
}

/* The position of a token must be its place among the tokens, and each id one of the model's. */
static void
check_context(const struct session *e, const struct cache *c, const struct kv_reader *r)
{
	size_t i;

	if (c->n_tokens != c->next_position)
		die(EXIT_RUN, "%s: %zu tokens, but the next position is %u: which token stands "
		    "where is not known, so the text cannot be repeated", kv_reader_name(r),
		    c->n_tokens, c->next_position);
	if (c->n_tokens <= sink)
		die(EXIT_RUN, "%s: %zu tokens, of which the first %u are not repeated: nothing is "
		    "left", kv_reader_name(r), c->n_tokens, sink);
	for (i = 0; i < c->n_tokens; i++)
		if (c->tokens[i] >= e->model->id.vocabulary)
			die(EXIT_DAMAGED, "%s: token %zu is %u, and the vocabulary ends before %u",
			    kv_reader_name(r), i, c->tokens[i], e->model->id.vocabulary);
}

/* How many tokens of the chunk before it lead into a chunk that is not the first. */
static uint32_t
leading(void)
{
	return chunk < REPEATED_BEFORE ? chunk : REPEATED_BEFORE;
}

/* The text from the sinks on, chunk by chunk. Returns how many tokens were run. */
static size_t
repeat_context(struct session *e, struct cache *c, struct workspace *ws, const struct ids *asking)
{
	uint32_t at, n, before, T = c->next_position;
	struct ids ids = { .ids = must_alloc(asking->n + T, sizeof *ids.ids) };

	for (at = sink; at < T; at += n) {
		n = T - at < chunk ? T - at : chunk;
		before = at == sink ? 0 : leading();
		ids.n = 0;
		append(&ids, asking->ids, asking->n);
		append(&ids, c->tokens + at - before, before);
		append(&ids, c->tokens + at, n);
		pay(c, at, at + n);
		run(e, c, ws, &ids, NULL);
		probe_mass_end(c->probe_mass, c);
	}
	probe_mass_keep_sinks(c->probe_mass, c);
	free(ids.ids);
	return done_before;
}

/* ---- */

static void
check_options(const char *path)
{
	if ((ids_from != NULL) == repeat)
		die(EXIT_USAGE, "give --ids-from or --repeat-context, and not both");
	if (accumulate != NULL && strcmp(accumulate, "sum") != 0 && strcmp(accumulate, "max") != 0)
		die(EXIT_USAGE, "--accumulate: '%s' is neither sum nor max", accumulate);
	if (repeat && accumulate == NULL)
		accumulate = "max";
	if (keep_window > 0 && accumulate != NULL)
		die(EXIT_USAGE, "--keep-window: with --accumulate no queries are kept");
	if (chunk == 0)
		die(EXIT_USAGE, "--chunk 0: want at least one token at a time");
	if (!repeat && strcmp(ids_from, "-") == 0 && strcmp(path, "-") == 0)
		die(EXIT_USAGE, "the snapshot and the ids cannot both come from standard input");
}

/* The ids to run: those of the file, or those that ask for a repetition. */
static struct ids
read_ids(const struct session *e)
{
	const char *name = repeat || strcmp(ids_from, "-") != 0 ? ids_from : "stdin";
	struct ids ids = { 0 };
	char *text, err[512];
	size_t len;

	if (repeat) {
		len = strlen(instruction);
		if (len > 0 && tokenizer_encode(e->tokenizer, instruction, len, 0, &ids, err,
		    sizeof err) != 0)
			die(EXIT_USAGE, "--instruction: %s", err);
		return ids;
	}
	must_read_all(ids_from, &text, &len);
	parse_ids(name, text, len, e->model->id.vocabulary, &ids);
	free(text);
	if (ids.n == 0)
		die(EXIT_DAMAGED, "%s: there is no token to run", name);
	return ids;
}

/* Tokens of the longest run behind so many positions. */
static size_t
longest_run(uint32_t next_position, const struct ids *ids)
{
	uint32_t context = next_position > sink ? next_position - sink : 0;

	if (!repeat)
		return ids->n;
	return ids->n + (context <= chunk ? context : (size_t)chunk + leading());
}

static uint64_t
all_runs(const struct cache *c, const struct ids *ids)
{
	uint64_t context = c->next_position - sink, chunks = (context + chunk - 1) / chunk;

	return repeat ? context + chunks * ids->n + (chunks - 1) * leading() : ids->n;
}

/* How many of n tokens run together. */
static uint32_t
together(const struct session *e, size_t n)
{
	const uint32_t most = e->device.ops->runs_ahead ? AT_A_TIME_AHEAD : AT_A_TIME;

	return n < most ? (uint32_t)n : most;
}

/* Runs what was asked for. Returns the number of tokens. */
static size_t
observe(struct session *e, struct cache *c, struct observation *obs, const struct ids *ids)
{
	size_t longest = longest_run(c->next_position, ids), n = ids->n;
	uint32_t rows = together(e, longest);
	struct workspace *ws = workspace_new(e->model, rows);

	if (c->next_position + longest > e->model->max_position)
		warning("%zu tokens end at position %zu: the model was made for %u", longest,
		    c->next_position + longest - 1, e->model->max_position);
	if (ws == NULL)
		die(EXIT_RUN, "no memory to run the model");
	if (accumulate != NULL) {
		enum over over = strcmp(accumulate, "sum") == 0 ? OVER_SUM : OVER_MAX;

		if ((c->probe_mass = probe_mass_new(c, over, rows)) == NULL)
			die(EXIT_RUN, "no memory for the attention that is paid");
	}
	progress_start("observe", all_runs(c, ids), "tokens");
	if (repeat)
		n = repeat_context(e, c, ws, ids);
	else if (accumulate == NULL)
		run(e, c, ws, ids, obs);
	else {
		pay(c, 0, UINT32_MAX);
		run(e, c, ws, ids, NULL);
		probe_mass_end(c->probe_mass, c);
	}
	progress_end();
	workspace_free(ws, e->model);
	return n;
}

static void
sign(size_t tokens)
{
	if (accumulate != NULL)
		sign_text("accumulate", accumulate);
	else
		sign_count("keep_window", keep_window);
	if (repeat) {
		sign_count("chunk", chunk);
		sign_text("instruction", instruction);
		sign_count("repeat_context", 1);
		sign_count("sink", sink);
	}
	sign_count("tokens", tokens);
}

/* The weights go to the device when there is room for what a run of n tokens needs at least. */
static void
load_model(struct session *e, const struct kv_reader *r, size_t n)
{
	const struct kv_model *id = &e->model->id;

	session_load(e, &(struct memory_demand){ .tokens = n,
	    .rows = (uint64_t)n * id->layers * id->kv_heads, .dtype = kv_reader_head(r)->dtype,
	    .at_once = together(e, n) });
}

/* The cache, with room for a run, and the stored queries of which some may be kept. Returns what to
 * pass on. */
static struct held *
load(struct session *e, struct kv_reader *r, struct cache **c, struct observation *obs,
    size_t run, size_t tokens)
{
	struct held *held;

	if (obs != NULL && observation_init(obs, e->model, keep_window + (uint32_t)tokens) != 0)
		die(EXIT_RUN, "no memory for %zu observation queries", keep_window + tokens);
	if ((*c = cache_new(e->model, kv_reader_head(r)->dtype)) == NULL)
		die(EXIT_RUN, "no memory for the cache");
	(*c)->spare = run < UINT32_MAX ? (uint32_t)run : UINT32_MAX;
	held = read_snapshot(e, r, *c, obs);
	session_rest(e, kv_reader_name(r));
	if (obs != NULL && obs->loaded != e->model->id.layers)
		obs->have = 0;
	if (obs != NULL && obs->have < keep_window)
		die(EXIT_USAGE, "--keep-window %u: %s holds %u queries of stored tokens",
		    keep_window, kv_reader_name(r), obs->have);
	if (repeat)
		check_context(e, *c, r);
	return held;
}

int
main(int argc, char **argv)
{
	int first = tool_start(&tool, argc, argv);
	const char *path = operand(argc, argv, first);
	struct observation obs = { 0 }, *kept;
	struct kv_reader *r;
	struct kv_writer *w;
	struct held *held;
	struct session e;
	struct cache *c;
	struct ids ids;
	size_t longest, tokens;
	double t0;

	check_options(path);
	output_refuse_terminal();
	r = input_open(path);
	session_open(&e, r);
	ids = read_ids(&e);
	longest = longest_run(kv_reader_head(r)->next_position, &ids);
	load_model(&e, r, longest);
	kept = accumulate == NULL ? &obs : NULL;
	held = load(&e, r, &c, kept, longest, ids.n);
	t0 = seconds();
	tokens = observe(&e, c, kept, &ids);
	note("%zu tokens in %.2f s, none of them stored", tokens, seconds() - t0);

	w = output_create(kv_reader_head(r));
	write_snapshot(w, held, c, kept, tokens);
	sign(tokens);
	output_commit(w, r);
	kv_close(r);
	free_held(held);
	observation_free(&obs, e.model);
	probe_mass_free(c->probe_mass, c);
	cache_free(c);
	free(ids.ids);
	session_close(&e);
	return finish();
}
