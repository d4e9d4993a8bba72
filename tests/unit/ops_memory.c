/* ops_memory.c - memory of devices: what is put is got, whatever its size; rows that keep() moves */
#include <string.h>

#include "tests/unit/ops_check.h"

static unsigned char *
random_bytes(size_t n)
{
	unsigned char *p = malloc(n + 1);
	size_t i;

	for (i = 0; i < n; i++)
		p[i] = (unsigned char)draw(256);
	return p;
}

/* Pieces of one array in some order, and the whole of it back, at an odd place. */
static void
test_pieces(struct device *d, size_t size, size_t piece)
{
	unsigned char *x = random_bytes(size), *got = malloc(size + 1);
	char *at = d->ops->alloc(d->dev, size + 3);
	size_t from, n;

	for (from = 0; from < size; from += n) {
		n = size - from < piece ? size - from : piece;
		d->ops->put(d->dev, at + 3 + from, x + from, n);
		if (from < size / 2)
			x[from] ^= 255;         /* what is put has been taken over */
	}
	d->ops->get(d->dev, got, at + 3, size);
	for (from = 0; from < size / 2; from += piece)
		x[from] ^= 255;
	verdict(d->ops->sync(d->dev) == NULL && memcmp(x, got, size) == 0,
	    "%s: %zu bytes put by %zu", d->name, size, piece);
	d->ops->free(d->dev, at);
	free(got);
	free(x);
}

/* What keep() does: rows rows[n] of S, `bytes` each, from byte `offset` on. */
static void
test_keep(uint32_t S, size_t bytes, size_t offset, uint32_t (*row)(uint32_t), const char *what)
{
	const size_t size = offset + S * bytes + 5;
	unsigned char *x = random_bytes(size), *want = malloc(size), *got = malloc(size);
	uint32_t *rows = malloc((S + 1) * sizeof *rows), n;
	char *at;
	int k;

	memcpy(want, x, size);
	for (n = 0; row(n) < S; n++) {
		rows[n] = row(n);
		memcpy(want + offset + n * bytes, x + offset + rows[n] * bytes, bytes);
	}
	for (k = 0; k < devices; k++) {
		struct device *d = &device[k];

		at = to_device(d, x, size);
		d->ops->keep(d->dev, at + offset, bytes, rows, n);
		d->ops->get(d->dev, got, at, size);
		/* what is behind the rows that stay is anybody's */
		verdict(d->ops->sync(d->dev) == NULL &&
		    memcmp(got, want, offset + n * bytes) == 0 &&
		    memcmp(got + size - 5, want + size - 5, 5) == 0,
		    "%s: keep %s, %u rows of %zu bytes", d->name, what, n, bytes);
		d->ops->free(d->dev, at);
	}
	free(x);
	free(want);
	free(got);
	free(rows);
}

static uint32_t all_but_one(uint32_t i) { return i + (i >= 2); }
static uint32_t every_third(uint32_t i) { return 3 * i + 1; }
static uint32_t from_100(uint32_t i) { return i < 4 ? i : i + 100; }
static uint32_t all(uint32_t i) { return i; }
static uint32_t none(uint32_t i) { (void)i; return UINT32_MAX; }

static void
test_keeps(void)
{
	static const struct {
		uint32_t (*row)(uint32_t);
		const char *what;
	} list[] = { { all_but_one, "all but one" }, { every_third, "every third" },
		{ from_100, "from 100 on" }, { all, "all" }, { none, "none" } };
	static const size_t width[] = { 1, 2, 4, 12, 16, 64, 66, 256 };
	size_t i, w;

	for (i = 0; i < sizeof list / sizeof list[0]; i++)
		for (w = 0; w < sizeof width / sizeof width[0]; w++)
			test_keep(333, width[w], w % 2 * 4, list[i].row, list[i].what);
	test_keep(100, 16, 3, all_but_one, "all but one, at an odd place");
	test_keep(90000, 512, 0, all_but_one, "more than a piece");
}

void
test_memory_ops(void)
{
	int k;

	for (k = 0; k < devices; k++) {
		test_pieces(&device[k], 1, 1);
		test_pieces(&device[k], 4000, 7);
		test_pieces(&device[k], ((size_t)9 << 20) + 1, 3000001);
		test_pieces(&device[k], ((size_t)13 << 20) + 5, SIZE_MAX);
	}
	test_keeps();
}
