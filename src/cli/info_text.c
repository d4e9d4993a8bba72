/* info_text.c - a snapshot in lines: what kv-info prints */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/terminal_escape.h"
#include "cli/info_index.h"
#include "cli/info.h"
#include "cli/opt_rows.h"
#include "cli/json.h"

#define LINE "%-14s "
#define COLUMNS 14

static void
print_rope(const struct kv_model *m)
{
	printf(LINE "%s, theta %g", "rope", kv_rope_name(m->rope_type), m->rope_theta);
	if (m->rope_type == KV_ROPE_LLAMA3)
		printf(", factor %g, low %g, high %g, original context %u", m->rope_factor,
		    m->rope_low_freq_factor, m->rope_high_freq_factor,
		    m->rope_original_max_position);
	if (m->rope_type == KV_ROPE_LINEAR || m->rope_type == KV_ROPE_YARN)
		printf(", factor %g", m->rope_factor);
	if (m->rope_type == KV_ROPE_YARN)
		printf(", beta %g and %g%s, attention factor %g, original context %u",
		    m->rope_beta_fast, m->rope_beta_slow, m->rope_truncate ? "" : " not rounded",
		    m->rope_attention_factor, m->rope_original_max_position);
	if (m->rope_type == KV_ROPE_LONGROPE)
		printf(", factors %g to %g, attention factor %g, original context %u",
		    m->rope_factors[0], m->rope_factors[m->rope_n_factors - 1],
		    m->rope_attention_factor, m->rope_original_max_position);
	if (m->rope_query_beta != 0)
		printf(", queries times 1 + %g ln(1 + floor(position / %u))", m->rope_query_beta,
		    m->rope_original_max_position);
	if (m->rope_width != 0)
		printf(", of the %s %u channels", m->latent_rank != 0 ? "last" : "first",
		    m->rope_width);
	if (m->rope_skip != 0)
		printf(", none in one layer of %u", m->rope_skip);
	if (m->rope_window_theta != 0)
		printf(", theta %g without scaling in layers with a window", m->rope_window_theta);
	putchar('\n');
}

static void
print_latent(const struct kv_model *m)
{
	if (m->latent_rank != 0)
		printf(LINE "%u channels and %u rotated ones; values are the first %u, "
		    "%u query heads expand them to %u\n", "latent", m->latent_rank, m->rope_width,
		    m->latent_rank, m->query_heads, m->latent_value);
}

static void
print_window(const struct kv_model *m)
{
	const char *sep = " but ";
	uint32_t l;

	if (m->window == 0)
		return;
	printf(LINE, "window");
	printf("%u positions, in all layers", m->window);
	for (l = 0; l < m->layers; l++)
		if (kv_layer_window(m, l) == 0) {
			printf("%s%u", sep, l);
			sep = ", ";
		}
	putchar('\n');
}

/* Prints the multipliers that are not 0 on a line of their own. */
static void
print_multipliers(const struct kv_model *m)
{
	const struct { const char *name; double v; } list[] = {
		{ "attention", m->attention_multiplier }, { "embedding", m->embedding_multiplier },
		{ "residual", m->residual_multiplier }, { "logits divided by", m->logits_scaling },
		{ "attention bounded by", m->attention_softcap },
		{ "logits bounded by", m->logits_softcap },
	};
	const char *sep = "";
	size_t i;

	for (i = 0; i < sizeof list / sizeof list[0]; i++)
		if (list[i].v != 0) {
			if (*sep == '\0')
				printf(LINE, "multipliers");
			printf("%s%s %g", sep, list[i].name, list[i].v);
			sep = ", ";
		}
	if (*sep != '\0')
		putchar('\n');
}

static void
print_model(const struct kv_model *m)
{
	printf(LINE "%s, %u layers, %u query heads, %u KV heads, head width %u, model width %u, "
	    "ffn %u, vocabulary %u\n", "model", shown(m->architecture), m->layers, m->query_heads,
	    m->kv_heads, m->head_width, m->hidden, m->ffn, m->vocabulary);
	printf(LINE "norm eps %g, %s%s%s, %s\n", "", m->norm_eps,
	    m->attention_bias ? "attention bias" : "no attention bias",
	    m->attention_sinks ? ", learned sinks" : "",
	    m->mlp_bias ? ", MLP bias" : "",
	    m->tied_embeddings ? "tied embeddings" : "separate embeddings");
	if (m->experts != 0)
		printf(LINE "%u of %u in a layer for each token\n", "experts", m->experts_chosen,
		    m->experts);
	print_latent(m);
	print_window(m);
	print_multipliers(m);
	print_rope(m);
	printf(LINE "%s %s%s\n", "weights", m->weights, kv_dtype_name(m->weights_dtype),
	    m->weights_rule == 0 ? ", by samples" : "");
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

/* Only where there are some. */
static void
print_query_stats(const struct layer_info *l, uint32_t layers)
{
	uint32_t i, with = 0, least = UINT32_MAX, most = 0;

	for (i = 0; i < layers; i++) {
		if (!l[i].has_query_stats)
			continue;
		with++;
		least = l[i].stats_queries < least ? l[i].stats_queries : least;
		most = l[i].stats_queries > most ? l[i].stats_queries : most;
	}
	if (with == 0)
		return;
	if (least == most)
		printf(LINE "of %u queries", "query stats", most);
	else
		printf(LINE "of %u to %u queries", "query stats", least, most);
	if (with == layers)
		puts(" in each layer");
	else
		printf(" in %u of %u layers\n", with, layers);
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
	const uint64_t runs = kv_log_count(log, KV_EVENT_RUN);

	if (kv_log_count(log, 0) == 0) {
		printf(LINE "none\n", "event log");
		return;
	}
	printf(LINE "%" PRIu64 " prefill, %" PRIu64 " decode, %" PRIu64 " eviction",
	    "event log", kv_log_count(log, KV_EVENT_PREFILL),
	    kv_log_count(log, KV_EVENT_DECODE), kv_log_count(log, KV_EVENT_EVICT));
	if (runs > 0)
		printf(", %" PRIu64 " run and not stored", runs);
	putchar('\n');
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
		printf(LINE "%s %s %s\n", name, tool_name ? shown(tool_name) : "?",
		    version ? shown(version) : "?", text ? shown(text) : "");
		free(text);
		json_decref(o);
	}
}

static double
ratio(const struct kv_section *sec)
{
	return sec->raw_size > 0 ? (double)sec->stored_size / (double)sec->raw_size : 1;
}

static void
print_sections(const struct snapshot_info *info)
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

/* Prints where the first documents begin, at most 16. */
static void
print_documents(const struct kv_documents *d)
{
	uint32_t i;

	if (d->n == 0)
		return;
	printf(LINE "%u, which begin at 0", "documents", d->n + 1);
	for (i = 0; i < d->n && i < 15; i++)
		printf(" %u", d->start[i]);
	printf("%s\n", d->n > i ? " ..." : "");
}

void
print_info(const struct snapshot_info *info, const struct kv_reader *r)
{
	const struct kv_head *head = kv_reader_head(r);
	const char *dtype = kv_dtype_name(head->dtype);
	const struct kv_model *m = &head->model;
	char words[ROWS_WORDS];

	printf(LINE "%s\n", "snapshot", shown(kv_reader_name(r)));
	print_model(m);
	printf(LINE "%s\n", "dtype", dtype);
	if (kv_head_is_quantised(head))
		printf(LINE "%s\n", "row types", rows_words(words, head));
	if (head->residual == 1)
		printf(LINE "the last row of a KV head is %s\n", "residual", dtype);
	if (head->residual > 1)
		printf(LINE "the last %u rows of a KV head are %s\n", "residual", head->residual,
		    dtype);
	printf(LINE "%" PRIu64 "\n", "tokens", info->tokens);
	printf(LINE "%u\n", "next position", head->next_position);
	print_documents(&head->documents);
	printf(LINE "%" PRIu64 ", %.1f %% of tokens x layers x KV heads\n", "rows", info->rows,
	    100 * snapshot_share_kept(info, m));
	print_layers(info->layer, m->layers);
	printf(LINE "%" PRIu64 " bytes, %" PRIu64 " as stored\n", "keys + values",
	    info->tensor_bytes, info->tensor_stored);
	printf(LINE "%" PRIu64 " bytes\n", "in all", info->digests.size);
	print_queries(info->layer, m->layers);
	print_query_stats(info->layer, m->layers);
	print_mass(info->layer, m->layers);
	printf(LINE "%s\n", "probe mass",
	    info->probe_mass[0] != '\0' ? shown(info->probe_mass) : "none");
	if (info->value_norms[0] != '\0')
		printf(LINE "%s\n", "value norms", info->value_norms);
	if (info->gate_scores[0] != '\0')
		printf(LINE "%s\n", "gate scores", shown(info->gate_scores));
	if (info->noncausal[0] != '\0')
		printf(LINE "%s\n", "non-causal", shown(info->noncausal));
	printf(LINE "%s\n", "scores", info->scores[0] != '\0' ? shown(info->scores) : "none");
	index_print(info->index, m->layers, COLUMNS);
	printf(LINE "%s\n", "logits", info->logits ? "yes" : "no");
	if (info->head_keys.n > 0)
		printf(LINE "%u tokens, %u KV heads of width %u, of head %s\n", "head keys",
		    info->head_keys.n, info->head_keys.heads, info->head_keys.width,
		    info->head_keys.id);
	print_log(info->log);
	print_provenance(kv_reader_provenance(r));
	if (info->section != NULL)
		print_sections(info);
}
