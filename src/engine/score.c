/* score.c - scores the rows of a layer by one method with its options */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/score_internal.h"
#include "model/model.h"

void
scorer_init(struct scorer *s, const struct method *method, const struct score_options *options,
    unsigned threads)
{
	*s = (struct scorer){ .method = method, .options = *options, .threads = threads };
}

void
scorer_free(struct scorer *s)
{
	struct area *areas[] = { &s->keys, &s->pos, &s->q, &s->q_pos, &s->sinks, &s->own,
		&s->own_pos, &s->lists, &s->ranks, &s->lse, &s->weights };
	size_t i;

	for (i = 0; s->device.ops != NULL && i < sizeof areas / sizeof *areas; i++)
		area_release(&s->device, areas[i]);
	if (s->device.ops != NULL)
		readback_release(&s->readback, &s->device);
	free(s->known_q_pos);
	s->known_q_pos = NULL;
	s->n_known = 0;
	query_filters_free(&s->filters);
	query_calibration_free(&s->calibration);
}

unsigned
scorer_needs(const struct scorer *s)
{
	return s->method->needs & ~(s->calibration.path != NULL ? (unsigned)NEED_QUERY_STATS : 0);
}

uint32_t
scorer_queries(const struct scorer *s, uint32_t otherwise)
{
	if (!(s->method->needs & NEED_WINDOW))
		return 0;
	if (!names_word(s->method->uses, "window"))
		return 1;
	return s->options.window != 0 ? s->options.window : otherwise;
}

int
scorer_window(const struct scorer *s, uint32_t stored, uint32_t layer, uint32_t *n,
    struct engine_error *e)
{
	if (s->options.window > stored)
		return engine_fail(e, ENGINE_EOPTION,
		    "--window %u: layer %u holds only %u "
		    "observation queries: without --window all of them are used",
		    s->options.window, layer, stored);
	*n = s->options.window != 0 ? s->options.window : stored;
	return ENGINE_OK;
}

int
scorer_check_log(const struct scorer *s, const struct kv_log_content *log,
    const struct kv_head *head, const char *name, struct engine_error *e)
{
	uint64_t ran;
	uint32_t l;

	if (!(s->method->needs & NEED_EVERY_QUERY) || log->size == 0)
		return ENGINE_OK;
	for (l = 0; l < head->model.layers; l++)
		if ((ran = kv_log_ran(log, l, head->model.kv_heads)) != head->next_position)
			return engine_fail(e, ENGINE_EUNSUPPORTED, "%s: layer %u has run %llu "
			    "tokens for %u positions (token selection, compact positions): method "
			    "%s divides by the number of queries that see a row, which is unknown",
			    name, l, (unsigned long long)ran, head->next_position,
			    s->method->name);
	return ENGINE_OK;
}

/* ---- the rows from --since on ---- */

/* The rows of a layer from --since on, with their positions, keys, mass and scores */
struct later {
	struct kv_rows rows;
	uint32_t *count;        /* [G] */
	const uint32_t **pos;   /* [G] */
	uint64_t *first_row;    /* [G]; keys and values stay where they are */
	float *mass, *probe_mass, *gate, *noncausal, *score;
};

/* *packed, R lists for each KV head, or NULL <- *later: the part of the later rows. */
static int
take_later(const float **packed, float **later, uint32_t R, const struct kv_rows *rows,
    const uint32_t *first, struct engine_error *e)
{
	const float *from = *packed;
	float *end;
	uint32_t g, r, n;

	if (from == NULL)
		return ENGINE_OK;
	*packed = *later = end = engine_alloc(kv_rows_total(rows) * R, sizeof *end, e);
	if (end == NULL)
		return e->code;
	for (g = 0; g < rows->heads; g++)
		for (r = 0; r < R; r++, from += rows->count[g]) {
			n = rows->count[g] - first[g];
			if (n > 0)
				memcpy(end, from + first[g], n * sizeof *end);
			end += n;
		}
	return ENGINE_OK;
}

/* Changes *in to the later rows only. Call later_free(), also after a failure. */
static int
later_init(struct later *later, struct score_input *in, const uint32_t *first,
    struct engine_error *e)
{
	const struct kv_rows *rows = in->rows;
	const uint32_t R = in->query_heads / rows->heads;
	uint64_t packed = 0;
	uint32_t g;

	*later = (struct later){ .count = NULL };
	if ((later->count = engine_alloc(rows->heads, sizeof *later->count, e)) == NULL ||
	    (later->pos = engine_alloc(rows->heads, sizeof *later->pos, e)) == NULL ||
	    (later->first_row = engine_alloc(rows->heads, sizeof *in->first_row, e)) == NULL)
		return e->code;
	for (g = 0; g < rows->heads; packed += rows->count[g++]) {
		later->count[g] = rows->count[g] - first[g];
		later->pos[g] = rows->pos[g] + first[g];
		later->first_row[g] = first[g] +
		    (in->first_row != NULL ? in->first_row[g] : packed);
	}
	later->rows = (struct kv_rows){ rows->heads, later->count, later->pos };
	later->score = engine_alloc(kv_rows_total(&later->rows), sizeof *later->score, e);
	if (later->score == NULL)
		return e->code;
	if (take_later(&in->mass, &later->mass, R, rows, first, e) != ENGINE_OK ||
	    take_later(&in->probe_mass, &later->probe_mass, R, rows, first, e) != ENGINE_OK ||
	    take_later(&in->gate, &later->gate, 1, rows, first, e) != ENGINE_OK ||
	    take_later(&in->noncausal, &later->noncausal, 1, rows, first, e) != ENGINE_OK)
		return e->code;
	in->first_row = later->first_row;
	in->rows = &later->rows;
	return ENGINE_OK;
}

static void
later_free(struct later *later)
{
	free(later->count);
	free(later->pos);
	free(later->first_row);
	free(later->mass);
	free(later->probe_mass);
	free(later->gate);
	free(later->noncausal);
	free(later->score);
}

/* score <- the scores of later rows, in lists `stride` apart or (0) packed, and +inf for the first
 * rows. */
static void
spread_later(float *score, const struct kv_rows *rows, const uint32_t *first, const float *later,
    size_t stride)
{
	uint32_t g, i, n;

	for (g = 0; g < rows->heads; g++) {
		n = rows->count[g] - first[g];
		for (i = 0; i < first[g]; i++)
			*score++ = INFINITY;
		for (i = 0; i < n; i++)
			*score++ = later[i];
		later += stride != 0 ? stride : n;
	}
}

/* ---- scores that the host makes ---- */

/* Returns the lists of mass, `stride` apart, packed; to be freed. */
static float *
pack_mass(const struct score_input *in, const float *mass, size_t stride, struct engine_error *e)
{
	const uint32_t R = in->query_heads / in->rows->heads;
	float *packed = engine_alloc(kv_rows_total(in->rows) * R, sizeof *packed, e), *at = packed;
	uint32_t h, n;

	for (h = 0; packed != NULL && h < in->query_heads; h++, mass += stride, at += n)
		if ((n = in->rows->count[h / R]) > 0)
			memcpy(at, mass, n * sizeof *at);
	return packed;
}

/* Returns keys or values on the device, rows of `row` bytes, packed; to be freed. */
static char *
read_rows(const struct device *d, const struct layer_rows *rows, const char *from, size_t row,
    struct engine_error *e)
{
	uint64_t total = 0;
	char *packed, *at;
	uint32_t g;

	for (g = 0; g < rows->heads; g++)
		total += rows->len[g];
	if ((at = packed = engine_alloc(total, row, e)) == NULL)
		return NULL;
	for (g = 0; g < rows->heads; at += rows->len[g++] * row)
		d->ops->get(d->dev, at, from + rows->start[g] * row, rows->len[g] * row);
	if (device_synced(d, e) != ENGINE_OK) {
		free(packed);
		return NULL;
	}
	return packed;
}

/* The inputs of a job that are copied from the device for the host's method; to be freed */
struct host_input {
	float *mass, *gate, *noncausal;
	char *keys, *values;
	double *numbers;                /* of query statistics */
	struct kv_query_stats query_stats;
};

static void
free_host_input(struct host_input *host)
{
	free(host->mass);
	free(host->gate);
	free(host->noncausal);
	free(host->keys);
	free(host->values);
	free(host->numbers);
}

/* Sets keys and values of the job: in place if the device shares memory with the host, else
 * copies. */
static int
rows_of_device(struct scorer *s, struct score_job *job, struct host_input *host,
    struct engine_error *e)
{
	const struct layer_rows *rows = job->device_rows;
	struct score_input *in = &job->in;

	if (device_shares_memory(&s->device)) {
		in->keys = s->method->needs & NEED_KEYS ? rows->k : NULL;
		in->values = s->method->needs & NEED_VALUES ? rows->v : NULL;
		in->first_row = rows->start;
		return device_synced(&s->device, e);
	}
	if (s->method->needs & NEED_KEYS) {
		in->keys = host->keys = read_rows(&s->device, rows, rows->k, rows_k_bytes(rows), e);
		if (in->keys == NULL)
			return e->code;
	}
	if (s->method->needs & NEED_VALUES) {
		in->values = host->values = read_rows(&s->device, rows, rows->v,
		    rows_v_bytes(rows), e);
		if (in->values == NULL)
			return e->code;
	}
	return ENGINE_OK;
}

/* Sets the rotary embedding of the layer. */
static void
set_rope(struct scorer *s, struct score_job *job)
{
	const struct kv_model *m = job->model;
	struct score_input *in = &job->in;
	const int windowed = model_layer_frequencies(m, in->layer, s->freq);

	in->freq = s->freq;
	in->rope_dims = kv_rope_dims(m, in->layer);
	in->rope_first = kv_rope_first(m);
	in->rope_factor = m->rope_attention_factor != 0 && !windowed ? m->rope_attention_factor : 1;
}

/* Sets the query statistics: those of the file, or those on the device, if they are not given. */
static int
set_query_stats(struct scorer *s, struct score_job *job, struct host_input *host,
    struct engine_error *e)
{
	const struct query_stats *text = job->query_stats;
	const uint32_t l = job->in.layer;
	const uint64_t n = kv_query_stats_numbers(job->model, l);
	int rc = ENGINE_OK;

	if (s->calibration.path != NULL || text != NULL) {
		if ((host->numbers = engine_alloc(n, sizeof *host->numbers, e)) == NULL)
			return e->code;
		job->in.query_stats = &host->query_stats;
	}
	if (s->calibration.path != NULL) {
		rc = query_calibration_layer(&s->calibration, job->model, l, host->numbers,
		    &host->query_stats, e);
		if (rc == ENGINE_OK && (s->method->needs & NEED_QUERY_MODULI) &&
		    s->calibration.modulus == NULL)
			rc = engine_fail(e, ENGINE_EDAMAGED, "%s: there is no tensor "
			    "query_modulus, which method %s needs: make the file with "
			    "train/query_stats.py", s->calibration.path, s->method->name);
		return rc;
	}
	if (text != NULL) {
		host->query_stats = (struct kv_query_stats){ text->first, text->n[l],
			NULL, NULL, NULL };
		kv_query_stats_arrays(&host->query_stats, job->model, l, host->numbers);
		s->device.ops->get(s->device.dev, host->numbers, text->sums[l],
		    n * sizeof *host->numbers);
		rc = device_synced(&s->device, e);
	}
	if (rc == ENGINE_OK && job->in.query_stats->n == 0)
		rc = engine_fail(e, ENGINE_ERUN, "layer %u: the query statistics are of no query: "
		    "the text has no token from position %u on", l, job->in.query_stats->first);
	return rc;
}

/* Returns the numbers of the layer's rows; to be freed. */
static float *
packed_list(const struct score_job *job, const struct row_lists *lists, struct engine_error *e)
{
	float *packed = engine_alloc(kv_rows_total(job->in.rows), sizeof *packed, e);

	if (packed != NULL)
		row_lists_pack(lists, job->in.layer, job->device_rows, packed);
	return packed;
}

static int
read_input(struct scorer *s, struct score_job *job, struct host_input *host, struct engine_error *e)
{
	struct score_input *in = &job->in;
	const float *mass;
	int rc;

	if (job->made_slot >= 0 && (rc = readback_end(&s->readback, &s->device, job->made_slot,
	    s->method->needs & NEED_QUERIES ? &in->queries : &in->window_mass, e)) != ENGINE_OK)
		return rc;
	in->queries_heads = in->query_heads;
	in->of_query = in->query_heads * in->stride;
	in->softcap = job->softcap;
	if (job->mass_slot >= 0) {
		rc = readback_end(&s->readback, &s->device, job->mass_slot, &mass, e);
		if (rc != ENGINE_OK)
			return rc;
		in->mass = host->mass = pack_mass(in, mass, job->mass_stride, e);
		if (in->mass == NULL)
			return e->code;
	}
	if (job->gates != NULL &&
	    (in->gate = host->gate = packed_list(job, job->gates, e)) == NULL)
		return e->code;
	if (job->noncausal != NULL &&
	    (in->noncausal = host->noncausal = packed_list(job, job->noncausal, e)) == NULL)
		return e->code;
	if (s->method->needs & NEED_ROPE)
		set_rope(s, job);
	if ((s->method->needs & NEED_QUERY_STATS) &&
	    (rc = set_query_stats(s, job, host, e)) != ENGINE_OK)
		return rc;
	if (!(s->method->needs & NEED_KEYS))
		in->keys = NULL;                /* only the window needed them */
	if (job->device_rows != NULL && (s->method->needs & (NEED_KEYS | NEED_VALUES)))
		return rows_of_device(s, job, host, e);
	return ENGINE_OK;
}

/* Runs the host's method on all rows, or on those from --since on. */
static int
score_on_host(const struct scorer *s, struct score_input *in, const uint32_t *first, float *score,
    struct engine_error *e)
{
	const struct kv_rows *rows = in->rows;
	struct later later = { .count = NULL };
	float *made = score;
	int rc = ENGINE_OK;

	if (s->since > 0) {
		rc = later_init(&later, in, first, e);
		made = later.score;
	}
	if (rc == ENGINE_OK &&
	    method_score(s->method, in, &s->options, s->threads, made) != 0)
		rc = engine_fail(e, ENGINE_ERUN, "out of memory");
	if (rc == ENGINE_OK && s->since > 0)
		spread_later(score, rows, first, made, 0);
	later_free(&later);
	return rc;
}

/* ---- a layer ---- */

int
score_refuse_nan(uint32_t layer, uint32_t head, uint32_t row, struct engine_error *e)
{
	return engine_fail(e, ENGINE_ERUN, "layer %u head %u row %u: the score is not a number: "
	    "keys, values or queries are NaN or infinite (f16 ends at 65504)", layer, head, row);
}

static int
refuse_nan(const float *score, const struct kv_rows *rows, uint32_t layer, struct engine_error *e)
{
	uint32_t g, s;

	for (g = 0; g < rows->heads; score += rows->count[g++])
		for (s = 0; s < rows->count[g]; s++)
			if (isnan(score[s]))
				return score_refuse_nan(layer, g, s, e);
	return ENGINE_OK;
}

/* *sum <- that of a layer, the sum over its KV heads. */
static void
add_spread(struct attention_spread *sum, const struct attention_spread *spread, uint32_t heads)
{
	uint32_t g;

	*sum = (struct attention_spread){ 0, 0 };
	for (g = 0; g < heads; g++) {
		sum->entropy += spread[g].entropy;
		sum->variance += spread[g].variance;
	}
}

int
score_finish(struct scorer *s, struct score_job *job, float *score, struct engine_error *e)
{
	const struct kv_rows *rows = job->in.rows;
	struct score_job asked = *job;
	struct host_input host = { .keys = NULL };
	struct attention_spread spread[SCORE_HEADS];
	uint32_t first[SCORE_HEADS], g;
	const float *made;
	int rc;

	for (g = 0; g < rows->heads; g++)
		first[g] = kv_rows_before(rows->pos[g], rows->count[g], s->since);
	if (job->by_op) {
		rc = readback_end(&s->readback, &s->device, job->made_slot, &made, e);
		if (rc == ENGINE_OK)
			spread_later(score, rows, first, made, job->in.stride);
	} else {
		asked.in.spread = spread;
		if ((rc = read_input(s, &asked, &host, e)) == ENGINE_OK)
			rc = score_on_host(s, &asked.in, first, score, e);
		free_host_input(&host);
		if (rc == ENGINE_OK && (s->method->needs & NEED_EACH_QUERY))
			add_spread(&job->spread, spread, rows->heads);
	}
	return rc == ENGINE_OK ? refuse_nan(score, rows, job->in.layer, e) : rc;
}

int
score_filter(const struct scorer *s, struct score_input *in, struct engine_error *e)
{
	const struct query_filters *f = &s->filters;

	if (!(s->method->needs & NEED_FILTER))
		return ENGINE_OK;
	if (f->layers != in->layers || f->heads != in->rows->heads || f->width != in->width)
		return engine_fail(e, ENGINE_EDAMAGED, "%s: filters of %u layers, %u KV heads and "
		    "a head width of %u, and the model has %u, %u and %u", f->path, f->layers,
		    f->heads, f->width, in->layers, in->rows->heads, in->width);
	in->filter = f->at + (size_t)in->layer * f->heads * f->width;
	return ENGINE_OK;
}

int
score_layer(struct scorer *s, struct score_job *job, float *score, struct engine_error *e)
{
	int rc = score_begin(s, job, e);

	return rc == ENGINE_OK ? score_finish(s, job, score, e) : rc;
}
