/* keyindex.c - checks indexes made from keys: bITS, pAGE, cLUS, lOWR (4.14 to 4.18)
 *
 * Checks what a program relies on when it reads rows by an index: that it belongs to the keys
 * and rows before it, that every number in it is in range, and that its size follows from its
 * numbers. The size is checked before anything is allocated. Not checked: that bits, bounds,
 * means and factors are right for the keys. */

#include "codec.h"
#include "content.h"
#include "layout.h"

#include <stdio.h>
#include <stdlib.h>

#define F16_INFINITY 0x7c00     /* its bits; greater ones are NaN or negative */
#define PAGE_MOST 65536         /* rows of a page, or of a chunk */

static int
sized(const struct kv_header *h, uint64_t size, const char *for_what, struct kv_message *why)
{
	if (h->raw_size != size)
		return kv_bad(why, "%llu bytes of content, %s need %llu", (ull)h->raw_size,
		    for_what, (ull)size);
	return KV_OK;
}

/* Checks the first 64 bytes, except the fields of the type. */
static int
check_front(const struct kv_header *h, const uint8_t *p, const struct kv_row_store *rows,
    struct kv_message *why)
{
	const unsigned end = h->kind == KV_CLUS ? CLUSTERS_FIELDS_END :
	    h->kind == KV_LOWR ? LOW_RANK_FIELDS_END : INDEX_FIELDS;
	const uint64_t keys = get64(p + INDEX_KEYS);
	uint32_t u = get32(p + INDEX_ROWS);

	if (!kv_same_hash(keys, rows->keys))
		return kv_bad(why, "made from other keys: their hash is %016llx, this layer's "
		    "%016llx", (ull)keys, (ull)rows->keys);
	if (h->kind == KV_BITS && u != 16 && u != 32 && u != 64 && u != 128)
		return kv_bad(why, "groups of %u rows, must be 16, 32, 64 or 128", u);
	if (h->kind == KV_PAGE && (u < 2 || u > PAGE_MOST))
		return kv_bad(why, "pages of %u rows, must be 2 to %d", u, PAGE_MOST);
	if (h->kind == KV_CLUS && u != 1)
		return kv_bad(why, "entries of %u rows, must be 1", u);
	if (h->kind == KV_LOWR && (u < 1 || u > PAGE_MOST))
		return kv_bad(why, "chunks of %u rows, must be 1 to %d", u, PAGE_MOST);
	if (get32(p + INDEX_ZERO) != 0 || !all_zero(p + end, INDEX_HEAD - end))
		return kv_bad(why, "bytes that must be zero are not");
	return KV_OK;
}

/* Checks the size of bITS and pAGE. */
static int
check_entries(const struct kv_head *head, const struct kv_header *h, const uint8_t *p,
    const char *name, const struct kv_row_store *rows, struct kv_message *why)
{
	uint32_t g, u = get32(p + INDEX_ROWS);
	uint64_t n = 0;
	char need[80];

	for (g = 0; g < rows->rows.heads; g++)
		n += rows->count[g] / u;
	snprintf(need, sizeof need, "%llu %s of %u rows", (ull)n, name, u);
	return sized(h, INDEX_HEAD + n *
	    kv_entry_size(h->kind, u, head->model.head_width, head->dtype), need, why);
}

static int
check_bits(const struct kv_head *head, const struct kv_header *h, const uint8_t *p,
    const struct kv_row_store *rows, struct kv_message *why)
{
	uint32_t g, i, e, u = get32(p + INDEX_ROWS), width = head->model.head_width, wrong = 0;
	const size_t bytes = kv_entry_size(h->kind, u, width, head->dtype);
	uint16_t zero, scale;

	if (check_entries(head, h, p, "groups", rows, why) != KV_OK)
		return why->code;
	p += INDEX_HEAD;
	for (g = 0; g < rows->rows.heads; g++)
		for (i = 0; i < rows->count[g] / u; i++, p += bytes) {
			for (e = 0; e < width; e++) {
				zero = get16(p + 2 * (size_t)e);
				scale = get16(p + 2 * ((size_t)width + e));
				wrong |= (zero & 0x7fff) >= F16_INFINITY || scale >= F16_INFINITY;
			}
			if (wrong)
				goto found;
		}
	return KV_OK;
found:
	for (e = 0; e < width; e++)
		if ((get16(p + 2 * (size_t)e) & 0x7fff) >= F16_INFINITY)
			return kv_bad(why, "head %u group %u channel %u: the zero is not finite", g,
			    i, e);
		else if (get16(p + 2 * ((size_t)width + e)) >= F16_INFINITY)
			break;
	return kv_bad(why, "head %u group %u channel %u: the scale is negative, or not finite", g,
	    i, e);
}

/* Checks the labels of one KV head, and that each cluster has one. used: a byte for each
 * cluster. */
static int
check_labels(const uint8_t *label, uint32_t n, uint32_t first, uint32_t clusters, uint32_t g,
    uint8_t *used, struct kv_message *why)
{
	uint32_t i, c;

	memset(used, 0, clusters);
	for (i = 0; i < n; i++) {
		c = get32(label + 4 * (size_t)i);
		if (c >= clusters)
			return kv_bad(why, "head %u row %u: cluster %u, there are %u", g,
			    first + i, c, clusters);
		used[c] = 1;
	}
	for (c = 0; c < clusters; c++)
		if (!used[c])
			return kv_bad(why, "head %u cluster %u has no row", g, c);
	return KV_OK;
}

static int
check_clusters(const struct kv_head *head, const struct kv_header *h, const uint8_t *p,
    const struct kv_row_store *rows, struct kv_message *why)
{
	uint32_t g, heads = rows->rows.heads, sink = get32(p + CLUSTERS_SINK), n, most = 0;
	const uint8_t *counts = p + CLUSTERS_COUNT, *ends = p + clusters_end(heads), *label;
	uint64_t front = clusters_label(heads), labels = 0, clusters = 0, fill;
	uint8_t *used;

	if (h->raw_size < front)
		return kv_bad(why, "%llu bytes of content, the counts of %u heads need %llu",
		    (ull)h->raw_size, heads, (ull)front);
	for (g = 0; g < heads; g++) {
		if (get32(ends + 4 * g) > rows->count[g])
			return kv_bad(why, "head %u: clusters up to row %u, there are %u rows", g,
			    get32(ends + 4 * g), rows->count[g]);
		n = clusters_labels(get32(ends + 4 * g), sink);
		if (get32(counts + 4 * g) > n)
			return kv_bad(why, "head %u: %u clusters of %u rows", g,
			    get32(counts + 4 * g), n);
		labels += n;
		clusters += get32(counts + 4 * g);
		most = get32(counts + 4 * g) > most ? get32(counts + 4 * g) : most;
	}
	label = p + front;
	front += 4 * labels;
	fill = round64(front) - front;
	/* below 2^12 * 2^32 * 2^10 * 2^2 */
	if (sized(h, front + fill + clusters * head->model.head_width *
	    kv_dtype_size(head->dtype), "its clusters and their rows", why) != KV_OK)
		return why->code;
	if (!all_zero(p + front, (size_t)fill))
		return kv_bad(why, "the fill after the labels is not zero");
	used = malloc((size_t)most + 1);
	if (used == NULL)
		return kv_say(why, KV_ENOMEM, "no memory for %u clusters", most);
	for (g = 0, why->code = KV_OK; g < heads && why->code == KV_OK; g++) {
		n = clusters_labels(get32(ends + 4 * g), sink);
		(void)check_labels(label, n, sink, get32(counts + 4 * g), g, used, why);
		label += 4 * (size_t)n;
	}
	free(used);
	return why->code;
}

/* Checks the numbers of the chunks of each KV head with exact keys. */
static int
check_exact(const uint8_t *p, uint32_t heads, uint32_t x, uint32_t chunks, struct kv_message *why)
{
	uint32_t g, i, c, last = 0;

	for (g = 0; g < heads; g++)
		for (i = 0; i < x; i++, last = c, p += 4) {
			c = get32(p);
			if (c >= chunks)
				return kv_bad(why, "head %u: exact chunk %u, there are %u", g, c,
				    chunks);
			if (i > 0 && c <= last)
				return kv_bad(why, "head %u: exact chunk %u after %u, must ascend",
				    g, c, last);
		}
	return KV_OK;
}

static int
check_low_rank(const struct kv_head *head, const struct kv_header *h, const uint8_t *p,
    const struct kv_row_store *rows, struct kv_message *why)
{
	uint32_t u = get32(p + INDEX_ROWS), n = get32(p + LOW_RANK_ROWS);
	uint32_t r = get32(p + LOW_RANK_RANK), x = get32(p + LOW_RANK_CHUNKS);
	uint32_t heads = rows->rows.heads, width = head->model.head_width;
	struct low_rank_elements parts;
	uint64_t front, fill;

	if (!kv_rows_agree(&rows->rows))
		return kv_bad(why, "its KV heads must have the same rows");
	if (n > rows->count[0])
		return kv_bad(why, "made from %u rows, there are %u", n, rows->count[0]);
	if (n % u != 0)
		return kv_bad(why, "%u rows are no whole number of chunks of %u", n, u);
	if (r < 1 || r > heads * width)
		return kv_bad(why, "rank %u, must be 1 to %u", r, heads * width);
	if (x > n / u)
		return kv_bad(why, "%u exact chunks of %u", x, n / u);
	/* No product overflows: G <= 2^12, E <= 2^10, r <= 2^22, n and x < 2^32. */
	front = low_rank_exact_end(heads, x);
	fill = round64(front) - front;
	parts = low_rank_elements(heads, width, n, r, u);
	if (sized(h, front + fill + (parts.left + parts.right + parts.landmark) *
	    kv_dtype_size(head->dtype), "its rows, rank and chunks", why) != KV_OK)
		return why->code;
	if (!all_zero(p + front, (size_t)fill))
		return kv_bad(why, "the fill after the exact chunks is not zero");
	return check_exact(p + LOW_RANK_EXACT, heads, x, n / u, why);
}

int
kv_keyindex_check(const struct kv_head *head, const struct kv_header *h, const uint8_t *data,
    const struct kv_row_store *rows, struct kv_message *why)
{
	/* in a writer the caller has the wrong order, and gets this error */
	if (!rows->has_keys)
		return KV_OK;
	if (check_front(h, data, rows, why) != KV_OK)
		return why->code;
	switch (h->kind) {
	case KV_BITS:
		return check_bits(head, h, data, rows, why);
	case KV_PAGE:
		return check_entries(head, h, data, "pages", rows, why);
	case KV_CLUS:
		return check_clusters(head, h, data, rows, why);
	default:
		return check_low_rank(head, h, data, rows, why);
	}
}
