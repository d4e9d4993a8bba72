/* prefill_layers.c - kv-prefill that judges and evicts on its way: after each chunk, or layer by layer
 *
 * Two orders of the same three steps. Chunk by chunk, all layers run a part of the prompt and are
 * evicted before the next part comes: later tokens see what earlier ones have left, and memory is
 * bounded by budget and chunk (KeyDiff, Park et al. 2025; PruLong, Bhaskar et al. 2025). Layer by
 * layer, each layer sees the whole prompt, is evicted, and gives its memory back before the next
 * one fills, or, on a GPU, the one after that: the result is that of eviction after prefill, and one
 * full layer is there at a time, or two. */
#include <string.h>

#include "model/prompt_stream.h"
#include "engine/evict_cache.h"
#include "cli/opt_evict.h"
#include "engine/prefill_layers.h"
#include "engine/score.h"
#include "cli/tool.h"

struct fused_options fused;

int
fused_wanted(void)
{
	return fused.score != NULL || fused.evict != NULL || fused.once || fused.patch != 0;
}

/* Queries that the method looks at. */
static uint32_t
window(void)
{
	if (fused.score == NULL)
		return 0;
	return scoring_queries(fused.observe != 0 ? fused.observe :
	    fused.patch != 0 ? fused.patch : EVICTION_WINDOW);
}

static void
check_patch(void)
{
	if (fused.patch == 0)
		return;
	if (fused.chunk == 0)
		die(EXIT_USAGE, "--patch: it stands behind each chunk: give --chunk, too");
	if (!(eviction_needs() & NEED_WINDOW))
		die(EXIT_USAGE, "--patch: the method does not look at queries");
	if (window() > fused.patch)
		die(EXIT_USAGE, "--patch %u: the method looks at %u queries", fused.patch,
		    window());
}

void
fused_check(void)
{
	if (!fused_wanted())
		return;
	if (fused.evict == NULL)
		die(EXIT_USAGE, "%s: which rows are to go? Give --evict, too",
		    fused.score != NULL ? "--score" : fused.once ? "--once" : "--patch");
	eviction_check(fused.score, fused.evict);
	check_patch();
	if (fused.chunk != 0 && window() > fused.chunk)
		die(EXIT_USAGE, "--score: a window of %u queries is longer than a --chunk of %u",
		    window(), fused.chunk);
}

uint32_t
fused_window(void)
{
	return window() > fused.observe ? window() : fused.observe;
}

int
fused_needs_mass(void)
{
	return (eviction_needs() & NEED_MASS) != 0;
}

size_t
fused_room(size_t n)
{
	if (!fused_wanted())
		return n;
	return fused.chunk < n ? fused.chunk : n;
}

/* Where ops run ahead, a layer is judged while the device is busy with the next one. Elsewhere that
 * would only cost memory. */
static uint32_t
layers_behind(const struct model *m)
{
	return m->ops->runs_ahead ? 1 : 0;
}

uint32_t
fused_full_layers(const struct model *m)
{
	return m->id.layers > 1 ? 1 + layers_behind(m) : 1;
}

void
fused_fit(const struct model *m, size_t n, uint32_t have)
{
	if (!fused_wanted())
		return;
	eviction_fit(m->id.layers);
	if (window() > n + have)
		die(EXIT_USAGE, "--score: a window of %u queries is longer than the prompt, %zu "
		    "tokens", window(), n);
	if (fused.patch > n)
		die(EXIT_USAGE, "--patch %u: the prompt has %zu tokens", fused.patch, n);
}

/* ---- events, progress ---- */

static struct cache *running;
static uint64_t earlier, logged;        /* tokens of earlier chunks; of this one, logged so far */

static void
log_tile(void *with, uint64_t done)
{
	(void)with;
	if (cache_log(running, KV_EVENT_PREFILL, (uint32_t)(done - logged), 0,
	    running->model->id.layers) != 0)
		die(EXIT_RUN, "no memory for the event log");
	logged = done;
	progress(earlier + done);
}

static void
log_eviction(struct cache *c, uint32_t l0, uint32_t l1)
{
	if (cache_log(c, KV_EVENT_EVICT, 0, l0, l1) != 0)
		die(EXIT_RUN, "no memory for the event log");
}

/* ---- running ---- */

/* With --once, rows before this position are not judged and do not count in the budget. */
static void
begin_at(uint32_t position)
{
	if (fused.once) {
		scoring_since(position);
		evicting_since(position);
	}
}

static void
evict_layers(struct cache *c, const struct observation *obs)
{
	eviction_all(c, obs);
	log_eviction(c, 0, c->model->id.layers);
}

/* Evicts by what the patch looks at: tokens that run behind the rows that there are, and are not
 * stored. */
static void
evict_patched(struct cache *c, struct workspace *ws, const uint32_t *patch)
{
	struct observation obs;
	char err[512];

	if (observation_init(&obs, c->model, fused.patch) != 0)
		die(EXIT_RUN, "no memory for %u observation queries", fused.patch);
	if (run_unstored(c->model, c, ws, patch, fused.patch, &obs, NULL, err, sizeof err) != 0)
		die(EXIT_RUN, "%s", err);
	evict_layers(c, &obs);
	observation_free(&obs, c->model);
}

/* ---- layer by layer ---- */

/* The queries of a layer that are to be saved, where nothing overwrites them until they are read. */
struct saved {
	float *q;                       /* device [n][H][E]; NULL = none */
	size_t n, row;                  /* queries, floats of each */
	uint64_t there;
};

static void
begin_layer(struct prompt_stream *s, struct saved *saved, uint32_t l, const struct observation *obs)
{
	const struct model *m = s->cache->model;
	const struct observation *w = &s->watched;

	eviction_begin(s->cache, l, w->q != NULL ? w : obs);
	if (saved->q == NULL)
		return;
	m->ops->copy(m->dev, saved->q, w->q[l] + (w->have - saved->n) * saved->row,
	    saved->n * saved->row * sizeof *saved->q);
	saved->there = m->ops->event_record(m->dev);
}

static void
finish_layer(struct prompt_stream *s, const struct saved *saved, uint32_t l, struct observation *obs)
{
	struct cache *c = s->cache;
	const struct ops *o = c->model->ops;

	eviction_finish(c, l);
	log_eviction(c, l, l + 1);
	if (fused.chunk == 0 && cache_trim(c, l, l + 1 + layers_behind(c->model)) != 0)
		die(EXIT_RUN, "no memory to move layer %u", l);
	if (saved->q == NULL)
		return;
	device_wait(&(struct device){ o, c->model->dev }, saved->there);
	o->get_side(c->model->dev, obs->q[l] + (obs->have - saved->n) * saved->row, saved->q,
	    saved->n * saved->row * sizeof *saved->q);
}

/* When these tokens bring all queries of the window, the device keeps those of one layer, instead
 * of the stream those of all: nobody waits for them. The next chunk may want them again. */
static void
open_stream(struct prompt_stream *s, struct saved *saved, struct cache *c, const uint32_t *ids, size_t n,
    struct observation *obs)
{
	const struct model *m = c->model;
	int watch = obs != NULL && obs->window <= n;
	char err[512];

	if (watch)
		observation_expect(obs, m, c->next_position, n);
	if (prompt_open(s, c, watch ? NULL : obs, ids, n, err, sizeof err) != 0)
		die(EXIT_RUN, "%s", err);
	saved->n = !watch ? 0 : fused.chunk != 0 ? obs->window : fused.observe;
	if (saved->n == 0)
		return;
	saved->row = (size_t)m->id.query_heads * m->id.head_width;
	saved->q = m->ops->alloc(m->dev, saved->n * saved->row * sizeof *saved->q);
	if (saved->q == NULL)
		die(EXIT_RUN, "no memory for %zu observation queries", saved->n);
}

/* Runs n tokens, layer after layer, and evicts each. step: as prompt_run() calls it. With `last`
 * there are logits. */
static void
pass_layers(struct cache *c, struct workspace *ws, const uint32_t *ids, size_t n,
    struct observation *obs, const struct step_hook *step, int last)
{
	const uint32_t L = c->model->id.layers, behind = layers_behind(c->model);
	struct saved saved = { .q = NULL };
	struct prompt_stream s;
	char err[512];
	uint32_t l;

	open_stream(&s, &saved, c, ids, n, obs);
	for (l = 0; l < L; l++) {
		if (obs != NULL && s.obs == NULL && prompt_watch(&s, l, obs->window) != 0)
			die(EXIT_RUN, "no memory for %u observation queries", obs->window);
		if (prompt_run(&s, ws, l, l + 1, step, err, sizeof err) != 0)
			die(EXIT_RUN, "%s", err);
		if (behind && l > 0)
			finish_layer(&s, &saved, l - 1, obs);
		begin_layer(&s, &saved, l, obs);
		if (!behind || l + 1 == L)
			finish_layer(&s, &saved, l, obs);
	}
	if (last && prompt_logits(&s, ws, err, sizeof err) != 0)
		die(EXIT_RUN, "%s", err);
	c->model->ops->free(c->model->dev, saved.q);
	prompt_close(&s);
}

static void
show(void *with, uint64_t done)
{
	(void)with;
	progress(done);
}

static void
run_layers(struct cache *c, struct workspace *ws, const uint32_t *ids, size_t n,
    struct observation *obs)
{
	begin_at(c->next_position);
	progress_start("prefill", (uint64_t)n * c->model->id.layers, "rows");
	pass_layers(c, ws, ids, n, obs, &(struct step_hook){ show, NULL }, 1);
	progress_end();
}

/* ---- chunk by chunk ---- */

static void
show_rows(void *with, uint64_t done)
{
	(void)with;
	progress(earlier + done / running->model->id.layers);
}

/* A chunk layer by layer, each judged while the device is busy with the next: the same rows, since
 * what a layer keeps does not depend on later ones. The log has it as on other devices: all layers
 * run the chunk, a tile at a time, and then they are evicted. */
static void
run_ahead(struct cache *c, struct workspace *ws, const uint32_t *ids, uint32_t N,
    struct observation *obs, int last)
{
	const uint32_t tile = workspace_rows(ws), first = c->next_position;
	const int logging = c->logged;
	uint32_t at, n;

	c->logged = 0;
	pass_layers(c, ws, ids, N, obs, &(struct step_hook){ show_rows, NULL }, last);
	c->logged = logging;
	for (at = 0; at < N; at += n) {
		n = N - at < tile ? N - at : tile;
		if (cache_log_before(c, n, first + at + n) != 0)
			die(EXIT_RUN, "no memory for the event log");
	}
	log_eviction(c, 0, c->model->id.layers);
}

static void
run_chunks(struct cache *c, struct workspace *ws, const uint32_t *ids, size_t n,
    struct observation *obs)
{
	char err[512];
	uint32_t N;
	int last;

	progress_start("prefill", n, "tokens");
	for (earlier = 0; earlier < n; earlier += N) {
		N = n - earlier < fused.chunk ? (uint32_t)(n - earlier) : fused.chunk;
		last = earlier + N == n;
		begin_at(c->next_position);
		if (layers_behind(c->model) && (fused.patch == 0 || last)) {
			run_ahead(c, ws, ids + earlier, N, obs, last);
			continue;
		}
		logged = 0;
		if (run_tokens(c->model, c, ws, ids + earlier, N, obs, &(struct step_hook){ log_tile, NULL }, err,
		    sizeof err) != 0)
			die(EXIT_RUN, "%s", err);
		if (fused.patch != 0 && !last)
			evict_patched(c, ws, ids + n - fused.patch);
		else
			evict_layers(c, obs);
	}
	progress_end();
}

void
fused_run(struct cache *c, struct workspace *ws, const uint32_t *ids, size_t n,
    struct observation *obs)
{
	running = c;
	if (fused.patch != 0 && c->mass != NULL)
		die(EXIT_USAGE, "--patch: what tokens pay that are not stored must not be in --mass");
	(fused.chunk != 0 ? run_chunks : run_layers)(c, ws, ids, n, obs);
	if (obs != NULL && fused.observe < obs->window) {
		obs->window = fused.observe;
		observation_expect(obs, c->model, c->next_position, 0);
	}
	eviction_end(c);
}

void
fused_sign(void)
{
	char label[KV_SCORE_LABEL];

	if (!fused_wanted())
		return;
	if (fused.score != NULL) {
		scoring_since(0);
		scoring_label(label, sizeof label, fused_window());
		sign_text("score", label);
	}
	sign_text("evict", fused.evict);
	sign_text("evicting", fused.chunk != 0 ? "chunks" : "layers");
	if (fused.once)
		sign_count("once", 1);
	if (fused.patch != 0)
		sign_count("patch", fused.patch);
}
