/* step_graph.h - steps of decoding as launches of a captured graph (ops.h)
 *
 * Two steps in a row do the same work, except that every KV head of every layer has a row more, or,
 * if an eviction follows every step, as many rows as before. If the backend can capture graphs, a
 * step is captured after one with the same sequences has run op by op, and later steps launch the
 * graph. When the sequences have changed, memory has moved or KV heads have grown by different
 * numbers of rows, a step runs op by op again. Which steps with retrieval can be launched:
 * retrieval_graph.c. */
#ifndef KVPIPE_STEP_GRAPH_H
#define KVPIPE_STEP_GRAPH_H

#include "forward/sequence.h"

struct step_graph;

/* Returns a step_graph for steps of up to `most` sequences at once; NULL without memory. */
struct step_graph *step_graph_new(const struct model *, uint32_t most);
void step_graph_free(struct step_graph *);                      /* NULL allowed */

/* A step appends one row to each of n sequences, at their next_position. Its ops copy nothing from
 * or to the host, and their arguments are the same in each step. */
struct step {
	struct sequence *const *sequence;      /* [n] */
	uint32_t n;
	uint32_t *pos;                 /* device: each launch adds 1; NULL: none */
	void (*run)(void *with);       /* calls the ops */
	void *with;
};

/* Runs the step as a launch, and counts its rows. Returns 0 and does nothing if the step cannot be
 * launched: then the caller calls step_graph_note() and runs it op by op. */
int step_graph_launch(struct step_graph *, const struct step *);
/* Stores the state of the sequences before a step that runs op by op, so that the next can be
 * captured. */
void step_graph_note(struct step_graph *, const struct step *);

/* Returns how many steps were launches */
uint64_t step_graph_launches(const struct step_graph *);
/* Did the device fail to capture a step? describe() may say why. */
int step_graph_capture_failed(const struct step_graph *);

#endif
