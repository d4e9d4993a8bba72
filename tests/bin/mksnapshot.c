/* mksnapshot - make a snapshot for a test: random rows of any shape, or scores and keys from a
 * text file
 *
 * The same options give the same bytes. Elements are +-[1/8, 2), uniform in their bits. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libkvfile/bytes.h"
#include "cli/snapshot_io.h"
#include "cli/tool.h"

static uint32_t layers = 2, query_heads = 4, kv_heads = 2, width = 8, vocabulary = 1000;
static uint32_t window, own, tokens;
static uint64_t seed;
static const char *rows_text = "16", *dtype_name = "f32", *scores_from, *keys_from, *extra, *preset,
    *value_norms, *gate, *noncausal;
static int ragged, logits, mass, paid, query_stats;
static uint32_t sees, softcap;

static const struct opt opts[] = {
	{ 'L', "layers", OPT_COUNT, &layers, 0, "L", "layers", OPT_HOW },
	{ 'H', "query-heads", OPT_COUNT, &query_heads, 0, "H", "query heads", OPT_HOW },
	{ 'G', "kv-heads", OPT_COUNT, &kv_heads, 0, "G", "KV heads", OPT_HOW },
	{ 'E', "width", OPT_COUNT, &width, 0, "E", "head width", OPT_HOW },
	{ 'N', "rows", OPT_STRING, &rows_text, 0, "N[,N...]",
	    "rows of each KV head, or of KV head 0, 1, ...", OPT_READS },
	{ 'T', "tokens", OPT_COUNT, &tokens, 0, "T",
	    "tokens seen (as many as the longest head has rows)", OPT_HOW },
	{ 'd', "dtype", OPT_STRING, &dtype_name, 0, "TYPE", "f32, f16 or bf16", OPT_HOW },
	{ 's', "seed", OPT_SEED, &seed, 0, "N", "other numbers", OPT_HOW },
	{ 'w', "observe", OPT_COUNT, &window, 0, "W",
	    "observation queries of the last W positions", OPT_HOW },
	{ 0, "own", OPT_COUNT, &own, 0, "K",
	    "and of K tokens after the last one, with their own keys", OPT_HOW },
	{ 0, "query-stats", OPT_FLAG, &query_stats, 1, NULL,
	    "statistics of queries, by chance, from position 4 on", OPT_HOW },
	{ 0, "mass", OPT_FLAG, &mass, 1, NULL, "attention received, by chance", OPT_HOW },
	{ 0, "paid", OPT_FLAG, &paid, 1, NULL, "attention paid, by chance", OPT_HOW },
	{ 0, "value-norms", OPT_STRING, &value_norms, 0, "NORM",
	    "l1 or l2: norms of value outputs, by chance", OPT_HOW },
	{ 0, "gate-scores", OPT_STRING, &gate, 0, "GATE", "gate scores of that gate, by chance",
	    OPT_HOW },
	{ 0, "noncausal", OPT_STRING, &noncausal, 0, "LABEL",
	    "non-causal attention with that label, by chance", OPT_HOW },
	{ 0, "scores", OPT_STRING, &scores_from, 0, "FROM",
	    "\"random\", or a file of numbers for each layer", OPT_HOW },
	{ 0, "keys", OPT_STRING, &keys_from, 0, "FILE",
	    "keys from a file of numbers, for each layer", OPT_HOW },
	{ 0, "ragged", OPT_FLAG, &ragged, 1, NULL,
	    "heads lose up to three quarters of their rows by chance", OPT_HOW },
	{ 0, "logits", OPT_FLAG, &logits, 1, NULL, "logits, too", OPT_HOW },
	{ 0, "sees", OPT_COUNT, &sees, 0, "N",
	    "a sliding window of N in all layers but the first", OPT_HOW },
	{ 0, "softcap", OPT_COUNT, &softcap, 0, "C",
	    "logits of attention are bounded by C", OPT_HOW },
	{ 0, "extra", OPT_STRING, &extra, 0, "TYPE",
	    "a section of this type before the layers, and in each after POSN", OPT_HOW },
	{ 0, "preset", OPT_STRING, &preset, 0, "NAME", "llama-3.2-1b: its shape, bf16", OPT_HOW },
	{ .name = NULL }
};

static const struct tool tool = {
	.name = "mksnapshot",
	.about = "make a snapshot for a test",
	.synopsis = "[option ...]",
	.opts = opts,
	.takes = TAKES_OUTPUT
};

/* ---- numbers ---- */

static uint64_t state;

static uint64_t
next_random(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	return state ^= state << 17;
}

/* Other sections do not change what a section gets. */
static void
start_random(uint32_t layer, const char *type)
{
	state = (seed + 1) * 0x9e3779b97f4a7c15 ^ ((uint64_t)layer + 1) * 0xbf58476d1ce4e5b9 ^
	    get32((const uint8_t *)type) * 0x94d049bb133111eb;
	while (next_random() % 16 != 0)
		;
}

/* Sign, the lowest two bits of the exponent and the mantissa by chance; exponents -3 .. 0. */
static void
fill(void *to, size_t size, enum kv_dtype dtype)
{
	uint64_t mask = dtype == KV_F32 ? 0x81ffffff81ffffff :
	    dtype == KV_F16 ? 0x8fff8fff8fff8fff : 0x81ff81ff81ff81ff;
	uint64_t base = dtype == KV_F32 ? 0x3e0000003e000000 :
	    dtype == KV_F16 ? 0x3000300030003000 : 0x3e003e003e003e00;
	char *p = to;
	uint64_t v;

	for (; size > 0; size -= size < 8 ? size : 8, p += 8) {
		v = (next_random() & mask) | base;
		memcpy(p, &v, size < 8 ? size : 8);
	}
}

/* n numbers of a text file, again from the start for each layer; "inf" is a number. */
static void
read_numbers(const char *path, float *to, uint64_t n)
{
	FILE *f = fopen(path, "r");
	uint64_t i;

	if (f == NULL)
		die(EXIT_RUN, "%s:", path);
	for (i = 0; i < n; i++)
		if (fscanf(f, "%f", &to[i]) != 1)
			die(EXIT_USAGE, "%s: %" PRIu64 " numbers are too few, must be %" PRIu64,
			    path, i, n);
	fclose(f);
}

/* ---- shapes ---- */

static void
take_preset(void)
{
	if (strcmp(preset, "llama-3.2-1b") != 0)
		die(EXIT_USAGE, "--preset: there is no '%s'", preset);
	layers = 16;
	query_heads = 32;
	kv_heads = 8;
	width = 64;
	vocabulary = 128256;
	dtype_name = "bf16";
}

static void
make_head(struct kv_head *head)
{
	struct kv_model *m = &head->model;

	memset(head, 0, sizeof *head);
	strcpy(m->architecture, "llama");
	m->window = sees;
	m->whole[0] = sees != 0;
	m->attention_softcap = softcap;
	m->layers = layers;
	m->query_heads = query_heads;
	m->kv_heads = kv_heads;
	m->head_width = width;
	m->hidden = query_heads * width;
	m->ffn = 4 * m->hidden;
	m->vocabulary = vocabulary;
	m->norm_eps = 1e-5;
	m->tied_embeddings = 1;
	m->rope_theta = 500000;
	if ((head->dtype = kv_dtype_named(dtype_name)) == 0)
		die(EXIT_USAGE, "--dtype: there is no '%s'", dtype_name);
	m->weights_dtype = head->dtype;
	strcpy(m->weights, "00000000000000000000000000000000");
	strcpy(m->tokenizer, "11111111111111111111111111111111");
	head->next_position = tokens;
}

/* asked[G] <- what --rows says; the last number holds for the heads after it. */
static void
parse_rows(uint32_t *asked)
{
	const char *p = rows_text;
	uint32_t g, most = 0;
	char *end;

	for (g = 0; g < kv_heads; g++) {
		if (*p != '\0') {
			asked[g] = (uint32_t)strtoul(p, &end, 10);
			p = *end == ',' ? end + 1 : end;
		} else
			asked[g] = asked[g - 1];
		most = asked[g] > most ? asked[g] : most;
	}
	if (tokens == 0)
		tokens = most;
	if (tokens == 0 || tokens < most)
		die(EXIT_USAGE, "--rows: %" PRIu32 " rows of %" PRIu32 " tokens", most, tokens);
}

/* n of the positions below tokens by chance, ascending; always the last `window`. */
static void
choose_positions(uint32_t *pos, uint32_t n)
{
	uint32_t p, left, old = tokens - (window < tokens ? window : tokens);
	uint32_t need = n > tokens - old ? n - (tokens - old) : 0;

	for (p = 0, left = old; p < old && need > 0; p++, left--)
		if (next_random() % left < need) {
			*pos++ = p;
			need--;
			n--;
		}
	for (p = tokens - n; p < tokens; p++)
		*pos++ = p;
}

/* ---- sections ---- */

static struct kv_head head;
static void *tensor;            /* room for the keys of a layer */
static size_t tensor_size;

static void
write_one(struct kv_writer *w, const char *type, uint32_t layer, unsigned element,
    const void *data, size_t size)
{
	struct kv_span span = { data, size };

	output_check(w, kv_write(w, type, layer, element, &span, 1));
}

static void
write_extra(struct kv_writer *w, uint32_t layer)
{
	char text[64];

	if (extra == NULL)
		return;
	snprintf(text, sizeof text, "extra of layer %d", (int)layer);
	write_one(w, extra, layer, 1, text, strlen(text));
}

static void
write_queries(struct kv_writer *w, uint32_t layer)
{
	size_t start = round64(8 + 4 * ((size_t)window + own));
	size_t vectors = (size_t)query_heads * (window + own) + (size_t)kv_heads * own;
	size_t size = start + vectors * width * kv_dtype_size(head.dtype);
	uint8_t *p;
	uint32_t i;

	if (window + own == 0)
		return;
	p = must_alloc(size, 1);
	put32(p, own > 0 ? 2 : 1);
	put32(p + 4, window + own);
	for (i = 0; i < window + own; i++)
		put32(p + 8 + 4 * (size_t)i, tokens - window + i);
	start_random(layer, "oBSq");
	fill(p + start, size - start, head.dtype);
	write_one(w, "oBSq", layer, (unsigned)kv_dtype_size(head.dtype), p, size);
	free(p);
}

/* Adds a query of one head to its sums, moduli of pairs and products. */
static void
add_query(const float *q, uint32_t pairs, double *sum, double *modulus, double *product)
{
	uint32_t i, j;

	for (i = 0; i < width; i++) {
		sum[i] += q[i];
		for (j = 0; j <= i; j++)
			*product++ += (double)q[i] * q[j];
	}
	for (i = 0; i < pairs; i++)
		modulus[i] += sqrt((double)q[i] * q[i] + (double)q[i + pairs] * q[i + pairs]);
}

/* Writes the sums of one query for each token but the first four. */
static void
write_query_stats(struct kv_writer *w, uint32_t layer)
{
	uint32_t pairs = kv_rope_dims(&head.model, layer) / 2, first = 4, t, h;
	size_t triangle = (size_t)width * (width + 1) / 2;
	size_t size = 64 + 8 * query_heads * (width + pairs + triangle);
	double *sum = must_alloc(size, 1), *modulus, *product;
	uint8_t *front = (uint8_t *)sum;
	float *q = must_alloc(width, sizeof *q);

	memset(sum, 0, size);
	put32(front, first);
	put32(front + 4, tokens > first ? tokens - first : 0);
	modulus = sum + 8 + (size_t)query_heads * width;
	product = modulus + (size_t)query_heads * pairs;
	start_random(layer, "qSTa");
	for (t = first; t < tokens; t++)
		for (h = 0; h < query_heads; h++) {
			fill(q, width * sizeof *q, KV_F32);
			add_query(q, pairs, sum + 8 + (size_t)h * width,
			    modulus + (size_t)h * pairs, product + h * triangle);
		}
	write_one(w, "qSTa", layer, 4, sum, size);
	free(q);
	free(sum);
}

/* n numbers that are not negative. how: label, NULL: the section has none */
static void
write_mass(struct kv_writer *w, const char *type, uint32_t layer, uint64_t n, const char *how)
{
	char label[KV_SCORE_LABEL] = { 0 };
	uint32_t *bits = must_alloc(n, sizeof *bits);
	struct kv_span content[2] = { { label, sizeof label }, { bits, n * sizeof *bits } };
	uint64_t i;

	if (how != NULL)
		strncpy(label, how, sizeof label - 1);
	start_random(layer, type);
	fill(bits, n * sizeof *bits, KV_F32);
	for (i = 0; i < n; i++)
		bits[i] &= 0x7fffffff;
	output_check(w, kv_write(w, type, layer, sizeof *bits, content + (how == NULL),
	    how == NULL ? 1 : 2));
	free(bits);
}

/* from: "random", or a file of numbers */
static void
write_scores(struct kv_writer *w, const char *type, uint32_t layer, uint64_t total,
    const char *how, const char *from)
{
	char label[KV_SCORE_LABEL] = { 0 };
	float *score = must_alloc(total, sizeof *score);
	struct kv_span content[2] = { { label, sizeof label }, { score, total * sizeof *score } };

	strncpy(label, how, sizeof label - 1);
	start_random(layer, type);
	if (strcmp(from, "random") == 0)
		fill(score, total * sizeof *score, KV_F32);
	else
		read_numbers(from, score, total);
	output_check(w, kv_write(w, type, layer, sizeof *score, content, 2));
	free(score);
}

static void
write_tensor(struct kv_writer *w, const char *type, uint32_t layer, uint64_t total)
{
	size_t n = total * width, size = n * kv_dtype_size(head.dtype);
	float *numbers;

	if (size > tensor_size) {
		free(tensor);
		tensor_size = size;
		tensor = must_alloc(size, 1);
	}
	start_random(layer, type);
	if (keys_from != NULL && strcmp(type, "KEYS") == 0) {
		numbers = must_alloc(n, sizeof *numbers);
		read_numbers(keys_from, numbers, n);
		kv_from_f32(tensor, numbers, head.dtype, n);
		free(numbers);
	} else
		fill(tensor, size, head.dtype);
	write_one(w, type, layer, (unsigned)kv_dtype_size(head.dtype), tensor, size);
}

static void
write_layer(struct kv_writer *w, uint32_t layer, const uint32_t *asked)
{
	uint32_t *count = must_alloc(kv_heads, sizeof *count), g;
	uint32_t **pos = must_alloc(kv_heads, sizeof *pos);
	struct kv_rows rows = { kv_heads, count, (const uint32_t *const *)pos };
	uint64_t total, lists;          /* rows of all KV heads, and of all query heads */

	start_random(layer, "POSN");
	for (g = 0; g < kv_heads; g++) {
		count[g] = asked[g];
		if (ragged)
			count[g] -= (uint32_t)(next_random() % (asked[g] / 4 * 3 + 1));
		pos[g] = must_alloc(count[g], sizeof *pos[g]);
		choose_positions(pos[g], count[g]);
	}
	total = kv_rows_total(&rows);
	lists = total * (query_heads / kv_heads);
	output_check(w, kv_write_rows(w, layer, &rows));
	write_extra(w, layer);
	write_queries(w, layer);
	if (query_stats)
		write_query_stats(w, layer);
	if (mass)
		write_mass(w, "mASS", layer, lists, NULL);
	if (paid)
		write_mass(w, "pAID", layer, lists, "test");
	if (value_norms != NULL)
		write_mass(w, "vNRM", layer, lists, value_norms);
	if (gate != NULL)
		write_scores(w, "gATE", layer, total, gate, "random");
	if (noncausal != NULL)
		write_mass(w, "nCAU", layer, total, noncausal);
	if (scores_from != NULL)
		write_scores(w, "sCOR", layer, total, "test", scores_from);
	write_tensor(w, "KEYS", layer, total);
	write_tensor(w, "VALS", layer, total);
	for (g = 0; g < kv_heads; g++)
		free(pos[g]);
	free(pos);
	free(count);
}

static void
write_tokens(struct kv_writer *w)
{
	uint32_t *ids = must_alloc(tokens, sizeof *ids), i;

	start_random(0, "TOKS");
	for (i = 0; i < tokens; i++)
		ids[i] = (uint32_t)(next_random() % vocabulary);
	write_one(w, "TOKS", KV_NO_LAYER, 4, ids, tokens * sizeof *ids);
	free(ids);
}

static void
write_logits(struct kv_writer *w)
{
	float *x = must_alloc(vocabulary, sizeof *x);

	start_random(0, "LGTS");
	fill(x, vocabulary * sizeof *x, KV_F32);
	write_one(w, "LGTS", KV_NO_LAYER, 4, x, vocabulary * sizeof *x);
	free(x);
}

int
main(int argc, char **argv)
{
	struct kv_writer *w;
	uint32_t *asked, l;

	tool_start(&tool, argc, argv);
	if (preset != NULL)
		take_preset();
	if (value_norms != NULL && strcmp(value_norms, "l1") != 0 &&
	    strcmp(value_norms, "l2") != 0)
		die(EXIT_USAGE, "--value-norms: there is no '%s'", value_norms);
	asked = must_alloc(kv_heads, sizeof *asked);
	parse_rows(asked);
	make_head(&head);
	w = output_create(&head);
	write_tokens(w);
	write_extra(w, KV_NO_LAYER);
	for (l = 0; l < layers; l++)
		write_layer(w, l, asked);
	if (logits)
		write_logits(w);
	output_commit(w, NULL);
	free(asked);
	free(tensor);
	return finish();
}
