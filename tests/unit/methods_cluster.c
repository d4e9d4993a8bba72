/* methods_cluster.c - clusters of keys whose directions are known, and what must hold of any */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "methods/cluster.h"
#include "tests/unit/methods_check.h"

enum { ROWS = 600, MOST = 24 };

/* packed: row t is at t * E */
static float keys[ROWS * MOST], mean[ROWS * MOST];
static uint32_t label[ROWS], state = 1;

/* -1/2 .. 1/2 */
static float
next_random(void)
{
	state = state * 1664525 + 1013904223;
	return (float)((int32_t)state / 4294967296.0);
}

static void
random_keys(uint32_t rows, uint32_t E)
{
	uint32_t i;

	for (i = 0; i < rows * E; i++)
		keys[i] = next_random();
}

static struct cluster_input
input(uint32_t rows, uint32_t E, uint32_t clusters)
{
	return (struct cluster_input){ .keys = keys, .rows = rows, .width = E,
	    .key_type = KV_ROW_F32, .dtype = KV_F32,
	    .clusters = clusters, .iterations = 50 };
}

static uint32_t
clusters_of(const struct cluster_input *in)
{
	uint32_t n = 0;
	int code = cluster_keys(in, label, mean, &n);

	check(code == CLUSTER_OK, "%u rows, %u clusters: code %d", in->rows, in->clusters, code);
	return n;
}

/* The sum over all keys of key . direction of the mean of its cluster. */
static double
objective(uint32_t rows, uint32_t E)
{
	double all = 0, km, mm;
	const float *k, *m;
	uint32_t t, e;

	for (t = 0; t < rows; t++) {
		k = keys + t * E;
		m = mean + label[t] * E;
		for (e = 0, km = mm = 0; e < E; e++) {
			km += (double)k[e] * m[e];
			mm += (double)m[e] * m[e];
		}
		all += km / sqrt(mm);
	}
	return all;
}

/* Each label is below n, each cluster has a row, and the means are those of the rows. */
static void
check_whole(uint32_t rows, uint32_t E, uint32_t n)
{
	static double sum[ROWS][MOST];
	uint32_t count[ROWS] = { 0 }, t, c, e;

	memset(sum, 0, sizeof sum);
	for (t = 0; t < rows; t++) {
		check(label[t] < n, "row %u: label %u of %u", t, label[t], n);
		count[label[t] % ROWS]++;
		for (e = 0; e < E; e++)
			sum[label[t] % ROWS][e] += keys[t * E + e];
	}
	for (c = 0; c < n; c++) {
		check(count[c] > 0, "cluster %u of %u is empty", c, n);
		for (e = 0; e < E; e++)
			check(fabs(sum[c][e] / count[c] - mean[c * E + e]) < 1e-6,
			    "cluster %u channel %u: mean %g", c, e, mean[c * E + e]);
	}
}

/* Keys of many lengths along 12 axes, those of one axis scattered over the rows. */
static void
check_axes(void)
{
	struct cluster_input in = input(ROWS, 6, 12);
	uint32_t t, n;
	int along;

	for (in.seed = 0; in.seed < 10; in.seed++) {
		memset(keys, 0, sizeof keys);
		for (t = 0; t < ROWS; t++) {
			along = (int)(t * 7 % 12);
			keys[t * 6 + along % 6] = (along < 6 ? 1.f : -1.f) * (float)(1 + t % 50);
		}
		n = clusters_of(&in);
		check(n == 12, "%u clusters of 12 axes", n);
		check_whole(ROWS, 6, n);
		for (t = 12; t < ROWS; t++)
			check(label[t] == label[t - 12], "row %u is not with row %u", t, t - 12);
	}
	in.clusters = 100;
	n = clusters_of(&in);
	check(n == 12, "%u clusters of 12 axes, where 100 are wanted", n);
}

static void
check_rounds(void)
{
	static const uint32_t rounds[] = { 0, 1, 2, 3, 5, 10, 50 };
	struct cluster_input in = input(ROWS, 24, 20);
	double before = -INFINITY, now;
	uint32_t n;
	size_t i;

	random_keys(ROWS, 24);
	for (i = 0; i < sizeof rounds / sizeof *rounds; i++) {
		in.iterations = rounds[i];
		n = clusters_of(&in);
		check(n == 20, "%u rounds: %u clusters", rounds[i], n);
		check_whole(ROWS, 24, n);
		now = objective(ROWS, 24);
		check(now > before - 1e-4, "%u rounds: %g, before %g", rounds[i], now, before);
		check(i != 1 || now > before + 1, "the first round changes nothing");
		before = now;
	}
}

static void
check_ends(void)
{
	struct cluster_input in = input(40, 24, 40);
	uint32_t n, t;

	random_keys(40, 24);
	n = clusters_of(&in);
	check(n == 40, "%u clusters of 40 keys that all differ", n);
	check_whole(40, 24, n);
	in.clusters = 1;
	n = clusters_of(&in);
	check(n == 1, "%u clusters where one is wanted", n);
	check_whole(40, 24, n);
	memset(keys, 0, sizeof keys);
	in.clusters = 7;
	n = clusters_of(&in);
	check(n == 1, "%u clusters of keys that are 0", n);
	check_whole(40, 24, n);
	for (t = 0; t < 40; t++)
		keys[t * 24] = 1e38f;
	n = clusters_of(&in);
	check(n == 1 && mean[0] == 1e38f, "%u clusters of one great key", n);
	keys[17 * 24 + 3] = INFINITY;
	check(cluster_keys(&in, label, mean, &n) == CLUSTER_EKEY && n == 17, "row %u", n);
	keys[17 * 24 + 3] = NAN;
	check(cluster_keys(&in, label, mean, &n) == CLUSTER_EKEY && n == 17, "row %u", n);
}

/* ---- products by the caller ---- */

static int calls;

static int
own_products(void *with, float *y, const float *x, uint32_t n, const void *from, uint32_t rows)
{
	const float *k = from;
	const uint32_t E = 24;
	uint32_t i, t, e;

	calls++;
	for (i = 0; i < n; i++)
		for (t = 0; t < rows; t++)
			for (e = 0, y[i * rows + t] = 0; e < E; e++)
				y[i * rows + t] += x[i * E + e] * k[t * E + e];
	return *(int *)with;
}

static void
check_products(void)
{
	struct cluster_input in = input(ROWS, 24, 20);
	uint32_t before[ROWS], n;
	int code = 0;

	random_keys(ROWS, 24);
	in.iterations = 3;
	clusters_of(&in);
	memcpy(before, label, sizeof before);
	in.products = own_products;
	in.with = &code;
	clusters_of(&in);
	check(memcmp(before, label, sizeof before) == 0, "own products give other clusters");
	check(calls == 20 + 4, "%d calls", calls);
	in.seed = 1;
	clusters_of(&in);
	check(memcmp(before, label, sizeof before) != 0, "another seed gives the same");
	code = -1;
	check(cluster_keys(&in, label, mean, &n) == CLUSTER_EDEVICE, "a failure is not passed on");
}

static void
check_seeds(void)
{
	check(cluster_seed(0, 0, 0, 0) != cluster_seed(1, 0, 0, 0), "the seed does not count");
	check(cluster_seed(0, 0, 1, 0) != cluster_seed(0, 1, 0, 0), "layer and head are one");
	check(cluster_seed(0, 0, 0, 1) != cluster_seed(0, 0, 1, 0), "head and row are one");
}

int
main(void)
{
	check_axes();
	check_rounds();
	check_ends();
	check_products();
	check_seeds();
	return failures > 0;
}
