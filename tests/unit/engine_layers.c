/* engine_layers - snapshots read layer by layer and compared: several at once in one process,
 * damaged ones, and devices without room; all of it comes back as codes with messages */
#include <stdlib.h>
#include <string.h>

#include "engine/compare.h"
#include "engine/memory_plan.h"
#include "model/retrieval_head.h"
#include "kvfile_sample.h"

#define MIB ((size_t)1 << 20)

static const struct sample first = { KV_F32, { { 9, 5 }, { 4, 8 } }, 0, 1, 0 };
static const struct sample second = { KV_F32, { { 3, 5 }, { 6, 0 } }, KV_LZ4, 1, 0 };

/* Two snapshots, and what is kept from one layer to the next. */
struct pair {
	struct kv_reader *ra, *rb;
	struct layer_reader a, b;
	struct device d;
	struct compare_areas areas;
	struct layer_compared layer[SAMPLE_LAYERS];
};

static struct kv_reader *
open_sample(const char *file)
{
	struct kv_reader *r = NULL;

	check(kv_open(file, &r) == KV_OK, "%s cannot be opened", file);
	return r;
}

static void
pair_open(struct pair *p, const char *a, const char *b, struct device d)
{
	struct engine_error e;

	memset(p, 0, sizeof *p);
	p->d = d;
	p->ra = open_sample(a);
	p->rb = open_sample(b);
	check(layer_reader_init(&p->a, p->ra, &e) == ENGINE_OK, "a");
	check(layer_reader_init(&p->b, p->rb, &e) == ENGINE_OK, "b");
}

static int
pair_step(struct pair *p, uint32_t l, struct engine_error *e)
{
	if (layer_reader_next(&p->a, l, e) != ENGINE_OK ||
	    layer_reader_next(&p->b, l, e) != ENGINE_OK)
		return e->code;
	if (layer_compared_init(&p->layer[l], &p->a.head->model, e) != ENGINE_OK)
		return e->code;
	return compare_layers(&p->layer[l], &p->d, &p->areas, &p->a, &p->b, e);
}

static void
pair_close(struct pair *p)
{
	uint32_t l;

	for (l = 0; l < SAMPLE_LAYERS; l++)
		layer_compared_free(&p->layer[l]);
	compare_release(&p->d, &p->areas);
	layer_reader_free(&p->a, &p->d);
	layer_reader_free(&p->b, &p->d);
	kv_close(p->ra);
	kv_close(p->rb);
}

static struct device
cpu(void)
{
	char err[256];
	struct device d = { &cpu_ops, cpu_ops.open(0, 1, err, sizeof err) };

	check(d.dev != NULL, "cpu: %s", err);
	return d;
}

/* ---- two pairs at once ---- */

static int
same_layer(const struct layer_compared *x, const struct layer_compared *y)
{
	uint32_t g;

	for (g = 0; g < SAMPLE_HEADS; g++)
		if (memcmp(&x->head[g].rows, &y->head[g].rows, sizeof x->head[g].rows) != 0 ||
		    memcmp(x->head[g].query, y->head[g].query, 2 * sizeof *x->head[g].query) != 0)
			return 0;
	return x->queries == y->queries && x->queries > 0;
}

static void
test_side_by_side(const char *a, const char *b, struct device d)
{
	struct pair alone, one, other;
	struct engine_error e;
	uint32_t l;

	pair_open(&alone, a, b, d);
	for (l = 0; l < SAMPLE_LAYERS; l++)
		check(pair_step(&alone, l, &e) == ENGINE_OK, "alone: %s", e.text);
	pair_open(&one, a, b, d);
	pair_open(&other, b, a, d);
	for (l = 0; l < SAMPLE_LAYERS; l++) {
		check(pair_step(&one, l, &e) == ENGINE_OK, "one: %s", e.text);
		check(pair_step(&other, l, &e) == ENGINE_OK, "other: %s", e.text);
		check(same_layer(&alone.layer[l], &one.layer[l]),
		    "layer %u: another result beside a second comparison", l);
		check(one.layer[l].head[0].rows.only_a == other.layer[l].head[0].rows.only_b,
		    "layer %u: rows of one are not those of the other", l);
	}
	check(layer_reader_finish(&one.a, &e) == ENGINE_OK, "the end: %s", e.text);
	pair_close(&alone);
	pair_close(&one);
	pair_close(&other);
}

/* ---- what fails ---- */

static void
test_damaged(const char *a, struct device d)
{
	struct bytes whole = slurp(a);
	struct engine_error e = { 0 };
	struct pair p;

	spill(path("cut.kv"), whole.data, whole.size - 200);
	pair_open(&p, a, path("cut.kv"), d);
	check(pair_step(&p, 0, &e) == ENGINE_OK, "before the cut: %s", e.text);
	check(pair_step(&p, 1, &e) == ENGINE_OK || e.code == ENGINE_EDAMAGED, "%s", e.text);
	if (e.code == ENGINE_OK)
		check(layer_reader_finish(&p.b, &e) == ENGINE_EDAMAGED, "a cut is not seen");
	check(strcmp(e.text, kv_reader_error(p.rb)) == 0 && strstr(e.text, "cut.kv") != NULL,
	    "the message is '%s', the reader's '%s'", e.text, kv_reader_error(p.rb));
	pair_close(&p);
	free(whole.data);
}

static size_t left;             /* allocations that a small device still grants */

static void *
grant(struct dev *dev, size_t size)
{
	if (left == 0)
		return NULL;
	left--;
	return cpu_ops.alloc(dev, size);
}

static void
full(struct dev *dev, size_t *free, size_t *total)
{
	(void)dev;
	*free = MIB / 2;
	*total = 3 * MIB;
}

/* The device grants 0, 1, 2 ... allocations, until they are enough. */
static void
test_no_room(const char *a, const char *b, struct device d)
{
	struct ops small = cpu_ops;
	struct engine_error e = { 0 };
	char want[256];
	struct pair p;
	size_t n;
	int rc = ENGINE_ENOROOM;

	small.alloc = grant;
	small.shares_memory = 0;
	small.mem_info = full;
	snprintf(want, sizeof want, "%s: layer 0: cpu: no room for ", b);
	for (n = 0; rc != ENGINE_OK && n < 100; n++) {
		left = n;
		pair_open(&p, a, b, (struct device){ &small, d.dev });
		rc = pair_step(&p, 0, &e);
		check(rc == ENGINE_OK || rc == ENGINE_ENOROOM, "after %zu: %d", n, rc);
		if (rc != ENGINE_OK)
			check(strncmp(e.text, want, strlen(want)) == 0 &&
			    strstr(e.text, " MiB, of 3.0 MiB 0.5 are free") != NULL, "%s", e.text);
		left = 100;
		pair_close(&p);
	}
	check(rc == ENGINE_OK && n > 6, "%zu allocations were enough", n);
}

/* ---- what is refused before it begins ---- */

/* A retrieval head holds weights, a key for each token, and features of the rows that run at
 * once. */
static void
test_memory_of_a_head(const struct model *m, struct memory_demand demand)
{
	struct retrieval_head h = { .D = 20, .G = 3, .E = 4, .has_features = 1, .bytes = 1000 };
	const struct memory_plan bare = memory_plan(m, &demand);
	struct memory_plan plan;

	demand.head = &h;
	demand.adapter = 70;
	plan = memory_plan(m, &demand);
	check(plan.weights == bare.weights + 1070 && plan.adapter == 1070, "weights of a head");
	check(plan.cache == bare.cache + 100 * 3 * (4 * 2 + 4), "its keys, and their positions");
	check(plan.activations == bare.activations + (10 + 1) * 20 * 4, "features of a tile");
	demand.stream = 100;
	plan = memory_plan(m, &demand);
	check(plan.activations == bare.activations + 100 * m->id.hidden * 4 + (100 + 1) * 20 * 4,
	    "the residual stream and the features of a prompt");
	h.has_features = 0;
	plan = memory_plan(m, &demand);
	check(plan.activations == bare.activations + 100 * m->id.hidden * 4, "no features");
}

static void
test_memory_plan(struct device d)
{
	struct kv_head head;
	const struct memory_demand demand = { .tokens = 100, .rows = 400, .stored = &head,
	    .at_once = 10 };
	struct model_layer layer = { .window = 0 };
	struct model m = { .matrix_bytes = MIB, .constant_bytes = MIB / 2, .dev = d.dev,
		.layer = &layer };
	struct ops small = cpu_ops;
	struct engine_error e;
	struct memory_plan plan;

	sample_head(&head, &first);
	head.dtype = KV_BF16;
	m.id = head.model;
	m.ops = &cpu_ops;
	plan = memory_plan(&m, &demand);
	check(plan.weights == MIB * 3 / 2 && plan.tokens == 100, "weights, tokens");
	check(plan.cache == 400 * (2 * 8 * 2 + 4), "a row: key, value, position");
	head.key_type[0] = KV_ROW_INT8;
	check(memory_plan(&m, &demand).cache == 200 * (2 * 8 * 2 + 4 + 4 + 8 + 8 * 2 + 4),
	    "half of the rows with keys in int8");
	head.key_type[0] = 0;
	test_memory_of_a_head(&m, demand);
	check(memory_plan_check(&plan, &m, &e) == ENGINE_OK, "the CPU cannot tell what is free");
	small.shares_memory = 0;
	small.mem_info = full;
	m.ops = &small;
	check(memory_plan_check(&plan, &m, &e) == ENGINE_ENOROOM &&
	    strcmp(e.text, "cpu: needs 65.5 MiB: weights 1.5, cache of 100 tokens 0.0, "
	    "activations 0.0, scratch 64.0; 0.5 MiB are free") == 0, "%s", e.text);
	check(memory_plan_check_rest(&plan, &m, "a.kv", &e) == ENGINE_ENOROOM &&
	    strcmp(e.text, "cpu: needs 64.0 MiB for activations and scratch; of 3.0, weights have "
	    "1.5, the rows of a.kv and other programs 1.0, 0.5 are free") == 0, "%s", e.text);
	check(memory_plan_no_room(&m, "a.kv", &e) == ENGINE_ENOROOM &&
	    strcmp(e.text, "cpu: no room for a.kv: of 3.0 MiB, weights have 1.5, 0.5 are "
	    "free") == 0, "%s", e.text);
}

int
main(void)
{
	const char *a = path("a.kv"), *b = path("b.kv");
	struct device d = cpu();

	check(sample_write(a, &first) == KV_OK && sample_write(b, &second) == KV_OK, "samples");
	test_side_by_side(a, b, d);
	test_damaged(a, d);
	test_no_room(a, b, d);
	test_memory_plan(d);
	d.ops->close(d.dev);
	return check_done();
}
