/* recompute.h - computes some rows of a merged snapshot again, so that they see all documents
 *
 * In a snapshot of documents that were prefilled apart (merge_documents.h) the rows of each saw
 * only their own document. Two rules say which tokens run again, through all layers, at their
 * positions; the rows of all others stay:
 *
 * - EPIC's LegoLink (Hu et al. 2025, section 3.3): the first tokens of each later document, which
 *   took the place of an attention sink when the document ran alone.
 * - CacheBlend (Yao et al. 2025, section 4.3): all tokens of the later documents run through the
 *   first layers; those whose keys, or values, differ most from the merged ones in the last of
 *   these layers run on. The deviation of a token is the sum of the squared differences over the
 *   channels of all KV heads that have its row. The paper narrows the choice from layer to layer
 *   down to the rate; here, as in the authors' code, one layer chooses.
 *
 * Both together: the tokens of either. The last token always runs again, since its logits say how
 * the text goes on. */
#ifndef KVPIPE_RECOMPUTE_H
#define KVPIPE_RECOMPUTE_H

#include "engine/engine_error.h"
#include "forward/forward.h"

/* The measure by which CacheBlend's rule chooses tokens; random: by seed, the control */
enum recompute_by { RECOMPUTE_BY_KEYS, RECOMPUTE_BY_VALUES, RECOMPUTE_BY_RANDOM };

struct recompute {
	/* the caller's */
	double rate;                    /* share of the later documents' tokens, 0 .. 1 */
	uint32_t layer;                 /* in which the deviation is measured */
	enum recompute_by by;
	uint64_t seed;
	uint32_t first;                 /* tokens at the beginning of each later document */
	struct step_hook step;          /* is told how much of recompute_total() is done */

	/* results */
	uint32_t later, chosen;         /* tokens of the later documents; those that ran again */
};

/* Fails unless the snapshot's text can run again: it has documents, a row for each of their
 * positions before windows, and as many tokens as positions (ENGINE_EOPTION). tokens: their number
 * in the snapshot; name: of the snapshot, for the message. */
int recompute_check(const struct recompute *, const struct kv_head *, uint64_t tokens,
    const char *name, struct engine_error *);
/* Returns the rows to run, summed over the layers. */
uint64_t recompute_total(const struct recompute *, const struct kv_head *);
/* Returns how many tokens are in the residual stream. */
uint32_t recompute_tokens(const struct kv_head *);

/* Runs the chosen tokens again, replaces their rows, and sets the logits of the last one. */
int recompute_run(struct recompute *, struct sequence *, struct workspace *,
    struct engine_error *);

#endif
