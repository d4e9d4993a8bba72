/* kv-critical - critical footprints of a table: the smallest KV footprint at which each method
 * keeps a share of the full score (PruLong, Bhaskar et al. 2025) */
#include <math.h>
#include <stdio.h>

#include "cli/terminal_escape.h"
#include "cli/json.h"
#include "cli/score_table.h"
#include "cli/tool.h"

static double full_score = NAN, keep = 0.9;     /* NaN: not given */

static const struct opt opts[] = {
	{ 0, "full", OPT_REAL, &full_score, 0, "SCORE",
	    "score of the full cache (that of the method full in the table)", OPT_HOW },
	{ 0, "keep", OPT_SHARE, &keep, 0, "SHARE",
	    "share of the full score to keep (0.9)", OPT_HOW },
	{ .name = NULL }
};

static const struct tool tool = {
	.name = "kv-critical",
	.synopsis = "[-qv] [--full SCORE] [--json] [--keep SHARE] [--report FILE] [table]",
	.example = "kv-critical --full 0.95 scores.tsv",
	.opts = opts,
	.takes = TAKES_JSON,
	.max_operands = 1
};

static const char *const kind_mark[] = { "<", "", ">" };
static const char *const kind_name[] = { "below", "at", "above" };

static json_t *
crossing_json(const struct crossing *c)
{
	json_t *o = json_object();

	put_value(o, kind_name[c->kind], json_real(c->at));
	return o;
}

static json_t *
critical_json(const struct verdict *v)
{
	json_t *o = json_object();

	put_text(o, "method", v->method);
	put_value(o, "critical", crossing_json(&v->at.stays));
	put_value(o, "first", crossing_json(&v->at.first));
	put_value(o, "reached", json_string(verdict_word(v)));
	return o;
}

static void
print_crossing(const struct crossing *c)
{
	char text[40];

	snprintf(text, sizeof text, "%s%.6g", kind_mark[c->kind], c->at);
	printf("%10s ", text);
}

static void
print_critical(const struct verdict *v)
{
	print_crossing(&v->at.stays);
	print_crossing(&v->at.first);
	printf("%-13s %s\n", verdict_word(v), shown(v->method));
}

static void
print_table(const char *table)
{
	struct score_table t;
	struct verdict v;
	json_t *list = json_array();

	score_table_read(&t, table, full_score);
	if (!settings.json)
		printf("score %.6g, %g of %.6g\n%10s %10s %-13s %s\n", keep * t.full, keep, t.full,
		    "critical", "first", "reached", "method");
	while (score_table_next(&t, keep * t.full, &v))
		if (settings.json)
			json_array_append_new(list, critical_json(&v));
		else
			print_critical(&v);
	if (settings.json)
		print_json(list);
	else
		json_decref(list);
	score_table_free(&t);
}

int
main(int argc, char **argv)
{
	const int first = tool_start(&tool, argc, argv);

	print_table(operand(argc, argv, first));
	return finish();
}
