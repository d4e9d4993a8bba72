/* opt_evict_cache.c - --score and --evict of programs that score and evict in process */
#include <string.h>

#include "cli/opt_evict.h"
#include "cli/opt_evict_cache.h"
#include "cli/opt_score.h"

const char *
opt_evict_cache(struct cache_evictor *v, const char *score, const char *evict)
{
	const char *folder = score != NULL ? opt_score_words(&v->scorer, score) : NULL;

	opt_evict_words(&v->evictor, evict);
	return folder;
}

void
warn_dropped_indexes(unsigned kinds)
{
	char commands[INDEX_COMMANDS];

	if (kinds >> KV_RHDK & 1)
		warning("keys of a retrieval head are dropped: without --head they would lack the new "
		    "tokens");
	kinds &= KV_ALL_INDEXES;
	if (*index_commands(commands, kinds) != '\0')
		warning("indexes of layers whose rows have changed are dropped; what makes them "
		    "anew: %s", commands);
}
