/* prefill_internal.h - what the schedules share */
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
	struct learned *learned;        /* behind each layer; NULL = none */
	struct each_logits *logits;     /* NULL = nobody takes them */
	struct engine_error *e;         /* takes the failures of all that gets this struct */
};

/* prefill_layers.c, prefill_chunks.c */
int prefill_by_layers(struct prefill_run *r, const uint32_t *ids, size_t n);
int prefill_by_chunks(struct prefill_run *r, const uint32_t *ids, size_t n);

/* Where ops run ahead, a layer is scored while the device is busy with the next one. Elsewhere that
 * would only cost memory. */
static inline uint32_t
prefill_behind(const struct model *m)
{
	return m->ops->runs_ahead ? 1 : 0;
}

/* With p->once, rows before this position are not scored and do not count in the budget. */
void prefill_since(struct prefill_run *r, uint32_t position);
int prefill_log_eviction(struct prefill_run *r, uint32_t l0, uint32_t l1);
/* Rows x[N][D] (device), the first at this position, have run through all layers: who takes their
 * logits gets them. */
int prefill_logits(struct prefill_run *r, const float *x, uint32_t N, uint32_t position);
/* Calls p->step. */
void prefill_show(const struct prefill_run *r, uint64_t done);
/* Runs n tokens through all layers, behind `before` tokens of the same prompt; logs and shows each
 * tile. */
int prefill_tokens(struct prefill_run *r, const uint32_t *ids, size_t n, size_t before);
/* Runs n tokens, layer after layer; selects, and evicts each. step: as prompt_run() calls it. With
 * `last` there are logits. */
int prefill_pass_layers(struct prefill_run *r, const uint32_t *ids, size_t n,
    const struct step_hook *step, int last);

#endif
