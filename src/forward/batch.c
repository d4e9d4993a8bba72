/* batch.c - one token of each of several sequences
 *
 * A step of one sequence reads all weights, and multiplies with each once. So the cost of a step
 * hardly grows with the number of sequences, until attention outweighs the weights: products are
 * over the rows of all sequences (forward_parts()), attention over each one's own rows. As long as
 * the sequences are the same, a step is the launch of a captured graph, if possible
 * (step_graph.h). */
#include <stdio.h>
#include <stdlib.h>

#include "forward/batch.h"
#include "forward/finite.h"
#include "forward/forward_internal.h"
#include "forward/step_graph.h"

struct batch {
	const struct model *m;
	uint32_t most;
	struct workspace *ws;
	float *logits;                 /* device [most][V] */
	/* device [most] ids to run; after the step the likeliest next ones */
	uint32_t *tok;
	uint32_t *host;                /* host [most] a copy of tok */
	struct part *part;             /* [most] */
	struct attention *each;        /* [most] for the workspace */
	struct layer_rows **rows;      /* [most] for the workspace */
	struct sequence **sequence;    /* [most] of the step */
	uint32_t n;                    /* sequences of the step */
	struct step_graph *graph;
};

struct batch *
batch_new(const struct model *m, uint32_t most)
{
	struct batch *b = calloc(1, sizeof *b);

	if (b == NULL)
		return NULL;
	*b = (struct batch){ .m = m, .most = most, .ws = workspace_new(m, most),
	    .graph = step_graph_new(m, most) };
	b->logits = m->ops->alloc(m->dev, (size_t)most * m->id.vocabulary * sizeof *b->logits);
	b->tok = m->ops->alloc(m->dev, most * sizeof *b->tok);
	b->host = calloc(most, sizeof *b->host);
	b->part = calloc(most, sizeof *b->part);
	b->each = calloc(most, sizeof *b->each);
	b->rows = calloc(most, sizeof *b->rows);
	b->sequence = calloc(most, sizeof *b->sequence);
	if (b->ws != NULL) {
		b->ws->each = b->each;
		b->ws->own_rows = b->rows;
	}
	if (b->ws == NULL || b->each == NULL || b->rows == NULL || b->logits == NULL ||
	    b->tok == NULL || b->host == NULL || b->part == NULL || b->sequence == NULL ||
	    b->graph == NULL) {
		batch_free(b);
		return NULL;
	}
	return b;
}

void
batch_free(struct batch *b)
{
	if (b == NULL)
		return;
	b->m->ops->free(b->m->dev, b->logits);
	b->m->ops->free(b->m->dev, b->tok);
	workspace_free(b->ws, b->m);
	free(b->host);
	free(b->part);
	free(b->each);
	free(b->rows);
	free(b->sequence);
	step_graph_free(b->graph);
	free(b);
}

int
batch_expect(struct sequence *s, uint32_t id, char *err, size_t errlen)
{
	return reserve_token(s, id, err, errlen);
}

/* Sets row i of the workspace to the token of r, after the rows of its cache. */
static void
place(struct batch *b, uint32_t i, const struct batch_row *r)
{
	struct cache *c = r->sequence->cache;

	b->host[i] = r->id;
	b->ws->host_pos[i] = c->next_position;
	b->part[i] = (struct part){ .s = r->sequence, .obs = r->obs, .pos = &b->ws->host_pos[i],
	    .at = i, .N = 1 };
	b->sequence[i] = r->sequence;
	c->ran++;
}

/* Runs the tokens in b->tok at the positions in ws->pos; b->tok <- the likeliest next ones. */
static void
run_step(void *with)
{
	struct batch *b = with;
	const struct model *m = b->m;
	struct workspace *ws = b->ws;

	m->ops->embed_ids(m->dev, ws->x, &m->embed, b->tok, b->n);
	scale_embeddings(m, ws->x, b->n);
	forward_parts(m, ws, b->part, b->n, 0, m->id.layers);
	make_logits(m, ws, b->logits, ws->x, b->n);
	m->ops->argmax(m->dev, b->tok, b->logits, m->id.vocabulary, b->n);
}

/* Runs the step, as a launch if possible: not with an observation, whose queries go to another
 * place in each step. */
static void
run(struct batch *b, struct batch_row *row)
{
	const struct step step = { .sequence = b->sequence, .n = b->n, .run = run_step,
	    .with = b };
	int observed = 0;
	uint32_t i;

	for (i = 0; i < b->n; i++)
		observed |= row[i].obs != NULL;
	if (!observed && step_graph_launch(b->graph, &step))
		return;
	step_graph_note(b->graph, &step);
	for (i = 0; i < b->n; i++)
		if (row[i].obs != NULL)
			observation_expect(row[i].obs, b->m,
			    row[i].sequence->cache->next_position, 1);
	run_step(b);
}

int
batch_run(struct batch *b, struct batch_row *row, uint32_t n, char *err, size_t errlen)
{
	const struct model *m = b->m;
	struct workspace *ws = b->ws;
	const char *failure;
	uint32_t i;

	b->n = n;
	for (i = 0; i < n; i++)
		place(b, i, &row[i]);
	m->ops->put(m->dev, ws->pos, ws->host_pos, n * sizeof *ws->pos);
	m->ops->put(m->dev, b->tok, b->host, n * sizeof *b->tok);
	run(b, row);
	m->ops->get(m->dev, b->host, b->tok, n * sizeof *b->host);
	if ((failure = m->ops->sync(m->dev)) != NULL) {
		snprintf(err, errlen, "%s", failure);
		return MODEL_EIO;
	}
	for (i = 0; i < n; i++) {
		row[i].next = b->host[i];
		row[i].sequence->cache->next_position++;
	}
	return 0;
}

int
batch_logits(struct batch *b, uint32_t i, struct cache *c)
{
	return get_logits(c, b->logits + (size_t)i * b->m->id.vocabulary);
}

uint64_t
batch_launches(const struct batch *b)
{
	return step_graph_launches(b->graph);
}

int
batch_capture_failed(const struct batch *b)
{
	return step_graph_capture_failed(b->graph);
}

int
batch_check(struct batch *b, uint32_t i, const struct cache *c, char *err, size_t errlen)
{
	return check_row(c, b->ws, b->ws->x + (size_t)i * b->m->id.hidden, c->next_position - 1, 0,
	    b->m->id.layers, err, errlen);
}
