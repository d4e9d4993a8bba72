/* footprint.c - KV footprint and peak, from an event log or from a configuration; the critical
 * footprint */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "methods/footprint.h"

/* ---- measured ---- */

int
footprint_init(struct footprint *f, uint32_t layers, uint32_t heads, uint64_t tokens)
{
	size_t n = (size_t)layers * heads;

	memset(f, 0, sizeof *f);
	f->layers = layers;
	f->heads = heads;
	f->tokens = tokens;
	f->entries = calloc(n, sizeof *f->entries);
	f->memory = calloc(n, sizeof *f->memory);
	f->peak = calloc(n, sizeof *f->peak);
	f->rows = calloc(n, sizeof *f->rows);
	f->layer_peak = calloc(layers, sizeof *f->layer_peak);
	return f->entries != NULL && f->memory != NULL && f->rows != NULL && f->peak != NULL &&
	    f->layer_peak != NULL ? 0 : -1;
}

void
footprint_free(struct footprint *f)
{
	free(f->entries);
	free(f->memory);
	free(f->rows);
	free(f->peak);
	free(f->layer_peak);
	memset(f, 0, sizeof *f);
}

void
footprint_add(struct footprint *f, const struct kv_event *e)
{
	const uint32_t layers = e->l1 - e->l0;
	uint64_t total = 0, of_layer, there;
	uint32_t l, g, came;
	double found;
	size_t i;

	memcpy(f->rows, e->after, (size_t)f->layers * f->heads * sizeof *f->rows);
	if (e->kind == KV_EVENT_EVICT || (e->kind == KV_EVENT_RUN && f->stored_only))
		return;
	for (l = 0, i = 0; l < f->layers; l++) {
		const int runs = l >= e->l0 && l < e->l1;

		for (of_layer = 0, g = 0; g < f->heads; g++, i++) {
			came = runs && e->kind == KV_EVENT_RUN ? e->n : e->after[i] - e->before[i];
			found = (double)e->n * e->before[i] + (double)triangle(came);
			f->entries[i] += runs ? found : 0;
			f->memory[i] += layers * found;
			there = e->before[i] + (uint64_t)came;
			if (there > f->peak[i])
				f->peak[i] = there;
			of_layer += there;
		}
		if (of_layer > f->layer_peak[l])
			f->layer_peak[l] = of_layer;
		total += of_layer;
	}
	if (total > f->total_peak)
		f->total_peak = total;
}

/* Returns the share of n KV heads from `first` on, which had at most `peak` rows. */
static struct share
share_of(const struct footprint *f, size_t first, size_t n, uint64_t peak)
{
	const double tokens = (double)f->tokens, heads = (double)n;
	const double full = heads * tokens * (tokens + 1) / 2;
	double entries = 0, memory = 0;
	struct share s = { .rows = 0 };
	size_t i;

	for (i = first; i < first + n; i++) {
		entries += f->entries[i];
		memory += f->memory[i];
		s.rows += f->rows[i];
	}
	s.footprint = entries / full;
	s.memory = memory / f->layers / full;
	s.peak = (double)peak / (heads * tokens);
	s.kept = (double)s.rows / (heads * tokens);
	return s;
}

struct share
footprint_all(const struct footprint *f)
{
	return share_of(f, 0, (size_t)f->layers * f->heads, f->total_peak);
}

struct share
footprint_layer(const struct footprint *f, uint32_t l)
{
	return share_of(f, (size_t)l * f->heads, f->heads, f->layer_peak[l]);
}

struct share
footprint_head(const struct footprint *f, uint32_t l, uint32_t g)
{
	size_t i = (size_t)l * f->heads + g;

	return share_of(f, i, 1, f->peak[i]);
}

/* ---- computed ---- */

#define ALWAYS_KEPT 64          /* rows the script keeps besides the rest of a chunk */

static uint32_t
least(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

/* Returns the rows that a streaming head keeps after `seen` tokens. */
static uint32_t
kept_rows(const struct prulong *p, uint32_t seen)
{
	uint32_t recent = least(seen, p->recent);

	return recent + least(seen - recent, p->sink);
}

/* Returns how many rows of a chunk of n stay in an evicting head. Rounds half to even, as
 * Python. */
static uint32_t
survivors(const struct prulong *p, uint32_t n)
{
	double kept = rint((1 - p->sparsity) * n) + ALWAYS_KEPT;

	return kept < n ? (uint32_t)kept : n;
}

struct prulong_result
footprint_prulong(const struct prulong *p)
{
	uint32_t chunk = p->chunk != 0 ? p->chunk : p->prompt, at, n, kept = 0, past = 0, R;
	struct prulong_result r = { .full = triangle(p->prompt + p->generated) };
	double h = p->head_sparsity, point, most = 0;

	for (at = 0; at < p->prompt; at += n) {
		n = least(chunk, p->prompt - at);
		kept = kept_rows(p, at);
		r.streaming += triangle(n) + (uint64_t)n * kept;
		r.evicting += triangle(n) + (uint64_t)n * past;
		point = h * ((double)n + kept) + (1 - h) * ((double)n + past);
		most = point > most ? point : most;
		past += survivors(p, n);
	}
	R = p->generated;
	for (n = 0; n < R; n++) {
		kept = kept_rows(p, p->prompt + n);
		r.streaming += 1 + (uint64_t)kept;
	}
	r.evicting += triangle(R) + (uint64_t)R * past;
	/* for decoding only the last step counts */
	point = h * (1 + (double)kept) + (1 - h) * ((double)R + past);
	if (R > 0 && point > most)
		most = point;
	r.footprint = (h * (double)r.streaming + (1 - h) * (double)r.evicting) / (double)r.full;
	r.peak = most / ((double)p->prompt + R);
	return r;
}

/* ---- critical ---- */

static int
by_footprint(const void *a, const void *b)
{
	double x = ((const struct point *)a)->footprint, y = ((const struct point *)b)->footprint;

	return (x > y) - (x < y);
}

static int
reaches(const struct point *p, double want)
{
	return p->score >= want - 1e-9 * fabs(want);
}

/* Returns where the line from a, below `want`, to b, not below it, reaches `want`. */
static struct crossing
cross(const struct point *a, const struct point *b, double want)
{
	double share = (want - a->score) / (b->score - a->score);

	return (struct crossing){ CROSSED, a->footprint + share * (b->footprint - a->footprint) };
}

struct critical
footprint_critical(struct point *points, size_t n, double want)
{
	struct critical c;
	size_t first, last;

	qsort(points, n, sizeof *points, by_footprint);
	for (first = 0; first < n && !reaches(&points[first], want); first++)
		continue;
	for (last = n; last > 0 && reaches(&points[last - 1], want); last--)
		continue;
	if (first == n)
		c.first = (struct crossing){ ABOVE_GREATEST, points[n - 1].footprint };
	else if (first == 0)
		c.first = (struct crossing){ BELOW_LEAST, points[0].footprint };
	else
		c.first = cross(&points[first - 1], &points[first], want);
	if (last == n)
		c.stays = (struct crossing){ ABOVE_GREATEST, points[n - 1].footprint };
	else if (last == 0)
		c.stays = (struct crossing){ BELOW_LEAST, points[0].footprint };
	else
		c.stays = cross(&points[last - 1], &points[last], want);
	return c;
}
