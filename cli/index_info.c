/* index_info.c - what kv-info says of the indexes of a snapshot (kv-snapshot(5), 4.14 to 4.18) */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "libkvfile/bytes.h"
#include "cli/index_info.h"
#include "cli/json.h"

#define TEXT 32         /* room for "4294967295 to 4294967295" */

static const char types[INDEX_KINDS][5] = { "bITS", "pAGE", "cLUS", "lOWR" };

/* ---- collecting ---- */

static enum index_kind
kind_of(const char *type)
{
	enum index_kind k;

	for (k = 0; k < INDEX_KINDS && strcmp(type, types[k]) != 0; k++)
		;
	return k;
}

int
is_index(const char *type)
{
	return kind_of(type) != INDEX_KINDS;
}

void
index_see(struct index_info *info, const struct kv_section *sec, const uint8_t *content,
    uint32_t kv_heads)
{
	enum index_kind k = kind_of(sec->type);
	uint32_t g, n;

	info->there[k] = 1;
	info->bytes[k] = sec->raw_size;
	if (k == INDEX_BITS)
		info->group = get32(content);
	else if (k == INDEX_PAGES)
		info->page = get32(content);
	else if (k == INDEX_CLUSTERS) {
		info->sink = get32(content + 16);
		info->least = UINT32_MAX;
		for (g = 0; g < kv_heads; g++) {
			n = get32(content + KV_INDEX_HEAD + 4 * (size_t)g);
			info->least = n < info->least ? n : info->least;
			info->most = n > info->most ? n : info->most;
		}
	} else {
		info->chunk = get32(content);
		info->rows = get32(content + 16);
		info->rank = get32(content + 20);
		info->exact = get32(content + 24);
	}
}

/* ---- text ---- */

/* "16", or "16 to 32" over the layers that have this kind; the fields are at these offsets. */
static const char *
span(char text[TEXT], const struct index_info *layer, uint32_t layers, enum index_kind k,
    size_t lower, size_t upper)
{
	uint32_t l, least = UINT32_MAX, most = 0, v;

	for (l = 0; l < layers; l++)
		if (layer[l].there[k]) {
			memcpy(&v, (const char *)&layer[l] + lower, sizeof v);
			least = v < least ? v : least;
			memcpy(&v, (const char *)&layer[l] + upper, sizeof v);
			most = v > most ? v : most;
		}
	if (least == most)
		snprintf(text, TEXT, "%" PRIu32, least);
	else
		snprintf(text, TEXT, "%" PRIu32 " to %" PRIu32, least, most);
	return text;
}

#define SPAN2(i, lower, upper) \
	span(text[i], layer, layers, k, offsetof(struct index_info, lower), \
	    offsetof(struct index_info, upper))
#define SPAN(i, field) SPAN2(i, field, field)

static void
print_kind(const struct index_info *layer, uint32_t layers, enum index_kind k)
{
	char text[4][TEXT];

	switch (k) {
	case INDEX_BITS:
		printf("keys in one bit, groups of %s rows", SPAN(0, group));
		break;
	case INDEX_PAGES:
		printf("bounds of pages of %s rows", SPAN(0, page));
		break;
	case INDEX_CLUSTERS:
		printf("%s clusters in a KV head, %s sink rows", SPAN2(0, least, most),
		    SPAN(1, sink));
		break;
	default:
		printf("keys of rank %s, %s rows in chunks of %s, %s chunks exact", SPAN(0, rank),
		    SPAN(1, rows), SPAN(2, chunk), SPAN(3, exact));
		break;
	}
}

void
index_print(const struct index_info *layer, uint32_t layers, int columns)
{
	const char *name = "indexes";
	enum index_kind k;
	uint64_t bytes;
	uint32_t l, with;

	for (k = 0; k < INDEX_KINDS; k++) {
		for (l = with = 0, bytes = 0; l < layers; l++) {
			with += layer[l].there[k] != 0;
			bytes += layer[l].bytes[k];
		}
		if (with == 0)
			continue;
		printf("%-*s ", columns, name);
		name = "";
		print_kind(layer, layers, k);
		if (with == layers)
			printf(", in each layer");
		else
			printf(", in %" PRIu32 " of %" PRIu32 " layers", with, layers);
		printf(", %" PRIu64 " bytes\n", bytes);
	}
	if (*name != '\0')
		printf("%-*s none\n", columns, name);
}

/* ---- JSON ---- */

json_t *
index_json(const struct index_info *info)
{
	const struct {
		enum index_kind kind;
		const char *name, *key;
		uint32_t value;
	} facts[] = {
		{ INDEX_BITS, "bits", "group", info->group },
		{ INDEX_PAGES, "pages", "page", info->page },
		{ INDEX_CLUSTERS, "clusters", "sink", info->sink },
		{ INDEX_CLUSTERS, "clusters", "clusters_min", info->least },
		{ INDEX_CLUSTERS, "clusters", "clusters_max", info->most },
		{ INDEX_LOW_RANK, "low_rank", "rank", info->rank },
		{ INDEX_LOW_RANK, "low_rank", "rows", info->rows },
		{ INDEX_LOW_RANK, "low_rank", "chunk", info->chunk },
		{ INDEX_LOW_RANK, "low_rank", "exact", info->exact },
	};
	json_t *all = json_object(), *one = NULL;
	size_t i;

	for (i = 0; i < sizeof facts / sizeof *facts; i++) {
		if (!info->there[facts[i].kind])
			continue;
		if ((one = json_object_get(all, facts[i].name)) == NULL) {
			put(all, facts[i].name, one = json_object());
			put_count(one, "bytes", info->bytes[facts[i].kind]);
		}
		put_count(one, facts[i].key, facts[i].value);
	}
	return all;
}
