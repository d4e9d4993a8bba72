/* ops_memory.c - memory of devices: what is put is got, whatever its size */
#include <string.h>

#include "tests/unit/ops_check.h"

extern const int cuda_emulated __attribute__((weak));   /* tests/cuda */

extern int cuda_emulated_failure __attribute__((weak));
size_t cuda_emulated_held(void) __attribute__((weak));

/* The same device once more */
static struct dev *
open_again(const struct device *d)
{
	char err[256];

	return d->ops->open(strncmp(d->name, "cuda", 4) == 0 ? d->threads : 0, 3, err, sizeof err);
}

/* Pieces of one array in some order, and the whole of it back, at an odd place. */
static void
test_pieces(struct device *d, size_t size, size_t piece)
{
	unsigned char *x = draw_bytes(size), *got = malloc(size + 1);
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

/* get_side() after event_wait() reads what was on the device at that event, while more work is
 * queued, whatever the number of events since. */
static void
test_get_side(struct device *d, size_t size, unsigned events)
{
	unsigned char *x = draw_bytes(size), *other = draw_bytes(size), *got = malloc(size);
	char *at = d->ops->alloc(d->dev, size), *to = d->ops->alloc(d->dev, size);
	uint64_t event;
	unsigned i;

	d->ops->put(d->dev, to, other, size);
	d->ops->put(d->dev, at, x, size);
	d->ops->copy(d->dev, to, at, size);
	event = d->ops->event_record(d->dev);
	for (i = 0; i < events; i++) {
		d->ops->put(d->dev, at, other, size);
		d->ops->event_record(d->dev);
	}
	verdict(d->ops->event_wait(d->dev, event) == NULL, "%s: wait", d->name);
	d->ops->get_side(d->dev, got, to, size);
	verdict(memcmp(x, got, size) == 0, "%s: %zu bytes read, %u events later", d->name, size,
	    events);
	d->ops->free(d->dev, at);
	d->ops->free(d->dev, to);
	free(got);
	free(other);
	free(x);
}

/* get_async() reads what is on the device when it is called, not what is put there later. */
static void
test_get_async(struct device *d, size_t size)
{
	unsigned char *x = draw_bytes(size), *other = draw_bytes(size), *on_device = to_device(d, x,
	    size);
	unsigned char *got = d->ops->host_alloc(d->dev, size + 1);
	uint64_t event;

	got[size] = 99;
	d->ops->get_async(d->dev, got, on_device, size);
	event = d->ops->event_record(d->dev);
	d->ops->put(d->dev, on_device, other, size);
	verdict(d->ops->event_wait(d->dev, event) == NULL && memcmp(x, got, size) == 0 &&
	    got[size] == 99, "%s: %zu bytes fetched", d->name, size);
	d->ops->host_free(d->dev, got);
	d->ops->host_free(d->dev, NULL);
	d->ops->free(d->dev, on_device);
	free(other);
	free(x);
}

/* Zeros from one odd place to another, and nothing beside them. */
static void
test_clear(struct device *d)
{
	unsigned char *x = draw_bytes(70000), *got = malloc(70000);
	char *at = to_device(d, x, 70000);

	d->ops->clear(d->dev, at + 3, 66666);
	d->ops->clear(d->dev, at, 0);
	d->ops->get(d->dev, got, at, 70000);
	memset(x + 3, 0, 66666);
	verdict(memcmp(got, x, 70000) == 0, "%s: clear", d->name);
	d->ops->free(d->dev, at);
	free(got);
	free(x);
}

/* Tensors of some sizes, expected or not, arrive whole, the next beside the last one. */
static void
test_weights(struct device *d, int expected)
{
	static const size_t size[] = { 5, (size_t)3 << 20, 4096, ((size_t)7 << 20) + 13, 1, 0,
	    777 };
	enum { N = sizeof size / sizeof size[0] };
	struct dev *dev = open_again(d);
	unsigned char *x[N], *got;
	const void *on_device[N];
	size_t all = 0;
	int i;

	for (i = 0; i < N; i++)
		all += (size[i] + 255) / 256 * 256;
	if (expected)
		d->ops->expect(dev, all);
	for (i = 0; i < N; i++) {
		x[i] = draw_bytes(size[i]);
		on_device[i] = d->ops->weights(dev, x[i], size[i]);
		if (i == 3)                     /* an end in between */
			verdict(d->ops->sync(dev) == NULL, "%s: weights", d->name);
	}
	for (i = 0; i < N; i++) {
		got = malloc(size[i] + 1);
		d->ops->get(dev, got, on_device[i], size[i]);
		verdict(on_device[i] != NULL && (uintptr_t)on_device[i] % 16 == 0 &&
		    memcmp(got, x[i], size[i]) == 0, "%s: %zu bytes of weights%s", d->name,
		    size[i], expected ? ", expected" : "");
		free(got);
	}
	d->ops->close(dev);
	for (i = 0; i < N; i++)
		free(x[i]);
}

/* Everything that a device has taken it gives back, also when nobody says free(). */
static void
test_mem_info(struct device *d)
{
	size_t before, now, total;
	const char *why;
	struct dev *dev;
	void *at;

	d->ops->mem_info(d->dev, &before, &total);
	verdict(before > 0 && before <= total, "%s: %zu bytes free of %zu", d->name, before, total);
	if (before == SIZE_MAX)                 /* it does not say */
		return;
	verdict(&cuda_emulated == NULL || before <= total - ((size_t)256 << 20), "%s: %zu bytes "
	    "free of %zu, without kernels and cuBLAS", d->name, before, total);
	at = d->ops->alloc(d->dev, (size_t)4 << 20);
	d->ops->mem_info(d->dev, &now, &total);
	verdict(before - now >= (size_t)4 << 20, "%s: 4 MiB take %zu", d->name, before - now);
	verdict(d->ops->alloc(d->dev, total + 1) == NULL, "%s: more than there is", d->name);
	d->ops->clear(d->dev, at, 4);
	d->ops->round(d->dev, at, 1, KV_F16);
	why = d->ops->sync(d->dev);
	verdict(why == NULL, "%s: a kernel behind that: %s", d->name, why != NULL ? why : "runs");
	d->ops->free(d->dev, at);
	d->ops->mem_info(d->dev, &now, &total);
	verdict(now == before || &cuda_emulated == NULL, "%s: %zu bytes free before 4 MiB, %zu "
	    "after", d->name, before, now);

	dev = open_again(d);
	d->ops->expect(dev, 1000000);
	verdict(d->ops->weights(dev, "weights", 8) != NULL, "%s: weights", d->name);
	d->ops->close(dev);
	d->ops->mem_info(d->dev, &now, &total);
	/* a driver keeps some for itself */
	verdict(now == before || &cuda_emulated == NULL, "%s: %zu bytes free before, %zu after",
	    d->name, before, now);
}

/* A library that allocates by itself finds what has been freed: a product of many rows. */
static void
test_library(struct device *d, struct dev *dev)
{
	enum { N = 9, IN = 8, OUT = 4 };
	float *x = d->ops->alloc(dev, N * IN * sizeof *x);
	float *y = d->ops->alloc(dev, N * OUT * sizeof *y);
	float *w = d->ops->alloc(dev, OUT * IN * sizeof *w);
	const struct mat mat = { .data = w, .type = WEIGHT_F32, .out = OUT, .in = IN };
	const char *why;

	d->ops->clear(dev, x, N * IN * sizeof *x);
	d->ops->clear(dev, w, OUT * IN * sizeof *w);
	d->ops->matmul(dev, y, x, &mat, NULL, N, 0);
	why = d->ops->sync(dev);
	verdict(why == NULL, "%s: a product where all memory had been used before: %s", d->name,
	    why != NULL ? why : "");
	d->ops->free(dev, x);
	d->ops->free(dev, y);
	d->ops->free(dev, w);
}

/* What has been freed can be allocated again, whether in pieces of another size or as weights. */
static void
test_again(struct device *d)
{
	struct dev *dev;
	size_t before, now, total;
	void *at[4];
	int i;

	setenv("KV_EMULATED_MEMORY", "160", 1);
	dev = open_again(d);
	for (i = 0; i < 4; i++)
		at[i] = d->ops->alloc(dev, (size_t)20 << 20);
	for (i = 0; i < 4; i++)
		d->ops->free(dev, at[i]);
	d->ops->mem_info(dev, &before, &total);
	d->ops->expect(dev, before);
	verdict(before > (size_t)80 << 20 && d->ops->weights(dev, "weights", 8) != NULL &&
	    d->ops->sync(dev) == NULL, "%s: weights in %zu bytes that are free", d->name, before);
	d->ops->mem_info(dev, &now, &total);
	verdict(now == 0 && d->ops->alloc(dev, 1) == NULL && d->ops->sync(dev) == NULL,
	    "%s: %zu bytes free behind them", d->name, now);
	d->ops->close(dev);
	dev = open_again(d);
	at[0] = d->ops->alloc(dev, (size_t)60 << 20);
	d->ops->free(dev, at[0]);
	at[0] = d->ops->alloc(dev, before);
	verdict(at[0] != NULL, "%s: %zu bytes after 60 MiB", d->name, before);
	d->ops->free(dev, at[0]);
	test_library(d, dev);
	d->ops->close(dev);
	unsetenv("KV_EMULATED_MEMORY");
}

/* Rows 1 and 3 of 5 are fetched, beside other work. at: device, all zero; here: host_alloc()'s. */
static void
try_fetch(const struct device *d, struct dev *dev, char *at, void *here)
{
	struct layer_rows to = { .k = at, .v = at + 1024, .pos = (uint32_t *)(at + 2048),
		.start = (uint64_t[]){ 0 }, .len = (uint32_t[]){ 5 }, .heads = 1, .width = 8,
		.dtype = KV_F16 };
	struct layer_rows from = to;
	uint32_t *lists = (uint32_t *)(at + 4096);
	struct offload_slots f = { .k = here, .v = here, .start = (uint64_t[]){ 0 },
		.host_count = (uint32_t[]){ 5 }, .slots = 2, .to = &to, .row = lists,
		.slot = lists + 64, .stride = 5, .n_new = lists + 128,
		.new_row = lists + 192, .new_slot = lists + 256,
		.fetched = (uint64_t *)(lists + 320) };
	struct chosen chosen = { lists + 384, 2, (uint32_t[]){ 2 }, 1 },
	    list = { lists + 448, 2, (uint32_t[]){ 0 }, 1 };

	from.pos = (uint32_t *)(at + 3072);
	d->ops->put(dev, chosen.at, (uint32_t[]){ 1, 3 }, 8);
	d->ops->fetch_wait(dev, d->ops->fetch_chosen(dev, &list, &chosen, &from, NULL, &f, 1));
}

/* A bit of everything that can fail. Returns sync()'s answer. */
static const char *
try_everything(const struct device *d, struct dev *dev)
{
	static unsigned char bytes[(size_t)9 << 20];
	void *at = d->ops->alloc(dev, sizeof bytes), *to = d->ops->alloc(dev, sizeof bytes);
	struct layer_rows rows = { .k = at, .pos = to, .start = (uint64_t[]){ 0 },
		.len = (uint32_t[]){ 5 }, .heads = 1, .width = 8, .dtype = KV_F16 };
	void *here = d->ops->host_alloc(dev, 100);
	const void *weights;

	d->ops->expect(dev, (size_t)6 << 20);
	weights = d->ops->weights(dev, bytes, (size_t)6 << 20);
	if (at != NULL && to != NULL && here != NULL && weights != NULL) {
		rows.v = (char *)at + 4096;
		d->ops->put(dev, at, bytes, sizeof bytes);
		d->ops->clear(dev, to, sizeof bytes);
		d->ops->compact(dev, &rows, NULL, 0, 1, (uint32_t[]){ 3 },
		    (uint32_t *[]){ (uint32_t[]){ 1, 3, 4 } });
		d->ops->copy(dev, to, at, sizeof bytes);
		d->ops->get_async(dev, here, at, 100);
		d->ops->event_wait(dev, d->ops->event_record(dev));
		d->ops->get_side(dev, bytes, at, 100);
		d->ops->clear(dev, at, 8192);
		try_fetch(d, dev, at, here);
		d->ops->get(dev, bytes, to, sizeof bytes);
	}
	d->ops->free(dev, at);
	d->ops->free(dev, to);
	d->ops->host_free(dev, here);
	return d->ops->sync(dev) != NULL ? d->ops->sync(dev) :
	    at == NULL || to == NULL || here == NULL || weights == NULL ? "no memory" : NULL;
}

/* n of `all` elements, in no order, from odd places; the others stay. */
static void
test_scattered(struct device *d, size_t bytes, uint32_t n, uint32_t all)
{
	unsigned char *x = draw_bytes(all * bytes), *row = draw_bytes(n * bytes),
	    *got = malloc(all * bytes);
	uint64_t *at = calloc(all, sizeof *at);
	char *to = d->ops->alloc(d->dev, all * bytes + bytes % 16);
	uint32_t i, j;

	if (d->ops->put_scattered == NULL) {
		verdict(d->ops->shares_memory, "%s: no put_scattered", d->name);
		n = 0;
	}
	for (i = 0; i < all; i++) {             /* the first n of a permutation */
		j = draw(i + 1);
		at[i] = at[j];
		at[j] = i;
	}
	d->ops->put(d->dev, to + bytes % 16, x, all * bytes);
	if (n > 0)
		d->ops->put_scattered(d->dev, to + bytes % 16, at, n, row, bytes);
	for (i = 0; i < n; i++)
		memcpy(x + at[i] * bytes, row + i * bytes, bytes);
	d->ops->get(d->dev, got, to + bytes % 16, all * bytes);
	verdict(d->ops->sync(d->dev) == NULL && memcmp(x, got, all * bytes) == 0,
	    "%s: %u of %u elements of %zu bytes put", d->name, n, all, bytes);
	d->ops->free(d->dev, to);
	free(at);
	free(got);
	free(row);
	free(x);
}

/* Whichever call of the runtime fails, the failure is reported with the name of the call, and all
 * memory is freed. One failure is not reported: memory that cannot be pinned where it is comes from
 * the runtime instead. */
static void
test_failures(struct device *d)
{
	const size_t held = cuda_emulated_held();
	char err[256] = "";
	const char *why;
	struct dev *dev;
	int n, left = 0, unnoticed = 0;

	for (n = 1; left == 0 && n < 1000; n++) {
		cuda_emulated_failure = n;
		why = (dev = d->ops->open(d->threads, 2, err, sizeof err)) == NULL ? err :
		    try_everything(d, dev);
		left = cuda_emulated_failure;
		cuda_emulated_failure = 0;
		unnoticed += left == 0 && why == NULL;
		verdict(why == NULL ? left > 0 || unnoticed == 1 : left == 0 &&
		    (strstr(why, "cuda") != NULL || strstr(why, "memory") != NULL ||
		    strstr(why, "no room") != NULL), "%s: call %d fails: \"%s\"", d->name, n,
		    why != NULL ? why : "nothing said");
		d->ops->close(dev);
		verdict(cuda_emulated_held() == held, "%s: call %d fails: %zu bytes more are held",
		    d->name, n, cuda_emulated_held() - held);
	}
	verdict(n > 20 && n < 1000, "%s: %d calls", d->name, n);
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
		test_get_side(&device[k], 100, 0);
		test_get_side(&device[k], ((size_t)9 << 20) + 7, 1);
		test_get_side(&device[k], 5000, 200);
		test_get_async(&device[k], 12345);
		test_scattered(&device[k], 2, 1, 1);
		test_scattered(&device[k], 16, 333, 1000);
		test_scattered(&device[k], 6, 1000, 1001);
		test_scattered(&device[k], 37, 300, 305);
		test_scattered(&device[k], 256, 40000, 41000);
		test_clear(&device[k]);
		test_weights(&device[k], 0);
		test_weights(&device[k], 1);
		test_mem_info(&device[k]);
		if (&cuda_emulated != NULL && k == 0) {
			test_again(&device[k]);
			test_failures(&device[k]);
		}
	}
}
