/* speculate.h - speculative decoding with a smaller cache of the same text (self-speculation)
 *
 * A draft, a snapshot of the same text with fewer rows, fewer bits or a retrieval, proposes some
 * tokens; the full cache runs them in one pass (forward/ahead.h). The text is always the full
 * cache's: a wrong proposal costs time. Relatives: MagicDec (Chen et al. 2024), TriForce (Sun et
 * al. 2024), QuantSpec (Tiwari et al. 2025); the accepted text of all of these is that of the
 * target model.
 *
 * With a temperature the draft is sampled with the same random numbers as the text: a copy of the
 * text's sampler. So the text is that of the seed, and not only of the same distribution as by the
 * rule of Leviathan et al. 2023 (theorem 1); draft and text agree where the two distributions do
 * (drafter-invariant speculative decoding, Daliri et al. 2024). */
#ifndef KVPIPE_SPECULATE_H
#define KVPIPE_SPECULATE_H

#include "engine/decode.h"
#include "forward/ahead.h"
#include "forward/sample.h"

enum { DRAFT_MOST = AHEAD_MOST - 1 };   /* proposed tokens of a pass */

/* Counts over all texts */
struct speculation_counts {
	uint64_t passes;                /* of the full cache */
	uint64_t tokens;                /* of the text that have run */
	uint64_t drafted;               /* proposed tokens */
	uint64_t draft_steps;           /* of the draft */
	/* by place in the proposal: judged, and found to be the text's. The rest of a proposal
	 * behind a wrong token, and behind the end of the text, is not judged. */
	uint64_t judged[DRAFT_MOST], accepted[DRAFT_MOST];
	/* bytes of keys and values: of the full cache in all passes, and of the draft in all its
	 * steps (all rows, also where it retrieves) */
	uint64_t full_bytes, draft_bytes;
};

struct speculation {
	/* the caller's. draft: sequence, a workspace of its own, greedy as the text; its sequence
	 * is not logged. */
	struct decode draft;
	const struct sampler *sampler;  /* the text's; NULL: greedy */
	uint32_t most;                  /* proposed tokens of a pass, 1 .. DRAFT_MOST */
	int fixed;                      /* 1: always as many; 0: by acceptance, at most `most` */
	/* 1: the full cache may go back to where it is at speculation_open() */
	int returns;
	uint32_t left;                  /* tokens that may run after the present one */
	struct speculation_counts counts;
	/* private */
	struct ahead *ahead;
	struct sequence_point *point;   /* states of the draft, oldest first */
	uint32_t n_points;
	uint32_t length;                /* of the next proposal */
};

/* Prepares for the text after the tokens of the full cache, which the draft's cache has, too.
 * Returns an ENGINE_* code. Close it also after a failure. */
int speculation_open(struct speculation *, struct engine_error *);
void speculation_close(struct speculation *);           /* all zero is allowed */
/* Call it before each text. */
int speculation_start(struct speculation *, struct engine_error *);

/* Appends the token to the full cache, for decode_step(): runs it if it has not run ahead. *next <-
 * the likeliest token after it. */
int speculation_step(struct decode *full, uint32_t id, uint32_t *next, struct engine_error *);
/* The full cache's logits <- those after the last token, unless they are set. Returns 0, or
 * MODEL_ENOMEM. */
int speculation_logits(struct speculation *, struct cache *full);

#endif
