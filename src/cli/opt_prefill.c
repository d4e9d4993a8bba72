/* opt_prefill.c - the options of kv-prefill that score and evict during prefill */
#include <stdio.h>

#include "cli/opt_evict.h"
#include "cli/opt_evict_cache.h"
#include "cli/opt_prefill.h"
#include "cli/progress.h"
#include "cli/snapshot_io.h"
#include "cli/tool.h"
#include "model/adapter.h"

struct prefill_options prefill_options;

static int
wanted(void)
{
	const struct prefill_options *o = &prefill_options;

	return o->score != NULL || o->evict != NULL || o->once || o->patch != 0;
}

static void
check_selection(const struct prefill *p)
{
	const enum token_rule rule = p->select.rule;

	if (p->chunk != 0 && rule != TOKENS_ALL)
		die(EXIT_USAGE, "--select does not go with --chunk and --evict: it needs the whole "
		    "prompt before rows are evicted; leave out --chunk");
	if ((evict_cache_needs(&p->evict) & NEED_EVERY_QUERY) &&
	    (rule == TOKENS_TSP || rule == TOKENS_PYRAMIDINFER))
		die(EXIT_USAGE, "--score %s does not go with --select: it divides by the number of "
		    "queries that see a row, which is unknown then", p->evict.scorer.method->name);
}

static void
check_patch(const struct prefill *p)
{
	if (p->patch == 0)
		return;
	if (prefill_options.adapter != NULL)
		die(EXIT_USAGE, "--patch does not go with --score lookahead: learned tokens score "
		    "each chunk");
	if (p->chunk == 0)
		die(EXIT_USAGE, "--patch runs after each chunk: give --chunk, too");
	if (!(evict_cache_needs(&p->evict) & NEED_WINDOW))
		die(EXIT_USAGE, "--patch: the method does not look at queries");
	if (prefill_scored_queries(p) > p->patch)
		die(EXIT_USAGE, "--patch %u: the method looks at %u queries", p->patch,
		    prefill_scored_queries(p));
}

void
opt_prefill(struct prefill *p, uint32_t chunk, uint32_t observe)
{
	struct prefill_options *o = &prefill_options;

	*p = (struct prefill){ .schedule = !wanted() ? PREFILL_PLAIN :
	    chunk != 0 ? PREFILL_CHUNKS : PREFILL_LAYERS, .once = o->once, .chunk = chunk,
	    .patch = o->patch, .observe = observe, .select = p->select };
	if (!wanted())
		return;
	if (o->evict == NULL)
		die(EXIT_USAGE, "%s: which rows go? Give --evict, too",
		    o->score != NULL ? "--score" : o->once ? "--once" : "--patch");
	o->adapter = opt_evict_cache(&p->evict, o->score, o->evict);
	check_selection(p);
	check_patch(p);
	if (chunk != 0 && o->adapter == NULL && prefill_scored_queries(p) > chunk)
		die(EXIT_USAGE, "--score: a window of %u queries is longer than a --chunk of %u",
		    prefill_scored_queries(p), chunk);
}

void
opt_prefill_run(struct prefill *p, struct sequence *s, struct workspace *ws, const uint32_t *ids,
    size_t n, struct observation *obs)
{
	struct engine_error e;

	p->step.call = progress_step;
	progress_start("prefill", prefill_total(p, s->cache->model, n),
	    prefill_counts_rows(p) ? "rows" : "tokens");
	must(prefill_run(p, s, ws, ids, n, obs, &e), &e);
	progress_end();
	opt_evict_tell(&p->evict.evictor, p->once);
}

/* Returns how many of the learned tokens score. */
static uint32_t
scored_tokens(const struct prefill *p)
{
	const uint32_t window = p->evict.scorer.options.window;

	return window != 0 ? window : p->adapter->n;
}

void
opt_prefill_name(const struct prefill *p, char *text, size_t size)
{
	const struct scorer *s = &p->evict.scorer;
	char label[KV_SCORE_LABEL] = "";
	size_t n;

	if (p->evict.evictor.mask_name != NULL || p->evict.evictor.budgets_name != NULL)
		die(EXIT_USAGE, "--store does not go with --evict '%s=...' and --once: rows are "
		    "stored under a name, which does not have what is in a file",
		    p->evict.evictor.mask_name != NULL ? "head-mask" : "budgets");
	if (s->method != NULL)
		score_label(label, sizeof label, s->method, &s->options, 0,
		    p->adapter != NULL ? scored_tokens(p) : prefill_window(p));
	n = (size_t)snprintf(text, size, "%s, score %s, lookahead %s, chunk %u, evict %s",
	    KVPIPE_VERSION, label, p->adapter != NULL ? p->adapter->id : "none", p->chunk,
	    opt_evict_text(&p->evict.evictor, prefill_options.evict));
	if (n >= size)
		die(EXIT_USAGE, "--evict '%.40s...': too long for --store", prefill_options.evict);
}

void
opt_prefill_sign(const struct prefill *p)
{
	const struct scorer *s = &p->evict.scorer;
	char label[KV_SCORE_LABEL];

	if (p->schedule == PREFILL_PLAIN)
		return;
	if (s->method != NULL) {
		score_label(label, sizeof label, s->method, &s->options, 0,
		    p->adapter != NULL ? scored_tokens(p) : prefill_window(p));
		sign_text("score", label);
	}
	if (p->adapter != NULL)
		sign_text("lookahead", p->adapter->id);
	sign_text("evict", opt_evict_text(&p->evict.evictor, prefill_options.evict));
	sign_text("evicting", p->schedule == PREFILL_CHUNKS ? "chunks" : "layers");
	if (p->once)
		sign_count("once", 1);
	if (p->patch != 0)
		sign_count("patch", p->patch);
}
