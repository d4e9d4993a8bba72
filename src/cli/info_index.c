/* info_index.c - the indexes of a snapshot in kv-info's output (kv-snapshot(5), 4.14 to 4.18) */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/info_index.h"
#include "cli/json.h"

#define TEXT 32         /* room for "4294967295 to 4294967295" */

/* ---- text ---- */

/* Returns "16", or "16 to 32", the range over the layers with this kind; the fields are at
 * these offsets. */
static const char *
span(char text[TEXT], const struct index_info *layer, uint32_t layers, enum kv_kind k,
    size_t lower, size_t upper)
{
	uint32_t l, least = UINT32_MAX, most = 0, v;

	for (l = 0; l < layers; l++)
		if (layer[l].bytes[k] != 0) {
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
print_kind(const struct index_info *layer, uint32_t layers, enum kv_kind k)
{
	char text[4][TEXT];

	switch (k) {
	case KV_BITS:
		printf("keys in one bit, groups of %s rows", SPAN(0, group));
		break;
	case KV_PAGE:
		printf("bounds of pages of %s rows", SPAN(0, page));
		break;
	case KV_CLUS:
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
	enum kv_kind k;
	uint64_t bytes;
	uint32_t l, with;

	for (k = KV_UNKNOWN + 1; k < KV_KIND_END; k++) {
		for (l = with = 0, bytes = 0; l < layers; l++) {
			with += layer[l].bytes[k] != 0;
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
		enum kv_kind kind;
		const char *name, *key;
		uint32_t value;
	} facts[] = {
		{ KV_BITS, "bits", "group", info->group },
		{ KV_PAGE, "pages", "page", info->page },
		{ KV_CLUS, "clusters", "sink", info->sink },
		{ KV_CLUS, "clusters", "clusters_min", info->least },
		{ KV_CLUS, "clusters", "clusters_max", info->most },
		{ KV_LOWR, "low_rank", "rank", info->rank },
		{ KV_LOWR, "low_rank", "rows", info->rows },
		{ KV_LOWR, "low_rank", "chunk", info->chunk },
		{ KV_LOWR, "low_rank", "exact", info->exact },
	};
	json_t *all = json_object(), *one = NULL;
	size_t i;

	for (i = 0; i < sizeof facts / sizeof *facts; i++) {
		if (info->bytes[facts[i].kind] == 0)
			continue;
		if ((one = json_object_get(all, facts[i].name)) == NULL) {
			put_value(all, facts[i].name, one = json_object());
			put_count(one, "bytes", info->bytes[facts[i].kind]);
		}
		put_count(one, facts[i].key, facts[i].value);
	}
	return all;
}
