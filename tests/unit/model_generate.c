/* model_generate - greedy decoding on the device, against run_tokens() and sample()
 *
 * model_generate [-s] [DIR]: with -s a sample of the cases; without DIR the demo model.
 * model_generate_emulated, the same on the emulated GPU, also checks that steps are launches of a
 * graph where they can be, and nowhere else. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "forward/generate.h"
#include "forward/sample.h"
#include "tests/unit/methods_check.h"

#define PROMPT 10
#define LONGER 3                         /* tokens more of a prompt whose cache retrieves */
#define MORE 10                          /* tokens that run otherwise in between */
#define STEPS 15

extern const int cuda_emulated __attribute__((weak));

enum { WITH_MASS = 1, WITH_QUERIES = 2, EVICTING = 4, STEADY = 8,     /* STEADY: one row a step */
	RETRIEVING = 16 };

static char err[512];

static void
must(int good, const char *what)
{
	if (!good) {
		fprintf(stderr, "decoder: %s: %s\n", what, err);
		exit(1);
	}
}

static struct cache *
begin(const struct model *m, struct workspace *ws, int how)
{
	struct cache *c = cache_new(m, KV_BF16);
	const uint32_t n = how & RETRIEVING ? PROMPT + LONGER : PROMPT;
	uint32_t ids[PROMPT + LONGER], i;

	for (i = 0; i < n; i++)
		ids[i] = (i * 37 + 5) % m->id.vocabulary;
	must(c != NULL && ((how & WITH_MASS) == 0 || cache_want_mass(c) == 0), "memory");
	if (how & RETRIEVING)
		must(cache_want_indexes(c, 1u << KV_BITS) == 0, "memory");
	for (i = 0; (how & RETRIEVING) && i < m->id.layers; i++)
		index_start(&c->index[i], KV_BITS, 16);
	must(run_tokens(m, &(struct sequence){ .cache = c }, ws, ids, n, NULL, NULL, err,
	    sizeof err) == 0, "prompt");
	return c;
}

/* How the sequences of RETRIEVING read */
static struct retrieval_options retrieval;

static void
start_retrieval(struct sequence *s)
{
	const struct model *m = s->cache->model;
	struct retrieval *t = retrieval_new(m->ops, m->dev, &retrieval, m->id.layers,
	    m->id.query_heads, m->id.kv_heads, m->id.head_width, s->cache->dtype, NULL);

	must(t != NULL && sequence_retrieve(s, t) == 0, "memory");
}

/* Of KV head g every (g + 3)-th row goes, but not the last one; steady: the (g + 3)-th of all. */
static void
evict(struct cache *c, int steady)
{
	uint32_t G = c->model->id.kv_heads, list[8][PROMPT + STEPS + MORE], count[8], *keep[8], l,
	    g, i;

	must(G <= 8, "KV heads");
	for (l = 0; l < c->model->id.layers; l++) {
		for (g = 0; g < G; g++)
			for (i = 0, count[g] = 0, keep[g] = list[g]; i < c->layer[l].len[g]; i++)
				if (steady ? i != g + 2 :
				    i % (g + 3) != 0 || i + 1 == c->layer[l].len[g])
					list[g][count[g]++] = i;
		cache_keep(c, l, count, keep);
	}
}

static int
same_on_device(const struct cache *a, const void *x, const void *y, size_t bytes)
{
	const struct model *m = a->model;
	char *on[2] = { malloc(bytes + 1), malloc(bytes + 1) };
	int same;

	must(on[0] != NULL && on[1] != NULL, "memory");
	m->ops->get(m->dev, on[0], x, bytes);
	m->ops->get(m->dev, on[1], y, bytes);
	same = memcmp(on[0], on[1], bytes) == 0;
	free(on[0]);
	free(on[1]);
	return same;
}

/* Two caches that were filled in two ways */
static void
check_same(const struct cache *a, const struct cache *b, const char *when)
{
	const struct kv_model *id = &a->model->id;
	size_t row = id->head_width * kv_dtype_size(a->dtype);
	uint32_t l, g;

	for (l = 0; l < id->layers; l++)
		for (g = 0; g < id->kv_heads; g++) {
			const struct layer_rows *x = &a->layer[l], *y = &b->layer[l];
			const char *kx = x->k, *vx = x->v, *ky = y->k, *vy = y->v;
			uint64_t sx = x->start[g], sy = y->start[g];
			uint32_t n = x->len[g];

			check(n == y->len[g], "%s: %u and %u rows", when, n, y->len[g]);
			check(same_on_device(a, kx + sx * row, ky + sy * row, n * row),
			    "%s: keys of layer %u head %u", when, l, g);
			check(same_on_device(a, vx + sx * row, vy + sy * row, n * row),
			    "%s: values of layer %u head %u", when, l, g);
			check(same_on_device(a, x->pos + sx, y->pos + sy, n * sizeof *x->pos),
			    "%s: positions of layer %u head %u", when, l, g);
			check(memcmp(cache_rows(a, l).pos[g], cache_rows(b, l).pos[g],
			    n * sizeof *x->pos) == 0, "%s: positions that the host knows", when);
		}
	check(a->next_position == b->next_position && a->n_tokens == b->n_tokens &&
	    memcmp(a->tokens, b->tokens, a->n_tokens * sizeof *a->tokens) == 0, "%s: tokens", when);
	check(a->logits != NULL && memcmp(a->logits, b->logits,
	    id->vocabulary * sizeof *a->logits) == 0, "%s: logits", when);
}

/* What two ways to retrieve have read, and the indexes that they read */
static void
check_same_retrieval(const struct sequence *s, const struct sequence *t, const char *when)
{
	const struct cache *a = s->cache, *b = t->cache;
	const struct kv_model *id = &a->model->id;
	uint32_t l, g;

	if (s->retrieval == NULL)
		return;
	check(memcmp(retrieval_stats(s->retrieval), retrieval_stats(t->retrieval),
	    id->layers * id->kv_heads * sizeof(struct retrieval_stats)) == 0, "%s: what was read",
	    when);
	for (l = 0; l < id->layers; l++)
		for (g = 0; g < id->kv_heads; g++) {
			const struct entries *x = &a->index[l].bits, *y = &b->index[l].bits;
			const char *dx = x->data, *dy = y->data;

			check(x->len[g] == y->len[g] && x->len[g] == a->layer[l].len[g] / 16 &&
			    same_on_device(a, dx + x->start[g] * x->bytes,
			    dy + y->start[g] * y->bytes, x->len[g] * x->bytes),
			    "%s: one-bit keys of layer %u head %u", when, l, g);
		}
}

/* What else happens to a cache after a step */
static void
between(struct sequence *s, struct workspace *other, uint32_t step, int how)
{
	static const uint32_t more[MORE] = { 3, 1, 4, 1, 5, 9, 2, 6, 5, 3 };

	if ((how & EVICTING) || (step == 8 && !(how & (STEADY | RETRIEVING))))
		evict(s->cache, how & STEADY);
	if (step == 11)                         /* many rows take more scratch */
		must(run_tokens(s->cache->model, s, other, more, MORE, NULL, NULL, err,
		    sizeof err) == 0, "more tokens");
}

/* So many tokens both ways; returns how many were launches of a graph. */
static uint64_t
decode(const struct model *m, const char *what, uint32_t steps, int how)
{
	struct workspace *ws = workspace_new(m, 1), *other = workspace_new(m, PROMPT + LONGER);
	struct sequence sa = { .cache = begin(m, other, how) };
	struct sequence sb = { .cache = begin(m, other, how) };
	struct cache *a = sa.cache, *b = sb.cache;
	struct observation seen = { 0 }, *obs = how & WITH_QUERIES ? &seen : NULL;
	struct generator *r = generator_new(&sa, ws);
	struct sampler s = { .temperature = 0, .top_p = 1 };
	uint32_t id = sample(&s, a->logits, m->id.vocabulary), next = 0, want, i;
	uint64_t launches;

	must(ws != NULL && other != NULL && r != NULL, "memory");
	if (how & RETRIEVING) {
		start_retrieval(&sa);
		start_retrieval(&sb);
	}
	must(obs == NULL || observation_init(obs, m, 4) == 0, "memory");
	for (i = 0; i < steps; i++) {
		if (how & EVICTING) {           /* behind the step, before it is done */
			must(generator_begin(r, id, obs, err, sizeof err) == 0, "step begins");
			evict(a, how & STEADY);
			must(generator_end(r, &next, err, sizeof err) == 0, "step ends");
		} else
			must(generator_run(r, id, obs, &next, err, sizeof err) == 0, "step");
		check(a->logits == NULL, "%s: logits on the host after step %u", what, i);
		must(run_tokens(m, &sb, other, &id, 1, NULL, NULL, err, sizeof err) == 0, "token");
		if (i % 3 == 1)
			check(generator_logits(r) == 0 && memcmp(a->logits, b->logits,
			    m->id.vocabulary * sizeof(float)) == 0, "%s: logits after step %u",
			    what, i);
		want = sample(&s, b->logits, m->id.vocabulary);
		check(next == want, "%s: step %u: token %u, not %u", what, i, next, want);
		between(&sa, other, i, how & ~EVICTING);  /* that is done */
		between(&sb, other, i, how);
		id = i == 2 ? (want + 1) % m->id.vocabulary : want;
	}
	must(generator_logits(r) == 0, "logits");
	check_same(a, b, what);
	check_same_retrieval(&sa, &sb, what);
	check(generator_run(r, m->id.vocabulary, NULL, &next, err, sizeof err) == MODEL_EINVALID,
	    "%s: a token that is none: %s", what, err);
	launches = generator_launches(r);
	generator_free(r);
	if (obs != NULL)
		observation_free(obs, m);
	workspace_free(ws, m);
	workspace_free(other, m);
	sequence_free(&sa);
	sequence_free(&sb);
	return launches;
}

static struct ops ops;                  /* those of the device, or nearly */

static int never(struct dev *d) { (void)d; return 0; }

static uint32_t
in_vain(struct dev *d, uint32_t *pos)
{
	gpu_ops.graph_end(d, pos);
	return 0;
}

static uint64_t
decode_retrieving(const struct model *m, const char *what, uint32_t budget, uint32_t dense)
{
	retrieval = (struct retrieval_options){ .method = RETRIEVE_FIER, .budget = budget,
	    .dense = dense, .reduce = REDUCE_MEAN };
	return decode(m, what, STEPS, RETRIEVING);
}

/* Step i is over 14 + i rows, and 10 more from 12 on. Eager are 0, the first; 6 and 14,
 * where a row outgrows the capacity; 12, after tokens that ran otherwise; and steps that
 * read another number of rows than the one before. An entry is whole at step 2. */
static void
test_retrieval(const struct model *m, int gpu, int sample)
{
	uint64_t n = decode_retrieving(m, "fier", 6, 1);

	check(n == (gpu ? STEPS - 4 : 0), "%lu launches with fier", (unsigned long)n);
	if (sample)
		return;
	/* 5 is the first that leaves out a row. */
	n = decode_retrieving(m, "fier, whole at first", 18, 0);
	check(n == (gpu ? STEPS - 5 : 0), "%lu launches with fier, whole at first",
	    (unsigned long)n);
	n = decode_retrieving(m, "fier, whole", 100, 0);
	check(n == (gpu ? STEPS - 4 : 0), "%lu launches with fier, whole", (unsigned long)n);
	retrieval = (struct retrieval_options){ .budget = 6, .overlap = 1 };
	check(decode(m, "fier and overlap", 4, RETRIEVING) == 0, "launched, with overlap");
}

/* On a GPU some of the steps run eagerly: 0, the first; 5, where a sixteenth row outgrows the
 * capacity of fifteen; 9, after an eviction; 12, after tokens that ran otherwise. With an eviction
 * that keeps as many rows at each step, only 0; and 12, where memory has moved. */
static void
test(const struct model *m, int gpu, int sample)
{
	uint64_t n = decode(m, "rows that grow", STEPS, 0);

	check(n == (gpu ? STEPS - 4 : 0), "%lu launches", (unsigned long)n);
	test_retrieval(m, gpu, sample);
	if (!gpu)
		return;
	check(decode(m, "mass", 3, WITH_MASS) == 0, "launched, with mass");
	check(decode(m, "queries", 3, WITH_QUERIES) == 0, "launched, with queries");
	check(decode(m, "evictions", 3, EVICTING) == 0, "launched, with evictions");
	n = decode(m, "a budget", STEPS, EVICTING | STEADY);
	check(n == STEPS - 2, "%lu launches with a budget", (unsigned long)n);
	if (!sample) {
		n = decode(m, "a budget and mass", STEPS, EVICTING | STEADY | WITH_MASS);
		check(n == STEPS - 2, "%lu launches with a budget and mass", (unsigned long)n);
	}
	ops.graph_end = in_vain;
	check(decode(m, "a capture that fails", 4, 0) == 0, "launched, though not captured");
	retrieval = (struct retrieval_options){ .budget = 6, .dense = 1 };
	check(decode(m, "fier and a capture that fails", 9, RETRIEVING) == 0,
	    "launched with fier, though not captured");
	ops.graph_begin = never;
	check(decode(m, "no capture", 3, 0) == 0, "launched, though nothing was captured");
}

int
main(int argc, char **argv)
{
	const int gpu = &cuda_emulated != NULL, sample = argc > 1 && strcmp(argv[1], "-s") == 0;
	const char *folder = argc > 1 + sample ? argv[1 + sample] : DEMO_MODEL;
	struct model *m = NULL;
	struct dev *dev;

	ops = gpu ? gpu_ops : cpu_ops;
	dev = ops.open(0, 2, err, sizeof err);
	must(dev != NULL, "device");
	must(model_load(folder, &ops, dev, &m, err, sizeof err) == 0, "model");
	test(m, gpu, sample);
	model_free(m);
	ops.close(dev);
	return failures > 0;
}
