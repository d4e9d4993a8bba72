/* ops_choose.c - group_reduce, topk and scores_by_label: which entries of an index a step reads
 *
 * Lists are ragged, one may be empty; what lies behind a list must stay. */
#include <stdio.h>

#include "tests/unit/ops_check.h"

#define GUARD 12345.0f
#define BEHIND 3                     /* elements behind the longest list */

/* ---- group_reduce ---- */

static const char *const reduce_name[] = {
	[REDUCE_MEAN] = "mean", [REDUCE_MAX] = "max", [REDUCE_SUM] = "sum" };

/* want[i] <- maximum or sum over the R query heads of the softmax of their n scores, and of a sink
 * where they have one. A NaN counts as -inf. */
static void
ref_group_reduce(double *want, const float *score, size_t stride, size_t n, const float *sinks,
    size_t R, enum reduce how)
{
	double most, sum, p;
	size_t r, i;

	for (i = 0; i < n; i++)
		want[i] = 0;
	for (r = 0; r < R; r++, score += stride) {
		for (i = 0, most = -INFINITY; i < n; i++)
			most = fmax(most, score[i]);           /* passes over a NaN */
		for (i = 0, sum = sinks == NULL ? 0 : exp(sinks[r] - most); i < n; i++)
			sum += isnan(score[i]) ? 0 : exp(score[i] - most);
		for (i = 0; i < n; i++) {
			p = isnan(score[i]) ? 0 : exp(score[i] - most) / sum;
			want[i] = how == REDUCE_MAX ? fmax(want[i], p) : want[i] + p;
		}
	}
}

static const double *sort_by;

static int
descending(const void *a, const void *b)
{
	double x = sort_by[*(const uint32_t *)a], y = sort_by[*(const uint32_t *)b];

	return (x < y) - (x > y);
}

/* Whether got[n] has the order of want[n], as far as that is clear: where want differs by more
 * than 1e-4 of itself. Where got may not tell small ones apart, less than floor are equal. */
static int
same_order(const float *got, const double *want, size_t n, double floor)
{
	uint32_t *by = malloc((n + 1) * sizeof *by);
	float least = INFINITY;
	size_t i, clear;
	int same = 1;

	for (i = 0; i < n; i++)
		by[i] = (uint32_t)i;
	sort_by = want;
	qsort(by, n, sizeof *by, descending);
	for (i = 0, clear = 0; i < n && same; i++) {
		for (; want[by[clear]] > want[by[i]] * 1.0001; clear++)
			least = fminf(least, got[by[clear]]);
		same = !isnan(got[by[i]]) && (want[by[i]] < floor ? least >= got[by[i]] :
		    least > got[by[i]]);
	}
	free(by);
	return same;
}

struct reduce_case {
	uint32_t H, G, n;            /* n: of the longest list */
	float scale;
	int in_place, odd;           /* odd: with NaN and infinities */
	int sinks;                   /* 1: heads have sinks, of the scale of the scores */
};

static void
test_group_reduce(const struct reduce_case *c, enum reduce how)
{
	const size_t stride = c->n + BEHIND, all = c->H * stride, R = c->H / c->G;
	float *score = floats(all, c->scale), *joint = floats(all, 1), *got;
	float *sinks = floats(c->H, 3 * c->scale);
	double *want = malloc((c->n + 1) * sizeof *want);
	uint32_t n[64], g;
	char what[80];
	size_t i;
	int k;

	snprintf(what, sizeof what, "group_reduce %s H %u/%u n %u scale %g%s%s%s",
	    reduce_name[how], c->H, c->G, c->n, c->scale, c->in_place ? " in place" : "",
	    c->odd ? " odd" : "", c->sinks ? " sinks" : "");
	for (g = 0; g < c->G; g++)
		n[g] = g == 0 ? c->n : g == 2 ? 0 : draw(c->n + 1);
	for (i = 0; i < all && c->odd; i += 1 + draw(20))
		score[i] = draw(2) ? NAN : -INFINITY;
	for (i = 0; i < all; i++)
		joint[i] = GUARD;
	new_case();
	for (k = 0; k < devices; k++) {
		struct device *d = &device[k];
		float *ds, *dj, *on_device;

		if (d->ops->group_reduce == NULL)
			continue;
		ds = to_device(d, score, all * 4);
		dj = c->in_place ? ds : to_device(d, joint, all * 4);
		on_device = c->sinks ? to_device(d, sinks, c->H * 4) : NULL;
		d->ops->group_reduce(d->dev, dj, ds, stride, (struct counts){ n, 0 }, on_device,
		    c->H, c->G, how);
		got = from_device(d, dj, all);
		for (g = 0; g < c->G; g++) {
			ref_group_reduce(want, score + g * R * stride, stride, n[g],
			    c->sinks ? sinks + g * R : NULL, R, how);
			if (R == 1)
				verdict(memcmp(got + g * stride, score + g * stride, n[g] * 4) == 0,
				    "%s, %s: KV head %u has not its scores", what, d->name, g);
			else
				verdict(same_order(got + g * stride, want, n[g],
				    how == REDUCE_MAX ? 1e-300 : 1e-60),
				    "%s, %s: order of KV head %u", what, d->name, g);
			for (i = n[g]; i < stride; i++)
				verdict(memcmp(&got[g * stride + i],
				    c->in_place ? &score[g * stride + i] : &joint[0], 4) == 0,
				    "%s, %s: KV head %u: written at %zu of %u", what, d->name, g,
				    i, n[g]);
		}
		same_bytes(d, what, got, all * 4);
		free(got);
		d->ops->free(d->dev, on_device);
		d->ops->free(d->dev, ds);
		if (!c->in_place)
			d->ops->free(d->dev, dj);
	}
	free(score);
	free(sinks);
	free(joint);
	free(want);
}

/* ---- topk ---- */

enum kind { RANDOM, LOGITS, TIES, EQUAL, ZEROS, ODD, NANS, RISING, FALLING, SPARSE, LIFTED,
	BLOCK, INFINITE, DENORMAL, LAST_BIT, KINDS };
static const char *const kind_name[KINDS] = { "random", "logits", "ties", "equal", "zeros", "odd",
	"NaN", "rising", "falling", "every 16th", "every 40th",
	"block", "-inf", "denormal", "last bit" };

/* score[n] of a kind. The last kinds mislead a selection that samples. */
static void
fill(float *score, size_t n, enum kind kind)
{
	static const float odd[] = { INFINITY, -INFINITY, NAN, -NAN, 0, -0.0f, 1e-45f, -1e-45f,
		3e38f, -3e38f };
	size_t i;

	for (i = 0; i < n; i++) {
		float x = (float)draw(1 << 24) / (1 << 24);

		switch (kind) {
		case RANDOM: score[i] = x - 0.5f; break;
		case LOGITS: score[i] = 3 * logf(x + 1e-7f) - 8; break;
		case TIES: score[i] = (float)draw(5) - 2; break;
		case EQUAL: score[i] = -3; break;
		case ZEROS: score[i] = draw(2) ? 0.0f : -0.0f; break;
		case ODD: score[i] = draw(3) ? odd[draw(10)] : x - 0.5f; break;
		case NANS: score[i] = NAN; break;
		case RISING: score[i] = (float)i; break;
		case FALLING: score[i] = -(float)i; break;
		case SPARSE: score[i] = x + (i % 16 == 0 ? 9 : 0); break;
		case INFINITE: score[i] = -INFINITY; break;
		case DENORMAL: score[i] = ((float)draw(9) - 4) * 1e-45f; break;
		case LAST_BIT: score[i] = draw(2) ? -1.0f : nextafterf(-1, 0); break;
		case LIFTED: score[i] = x + (i % 40 == 0 ? 0.05f : 0); break;
		default: score[i] = x + (i > n / 2 && i < n / 2 + n / 8 ? 9 : 0); break;
		}
	}
}

static const float *rank_by;

static int
better(const void *a, const void *b)
{
	uint32_t i = *(const uint32_t *)a, k = *(const uint32_t *)b;
	float x = rank_by[i], y = rank_by[k];

	if (isnan(x) != isnan(y))
		return isnan(x) ? 1 : -1;
	if (x > y || x < y)
		return x > y ? -1 : 1;
	return i < k ? -1 : 1;
}

static int
by_number(const void *a, const void *b)
{
	return *(const uint32_t *)a < *(const uint32_t *)b ? -1 : 1;
}

/* want[k] <- by sorting. by is scratch of n. */
static void
ref_topk(uint32_t *want, uint32_t *by, const float *score, size_t n, size_t k)
{
	size_t i;

	for (i = 0; i < n; i++)
		by[i] = (uint32_t)i;
	rank_by = score;
	qsort(by, n, sizeof *by, better);
	memcpy(want, by, k * sizeof *want);
	qsort(want, k, sizeof *want, by_number);
}

/* G lists: the first has n scores and k of them are wanted, the others have fewer. */
static void
test_topk(uint32_t G, uint32_t n, uint32_t k, enum kind kind)
{
	const size_t stride = n + BEHIND, capacity = k + BEHIND;
	float *score = floats(G * stride, 1);
	uint32_t *want = malloc((G * capacity + 1) * 4), *by = malloc((n + 1) * 4), *got;
	uint32_t ns[64], ks[64], g;
	char what[80];
	size_t i;
	int t;

	snprintf(what, sizeof what, "topk %u of %u, %u lists, %s", k, n, G, kind_name[kind]);
	for (i = 0; i < G * capacity; i++)
		want[i] = 777;
	for (g = 0; g < G; g++) {
		ns[g] = g == 0 ? n : draw(n + 1);
		ks[g] = g == 0 ? k : draw((ns[g] < k ? ns[g] : k) + 1);
		fill(score + g * stride, n, kind);
		ref_topk(want + g * capacity, by, score + g * stride, ns[g], ks[g]);
	}
	new_case();
	for (t = 0; t < devices; t++) {
		struct device *d = &device[t];
		struct chosen to = { .stride = capacity, .n = ks, .rows = 1 };
		float *ds;

		if (d->ops->topk == NULL)
			continue;
		ds = to_device(d, score, G * stride * 4);
		got = malloc((G * capacity + 1) * 4);
		for (i = 0; i < G * capacity; i++)
			got[i] = 777;
		to.at = to_device(d, got, G * capacity * 4);
		d->ops->topk(d->dev, &to, ds, stride, (struct counts){ ns, 0 }, G);
		d->ops->get(d->dev, got, to.at, G * capacity * 4);
		for (i = 0; i < G * capacity && got[i] == want[i]; i++)
			;
		verdict(i == G * capacity, "%s, %s: list %zu, %zu: %u, want %u", what, d->name,
		    i / capacity, i % capacity, got[i], want[i]);
		same_bytes(d, what, got, G * capacity * 4);
		free(got);
		d->ops->free(d->dev, ds);
		d->ops->free(d->dev, to.at);
	}
	free(score);
	free(want);
	free(by);
}

/* Lists about as long as what one thread, block or tile takes, and what several tiles take */
static void
test_topk_edges(void)
{
	static const uint32_t edge[] = { 1024, 4096, 16384, 20480 };
	static const enum kind kind[] = { RANDOM, TIES, LAST_BIT, NANS, ODD, DENORMAL };
	uint32_t n;
	size_t i, k = 0;

	for (i = 0; i < sizeof edge / sizeof edge[0]; i++)
		for (n = edge[i] - 1; n <= edge[i] + 1; n++, k++) {
			if (!in_sample())
				continue;
			test_topk(1, n, n / 9, kind[k % 6]);
			test_topk(2, n, n - 1, kind[(k + 1) % 6]);
			test_topk(1, n, n, kind[(k + 2) % 6]);
			test_topk(1, n, 1, kind[(k + 3) % 6]);
		}
	test_topk(32, 700, 300, LAST_BIT);
	test_topk(8, 17000, 2000, ODD);
	test_topk(1, 140000, 15000, LOGITS);    /* more tiles than a block has warps */
}

/* Calls of which nobody waits for any, with lists of different kinds and lengths: each uses what
 * the ones before have left in the same scratch. */
static void
test_topk_in_a_row(uint32_t most)
{
	enum { CALLS = 12, LISTS = 3 };
	static const enum kind kind[] = { LOGITS, TIES, RANDOM, EQUAL, ODD };
	const size_t all = CALLS * LISTS * (size_t)most;
	uint32_t *want = malloc(all * 4), *by = malloc(most * 4), *got = malloc(all * 4);
	uint32_t n[CALLS][LISTS], k[CALLS][LISTS], c, g;
	float *score = floats(all, 1);
	int t;

	memset(want, 0, all * 4);
	for (c = 0; c < CALLS; c++)
		for (g = 0; g < LISTS; g++) {
			const size_t at = (c * LISTS + g) * (size_t)most;

			n[c][g] = c % 4 == 3 ? 1 + draw(3000) : most - draw(3000);
			k[c][g] = draw(n[c][g] / 4 + 1);
			fill(score + at, most, kind[(c + g) % 5]);
			ref_topk(want + at, by, score + at, n[c][g], k[c][g]);
		}
	new_case();
	for (t = 0; t < devices; t++) {
		struct device *d = &device[t];
		float *ds = to_device(d, score, all * 4);
		uint32_t *at;

		memset(got, 0, all * 4);
		at = to_device(d, got, all * 4);
		for (c = 0; c < CALLS; c++) {
			struct chosen to = { .at = at + c * LISTS * (size_t)most, .stride = most,
				.n = k[c], .rows = 1 };

			d->ops->topk(d->dev, &to, ds + c * LISTS * (size_t)most, most,
			    (struct counts){ n[c], 0 }, LISTS);
		}
		d->ops->get(d->dev, got, at, all * 4);
		for (c = 0; c < CALLS; c++)
			verdict(memcmp(got + c * LISTS * (size_t)most,
			    want + c * LISTS * (size_t)most, LISTS * (size_t)most * 4) == 0,
			    "topk, call %u in a row, %s", c, d->name);
		d->ops->free(d->dev, ds);
		d->ops->free(d->dev, at);
	}
	free(want);
	free(by);
	free(got);
	free(score);
}

/* ---- scores_by_label ---- */

static void
test_scores_by_label(uint32_t G, uint32_t clusters, uint32_t longest)
{
	const size_t stride = longest + BEHIND, labels = longest + 1, joints = clusters + 2;
	float *joint = floats(G * joints, 1), *row = floats(G * stride, 1), *got;
	uint32_t *label = malloc((G * labels + 1) * 4), n[64], g;
	double *want = malloc((G * stride + 1) * sizeof *want);
	size_t i;
	int k;

	for (i = 0; i < G * labels; i++)
		label[i] = draw(clusters);
	for (i = 0; i < G * stride; i++)
		want[i] = row[i];
	for (g = 0; g < G; g++) {
		n[g] = g == 0 ? longest : draw(longest + 1);
		for (i = 0; i < n[g]; i++)
			want[g * stride + i] = joint[g * joints + label[g * labels + i]];
	}
	new_case();
	for (k = 0; k < devices; k++) {
		struct device *d = &device[k];
		void *dj, *dl, *dr;

		if (d->ops->scores_by_label == NULL)
			continue;
		dj = to_device(d, joint, G * joints * 4);
		dl = to_device(d, label, G * labels * 4);
		dr = to_device(d, row, G * stride * 4);
		d->ops->scores_by_label(d->dev, dr, stride, dj, joints, dl, labels, n, G);
		got = from_device(d, dr, G * stride);
		compare(d, SCORES_BY_LABEL, "scores_by_label", got, want, G * stride);
		free(got);
		d->ops->free(d->dev, dj);
		d->ops->free(d->dev, dl);
		d->ops->free(d->dev, dr);
	}
	free(joint);
	free(row);
	free(label);
	free(want);
}

void
test_choose(void)
{
	static const struct reduce_case reduce_cases[] = {
		{ 8, 8, 100, 1, 0, 0, 0 }, { 8, 8, 100, 1, 1, 1, 0 }, { 8, 2, 1000, 1, 0, 0, 0 },
		{ 8, 2, 1000, 1, 1, 0, 0 }, { 16, 4, 37, 30, 0, 1, 0 }, { 9, 3, 700, 30, 1, 1, 0 },
		{ 3, 1, 5000, 8, 1, 0, 0 }, { 71, 1, 3000, 4, 0, 0, 0 }, { 8, 1, 1, 1, 0, 0, 0 },
		{ 4, 2, 0, 1, 0, 0, 0 }, { 32, 8, 2100, 60, 1, 0, 0 }, { 6, 3, 15, 1, 1, 1, 0 },
		{ 8, 2, 1000, 1, 0, 0, 1 }, { 9, 3, 700, 4, 1, 1, 1 }, { 64, 8, 2100, 9, 0, 0, 1 },
		{ 5, 1, 6, 2, 1, 0, 1 }, { 3, 3, 50, 2, 1, 0, 1 },
	};
	static const uint32_t ns[] = { 1, 2, 15, 16, 17, 64, 1000, 5001 };
	size_t i, kind;
	int how;

	for (i = 0; i < sizeof reduce_cases / sizeof reduce_cases[0]; i++)
		for (how = REDUCE_MEAN; how <= REDUCE_SUM; how++)
			if (in_sample())
				test_group_reduce(&reduce_cases[i], how);
	test_topk(1, 0, 0, RANDOM);
	for (kind = 0; kind < KINDS; kind++) {
		for (i = 0; i < sizeof ns / sizeof ns[0]; i++) {
			if (!in_sample())
				continue;
			test_topk(1, ns[i], 0, kind);
			test_topk(2, ns[i], 1, kind);
			test_topk(5, ns[i], (ns[i] + 8) / 9, kind);
			test_topk(3, ns[i], ns[i] / 2, kind);
			test_topk(2, ns[i], ns[i] - 1, kind);
			test_topk(3, ns[i], ns[i], kind);
		}
		if (!in_sample())
			continue;
		test_topk(2, 40000, 4400, kind);
		if (kind == SPARSE || kind == LIFTED)
			test_topk(1, 40960, 4400, kind);        /* a sample of every 40th lies */
	}
	test_topk_edges();
	test_topk_in_a_row(21000);
	test_scores_by_label(5, 30, 1000);
	test_scores_by_label(1, 1, 3);
	test_scores_by_label(3, 4, 0);
}
