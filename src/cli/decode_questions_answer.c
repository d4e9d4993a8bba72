/* decode_questions_answer.c - answers the questions to one snapshot, one after the other */
#include <stdlib.h>

#include "cli/decode_text.h"
#include "cli/json.h"
#include "cli/positions.h"
#include "cli/decode_questions.h"
#include "cli/tool.h"

static void
print_answer(struct decode_result *g, json_t *asked, const char *name)
{
	json_t *o;
	char *text;
	size_t size;

	if (settings.json) {
		o = decode_result_json(g, name);
		put_value(o, "asked", json_incref(asked));
		print_json_line(o);
		return;
	}
	text = decode_result_text(g, &size);
	print_answer_line(text, size);
	free(text);
}

void
questions_answer(struct questions *q, const struct session *s, struct decode *d,
    const struct decode_text_options *options, const char *name, double load)
{
	struct cache_mark mark;
	struct engine_error e;
	size_t i;

	if (cache_mark(d->sequence->cache, &mark) != 0)
		die(EXIT_RUN, "no memory for the cache");
	for (i = 0; i < q->n; i++) {
		const struct question *one = &q->at[i];
		struct decode_text a = { .options = options, .tokenizer = s->tokenizer,
		    .collect = 1,
		    .generated = { .load = load } };
		struct decode_result *g = &a.generated;
		const double t0 = seconds();

		warn_of_positions(d->sequence->cache->model,
		    d->sequence->cache->next_position + (uint64_t)one->ids.n);
		must(decode_ask(d, one->ids.ids, one->ids.n, &e), &e);
		decode_text_run(&a, s, d);
		g->generate = seconds() - t0;
		note("question %zu: %zu tokens, and %u tokens in %.2f s", i + 1, one->ids.n, g->n,
		    g->generate);
		print_answer(g, one->asked, name);
		cache_go_back(d->sequence->cache, &mark);
		sequence_match_lengths(d->sequence);
	}
	free(mark.len);
	questions_free(q);
}
