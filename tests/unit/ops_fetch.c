/* ops_fetch.c - fetch_chosen and fetch_wait: selected rows that are in host memory, and their slots
 *
 * The oracle keeps which row is in which slot. After each of some steps everything is compared to
 * the byte: the lists, all slots, the rows behind them, and what has been fetched. */
#include <stdio.h>

#include "tests/unit/ops_check.h"

#define STEPS 6
#define GAP 3                        /* rows before and between those of KV heads */
#define BEHIND 5                     /* rows of each KV head that are not in host memory, at most */

struct shape {
	uint32_t G, E, S, slots;     /* S: rows of the first KV head in host memory */
	uint32_t entry;              /* rows of an entry; 0: all rows are read */
	uint32_t chunk;              /* of low; 0: none */
	enum kv_dtype type;
	int ahead;
	enum kv_row_type k_type, v_type;       /* as struct layer_rows' */
};

/* A layer on the host: what is in host memory, what is to be on the device, and in which slot */
struct sample {
	size_t k_row, v_row, stride; /* bytes of a row; of the lists */
	unsigned char *host_k, *host_v, *device_k, *device_v;
	uint32_t *pos, *device_pos, *in;       /* in: [G][slots] 1 + row */
	uint64_t host_start[8], pos_start[8], device_start[8], fetched[8];
	uint32_t stored[8], len[8];
	size_t offload, rows, device_rows;
	uint8_t *exact;
	uint32_t chunks;
	/* of a step: entries, and what is to come of them */
	uint32_t *entry, n_entries[8], *list, n[8];
};

static void
make_sample(struct sample *c, const struct shape *s)
{
	const struct layer_rows like = { .width = s->E, .dtype = s->type, .k_type = s->k_type,
		.v_type = s->v_type };
	uint32_t g, i;

	*c = (struct sample){ .k_row = rows_k_bytes(&like), .v_row = rows_v_bytes(&like),
		.stride = s->S + BEHIND + 2 };
	for (g = 0; g < s->G; g++) {
		c->stored[g] = g == 0 ? s->S : g == 2 ? 0 : 1 + draw(s->S);
		c->len[g] = c->stored[g] + draw(BEHIND + 1);
		c->host_start[g] = c->offload += draw(GAP);
		c->offload += c->stored[g];
		c->pos_start[g] = c->rows += GAP;
		c->rows += c->len[g];
		c->device_start[g] = c->device_rows += g % GAP;
		c->device_rows += s->slots + BEHIND;
	}
	c->host_k = draw_bytes((c->offload + 1) * c->k_row);
	c->host_v = draw_bytes((c->offload + 1) * c->v_row);
	c->device_k = draw_bytes(c->device_rows * c->k_row);
	c->device_v = draw_bytes(c->device_rows * c->v_row);
	c->pos = (uint32_t *)draw_bytes(c->rows * 4);
	c->device_pos = (uint32_t *)draw_bytes(c->device_rows * 4);
	c->in = calloc((size_t)s->G * s->slots, 4);
	c->entry = calloc(s->G * c->stride, 4);
	c->list = calloc(s->G * c->stride, 4);
	c->chunks = s->chunk > 0 ? s->S / s->chunk : 0;
	c->exact = calloc((size_t)s->G * c->chunks + 1, 1);
	for (i = 0; i < s->G * c->chunks; i++)
		c->exact[i] = draw(3) == 0;
}

static void
free_sample(struct sample *c)
{
	free(c->host_k);
	free(c->host_v);
	free(c->device_k);
	free(c->device_v);
	free(c->pos);
	free(c->device_pos);
	free(c->in);
	free(c->entry);
	free(c->list);
	free(c->exact);
}

/* Draws entries, the last one among them where it is not whole, of no more stored rows than slots.
 * Many of them are near the first one, so that some are drawn again in the next step. */
static void
choose(struct sample *c, const struct shape *s)
{
	const uint32_t u = s->entry > 0 ? s->entry : 1;
	uint32_t g, i, r, entries, left;

	for (g = 0; g < s->G; g++) {
		uint32_t *entry = c->entry + g * c->stride, *list = c->list + g * c->stride;

		entries = (c->len[g] + u - 1) / u;
		left = s->slots;
		c->n_entries[g] = c->n[g] = 0;
		for (i = 0; i < entries; i++) {
			const int last = i + 1 == entries && c->len[g] % u != 0;

			if (s->entry > 0 && !last && i * u < c->stored[g] &&
			    left < (c->len[g] % u > 0 ? 2 * u : u))
				continue;
			if (s->entry > 0 && !last && draw(1 + i / 8) > 1)
				continue;
			entry[c->n_entries[g]++] = i;
			for (r = i * u; r < (i + 1) * u && r < c->len[g]; r++) {
				left -= r < c->stored[g];
				list[c->n[g]++] = r;
			}
		}
	}
}

static int
has_key(const struct sample *c, const struct shape *s, uint32_t g, uint32_t r)
{
	return s->chunk == 0 || r / s->chunk >= c->chunks || c->exact[g * c->chunks + r / s->chunk];
}

/* Row r of KV head g goes to a slot. */
static void
bring(struct sample *c, const struct shape *s, uint32_t g, uint32_t r, uint32_t slot)
{
	const size_t from = c->host_start[g] + r, to = c->device_start[g] + slot;

	c->in[g * s->slots + slot] = r + 1;
	memcpy(c->device_v + to * c->v_row, c->host_v + from * c->v_row, c->v_row);
	c->device_pos[to] = c->pos[c->pos_start[g] + r];
	c->fetched[g] += c->v_row;
	if (!has_key(c, s, g, r))
		return;
	memcpy(c->device_k + to * c->k_row, c->host_k + from * c->k_row, c->k_row);
	c->fetched[g] += c->k_row;
}

/* The rows of the lists become places; the sample is what the device has to have then. */
static void
step(struct sample *c, const struct shape *s)
{
	char *stays = calloc(s->slots, 1);
	uint32_t g, i, j;

	for (g = 0; g < s->G; g++) {
		uint32_t *in = c->in + g * s->slots, *list = c->list + g * c->stride;

		memset(stays, 0, s->slots);
		for (j = 0; j < s->slots; j++)
			for (i = 0; i < c->n[g] && in[j] > 0; i++)
				stays[j] |= list[i] == in[j] - 1;
		for (j = 0; j < s->slots; j++)
			in[j] = stays[j] ? in[j] : 0;
		for (i = 0; i < c->n[g]; i++) {
			const uint32_t r = list[i];

			for (j = 0; j < s->slots && in[j] != r + 1; j++)
				;
			if (r < c->stored[g] && j == s->slots) {
				for (j = 0; stays[j]; j++)
					;
				stays[j] = 1;
				bring(c, s, g, r, j);
			}
			list[i] = r < c->stored[g] ? j : s->slots + r - c->stored[g];
		}
	}
	free(stays);
}

/* What the op gets, on the device and in host memory */
struct call {
	struct offload_slots f;
	struct layer_rows rows, device_rows;
	struct chosen chosen, list;
	struct low_rank low;
	uint32_t n_list[8];
};

static void *
pinned(struct device *d, const void *x, size_t bytes)
{
	void *p = d->ops->host_alloc(d->dev, bytes);

	memcpy(p, x, bytes);
	return p;
}

static void
make_call(struct call *a, struct device *d, struct sample *c, const struct shape *s)
{
	const size_t all = (size_t)s->G * s->slots * 4;

	*a = (struct call){
		.rows = { .pos = to_device(d, c->pos, c->rows * 4), .start = c->pos_start,
		    .len = c->len, .heads = s->G, .width = s->E, .dtype = s->type },
		.device_rows = { .k = to_device(d, c->device_k, c->device_rows * c->k_row),
		    .v = to_device(d, c->device_v, c->device_rows * c->v_row),
		    .pos = to_device(d, c->device_pos, c->device_rows * 4),
		    .start = c->device_start, .heads = s->G, .width = s->E, .dtype = s->type,
		    .k_type = s->k_type, .v_type = s->v_type },
		.f = { .k = pinned(d, c->host_k, (c->offload + 1) * c->k_row),
		    .v = pinned(d, c->host_v, (c->offload + 1) * c->v_row), .start = c->host_start,
		    .host_count = c->stored, .slots = s->slots, .row = cleared(d, all),
		    .slot = cleared(d, s->G * c->stride * 4), .stride = c->stride,
		    .n_new = cleared(d, s->G * 4), .new_row = cleared(d, all),
		    .new_slot = cleared(d, all),
		    .fetched = cleared(d, s->G * sizeof *a->f.fetched) },
		.chosen = { .at = cleared(d, s->G * c->stride * 4), .stride = c->stride,
		    .n = c->n_entries, .rows = s->entry },
		.list = { .at = cleared(d, s->G * c->stride * 4), .stride = c->stride, .rows = 1 },
		.low = { .exact = to_device(d, c->exact, s->G * c->chunks + 1),
		    .n = c->chunks * s->chunk, .chunk = s->chunk },
	};
	a->f.to = &a->device_rows;
	a->list.n = a->n_list;
}

static void
free_call(struct call *a, struct device *d)
{
	void *const all[] = { a->rows.pos, a->device_rows.k, a->device_rows.v, a->device_rows.pos,
		a->f.row, a->f.slot, a->f.n_new, a->f.new_row, a->f.new_slot, a->f.fetched,
		    a->chosen.at, a->list.at, (void *)(uintptr_t)a->low.exact };
	size_t i;

	for (i = 0; i < sizeof all / sizeof all[0]; i++)
		d->ops->free(d->dev, all[i]);
	d->ops->host_free(d->dev, (void *)(uintptr_t)a->f.k);
	d->ops->host_free(d->dev, (void *)(uintptr_t)a->f.v);
}

static int
same(struct device *d, const void *want, const void *at, size_t bytes)
{
	void *got = malloc(bytes + 1);
	int equal;

	d->ops->get(d->dev, got, at, bytes);
	equal = memcmp(got, want, bytes) == 0;
	free(got);
	return equal;
}

/* A row of NaNs shows that the lists of a step before are not taken for this one's. */
static int
run_step(struct device *d, struct call *a, struct sample *c, const struct shape *s)
{
	uint64_t fetch;
	uint32_t g;
	int ok;

	d->ops->put(d->dev, a->chosen.at, c->entry, s->G * c->stride * 4);
	d->ops->clear(d->dev, a->list.at, s->G * c->stride * 4);
	fetch = d->ops->fetch_chosen(d->dev, &a->list, s->entry > 0 ? &a->chosen : NULL, &a->rows,
	    s->chunk > 0 ? &a->low : NULL, &a->f, s->ahead);
	if (s->ahead)
		d->ops->fetch_wait(d->dev, fetch);
	ok = memcmp(a->n_list, c->n, s->G * 4) == 0;
	step(c, s);
	for (g = 0; g < s->G; g++)
		ok &= same(d, c->list + g * c->stride, a->list.at + g * c->stride, c->n[g] * 4);
	return ok && same(d, c->device_k, a->device_rows.k, c->device_rows * c->k_row) &&
	    same(d, c->device_v, a->device_rows.v, c->device_rows * c->v_row) &&
	    same(d, c->device_pos, a->device_rows.pos, c->device_rows * 4) &&
	    same(d, c->fetched, a->f.fetched, s->G * sizeof *c->fetched);
}

static void
test_shape(struct device *d, const struct shape *s)
{
	struct sample c;
	struct call a;
	uint32_t i;
	int ok = 1;

	make_sample(&c, s);
	make_call(&a, d, &c, s);
	for (i = 0; ok && i < STEPS; i++) {
		choose(&c, s);
		ok = run_step(d, &a, &c, s);
	}
	verdict(ok && c.fetched[0] > 0 && d->ops->sync(d->dev) == NULL, "%s: %u KV heads of width "
	    "%u, %s, %u rows, %u slots, entries of %u%s%s: step %u", d->name, s->G, s->E,
	    kv_dtype_name(s->type), s->S, s->slots, s->entry, s->chunk > 0 ? ", without keys" : "",
	    s->ahead ? ", ahead" : "", i);
	free_call(&a, d);
	free_sample(&c);
}

void
test_fetch(void)
{
	static const struct shape shape[] = {
		{ 1, 8, 1, 1, 1, 0, KV_BF16, 0, 0, 0 },
		{ 3, 64, 100, 40, 1, 0, KV_BF16, 0, 0, 0 },
		{ 4, 6, 90, 33, 1, 0, KV_F16, 1, 0, 0 },
		{ 5, 12, 200, 64, 1, 0, KV_F32, 1, 0, 0 },
		{ 2, 16, 50, 50, 0, 0, KV_BF16, 1, 0, 0 },
		{ 3, 10, 30, 64, 0, 8, KV_F32, 0, 0, 0 },
		{ 4, 16, 300, 96, 16, 0, KV_F16, 0, 0, 0 },
		{ 3, 32, 240, 80, 8, 8, KV_BF16, 0, 0, 0 },
		{ 2, 9, 240, 80, 1, 5, KV_F32, 1, 0, 0 },
		{ 2, 8, 4000, 1500, 1, 0, KV_BF16, 1, 0, 0 },
		{ 2, 8, 5000, 2100, 4, 4, KV_F32, 0, 0, 0 },
		{ 8, 128, 64, 32, 1, 0, KV_BF16, 0, 0, 0 },
		{ 3, 64, 100, 40, 1, 0, KV_BF16, 0, KV_ROW_Q8_0, KV_ROW_Q4_0 },
		{ 2, 128, 240, 80, 8, 8, KV_BF16, 1, 0, KV_ROW_Q4_1 | KV_ROW_HADAMARD },
		{ 4, 33, 300, 96, 16, 0, KV_F16, 0, KV_ROW_INT8, KV_ROW_FP8 },
		{ 2, 32, 90, 33, 1, 0, KV_F16, 1, KV_ROW_Q5_0, 0 },
	};
	size_t i;
	int k;

	for (k = 0; k < devices; k++) {
		if (device[k].ops->fetch_chosen == NULL) {
			verdict(device[k].ops->shares_memory, "%s: no fetch_chosen",
			    device[k].name);
			continue;
		}
		for (i = 0; i < sizeof shape / sizeof shape[0]; i++)
			test_shape(&device[k], &shape[i]);
	}
}
