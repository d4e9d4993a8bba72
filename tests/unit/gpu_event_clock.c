/* gpu_event_clock.c - what the benchmarks of a GPU capture behind the backend's back
 *
 * An op whose arguments stay the same is replayed from a graph. One that puts a list must be
 * refused: the graph would copy from a buffer that the backend refills. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/ops.h"
#include "tests/gpu/event_clock.h"

enum { TABLE = 8, WIDTH = 8, ROWS = 3 };

static const struct ops *const o = &gpu_ops;
static struct dev *dev;

static void
must(int good, const char *what)
{
	if (!good) {
		fprintf(stderr, "gpu_event_clock: %s\n", what);
		exit(1);
	}
}

/* Rows of a table, of ids on the host, or (ids not NULL) on the device */
static struct calls *
captured_embed(float *x, const struct mat *table, const uint32_t *ids)
{
	static const uint32_t tok[ROWS] = { 5, 0, 2 };

	for (int i = 0; i < 2; i++) {
		if (i == 1)
			must(calls_capture(dev), "no capture");
		if (ids != NULL)
			o->embed_ids(dev, x, table, ids, ROWS);
		else
			o->embed(dev, x, table, tok, ROWS);
	}
	return calls_captured(dev);
}

int
main(void)
{
	const uint32_t id[2][ROWS] = { { 1, 2, 3 }, { 4, 6, 7 } };
	float number[TABLE * WIDTH], got[ROWS * WIDTH];
	struct mat table = { NULL, WEIGHT_F32, TABLE, WIDTH };
	struct calls *calls;
	char err[256];
	uint32_t *ids;
	float *x;

	must((dev = o->open(0, 0, err, sizeof err)) != NULL, err);
	for (int i = 0; i < TABLE * WIDTH; i++)
		number[i] = (float)i;
	table.data = o->alloc(dev, sizeof number);
	x = o->alloc(dev, sizeof got);
	ids = o->alloc(dev, sizeof id[0]);
	o->put(dev, (void *)table.data, number, sizeof number);
	o->put(dev, ids, id[0], sizeof id[0]);

	must(captured_embed(x, &table, NULL) == NULL, "a list that is put was captured");
	must(o->sync(dev) == NULL, "the device has failed");
	must((calls = captured_embed(x, &table, ids)) != NULL, "embed_ids was not captured");
	o->put(dev, ids, id[1], sizeof id[1]);
	calls_launch(dev, calls);
	o->get(dev, got, x, sizeof got);
	for (int i = 0; i < ROWS; i++)
		must(memcmp(got + i * WIDTH, number + id[1][i] * WIDTH, WIDTH * sizeof *got) == 0,
		    "a graph gave the wrong rows");
	calls_free(calls);
	o->free(dev, (void *)table.data);
	o->free(dev, x);
	o->free(dev, ids);
	o->close(dev);
	return 0;
}
