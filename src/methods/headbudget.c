/* headbudget.c - budgets of KV heads that another program has made
 *
 * Allocators give each KV head of each layer a budget of its own, once for a model: HeadKV (Fu et
 * al. 2024) by how much a head retrieves, LU-KV by a curve of loss. The file has numbers of rows,
 * or shares of them, so any allocator can write it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "methods/headtable.h"

/* "0.25", "1e-1" and "25%" are shares, "120" is a number of rows. */
static int
read_budget(void *item, const char *word)
{
	struct head_budget *budget = item;
	const size_t n = strlen(word);
	const int percent = n > 0 && word[n - 1] == '%';
	char *end;

	*budget = (struct head_budget){ .rate = -1 };
	if (word[strspn(word, "0123456789.eE+-")] != '\0' && !percent)
		return 0;
	if (strpbrk(word, ".eE") == NULL && !percent) {
		const unsigned long rows = strtoul(word, &end, 10);

		budget->rows = (uint32_t)rows;
		return word[0] != '-' && word[0] != '+' && *end == '\0' && rows < UINT32_MAX;
	}
	budget->rate = strtod(word, &end) / (percent ? 100 : 1);
	return end != word && end == word + n - (size_t)percent && budget->rate >= 0 &&
	    budget->rate <= 1;
}

int
head_budgets_parse(struct head_budgets *out, const char *text, size_t len, char *why, size_t size)
{
	struct head_table table = { .size = sizeof *out->budget, .read = read_budget,
		.wanted = "neither a number of rows nor a share such as 0.25 or 25%" };
	const int code = head_table_parse(&table, text, len, why, size);

	*out = (struct head_budgets){ table.layers, table.heads, table.item };
	return code;
}

void
head_budgets_free(struct head_budgets *budgets)
{
	free(budgets->budget);
	memset(budgets, 0, sizeof *budgets);
}
