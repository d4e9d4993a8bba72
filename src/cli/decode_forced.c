/* decode_forced.c - kv-decode --force (teacher forcing) */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/decode_forced.h"
#include "cli/json.h"
#include "cli/logits_file.h"
#include "cli/npy.h"
#include "cli/positions.h"
#include "cli/progress.h"
#include "cli/report.h"
#include "cli/terminal_escape.h"
#include "cli/text_input.h"
#include "cli/tool.h"

struct decode_forced_options decode_forced_options;

void
opt_forced(void)
{
	const struct decode_forced_options *o = &decode_forced_options;

	if (o->text == NULL && (o->logits != NULL || o->against != NULL))
		die(EXIT_USAGE,
		    "--%s: logits are compared at the same tokens: give them with --force",
		    o->logits != NULL ? "logits" : "against");
	logits_file_check(o->logits, "likelihoods", (const char *[]){ o->text, o->against }, 2);
}

void
decode_forced_read(struct decode_forced *f, const struct session *s, unsigned flags)
{
	const char *path = decode_forced_options.text, *name = path_name(path);
	const uint32_t V = s->model->id.vocabulary;
	char *text;
	size_t size;

	*f = (struct decode_forced){ .each = NULL };
	(decode_forced_options.ids ? must_read_list : must_read_prose)(path, &text, &size);
	if (decode_forced_options.ids)
		parse_ids(name, text, size, V, &f->ids);
	else
		encode_text(s->tokenizer, name, text, size, flags, V, EXIT_DAMAGED, &f->ids);
	free(text);
	refuse_no_token(name, &f->ids);
	if (f->ids.n > UINT32_MAX / 2)
		die(EXIT_DAMAGED, "%s: %zu tokens", name, f->ids.n);
	f->each = must_alloc(f->ids.n, sizeof *f->each);
}

/* The files of logits */
struct files {
	struct logits_file to;
	FILE *from;
	float *reference;               /* [V], or NULL */
};

static void
open_files(struct files *x, const struct decode_forced *f, uint32_t V)
{
	const struct decode_forced_options *o = &decode_forced_options;
	uint64_t rows;

	*x = (struct files){ .from = NULL };
	if (o->against != NULL) {
		x->from = npy_open(o->against, &rows, V);
		if (rows != f->ids.n)
			die(EXIT_MODEL, "%s: logits of %" PRIu64 " tokens, and %s has %zu",
			    o->against, rows, o->text, f->ids.n);
		x->reference = must_alloc(V, sizeof *x->reference);
	}
	logits_file_open(&x->to, o->logits, f->ids.n, V);
}

static void
close_files(struct files *x)
{
	logits_file_close(&x->to);
	if (x->from != NULL)
		fclose(x->from);
	free(x->reference);
}

static void
score_token(struct decode_forced *f, struct files *x, size_t i, const struct cache *c)
{
	const uint32_t V = c->model->id.vocabulary;

	if (x->from != NULL)
		npy_get(x->from, decode_forced_options.against, x->reference, V);
	logits_file_put(&x->to, c->logits);
	if (token_likelihood(&f->each[i], c->logits, x->reference, V, f->ids.ids[i]) != 0)
		die(EXIT_RUN, "position %u: a logit is not finite%s%s", c->next_position,
		    x->from != NULL ? ", of this run or of " : "",
		    x->from != NULL ? decode_forced_options.against : "");
	likelihood_add(&f->sum, &f->each[i]);
}

void
decode_forced_run(struct decode_forced *f, struct decode *d, int keep)
{
	const struct cache *c = d->sequence->cache;
	struct engine_error e;
	struct files x;
	uint32_t next;
	size_t i;

	open_files(&x, f, c->model->id.vocabulary);
	warn_of_positions(c->model, c->next_position + (uint64_t)f->ids.n - !keep);
	progress_start("decode", f->ids.n, "tokens");
	for (i = 0; i < f->ids.n; i++) {
		score_token(f, &x, i, c);
		if (keep || i + 1 < f->ids.n) {
			report_step_begin();
			must(decode_step(d, f->ids.ids[i], &next, &e), &e);
			report_step_end();
		}
		progress(i + 1);
	}
	progress_end();
	close_files(&x);
}

static double
mean(const struct likelihood_sum *s, double sum)
{
	return s->n > 0 ? sum / (double)s->n : 0;
}

void
decode_forced_print(const struct decode_forced *f, const char *name)
{
	const struct likelihood_sum *s = &f->sum;
	const int against = decode_forced_options.against != NULL;

	printf("%8s  %10s  %10s  %7s", "tokens", "nll", "perplexity", "top-1");
	if (against)
		printf("  %10s  %10s  %7s", "kl", "kl, most", "agree");
	printf("  snapshot\n%8" PRIu64 "  %10.6f  %10.4f  %6.2f%%", s->n, mean(s, -s->logprob),
	    likelihood_perplexity(s), 100 * mean(s, (double)s->top));
	if (against)
		printf("  %10.3e  %10.3e  %6.2f%%", mean(s, s->kl), s->kl_most,
		    100 * mean(s, (double)s->agrees));
	printf("  %s\n", shown(name));
}

json_t *
decode_forced_json(const struct decode_forced *f, const char *name)
{
	const struct likelihood_sum *s = &f->sum;
	const int against = decode_forced_options.against != NULL;
	json_t *o = json_object(), *each = json_array(), *one;
	size_t i;

	put_text(o, "snapshot", name);
	put_count(o, "tokens", s->n);
	put_real(o, "logprob", s->logprob);
	put_real(o, "nll", mean(s, -s->logprob));
	put_real(o, "perplexity", likelihood_perplexity(s));
	put_real(o, "top1", mean(s, (double)s->top));
	if (against) {
		put_real(o, "kl", mean(s, s->kl));
		put_real(o, "kl_most", s->kl_most);
		put_real(o, "agreement", mean(s, (double)s->agrees));
	}
	for (i = 0; i < f->ids.n; i++) {
		one = json_object();
		put_count(one, "id", f->ids.ids[i]);
		put_real(one, "logprob", f->each[i].logprob);
		put_value(one, "top", json_boolean(f->each[i].top));
		if (against) {
			put_real(one, "kl", f->each[i].kl);
			put_value(one, "agrees", json_boolean(f->each[i].agrees));
		}
		json_array_append_new(each, one);
	}
	put_value(o, "each", each);
	return o;
}

void
decode_forced_free(struct decode_forced *f)
{
	free(f->ids.ids);
	free(f->each);
}
