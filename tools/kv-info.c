/* kv-info - describe snapshots: whose cache it is, which rows there are, what they cost */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libkvfile/codec.h"
#include "cli/index_info.h"
#include "cli/json.h"
#include "cli/tool.h"

static int all, positions;

static const struct opt opts[] = {
	{ 'a', "all", OPT_FLAG, &all, 1, NULL,
	    "list every section and the digests; verifies everything" },
	{ 'p', "positions", OPT_FLAG, &positions, 1, NULL,
	    "print layer, KV head and the positions of its rows, nothing else" },
	{ .name = NULL }
};

static const struct tool tool = {
	.name = "kv-info",
	.about = "describe snapshots: whose cache it is, which rows there are, what they cost",
	.synopsis = "[-apqv] [--json] snapshot ...",
	.opts = opts,
	.takes = TAKES_JSON,
	.min_operands = 1,
	.max_operands = -1u
};

struct layer_info {
	uint32_t least, most;           /* rows of a KV head */
	uint64_t rows;                  /* of all heads */
	uint32_t queries;               /* W, 0 = none */
	uint32_t own_keys;              /* how many of the queries have their own key with them */
	int mass;                       /* attention received is there */
	int paid;                       /* attention paid is there */
};

struct info {
	struct layer_info *layer;       /* [L] */
	struct index_info *index;       /* [L] */
	struct kv_section *section;     /* [n] with --all */
	size_t n, room;
	uint64_t tokens, rows, tensor_bytes, tensor_stored;
	char scores[KV_SCORE_LABEL];    /* label of the first ones, "" = none */
	char paid[KV_SCORE_LABEL];      /* the same of the attention paid */
	int logits;
	struct kv_log *log;
	struct kv_digests digests;
};

/* ---- collecting ---- */

static void
see_rows(struct layer_info *l, const struct kv_rows *rows)
{
	uint32_t g;

	l->least = UINT32_MAX;
	for (g = 0; g < rows->heads; g++) {
		l->least = rows->count[g] < l->least ? rows->count[g] : l->least;
		l->most = rows->count[g] > l->most ? rows->count[g] : l->most;
	}
	l->rows = kv_rows_total(rows);
}

static void
skip(struct kv_reader *r)
{
	int code = kv_skip(r);

	if (code < 0)
		input_failed(r, code);
}

static void
see_queries(struct layer_info *l, struct kv_reader *r)
{
	struct kv_queries q;

	input_check(r, kv_load_queries(r, &q));
	l->queries = q.n;
	l->own_keys = q.n_own;
}

/* label <- that of the first such section of the snapshot. */
static void
see_label(char label[KV_SCORE_LABEL], struct kv_reader *r)
{
	struct kv_values v;

	if (label[0] != '\0')
		return;
	input_check(r, kv_load_values(r, &v));
	strcpy(label, v.label);
}

static void
see_index(struct index_info *info, struct kv_reader *r, const struct kv_section *sec)
{
	struct kv_index x;

	input_check(r, kv_load_index(r, &x));
	index_see(info, sec, &x, kv_reader_head(r)->model.kv_heads);
}

static void
see_section(struct info *info, struct kv_reader *r, const struct kv_section *sec)
{
	struct layer_info *l = sec->layer != KV_NO_LAYER ? &info->layer[sec->layer] : NULL;

	switch (sec->kind) {
	case KV_TOKS:
		info->tokens = sec->raw_size / sizeof(uint32_t);
		break;
	case KV_POSN:
		see_rows(l, input_rows(r));
		info->rows += l->rows;
		break;
	case KV_OBSQ:
		see_queries(l, r);
		break;
	case KV_MASS:
		l->mass = 1;
		break;
	case KV_PAID:
		l->paid = 1;
		see_label(info->paid, r);
		break;
	case KV_SCOR:
		see_label(info->scores, r);
		break;
	case KV_KEYS:
	case KV_VALS:
		info->tensor_bytes += sec->raw_size;
		info->tensor_stored += sec->stored_size;
		if (!all)
			skip(r);
		break;
	case KV_LGTS:
		info->logits = 1;
		break;
	default:
		if (kv_kind_is(sec->kind, KV_INDEX))
			see_index(&info->index[sec->layer], r, sec);
	}
}

static void
remember_section(struct info *info, const struct kv_section *sec)
{
	if (info->n == info->room) {
		info->room = info->room * 2 + 64;
		info->section = realloc(info->section, info->room * sizeof *info->section);
		if (info->section == NULL)
			die(EXIT_RUN, "out of memory");
	}
	info->section[info->n++] = *sec;
}

static void
collect(struct info *info, struct kv_reader *r)
{
	struct kv_section sec;
	int code;

	info->layer = must_alloc(kv_reader_head(r)->model.layers, sizeof *info->layer);
	info->index = must_alloc(kv_reader_head(r)->model.layers, sizeof *info->index);
	if ((info->log = kv_log_new(kv_reader_head(r))) == NULL)
		die(EXIT_RUN, "out of memory");
	while (input_next(r, &sec)) {
		if ((code = kv_log_see(info->log, r, &sec)) < 0)
			input_failed(r, code);
		see_section(info, r, &sec);
		if (all)
			remember_section(info, &sec);
	}
	kv_reader_digests(r, &info->digests);
}

/* Rows held / rows that the whole text would have. */
static double
share_kept(const struct info *info, const struct kv_model *m)
{
	return (double)info->rows / ((double)info->tokens * m->layers * m->kv_heads);
}

static double
ratio(const struct kv_section *sec)
{
	return sec->raw_size > 0 ? (double)sec->stored_size / (double)sec->raw_size : 1;
}

/* ---- text ---- */

#define LINE "%-14s "
#define COLUMNS 14

static void
print_rope(const struct kv_model *m)
{
	printf(LINE "%s, theta %g", "rope", m->rope_type == KV_ROPE_LLAMA3 ? "llama3" : "default",
	    m->rope_theta);
	if (m->rope_type == KV_ROPE_LLAMA3)
		printf(", factor %g, low %g, high %g, original context %u", m->rope_factor,
		    m->rope_low_freq_factor, m->rope_high_freq_factor,
		    m->rope_original_max_position);
	putchar('\n');
}

static void
print_model(const struct kv_model *m)
{
	printf(LINE "%s, %u layers, %u query heads, %u KV heads, head width %u, model width %u, "
	    "ffn %u, vocabulary %u\n", "model", m->architecture, m->layers, m->query_heads,
	    m->kv_heads, m->head_width, m->hidden, m->ffn, m->vocabulary);
	printf(LINE "norm eps %g, %s, %s\n", "", m->norm_eps,
	    m->attention_bias ? "attention bias" : "no attention bias",
	    m->tied_embeddings ? "tied embeddings" : "separate embeddings");
	print_rope(m);
	printf(LINE "%s %s\n", "weights", m->weights, kv_dtype_name(m->weights_dtype));
	printf(LINE "%s\n", "tokenizer", m->tokenizer);
}

/* Layers with the same rows share a line. */
static void
print_layers(const struct layer_info *l, uint32_t layers)
{
	char name[32];
	uint32_t i, j;

	for (i = 0; i < layers; i = j) {
		for (j = i + 1; j < layers && l[j].least == l[i].least && l[j].most == l[i].most &&
		    l[j].rows == l[i].rows; j++)
			;
		if (j - i == 1)
			snprintf(name, sizeof name, "layer %u", i);
		else
			snprintf(name, sizeof name, "layers %u-%u", i, j - 1);
		if (l[i].least == l[i].most)
			printf(LINE "%u rows in each KV head\n", name, l[i].least);
		else
			printf(LINE "%u to %u rows in a KV head, %" PRIu64 " in all\n", name,
			    l[i].least, l[i].most, l[i].rows);
	}
}

static void
print_queries(const struct layer_info *l, uint32_t layers)
{
	uint32_t i, with = 0, most = 0, own = 0;

	for (i = 0; i < layers; i++) {
		with += l[i].queries > 0;
		most = l[i].queries > most ? l[i].queries : most;
		own = l[i].own_keys > own ? l[i].own_keys : own;
	}
	if (with == 0)
		printf(LINE "none", "queries");
	else if (with == layers)
		printf(LINE "%u in each layer", "queries", most);
	else
		printf(LINE "%u in %u of %u layers", "queries", most, with, layers);
	if (own > 0)
		printf(", %u of them of tokens that are not stored", own);
	putchar('\n');
}

static void
print_mass(const struct layer_info *l, uint32_t layers)
{
	uint32_t i, with = 0;

	for (i = 0; i < layers; i++)
		with += l[i].mass != 0;
	if (with == 0 || with == layers)
		printf(LINE "%s\n", "mass", with == 0 ? "none" : "in each layer");
	else
		printf(LINE "in %u of %u layers\n", "mass", with, layers);
}

static void
print_log(const struct kv_log *log)
{
	if (kv_log_count(log, 0) == 0)
		printf(LINE "none\n", "event log");
	else
		printf(LINE "%" PRIu64 " prefill, %" PRIu64 " decode, %" PRIu64 " eviction\n",
		    "event log", kv_log_count(log, KV_EVENT_PREFILL),
		    kv_log_count(log, KV_EVENT_DECODE), kv_log_count(log, KV_EVENT_EVICT));
}

static void
print_provenance(const char *line)
{
	const char *end, *name = "made by", *tool_name, *version;
	json_t *o, *options;
	char *text;

	for (; (end = strchr(line, '\n')) != NULL; line = end + 1, name = "") {
		o = json_loadb(line, (size_t)(end - line), 0, NULL);
		tool_name = json_string_value(json_object_get(o, "tool"));
		version = json_string_value(json_object_get(o, "version"));
		options = json_object_get(o, "options");
		text = json_dumps(options, JSON_COMPACT | JSON_SORT_KEYS | JSON_REAL_PRECISION(17));
		printf(LINE "%s %s %s\n", name, tool_name ? tool_name : "?",
		    version ? version : "?", text ? text : "");
		free(text);
		json_decref(o);
	}
}

static void
print_sections(const struct info *info)
{
	const struct kv_section *s;
	size_t i;

	printf("\n%-4s %6s %14s %14s %6s\n", "type", "layer", "raw", "stored", "ratio");
	for (i = 0; i < info->n; i++) {
		s = &info->section[i];
		if (s->layer == KV_NO_LAYER)
			printf("%-4s %6s", s->type, "-");
		else
			printf("%-4s %6u", s->type, s->layer);
		printf(" %14" PRIu64 " %14" PRIu64 " %6.3f\n", s->raw_size, s->stored_size,
		    ratio(s));
	}
	printf("\n" LINE "%s\n", "stream digest", info->digests.stream);
	printf(LINE "%s\n", "logical digest", info->digests.logical);
}

static void
print_text(const struct info *info, const struct kv_reader *r)
{
	const struct kv_head *head = kv_reader_head(r);
	const struct kv_model *m = &head->model;

	printf(LINE "%s\n", "snapshot", kv_reader_name(r));
	print_model(m);
	printf(LINE "%s\n", "dtype", kv_dtype_name(head->dtype));
	printf(LINE "%" PRIu64 "\n", "tokens", info->tokens);
	printf(LINE "%u\n", "next position", head->next_position);
	printf(LINE "%" PRIu64 ", %.1f %% of tokens x layers x KV heads\n", "rows", info->rows,
	    100 * share_kept(info, m));
	print_layers(info->layer, m->layers);
	printf(LINE "%" PRIu64 " bytes, %" PRIu64 " as stored\n", "keys + values",
	    info->tensor_bytes, info->tensor_stored);
	printf(LINE "%" PRIu64 " bytes\n", "in all", info->digests.size);
	print_queries(info->layer, m->layers);
	print_mass(info->layer, m->layers);
	printf(LINE "%s\n", "paid", info->paid[0] != '\0' ? info->paid : "none");
	printf(LINE "%s\n", "scores", info->scores[0] != '\0' ? info->scores : "none");
	index_print(info->index, m->layers, COLUMNS);
	printf(LINE "%s\n", "logits", info->logits ? "yes" : "no");
	print_log(info->log);
	print_provenance(kv_reader_provenance(r));
	if (all)
		print_sections(info);
}

/* ---- JSON: the same facts; the keys are documented in kv-info(1) and stay ---- */

static void
put_text(json_t *o, const char *key, const char *text)
{
	put(o, key, json_string(text));
}

static json_t *
rope_json(const struct kv_model *m)
{
	json_t *o = json_object();

	put_text(o, "type", m->rope_type == KV_ROPE_LLAMA3 ? "llama3" : "default");
	put_real(o, "theta", m->rope_theta);
	if (m->rope_type == KV_ROPE_LLAMA3) {
		put_real(o, "factor", m->rope_factor);
		put_real(o, "low_freq_factor", m->rope_low_freq_factor);
		put_real(o, "high_freq_factor", m->rope_high_freq_factor);
		put_count(o, "original_max_position", m->rope_original_max_position);
	}
	return o;
}

static json_t *
model_json(const struct kv_model *m)
{
	json_t *o = json_object();

	put_text(o, "architecture", m->architecture);
	put_count(o, "layers", m->layers);
	put_count(o, "query_heads", m->query_heads);
	put_count(o, "kv_heads", m->kv_heads);
	put_count(o, "head_width", m->head_width);
	put_count(o, "hidden", m->hidden);
	put_count(o, "ffn", m->ffn);
	put_count(o, "vocabulary", m->vocabulary);
	put_real(o, "norm_eps", m->norm_eps);
	put(o, "attention_bias", json_boolean(m->attention_bias));
	put(o, "tied_embeddings", json_boolean(m->tied_embeddings));
	put(o, "rope", rope_json(m));
	put_text(o, "weights_dtype", kv_dtype_name(m->weights_dtype));
	put_text(o, "weights", m->weights);
	put_text(o, "tokenizer", m->tokenizer);
	return o;
}

static json_t *
layers_json(const struct layer_info *l, const struct index_info *index, uint32_t layers)
{
	json_t *list = json_array(), *o;
	uint32_t i;

	for (i = 0; i < layers; i++) {
		o = json_object();
		put_count(o, "rows", l[i].rows);
		put_count(o, "rows_min", l[i].least);
		put_count(o, "rows_max", l[i].most);
		put_count(o, "queries", l[i].queries);
		put_count(o, "own_keys", l[i].own_keys);
		put(o, "mass", json_boolean(l[i].mass));
		put(o, "paid", json_boolean(l[i].paid));
		put(o, "indexes", index_json(&index[i]));
		json_array_append_new(list, o);
	}
	return list;
}

static json_t *
log_json(const struct kv_log *log)
{
	json_t *o;

	if (kv_log_count(log, 0) == 0)
		return json_null();
	o = json_object();
	put_count(o, "prefill", kv_log_count(log, KV_EVENT_PREFILL));
	put_count(o, "decode", kv_log_count(log, KV_EVENT_DECODE));
	put_count(o, "evict", kv_log_count(log, KV_EVENT_EVICT));
	return o;
}

static json_t *
provenance_json(const char *line)
{
	json_t *list = json_array();
	const char *end;

	for (; (end = strchr(line, '\n')) != NULL; line = end + 1)
		json_array_append_new(list, json_loadb(line, (size_t)(end - line), 0, NULL));
	return list;
}

static json_t *
sections_json(const struct info *info)
{
	json_t *list = json_array(), *o;
	const struct kv_section *s;
	size_t i;

	for (i = 0; i < info->n; i++) {
		s = &info->section[i];
		o = json_object();
		put_text(o, "type", s->type);
		put(o, "layer", s->layer == KV_NO_LAYER ? json_null() : json_integer(s->layer));
		put_count(o, "offset", s->offset);
		put_count(o, "raw_bytes", s->raw_size);
		put_count(o, "stored_bytes", s->stored_size);
		json_array_append_new(list, o);
	}
	return list;
}

static void
print_whole(const struct info *info, const struct kv_reader *r)
{
	const struct kv_head *head = kv_reader_head(r);
	json_t *o = json_object();

	put_text(o, "snapshot", kv_reader_name(r));
	put(o, "model", model_json(&head->model));
	put_text(o, "dtype", kv_dtype_name(head->dtype));
	put_count(o, "tokens", info->tokens);
	put_count(o, "next_position", head->next_position);
	put_count(o, "rows", info->rows);
	put_real(o, "share_kept", share_kept(info, &head->model));
	put(o, "layers", layers_json(info->layer, info->index, head->model.layers));
	put_count(o, "kv_bytes", info->tensor_bytes);
	put_count(o, "kv_stored_bytes", info->tensor_stored);
	put_count(o, "bytes", info->digests.size);
	put(o, "scores", info->scores[0] != '\0' ? json_string(info->scores) : json_null());
	put(o, "logits", json_boolean(info->logits));
	put(o, "event_log", log_json(info->log));
	put(o, "provenance", provenance_json(kv_reader_provenance(r)));
	if (all) {
		put(o, "sections", sections_json(info));
		put_text(o, "stream_digest", info->digests.stream);
		put_text(o, "logical_digest", info->digests.logical);
	}
	print_json(o);
}

/* One line for each KV head of each layer, for join, comm, diff and awk. */
static void
print_positions(struct kv_reader *r)
{
	const struct kv_rows *rows;
	struct kv_section sec;
	uint32_t g, i;

	while (input_next(r, &sec)) {
		if (sec.kind != KV_POSN) {
			skip(r);
			continue;
		}
		rows = input_rows(r);
		for (g = 0; g < rows->heads; g++) {
			printf("%u %u", sec.layer, g);
			for (i = 0; i < rows->count[g]; i++)
				printf(" %u", rows->pos[g][i]);
			putchar('\n');
		}
	}
}

static void
describe(const char *path)
{
	struct kv_reader *r = input_open(path);
	struct info info = { .n = 0 };

	if (positions) {
		print_positions(r);
		kv_close(r);
		return;
	}
	collect(&info, r);
	if (settings.json)
		print_whole(&info, r);
	else
		print_text(&info, r);
	free(info.layer);
	free(info.index);
	free(info.section);
	kv_log_free(info.log);
	kv_close(r);
}

int
main(int argc, char **argv)
{
	int first = tool_start(&tool, argc, argv), i;

	if (positions && (all || settings.json))
		die(EXIT_USAGE, "--positions goes with neither --all nor --json");
	for (i = first; i < argc; i++) {
		if (i > first && !settings.json && !positions)
			putchar('\n');
		describe(argv[i]);
	}
	return finish();
}
