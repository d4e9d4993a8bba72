/* decode_text.c - generates a text after a snapshot */
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#include "cli/decode_text.h"
#include "cli/positions.h"
#include "cli/progress.h"
#include "cli/report.h"
#include "cli/terminal_escape.h"
#include "engine/speculate.h"

int
decode_text_shows_progress(void)
{
	return settings.json || !isatty(STDOUT_FILENO) || !isatty(STDERR_FILENO);
}

void
decode_text_start(struct decode_text *a, const struct cache *c)
{
	const struct decode_text_options *o = a->options;

	a->sampler = (struct sampler){ .temperature = o->temperature, .top_p = o->top_p,
	    .min_p = o->min_p };
	sampler_seed(&a->sampler, o->seed);
	a->printer = (struct token_printer){ .tokenizer = a->tokenizer, .stops = &o->stops,
	    .ids = o->ids };
	print_tokens_behind(&a->printer, c->tokens, c->n_tokens);
	if (a->collect)
		decode_result_collect(&a->generated, &a->printer);
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

/* Returns whether the text ends at this token: an end token, or one whose name is a stop text.
 * It is neither printed nor run. */
static int
ends(struct decode_text *a, const struct model *m, uint32_t id)
{
	if (!a->options->ignore_eos && is_eos(m, id)) {
		a->generated.stop = STOP_EOS;
		return 1;
	}
	if (!token_stops(&a->printer, id))
		return 0;
	a->generated.stop = STOP_TEXT;
	a->generated.stop_text = a->printer.stopped;
	return 1;
}

/* Prints the token. Stores a cut point if the text may end before or inside it. */
static int
print_next(struct decode_text *a, struct decode *d, uint32_t id, struct engine_error *e)
{
	struct token_printer *p = &a->printer;
	const uint64_t before = p->total;
	const int whole = p->utf8.n == 0, cuts = a->keep && a->options->stops.n > 0;
	int rc = ENGINE_OK;

	report_enter_descriptor(STDOUT_FILENO, REPORT_WRITE);
	a->stopped = print_token(p, id);
	report_leave();
	if (!cuts)
		return ENGINE_OK;
	if (a->stopped || p->n > 0 || p->utf8.n > 0)
		rc = cut_points_add(&a->points, d, id, before, whole, e);
	else
		cut_points_free(&a->points, d);
	if (rc == ENGINE_OK && !a->stopped)
		cut_points_pass(&a->points, d, print_held_from(p));
	return rc;
}

/* Every printed token must run afterwards, the last one too if the snapshot is kept, so that
 * tokens, rows and logits of the cache agree. */
int
decode_text_next(struct decode_text *a, struct decode *d, uint32_t *id, struct engine_error *e)
{
	const uint32_t limit = a->options->limit;
	struct decode_result *g = &a->generated;
	const struct cache *c = d->sequence->cache;
	int rc;

	if (g->n == limit || a->stopped)
		return 0;
	if (*id == UINT32_MAX && c->logits != NULL)
		*id = sample(&a->sampler, c->logits, c->model->id.vocabulary);
	report_first_token();
	if (*id == UINT32_MAX)
		return engine_fail(e, ENGINE_ERUN, "position %u: no logit is finite",
		    c->next_position);
	if (ends(a, c->model, *id))
		return 0;
	decode_result_add(g, *id);
	if ((rc = print_next(a, d, *id, e)) != ENGINE_OK)
		return rc;
	g->n++;
	if (a->stopped) {
		g->stop = STOP_TEXT;
		g->stop_text = a->printer.stopped;
	}
	if (a->stopped || (!a->keep && g->n == limit))
		return 0;
	warn_of_positions(c->model, (uint64_t)c->next_position + 1);
	return 1;
}

/* Returns the text of these tokens, at least `size` bytes of it; to be freed. Dies. */
static char *
text_of(const struct tokenizer *t, const struct cut_point *p, uint64_t size)
{
	struct utf8_stream stream = { .n = 0 };
	size_t at = 0, room = 0, len;
	char *text = NULL;
	const char *bytes;
	int special;

	for (; at < size; p++) {
		bytes = tokenizer_bytes(t, p->id, &len, &special);
		if (bytes == NULL || special)
			continue;
		if (3 * (len + 4) > room - at) {
			room = 2 * room + 3 * (len + 4);
			if ((text = realloc(text, room)) == NULL)
				die(EXIT_RUN, "no memory for %zu bytes of text", room);
		}
		at += utf8_push(&stream, bytes, len, text + at);
	}
	return text;
}

/* ids <- those of the text before a stop text inside a token. Returns 0 if there is none. */
static int
encode_rest(const struct decode_text *a, const struct cut_point *p, const struct cache *c,
    uint64_t size, struct ids *ids)
{
	char *text, err[512];
	int rc;

	if (!p->whole)
		return 0;
	text = text_of(a->tokenizer, p, size);
	rc = tokenizer_encode(a->tokenizer, text, size, TOK_PLAIN | tokenizer_behind(a->tokenizer,
	    c->tokens, p->point.cache.n_tokens), ids, err, sizeof err);
	free(text);
	return rc == 0 && err[0] == '\0';
}

int
decode_text_cut(struct decode_text *a, struct decode *d, const char *name, struct engine_error *e)
{
	struct ids rest = { .n = 0 };
	struct cut_point *p;
	uint64_t size;
	int rc;

	if (!a->stopped)
		return ENGINE_OK;
	p = cut_points_find(&a->points, a->printer.ended);
	size = a->printer.ended - p->text;
	if (size > 0 && !encode_rest(a, p, d->sequence->cache, size, &rest)) {
		rest.n = 0;
		warning("%s: \"%s\" begins inside a token: the snapshot ends %" PRIu64
		    " bytes before it", name, shown(a->printer.stopped), size);
	}
	rc = decode_cut(d, &p->point, rest.ids, rest.n, e);
	free(rest.ids);
	return rc;
}

void
decode_text_end(struct decode_text *a, struct decode *d)
{
	cut_points_free(&a->points, d);
	a->printer.goes_on = a->keep && a->generated.stop == STOP_TOKENS;
	report_enter_descriptor(STDOUT_FILENO, REPORT_WRITE);
	print_tokens_end(&a->printer);
	report_leave();
}

void
decode_text_run(struct decode_text *a, const struct session *s, struct decode *d)
{
	struct engine_error e;
	uint32_t id = UINT32_MAX;
	int rc;

	must(decode_init(d, &e), &e);
	decode_text_start(a, d->sequence->cache);
	if (d->speculation != NULL)
		d->speculation->sampler = d->greedy ? NULL : &a->sampler;
	if (a->collect || decode_text_shows_progress())
		progress_start("decode", a->options->limit, "tokens");
	while ((rc = decode_text_next(a, d, &id, &e)) == 1) {
		report_step_begin();
		if (d->speculation != NULL)
			d->speculation->left = a->options->limit - a->generated.n - !a->keep;
		must(decode_step(d, id, &id, &e), &e);
		report_step_end();
		if (!d->greedy)
			id = UINT32_MAX;
		progress(a->generated.n);
	}
	if (rc < 0)
		must(rc, &e);
	progress(a->generated.n);
	progress_end();
	if (a->keep)
		must(decode_text_cut(a, d, settings.output, &e), &e);
	decode_text_end(a, d);
	if (a->keep)
		must(decode_finish(d, &e), &e);
	if (d->generator != NULL)
		session_note_steps(s, generator_launches(d->generator),
		    generator_capture_failed(d->generator));
	decode_free(d);
}
