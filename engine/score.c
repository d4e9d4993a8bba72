/* score.c - the scores of a layer's rows, by one method with its options */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/score.h"

#define MAX_HEADS 4096          /* kv-snapshot(5), 4.1 */

void
scorer_init(struct scorer *s, const struct method *method, const struct score_options *options,
    unsigned threads)
{
	*s = (struct scorer){ .method = method, .options = *options, .threads = threads };
}

void
scorer_free(struct scorer *s)
{
	struct area *areas[] = { &s->keys, &s->pos, &s->q, &s->q_pos, &s->own, &s->own_pos };
	size_t i;

	for (i = 0; s->device.ops != NULL && i < sizeof areas / sizeof *areas; i++)
		area_release(&s->device, areas[i]);
	if (s->device.ops != NULL)
		readback_release(&s->readback, &s->device);
	free(s->known_q_pos);
	s->known_q_pos = NULL;
	s->n_known = 0;
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
		return engine_fail(e, ENGINE_EOPTION, "--window %u: layer %u holds only %u "
		    "observation queries: without --window all of them are used", s->options.window, layer, stored);
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
			return engine_fail(e, ENGINE_ERUN, "%s: layer %u has run %llu tokens for %u "
			    "positions, after a token selection or compact positions: how many "
			    "queries could see a row, which method %s divides by, is not known",
			    name, l, (unsigned long long)ran, head->next_position,
			    s->method->name);
	return ENGINE_OK;
}

/* ---- rows on the device ---- */

/* How many rows stand before --since; positions are ascending. */
static uint32_t
rows_before_since(const struct scorer *s, const uint32_t *pos, uint32_t n)
{
	uint32_t first = 0;

	while (first < n && pos[first] < s->since)
		first++;
	return first;
}

/* lr->k, pos <- those of rows on the host */
static int
upload_rows(struct scorer *s, const struct score_input *in, struct layer_rows *lr,
    struct engine_error *e)
{
	const size_t size = kv_rows_total(in->rows) * in->width * kv_dtype_size(in->dtype);

	if (area_share(&s->device, &s->keys, &lr->k, in->keys, size, e) != ENGINE_OK)
		return e->code;
	lr->pos = area_positions(&s->device, &s->pos, in->rows, e);
	return lr->pos != NULL ? ENGINE_OK : e->code;
}

/* *lr <- the rows on the device but those before --since, which nothing sees; start, len:
 * [MAX_HEADS], they become its lists. in.stride <- the longest head. */
static int
later_rows(struct scorer *s, struct score_job *job, struct layer_rows *lr, uint64_t *start,
    uint32_t *len, struct engine_error *e)
{
	const struct layer_rows *on_device = job->device_rows;
	struct score_input *in = &job->in;
	const struct kv_rows *rows = in->rows;
	uint64_t total = 0;
	uint32_t g, first;

	*lr = (struct layer_rows){ .heads = rows->heads, .width = in->width, .dtype = in->dtype };
	if (on_device != NULL)
		*lr = *on_device;
	for (g = 0; g < rows->heads; total += rows->count[g++]) {
		first = rows_before_since(s, rows->pos[g], rows->count[g]);
		start[g] = (on_device != NULL ? on_device->start[g] : total) + first;
		len[g] = rows->count[g] - first;
		in->stride = len[g] > in->stride ? len[g] : in->stride;
	}
	lr->start = start;
	lr->len = len;
	return on_device != NULL ? ENGINE_OK : upload_rows(s, in, lr, e);
}

/* ---- the attention that the observation queries pay ---- */

/* Keys of tokens that are not stored, on the device: every KV head has all of them. */
static int
upload_own(struct scorer *s, const struct score_job *job, struct layer_rows *own, uint64_t *start,
    uint32_t *len, struct engine_error *e)
{
	const struct score_input *in = &job->in;
	const size_t G = in->rows->heads, n = job->n_own;
	const size_t size = G * n * in->width * kv_dtype_size(in->dtype);
	uint32_t *pos = engine_alloc(G * n, sizeof *pos, e), g;

	if (pos == NULL)
		return e->code;
	*own = (struct layer_rows){ .start = start, .len = len, .heads = in->rows->heads,
	    .width = in->width, .dtype = in->dtype };
	for (g = 0; g < G; g++) {
		start[g] = g * n;
		len[g] = job->n_own;
		memcpy(pos + start[g], job->own_pos, n * sizeof *pos);
	}
	if ((own->k = area_upload(&s->device, &s->own, job->own_keys, size, e)) != NULL)
		own->pos = area_upload(&s->device, &s->own_pos, pos, G * n * sizeof *pos, e);
	free(pos);
	return own->pos != NULL ? ENGINE_OK : e->code;
}

/* Those that lie behind the rows. */
static void
own_behind(const struct score_job *job, const struct layer_rows *rows, struct layer_rows *own,
    uint64_t *start, uint32_t *len)
{
	uint32_t g;

	*own = *rows;
	own->start = start;
	own->len = len;
	for (g = 0; g < rows->heads; g++) {
		start[g] = rows->start[g] + rows->len[g];
		len[g] = job->n_own;
	}
}

/* The positions of the window on the device. They are those of all layers: the first asks for it.
 * */
static const uint32_t *
upload_positions(struct scorer *s, const struct score_input *in, struct engine_error *e)
{
	const size_t size = in->window * sizeof *s->known_q_pos;

	if (s->n_known == in->window && memcmp(s->known_q_pos, in->window_pos, size) == 0)
		return s->q_pos.at;
	free(s->known_q_pos);
	s->n_known = 0;
	if ((s->known_q_pos = engine_alloc(in->window, sizeof *s->known_q_pos, e)) == NULL)
		return NULL;
	if (area_upload(&s->device, &s->q_pos, in->window_pos, size, e) == NULL)
		return NULL;
	memcpy(s->known_q_pos, in->window_pos, size);
	s->n_known = in->window;
	return s->q_pos.at;
}

/* mass (device) <- what the queries give to each of these rows, in.stride apart. */
static int
window_mass(struct scorer *s, const struct score_job *job, const struct layer_rows *rows,
    float *mass, struct engine_error *e)
{
	const struct score_input *in = &job->in;
	const size_t n = (size_t)in->window * in->query_heads * in->width;
	struct query query = { .q = job->device_queries, .N = in->window, .H = in->query_heads,
		.window = in->sees, .softcap = job->softcap };
	uint64_t start[MAX_HEADS];
	uint32_t len[MAX_HEADS];
	struct layer_rows own;
	int rc;

	if (job->n_own > 0 && job->own_keys == NULL)
		own_behind(job, rows, &own, start, len);
	else if (job->n_own > 0 && (rc = upload_own(s, job, &own, start, len, e)) != ENGINE_OK)
		return rc;
	if (job->queries != NULL)
		query.q = area_upload(&s->device, &s->q, job->queries, n * sizeof *query.q, e);
	if (query.q == NULL || (query.pos = upload_positions(s, in, e)) == NULL)
		return e->code;
	s->device.ops->window_mass(s->device.dev, mass, in->stride, &query, rows,
	    job->n_own > 0 ? &own : NULL, s->options.over_queries);
	return ENGINE_OK;
}

/* ---- scores that the device makes ---- */

/* score[g][s] (device, G lists at g*stride) <- those of the rows */
typedef void score_op(struct dev *, float *score, size_t stride, const struct layer_rows *);

/* The device version of a method (methods/list.h). NULL: it has none, or this backend has not. */
static score_op *
score_op_of(const struct method *method, const struct ops *ops)
{
	score_op *const op[] = {
#define OP(name) ops->name
#define NO_OP NULL
#define METHOD(name, needs, uses, op, ...) op,
#include "methods/list.h"
#undef METHOD
#undef NO_OP
#undef OP
	};
	const size_t n = sizeof op / sizeof *op;
	size_t i;

	for (i = 0; i < n && method != &methods[i]; i++)
		;
	return i < n ? op[i] : NULL;
}

/* Has the device make what the window pays to the rows, or, by the op, their scores. */
static int
begin_rows(struct scorer *s, struct score_job *job, score_op *op, struct engine_error *e)
{
	struct score_input *in = &job->in;
	const uint32_t lists = op != NULL ? in->rows->heads : in->query_heads;
	uint64_t start[MAX_HEADS];
	uint32_t len[MAX_HEADS];
	struct layer_rows rows;
	float *made;
	int rc, slot;

	if ((rc = later_rows(s, job, &rows, start, len, e)) != ENGINE_OK)
		return rc;
	if ((slot = readback_slot(&s->readback, &s->device, lists * in->stride, &made, e)) < 0)
		return slot;
	if (op != NULL)
		op(s->device.dev, made, in->stride, &rows);
	else if ((rc = window_mass(s, job, &rows, made, e)) != ENGINE_OK)
		return rc;
	job->made_slot = slot;
	return readback_begin(&s->readback, &s->device, slot, made, lists * in->stride, e);
}

static int
begin_mass(struct scorer *s, struct score_job *job, struct engine_error *e)
{
	float *none;
	int slot = readback_slot(&s->readback, &s->device, 0, &none, e);

	if (slot < 0)
		return slot;
	job->mass_slot = slot;
	return readback_begin(&s->readback, &s->device, slot, job->device_mass,
	    job->in.query_heads * job->mass_stride, e);
}

int
score_begin(struct scorer *s, struct score_job *job, struct engine_error *e)
{
	score_op *op = job->device_rows != NULL ? score_op_of(s->method, s->device.ops) : NULL;
	int rc = ENGINE_OK;

	job->by_op = op != NULL;
	job->made_slot = job->mass_slot = -1;
	if (op != NULL || (s->method->needs & NEED_WINDOW))
		rc = begin_rows(s, job, op, e);
	if (rc == ENGINE_OK && job->device_rows != NULL && (s->method->needs & NEED_MASS))
		rc = begin_mass(s, job, e);
	return rc;
}

/* ---- the rows from --since on ---- */

/* The rows of a layer but the first ones of each KV head, and what belongs to them. */
struct later {
	struct kv_rows rows;
	uint32_t *count;        /* [G] */
	const uint32_t **pos;   /* [G] */
	uint64_t *key_start;    /* [G]; the keys stay where they are */
	float *mass, *probe_mass, *score;
};

/* Copies the later rows of lists that lie one after another, R for each KV head. */
static float *
take_later(const float *from, uint32_t R, const struct kv_rows *rows, const uint32_t *first,
    struct engine_error *e)
{
	float *to = engine_alloc(kv_rows_total(rows) * R, sizeof *to, e), *end = to;
	uint32_t g, r, n;

	for (g = 0; to != NULL && g < rows->heads; g++)
		for (r = 0; r < R; r++, from += rows->count[g]) {
			n = rows->count[g] - first[g];
			if (n > 0)
				memcpy(end, from + first[g], n * sizeof *end);
			end += n;
		}
	return to;
}

/* *in <- the same for later rows alone. To be freed by later_free(), also when it failed. */
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
	    (later->key_start = engine_alloc(rows->heads, sizeof *in->key_start, e)) == NULL)
		return e->code;
	for (g = 0; g < rows->heads; packed += rows->count[g++]) {
		later->count[g] = rows->count[g] - first[g];
		later->pos[g] = rows->pos[g] + first[g];
		later->key_start[g] = first[g] +
		    (in->key_start != NULL ? in->key_start[g] : packed);
	}
	later->rows = (struct kv_rows){ rows->heads, later->count, later->pos };
	later->score = engine_alloc(kv_rows_total(&later->rows), sizeof *later->score, e);
	if (later->score == NULL)
		return e->code;
	if (in->mass != NULL &&
	    (in->mass = later->mass = take_later(in->mass, R, rows, first, e)) == NULL)
		return e->code;
	if (in->probe_mass != NULL && (in->probe_mass = later->probe_mass =
	    take_later(in->probe_mass, R, rows, first, e)) == NULL)
		return e->code;
	in->key_start = later->key_start;
	in->rows = &later->rows;
	return ENGINE_OK;
}

static void
later_free(struct later *later)
{
	free(later->count);
	free(later->pos);
	free(later->key_start);
	free(later->mass);
	free(later->probe_mass);
	free(later->score);
}

/* score <- those of the later rows, `stride` apart or (0) packed, and +inf for the first ones. */
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

/* The lists of mass, `stride` apart, one after the other; to be freed. */
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

/* The keys that are on the device, packed; to be freed. */
static char *
read_keys(const struct device *d, const struct layer_rows *rows, struct engine_error *e)
{
	const size_t row = rows->width * kv_dtype_size(rows->dtype);
	uint64_t total = 0;
	char *keys, *at;
	uint32_t g;

	for (g = 0; g < rows->heads; g++)
		total += rows->len[g];
	if ((at = keys = engine_alloc(total, row, e)) == NULL)
		return NULL;
	for (g = 0; g < rows->heads; at += rows->len[g++] * row)
		d->ops->get(d->dev, at, (const char *)rows->k + rows->start[g] * row,
		    rows->len[g] * row);
	if (device_synced(d, e) != ENGINE_OK) {
		free(keys);
		return NULL;
	}
	return keys;
}

/* What of a job is read back for the host's method; to be freed */
struct host_input {
	float *mass;
	char *keys;
};

/* The keys as they lie on the device, where it shares memory with the host, else copies. */
static int
keys_of_device(struct scorer *s, struct score_job *job, struct host_input *host,
    struct engine_error *e)
{
	struct score_input *in = &job->in;

	if (device_shares_memory(&s->device)) {
		in->keys = job->device_rows->k;
		in->key_start = job->device_rows->start;
		return device_synced(&s->device, e);
	}
	in->keys = host->keys = read_keys(&s->device, job->device_rows, e);
	return in->keys != NULL ? ENGINE_OK : e->code;
}

static int
read_input(struct scorer *s, struct score_job *job, struct host_input *host, struct engine_error *e)
{
	struct score_input *in = &job->in;
	const float *mass;
	int rc;

	if (job->made_slot >= 0 && (rc = readback_end(&s->readback, &s->device, job->made_slot,
	    &in->window_mass, e)) != ENGINE_OK)
		return rc;
	if (job->mass_slot >= 0) {
		rc = readback_end(&s->readback, &s->device, job->mass_slot, &mass, e);
		if (rc != ENGINE_OK)
			return rc;
		in->mass = host->mass = pack_mass(in, mass, job->mass_stride, e);
		if (in->mass == NULL)
			return e->code;
	}
	if (!(s->method->needs & NEED_KEYS))
		in->keys = NULL;                /* they were for the window only */
	else if (job->device_rows != NULL)
		return keys_of_device(s, job, host, e);
	return ENGINE_OK;
}

/* The host's method, of all rows or of those from --since on */
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

static int
refuse_nan(const float *score, const struct kv_rows *rows, uint32_t layer, struct engine_error *e)
{
	uint32_t g, s;

	for (g = 0; g < rows->heads; score += rows->count[g++])
		for (s = 0; s < rows->count[g]; s++)
			if (isnan(score[s]))
				return engine_fail(e, ENGINE_ERUN, "layer %u head %u row %u: the "
				    "score is not a number: are keys or queries?", layer, g, s);
	return ENGINE_OK;
}

int
score_finish(struct scorer *s, struct score_job *job, float *score, struct engine_error *e)
{
	const struct kv_rows *rows = job->in.rows;
	struct score_job asked = *job;
	struct host_input host = { .keys = NULL };
	uint32_t first[MAX_HEADS], g;
	const float *made;
	int rc;

	for (g = 0; g < rows->heads; g++)
		first[g] = rows_before_since(s, rows->pos[g], rows->count[g]);
	if (job->by_op) {
		rc = readback_end(&s->readback, &s->device, job->made_slot, &made, e);
		if (rc == ENGINE_OK)
			spread_later(score, rows, first, made, job->in.stride);
	} else {
		if ((rc = read_input(s, &asked, &host, e)) == ENGINE_OK)
			rc = score_on_host(s, &asked.in, first, score, e);
		free(host.mass);
		free(host.keys);
	}
	return rc == ENGINE_OK ? refuse_nan(score, rows, job->in.layer, e) : rc;
}

int
score_layer(struct scorer *s, struct score_job *job, float *score, struct engine_error *e)
{
	int rc = score_begin(s, job, e);

	return rc == ENGINE_OK ? score_finish(s, job, score, e) : rc;
}
