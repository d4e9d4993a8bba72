/* kvfile_dump.c - codecs of sections against the vectors: what the loaders give of each, printed as
 * tests/format/kvread.py prints it, is what that reader has recorded in its .dump
 *
 * Neither the vectors nor the reader know of this code. Values are compared as numbers: 16 of each
 * list, as many as a .dump has. */

#include "kvfile_sample.h"

#include "libkvfile/codec.h"

#include <dirent.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#ifndef VECTORS
#define VECTORS "formats/vectors"
#endif

/* A dump, and how many of its lines have been asked for. */
struct dump {
	const char *name;
	char *text;
	int found;
};

typedef unsigned long long ull;

/* What follows these words at the front of a line, or NULL. */
static const char *
line_of(const struct dump *d, const char *words)
{
	size_t n = strlen(words);
	const char *p;

	for (p = d->text; p != NULL; p = strchr(p, '\n')) {
		p += *p == '\n';
		if (strncmp(p, words, n) == 0)
			return p + n;
	}
	return NULL;
}

/* There is a line with just this text. */
static void __attribute__((format(printf, 2, 3)))
has(struct dump *d, const char *fmt, ...)
{
	const char *rest;
	char line[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line, sizeof line, fmt, ap);
	va_end(ap);
	rest = line_of(d, line);
	check(rest != NULL && (*rest == '\n' || *rest == '\0'), "%s: there is no '%s'", d->name,
	    line);
	d->found++;
}

/* There is a line of these words and the first 16 of n values, "-" for none. */
static void __attribute__((format(printf, 4, 5)))
has_values(struct dump *d, const float *value, uint64_t n, const char *fmt, ...)
{
	const char *at;
	char words[200], *end;
	uint64_t i;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(words, sizeof words, fmt, ap);
	va_end(ap);
	d->found++;
	if (!check((at = line_of(d, words)) != NULL, "%s: there is no '%s'", d->name, words))
		return;
	for (i = 0; i < n && i < 16; i++, at = end)
		if (!check(strtof(at, &end) == value[i] && end > at, "%s: %s: value %llu is %g",
		    d->name, words, (ull)i, (double)value[i]))
			return;
	check(n > 0 || strncmp(at, " -", 2) == 0, "%s: %s: values", d->name, words);
}

static ull
hash(const void *data, size_t n)
{
	return XXH3_64bits(data, n);
}

/* ---- sections ---- */

static void
see_tokens(struct dump *d, struct kv_reader *r)
{
	char text[400] = "";
	struct kv_tokens t;
	uint64_t i;

	check(kv_load_tokens(r, &t) == KV_OK, "%s", kv_reader_error(r));
	for (i = 0; i < t.n && i < 16; i++)
		sprintf(text + strlen(text), " %u", t.id[i]);
	has(d, "tokens %llu:%s", (ull)t.n, text);
}

static void
see_sinks(struct dump *d, struct kv_reader *r, uint32_t l)
{
	const uint32_t H = kv_reader_head(r)->model.query_heads;
	const float *sinks;

	check(kv_load_sinks(r, &sinks) == KV_OK, "%s", kv_reader_error(r));
	has(d, "layer %u sinks %016llx", l, hash(sinks, H * sizeof *sinks));
}

static void
see_queries(struct dump *d, struct kv_reader *r, uint32_t l)
{
	const struct kv_head *head = kv_reader_head(r);
	const struct kv_model *m = &head->model;
	size_t row = m->head_width * kv_dtype_size(head->dtype);
	struct kv_queries q;

	check(kv_load_queries(r, &q) == KV_OK, "%s", kv_reader_error(r));
	has(d, "layer %u queries %u source %d positions %u..%u data %016llx", l, q.n,
	    q.n_own > 0 ? 2 : 1, q.pos[0], q.pos[q.n - 1], hash(q.q, row * m->query_heads * q.n));
	if (q.n_own > 0)
		has(d, "layer %u own keys %016llx", l, hash(q.own, row * m->kv_heads * q.n_own));
}

static void
see_query_stats(struct dump *d, struct kv_reader *r, uint32_t l)
{
	const struct kv_model *m = &kv_reader_head(r)->model;
	struct kv_query_stats s;
	size_t all = 8 * (size_t)kv_query_stats_numbers(m, l);

	check(kv_load_query_stats(r, &s) == KV_OK, "%s", kv_reader_error(r));
	has(d, "layer %u query statistics first %u queries %u sums %016llx moduli %016llx "
	    "products %016llx", l, s.first, s.n, hash(s.sum, (size_t)(s.modulus - s.sum) * 8),
	    hash(s.modulus, (size_t)(s.product - s.modulus) * 8),
	    hash(s.product, all - (size_t)(s.product - s.sum) * 8));
}

static void
see_values(struct dump *d, struct kv_reader *r, const struct kv_section *sec)
{
	const struct kv_model *m = &kv_reader_head(r)->model;
	const struct kv_rows *rows = kv_current_rows(r);
	const char *name = sec->kind == KV_MASS ? "mass" : sec->kind == KV_PAID ? "paid" :
	    sec->kind == KV_VNRM ? "value norms" : sec->kind == KV_GATE ? "gate scores" :
	    sec->kind == KV_NCAU ? "non-causal" : "scores";
	const float *at;
	struct kv_values v;
	const uint32_t lists = kv_values_lists(sec->kind, m), l = sec->layer;
	uint32_t g, h;

	check(kv_load_values(r, &v) == KV_OK, "%s", kv_reader_error(r));
	if (v.label != NULL)
		has(d, "layer %u %s \"%s\"", l, name, v.label);
	for (g = 0, at = v.value; g < rows->heads; g++)
		for (h = 0; h < lists; h++) {
			if (sec->kind == KV_SCOR || sec->kind == KV_GATE || sec->kind == KV_NCAU)
				has_values(d, at, rows->count[g], "layer %u head %u %s", l, g,
				    name);
			else
				has_values(d, at, rows->count[g], "layer %u head %u query %u %s",
				    l, g, h, name);
			at = at != NULL ? at + rows->count[g] : NULL;
		}
	check(v.n == (uint64_t)(at - v.value), "%s: %llu values", d->name, (ull)v.n);
}

static void
see_entries(struct dump *d, struct kv_reader *r, uint32_t l, const struct kv_index *x)
{
	const struct kv_head *head = kv_reader_head(r);
	const struct kv_rows *rows = kv_current_rows(r);
	size_t size = kv_entry_size(x->kind, x->entries.rows, head->model.head_width, head->dtype);
	const char *at = x->entries.data;
	uint64_t n, sum = 0;
	uint32_t g;

	for (g = 0; g < rows->heads; g++, at += n * size, sum += n) {
		n = rows->count[g] / x->entries.rows;
		has(d, "layer %u head %u %s of %u rows: %016llx", l, g,
		    x->kind == KV_BITS ? "bits" : "pages", x->entries.rows, hash(at, n * size));
	}
	check(sum == x->entries.n, "%s: %llu entries", d->name, (ull)x->entries.n);
}

static void
see_clusters(struct dump *d, struct kv_reader *r, uint32_t l, const struct kv_clusters *c)
{
	const struct kv_head *head = kv_reader_head(r);
	size_t row = head->model.head_width * kv_dtype_size(head->dtype);
	const uint32_t *label = c->label;
	const char *mean = c->mean;
	char text[400];
	uint32_t g, i, n;

	for (g = 0; g < head->model.kv_heads; g++, label += n) {
		n = c->end[g] > c->sink ? c->end[g] - c->sink : 0;
		strcpy(text, n > 0 ? "" : " -");
		for (i = 0; i < n && i < 32; i++)
			sprintf(text + strlen(text), " %u", label[i]);
		has(d, "layer %u head %u clusters of rows from %u below %u:%s means %016llx", l, g,
		    c->sink, c->end[g], text, hash(mean, c->count[g] * row));
		mean += c->count[g] * row;
	}
}

static void
see_low_rank(struct dump *d, struct kv_reader *r, uint32_t l, const struct kv_low_rank *x)
{
	const struct kv_head *head = kv_reader_head(r);
	size_t element = kv_dtype_size(head->dtype), row = head->model.head_width * element;
	size_t right = row * x->rank, landmark = x->n / x->chunk * row;
	const char *right_at = x->right, *landmark_at = x->landmark;
	char text[400];
	uint32_t g, i;

	has(d, "layer %u low rank %u of %u rows in chunks of %u: %016llx", l, x->rank, x->n,
	    x->chunk, hash(x->left, (size_t)x->n * x->rank * element));
	for (g = 0; g < head->model.kv_heads; g++) {
		strcpy(text, x->n_exact > 0 ? "" : " -");
		for (i = 0; i < x->n_exact && i < 32; i++)
			sprintf(text + strlen(text), " %u", x->exact[g * x->n_exact + i]);
		has(d, "layer %u head %u low rank %016llx landmarks %016llx exact%s", l, g,
		    hash(right_at + g * right, right), hash(landmark_at + g * landmark, landmark),
		    text);
	}
}

static void
see_index(struct dump *d, struct kv_reader *r, uint32_t l)
{
	struct kv_index x;

	check(kv_load_index(r, &x) == KV_OK, "%s", kv_reader_error(r));
	if (x.kind == KV_CLUS)
		see_clusters(d, r, l, &x.clusters);
	else if (x.kind == KV_LOWR)
		see_low_rank(d, r, l, &x.low_rank);
	else
		see_entries(d, r, l, &x);
}

static void
see_head_keys(struct dump *d, struct kv_reader *r)
{
	struct kv_head_keys k;

	check(kv_load_head_keys(r, &k) == KV_OK, "%s", kv_reader_error(r));
	has(d, "retrieval head %s keys %u heads %u width %u: %016llx", k.id, k.n, k.heads, k.width,
	    hash(k.key, (size_t)k.heads * k.n * k.width * kv_dtype_size(kv_reader_head(r)->dtype)));
	has_values(d, k.feature, k.n_feature, "retrieval head features %u:", k.n_feature);
}

static void
see_section(struct dump *d, struct kv_reader *r, const struct kv_section *sec)
{
	const float *logits;

	if (sec->kind == KV_TOKS)
		see_tokens(d, r);
	else if (sec->kind == KV_SINK)
		see_sinks(d, r, sec->layer);
	else if (sec->kind == KV_OBSQ)
		see_queries(d, r, sec->layer);
	else if (sec->kind == KV_QSTA)
		see_query_stats(d, r, sec->layer);
	else if (kv_kind_is(sec->kind, KV_PER_ROW) || sec->kind == KV_SCOR)
		see_values(d, r, sec);
	else if (kv_kind_is(sec->kind, KV_INDEX))
		see_index(d, r, sec->layer);
	else if (sec->kind == KV_RHDK)
		see_head_keys(d, r);
	else if (sec->kind == KV_LGTS && check(kv_load_logits(r, &logits) == KV_OK, "logits"))
		has_values(d, logits, sec->raw_size / 4, "logits %llu:", (ull)sec->raw_size / 4);
}

/* Lines of the dump that a loader has to answer for. */
static int
lines_about_codecs(const char *text)
{
	static const char *const words[] = { " sinks ", " queries ", " own keys ", " mass ",
	    " paid ", " value norms ", " scores ", " non-causal ", " bits of ", " pages of ",
	    " clusters of ",
	    " low rank ", "tokens ",
	    "logits ", "retrieval head " };
	char line[2048];
	int n = 0, hit;
	size_t i, size;

	for (; *text != '\0'; text += size + (text[size] == '\n')) {
		size = strcspn(text, "\n");
		snprintf(line, sizeof line, "%.*s", (int)size, text);
		for (i = hit = 0; i < sizeof words / sizeof *words; i++)
			hit |= words[i][0] == ' ' ? strncmp(line, "layer ", 6) == 0 &&
			    strstr(line, words[i]) != NULL : strncmp(line, words[i],
			    strlen(words[i])) == 0;
		n += hit;
	}
	return n;
}

static void
see_vector(const char *name)
{
	struct kv_section sec;
	struct kv_reader *r;
	struct dump d = { .name = name };
	struct bytes b;
	char file[600];
	int code;

	snprintf(file, sizeof file, VECTORS "/passed/%s.dump", name);
	b = slurp(file);
	if (!check(b.size > 0, "%s: no dump", name))
		return;
	d.text = realloc(b.data, b.size + 1);
	d.text[b.size] = '\0';
	snprintf(file, sizeof file, VECTORS "/passed/%s.kv", name);
	check(kv_open(file, &r) == KV_OK, "%s", kv_reader_error(r));
	while ((code = kv_next(r, &sec)) == 1)
		see_section(&d, r, &sec);
	check(code == 0, "%s", kv_reader_error(r));
	check(d.found == lines_about_codecs(d.text), "%s: %d lines, the dump has %d", name, d.found,
	    lines_about_codecs(d.text));
	kv_close(r);
	free(d.text);
}

int
main(void)
{
	DIR *dir = opendir(VECTORS "/passed");
	const struct dirent *e;
	char name[256], *dot;
	int n = 0;

	while (dir != NULL && (e = readdir(dir)) != NULL) {
		snprintf(name, sizeof name, "%s", e->d_name);
		if ((dot = strrchr(name, '.')) == NULL || strcmp(dot, ".kv") != 0)
			continue;
		*dot = '\0';
		see_vector(name);
		n++;
	}
	if (dir != NULL)
		closedir(dir);
	check(n > 20, "only %d vectors", n);
	return check_done();
}
