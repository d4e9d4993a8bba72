/* op_formulas.c - the costs of an op, from its shapes, as documented in kvpipe(7), REPORTS */
#include <stdlib.h>

#include "engine/op_counts_internal.h"

/* Returns the counts to add to: while capturing, those of the graph, which each launch adds. */
static struct op_counts *
account(struct counter *c)
{
	return c->capturing ? &c->graph : c->work;
}

/* Returns the bytes of n keys, and of n keys with their values. */
static uint64_t
key_bytes(const struct layer_rows *rows, uint64_t n)
{
	return n * rows_k_bytes(rows);
}

static uint64_t
row_bytes(const struct layer_rows *rows, uint64_t n)
{
	return n * (rows_k_bytes(rows) + (rows->v_in_k ? 0 : rows_v_bytes(rows)));
}

/* How many bytes more than coded ones the full rows behind them have, which every query sees */
static uint64_t
more_bytes(const struct layer_rows *rows, int output)
{
	const struct recent_rows *r = rows->recent;
	const uint64_t full = rows->width * kv_dtype_size(rows->dtype);
	uint64_t more = 0;
	uint32_t g;

	for (g = 0; r != NULL && g < rows->heads; g++) {
		if (r->k != NULL)
			more += (rows->len[g] - r->k_coded[g]) * (full - rows_k_bytes(rows));
		if (output && r->v != NULL)
			more += (rows->len[g] - r->v_coded[g]) * (full - rows_v_bytes(rows));
	}
	return more;
}

/* y[N][out] <- x[N][in] . w^T: the weights are read once for all N. */
void
count_product(struct counter *c, const struct mat *w, uint32_t N)
{
	struct op_counts *a = account(c);

	a->products += 2 * (uint64_t)N * w->in * w->out;
	a->weights += w->out * (uint64_t)weight_row_bytes(w->type, w->in);
}

void
count_ffn(struct counter *c, const struct ffn *w, uint32_t N)
{
	count_product(c, &w->gate, N);
	count_product(c, &w->up, N);
	count_product(c, &w->down, N);
}

/* Each row meets K experts; the weights of an expert are read once for all its rows. Where the host
 * does not see which ones rows have chosen, as if each row had chosen others. */
void
count_experts(struct counter *c, const struct experts *e, void *scratch, uint32_t N)
{
	const struct expert_mats *mats[] = { &e->gate, &e->up, &e->down };
	const uint64_t places = (uint64_t)N * e->router.chosen, M = e->router.experts;
	struct op_counts *a = account(c);
	struct expert_rows rows;
	uint64_t busy = places < M ? places : M;
	size_t i;

	expert_rows_at(&rows, scratch, e, N);
	if (c->under->shares_memory && c->under->sync(c->dev) == NULL)
		busy = rows.busy[0];
	count_product(c, &e->router.w, N);
	for (i = 0; i < sizeof mats / sizeof mats[0]; i++) {
		a->products += 2 * places * mats[i]->in * mats[i]->out;
		a->weights += busy * mats[i]->out *
		    (uint64_t)weight_row_bytes(mats[i]->type, mats[i]->in);
	}
}

void
count_append(struct counter *c, const struct layer_rows *rows, uint32_t N)
{
	account(c)->rows_written += row_bytes(rows, (uint64_t)N * rows->heads);
}

/* ---- which rows queries see ---- */

/* Sums over the KV heads of a layer */
struct seen {
	uint64_t pairs;                 /* pairs of a query row and a row that it sees */
	uint64_t rows;                  /* rows that at least one query row sees */
};

/* Counts by positions, which ascend, so that each query row sees a range of rows. */
static void
see_positions(struct seen *s, const struct query *q, const uint32_t *pos, uint32_t len)
{
	uint32_t first = 0, end = 0, from = 0, i;

	for (i = 0; i < q->N; i++) {
		while (end < len && pos[end] <= q->pos[i])
			end++;
		while (q->window > 0 && first < end && q->pos[i] - pos[first] >= q->window)
			first++;
		s->pairs += end - first;
		from = i == 0 ? first : from;
	}
	s->rows += end - from;
}

/* Counts without positions, which are on the device only: as if the query rows were the last rows,
 * and no earlier row were missing. */
static void
see_shapes(struct seen *s, const struct query *q, uint32_t len)
{
	uint64_t sees, first;
	uint32_t i, behind;

	for (i = 0; i < q->N; i++) {
		behind = q->N - 1 - i;
		sees = len > behind ? len - behind : 0;
		s->pairs += q->window > 0 && sees > q->window ? q->window : sees;
	}
	first = q->N > 0 && len > q->N - 1 ? len - (q->N - 1) : 0;
	s->rows += q->window > 0 && first > q->window ? len - (first - q->window) : len;
}

static struct seen
rows_seen(const struct counter *c, const struct query *q, const struct layer_rows *rows)
{
	struct seen s = { 0, 0 };
	uint32_t g;

	if (q->N == 0)
		return s;
	for (g = 0; g < rows->heads; g++) {
		if (c->under->shares_memory && rows->pos != NULL && q->pos != NULL)
			see_positions(&s, q, rows->pos + rows->start[g], rows->len[g]);
		else
			see_shapes(&s, q, rows->len[g]);
	}
	return s;
}

/* ---- attention ---- */

/* Adds the captured attend() a to the graph, to be counted at each launch. */
static void
count_later(struct counter *c, struct captured_attend a)
{
	struct captured_attend *more;

	if (c->n_attend == c->room_attend) {
		more = realloc(c->attend, (2 * c->room_attend + 64) * sizeof *more);
		if (more == NULL) {
			c->lost_attend = 1;
			return;
		}
		c->attend = more;
		c->room_attend = 2 * c->room_attend + 64;
	}
	c->attend[c->n_attend++] = a;
}

/* Counts q.k, and with output the weighted values. */
void
count_attend(struct counter *c, const struct query *q, const struct layer_rows *rows, int output)
{
	const struct seen s = rows_seen(c, q, rows);
	const uint32_t sides = output ? 2 : 1, R = q->H / rows->heads;

	if (!c->capturing) {
		c->work->attention += 2 * (uint64_t)sides * rows->width * R * s.pairs;
		c->work->rows_read += more_bytes(rows, output) +
		    (output ? row_bytes(rows, s.rows) : key_bytes(rows, s.rows));
		return;
	}
	count_later(c, (struct captured_attend){ rows, q->H, q->window, sides, NULL });
}

/* Rows after the last whole entry are scored by their keys. */
static void
count_scores(struct op_counts *a, const struct entries *bits, const struct layer_rows *rows,
    uint32_t H, uint32_t len, uint32_t entries)
{
	a->retrieval += 2 * (uint64_t)rows->width * (H / rows->heads) * len;
	a->indexes += entries * (uint64_t)bits->bytes;
	a->rows_read += key_bytes(rows, len - (uint64_t)entries * bits->rows);
}

/* A launched step has one query row, whose own row the caller adds to len later. */
void
count_launch(struct counter *c)
{
	const struct captured_attend *a;
	uint64_t sees;
	uint32_t g, len;

	op_counts_add(c->work, &c->graph);
	for (a = c->attend; a < c->attend + c->n_attend; a++)
		for (g = 0; g < a->rows->heads; g++) {
			len = a->rows->len[g] + 1;
			if (a->bits != NULL) {
				count_scores(c->work, a->bits, a->rows, a->H, len,
				    len / a->bits->rows);
				continue;
			}
			sees = a->window > 0 && len > a->window ? a->window : len;
			c->work->attention += 2 * (uint64_t)a->sides * a->rows->width *
			    (a->H / a->rows->heads) * sees;
			c->work->rows_read += a->sides == 2 ? row_bytes(a->rows, sees) :
			    key_bytes(a->rows, sees);
		}
}

/* Counts q.k for the sums of the softmax, over own rows, too, and q.k again for the mass. */
void
count_window_mass(struct counter *c, const struct query *q, const struct layer_rows *rows,
    const struct layer_rows *own)
{
	count_attend(c, q, rows, 0);
	if (own != NULL)
		count_attend(c, q, own, 0);
	count_attend(c, q, rows, 0);
}

/* ---- retrieval: one query row ---- */

/* Counts the dot products with all keys; rows without values belong to an index. */
void
count_keys(struct counter *c, const struct query *q, const struct layer_rows *rows)
{
	struct op_counts *a = account(c);
	uint32_t g;

	for (g = 0; g < rows->heads; g++) {
		a->retrieval += 2 * (uint64_t)rows->width * (q->H / rows->heads) * rows->len[g];
		*(rows->v != NULL ? &a->rows_read : &a->indexes) += key_bytes(rows, rows->len[g]);
	}
}

void
count_bits(struct counter *c, const struct query *q, const struct entries *bits,
    const struct layer_rows *rows)
{
	uint32_t g;

	if (c->capturing)
		count_later(c, (struct captured_attend){ rows, q->H, 0, 1, bits });
	for (g = 0; !c->capturing && g < rows->heads; g++)
		count_scores(c->work, bits, rows, q->H, rows->len[g], bits->len[g]);
}

/* Counts max(q*least, q*greatest): two products, a comparison, a sum. */
void
count_pages(struct counter *c, const struct query *q, const struct entries *pages)
{
	struct op_counts *a = account(c);
	uint32_t g;

	for (g = 0; g < pages->heads; g++) {
		a->retrieval += 4 * (uint64_t)pages->width * (q->H / pages->heads) * pages->len[g];
		a->indexes += (uint64_t)pages->len[g] * pages->bytes;
	}
}

/* Returns the rows of the chosen entries. If the last entry of a KV head is partial, it is one of
 * these. */
static uint64_t
chosen_rows(const struct layer_rows *rows, const struct chosen *chosen, uint32_t g)
{
	const uint32_t u = chosen->rows, part = rows->len[g] % u;
	const uint64_t n = (uint64_t)chosen->n[g] * u;

	return n > 0 && part > 0 ? n - (u - part) : n;
}

/* KV heads that share rows read those of each. */
void
count_chosen(struct counter *c, const struct query *q, const struct layer_rows *rows,
    const struct chosen *chosen)
{
	struct op_counts *a = account(c);
	uint64_t n;
	uint32_t g;

	for (g = 0; g < rows->heads; g++) {
		n = chosen_rows(rows, chosen, g);
		a->attention += 4 * (uint64_t)rows->width * (q->H / rows->heads) * n;
		a->rows_read += row_bytes(rows, n);
	}
}

void
count_gather(struct counter *c, const struct layer_rows *rows, const struct chosen *chosen)
{
	uint32_t g;

	for (g = 0; g < rows->heads; g++)
		account(c)->rows_read += row_bytes(rows, chosen_rows(rows, chosen, g));
}

/* Returns how many rows of KV head g the factors replace: those of chosen chunks that are not
 * exact. at, exact: scratch on the host, if the device has memory of its own */
static uint64_t
rebuilt_rows(struct counter *c, const struct chosen *chosen, const struct low_rank *low, uint32_t g,
    uint32_t *at, uint8_t *exact)
{
	const uint32_t chunks = low->n / low->chunk;
	uint64_t n = 0, row;
	uint32_t i, j;

	c->under->get(c->dev, at, chosen->at + g * chosen->stride, chosen->n[g] * sizeof *at);
	c->under->get(c->dev, exact, low->exact + (size_t)g * chunks, chunks);
	for (i = 0; i < chosen->n[g]; i++)
		for (j = 0; j < chosen->rows; j++) {
			row = (uint64_t)at[i] * chosen->rows + j;
			n += row < (uint64_t)chunks * low->chunk && !exact[row / low->chunk];
		}
	return n;
}

/* Counts the keys: each is a row of the left factor times the right factor of its KV head. */
void
count_rebuild(struct counter *c, const struct layer_rows *to, const struct chosen *chosen,
    const struct low_rank *low)
{
	const size_t size = kv_dtype_size(low->dtype);
	struct op_counts *a = account(c);
	uint32_t most = 0, g;
	uint32_t *at;
	uint8_t *exact = malloc(low->n / low->chunk + 1);
	uint64_t n;

	for (g = 0; g < to->heads; g++)
		most = chosen->n[g] > most ? chosen->n[g] : most;
	at = malloc(((size_t)most + 1) * sizeof *at);
	for (g = 0; at != NULL && exact != NULL && g < to->heads; g++) {
		n = rebuilt_rows(c, chosen, low, g, at, exact);
		a->retrieval += 2 * (uint64_t)low->rank * to->width * n;
		a->indexes += n * low->rank * size +
		    (n > 0) * (uint64_t)to->width * low->rank * size;
	}
	free(exact);
	free(at);
}
