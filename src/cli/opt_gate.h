/* opt_gate.h - the gate that scores rows while tokens run: kv-prefill --gate, kv-decode --gate */
#ifndef KVPIPE_OPT_GATE_H
#define KVPIPE_OPT_GATE_H

#include "cli/session.h"
#include "engine/evict_cache.h"

/* A row of a program's options */
#define OPT_GATE \
	{ 0, "gate", OPT_STRING, &gate_folder, 0, "DIR", \
	    "keep the scores that this gate gives to rows, for kv-score", OPT_WRITES }

extern const char *gate_folder;         /* NULL: not given */

/* Refuses a method that needs a gate without one. evict: NULL, or zero, without --score. */
void opt_gate(const struct cache_evictor *evict);
/* Opens the gate, if one is given, which must be one of the method's. Dies. */
void opt_gate_open(struct session *, const struct cache_evictor *evict);

#endif
