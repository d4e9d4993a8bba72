/* kept_tokens.h - which tokens of a snapshot's text have rows
 *
 * A row is of the token at its position, as long as positions are places in the text: after
 * kv-evict --positions compact, and a selection of tokens that numbers them anew, it is not known
 * whose it is. */
#ifndef KVPIPE_KEPT_TOKENS_H
#define KVPIPE_KEPT_TOKENS_H

#include "engine/engine_error.h"
#include "libkvfile/codec.h"

enum { KEPT_ANYWHERE = UINT32_MAX };

/* In which KV heads a token's row is looked for */
struct kept_where {
	uint32_t layer, head;           /* KEPT_ANYWHERE: in each */
	int all;                        /* 1: a token must have a row in all of them; 0: in one */
};

struct kept_tokens {
	uint64_t n;
	uint32_t *id;                   /* [n] the text */
	uint8_t *kept;                  /* [n] has rows; NULL where nobody asked */
};

/* *out <- the tokens, and where `where` is not NULL which of them are kept, from the beginning of
 * the snapshot to its end. ENGINE_EOPTION: there is no such layer or KV head; ENGINE_ERUN: it is
 * not known. out is freed by the caller also when it failed. */
int kept_tokens_read(struct kept_tokens *out, struct kv_reader *, const struct kept_where *where,
    struct engine_error *);
void kept_tokens_free(struct kept_tokens *);

#endif
