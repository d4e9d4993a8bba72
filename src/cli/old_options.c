/* old_options.c - options that were renamed or moved to a program of their own */
#include <stddef.h>
#include <string.h>

#include "cli/old_options.h"

static const struct {
	const char *program, *name, *now;
} old[] = {
	{ "kv-prefill", "tsp-layer", "--select 'tsp layer=LAYER'" },
	{ "kv-prefill", "tsp-rate", "--select 'tsp layer=LAYER rate=R'" },
	{ "kv-prefill", "tsp-window", "--select 'tsp layer=LAYER window=W'" },
	{ "kv-prefill", "tsp-kernel", "--select 'tsp layer=LAYER kernel=K'" },
	{ "kv-prefill", "tsp-pool", "--select 'tsp layer=LAYER pool=HOW'" },
	{ "kv-prefill", "gemfilter-layer", "--select 'gemfilter layer=LAYER budget=N'" },
	{ "kv-prefill", "gemfilter-budget", "--select 'gemfilter layer=LAYER budget=N'" },
	{ "kv-prefill", "gemfilter-rate", "--select 'gemfilter layer=LAYER rate=R'" },
	{ "kv-prefill", "pyramid-infer", "--select 'pyramidinfer [decay=P ...]'" },
	{ "kv-prefill", "find-tsp-layer", "the program kv-tsp-layer" },
	{ "kv-prefill", "max-layer", "kv-tsp-layer --max-layer" },
	{ "kv-prefill", "tol", "kv-tsp-layer --tol" },
	{ "kv-prefill", "head", "--retrieval-head" },
	{ "kv-decode", "budget", "--retrieve 'METHOD budget=N'" },
	{ "kv-decode", "reduce", "--retrieve 'METHOD budget=N reduce=HOW'" },
	{ "kv-decode", "dense-layers", "--retrieve 'METHOD budget=N dense=N'" },
	{ "kv-decode", "head", "--retrieve 'specontext budget=N head=DIR'" },
	{ "kv-decode", "sinks", "--retrieve 'specontext budget=N head=DIR sink=N'" },
	{ "kv-decode", "recent", "--retrieve 'specontext budget=N head=DIR recent=N'" },
	{ "kv-diff", "budget", "--retrieve 'METHOD budget=N'" },
	{ "kv-diff", "reduce", "--retrieve 'METHOD budget=N reduce=HOW'" },
	{ "kv-diff", "dense-layers", "--retrieve 'METHOD budget=N dense=N'" },
	{ "kv-evict", "heads", "--head-mask" },
	{ "--evict", "heads", "head-mask=" },
	{ "kv-footprint", "critical", "the program kv-critical" },
	{ "kv-footprint", "full", "kv-critical --full" },
	{ "kv-footprint", "keep", "kv-critical --keep" },
	{ "kv-footprint", "plan", "kv-plan --offload 'memory=LIMIT weights=N budget=N'" },
	{ "kv-footprint", "convention", "kv-plan --prulong 'prompt=N ...'" },
	{ NULL, NULL, NULL }
};

const char *
old_option(const char *program, const char *name)
{
	size_t i;

	for (i = 0; old[i].name != NULL; i++)
		if (strcmp(old[i].program, program) == 0 && strcmp(old[i].name, name) == 0)
			return old[i].now;
	return NULL;
}
