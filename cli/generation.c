/* generation.c - a text that is generated behind a snapshot */
#include <unistd.h>

#include "cli/generation.h"
#include "cli/report.h"

int
generation_shows_progress(void)
{
	return settings.json || !isatty(STDOUT_FILENO) || !isatty(STDERR_FILENO);
}

void
generation_start(struct generation *a)
{
	const struct generation_options *o = a->options;

	a->sampler = (struct sampler){ .temperature = o->temperature, .top_p = o->top_p,
	    .min_p = o->min_p };
	sampler_seed(&a->sampler, o->seed);
	a->printer = (struct token_printer){ .tokenizer = a->tokenizer, .stops = &o->stops,
	    .ids = o->ids };
	if (a->collect)
		generated_collect(&a->generated, &a->printer);
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

/* An end token, or one whose name is a stop text: neither printed nor run. */
static int
ends(struct generation *a, const struct model *m, uint32_t id)
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

/* Every token that is printed, the last one too when the snapshot is kept, is to be run
 * afterwards, so that tokens, rows and logits of the cache agree. */
int
generation_next(struct generation *a, const struct cache *c, uint32_t *id, struct engine_error *e)
{
	const uint32_t limit = a->options->limit;
	struct generated *g = &a->generated;

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
	generated_add(g, *id);
	report_enter_descriptor(STDOUT_FILENO, REPORT_WRITE);
	a->stopped = print_token(&a->printer, *id);
	report_leave();
	g->n++;
	if (a->stopped) {
		g->stop = STOP_TEXT;
		g->stop_text = a->printer.stopped;
	}
	return a->keep || (!a->stopped && g->n < limit);
}

void
generation_end(struct generation *a)
{
	report_enter_descriptor(STDOUT_FILENO, REPORT_WRITE);
	print_tokens_end(&a->printer);
	report_leave();
}

void
generation_run(struct generation *a, const struct session *s, struct decode *d)
{
	struct engine_error e;
	uint32_t id = UINT32_MAX;
	int rc;

	must(decode_init(d, &e), &e);
	generation_start(a);
	if (a->collect || generation_shows_progress())
		progress_start("decode", a->options->limit, "tokens");
	while ((rc = generation_next(a, d->cache, &id, &e)) == 1) {
		report_step_begin();
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
	generation_end(a);
	if (a->keep)
		must(decode_finish(d, &e), &e);
	if (d->generator != NULL)
		session_note_steps(s, generator_launches(d->generator),
		    generator_capture_failed(d->generator));
	decode_free(d);
}
