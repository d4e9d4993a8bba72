/* diff_print.c - prints the comparison of two snapshots, as text and as JSON */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "cli/terminal_escape.h"
#include "cli/json.h"
#include "cli/diff_print.h"
#include "cli/opt_rows.h"
#include "cli/tool.h"

/* Returns the first layer with queries, or NULL. */
static const struct layer_share *
observed_layer(const struct diff_rows *c)
{
	uint32_t l = 0;

	while (l < c->L && c->layer[l].queries == 0)
		l++;
	return l < c->L ? &c->layer[l] : NULL;
}

/* ---- text ---- */

void
print_compared(const struct layer_reader *a, const struct layer_reader *b,
    const struct tokens_compared *tokens)
{
	char words[ROWS_WORDS];

	printf("a        %s, the reference: %" PRIu64 " tokens, next position %" PRIu32 ", %s\n",
	    shown(kv_reader_name(a->r)), a->n_tokens, a->head->next_position,
	    rows_words(words, a->head));
	printf("b        %s: ", shown(kv_reader_name(b->r)));
	if (tokens->how == TOKENS_SAME)
		printf("the same tokens");
	else if (tokens->how == TOKENS_OTHER)
		printf("%" PRIu64 " tokens, others from token %" PRIu64 " on", b->n_tokens,
		    tokens->common);
	else
		printf("%" PRIu64 " tokens, which %s those of a", b->n_tokens,
		    tokens->how == TOKENS_CONTINUED ? "continue" : "begin");
	printf(", next position %" PRIu32 ", %s\n", b->head->next_position,
	    rows_words(words, b->head));
}

void
warn_smaller_reference(const struct layer_reader *a, uint64_t a_rows, const struct layer_reader *b,
    uint64_t b_rows, const struct tokens_compared *tokens)
{
	if (tokens->how == TOKENS_SAME && a_rows < b_rows)
		warning("%s, the reference, has fewer rows than %s: name it second to measure what "
		    "it lost",
		    kv_reader_name(a->r), kv_reader_name(b->r));
}

static void
print_queries(const struct diff_rows *c)
{
	const struct layer_share *observed = observed_layer(c);

	if (observed != NULL)
		printf("queries  %" PRIu32 " of %s\n", observed->queries,
		    observed->queries_of_b ? "b: a has none" : "a");
	else
		puts("queries  none: no attention is compared (kv-prefill --observe)");
}

static void
print_difference(uint64_t both, uint64_t differ, double difference)
{
	if (both == 0)
		printf(" %9s", "-");
	else if (differ == 0)
		printf(" %9s", "same");
	else
		printf(" %9.3g", difference);
}

/* layer, head: NULL: no such column */
static void
print_share(const struct share *s, int attention, const char *layer, const char *head)
{
	const struct rows_compared *rows = &s->rows;

	printf("%9" PRIu64 " %9" PRIu64 " %9" PRIu64, rows->both, rows->only_a, rows->only_b);
	print_difference(rows->both, rows->keys_differ, rows->key_difference);
	print_difference(rows->both, rows->values_differ, rows->value_difference);
	if (attention && isnan(s->mass))
		printf(" %9s %9s", "-", "-");
	else if (attention)
		printf(" %8.2f%% %9.3g", 100 * s->mass, s->error);
	printf("  %5s", layer);
	if (head != NULL)
		printf("  %4s", head);
	putchar('\n');
}

void
diff_print(struct diff_rows *c)
{
	const int heads = c->heads.size > 0, attention = observed_layer(c) != NULL;
	const struct share all = diff_rows_all(c);
	const struct head_share *one;
	char layer[16], head[16];
	uint32_t l, g;

	print_compared(&c->a, &c->b, &c->tokens);
	print_queries(c);
	printf("%9s %9s %9s %9s %9s%s  %5s%s\n", "both", "only a", "only b", "keys", "values",
	    attention ? "      mass     error" : "", "layer", heads ? "  head" : "");
	print_share(&all, attention, "all", heads ? "all" : NULL);
	for (l = 0; l < c->L; l++) {
		snprintf(layer, sizeof layer, "%" PRIu32, l);
		if (!heads)
			print_share(&c->layer[l].share, attention, layer, NULL);
		for (g = 0; heads && g < c->G; g++) {
			snprintf(head, sizeof head, "%" PRIu32, g);
			one = spool_next(&c->heads);
			print_share(&one->share, attention, layer, head);
		}
	}
}

/* ---- JSON ---- */

json_t *
compared_json(const struct layer_reader *s, uint64_t rows)
{
	json_t *o = json_object();

	put_text(o, "snapshot", kv_reader_name(s->r));
	put_value(o, "dtype", json_string(kv_dtype_name(s->head->dtype)));
	put_count(o, "tokens", s->n_tokens);
	put_count(o, "next_position", s->head->next_position);
	put_count(o, "rows", rows);
	put_count(o, "kv_bytes", s->row_bytes);
	return o;
}

static json_t *
share_json(const struct share *s)
{
	json_t *o = json_object();

	put_count(o, "both", s->rows.both);
	put_count(o, "only_a", s->rows.only_a);
	put_count(o, "only_b", s->rows.only_b);
	put_count(o, "keys_differ", s->rows.keys_differ);
	put_count(o, "values_differ", s->rows.values_differ);
	put_real(o, "key_difference", s->rows.key_difference);
	put_real(o, "value_difference", s->rows.value_difference);
	put_real(o, "mass", s->mass);
	put_real(o, "output_error", s->error);
	return o;
}

static json_t *
head_json(const struct head_share *head, uint32_t R)
{
	json_t *o = share_json(&head->share), *list = json_array(), *query;
	uint32_t r;

	for (r = 0; r < R; r++) {
		query = json_object();
		put_real(query, "mass", head->query[r].mass);
		put_real(query, "output_error", head->query[r].error);
		json_array_append_new(list, query);
	}
	put_value(o, "query_heads", list);
	return o;
}

static json_t *
layer_json(struct diff_rows *c, uint32_t l)
{
	const struct layer_share *layer = &c->layer[l];
	json_t *o = share_json(&layer->share), *heads = json_array();
	uint32_t g;

	put_count(o, "queries", layer->queries);
	put_value(o, "queries_of", layer->queries == 0 ? json_null() :
	    json_string(layer->queries_of_b ? "b" : "a"));
	for (g = 0; g < c->G; g++)
		json_array_append_new(heads, head_json(spool_next(&c->heads), c->R));
	put_value(o, "heads", heads);
	return o;
}

void
put_tokens(json_t *o, const struct tokens_compared *tokens)
{
	static const char *const word[] = { "same", "continued", "beginning", "other" };

	put_value(o, "tokens", json_string(word[tokens->how]));
	put_count(o, "tokens_common", tokens->common);
}

void
diff_print_json(struct diff_rows *c)
{
	const struct share all = diff_rows_all(c);
	json_t *o = share_json(&all);
	uint32_t l;

	put_value(o, "a", compared_json(&c->a, c->a_rows));
	put_value(o, "b", compared_json(&c->b, c->b_rows));
	put_tokens(o, &c->tokens);
	put_value(o, "same", json_boolean(c->same));
	put_text(o, "reference", "a");
	print_json_begin(o, "layers");
	for (l = 0; l < c->L; l++)
		print_json_element(layer_json(c, l));
	print_json_end();
}
