/* step_graph.c - steps of decoding as launches of a captured graph */
#include <stdlib.h>
#include <string.h>

#include "forward/step_graph.h"

/* The memory and the lengths of a layer's rows, and the memory of its other lists */
struct layer_state {
	const void *k, *v, *pos, *mass, *bits, *lists;
	const void *device_rows, *device_pos, *slots;   /* of an offloaded layer */
	const struct retrieval *retrieval;
	uint64_t *start;               /* [G] */
	uint32_t *len;                 /* [G] */
};

struct step_graph {
	const struct model *m;
	uint32_t most;
	/* the sequences, and the states of their layers, [n][L], before the captured step, or,
	 * without a graph, before the last step */
	const struct sequence **sequence;      /* [most] */
	uint32_t n;                    /* 0: none yet */
	struct layer_state *state;
	uint64_t *start;               /* [most][L][G] start of all states */
	uint32_t *len;                 /* [most][L][G] len of all states */
	uint32_t graph;                /* for graph_launch(); 0: none */
	int capture_failed;
	uint64_t launches;
};

struct step_graph *
step_graph_new(const struct model *m, uint32_t most)
{
	const size_t layers = (size_t)most * m->id.layers, G = m->id.kv_heads;
	struct step_graph *s = calloc(1, sizeof *s);
	size_t i;

	if (s == NULL)
		return NULL;
	*s = (struct step_graph){ .m = m, .most = most,
	    .sequence = calloc(most, sizeof *s->sequence),
	    .state = calloc(layers, sizeof *s->state),
	    .start = calloc(layers * G, sizeof *s->start),
	    .len = calloc(layers * G, sizeof *s->len) };
	if (s->sequence == NULL || s->state == NULL || s->start == NULL || s->len == NULL) {
		step_graph_free(s);
		return NULL;
	}
	for (i = 0; i < layers; i++) {
		s->state[i].start = s->start + i * G;
		s->state[i].len = s->len + i * G;
	}
	return s;
}

void
step_graph_free(struct step_graph *s)
{
	if (s == NULL)
		return;
	free(s->sequence);
	free(s->state);
	free(s->start);
	free(s->len);
	free(s);
}

uint64_t
step_graph_launches(const struct step_graph *s)
{
	return s->launches;
}

int
step_graph_capture_failed(const struct step_graph *s)
{
	return s->capture_failed;
}

/* Can all ops of a step with this sequence be captured, if launches have `more` rows more?
 * Attention mass uses the lengths at the capture; query statistics count on the host; numbers
 * of rows go to the host; layers that are read whole come from there. */
static int
can_capture(const struct sequence *q, uint32_t more)
{
	const struct cache *c = q->cache;
	uint32_t l;

	if ((q->offload != NULL && q->offload->reads_whole) || q->probe_mass != NULL ||
	    c->query_stats != NULL || c->gate != NULL ||
	    c->noncausal != NULL || q->head != NULL ||
	    (c->mass != NULL && more > 0) ||
	    (q->retrieval != NULL && !retrieval_can_capture(q->retrieval)))
		return 0;
	for (l = 0; c->index != NULL && l < c->model->id.layers; l++)
		if (!index_repeats(&c->index[l], &c->layer[l]))
			return 0;
	return 1;
}

/* Returns the memory of layer l, without start and len. */
static struct layer_state
memory_of(const struct sequence *q, uint32_t l)
{
	const struct cache *c = q->cache;
	const struct layer_rows *rows = &c->layer[l];
	const struct offload_layer *offloaded = offload_has(q->offload, l) ?
	    &q->offload->layer[l] : NULL;
	const struct retrieval *t = q->retrieval;

	return (struct layer_state){
	    .device_rows = offloaded != NULL ? offloaded->device_rows.k : NULL,
	    .device_pos = offloaded != NULL ? offloaded->device_rows.pos : NULL,
	    .slots = offloaded != NULL ? offloaded->list.at : NULL,
	    .k = rows->k, .v = rows->v, .pos = rows->pos,
	    .mass = c->mass != NULL ? c->mass[l].sum : NULL,
	    .bits = c->index != NULL ? c->index[l].bits.data : NULL,
	    .lists = t != NULL ? retrieval_lists(t) : NULL, .retrieval = t };
}

static void
save_state(struct step_graph *s, const struct step *step)
{
	const uint32_t L = s->m->id.layers;
	uint32_t i, l;

	for (i = 0; i < step->n; i++) {
		s->sequence[i] = step->sequence[i];
		for (l = 0; l < L; l++) {
			const struct layer_rows *rows = &step->sequence[i]->cache->layer[l];
			struct layer_state *to = &s->state[(size_t)i * L + l], was = *to;

			*to = memory_of(step->sequence[i], l);
			to->start = was.start;
			to->len = was.len;
			memcpy(to->start, rows->start, rows->heads * sizeof *to->start);
			memcpy(to->len, rows->len, rows->heads * sizeof *to->len);
		}
	}
	s->n = step->n;
}

/* Is layer l as in save_state(), except for `more` rows more of each KV head? */
static int
layer_holds(const struct layer_state *was, const struct sequence *q, uint32_t l, uint32_t more)
{
	const struct cache *c = q->cache;
	const struct layer_rows *rows = &c->layer[l];
	const struct layer_state now = memory_of(q, l);
	uint32_t g;

	if (now.k != was->k || now.v != was->v || now.pos != was->pos || now.mass != was->mass ||
	    now.bits != was->bits || now.lists != was->lists || now.retrieval != was->retrieval ||
	    now.device_rows != was->device_rows || now.device_pos != was->device_pos ||
	    now.slots != was->slots ||
	    memcmp(rows->start, was->start, rows->heads * sizeof *was->start) != 0)
		return 0;
	for (g = 0; g < rows->heads; g++)
		if (rows->len[g] < was->len[g] || rows->len[g] - was->len[g] != more)
			return 0;
	return q->retrieval == NULL || retrieval_reads_as_many(q->retrieval, l, was->len, rows->len,
	    c->model->layer[l].window);
}

/* Are the sequences as in save_state(), except for *more rows more of all KV heads of all layers,
 * and can their step be captured? Sets *more. */
static int
state_holds(const struct step_graph *s, const struct step *step, uint32_t *more)
{
	const uint32_t L = s->m->id.layers;
	uint32_t i, l;

	if (s->n == 0 || s->n != step->n)
		return 0;
	*more = step->sequence[0]->cache->layer[0].len[0] - s->len[0];
	for (i = 0; i < s->n; i++) {
		const struct sequence *q = step->sequence[i];

		if (q != s->sequence[i] || !can_capture(q, *more))
			return 0;
		for (l = 0; l < L; l++)
			if (!layer_holds(&s->state[(size_t)i * L + l], q, l, *more))
				return 0;
	}
	return 1;
}

/* Resets what ops have counted on the host during the capture: rows and entries of indexes. */
static void
restore_state(struct step_graph *s, const struct step *step)
{
	const uint32_t L = s->m->id.layers;
	uint32_t i, l;

	for (i = 0; i < step->n; i++)
		for (l = 0; l < L; l++) {
			struct cache *c = step->sequence[i]->cache;

			memcpy(c->layer[l].len, s->state[(size_t)i * L + l].len,
			    s->m->id.kv_heads * sizeof(uint32_t));
			offload_set_len(step->sequence[i]->offload, l, c->layer[l].len);
			if (c->index != NULL)
				index_count(&c->index[l], &c->layer[l]);
		}
}

static void
record_retrieval(const struct step *step, int on)
{
	uint32_t i;

	for (i = 0; i < step->n; i++)
		if (step->sequence[i]->retrieval != NULL)
			retrieval_capture(step->sequence[i]->retrieval, on);
}

/* Captures a step, without running it. */
static void
capture(struct step_graph *s, const struct step *step)
{
	save_state(s, step);
	if (s->m->ops->graph_begin(s->m->dev)) {
		record_retrieval(step, 1);
		step->run(step->with);
		record_retrieval(step, 0);
		s->graph = s->m->ops->graph_end(s->m->dev, step->pos);
		restore_state(s, step);
	}
	s->capture_failed = s->graph == 0;
}

/* Does the host's part of a step of one sequence in layer l. */
static void
count_row(struct sequence *q, uint32_t l)
{
	struct cache *c = q->cache;
	struct layer_rows *rows = &c->layer[l];
	uint32_t g;

	cache_expect(c, l, &c->next_position, 1);
	for (g = 0; g < rows->heads; g++)
		rows->len[g]++;
	offload_set_len(q->offload, l, rows->len);
	if (c->index != NULL)
		index_count(&c->index[l], rows);
	if (q->retrieval != NULL)
		retrieve_launched(q->retrieval, l, rows, cache_index(c, l),
		    c->model->layer[l].window);
}

static void
count_rows(const struct step *step, const struct model *m)
{
	uint32_t i, l;

	for (i = 0; i < step->n; i++)
		for (l = 0; l < m->id.layers; l++)
			count_row(step->sequence[i], l);
}

int
step_graph_launch(struct step_graph *s, const struct step *step)
{
	uint32_t more;

	if (s->m->ops->graph_begin == NULL || s->capture_failed || !state_holds(s, step, &more))
		return 0;
	if (s->graph == 0) {
		capture(s, step);
		more = 0;
	}
	if (s->graph == 0 || !s->m->ops->graph_launch(s->m->dev, s->graph, more))
		return 0;
	count_rows(step, s->m);
	s->launches++;
	return 1;
}

void
step_graph_note(struct step_graph *s, const struct step *step)
{
	save_state(s, step);
	s->graph = 0;
}
