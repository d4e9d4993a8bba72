/* opt_gate.c - the gate that scores rows while tokens run */
#include <string.h>

#include "cli/opt_gate.h"
#include "cli/options.h"
#include "cli/tool.h"
#include "model/gate.h"

const char *gate_folder;

/* Returns the method that needs a gate; NULL: none does. */
static const struct method *
method_of(const struct cache_evictor *evict)
{
	return evict != NULL && (evict_cache_needs(evict) & NEED_GATE) ? evict->scorer.method :
	    NULL;
}

void
opt_gate(const struct cache_evictor *evict)
{
	const struct method *method = method_of(evict);

	if (method != NULL && gate_folder == NULL)
		die(EXIT_USAGE, "--score %s: by which gate? Give its folder, --gate DIR",
		    method->name);
}

void
opt_gate_open(struct session *s, const struct cache_evictor *evict)
{
	const struct method *method = method_of(evict);

	if (gate_folder == NULL)
		return;
	session_gate(s, gate_folder);
	if (method != NULL && strcmp(method->name, s->gate->method) != 0)
		die(EXIT_USAGE, "--score %s: %s is a gate of %s", method->name, gate_folder,
		    s->gate->method);
}
