/* step_graph.h - steps of decoding as launches of a captured graph (ops.h)
 *
 * Between two steps the work is the same, except that every KV head of every layer has a row more,
 * or, where an eviction follows every step, as many rows as before. Where the backend can capture
 * graphs, a step is captured when the one before it has run op by op and left such sequences, and
 * the graph is launched from then on as long as that holds. Otherwise, when other sequences take
 * part, memory has moved or KV heads have grown by different numbers of rows, a step runs op by op
 * again. retrieval_graph.c says which steps that retrieve can be launched. */
#ifndef KVPIPE_STEP_GRAPH_H
#define KVPIPE_STEP_GRAPH_H

#include "forward/sequence.h"

struct step_graph;

/* For steps of up to `most` sequences at once. NULL without memory. */
struct step_graph *step_graph_new(const struct model *, uint32_t most);
void step_graph_free(struct step_graph *);                      /* NULL allowed */

/* A step appends one row to each of n sequences, at their next_position. Its ops copy nothing from
 * or to the host, and have no arguments that change from step to step. */
struct step {
	struct sequence *const *sequence;      /* [n] */
	uint32_t n;
	uint32_t *pos;                 /* device: each launch adds 1; NULL: none */
	void (*run)(void *with);       /* calls the ops */
	void *with;
};

/* Runs the step as a launch, and counts its rows. Returns 0 where that cannot be, and nothing has
 * been done: the caller runs it op by op between step_graph_note() and the next call. */
int step_graph_launch(struct step_graph *, const struct step *);
/* The step is about to run op by op. */
void step_graph_note(struct step_graph *, const struct step *);

/* How many steps were launches */
uint64_t step_graph_launches(const struct step_graph *);
/* Did the device fail to capture a step? describe() may say why. */
int step_graph_capture_failed(const struct step_graph *);

#endif
