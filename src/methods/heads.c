/* heads.c - scores the KV heads of a layer in parallel
 *
 * All methods but those with NEED_LAYER score one KV head at a time, so a layer is cut into its
 * heads, each with its own score_input, and threads score one after another. A head's sums have
 * the same order in any thread, so the scores do not depend on the number of threads. Threads
 * live for one layer: starting one takes some 20 microseconds, scoring a head of a long prompt
 * a thousand times that. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "methods/methods.h"

#define MAX_THREADS 64
/* Rows that are worth a thread: for methods that read more than a number or two per row; for
 * others */
#define WORTH_A_THREAD 4096
#define WORTH_OF_LITTLE 65536
#define WORTH_OF_MUCH 64        /* for methods with E^2 products for each row: NEED_ROPE */

struct heads {
	const struct method *method;
	const struct score_input *in;
	const struct score_options *opt;
	float *score;
	const uint64_t *first;          /* [G] rows of the heads before each */
	atomic_uint next;               /* next head to score */
	atomic_int code;
};

/* Returns the score_input of KV head g alone. */
static struct score_input
one_head(const struct score_input *in, struct kv_rows *rows, uint32_t g, uint64_t first)
{
	const uint32_t R = in->query_heads / in->rows->heads;
	struct score_input one = *in;
	const uint64_t row = in->first_row != NULL ? in->first_row[g] : first;

	*rows = (struct kv_rows){ 1, &in->rows->count[g], &in->rows->pos[g] };
	one.head = in->head + g;
	one.query_heads = R;
	one.rows = rows;
	if (in->keys != NULL)
		one.keys = (const char *)in->keys + row * kv_row_bytes(in->key_type, in->width);
	if (in->values != NULL)
		one.values = (const char *)in->values +
		    row * kv_row_bytes(in->value_type, in->width);
	one.first_row = NULL;
	if (in->filter != NULL)
		one.filter = in->filter + (size_t)g * in->width;
	if (in->window_mass != NULL)
		one.window_mass = in->window_mass + (size_t)g * R * in->stride;
	if (in->spread != NULL)
		one.spread = in->spread + g;
	if (in->mass != NULL)
		one.mass = in->mass + first * R;
	if (in->gate != NULL)
		one.gate = in->gate + first;
	if (in->noncausal != NULL)
		one.noncausal = in->noncausal + first;
	if (in->probe_mass != NULL)
		one.probe_mass = in->probe_mass + first * R;
	return one;
}

static void *
take_heads(void *arg)
{
	struct heads *h = arg;
	struct score_input one;
	struct kv_rows rows;
	uint32_t g;

	while ((g = atomic_fetch_add(&h->next, 1)) < h->in->rows->heads) {
		one = one_head(h->in, &rows, g, h->first[g]);
		if (h->method->score(&one, h->opt, h->score + h->first[g]) != 0)
			h->code = -1;
	}
	return NULL;
}

static unsigned
threads_for(const struct score_input *in, uint64_t rows, unsigned threads)
{
	const int much = in->keys != NULL || in->values != NULL || in->window_mass != NULL;
	const uint64_t worth = rows / (in->freq != NULL ? WORTH_OF_MUCH :
	    much ? WORTH_A_THREAD : WORTH_OF_LITTLE) + 1;
	const uint32_t heads = in->rows->heads;

	threads = threads < MAX_THREADS ? threads : MAX_THREADS;
	threads = threads < heads ? threads : heads;
	return threads < worth ? threads : (unsigned)worth;
}

int
method_score(const struct method *method, const struct score_input *in,
    const struct score_options *opt, unsigned threads, float *score)
{
	const struct kv_rows *rows = in->rows;
	struct heads h = { .method = method, .in = in, .opt = opt, .score = score };
	pthread_t id[MAX_THREADS];
	uint64_t *first, total = 0;
	unsigned n = 0;
	uint32_t g;

	if (method->needs & NEED_LAYER)
		return method->score(in, opt, score);
	if ((first = malloc(rows->heads * sizeof *first)) == NULL)
		return -1;
	for (g = 0; g < rows->heads; total += rows->count[g++])
		first[g] = total;
	h.first = first;
	threads = threads_for(in, total, threads);
	while (n + 1 < threads && pthread_create(&id[n], NULL, take_heads, &h) == 0)
		n++;
	take_heads(&h);                 /* all heads, if no thread could be started */
	while (n > 0)
		pthread_join(id[--n], NULL);
	free(first);
	return h.code;
}
