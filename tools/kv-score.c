/* kv-score - judge the rows of a snapshot: write it again with a score for each row */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libkvfile/bytes.h"
#include "methods/methods.h"
#include "tools/device.h"
#include "tools/tool.h"

#define NOT_GIVEN UINT32_MAX
#define NO_SEED UINT64_MAX
#define MAX_HEADS 4096          /* kv-snapshot(5), 4.1 */

static const char *method_name, *pool_name, *reduce_name, *order_name;
static uint32_t kernel = NOT_GIVEN, sink = NOT_GIVEN, window = NOT_GIVEN;
static uint64_t seed = NO_SEED;
static int list, keep_last;

static const struct opt opts[] = {
	{ 0, "method", OPT_STRING, &method_name, 0, "NAME",
	    "how to judge; --list names the methods" },
	{ 0, "list", OPT_FLAG, &list, 1, NULL, "list the methods and the options they use" },
	{ 0, "kernel", OPT_COUNT, &kernel, 0, "K", "pool over K rows, odd; 1 = do not pool" },
	{ 0, "pool", OPT_STRING, &pool_name, 0, "HOW", "pooling along the rows: avg or max" },
	{ 0, "reduce", OPT_STRING, &reduce_name, 0, "HOW",
	    "over the query heads of a KV head: mean, max or sum" },
	{ 0, "order", OPT_STRING, &order_name, 0, "WHICH", "pool-first or reduce-first" },
	{ 0, "sink", OPT_COUNT, &sink, 0, "N", "the first N positions are always kept" },
	{ 's', "seed", OPT_SEED, &seed, 0, "N", "another choice by chance" },
	{ 0, "keep-last", OPT_FLAG, &keep_last, 1, NULL, "the last token is always kept" },
	{ 0, "window", OPT_COUNT, &window, 0, "W",
	    "use only the last W of the stored observation queries" },
	{ .name = NULL }
};

static const struct tool tool = {
	.name = "kv-score",
	.about = "judge the rows of a snapshot: write it again with a score for each row",
	.synopsis = "--method NAME | --list [-qvz] [-j N] [-o FILE] [-s N] [--device DEVICE]\n"
	    "[--keep-last] [--kernel K] [--order WHICH] [--pool HOW] [--progress WHEN]\n"
	    "[--reduce HOW] [--sink N] [--window W] [snapshot]",
	.opts = opts,
	.takes = TAKES_OUTPUT | TAKES_THREADS | TAKES_PROGRESS,
	.max_operands = 1
};

static const char *const pool_names[] = { "avg", "max", NULL };
static const char *const reduce_names[] = { "mean", "max", "sum", NULL };
static const char *const order_names[] = { "pool-first", "reduce-first", NULL };

static const struct method *method;
static struct score_options options;

/* ---- options ---- */

static void
print_list(void)
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

static void
choose_method(void)
{
	if (method_name == NULL)
		die(EXIT_USAGE, "--method is needed; --list names them");
	if ((method = method_named(method_name)) == NULL)
		die(EXIT_USAGE, "--method: there is no '%s'; --list names them", method_name);
	refuse_unused("kernel", kernel != NOT_GIVEN);
	refuse_unused("pool", pool_name != NULL);
	refuse_unused("reduce", reduce_name != NULL);
	refuse_unused("order", order_name != NULL);
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
	if (sink != NOT_GIVEN)
		options.sink = sink;
	if (seed != NO_SEED)
		options.seed = seed;
	if (window != NOT_GIVEN)
		options.window = window;
	options.keep_last = keep_last;
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
	*number = strcmp(word, "kernel") == 0 ? options.kernel :
	    strcmp(word, "sink") == 0 ? options.sink :
	    strcmp(word, "keep-last") == 0 ? (uint64_t)options.keep_last :
	    strcmp(word, "window") == 0 ? queries : options.seed;
	return NULL;
}

/* Tells every option that the method uses to the label of the scores, or (label == NULL) to
 * the provenance. */
static void
tell_options(char *label, size_t size, uint32_t queries)
{
	char words[64], *word, *rest = words;
	const char *text;
	uint64_t number = 0;
	size_t n = 0;

	snprintf(words, sizeof words, "%s", method->uses);
	if (label != NULL)
		n = (size_t)snprintf(label, size, "%s", method->name);
	else
		sign_text("method", method->name);
	while ((word = strtok_r(rest, " ", &rest)) != NULL) {
		text = value_of(word, queries, &number);
		if (label == NULL && text != NULL)
			sign_text(word, text);
		else if (label == NULL)
			sign_count(word, number);
		else if (text != NULL)
			n += (size_t)snprintf(label + n, size - n, " %s=%s", word, text);
		else
			n += (size_t)snprintf(label + n, size - n, " %s=%" PRIu64, word, number);
	}
}

/* ---- the observation queries of a layer ---- */

struct queries {
	uint32_t n;             /* W; 0 = none */
	uint32_t *pos;          /* [W] */
	float *q;               /* [W][H][E] */
};

static void
forget_queries(struct queries *w)
{
	free(w->pos);
	free(w->q);
	memset(w, 0, sizeof *w);
}

/* From an oBSq section, which the reader has checked (kv-snapshot(5), 4.5). */
static void
take_queries(struct queries *w, const uint8_t *content, const struct kv_head *head, uint32_t layer)
{
	size_t E = head->model.head_width, H = head->model.query_heads;
	size_t row = E * kv_dtype_size(head->dtype);
	uint32_t stored = get32(content + 4), first, i;
	const uint8_t *q = content + round64(8 + 4 * (uint64_t)stored);
	size_t h;

	if (options.window > stored)
		die(EXIT_USAGE, "--window %u: layer %u holds only %u observation queries",
		    options.window, layer, stored);
	forget_queries(w);
	w->n = options.window != 0 ? options.window : stored;
	w->pos = must_alloc(w->n, sizeof *w->pos);
	w->q = must_alloc(w->n * H, E * sizeof *w->q);
	first = stored - w->n;
	for (i = 0; i < w->n; i++)
		w->pos[i] = get32(content + 8 + 4 * (size_t)(first + i));
	for (h = 0; h < H; h++)
		for (i = 0; i < w->n; i++)
			kv_to_f32(w->q + (i * H + h) * E, q + (h * stored + first + i) * row,
			    head->dtype, E);
}

/* ---- the attention that the rows of a layer have received ---- */

static float *received;         /* NULL = not there */

static void
forget_mass(void)
{
	free(received);
	received = NULL;
}

/* From a mASS section, which the reader has checked (kv-snapshot(5), 4.11). */
static void
take_mass(const void *content, uint64_t size)
{
	forget_mass();
	received = must_alloc(size, 1);
	if (size > 0)
		memcpy(received, content, size);
}

/* ---- the attention that the observation queries pay ---- */

/* Memory on the device that is used for one layer after another. */
struct area {
	void *at;
	size_t size;
};

static struct device device;
static struct area area_keys, area_pos, area_q, area_qpos;
static float *window_mass;
static size_t window_mass_size;

static void *
upload(struct area *a, const void *data, size_t size)
{
	if (a->size < size || a->at == NULL) {
		device.ops->free(device.dev, a->at);
		a->size = size;
		a->at = device.ops->alloc(device.dev, size != 0 ? size : 1);
		if (a->at == NULL)
			die(EXIT_RUN, "%s: no room for %zu bytes", device.ops->name, size);
	}
	device.ops->put(device.dev, a->at, data, size);
	return a->at;
}

/* The positions of all heads, one after another, as the keys lie. */
static void *
upload_positions(const struct kv_rows *rows, uint64_t total)
{
	uint32_t *pos = must_alloc(total, sizeof *pos), *p = pos, g;
	void *at;

	for (g = 0; g < rows->heads; p += rows->count[g++])
		if (rows->count[g] > 0)
			memcpy(p, rows->pos[g], rows->count[g] * sizeof *p);
	at = upload(&area_pos, pos, total * sizeof *pos);
	free(pos);
	return at;
}

/* in->window_mass <- what the window's queries give to each row, in->stride apart. */
static void
pay_attention(struct score_input *in, const struct queries *w)
{
	const struct kv_rows *rows = in->rows;
	size_t H = in->query_heads, E = in->width, bytes;
	uint64_t start[MAX_HEADS], total = 0;
	uint32_t len[MAX_HEADS], g, most = 0;
	struct layer_rows lr = { .start = start, .len = len, .heads = rows->heads,
	    .width = in->width, .dtype = in->dtype };
	const float *q;

	for (g = 0; g < rows->heads; total += rows->count[g++]) {
		start[g] = total;
		len[g] = rows->count[g];
		most = len[g] > most ? len[g] : most;
	}
	bytes = (size_t)total * E * kv_dtype_size(in->dtype);
	if (device_shares_memory(&device))
		lr.k = (void *)(uintptr_t)in->keys;     /* read only, whatever the type says */
	else
		lr.k = upload(&area_keys, in->keys, bytes);
	lr.pos = upload_positions(rows, total);
	q = upload(&area_q, w->q, w->n * H * E * sizeof *w->q);
	if (window_mass == NULL || H * most > window_mass_size) {
		free(window_mass);
		window_mass_size = H * most;
		window_mass = must_alloc(window_mass_size, sizeof *window_mass);
	}
	device.ops->window_mass(device.dev, window_mass, most, q, &lr, NULL,
	    upload(&area_qpos, w->pos, w->n * sizeof *w->pos), w->n, in->query_heads, OVER_SUM);
	device_check(&device);
	in->window_mass = window_mass;
	in->stride = most;
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

/* Standing at KEYS: judges the layer's rows and writes their scores. */
static void
score_layer(struct kv_reader *r, struct kv_writer *w, uint32_t layer, const struct queries *q)
{
	const struct kv_head *head = kv_reader_head(r);
	struct score_input in = { .layer = layer, .query_heads = head->model.query_heads,
	    .width = head->model.head_width, .rows = kv_current_rows(r), .dtype = head->dtype,
	    .window = q->n, .window_pos = q->pos, .next_position = head->next_position };
	char label[KV_SCORE_LABEL] = "";
	uint64_t total = kv_rows_total(in.rows);
	float *score = must_alloc(total, sizeof *score);
	struct kv_span content[2] = { { label, sizeof label }, { score, total * sizeof *score } };

	if ((method->needs & NEED_WINDOW) && q->n == 0)
		die(EXIT_RUN, "%s: layer %u has no observation queries, which method %s needs: "
		    "make the snapshot with kv-prefill --observe", kv_reader_name(r), layer,
		    method->name);
	if ((method->needs & NEED_MASS) && (in.mass = received) == NULL)
		die(EXIT_RUN, "%s: layer %u has no attention mass, which method %s needs: make "
		    "the snapshot with kv-prefill --mass", kv_reader_name(r), layer, method->name);
	if (method->needs & NEED_KEYS)
		in.keys = input_load(r);
	if (method->needs & NEED_WINDOW)
		pay_attention(&in, q);
	if (method_score(method, &in, &options, processors(), score) != 0)
		die(EXIT_RUN, "out of memory");
	refuse_nan(score, in.rows, layer);
	tell_options(label, sizeof label, q->n);
	output_check(w, kv_write(w, "sCOR", layer, sizeof *score, content, 2));
	free(score);
}

static void
score_snapshot(struct kv_reader *r, struct kv_writer *w)
{
	struct queries q = { 0 };
	struct kv_section sec;
	uint32_t used = 0;

	progress_start("score", kv_reader_head(r)->model.layers, "layers");
	while (input_next(r, &sec)) {
		if (strcmp(sec.type, "sCOR") == 0 || strcmp(sec.type, "pROv") == 0)
			continue;               /* replaced; inherited */
		if (strcmp(sec.type, "POSN") == 0) {
			forget_queries(&q);
			forget_mass();
		} else if (strcmp(sec.type, "oBSq") == 0 && (method->needs & NEED_WINDOW))
			take_queries(&q, input_load(r), kv_reader_head(r), sec.layer);
		else if (strcmp(sec.type, "mASS") == 0 && (method->needs & NEED_MASS))
			take_mass(input_load(r), sec.raw_size);
		else if (strcmp(sec.type, "KEYS") == 0) {
			score_layer(r, w, sec.layer, &q);
			used = q.n;
			progress(sec.layer + 1);
		}
		output_copy(r, w);              /* also what is not known: the rows stay */
	}
	progress_end();
	forget_queries(&q);
	forget_mass();
	tell_options(NULL, 0, used);
}

int
main(int argc, char **argv)
{
	int first = tool_start(&tool, argc, argv);
	struct kv_reader *r;
	struct kv_writer *w;

	if (list) {
		print_list();
		return finish();
	}
	choose_method();
	output_refuse_terminal();
	r = input_open(operand(argc, argv, first));
	if (method->needs & NEED_WINDOW)
		device = device_open();
	w = output_create(kv_reader_head(r));
	score_snapshot(r, w);
	output_commit(w, r);
	kv_close(r);
	free(window_mass);
	if (device.ops != NULL) {
		device.ops->free(device.dev, area_keys.at);
		device.ops->free(device.dev, area_pos.at);
		device.ops->free(device.dev, area_q.at);
		device.ops->free(device.dev, area_qpos.at);
		device_close(&device);
	}
	return finish();
}
