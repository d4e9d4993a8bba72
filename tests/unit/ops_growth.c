/* ops_growth.c - retrieval in a graph, while rows are appended: each launch makes the bytes
 * of the ops that run one by one */
#include <string.h>

#include "tests/unit/ops_check.h"

enum { G = 3, ROOM = 12, STEPS = 8 };

/* A step of fier in one layer. The KV heads have S, S/2 and, so that an entry ends at
 * another step, 2u-5 rows. */
struct growth {
	enum kv_dtype type;
	uint32_t E, u, R, S;
	int in_place;                  /* scores are reduced in place */
	float softcap;
	enum kv_row_type k_type, v_type;       /* as struct layer_rows'; 0: elements of type */
};

struct growing {
	struct device *on;
	const struct growth *how;
	struct layer_rows rows;
	struct entries bits;
	uint64_t start[G], entry[G];
	uint32_t len[G], capacity[G], entries[G], room[G], wanted[G];
	uint32_t most;                 /* of struct counts */
	float *q, *k, *v, *score, *joint, *o;
	uint32_t *pos;
	struct chosen chosen;
	size_t k_bytes, v_bytes, rows_all, entry_bytes, stride;
};

/* What goes in at each step */
struct inputs {
	float *k, *v;                  /* [rows_all][E] of the first rows */
	float *q, *new_k, *new_v;      /* [STEPS] */
};

static void
place_rows(struct growing *x, const struct growth *how)
{
	uint32_t g, entries = 0;

	x->rows_all = 0;
	for (g = 0; g < G; g++) {
		x->len[g] = g == 0 ? how->S : g == 1 ? how->S / 2 : 2 * how->u - 5;
		x->capacity[g] = x->len[g] + ROOM;
		x->start[g] = x->rows_all;
		x->rows_all += x->capacity[g];
		x->entry[g] = entries;
		x->room[g] = x->capacity[g] / how->u;
		entries += x->room[g];
		x->wanted[g] = x->len[g] / 3 + 1;
		x->entries[g] = 0;
	}
	x->most = x->capacity[0] > x->capacity[2] ? x->capacity[0] : x->capacity[2];
	x->stride = x->most + 3;
	x->entry_bytes = entries * (size_t)how->E * (4 + how->u / 8);
}

/* Rows of x, stored as a type has it, on the device */
static void *
stored(struct device *d, const float *x, enum kv_row_type type, uint32_t E, size_t n)
{
	void *rows = malloc(n * kv_row_bytes(type, E)), *at;

	verdict(kv_rows_from_f32(rows, x, type, E, n) == n, "rows are stored");
	at = to_device(d, rows, n * kv_row_bytes(type, E));
	free(rows);
	return at;
}

static void
open_growing(struct growing *x, struct device *d, const struct growth *how, const struct inputs *in)
{
	const uint32_t H = G * how->R, E = how->E;

	place_rows(x, how);
	x->on = d;
	x->how = how;
	x->rows = (struct layer_rows){ .pos = cleared(d, x->rows_all * 4), .start = x->start,
	    .len = x->len, .capacity = x->capacity, .heads = G, .width = E, .dtype = how->type,
	    .k_type = how->k_type, .v_type = how->v_type };
	x->rows.k = stored(d, in->k, rows_k_type(&x->rows), E, x->rows_all);
	x->rows.v = stored(d, in->v, rows_v_type(&x->rows), E, x->rows_all);
	x->k_bytes = x->rows_all * rows_k_bytes(&x->rows);
	x->v_bytes = x->rows_all * rows_v_bytes(&x->rows);
	x->bits = (struct entries){ .data = cleared(d, x->entry_bytes),
	    .bytes = E * (4 + (size_t)how->u / 8), .start = x->entry, .len = x->entries,
	    .capacity = x->room, .heads = G, .width = E, .rows = how->u };
	x->q = cleared(d, H * E * 4);
	x->k = cleared(d, G * E * 4);
	x->v = cleared(d, G * E * 4);
	x->o = cleared(d, H * E * 4);
	x->pos = cleared(d, 4);
	x->score = cleared(d, H * x->stride * 4);
	x->joint = how->in_place ? x->score : cleared(d, G * x->stride * 4);
	x->chosen = (struct chosen){ .at = cleared(d, G * x->stride * 4), .stride = x->stride,
	    .n = x->wanted, .rows = 1 };
}

static void
close_growing(struct growing *x)
{
	void *const all[] = { x->rows.k, x->rows.v, x->rows.pos, x->bits.data, x->q, x->k, x->v,
	    x->o, x->pos, x->score, x->chosen.at, x->how->in_place ? NULL : x->joint };
	size_t i;

	for (i = 0; i < sizeof all / sizeof all[0]; i++)
		x->on->ops->free(x->on->dev, all[i]);
}

static void
put_inputs(struct growing *x, const struct inputs *in, uint32_t step)
{
	const size_t kv = (size_t)G * x->how->E, q = kv * x->how->R;
	const struct ops *o = x->on->ops;

	o->put(x->on->dev, x->q, in->q + step * q, q * 4);
	o->put(x->on->dev, x->k, in->new_k + step * kv, kv * 4);
	o->put(x->on->dev, x->v, in->new_v + step * kv, kv * 4);
}

static void
ops_of_step(struct growing *x, uint32_t most)
{
	const struct ops *o = x->on->ops;
	struct dev *d = x->on->dev;
	const struct query query = { .q = x->q, .N = 1, .H = G * x->how->R,
	    .softcap = x->how->softcap };
	const struct counts n = { x->len, most };

	o->append(d, &x->rows, x->k, x->v, x->pos, 1);
	o->pack_bits(d, &x->bits, &x->rows);
	o->bits_scores(d, x->score, x->stride, &query, &x->bits, &x->rows);
	o->group_reduce(d, x->joint, x->score, x->stride, n, NULL, query.H, G, REDUCE_MEAN);
	o->topk(d, &x->chosen, x->joint, x->stride, n, G);
	o->attend_chosen(d, x->o, &query, &x->rows, &x->chosen);
}

/* The name of what differs between both; NULL: nothing */
static const char *
different(const struct growing *a, const struct growing *b)
{
	const size_t heads = (size_t)G * a->how->R;
	const struct { const char *name; const void *a, *b; size_t bytes; } part[] = {
		{ "keys", a->rows.k, b->rows.k, a->k_bytes },
		{ "values", a->rows.v, b->rows.v, a->v_bytes },
		{ "positions", a->rows.pos, b->rows.pos, a->rows_all * 4 },
		{ "one-bit keys", a->bits.data, b->bits.data, a->entry_bytes },
		{ "scores", a->score, b->score, heads * a->stride * 4 },
		{ "reduced scores", a->joint, b->joint, G * a->stride * 4 },
		{ "the choice", a->chosen.at, b->chosen.at, G * a->stride * 4 },
		{ "output", a->o, b->o, heads * a->how->E * 4 },
	};
	const char *found = NULL;
	size_t i;

	for (i = 0; i < sizeof part / sizeof part[0] && found == NULL; i++) {
		char *x = malloc(part[i].bytes), *y = malloc(part[i].bytes);

		a->on->ops->get(a->on->dev, x, part[i].a, part[i].bytes);
		a->on->ops->get(a->on->dev, y, part[i].b, part[i].bytes);
		found = memcmp(x, y, part[i].bytes) == 0 ? NULL : part[i].name;
		free(x);
		free(y);
	}
	return found;
}

static void
run_growing(struct device *d, const struct growth *how, const struct inputs *in)
{
	const struct ops *o = d->ops;
	struct growing plain, twin;
	uint32_t i, graph = 0;
	const char *what;

	open_growing(&plain, d, how, in);
	open_growing(&twin, d, how, in);
	put_inputs(&plain, in, 0);
	put_inputs(&twin, in, 0);
	ops_of_step(&plain, 0);
	ops_of_step(&twin, twin.most);
	o->put(d->dev, twin.pos, (uint32_t[]){ 1 }, 4);
	if (o->graph_begin(d->dev)) {
		ops_of_step(&twin, twin.most);
		graph = o->graph_end(d->dev, twin.pos);
	}
	verdict(graph != 0, "%s: capture: %s", d->name, o->describe(d->dev));
	for (i = 1; i < STEPS; i++) {
		put_inputs(&plain, in, i);
		put_inputs(&twin, in, i);
		o->put(d->dev, plain.pos, &i, 4);
		ops_of_step(&plain, 0);
		what = "no launch";
		if (o->graph_launch(d->dev, graph, i - 1))
			what = different(&plain, &twin);
		verdict(what == NULL && o->sync(d->dev) == NULL,
		    "%s: launch %u, %s, width %u, entries of %u, %u query heads, %u rows: %s %s",
		    d->name, i, kv_dtype_name(how->type), how->E, how->u, how->R, how->S, what,
		    o->sync(d->dev));
	}
	close_growing(&twin);
	close_growing(&plain);
}

static void
test_growth(struct device *d, const struct growth *how)
{
	struct inputs in;
	struct growing sizes;
	size_t kv = (size_t)G * how->E;

	place_rows(&sizes, how);
	in = (struct inputs){ .k = floats(sizes.rows_all * how->E, 1),
	    .v = floats(sizes.rows_all * how->E, 1), .q = floats(STEPS * kv * how->R, 1),
	    .new_k = floats(STEPS * kv, 1), .new_v = floats(STEPS * kv, 1) };
	run_growing(d, how, &in);
	free(in.k);
	free(in.v);
	free(in.q);
	free(in.new_k);
	free(in.new_v);
}

/* ---- lists alone, so long that other kernels take them ---- */

/* A launch for so many scores more in each of two lists, in memory of its own */
struct list_call {
	float *joint;
	struct chosen chosen;
	uint32_t n[2], k[2];
};

static void
open_lists(struct device *d, struct list_call *c, size_t stride, uint32_t n)
{
	*c = (struct list_call){ .joint = cleared(d, 2 * stride * 4), .n = { n, n / 2 },
	    .k = { n / 9, n / 3 } };
	c->chosen = (struct chosen){ .at = cleared(d, 2 * stride * 4), .stride = stride,
	    .rows = 1 };
}

static void
ops_of_lists(struct device *d, struct list_call *c, const float *score, size_t stride, uint32_t R,
    uint32_t most)
{
	const struct counts n = { c->n, most };

	c->chosen.n = c->k;
	d->ops->group_reduce(d->dev, c->joint, score, stride, n, NULL, 2 * R, 2, REDUCE_SUM);
	d->ops->topk(d->dev, &c->chosen, c->joint, stride, n, 2);
}

static int
same_lists(struct device *d, const struct list_call *a, const struct list_call *b, size_t stride)
{
	float *joint[2] = { from_device(d, a->joint, 2 * stride),
	    from_device(d, b->joint, 2 * stride) };
	float *at[2] = { from_device(d, a->chosen.at, 2 * stride),
	    from_device(d, b->chosen.at, 2 * stride) };
	const int same = memcmp(joint[0], joint[1], 2 * stride * 4) == 0 &&
	    memcmp(at[0], at[1], 2 * stride * 4) == 0;

	free(joint[0]);
	free(joint[1]);
	free(at[0]);
	free(at[1]);
	return same;
}

/* n: a few less than the most of a kernel */
static void
test_lists(struct device *d, uint32_t n, uint32_t R, uint32_t most)
{
	static const uint32_t more[] = { 0, 1, 3, 9, 4 };
	const size_t stride = most + 1;
	float *x = floats(2 * R * stride, 4), *score = to_device(d, x, 2 * R * stride * 4);
	struct list_call plain, twin;
	uint32_t graph = 0;
	size_t i;

	open_lists(d, &plain, stride, n);
	open_lists(d, &twin, stride, n);
	ops_of_lists(d, &twin, score, stride, R, most);
	if (d->ops->graph_begin(d->dev)) {
		ops_of_lists(d, &twin, score, stride, R, most);
		graph = d->ops->graph_end(d->dev, NULL);
	}
	for (i = 0; i < sizeof more / sizeof more[0]; i++) {
		plain.n[0] = n + more[i];
		plain.n[1] = n / 2 + more[i];
		d->ops->clear(d->dev, twin.joint, 2 * stride * 4);
		d->ops->clear(d->dev, plain.joint, 2 * stride * 4);
		verdict(graph != 0 && d->ops->graph_launch(d->dev, graph, more[i]),
		    "%s: launch for %u of %u scores more", d->name, more[i], n);
		ops_of_lists(d, &plain, score, stride, R, 0);
		verdict(same_lists(d, &plain, &twin, stride) && d->ops->sync(d->dev) == NULL,
		    "%s: %u scores, and %u more, at most %u, of %u heads", d->name, n, more[i],
		    most, R);
	}
	d->ops->free(d->dev, plain.joint);
	d->ops->free(d->dev, plain.chosen.at);
	d->ops->free(d->dev, twin.joint);
	d->ops->free(d->dev, twin.chosen.at);
	d->ops->free(d->dev, score);
	free(x);
}

/* ---- what goes by the lengths of the capture ---- */

enum fixed { LISTS_STAY, ENTRIES_MISSING, CHOSEN_PAGES, ALL_GROW };

static void
run_fixed(struct growing *x, enum fixed what)
{
	const struct ops *o = x->on->ops;
	struct dev *d = x->on->dev;
	const struct query query = { .q = x->q, .N = 1, .H = G * x->how->R };
	const struct chosen pages = { .at = x->chosen.at, .stride = 8, .n = (uint32_t[]){ 1, 1, 1 },
	    .rows = 4 };

	switch (what) {
	case LISTS_STAY:
		o->topk(d, &x->chosen, x->score, x->stride, (struct counts){ x->len, 0 }, G);
		break;
	case ENTRIES_MISSING:
		o->bits_scores(d, x->score, x->stride, &query, &x->bits, &x->rows);
		break;
	case CHOSEN_PAGES:
		o->attend_chosen(d, x->o, &query, &x->rows, &pages);
		break;
	case ALL_GROW:
		ops_of_step(x, x->most);
	}
}

/* Captures one op, which has run once on other rows, and says for how many rows more it can be
 * launched: 0 or 1. */
static int
can_grow(struct device *d, enum fixed what)
{
	static const struct growth how = { KV_F32, 16, 16, 2, 50, 1, 0, 0, 0 };
	struct inputs in = { .k = floats(500 * 16, 1), .v = floats(500 * 16, 1) };
	struct growing first, x;
	uint32_t graph;
	int one;

	open_growing(&first, d, &how, &in);
	run_fixed(&first, what);
	open_growing(&x, d, &how, &in);
	if (what != ENTRIES_MISSING)
		d->ops->pack_bits(d->dev, &x.bits, &x.rows);
	if (!d->ops->graph_begin(d->dev))
		return -1;
	run_fixed(&x, what);
	graph = d->ops->graph_end(d->dev, NULL);
	one = d->ops->graph_launch(d->dev, graph, 1);
	verdict(graph != 0 && d->ops->graph_launch(d->dev, graph, 0), "%s: op %d: no launch",
	    d->name, what);
	close_growing(&x);
	close_growing(&first);
	free(in.k);
	free(in.v);
	return one;
}

void
test_growing(void)
{
	static const struct growth how[] = {
		{ KV_BF16, 64, 16, 3, 77, 1, 0, 0, 0 }, { KV_F16, 128, 16, 4, 93, 1, 0, 0, 0 },
		{ KV_F32, 16, 32, 1, 94, 1, 0, 0, 0 }, { KV_BF16, 64, 64, 1, 190, 0, 0, 0, 0 },
		{ KV_F16, 32, 128, 10, 380, 0, 5, 0, 0 }, { KV_F32, 7, 16, 2, 45, 1, 0, 0, 0 },
		{ KV_BF16, 64, 32, 8, 1021, 1, 0, 0, 0 },
		{ KV_BF16, 128, 16, 3, 77, 1, 0, KV_ROW_Q8_0, KV_ROW_Q4_0 },
		{ KV_BF16, 64, 32, 4, 1021, 1, 5, KV_ROW_Q4_1 | KV_ROW_HADAMARD,
		    KV_ROW_INT8 | KV_ROW_HADAMARD },
		{ KV_F16, 33, 16, 10, 93, 1, 0, KV_ROW_FP8, 0 },
	};
	static const struct { uint32_t n, R, most; } list[] = {
		{ 1022, 2, 1040 }, { 4090, 1, 4200 }, { 16380, 2, 16500 }, { 65533, 2, 65600 },
		{ 900, 3, 17000 },
	};
	size_t i;
	int k;

	for (k = 0; k < devices; k++) {
		if (device[k].ops->graph_begin == NULL)
			continue;
		for (i = 0; i < sizeof how / sizeof how[0]; i++)
			if (in_sample())
				test_growth(&device[k], &how[i]);
		for (i = 0; i < sizeof list / sizeof list[0]; i++)
			if (in_sample())
				test_lists(&device[k], list[i].n, list[i].R, list[i].most);
		verdict(can_grow(&device[k], LISTS_STAY) == 0 &&
		    can_grow(&device[k], ENTRIES_MISSING) == 0 &&
		    can_grow(&device[k], CHOSEN_PAGES) == 0 && can_grow(&device[k], ALL_GROW) == 1,
		    "%s: launches for a row more of what goes by the lengths of the capture",
		    device[k].name);
	}
}
