/* model_prompt_stream - a prompt layer by layer gives the same snapshot as chunk by chunk, byte for
 * byte
 *
 * model_prompt_stream DIR, or without DIR the demo model. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "forward/sequence_sections.h"
#include "forward/layer_by_layer.h"
#include "tests/unit/methods_check.h"

#define TOKENS 150
#define TILE 64                         /* does not divide TOKENS */
#define WINDOW 70                       /* begins within a tile, ends in the last one */

enum way { CHUNKS, LAYERS, RANGES, KEEP_ALL };

static char dir[] = "/tmp/stream.XXXXXX", err[512];
static uint32_t ids[TOKENS];

static void
must(int good, const char *what)
{
	if (!good) {
		fprintf(stderr, "stream: %s: %s\n", what, err);
		exit(1);
	}
}

/* n ids that follow those before in the cache, in the way given. */
static void
run(enum way way, const struct model *m, struct sequence *q, struct workspace *ws,
    struct observation *obs, const uint32_t *tokens, size_t n)
{
	uint32_t L = m->id.layers, by = way == RANGES ? 3 : 1, rows[TOKENS], l, i;
	struct prompt_stream s;

	if (way == CHUNKS) {
		must(run_tokens(m, q, ws, tokens, n, obs, NULL, err, sizeof err) == 0, "run");
		return;
	}
	must(prompt_open(&s, q, obs, tokens, n, err, sizeof err) == 0, "open");
	for (l = 0; l < L; l += by) {
		must(prompt_run(&s, ws, l, l + by < L ? l + by : L, NULL, err, sizeof err) == 0,
		    "layers");
		for (i = 0; i < n; i++)
			rows[i] = i;
		if (way == KEEP_ALL)
			must(prompt_keep(&s, rows, s.N) == 0, "keep");
	}
	check(s.done == (uint64_t)n * L, "%lu rows x layers", (unsigned long)s.done);
	must(prompt_logits(&s, ws, err, sizeof err) == 0, "logits");
	prompt_close(&s);
}

/* The bytes of a snapshot of ids, run in two parts, the second in the way given. */
static char *
snapshot(const struct model *m, enum way way, size_t *size)
{
	struct cache *c = cache_new(m, m->id.weights_dtype);
	struct workspace *ws = workspace_new(m, TILE);
	struct sequence q = { .cache = c };
	struct observation obs;
	struct kv_writer *w;
	struct kv_head head;
	char path[64], *data;
	FILE *f;

	must(c != NULL && ws != NULL && observation_init(&obs, m, WINDOW) == 0, "memory");
	must(cache_want_mass(c) == 0, "mass");
	c->logged = 0;                  /* the events differ: that is what they are for */
	run(CHUNKS, m, &q, ws, &obs, ids, 9);
	run(way, m, &q, ws, &obs, ids + 9, TOKENS - 9);
	snprintf(path, sizeof path, "%s/kv", dir);
	snapshot_head(c, &head);
	must(kv_create(path, &head, 0, &w) == KV_OK && sequence_save(w, &q, &obs) == KV_OK &&
	    kv_commit(w) == KV_OK, "save");
	kv_writer_free(w);
	must((f = fopen(path, "rb")) != NULL && fseek(f, 0, SEEK_END) == 0, path);
	*size = (size_t)ftell(f);
	rewind(f);
	must((data = malloc(*size)) != NULL && fread(data, 1, *size, f) == *size, path);
	fclose(f);
	unlink(path);
	observation_free(&obs, m);
	workspace_free(ws, m);
	cache_free(c);
	return data;
}

/* Rows that are dropped half way are in no later layer, and the others keep their positions. */
static void
check_keep(const struct model *m)
{
	static const uint32_t rows[] = { 0, 3, 4, 5, 40, 98, 99 };
	uint32_t n = sizeof rows / sizeof *rows, L = m->id.layers, i;
	struct cache *c = cache_new(m, KV_F32);
	struct workspace *ws = workspace_new(m, TILE);
	float *before = malloc(100 * m->id.hidden * sizeof *before);
	float *after = malloc(100 * m->id.hidden * sizeof *after);
	size_t row = m->id.hidden * sizeof *after;
	struct prompt_stream s;

	must(c && ws && before && after, "memory");
	must(prompt_open(&s, &(struct sequence){ .cache = c }, NULL, ids, 100, err,
	    sizeof err) == 0, "open");
	must(prompt_run(&s, ws, 0, 1, NULL, err, sizeof err) == 0, "first layer");
	m->ops->get(m->dev, before, s.x, 100 * row);
	must(prompt_keep(&s, rows, n) == 0, "keep");
	m->ops->get(m->dev, after, s.x, n * row);
	for (i = 0; i < n; i++)
		check(s.pos[i] == rows[i] && memcmp(before + rows[i] * m->id.hidden,
		    after + i * m->id.hidden, row) == 0, "row %u", i);
	must(prompt_run(&s, ws, 1, L, NULL, err, sizeof err) == 0, "other layers");
	check(c->layer[0].len[0] == 100 && c->layer[L - 1].len[0] == n, "%u and %u rows",
	    c->layer[0].len[0], c->layer[L - 1].len[0]);
	check(s.done == 100 + (L - 1) * n, "%lu rows x layers", (unsigned long)s.done);
	check(c->next_position == 100 && c->n_tokens == 100, "next position %u", c->next_position);
	prompt_close(&s);
	free(before);
	free(after);
	workspace_free(ws, m);
	cache_free(c);
}

int
main(int argc, char **argv)
{
	struct dev *d = cpu_ops.open(0, 2, err, sizeof err);
	char *want, *have;
	struct model *m;
	size_t size, n;
	enum way way;

	must(d != NULL && mkdtemp(dir) != NULL, "start");
	must(model_load(argc > 1 ? argv[1] : DEMO_MODEL, &cpu_ops, d, &m, err, sizeof err) == 0,
	    "model");
	memset(m->id.tokenizer, '0', sizeof m->id.tokenizer - 1);
	for (n = 0; n < TOKENS; n++)
		ids[n] = (uint32_t)(n * n * 7 + n * 3 + 11) % m->id.vocabulary;
	want = snapshot(m, CHUNKS, &size);
	for (way = LAYERS; way <= KEEP_ALL; way++) {
		have = snapshot(m, way, &n);
		check(n == size && memcmp(have, want, n) == 0, "way %d: another snapshot", way);
		free(have);
	}
	check_keep(m);
	free(want);
	model_free(m);
	cpu_ops.close(d);
	rmdir(dir);
	return failures != 0;
}
