/* bench_fetch.c - benchmark of elastic loading: rows in pinned host memory that fetch_chosen()
 * brings
 *
 * Two selections take turns, so that each call brings the rows that they have not in common. What a
 * call can reach is the rate at which pinned memory is copied to the device (peers.py,
 * ceilings). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/bench_gpu.h"

enum { G = 8, E = 128, ROW = E * 2 };

struct fetching {
	struct layer_rows rows, device_rows;
	struct offload_slots offload;
	struct chosen turn[2], list;
	uint64_t start[G], device_start[G];
	uint32_t len[G], n[G], n_list[G];
};

static void *
cleared(size_t bytes)
{
	void *p = device_alloc(bytes);

	o->clear(dev, p, bytes);
	return p;
}

/* Rows i * step + shift, of which the first `same` of each hundred are of both selections */
static void
select_rows(struct fetching *f, uint32_t k, uint32_t step, uint32_t same)
{
	uint32_t *list = malloc(k * sizeof *list), t, g, i;

	for (t = 0; t < 2; t++) {
		for (i = 0; i < k; i++)
			list[i] = i * step + (i % 100 < same ? 0 : t);
		for (g = 0; g < G; g++)
			o->put(dev, f->turn[t].at + g * k, list, k * sizeof *list);
	}
	free(list);
}

static void
call_fetch(void *arg, int i)
{
	struct fetching *f = arg;

	o->fetch_chosen(dev, &f->list, &f->turn[i % 2], &f->rows, NULL, &f->offload, 0);
}

static struct fetching *
make_fetching(uint32_t S, uint32_t k)
{
	const size_t all = (size_t)G * S * ROW, slots = (size_t)G * k;
	struct fetching *f = calloc(1, sizeof *f);
	uint32_t g;

	f->rows = (struct layer_rows){ .pos = cleared((size_t)G * S * 4), .start = f->start,
		.len = f->len, .heads = G, .width = E, .dtype = KV_BF16 };
	f->device_rows = (struct layer_rows){ .k = device_alloc(slots * ROW),
		.v = device_alloc(slots * ROW), .pos = device_alloc(slots * 4),
		.start = f->device_start, .heads = G, .width = E, .dtype = KV_BF16 };
	f->offload = (struct offload_slots){ .k = o->host_alloc(dev, all),
		.v = o->host_alloc(dev, all), .start = f->start, .host_count = f->len, .slots = k,
		.to = &f->device_rows, .row = cleared(slots * 4),
		.slot = cleared((size_t)G * S * 4), .stride = S, .n_new = cleared(G * 4),
		.new_row = cleared(slots * 4), .new_slot = cleared(slots * 4),
		.fetched = cleared(G * 8) };
	f->turn[0] = (struct chosen){ device_alloc(slots * 4), k, f->n, 1 };
	f->turn[1] = (struct chosen){ device_alloc(slots * 4), k, f->n, 1 };
	f->list = (struct chosen){ device_alloc(slots * 4), k, f->n_list, 1 };
	for (g = 0; g < G; g++) {
		f->start[g] = (uint64_t)g * S;
		f->device_start[g] = (uint64_t)g * k;
		f->len[g] = S;
		f->n[g] = k;
	}
	memset((void *)(uintptr_t)f->offload.k, 1, all);
	memset((void *)(uintptr_t)f->offload.v, 1, all);
	return f;
}

static void
free_fetching(struct fetching *f)
{
	void *const all[] = { f->rows.pos, f->device_rows.k, f->device_rows.v, f->device_rows.pos,
		f->offload.row, f->offload.slot, f->offload.n_new,
		f->offload.new_row, f->offload.new_slot, f->offload.fetched, f->turn[0].at,
		    f->turn[1].at, f->list.at };
	size_t i;

	for (i = 0; i < sizeof all / sizeof all[0]; i++)
		o->free(dev, all[i]);
	sync_or_die("fetch");
	o->host_free(dev, (void *)(uintptr_t)f->offload.k);
	o->host_free(dev, (void *)(uintptr_t)f->offload.v);
	free(f);
}

void
bench_fetch(void)
{
	static const uint32_t same[] = { 80, 0 };
	const uint32_t S = tiny ? 800 : 32768, k = tiny ? 100 : 2048;
	struct fetching *f = make_fetching(S, k);
	char what[64];
	size_t i;

	for (i = 0; i < 2; i++) {
		select_rows(f, k, S / k, same[i]);
		snprintf(what, sizeof what, "fetch, %d x %u of %u rows, %u %% new", G, k, S,
		    100 - same[i]);
		report_launched(what, call_fetch, f, 2.0 * G * ROW * k * (100 - same[i]) / 100, 0);
	}
	free_fetching(f);
}
