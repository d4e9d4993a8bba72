/* headmask.c - masks of streaming heads: KV heads that keep only the ends of the text
 *
 * DuoAttention (Xiao et al. 2024) and PruLong (Bhaskar et al. 2025) learn for each KV head how
 * much it needs the whole text. The heads that need it least keep only the first and the last
 * positions ("streaming"). The masks are published as tables of numbers, a line for each layer.
 *
 * DuoAttention cuts at a quantile of the numbers and adds noise against ties; kvpress streams
 * the round(n * sparsity) smallest in the order of its sort. Here it is that number, and ties
 * have a fixed order. */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "methods/methods.h"

enum { MOST = 4096 };           /* layers and KV heads, kv-snapshot(5), 4.1 */

static int
is_blank(char c)
{
	return c == ' ' || c == '\t' || c == ',' || c == '\r';
}

/* full[] <- the numbers of one line. Returns how many, or -1 with why. */
static int
parse_line(double *full, const char *p, const char *end, char *why, size_t size)
{
	int n = 0;
	char *after;

	for (;; p = after) {
		while (p < end && is_blank(*p))
			p++;
		if (p == end || *p == '#')
			return n;
		if (n == MOST) {
			snprintf(why, size, "column %d: no layer has so many heads", n + 1);
			return -1;
		}
		full[n++] = strtod(p, &after);
		if (after == p || (after < end && !is_blank(*after) && *after != '#') ||
		    !isfinite(full[n - 1])) {
			snprintf(why, size, "column %d: '%.*s' is not a number", n,
			    (int)strcspn(p, " \t,\r\n#"), p);
			return -1;
		}
		full[n - 1] = fmin(fmax(full[n - 1], 0), 1);
	}
}

/* Adds a line of n numbers. */
static int
add_line(struct head_mask *mask, const double *line, uint32_t n, char *why, size_t size)
{
	double *full;

	if (mask->layers > 0 && n != mask->heads) {
		snprintf(why, size, "column %u: the lines before have %u numbers, this one %u",
		    (n < mask->heads ? n : mask->heads) + 1, mask->heads, n);
		return MASK_ETEXT;
	}
	if (mask->layers == MOST) {
		snprintf(why, size, "column 1: more lines than a model has layers");
		return MASK_ETEXT;
	}
	mask->heads = n;
	full = realloc(mask->full, ((size_t)mask->layers + 1) * n * sizeof *full);
	if (full == NULL)
		return MASK_ENOMEM;
	memcpy(full + (size_t)mask->layers++ * n, line, n * sizeof *full);
	mask->full = full;
	return MASK_OK;
}

int
head_mask_parse(struct head_mask *out, const char *text, size_t len, char *why, size_t size)
{
	const char *p = text, *end;
	double line[MOST];
	char what[160] = "column 1: there are no numbers";
	unsigned number = 1;
	int n, code = MASK_OK;

	memset(out, 0, sizeof *out);
	for (; code == MASK_OK && p < text + len; p = end + 1, number++) {
		if ((end = memchr(p, '\n', (size_t)(text + len - p))) == NULL)
			end = text + len;
		if ((n = parse_line(line, p, end, what, sizeof what)) < 0)
			code = MASK_ETEXT;
		else if (n > 0)
			code = add_line(out, line, (uint32_t)n, what, sizeof what);
		if (code == MASK_ETEXT)
			snprintf(why, size, "line %u %s", number, what);
	}
	if (code == MASK_OK && out->layers == 0) {
		snprintf(why, size, "line 1 %s", what);
		code = MASK_ETEXT;
	}
	if (code != MASK_OK)
		head_mask_free(out);
	return code;
}

void
head_mask_free(struct head_mask *mask)
{
	free(mask->full);
	memset(mask, 0, sizeof *mask);
}

struct ranked_head {
	double full;
	size_t at;              /* layer * heads + head */
};

static int
by_need(const void *a, const void *b)
{
	const struct ranked_head *x = a, *y = b;

	if (x->full != y->full)
		return x->full < y->full ? -1 : 1;
	return x->at < y->at ? -1 : 1;
}

int
head_mask_cut(const struct head_mask *mask, double sparsity, uint8_t *streaming)
{
	size_t n = (size_t)mask->layers * mask->heads, streams, i;
	struct ranked_head *order;

	if (sparsity < 0) {
		for (i = 0; i < n; i++)
			streaming[i] = mask->full[i] < 0.5;
		return 0;
	}
	if ((order = malloc(n * sizeof *order)) == NULL)
		return -1;
	for (i = 0; i < n; i++)
		order[i] = (struct ranked_head){ mask->full[i], i };
	qsort(order, n, sizeof *order, by_need);
	streams = (size_t)rint((double)n * sparsity);
	for (i = 0; i < n; i++)
		streaming[order[i].at] = i < streams;
	free(order);
	return 0;
}
