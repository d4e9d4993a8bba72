/* kept_tokens.h - determines which tokens of a snapshot's text have rows
 *
 * A row belongs to the token at its position, if positions are those in the text. After kv-evict
 * --positions compact, and after a token selection that renumbers, a row's token is unknown. */
#ifndef KVPIPE_KEPT_TOKENS_H
#define KVPIPE_KEPT_TOKENS_H

#include "engine/engine_error.h"
#include "libkvfile/codec.h"

enum { KEPT_ANYWHERE = UINT32_MAX };

/* The KV heads in which to look for a token's row */
struct kept_where {
	uint32_t layer, head;           /* KEPT_ANYWHERE: all */
	/* 1: a kept token has a row in all of them; 0: in at least one */
	int all;
};

struct kept_tokens {
	uint64_t n;
	uint32_t *id;                   /* [n] the text */
	uint8_t *kept;                  /* [n] 1: it has rows; NULL: not asked for */
};

/* *out <- the tokens, and, if `where` is not NULL, which of them are kept. Reads the snapshot to
 * its end. ENGINE_EOPTION: there is no such layer or KV head; ENGINE_ERUN: the tokens of rows are
 * unknown. Free out, also after a failure. */
int kept_tokens_read(struct kept_tokens *out, struct kv_reader *, const struct kept_where *where,
    struct engine_error *);
void kept_tokens_free(struct kept_tokens *);

#endif
