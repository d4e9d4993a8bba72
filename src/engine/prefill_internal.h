/* prefill_internal.h - shared by the schedules */
#ifndef KVPIPE_PREFILL_INTERNAL_H
#define KVPIPE_PREFILL_INTERNAL_H

#include "engine/learned_tokens.h"
#include "engine/prefill.h"

/* A prompt that runs. */
struct prefill_run {
	struct prefill *p;
	struct sequence *s;
	struct workspace *ws;
	struct observation *obs;        /* NULL = none */
	struct learned *learned;        /* run after each layer; NULL = none */
	struct each_logits *logits;     /* NULL = not wanted */
	struct engine_error *e;         /* gets the failures of all functions with this struct */
};

/* The schedules, in prefill_layers.c and prefill_chunks.c. Return an ENGINE_* code. */
int prefill_by_layers(struct prefill_run *r, const uint32_t *ids, size_t n);
int prefill_by_chunks(struct prefill_run *r, const uint32_t *ids, size_t n);

/* Returns by how many layers eviction lags: 1 if ops run ahead, so that a layer is scored while the
 * device runs the next one; else 0, which needs less memory. */
static inline uint32_t
prefill_behind(const struct model *m)
{
	return m->ops->runs_ahead ? 1 : 0;
}

/* With p->once, excludes rows before this position from scoring and from the budget. */
void prefill_since(struct prefill_run *r, uint32_t position);
int prefill_log_eviction(struct prefill_run *r, uint32_t l0, uint32_t l1);
/* Gives the sink, if any, the logits after rows x[N][D] (device), the first at this position, which
 * have run through all layers. */
int prefill_logits(struct prefill_run *r, const float *x, uint32_t N, uint32_t position);
/* Calls p->step. */
void prefill_show(const struct prefill_run *r, uint64_t done);
/* Runs n tokens through all layers, after `before` tokens of the same prompt; logs and shows each
 * tile. */
int prefill_tokens(struct prefill_run *r, const uint32_t *ids, size_t n, size_t before);
/* Runs n tokens, layer after layer; selects tokens, and evicts each layer. step: as for
 * prompt_run(). last: makes the logits. */
int prefill_pass_layers(struct prefill_run *r, const uint32_t *ids, size_t n,
    const struct step_hook *step, int last);

#endif
