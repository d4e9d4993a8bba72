/* opt_prefix.c - the option of kv-prefill that takes rows which an earlier prefill has computed */
#include <string.h>

#include "cli/opt_prefix.h"
#include "cli/tool.h"

struct prefix_options prefix_options;

void
opt_prefix(const struct prefill *p, const char *prompt, const char *resume)
{
	const char *reuse = prefix_options.reuse;

	if (reuse == NULL)
		return;
	if (resume != NULL)
		die(EXIT_USAGE, "--reuse: the prompt is the whole text, and with --resume it is what "
		    "follows: give one of them");
	if (p->select.rule != TOKENS_ALL)
		die(EXIT_USAGE, "--reuse: where tokens are selected, later layers have rows for those "
		    "only, which have not seen the others: it does not go with --tsp-layer, "
		    "--gemfilter-layer and --pyramid-infer");
	if (p->schedule == PREFILL_CHUNKS)
		die(EXIT_USAGE, "--reuse: with --chunk and --evict, tokens see what chunks before them "
		    "have left, and no other prefill has such rows: leave out --chunk");
	if (strcmp(reuse, "-") == 0 && strcmp(prompt, "-") == 0)
		die(EXIT_USAGE, "the snapshot and the prompt cannot both come from standard input");
}

void
prefix_open(struct prefix *x)
{
	if (prefix_options.reuse != NULL)
		x->from = input_open(prefix_options.reuse);
}

void
prefix_find(struct prefix *x, enum kv_dtype dtype, const struct ids *ids, uint32_t least)
{
	const size_t most = least < ids->n ? ids->n - least : 0;
	struct engine_error e;

	x->part = (struct reuse){ .ids = ids->ids, .n = ids->n };
	if (x->from == NULL)
		return;
	if (kv_reader_head(x->from)->dtype != dtype)
		die(EXIT_USAGE, "--reuse: %s holds %s, and this prompt would be stored as %s: see "
		    "--dtype", kv_reader_name(x->from),
		    kv_dtype_name(kv_reader_head(x->from)->dtype), kv_dtype_name(dtype));
	must(reuse_find(&x->part, x->from, most < UINT32_MAX ? (uint32_t)most : UINT32_MAX, &e), &e);
	if (x->part.rows == 0)
		warning("--reuse: %s has nothing of this prompt: all of it is run",
		    kv_reader_name(x->from));
	else
		note("%u of %zu tokens from %s", x->part.rows, ids->n, kv_reader_name(x->from));
}

void
prefix_load(struct prefix *x, const struct session *s, struct cache *c, uint32_t tile)
{
	struct engine_error e;

	if (x->from == NULL)
		return;
	must(reuse_load(&x->part, x->from, c, tile, &e), &e);
	session_rest(s, kv_reader_name(x->from));
}

void
prefix_close(struct prefix *x)
{
	kv_close(x->from);
	x->from = NULL;
}
