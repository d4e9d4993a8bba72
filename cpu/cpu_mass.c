/* cpu_mass.c - attention mass of rows, and that of an observation window
 *
 * Scores are computed again, with the log-sum-exp of each query row known: no weights are
 * stored. */
#include <math.h>

#include "cpu/cpu_attend.h"

#define MASS_ROWS 512            /* cache rows of one item */

/* Scratch of one thread of add_mass(): its job, and its sums [R][MASS_ROWS] */
static size_t
mass_floats(const struct plan *p)
{
	return p->floats + p->R * MASS_ROWS;
}

/* MASS_ROWS rows of mass[H][..] for the query heads of one KV head, of those that the call sees:
 * sums (or maxima) over the query rows, in order, which are added to mass at the end */
static void
mass_item(void *arg, size_t item, int thread)
{
	const struct call *a = arg;
	const struct plan *p = a->plan;
	const size_t g = item % p->rows->heads;
	float *scratch = a->scratch + (size_t)thread * mass_floats(p);
	float *sum = scratch + p->floats, *mass, new;
	size_t first, end, n0, r, m, s;
	uint32_t from, last;
	struct attend_job j;

	cpu_visible_range(p, g, 0, p->N, &from, &last);
	first = from + item / p->rows->heads * MASS_ROWS;
	end = last < first + MASS_ROWS ? last : first + MASS_ROWS;
	mass = a->mass + g * p->R * a->stride + first;
	memset(sum, 0, p->R * MASS_ROWS * sizeof *sum);
	for (n0 = 0; n0 < p->N && first < end; n0 += p->block) {
		cpu_visible_range(p, g, n0, p->N - n0 < p->block ? p->N - n0 : p->block, &from,
		    &last);
		if (from >= end || last <= first)
			continue;
		cpu_start_job(p, &j, scratch, g, n0);
		j.v = NULL;
		j.over = a->over;
		j.first = first;
		j.last = j.last < end ? j.last : end;
		for (m = 0; m < j.M; m++)
			j.m[m] = a->norm[(n0 + m / p->R) * p->H + g * p->R + m % p->R];
		p->simd->mass(&j, sum, MASS_ROWS, p->R);
	}
	for (r = 0; r < p->R; r++)
		for (s = 0; s < end - first && first < end; s++) {
			new = sum[r * MASS_ROWS + s];
			if (a->over == QUERIES_SUM)
				mass[r * a->stride + s] += new;
			else if (new > mass[r * a->stride + s] || new != new)
				mass[r * a->stride + s] = new;
		}
}

/* mass of a call whose scratch has mass_floats() for each thread */
static void
add_mass(struct call *a)
{
	const struct plan *p = a->plan;
	uint32_t from, end;
	size_t longest = 0, g;

	for (g = 0; g < p->rows->heads; g++) {
		cpu_visible_range(p, g, 0, p->N, &from, &end);
		longest = end > from + longest ? end - from : longest;
	}
	cpu_run(a->d, mass_item, a, (longest + MASS_ROWS - 1) / MASS_ROWS * p->rows->heads,
	    p->N * p->H * p->E * longest);
}

void
cpu_attend_mass(struct dev *d, float *mass, size_t stride, const struct query *query,
    const float *lse, const struct layer_rows *rows, enum over_queries over)
{
	struct plan p;
	struct call a = { .d = d, .plan = &p, .norm = lse, .mass = mass, .stride = stride,
	    .over = over };

	if (d->error[0] != '\0' || query->N == 0 || cpu_refuse_recent(d, rows, "attention mass") ||
	    !cpu_attend_plan(d, &p, query, rows, NULL))
		return;
	if ((a.scratch = cpu_scratch(d, d->threads * mass_floats(&p) * sizeof *a.scratch)) != NULL)
		add_mass(&a);
}

void
cpu_window_mass(struct dev *d, float *mass, size_t stride, const struct query *query,
    const struct layer_rows *rows, const struct layer_rows *own, enum over_queries over)
{
	struct query bare = *query;
	struct plan p, po = { 0 };
	struct call a = { .d = d, .plan = &p, .mass = mass, .stride = stride, .over = over };
	struct call b = { .d = d, .plan = &po };
	const size_t queries = (size_t)query->N * query->H, lses = round_up(queries, 16);
	size_t floats, h;

	bare.sinks = NULL;
	if (d->error[0] != '\0' || cpu_refuse_recent(d, rows, "window mass") ||
	    !cpu_attend_plan(d, &p, query, rows, NULL) ||
	    (own != NULL && !cpu_attend_plan(d, &po, &bare, own, NULL)))
		return;
	floats = cpu_attend_floats(d, &p, 0);
	if (own != NULL && floats < cpu_attend_floats(d, &po, 0))
		floats = cpu_attend_floats(d, &po, 0);
	if (floats < d->threads * mass_floats(&p))
		floats = d->threads * mass_floats(&p);
	if ((a.lse = cpu_scratch(d, (2 * lses + floats) * sizeof *a.lse)) == NULL)
		return;
	a.norm = a.lse;
	b.lse = a.lse + lses;
	a.scratch = b.scratch = b.lse + lses;
	for (h = 0; h < query->H; h++)
		memset(mass + h * stride, 0, rows->len[h / p.R] * sizeof *mass);
	if (query->N == 0)
		return;
	cpu_attend_call(&a);
	if (own != NULL) {
		cpu_attend_call(&b);
		cpu_lse_merge(d, a.lse, b.lse, queries);
	}
	add_mass(&a);
}
