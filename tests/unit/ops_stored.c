/* ops_stored.c - append, compact and rebuild of rows of quantised types: what is stored, to the
 * byte, and what is refused; cases of ops_quantised.c */
#include <string.h>

#include "tests/unit/ops_cache.h"

enum { HEADS = 3, ROWS = 7, ROOM = 12 };

/* A cache of ROOM rows of each of HEADS heads */
struct room {
	uint64_t start[HEADS];
	uint32_t len[HEADS], capacity[HEADS];
	struct layer_rows rows;
};

static void
make_room(struct device *d, struct room *r, uint32_t E, enum kv_row_type k, enum kv_row_type v)
{
	uint32_t g;

	for (g = 0; g < HEADS; g++) {
		r->start[g] = g * ROOM;
		r->len[g] = g;
		r->capacity[g] = ROOM;
	}
	r->rows = (struct layer_rows){ .start = r->start, .len = r->len, .capacity = r->capacity,
		.heads = HEADS, .width = E, .dtype = KV_BF16, .k_type = k, .v_type = v };
	r->rows.k = cleared(d, HEADS * ROOM * rows_k_bytes(&r->rows));
	r->rows.v = cleared(d, HEADS * ROOM * rows_v_bytes(&r->rows));
	r->rows.pos = cleared(d, HEADS * ROOM * 4);
}

/* Are rows first .. of KV head g those of x[N][HEADS][E] that `keep` lists? */
static int
are_rows(struct device *d, const struct room *r, int values, const float *x, uint32_t g,
    uint32_t first, const uint32_t *keep, uint32_t n)
{
	const enum kv_row_type type = values ? rows_v_type(&r->rows) : rows_k_type(&r->rows);
	const size_t E = r->rows.width, bytes = kv_row_bytes(type, E);
	char *all = malloc(HEADS * ROOM * bytes), *one = malloc(bytes);
	uint32_t i;
	int same = 1;

	d->ops->get(d->dev, all, values ? r->rows.v : r->rows.k, HEADS * ROOM * bytes);
	for (i = 0; i < n; i++) {
		kv_rows_from_f32(one, x + ((size_t)keep[i] * HEADS + g) * E, type, E, 1);
		same &= memcmp(all + (g * ROOM + first + i) * bytes, one, bytes) == 0;
	}
	free(all);
	free(one);
	return same;
}

/* Two appends, of which the first row of each is dropped again; what is left is where it belongs */
static void
test_append_and_compact(uint32_t E, enum kv_row_type k, enum kv_row_type v)
{
	const size_t n = (size_t)ROWS * HEADS * E;
	static const uint32_t order[ROWS] = { 0, 1, 2, 3, 4, 5, 6 }, kept[] = { 1, 2, 5, 6 };
	uint32_t list[HEADS][4], count[HEADS], *keep[HEADS], pos[ROWS] = { 3, 5, 7, 9, 10, 11, 20 };
	float *x = floats(n, 2), *y = floats(n, 3);
	struct room r;
	uint32_t g, i;
	int j;

	cache_types = (struct cache_types){ .k = k, .v = v };
	for (j = 0; j < devices; j++) {
		struct device *d = &device[j];
		void *dx = to_device(d, x, n * 4), *dy = to_device(d, y, n * 4),
		    *dp = to_device(d, pos, sizeof pos);

		make_room(d, &r, E, k, v);
		d->ops->append(d->dev, &r.rows, dx, dy, dp, ROWS);
		for (g = 0; g < HEADS; g++) {
			verdict(r.len[g] == g + ROWS && are_rows(d, &r, 0, x, g, g, order, ROWS) &&
			    are_rows(d, &r, 1, y, g, g, order, ROWS),
			    "append, %s: KV head %u of %s keys and %s values, width %u", d->name, g,
			    kv_row_type_name(rows_k_type(&r.rows)),
			    kv_row_type_name(rows_v_type(&r.rows)), E);
			count[g] = 4;
			keep[g] = list[g];
			for (i = 0; i < 4; i++)
				list[g][i] = g + kept[i];
		}
		d->ops->compact(d->dev, &r.rows, NULL, 0, HEADS, count, keep);
		for (g = 0; g < HEADS; g++)
			verdict(r.len[g] == 4 && are_rows(d, &r, 0, x, g, 0, kept, 4) &&
			    are_rows(d, &r, 1, y, g, 0, kept, 4),
			    "compact, %s: KV head %u of %s keys and %s values, width %u", d->name,
			    g, kv_row_type_name(rows_k_type(&r.rows)),
			    kv_row_type_name(rows_v_type(&r.rows)), E);
		d->ops->free(d->dev, dx);
		d->ops->free(d->dev, dy);
		d->ops->free(d->dev, dp);
		cache_free_rows(d, &r.rows);
	}
	free(x);
	free(y);
	cache_types = (struct cache_types){ 0 };
}

/* A row that its type cannot store, of KV head 1; factors of keys that are quantised */
static void
test_refused(const struct device *like, int values, float x, enum kv_row_type type, int rebuild)
{
	enum { E = 32 };
	float row[HEADS * E] = { 0 }, good[HEADS * E] = { 0 };
	char err[80], want[80];
	struct device d = *like;
	struct room r;
	const uint32_t at[HEADS] = { 0 }, none[HEADS] = { 0 };
	const char *said;

	d.dev = d.ops->open(0, d.threads, err, sizeof err);
	make_room(&d, &r, E, values ? (enum kv_row_type)0 : type, values ? type :
	    (enum kv_row_type)0);
	row[E + 5] = x;
	snprintf(want, sizeof want, "%s of KV head 1 is not finite, or too large for %s",
	    values ? "value" : "key", kv_row_type_name(type));
	if (rebuild) {
		const struct chosen none_chosen = { (uint32_t *)at, 1, (uint32_t *)none, 1 };
		const struct low_rank low = { row, row, NULL, 0, 1, 1, KV_BF16 };

		snprintf(want, sizeof want, "bf16 factors of %s keys", kv_row_type_name(type));
		d.ops->rebuild(d.dev, &r.rows, &none_chosen, &low, NULL);
	} else {
		void *const bad = to_device(&d, row, sizeof row);
		void *const zeros = to_device(&d, good, sizeof good);
		void *const pos = to_device(&d, at, sizeof at);

		d.ops->append(d.dev, &r.rows, values ? zeros : bad, values ? bad : zeros, pos, 1);
		d.ops->free(d.dev, bad);
		d.ops->free(d.dev, zeros);
		d.ops->free(d.dev, pos);
	}
	said = d.ops->sync(d.dev);
	verdict(said != NULL && strstr(said, want) != NULL, "%s: \"%s\", want \"%s\"", d.name,
	    said == NULL ? "" : said, want);
	verdict(d.ops->runs_ahead || (r.len[0] == 0 && r.len[1] == 1 && r.len[2] == 2),
	    "%s: rows that were refused are counted", d.name);
	cache_free_rows(&d, &r.rows);
	d.ops->close(d.dev);
}

static void
test_refusals(void)
{
	int k;

	for (k = 0; k < devices; k++) {
		test_refused(&device[k], 0, NAN, KV_ROW_Q8_0, 0);
		test_refused(&device[k], 1, INFINITY, KV_ROW_FP8, 0);
		test_refused(&device[k], 0, 3e38f, KV_ROW_Q4_0 | KV_ROW_HADAMARD, 0);
		test_refused(&device[k], 0, 0, KV_ROW_INT8, 1);
	}
}

void
test_stored(void)
{
	static const uint32_t width[] = { 64, 33, 128, 7 };
	size_t i;

	for (i = 0; i < 24; i++)
		test_append_and_compact(width[i / 6], cache_type_for(width[i / 6], i, 1),
		    cache_type_for(width[i / 6], i / 2 + 3, 1));
	test_refusals();
}
