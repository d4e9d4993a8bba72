/* opt_prefix.c - kv-prefill --reuse and --store: reuse of rows that an earlier prefill has
 * computed */
#include <string.h>

#include "cli/opt_prefill.h"
#include "cli/opt_prefix.h"
#include "cli/opt_rows.h"
#include "cli/snapshot_io.h"
#include "cli/tool.h"
#include "model/adapter.h"

struct prefix_options prefix_options;

/* The rows that a chunk leaves depend on the tokens before it alone if only new rows are dropped,
 * by what the chunk itself says. */
static void
check_chunks(const struct prefill *p)
{
	if (prefix_options.reuse != NULL)
		die(EXIT_USAGE, "--reuse does not go with --chunk and --evict: tokens see only "
		    "rows that earlier chunks left; leave out --chunk, or use --store with --once");
	if (!p->once)
		die(EXIT_USAGE, "--store with --chunk and --evict needs --once: without it later "
		    "chunks drop rows of earlier ones");
	if (p->patch != 0)
		die(EXIT_USAGE, "--store does not go with --patch: the end of this prompt scores "
		    "all chunks");
	if (p->chunk % STORE_BLOCK != 0 && STORE_BLOCK % p->chunk != 0)
		die(EXIT_USAGE, "--chunk %u: with --store and --evict a block of %d tokens holds "
		    "whole chunks, or a chunk whole blocks", p->chunk, STORE_BLOCK);
}

void
opt_prefix(const struct prefill *p, const char *prompt, const char *resume, int mass,
    int query_stats, int gate)
{
	const char *reuse = prefix_options.reuse, *store = prefix_options.store;
	const char *option = reuse != NULL ? "reuse" : "store";

	if (prefix_options.store_size != 0 && store == NULL)
		die(EXIT_USAGE, "--store-size: of what? Give --store, too");
	if (reuse == NULL && store == NULL)
		return;
	if (reuse != NULL && store != NULL)
		die(EXIT_USAGE, "--reuse names the snapshot that --store would look for: give one "
		    "of them");
	if (resume != NULL)
		die(EXIT_USAGE, "--%s does not go with --resume: it takes the whole text as the "
		    "prompt, --resume what follows", option);
	if (p->select.rule != TOKENS_ALL)
		die(EXIT_USAGE, "--%s does not go with --select: later layers have rows of the "
		    "selected tokens only",
		    option);
	if (p->schedule == PREFILL_CHUNKS)
		check_chunks(p);
	if (store != NULL && query_stats)
		die(EXIT_USAGE, "--query-stats, and methods that need them, do not go with "
		    "--store: it keeps no query statistics; use --reuse, or run the whole prompt");
	if (store != NULL && gate)
		die(EXIT_USAGE, "--gate does not go with --store: it keeps no gate scores; use "
		    "--reuse, or run the whole prompt");
	if (store != NULL && mass)
		die(EXIT_USAGE, "--mass, and methods that need it, do not go with --store: it "
		    "keeps no attention mass; use --reuse or run the whole prompt");
	if (reuse != NULL && strcmp(reuse, "-") == 0 && strcmp(prompt, "-") == 0)
		die(EXIT_USAGE, "the snapshot and the prompt cannot both come from standard input");
}

void
prefix_open(struct prefix *x)
{
	if (prefix_options.reuse != NULL)
		x->from = input_open(prefix_options.reuse);
}

static void
find_in_snapshot(struct prefix *x, const struct model *m, const struct kv_head *stored,
    uint32_t most)
{
	const struct kv_head *there = kv_reader_head(x->from);
	char words[2][ROWS_WORDS];
	struct engine_error e;

	input_refuse_residual(x->from, "a prompt runs with full rows: reuse the snapshot before "
	    "kv-quantize");
	if (there->dtype != stored->dtype || !kv_head_same_rows(there, stored))
		die(EXIT_USAGE, "--reuse: %s holds %s, and this prompt would be stored as %s: see "
		    "%s", kv_reader_name(x->from), rows_words(words[0], there),
		    rows_words(words[1], stored), there->dtype != stored->dtype ? "--dtype" :
		    "--keys and --values");
	must(reuse_find(&x->part, m, x->from, most, &e), &e);
	x->rows = (uint64_t)x->part.rows * m->id.layers * m->id.kv_heads;
	if ((x->tokens = x->part.rows) == 0)
		warning("--reuse: %s shares no beginning with this prompt: all of it is run",
		    kv_reader_name(x->from));
}

static void
find_in_store(struct prefix *x, const struct model *m, const struct kv_head *stored,
    const struct prefill *p, const struct ids *ids, uint32_t most)
{
	struct engine_error e;
	uint64_t bytes;

	x->store = (struct prefix_store){ .dir = prefix_options.store,
	    .most = prefix_options.store_size, .flags = settings.write_flags,
	    .products = settings.products, .notice = { trouble_notice, NULL } };
	if (p->schedule == PREFILL_CHUNKS) {
		if (m->id.window != 0)
			die(EXIT_UNSUPPORTED, "--store does not go with --chunk and --evict for "
			    "this model: rows out of its sliding windows are gone when a block is "
			    "written");
		opt_prefill_name(p, x->evicted, sizeof x->evicted);
		x->store.evicted = x->evicted;
		x->store.chunk = p->chunk;
		x->store.probes = p->adapter != NULL ? p->adapter->n : 0;
	}
	must(prefix_store_open(&x->store, m, stored, ids->ids, ids->n, &e), &e);
	x->tokens = prefix_store_tokens(&x->store, most, &bytes);
	x->rows = (uint64_t)x->tokens * m->id.layers * m->id.kv_heads;
	if (x->store.evicted != NULL && bytes / cache_row_bytes(stored, 0, 0) < x->rows)
		x->rows = bytes / cache_row_bytes(stored, 0, 0);
}

void
prefix_find(struct prefix *x, const struct model *m, const struct kv_head *stored,
    const struct prefill *p, const struct ids *ids, uint32_t least)
{
	const size_t rest = least < ids->n ? ids->n - least : 0;
	const uint32_t most = rest < UINT32_MAX ? (uint32_t)rest : UINT32_MAX;

	x->part = (struct reuse){ .ids = ids->ids, .n = ids->n };
	if (x->from != NULL)
		find_in_snapshot(x, m, stored, most);
	else if (prefix_options.store != NULL)
		find_in_store(x, m, stored, p, ids, most);
}

void
prefix_load(struct prefix *x, const struct session *s, struct cache *c, uint32_t tile)
{
	const char *name = x->from != NULL ? kv_reader_name(x->from) : x->store.dir;
	struct engine_error e;

	if (name == NULL)
		return;
	must(x->from != NULL ? reuse_load(&x->part, x->from, c, tile, &e) :
	    prefix_store_load(&x->store, c, x->tokens, tile, &e), &e);
	x->tokens = c->next_position;
	note("%u of %zu tokens from %s", x->tokens, x->part.n, name);
	session_rest(s, name);
}

void
prefix_keep(struct prefix *x, const struct cache *c, int evicted)
{
	if (x->store.dir == NULL || x->kept)
		return;
	x->kept = 1;
	evicted = evicted && x->store.evicted == NULL;
	if (evicted && !x->store.off && prefix_store_tokens(&x->store, UINT32_MAX, NULL) /
	    STORE_BLOCK < x->store.blocks)
		warning("--store: nothing is added to %s: with --evict rows are dropped while the "
		    "prompt runs; with --chunk and --once what is left is stored", x->store.dir);
	prefix_store_keep(&x->store, evicted ? NULL : c);
}

void
prefix_close(struct prefix *x)
{
	kv_close(x->from);
	prefix_store_close(&x->store);
	*x = (struct prefix){ .from = NULL };
}
