/* decode_print.c - prints generated tokens, as text or as ids */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/decode_print.h"
#include "cli/options.h"
#include "cli/terminal_escape.h"

static void
write_failed(const FILE *to)
{
	if (to == stdout)
		stdout_failed(NULL);
	die(EXIT_RUN, "out of memory");
}

static void
write_text(struct token_printer *p, const char *s, size_t n)
{
	FILE *to = p->to != NULL ? p->to : stdout;

	if (n == 0 || p->ids)
		return;
	if (write_shown(to, s, n) != 0 || fflush(to) != 0)
		write_failed(to);
	p->last = s[n - 1];
}

/* Returns how many bytes at the end of s[n] may begin a stop text. */
static size_t
may_become_stop(const struct strings *stops, const char *s, size_t n)
{
	size_t i, k, best = 0;

	for (i = 0; i < stops->n; i++)
		for (k = strlen(stops->at[i]) - 1; k > best; k--)
			if (k <= n && memcmp(s + n - k, stops->at[i], k) == 0)
				best = k;
	return best;
}

/* Writes what cannot belong to a stop text. Returns 1 once a stop text is found. */
static int
print_held(struct token_printer *p)
{
	const char *stop = NULL, *at;
	size_t i, keep;

	for (i = 0; i < p->stops->n; i++) {
		at = memmem(p->held, p->n, p->stops->at[i], strlen(p->stops->at[i]));
		if (at != NULL && (stop == NULL || at < stop)) {
			stop = at;
			p->stopped = p->stops->at[i];
		}
	}
	if (stop != NULL) {
		write_text(p, p->held, (size_t)(stop - p->held));
		p->ended = p->total - p->n + (uint64_t)(stop - p->held);
		p->n = p->utf8.n = 0;
		return 1;
	}
	keep = may_become_stop(p->stops, p->held, p->n);
	write_text(p, p->held, p->n - keep);
	memmove(p->held, p->held + p->n - keep, keep);
	p->n = keep;
	return 0;
}

int
token_stops(struct token_printer *p, uint32_t id)
{
	int special = 0;
	const char *bytes;
	size_t i, len;

	bytes = p->tokenizer == NULL || p->stops->n == 0 ? NULL :
	    tokenizer_bytes(p->tokenizer, id, &len, &special);
	for (i = 0; special && bytes != NULL && i < p->stops->n; i++)
		if (strlen(p->stops->at[i]) == len && memcmp(p->stops->at[i], bytes, len) == 0) {
			p->stopped = p->stops->at[i];
			return 1;
		}
	return 0;
}

int
print_token(struct token_printer *p, uint32_t id)
{
	FILE *to = p->to != NULL ? p->to : stdout;
	size_t len = 0;
	int special = 0;
	const char *bytes = p->tokenizer == NULL ? NULL :
	    tokenizer_bytes(p->tokenizer, id, &len, &special);

	if (p->ids && ((to == stdout ? printf("%u\n", id) :
	    fprintf(to, "%s%u", p->last != 0 ? " " : "", id)) < 0 || fflush(to) != 0))
		write_failed(to);
	if (p->ids)
		p->last = ' ';
	if (bytes == NULL || special)
		return 0;
	if (p->n + 3 * (len + 4) > p->capacity) {
		p->capacity = 2 * p->capacity + 3 * (len + 4);
		if ((p->held = realloc(p->held, p->capacity)) == NULL)
			die(EXIT_RUN, "no memory for %zu bytes of text", p->capacity);
	}
	len = utf8_push(&p->utf8, bytes, len, p->held + p->n);
	p->n += len;
	p->total += len;
	return print_held(p);
}

uint64_t
print_held_from(const struct token_printer *p)
{
	return p->total - p->n;
}

/* A character has at most four bytes, and begins at the last lead byte among them. */
void
print_tokens_behind(struct token_printer *p, const uint32_t *ids, size_t n)
{
	char out[3 * (4 + 4)];
	const char *bytes;
	size_t from, found = 0, len;
	int special;

	for (from = n; p->tokenizer != NULL && from > 0 && found < 4; from--) {
		bytes = tokenizer_bytes(p->tokenizer, ids[from - 1], &len, &special);
		found += bytes != NULL && !special ? len : 0;
	}
	for (; p->tokenizer != NULL && from < n; from++) {
		bytes = tokenizer_bytes(p->tokenizer, ids[from], &len, &special);
		if (bytes != NULL && !special)
			utf8_push(&p->utf8, len > 4 ? bytes + len - 4 : bytes, len > 4 ? 4 : len,
			    out);
	}
}

void
print_tokens_end(struct token_printer *p)
{
	char tail[4];

	write_text(p, p->held, p->n);
	if (!p->goes_on)
		write_text(p, tail, utf8_flush(&p->utf8, tail));
	if (!p->ids && p->to == NULL && isatty(STDOUT_FILENO) && p->last != '\n')
		write_text(p, "\n", 1);
	free(p->held);
}
