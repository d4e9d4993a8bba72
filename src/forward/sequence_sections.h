/* sequence_sections.h - a sequence from and to a snapshot
 *
 * Errors are KV_* codes; the reader or writer has the message, or the store of offloaded layers. */
#ifndef KVPIPE_SEQUENCE_SECTIONS_H
#define KVPIPE_SEQUENCE_SECTIONS_H

#include "cache/cache_sections.h"
#include "forward/sequence.h"

/* Is called for each section of a snapshot after it was loaded; content that was not wanted can
 * still be read. call returns 0, or a KV_* code, which ends the loading. */
struct section_hook {
	int (*call)(void *with, struct kv_reader *r, const struct kv_section *sec);
	void *with;                    /* the caller's, passed on */
};

/* Fills a sequence whose cache is empty from a reader that has just been opened, to its end. Drops
 * unknown sections, since the state changes after this. Does not compare the identity: call
 * kv_model_diff() first. obs (NULL = not wanted): as for snapshot_take(). hook: NULL = none. */
int sequence_load(struct kv_reader *r, struct sequence *s, struct observation *obs,
    const struct section_hook *hook);

/* Writes tokens, layers (snapshot_put_layer()), logits, the keys of the retrieval head if there is
 * one, and the event log, but not the end marker. */
int sequence_save(struct kv_writer *w, const struct sequence *s, const struct observation *obs);

#endif
