/* opt_evict_cache.c - --score and --evict in programs that score and evict in process */
#include <string.h>

#include "cli/opt_evict.h"
#include "cli/opt_evict_cache.h"
#include "cli/report.h"
#include "cli/opt_score.h"

const char *
opt_evict_cache(struct cache_evictor *v, const char *score, const char *evict)
{
	const char *folder = score != NULL ? opt_score_words(&v->scorer, score) : NULL;

	opt_evict_words(&v->evictor, evict);
	v->hook = (struct evict_hook){ report_eviction_begin, report_eviction_end };
	return folder;
}

void
warn_dropped_indexes(unsigned kinds)
{
	char commands[INDEX_COMMANDS];

	if (kinds >> KV_RHDK & 1)
		warning("dropped the keys of a retrieval head, which would lack the new tokens; "
		    "name the head to keep them");
	kinds &= KV_ALL_INDEXES;
	if (*index_commands(commands, kinds) != '\0')
		warning("dropped the indexes of layers whose rows changed; make them again with %s",
		    commands);
}
