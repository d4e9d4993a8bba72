/* diff_retrieval_print.c - prints the result of a trial of retrieval, as text and as JSON */
#include <inttypes.h>
#include <stdio.h>

#include "cli/terminal_escape.h"
#include "cli/json.h"
#include "cli/opt_retrieve.h"
#include "cli/opt_rows.h"
#include "cli/diff_retrieval_print.h"
#include "cli/retrieval_report.h"
#include "cli/tool.h"

/* ---- text ---- */

/* head: NULL: no such column */
static void
print_sum(const struct trial_sum *x, const char *layer, const char *head)
{
	const struct retrieval_stats *s = &x->read;
	double n = (double)s->steps;

	if (s->steps == 0)
		printf("%9s %9s %9s %9s %9s %9s %9s %9s %9s", "-", "-", "-", "-", "-", "-", "-",
		    "-", "-");
	else
		printf("%9.1f %9.1f %8.2f%% %8.2f%% %9.3g %9.0f %9.0f %9.0f %8.2f%%",
		    (double)s->rows / n, (double)s->of_rows / n, 100 * s->recall / n,
		    100 * s->mass / n, x->output_error, (double)s->index_bytes / n,
		    (double)s->key_bytes / n, (double)s->value_bytes / n,
		    100 * retrieval_stats_share(s));
	printf("  %5s", layer);
	if (head != NULL)
		printf("  %4s", head);
	putchar('\n');
}

static void
print_head(const struct retrieval_trial *t)
{
	const struct retrieval_options *o = &t->options;
	char words[ROWS_WORDS];

	printf("snapshot  %s: %" PRIu64 " tokens, %s\n", shown(kv_reader_name(t->s.r)),
	    t->s.n_tokens, rows_words(words, t->s.head));
	printf("retrieve  %s, %" PRIu32 " rows, %s; layers below %" PRIu32 " read all\n",
	    retrieve_name(o->method), o->budget, opt_retrieve_reduce(o->reduce), o->dense);
	printf("queries   %" PRIu32, t->queries[t->L - 1]);
	if (t->left_out > 0)
		printf(", without %" PRIu32 " that do not see all rows of the factors",
		    t->left_out);
	putchar('\n');
}

void
diff_retrieval_print(const struct retrieval_trial *t, int heads)
{
	struct trial_sum x = retrieval_trial_layers(t, 0);
	uint32_t first = t->options.dense, l, g;
	char layer[24], head[16];

	print_head(t);
	printf("%9s %9s %9s %9s %9s %9s %9s %9s %9s  %5s%s\n", "rows", "of", "recall", "mass",
	    "error", "index", "keys", "values", "read", "layer", heads ? "  head" : "");
	print_sum(&x, "all", heads ? "all" : NULL);
	if (first > 0 && first < t->L) {
		x = retrieval_trial_layers(t, first);
		snprintf(layer, sizeof layer, "%" PRIu32 "-%" PRIu32, first, t->L - 1);
		print_sum(&x, layer, heads ? "all" : NULL);
	}
	for (l = 0; l < t->L; l++) {
		snprintf(layer, sizeof layer, "%" PRIu32, l);
		if (!heads) {
			x = retrieval_trial_heads(t, l, 0, t->G);
			print_sum(&x, layer, NULL);
		}
		for (g = 0; heads && g < t->G; g++) {
			x = retrieval_trial_heads(t, l, g, g + 1);
			snprintf(head, sizeof head, "%" PRIu32, g);
			print_sum(&x, layer, head);
		}
	}
}

/* ---- JSON ---- */

static json_t *
sum_json(const struct retrieval_trial *t, const struct trial_sum *x)
{
	json_t *o = json_object();

	put_retrieval_means(o, &x->read, &t->options);
	put_real(o, "output_error", x->output_error);
	return o;
}

static json_t *
layer_json(const struct retrieval_trial *t, uint32_t l)
{
	struct trial_sum x = retrieval_trial_heads(t, l, 0, t->G);
	json_t *o = sum_json(t, &x), *heads = json_array(), *head, *list, *query;
	struct attention_compared *lost = t->lost + (size_t)l * t->H;
	uint32_t g, r;

	put_count(o, "layer", l);
	put_count(o, "queries", t->queries[l]);
	for (g = 0; g < t->G; g++) {
		x = retrieval_trial_heads(t, l, g, g + 1);
		head = sum_json(t, &x);
		list = json_array();
		for (r = 0; r < t->R; r++) {
			query = json_object();
			put_real(query, "output_error", output_error(&lost[g * t->R + r]));
			json_array_append_new(list, query);
		}
		put_value(head, "query_heads", list);
		json_array_append_new(heads, head);
	}
	put_value(o, "heads", heads);
	return o;
}

void
diff_retrieval_print_json(const struct retrieval_trial *t)
{
	const struct retrieval_options *r = &t->options;
	const struct trial_sum all = retrieval_trial_layers(t, 0);
	const struct trial_sum some = retrieval_trial_layers(t, r->dense);
	json_t *o = json_object();
	uint32_t l;

	put_text(o, "snapshot", kv_reader_name(t->s.r));
	put_value(o, "dtype", json_string(kv_dtype_name(t->s.head->dtype)));
	put_count(o, "tokens", t->s.n_tokens);
	put_value(o, "retrieve", json_string(retrieve_name(r->method)));
	put_count(o, "budget", r->budget);
	put_value(o, "reduce", json_string(opt_retrieve_reduce(r->reduce)));
	put_count(o, "dense_layers", r->dense);
	put_value(o, "all", sum_json(t, &all));
	put_value(o, "retrieving", sum_json(t, &some));
	print_json_begin(o, "layers");
	for (l = 0; l < t->L; l++)
		print_json_element(layer_json(t, l));
	print_json_end();
}

