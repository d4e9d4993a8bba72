/* ops_compact.c - compact and compact_listed: the kept rows move up, with positions and mass, and
 * nothing else moves */
#include <stdio.h>
#include <string.h>

#include "tests/unit/ops_check.h"

enum { MOST_HEADS = 9, BEHIND = 3 };    /* rows of spare capacity of each KV head */

/* Which rows of a KV head stay */
enum pattern { BUT_ONE, ALL, NONE, BUT_LAST, BUT_FIRST, THIRD, LATE, SOME, PATTERNS };

struct shape {
	uint32_t G, R, E;
	enum kv_dtype type;
	uint32_t rows;                  /* of the longest KV head */
	enum pattern first;             /* of KV head 0; then the next ones */
	int values, mass;
};

static int
stays(enum pattern p, uint32_t i, uint32_t n)
{
	switch (p) {
	case BUT_ONE: return i != n / 3;
	case ALL: return 1;
	case NONE: return 0;
	case BUT_LAST: return i + 1 != n;
	case BUT_FIRST: return i != 0;
	case THIRD: return i % 3 == 1;
	case LATE: return i < 4 || i > n / 2;
	default: return draw(5) > 1;
	}
}

/* A layer on the host, and which of its rows are kept */
struct layer {
	uint64_t start[MOST_HEADS];
	uint32_t len[MOST_HEADS], count[MOST_HEADS], *keep[MOST_HEADS];
	size_t total, stride;           /* rows of capacity; of a list of mass */
	size_t row;                     /* bytes */
	char *k, *v;
	uint32_t *pos;
	float *mass;
};

static void *
random_words(size_t bytes)
{
	uint32_t *p = malloc(bytes + 4);
	size_t i;

	for (i = 0; i < bytes / 4 + 1; i++)
		p[i] = draw(UINT32_MAX);
	return p;
}

static void
make_layer(struct layer *l, const struct shape *s)
{
	uint32_t g, i;

	*l = (struct layer){ .row = s->E * kv_dtype_size(s->type), .total = 1,
	    .stride = s->rows + 2 };
	for (g = 0; g < s->G; g++) {
		l->len[g] = s->rows - (g < s->rows ? g : 0);
		l->start[g] = l->total;
		l->total += l->len[g] + BEHIND;
		l->keep[g] = malloc((l->len[g] + 1) * sizeof *l->keep[g]);
		for (i = 0; i < l->len[g]; i++)
			if (stays((s->first + g) % PATTERNS, i, l->len[g]))
				l->keep[g][l->count[g]++] = i;
	}
	l->k = random_words(l->total * l->row);
	l->v = random_words(l->total * l->row);
	l->pos = random_words(l->total * sizeof *l->pos);
	l->mass = random_words(s->G * s->R * l->stride * sizeof *l->mass);
}

static void
free_layer(struct layer *l, uint32_t G)
{
	uint32_t g;

	for (g = 0; g < G; g++)
		free(l->keep[g]);
	free(l->k);
	free(l->v);
	free(l->pos);
	free(l->mass);
}

/* Is got, from the start of KV head g on, what compact() makes of the list `was` of rows of so many
 * bytes? What is behind the kept rows, up to the old length, is undefined, or zeros. */
static int
kept(const struct layer *l, uint32_t g, const void *got, const void *was, size_t bytes, int zeros)
{
	static const char zero[4];
	const char *a = got, *b = was;
	const uint32_t n = l->count[g], len = l->len[g];
	uint32_t i;
	int good = 1;

	for (i = 0; i < n; i++)
		good &= memcmp(a + i * bytes, b + l->keep[g][i] * bytes, bytes) == 0;
	for (i = n; zeros && i < len; i++)
		good &= memcmp(a + i * bytes, zero, bytes) == 0;
	return good;
}

/* Are the rows outside of all KV heads unchanged? */
static int
untouched(const struct layer *l, const struct shape *s, const char *got, const char *was,
    size_t bytes)
{
	int good = memcmp(got, was, bytes) == 0;
	uint32_t g;

	for (g = 0; g < s->G; g++)
		good &= memcmp(got + (l->start[g] + l->len[g]) * bytes,
		    was + (l->start[g] + l->len[g]) * bytes, BEHIND * bytes) == 0;
	return good;
}

static void
check_rows(struct device *d, const struct layer *l, const struct shape *s, const void *on_device,
    const void *was, size_t bytes, const char *what)
{
	char *got = malloc(l->total * bytes + 1);
	uint32_t g;

	d->ops->get(d->dev, got, on_device, l->total * bytes);
	for (g = 0; g < s->G; g++)
		verdict(kept(l, g, got + l->start[g] * bytes, (const char *)was +
		    l->start[g] * bytes, bytes, 0), "%s: compact, %s of KV head %u of %u, %u of %u "
		    "rows of %zu bytes", d->name, what, g, s->G, l->count[g], l->len[g], bytes);
	verdict(untouched(l, s, got, was, bytes), "%s: compact, %s: other rows have changed",
	    d->name, what);
	free(got);
}

static void
check_mass(struct device *d, const struct layer *l, const struct shape *s, const float *on_device)
{
	const size_t n = s->G * s->R * l->stride;
	float *got = from_device(d, on_device, n);
	uint32_t h;

	for (h = 0; h < s->G * s->R; h++) {
		const uint32_t len = l->len[h / s->R];
		const float *a = got + h * l->stride, *b = l->mass + h * l->stride;

		verdict(kept(l, h / s->R, a, b, sizeof *a, 1) &&
		    memcmp(a + len, b + len, (l->stride - len) * sizeof *a) == 0,
		    "%s: compact, mass of query head %u of %u, %u rows", d->name, h, s->G * s->R,
		    len);
	}
	free(got);
}

/* compact(), or compact_listed() with the lists on the device, some room behind each */
static void
run(struct device *d, struct layer_rows *rows, float *mass, const struct shape *s, struct layer *l,
    int listed)
{
	const size_t stride = s->rows + BEHIND;
	struct chosen kept = { .stride = stride, .n = l->count, .rows = 1 };
	uint32_t *at, g;

	if (!listed) {
		d->ops->compact(d->dev, rows, mass, l->stride, s->G * s->R, l->count, l->keep);
		return;
	}
	at = random_words(s->G * stride * sizeof *at);
	for (g = 0; g < s->G; g++)
		memcpy(at + g * stride, l->keep[g], l->count[g] * sizeof *at);
	kept.at = to_device(d, at, s->G * stride * sizeof *at);
	d->ops->compact_listed(d->dev, rows, mass, l->stride, s->G * s->R, &kept);
	d->ops->free(d->dev, kept.at);
	free(at);
}

static void
test_device(struct device *d, struct layer *l, const struct shape *s, int listed)
{
	uint32_t len[MOST_HEADS];
	struct layer_rows rows = { .k = to_device(d, l->k, l->total * l->row),
		.v = s->values ? to_device(d, l->v, l->total * l->row) : NULL,
		.pos = to_device(d, l->pos, l->total * sizeof *l->pos), .start = l->start,
		.len = len, .heads = s->G, .width = s->E, .dtype = s->type };
	float *mass = to_device(d, l->mass, s->G * s->R * l->stride * sizeof *l->mass);

	memcpy(len, l->len, sizeof len);
	run(d, &rows, s->mass ? mass : NULL, s, l, listed);
	verdict(d->ops->sync(d->dev) == NULL && memcmp(len, l->count, s->G * sizeof *len) == 0,
	    "%s: compact: %s", d->name, d->ops->sync(d->dev));
	check_rows(d, l, s, rows.k, l->k, l->row, "keys");
	if (s->values)
		check_rows(d, l, s, rows.v, l->v, l->row, "values");
	check_rows(d, l, s, rows.pos, l->pos, sizeof *l->pos, "positions");
	if (s->mass)
		check_mass(d, l, s, mass);
	d->ops->free(d->dev, rows.k);
	d->ops->free(d->dev, rows.v);
	d->ops->free(d->dev, rows.pos);
	d->ops->free(d->dev, mass);
}

static void
test_shape(struct shape s)
{
	struct layer l;
	int k;

	make_layer(&l, &s);
	for (k = 0; k < devices; k++) {
		test_device(&device[k], &l, &s, 0);
		if (device[k].ops->compact_listed != NULL)
			test_device(&device[k], &l, &s, 1);
	}
	free_layer(&l, s.G);
}

/* More rows to keep than there are: refused with this message. */
static void
test_refusals(void)
{
	static const struct ops *last;
	char err[256];
	int k;

	for (k = 0; k < devices; k++) {
		const struct ops *o = device[k].ops;
		struct dev *d = o == last ? NULL : o->open(0, 1, err, sizeof err);
		struct layer_rows rows = { .start = (uint64_t[]){ 0 }, .len = (uint32_t[]){ 2 },
			.heads = 1, .width = 8 };

		if (d == NULL)
			continue;
		last = o;
		o->compact(d, &rows, NULL, 0, 1, (uint32_t[]){ 3 },
		    (uint32_t *[]){ (uint32_t[]){ 0, 1, 2 } });
		verdict(o->sync(d) != NULL && strcmp(o->sync(d), "keep: 3 of 2 rows of KV head "
		    "0") == 0, "%s: %s", device[k].name, o->sync(d));
		o->close(d);
	}
}

void
test_compact(void)
{
	static const uint32_t width[] = { 1, 3, 6, 8, 33, 64, 128, 136 };
	struct shape s = { 8, 2, 0, KV_F16, 333, BUT_ONE, 1, 1 };
	size_t i;

	for (i = 0; i < sizeof width / sizeof *width; i++) {
		s.E = width[i];
		s.type = i % 3 == 0 ? KV_F32 : i % 3 == 1 ? KV_F16 : KV_BF16;
		s.first = i % PATTERNS;
		test_shape(s);
	}
	/* pieces of a stripe and one row less or more, of 16 bytes, and of lists of numbers */
	for (i = 1023; i <= 1025; i++)
		test_shape((struct shape){ 2, 1, 64, KV_BF16, (uint32_t)i + 1, BUT_FIRST, 1, 1 });
	test_shape((struct shape){ 1, 1, 128, KV_BF16, 2050, BUT_FIRST, 1, 1 });
	test_shape((struct shape){ 9, 5, 40, KV_F32, 77, SOME, 1, 1 });
	test_shape((struct shape){ 3, 4, 32, KV_BF16, 5000, SOME, 1, 1 });
	test_shape((struct shape){ 3, 4, 32, KV_BF16, 100, THIRD, 0, 1 });
	test_shape((struct shape){ 4, 2, 32, KV_BF16, 100, BUT_LAST, 1, 0 });
	test_shape((struct shape){ 1, 3, 16, KV_F16, 5, BUT_LAST, 1, 1 });      /* only zeros */
	test_shape((struct shape){ 1, 1, 16, KV_F16, 1, NONE, 1, 1 });
	test_shape((struct shape){ 1, 1, 16, KV_F16, 64, ALL, 1, 1 });
	/* a list that two buffers of the way to a GPU do not hold */
	test_shape((struct shape){ 2, 1, 1, KV_F16, 1100000, BUT_FIRST, 1, 1 });
	test_refusals();
}
