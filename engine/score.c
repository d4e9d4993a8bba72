/* score.c - the options of scoring methods, and the judgement of one layer */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/readback.h"
#include "engine/score.h"

#define NOT_GIVEN UINT32_MAX
#define NO_SEED UINT64_MAX
#define MAX_HEADS 4096          /* kv-snapshot(5), 4.1 */

static const char *over_name, *pool_name, *reduce_name, *order_name;
static uint32_t kernel = NOT_GIVEN, sink = NOT_GIVEN, window = NOT_GIVEN, since;
static uint64_t seed = NO_SEED;
static int keep_last;

const struct opt scoring_opts[] = {
	{ 0, "kernel", OPT_COUNT, &kernel, 0, "K", "pool over K rows, odd; 1 = do not pool" },
	{ 0, "pool", OPT_STRING, &pool_name, 0, "HOW", "pooling along the rows: avg or max" },
	{ 0, "reduce", OPT_STRING, &reduce_name, 0, "HOW",
	    "over the query heads of a KV head: mean, max or sum" },
	{ 0, "order", OPT_STRING, &order_name, 0, "WHICH", "pool-first or reduce-first" },
	{ 0, "over-queries", OPT_STRING, &over_name, 0, "HOW",
	    "over the observation queries: sum or max" },
	{ 0, "sink", OPT_COUNT, &sink, 0, "N", "the first N positions are always kept" },
	{ 's', "seed", OPT_SEED, &seed, 0, "N", "another choice by chance" },
	{ 0, "keep-last", OPT_FLAG, &keep_last, 1, NULL, "the last token is always kept" },
	{ 0, "window", OPT_COUNT, &window, 0, "W",
	    "use only the last W of the stored observation queries" },
	{ 0, "since", OPT_COUNT, &since, 0, "POSITION",
	    "rows before it are not judged, and stay" },
	{ .name = NULL }
};

static const char *const pool_names[] = { "avg", "max", NULL };
static const char *const reduce_names[] = { "mean", "max", "sum", NULL };
static const char *const over_names[] = { "sum", "max", NULL };
static const char *const order_names[] = { "pool-first", "reduce-first", NULL };

static const struct method *method;
static struct score_options options;

/* ---- options ---- */

void
scoring_list(void)
{
	const struct method *m;

	for (m = methods; m->name != NULL; m++)
		printf("%-8s  %s%s%s%s\n", m->name, m->about, *m->uses != '\0' ? " [" : "", m->uses,
		    *m->uses != '\0' ? "]" : "");
}

static int
uses(const char *word)
{
	size_t n = strlen(word);
	const char *at = method->uses;

	while ((at = strstr(at, word)) != NULL) {
		if ((at == method->uses || at[-1] == ' ') && (at[n] == ' ' || at[n] == '\0'))
			return 1;
		at += n;
	}
	return 0;
}

/* An option that the method does not use is a mistake, and not to be ignored. */
static void
refuse_unused(const char *word, int given)
{
	if (given && !uses(word))
		die(EXIT_USAGE, "--%s: method %s does not use it", word, method->name);
}

static unsigned
one_of(const char *option, const char *name, const char *const *names, unsigned otherwise)
{
	unsigned i;

	if (name == NULL)
		return otherwise;
	for (i = 0; names[i] != NULL; i++)
		if (strcmp(name, names[i]) == 0)
			return i;
	die(EXIT_USAGE, "--%s: '%s' is not one of its values, see --help", option, name);
}

const struct method *
scoring_check(const char *name)
{
	if (name == NULL)
		die(EXIT_USAGE, "--method is needed; --list names them");
	if ((method = method_named(name)) == NULL)
		die(EXIT_USAGE, "--method: there is no '%s'; --list names them", name);
	refuse_unused("kernel", kernel != NOT_GIVEN);
	refuse_unused("pool", pool_name != NULL);
	refuse_unused("reduce", reduce_name != NULL);
	refuse_unused("order", order_name != NULL);
	refuse_unused("over-queries", over_name != NULL);
	refuse_unused("sink", sink != NOT_GIVEN);
	refuse_unused("seed", seed != NO_SEED);
	refuse_unused("window", window != NOT_GIVEN);
	refuse_unused("keep-last", keep_last);
	options = method->defaults;
	if (kernel != NOT_GIVEN)
		options.kernel = kernel;
	if (options.kernel % 2 == 0)
		die(EXIT_USAGE, "--kernel: %u is not odd", options.kernel);
	if (window == 0)
		die(EXIT_USAGE, "--window: a window without queries sees nothing");
	options.pool = one_of("pool", pool_name, pool_names, options.pool);
	options.reduce = one_of("reduce", reduce_name, reduce_names, options.reduce);
	options.order = one_of("order", order_name, order_names, options.order);
	options.over_queries = one_of("over-queries", over_name, over_names, options.over_queries);
	if (sink != NOT_GIVEN)
		options.sink = sink;
	if (seed != NO_SEED)
		options.seed = seed;
	if (window != NOT_GIVEN)
		options.window = window;
	options.keep_last = keep_last;
	return method;
}

void
scoring_since(uint32_t position)
{
	since = position;
}

uint32_t
scoring_queries(uint32_t otherwise)
{
	if (!(method->needs & NEED_WINDOW))
		return 0;
	if (!uses("window"))
		return 1;
	return options.window != 0 ? options.window : otherwise;
}

uint32_t
scoring_window(uint32_t stored, uint32_t layer)
{
	if (options.window > stored)
		die(EXIT_USAGE, "--window %u: layer %u holds only %u observation queries",
		    options.window, layer, stored);
	return options.window != 0 ? options.window : stored;
}

/* The value of an option that the method uses: text, or NULL and a number. */
static const char *
value_of(const char *word, uint32_t queries, uint64_t *number)
{
	if (strcmp(word, "pool") == 0)
		return pool_names[options.pool];
	if (strcmp(word, "reduce") == 0)
		return reduce_names[options.reduce];
	if (strcmp(word, "order") == 0)
		return order_names[options.order];
	if (strcmp(word, "over-queries") == 0)
		return over_names[options.over_queries];
	*number = strcmp(word, "kernel") == 0 ? options.kernel :
	    strcmp(word, "sink") == 0 ? options.sink :
	    strcmp(word, "keep-last") == 0 ? (uint64_t)options.keep_last :
	    strcmp(word, "window") == 0 ? queries : options.seed;
	return NULL;
}

void
scoring_label(char *label, size_t size, uint32_t queries)
{
	char words[64], *word, *rest = words;
	const char *text;
	uint64_t number = 0;
	size_t n;

	snprintf(words, sizeof words, "%s", method->uses);
	n = (size_t)snprintf(label, size, "%s", method->name);
	while ((word = strtok_r(rest, " ", &rest)) != NULL)
		if ((text = value_of(word, queries, &number)) != NULL)
			n += (size_t)snprintf(label + n, size - n, " %s=%s", word, text);
		else
			n += (size_t)snprintf(label + n, size - n, " %s=%" PRIu64, word, number);
	if (since != 0)
		snprintf(label + n, size - n, " since=%u", since);
}

void
scoring_sign(uint32_t queries)
{
	char words[64], *word, *rest = words;
	const char *text;
	uint64_t number = 0;

	snprintf(words, sizeof words, "%s", method->uses);
	sign_text("method", method->name);
	while ((word = strtok_r(rest, " ", &rest)) != NULL)
		if ((text = value_of(word, queries, &number)) != NULL)
			sign_text(word, text);
		else
			sign_count(word, number);
	if (since != 0)
		sign_count("since", since);
}

/* ---- the attention that the observation queries pay ---- */

static struct area area_keys, area_pos, area_q, area_qpos, area_own, area_own_pos;
static uint32_t *known_qpos, known_window;      /* what is in area_qpos; 0 = nothing */

/* Keys of tokens that are not stored, on the device: every KV head has all of them. */
static struct layer_rows
upload_own(const struct device *d, const struct scoring_layer *layer, uint64_t *start,
    uint32_t *len)
{
	const struct score_input *in = &layer->in;
	uint32_t G = in->rows->heads, n = layer->n_own, *pos = must_alloc(G * n, sizeof *pos), g;
	size_t size = (size_t)n * in->width * kv_dtype_size(in->dtype);
	struct layer_rows own = { .start = start, .len = len, .heads = G, .width = in->width,
	    .dtype = in->dtype };

	for (g = 0; g < G; g++) {
		start[g] = (uint64_t)g * n;
		len[g] = n;
		memcpy(pos + start[g], layer->own_pos, n * sizeof *pos);
	}
	own.k = device_upload(d, &area_own, layer->own_keys, G * size);
	own.pos = device_upload(d, &area_own_pos, pos, (size_t)G * n * sizeof *pos);
	free(pos);
	return own;
}

/* The positions of the window on the device. They are those of all layers: the first asks for it. */
static const uint32_t *
upload_positions(const struct device *d, const struct score_input *in)
{
	const size_t size = in->window * sizeof *known_qpos;

	if (known_window == in->window && memcmp(known_qpos, in->window_pos, size) == 0)
		return area_qpos.at;
	free(known_qpos);
	known_qpos = must_alloc(in->window, sizeof *known_qpos);
	memcpy(known_qpos, in->window_pos, size);
	known_window = in->window;
	return device_upload(d, &area_qpos, known_qpos, size);
}

/* mass (device) <- what the queries give to each row of `there`, in.stride apart. */
static void
pay(const struct device *d, const struct scoring_layer *layer, const struct layer_rows *there,
    float *mass)
{
	const struct score_input *in = &layer->in;
	size_t H = in->query_heads, W = in->window;
	const float *q = layer->queries_there;
	uint64_t start[MAX_HEADS];
	uint32_t len[MAX_HEADS];
	struct layer_rows own;

	if (layer->n_own > 0)
		own = upload_own(d, layer, start, len);
	if (layer->queries != NULL)
		q = device_upload(d, &area_q, layer->queries, W * H * in->width * sizeof *q);
	d->ops->window_mass(d->dev, mass, in->stride, q, there, layer->n_own > 0 ? &own : NULL,
	    upload_positions(d, in), in->window, in->query_heads,
	    options.over_queries == QUERIES_MAX ? OVER_MAX : OVER_SUM);
}

/* How many rows stand before --since; positions are ascending. */
static uint32_t
rows_before_since(const uint32_t *pos, uint32_t n)
{
	uint32_t first = 0;

	while (first < n && pos[first] < since)
		first++;
	return first;
}

/* ---- what the device makes of the rows ---- */

/* The scores of methods that are ops, too */
typedef void score_op(struct dev *, float *, size_t, const struct layer_rows *);

static score_op *
score_op_of(const struct ops *ops)
{
	if (strcmp(method->name, "knorm") == 0)
		return ops->knorm;
	return strcmp(method->name, "keydiff") == 0 ? ops->keydiff : NULL;
}

/* The rows on the device but those before --since, which nothing sees; start, len: [MAX_HEADS] */
static struct layer_rows
later_there(const struct device *d, struct scoring_layer *layer, uint64_t *start, uint32_t *len)
{
	struct score_input *in = &layer->in;
	const struct kv_rows *rows = in->rows;
	struct layer_rows lr = { .heads = rows->heads, .width = in->width, .dtype = in->dtype };
	uint64_t total = 0;
	uint32_t g, first;

	if (layer->there != NULL)
		lr = *layer->there;
	for (g = 0; g < rows->heads; total += rows->count[g++]) {
		first = rows_before_since(rows->pos[g], rows->count[g]);
		start[g] = (layer->there != NULL ? layer->there->start[g] : total) + first;
		len[g] = rows->count[g] - first;
		in->stride = len[g] > in->stride ? len[g] : in->stride;
	}
	lr.start = start;
	lr.len = len;
	if (layer->there == NULL) {
		if (device_shares_memory(d))
			lr.k = (void *)(uintptr_t)in->keys;     /* read only, whatever the type says */
		else
			lr.k = device_upload(d, &area_keys, in->keys,
			    (size_t)total * in->width * kv_dtype_size(in->dtype));
		lr.pos = device_positions(d, &area_pos, rows);
	}
	return lr;
}

/* in.mass <- the lists of mass, `stride` apart, one after the other; to be freed. */
static float *
pack_mass(struct score_input *in, const float *mass, size_t stride)
{
	const uint32_t R = in->query_heads / in->rows->heads;
	float *packed = must_alloc(kv_rows_total(in->rows) * R, sizeof *packed), *at = packed;
	uint32_t h, n;

	for (h = 0; h < in->query_heads; h++, mass += stride, at += n)
		if ((n = in->rows->count[h / R]) > 0)
			memcpy(at, mass, n * sizeof *at);
	in->mass = packed;
	return packed;
}

/* ---- the rows from --since on ---- */

/* The rows of a layer but the first ones of each KV head, and what belongs to them. */
struct later {
	struct kv_rows rows;
	uint32_t *count;        /* [G] */
	const uint32_t **pos;   /* [G] */
	char *keys;             /* packed */
	float *mass, *probe_mass, *score;
};

/* Takes size bytes for each row of lists that lie one after another, R for each KV head. */
static void *
take_later(const void *from, size_t size, uint32_t R, const struct kv_rows *rows,
    const uint32_t *first)
{
	char *to = must_alloc(kv_rows_total(rows) * R, size), *end = to;
	const char *at = from;
	uint32_t g, r;
	size_t n;

	for (g = 0; g < rows->heads; g++)
		for (r = 0; r < R; r++) {
			n = (rows->count[g] - first[g]) * size;
			if (n > 0)
				memcpy(end, at + first[g] * size, n);
			end += n;
			at += rows->count[g] * size;
		}
	return to;
}

/* *in <- the same for later rows alone. Freed by later_end(). */
static void
later_start(struct later *later, struct score_input *in, const uint32_t *first)
{
	const struct kv_rows *rows = in->rows;
	uint32_t g;

	memset(later, 0, sizeof *later);
	later->count = must_alloc(rows->heads, sizeof *later->count);
	later->pos = must_alloc(rows->heads, sizeof *later->pos);
	for (g = 0; g < rows->heads; g++) {
		later->count[g] = rows->count[g] - first[g];
		later->pos[g] = rows->pos[g] + first[g];
	}
	if (in->keys != NULL && (method->needs & NEED_KEYS))
		later->keys = take_later(in->keys, in->width * kv_dtype_size(in->dtype), 1, rows,
		    first);
	if (in->mass != NULL)
		later->mass = take_later(in->mass, sizeof *in->mass, in->query_heads / rows->heads,
		    rows, first);
	if (in->probe_mass != NULL)
		later->probe_mass = take_later(in->probe_mass, sizeof *in->probe_mass, in->query_heads / rows->heads,
		    rows, first);
	later->rows = (struct kv_rows){ rows->heads, later->count, later->pos };
	later->score = must_alloc(kv_rows_total(&later->rows), sizeof *later->score);
	in->rows = &later->rows;
	in->keys = later->keys;
	in->mass = later->mass;
	in->probe_mass = later->probe_mass;
}

/* score <- those of the later rows, and +inf for the first ones. */
static void
later_spread(const struct later *later, float *score, const uint32_t *first)
{
	const float *from = later->score;
	uint32_t g, s;

	for (g = 0; g < later->rows.heads; g++) {
		for (s = 0; s < first[g]; s++)
			*score++ = INFINITY;
		for (s = 0; s < later->count[g]; s++)
			*score++ = *from++;
	}
}

static void
later_end(struct later *later)
{
	free(later->count);
	free(later->pos);
	free(later->keys);
	free(later->mass);
	free(later->probe_mass);
	free(later->score);
}

/* ---- a layer ---- */

static void
refuse_nan(const float *score, const struct kv_rows *rows, uint32_t layer)
{
	uint32_t g, s;

	for (g = 0; g < rows->heads; score += rows->count[g++])
		for (s = 0; s < rows->count[g]; s++)
			if (isnan(score[s]))
				die(EXIT_RUN, "layer %u head %u row %u: the score is not a number: "
				    "are keys or queries?", layer, g, s);
}

/* Has the device make what the window pays to the rows, or, by the op, their scores. */
static void
begin_rows(const struct device *d, struct scoring_layer *layer, score_op *op)
{
	struct score_input *in = &layer->in;
	const uint32_t lists = op != NULL ? in->rows->heads : in->query_heads;
	uint64_t start[MAX_HEADS];
	uint32_t len[MAX_HEADS];
	struct layer_rows lr = later_there(d, layer, start, len);
	float *made;

	layer->place = fetching_place(d, lists * in->stride, &made);
	if (op != NULL)
		op(d->dev, made, in->stride, &lr);
	else
		pay(d, layer, &lr, made);
	fetching_begin(d, layer->place, made, lists * in->stride);
}

void
scoring_begin(const struct device *d, struct scoring_layer *layer)
{
	score_op *op = layer->there != NULL ? score_op_of(d->ops) : NULL;
	float *none;

	layer->place = -1;
	if (op != NULL || (method->needs & NEED_WINDOW))
		begin_rows(d, layer, op);
	else if (layer->there != NULL && (method->needs & NEED_MASS)) {
		layer->in.stride = layer->mass_stride;
		layer->place = fetching_place(d, 0, &none);
		fetching_begin(d, layer->place, layer->mass_there,
		    layer->in.query_heads * layer->mass_stride);
	}
}

/* What the device has made goes where the method looks for it, or is already the score: then
 * returns 1. */
static int
take_made(const struct device *d, struct scoring_layer *layer, float *score, const uint32_t *first,
    float **packed)
{
	struct score_input *in = &layer->in;
	const float *made = fetching_end(d, layer->place);
	uint32_t g, s;

	if (method->needs & NEED_WINDOW)
		in->window_mass = made;
	else if (method->needs & NEED_MASS)
		*packed = pack_mass(in, made, in->stride);
	else {
		for (g = 0; g < in->rows->heads; g++, made += in->stride) {
			for (s = 0; s < first[g]; s++)
				*score++ = INFINITY;
			for (; s < in->rows->count[g]; s++)
				*score++ = made[s - first[g]];
		}
		return 1;
	}
	return 0;
}

void
scoring_finish(const struct device *d, struct scoring_layer *layer, float *score)
{
	const struct kv_rows *rows = layer->in.rows;
	uint32_t first[MAX_HEADS], g;
	struct scoring_layer asked = *layer;
	float *packed = NULL;
	struct later later;
	int done = 0;

	for (g = 0; g < rows->heads; g++)
		first[g] = rows_before_since(rows->pos[g], rows->count[g]);
	if (layer->place >= 0)
		done = take_made(d, &asked, score, first, &packed);
	if (since > 0 && !done)
		later_start(&later, &asked.in, first);
	if (!done && method_score(method, &asked.in, &options, processors(),
	    since > 0 ? later.score : score) != 0)
		die(EXIT_RUN, "out of memory");
	if (since > 0 && !done) {
		later_spread(&later, score, first);
		later_end(&later);
	}
	free(packed);
	refuse_nan(score, rows, layer->in.layer);
}

void
scoring_judge(const struct device *d, struct scoring_layer *layer, float *score)
{
	scoring_begin(d, layer);
	scoring_finish(d, layer, score);
}

void
scoring_end(const struct device *d)
{
	struct area *areas[] = { &area_keys, &area_pos, &area_q, &area_qpos, &area_own,
	    &area_own_pos };
	size_t i;

	for (i = 0; d != NULL && i < sizeof areas / sizeof *areas; i++)
		device_release(d, areas[i]);
	if (d != NULL)
		fetching_release(d);
	free(known_qpos);
	known_qpos = NULL;
	known_window = 0;
}
