/* diff_scores_print.c - prints the comparison of two snapshots' scores, as text and as JSON */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "cli/terminal_escape.h"
#include "cli/json.h"
#include "cli/diff_scores_print.h"
#include "cli/diff_print.h"

/* ---- text ---- */

/* The columns to print. */
struct columns {
	int orders;             /* both have scores */
	int mass;               /* some rows are gone, and the remaining scores are a mass */
	int heads;
	uint32_t rates;
};

static struct columns
columns_of(const struct diff_scores *c)
{
	return (struct columns){ .orders = c->all.recalls > 0, .rates = c->rates,
	    .mass = c->all.mass.whole > 0 && (c->all.only_a > 0 || c->all.recalls == 0),
	    .heads = c->heads.size > 0 };
}

static void
print_labels(const struct diff_scores *c)
{
	printf("scores   a: %s\n", shown(c->a.score_label));
	if (c->b.score_label[0] != '\0')
		printf("         b: %s\n", shown(c->b.score_label));
	if (c->all.infinite > 0)
		printf("+inf     %" PRIu64 " rows of a: always kept, in no mass\n",
		    c->all.infinite);
	if (c->negative < c->L)
		printf("below 0  scores of a, first in layer %" PRIu32 ": they are no mass\n",
		    c->negative);
}

static void
print_titles(const struct columns *col, const double *rate)
{
	char title[32];
	uint32_t i;

	printf("%9s %9s %9s", "both", "only a", "only b");
	if (col->orders)
		printf(" %9s", "tau");
	for (i = 0; col->orders && i < col->rates; i++) {
		snprintf(title, sizeof title, "at %g%%", 100 * rate[i]);
		printf(" %9s", title);
	}
	if (col->mass)
		printf(" %9s %9s %9s %9s", "kept", "best", "regret", "shared");
	printf("  %5s%s\n", "layer", col->heads ? "  head" : "");
}

/* percent: x is a share of 1 */
static void
print_number(double x, int percent)
{
	if (isnan(x))
		printf(" %9s", "-");
	else if (percent)
		printf(" %8.2f%%", 100 * x);
	else
		printf(" %9.4f", x);
}

/* head: NULL: no such column. one: of a single KV head */
static void
print_line(const struct columns *col, const struct agreement *x, int one, const char *layer,
    const char *head)
{
	uint32_t i;

	printf("%9" PRIu64 " %9" PRIu64 " %9" PRIu64, x->both, x->only_a, x->only_b);
	if (col->orders)
		print_number(agreement_tau(x), 0);
	for (i = 0; col->orders && i < col->rates; i++)
		print_number(agreement_recall(x, i), 1);
	if (col->mass) {
		print_number(agreement_kept(x), 1);
		print_number(agreement_best(x), 1);
		print_number(agreement_regret(x), 1);
		print_number(one ? NAN : agreement_shared_regret(x), 1);
	}
	printf("  %5s", layer);
	if (head != NULL)
		printf("  %4s", head);
	putchar('\n');
}

void
diff_scores_print(struct diff_scores *c)
{
	const struct columns col = columns_of(c);
	char layer[16], head[16];
	uint32_t l, g;

	print_compared(&c->a, &c->b, &c->tokens);
	print_labels(c);
	print_titles(&col, c->rate);
	print_line(&col, &c->all, 0, "all", col.heads ? "all" : NULL);
	for (l = 0; l < c->L; l++) {
		snprintf(layer, sizeof layer, "%" PRIu32, l);
		if (!col.heads)
			print_line(&col, &c->layer[l], 0, layer, NULL);
		for (g = 0; col.heads && g < c->G; g++) {
			snprintf(head, sizeof head, "%" PRIu32, g);
			print_line(&col, spool_next(&c->heads), 1, layer, head);
		}
	}
}

/* ---- JSON ---- */

static json_t *
agreement_json(const struct diff_scores *c, const struct agreement *x, int one)
{
	json_t *o = json_object(), *recall = json_array();
	uint32_t i;

	put_count(o, "both", x->both);
	put_count(o, "only_a", x->only_a);
	put_count(o, "only_b", x->only_b);
	put_count(o, "infinite", x->infinite);
	put_real(o, "tau", agreement_tau(x));
	for (i = 0; i < c->rates; i++)
		json_array_append_new(recall, isnan(agreement_recall(x, i)) ? json_null() :
		    json_real(agreement_recall(x, i)));
	put_value(o, "recall", recall);
	put_real(o, "kept", agreement_kept(x));
	put_real(o, "best", agreement_best(x));
	put_real(o, "regret", agreement_regret(x));
	if (!one) {
		put_real(o, "best_shared", agreement_shared(x));
		put_real(o, "regret_shared", agreement_shared_regret(x));
	}
	return o;
}

static json_t *
snapshot_json(const struct layer_reader *s, uint64_t rows)
{
	json_t *o = compared_json(s, rows);

	if (s->score_label[0] != '\0')
		put_text(o, "scores", s->score_label);
	else
		put_value(o, "scores", json_null());
	return o;
}

static json_t *
layer_json(struct diff_scores *c, uint32_t l)
{
	json_t *o = agreement_json(c, &c->layer[l], 0), *heads = json_array();
	uint32_t g;

	for (g = 0; g < c->G; g++)
		json_array_append_new(heads, agreement_json(c, spool_next(&c->heads), 1));
	put_value(o, "heads", heads);
	return o;
}

void
diff_scores_print_json(struct diff_scores *c)
{
	json_t *o = agreement_json(c, &c->all, 0), *rates = json_array();
	uint32_t l, i;

	for (i = 0; i < c->rates; i++)
		json_array_append_new(rates, json_real(c->rate[i]));
	put_value(o, "rates", rates);
	put_value(o, "a", snapshot_json(&c->a, c->a_rows));
	put_value(o, "b", snapshot_json(&c->b, c->b_rows));
	put_tokens(o, &c->tokens);
	put_text(o, "reference", "a");
	print_json_begin(o, "layers");
	for (l = 0; l < c->L; l++)
		print_json_element(layer_json(c, l));
	print_json_end();
}
