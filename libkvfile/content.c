/* content.c - rules for the content of sections that this version knows */

#include "codec.h"
#include "content.h"
#include "jsontext.h"
#include "layout.h"

#define F64_INFINITY UINT64_C(0x7ff0000000000000)
#define F32_INFINITY 0x7f800000         /* its bits; greater ones are NaN or negative */
#define F32_SIGN 0x80000000

static int
exactly(const struct kv_header *h, uint64_t size, struct kv_message *why)
{
	if (h->raw_size != size)
		return kv_bad(why, "%llu bytes of content, must be %llu",
		    (ull)h->raw_size, (ull)size);
	return KV_OK;
}

static int
at_least(const struct kv_header *h, uint64_t size, unsigned unit, struct kv_message *why)
{
	if (h->raw_size < size || h->raw_size % unit != 0)
		return kv_bad(why, "%llu bytes of content cannot be right",
		    (ull)h->raw_size);
	return KV_OK;
}

static int
check_rows_size(const struct kv_head *head, const struct kv_row_store *rows,
    const struct kv_header *h, struct kv_message *why)
{
	const enum kv_row_type type = kv_head_row_type(head, h->kind, h->layer);
	uint64_t size = 0;
	uint32_t g;

	if (h->element_size != kv_row_element(type))
		return kv_bad(why, "element size %u, must be that of %s, %u", h->element_size,
		    kv_row_type_name(type), kv_row_element(type));
	/* below 2^12 * 2^32 * 2^10 * 2^2 */
	for (g = 0; g < rows->rows.heads && rows->total > 0; g++)
		size += kv_head_bytes(head, h->kind, h->layer, rows->rows.count[g]);
	return exactly(h, size, why);
}

static int
check_query_stats_size(const struct kv_head *head, const struct kv_header *h,
    struct kv_message *why)
{
	const struct kv_model *m = &head->model;
	const struct query_stats_parts n = query_stats_parts(m->query_heads, m->head_width,
	    kv_rope_dims(m, h->layer));

	if (h->element_size != 4)
		return kv_bad(why, "element size %u, must be 4", h->element_size);
	/* below 2 * 2^12 * 2^20 * 2^3 */
	return exactly(h, QUERY_STATS_SUM + (n.sum + n.modulus + n.product) * 8, why);
}

int
kv_size_check(const struct kv_head *head, const struct kv_row_store *rows,
    const struct kv_header *h, struct kv_message *why)
{
	const struct kv_model *m = &head->model;
	const uint64_t total = rows->total;
	size_t element = kv_dtype_size(head->dtype);

	switch (h->kind) {
	case KV_HEAD:
		if (h->raw_size == 0 || h->raw_size > KV_HEAD_MOST)
			return kv_bad(why, "%llu bytes of content, must be 1 to %llu",
			    (ull)h->raw_size, (ull)KV_HEAD_MOST);
		return KV_OK;
	case KV_TOKS:
		return at_least(h, 4, 4, why);
	case KV_POSN:
		return at_least(h, 8, 4, why);
	case KV_OBSQ:
		return at_least(h, queries_data(1), 1, why);
	case KV_QSTA:
		return check_query_stats_size(head, h, why);
	case KV_MASS:
	case KV_PAID:
	case KV_VNRM:
	case KV_GATE:
	case KV_NCAU:
	case KV_SCOR:           /* below 2^12 * 2^32 * 2^12 * 2^2 */
		return exactly(h, (h->kind != KV_MASS ? KV_SCORE_LABEL : 0) +
		    total * kv_values_lists(h->kind, m) * 4, why);
	case KV_KEYS:
	case KV_VALS:
		return check_rows_size(head, rows, h, why);
	case KV_BITS:
	case KV_PAGE:
	case KV_CLUS:
	case KV_LOWR:
	case KV_RHDK:
		if (h->kind == KV_BITS)
			element = 2;
		if (h->element_size != element)
			return kv_bad(why, "element size %u, must be %zu", h->element_size,
			    element);
		return at_least(h, h->kind == KV_RHDK ? head_keys_data(0) : INDEX_HEAD, 1, why);
	case KV_SINK:
		return exactly(h, 4 * (uint64_t)m->query_heads, why);
	case KV_LGTS:
		return exactly(h, 4 * (uint64_t)m->vocabulary, why);
	case KV_EVNT:
		return at_least(h, 24, 4, why);
	case KV_ENDS:
		return exactly(h, 64, why);
	case KV_PADD:
		return exactly(h, 0, why);
	case KV_PROV:
		return at_least(h, 1, 1, why);
	case KV_INDX:
	case KV_UNKNOWN:
		break;
	}
	return KV_OK;
}

int
kv_content_is_checked(enum kv_kind kind)
{
	return kind == KV_POSN || kind == KV_SINK || kind == KV_OBSQ || kind == KV_QSTA ||
	    kind == KV_SCOR || kind == KV_RHDK || kind == KV_EVNT || kind == KV_PROV ||
	    kv_kind_is(kind, KV_PER_ROW) || kv_kind_is(kind, KV_INDEX);
}

static int
check_sinks(const uint8_t *p, uint64_t n, struct kv_message *why)
{
	uint64_t h;

	for (h = 0; h < n; h++)
		if ((get32(p + 4 * h) & ~F32_SIGN) >= F32_INFINITY)
			return kv_bad(why, "the sink of query head %llu is not finite", (ull)h);
	return KV_OK;
}

static int
check_queries(const struct kv_head *head, const struct kv_header *h, const uint8_t *p,
    struct kv_message *why)
{
	const struct kv_model *m = &head->model;
	uint32_t i, source = get32(p + QUERIES_SOURCE), w = get32(p + QUERIES_COUNT), pos, last = 0;
	uint32_t own = 0;
	uint64_t start = queries_data(w), rows;

	if (source != OBSERVED_STORED && source != OBSERVED_RUN)
		return kv_bad(why, "queries from source %u are not known", source);
	if (w == 0)
		return kv_bad(why, "no observation queries");
	if (at_least(h, start, 1, why) != KV_OK)
		return why->code;
	for (i = 0; i < w; i++, last = pos) {
		pos = get32(p + QUERIES_POS + 4 * (size_t)i);
		if (i > 0 && pos <= last)
			return kv_bad(why, "query %u: position %u after %u, must ascend", i,
			    pos, last);
		own += pos >= head->next_position;
		if (own > 0 && source == OBSERVED_STORED)
			return kv_bad(why, "query %u: position %u, next_position is %u", i,
			    pos, head->next_position);
	}
	if (own == 0 && source == OBSERVED_RUN)
		return kv_bad(why, "no query has own keys: all are before position %u",
		    head->next_position);
	/* below 2 * 2^12 * 2^32 * 2^10 * 2^2 */
	rows = (uint64_t)m->query_heads * w + (uint64_t)m->kv_heads * own;
	if (exactly(h, start + rows * m->head_width * kv_dtype_size(head->dtype), why) != KV_OK)
		return why->code;
	if (!all_zero(p + queries_pos_end(w), (size_t)(start - queries_pos_end(w))))
		return kv_bad(why, "the gap before the queries is not zero");
	return KV_OK;
}

/* Checks n numbers at p, the first of which is number `at` of the section. width: they are lower
 * triangles of so many rows, whose diagonals are not negative; 0: they are not. none: all are
 * zero. */
static int
check_stats_part(const uint8_t *p, uint64_t at, uint64_t n, int may_be_negative, uint32_t width,
    int none, struct kv_message *why)
{
	uint64_t i, bits, row = 0, column = 0;

	for (i = 0; i < n; i++) {
		bits = get64(p + 8 * i);
		if ((bits & F64_INFINITY) == F64_INFINITY)
			return kv_bad(why, "number %llu is not finite", (ull)(at + i));
		if (none && bits != 0)
			return kv_bad(why, "number %llu of the sums over no queries is not zero",
			    (ull)(at + i));
		if (bits >> 63 && (!may_be_negative || (width > 0 && column == row)))
			return kv_bad(why, "number %llu is negative", (ull)(at + i));
		if (width > 0 && column++ == row) {
			column = 0;
			row = row + 1 < width ? row + 1 : 0;
		}
	}
	return KV_OK;
}

static int
check_query_stats(const struct kv_head *head, const struct kv_header *h, const uint8_t *p,
    struct kv_message *why)
{
	const struct kv_model *m = &head->model;
	const struct query_stats_parts n = query_stats_parts(m->query_heads, m->head_width,
	    kv_rope_dims(m, h->layer));
	const uint8_t *sum = p + QUERY_STATS_SUM, *modulus = sum + 8 * n.sum;
	const int none = get32(p + QUERY_STATS_COUNT) == 0;

	if (!all_zero(p + QUERY_STATS_FIELDS_END, QUERY_STATS_SUM - QUERY_STATS_FIELDS_END))
		return kv_bad(why, "a reserved byte is not zero");
	if (check_stats_part(sum, 0, n.sum, 1, 0, none, why) != KV_OK ||
	    check_stats_part(modulus, n.sum, n.modulus, 0, 0, none, why) != KV_OK)
		return why->code;
	return check_stats_part(modulus + 8 * n.modulus, n.sum + n.modulus, n.product, 1,
	    m->head_width, none, why);
}

/* Checks the n values of mASS, or of pAID after its label. most: bits of the greatest allowed
 * value. */
static int
check_mass(const struct kv_head *head, const uint8_t *p, uint64_t n, uint32_t most,
    const struct kv_row_store *rows, struct kv_message *why)
{
	const char *wrong = most < F32_INFINITY ? "negative, or not finite" : "negative, or NaN";
	uint64_t i, group = head->model.query_heads / head->model.kv_heads;
	uint32_t g = 0, count;

	for (i = 0; i < n; i++)
		if (get32(p + 4 * i) > most)
			break;
	if (i == n)
		return KV_OK;
	for (; g + 1 < rows->rows.heads && i >= rows->count[g] * group; g++)
		i -= rows->count[g] * group;
	count = rows->count[g];
	return kv_bad(why, "head %u query head %llu row %llu: the value is %s", g,
	    (ull)(g * group + i / count), (ull)(i % count), wrong);
}

static int
check_label(const uint8_t *p, struct kv_message *why)
{
	size_t length = strnlen((const char *)p, KV_SCORE_LABEL);
	json_t *label;

	if (length == KV_SCORE_LABEL || !all_zero(p + length, KV_SCORE_LABEL - length))
		return kv_bad(why, "the label is not filled with zeros");
	label = json_stringn((const char *)p, length);          /* NULL when it is not UTF-8 */
	if (label == NULL)
		return kv_bad(why, "the label is not UTF-8");
	json_decref(label);
	return KV_OK;
}

static int
check_paid(const struct kv_head *head, const struct kv_header *h, const uint8_t *p,
    const struct kv_row_store *rows, struct kv_message *why)
{
	if (check_label(p, why) != KV_OK)
		return why->code;
	return check_mass(head, p + KV_SCORE_LABEL, (h->raw_size - KV_SCORE_LABEL) / 4,
	    F32_INFINITY, rows, why);
}

static int
check_value_norms(const struct kv_head *head, const struct kv_header *h, const uint8_t *p,
    const struct kv_row_store *rows, struct kv_message *why)
{
	if (check_label(p, why) != KV_OK)
		return why->code;
	if (strcmp((const char *)p, "l1") != 0 && strcmp((const char *)p, "l2") != 0)
		return kv_bad(why, "norms '%.20s' are neither l1 nor l2", (const char *)p);
	return check_mass(head, p + KV_SCORE_LABEL, (h->raw_size - KV_SCORE_LABEL) / 4,
	    F32_INFINITY - 1, rows, why);
}

/* Checks a label, and a number for each row behind it. most: bits of the greatest allowed absolute
 * value; sign: F32_SIGN if numbers may be negative, or 0. */
static int
check_scores(const struct kv_header *h, const uint8_t *p, uint32_t most, uint32_t sign,
    const struct kv_row_store *rows, struct kv_message *why)
{
	const char *wrong = sign == 0 ? "negative, or not finite" :
	    most < F32_INFINITY ? "not finite" : "not a number";
	uint64_t i, n = (h->raw_size - KV_SCORE_LABEL) / 4;
	const uint8_t *score = p + KV_SCORE_LABEL;
	uint32_t g = 0;

	if (check_label(p, why) != KV_OK)
		return why->code;
	for (i = 0; i < n; i++)
		if ((get32(score + 4 * i) & ~sign) > most)
			break;
	if (i == n)
		return KV_OK;
	for (; g + 1 < rows->rows.heads && i >= rows->count[g]; g++)
		i -= rows->count[g];
	return kv_bad(why, "head %u row %llu: the score is %s", g, (ull)i, wrong);
}

static int
check_head_keys(const struct kv_head *head, const struct kv_header *h, const uint8_t *p,
    struct kv_message *why)
{
	const uint32_t heads = get32(p + HEAD_KEYS_HEADS), width = get32(p + HEAD_KEYS_WIDTH);
	const uint32_t n = get32(p + HEAD_KEYS_ROWS), features = get32(p + HEAD_KEYS_FEATURES);
	const uint64_t feature_end = HEAD_KEYS_FEATURE + 4 * (uint64_t)features;
	const uint64_t data = head_keys_data(features);
	char id[KV_HEAD_ID + 1] = "";
	uint32_t i;

	memcpy(id, p + HEAD_KEYS_ID, KV_HEAD_ID);
	if (strspn(id, "0123456789abcdef") != KV_HEAD_ID)
		return kv_bad(why, "the retrieval head is not named by %d hexadecimal digits",
		    KV_HEAD_ID);
	if (heads == 0 || heads > 4096 || width == 0 || width > 1024 || width % 2 != 0)
		return kv_bad(why, "%u KV heads of width %u", heads, width);
	if (n == 0 || n > head->next_position)
		return kv_bad(why, "keys of %u tokens, next_position is %u", n,
		    head->next_position);
	if (features > 1 << 24)
		return kv_bad(why, "%u features", features);
	/* below 2^12 * 2^32 * 2^10 * 2^2 */
	if (exactly(h, data + (uint64_t)heads * n * width * kv_dtype_size(head->dtype),
	    why) != KV_OK)
		return why->code;
	if (!all_zero(p + HEAD_KEYS_FIELDS_END, HEAD_KEYS_FEATURE - HEAD_KEYS_FIELDS_END) ||
	    !all_zero(p + feature_end, (size_t)(data - feature_end)))
		return kv_bad(why, "a reserved byte is not zero");
	for (i = 0; i < features; i++)
		if ((get32(p + HEAD_KEYS_FEATURE + 4 * (size_t)i) & 0x7fffffff) >= F32_INFINITY)
			return kv_bad(why, "feature %u is not finite", i);
	return KV_OK;
}

static int
check_provenance_line(const char *line, size_t size, struct kv_message *why)
{
	json_t *o = kv_json_object(line, size, why);

	if (o == NULL)
		return why->code;
	if (!json_is_object(json_object_get(o, "options")))
		kv_bad(why, "options must be an object");
	else if (!json_is_string(json_object_get(o, "tool")))
		kv_bad(why, "tool must be a string");
	else if (!json_is_string(json_object_get(o, "version")))
		kv_bad(why, "version must be a string");
	json_decref(o);
	return why->code;
}

static int
check_provenance(const struct kv_header *h, const uint8_t *p, struct kv_message *why)
{
	const char *line = (const char *)p, *end = line + h->raw_size, *stop;
	struct kv_message wrong = { 0 };
	int n;

	for (n = 1; line < end; n++, line = stop + 1) {
		stop = memchr(line, '\n', (size_t)(end - line));
		if (stop == NULL)
			return kv_bad(why, "line %d has no end", n);
		if (check_provenance_line(line, (size_t)(stop - line), &wrong) != KV_OK)
			return kv_bad(why, "line %d: %.900s", n, wrong.text);
	}
	return KV_OK;
}

int
kv_content_check(const struct kv_head *head, const struct kv_header *h, const uint8_t *data,
    struct kv_row_store *rows, struct kv_message *why)
{
	switch (h->kind) {
	case KV_POSN:
		return kv_rows_get(rows, head, data, h->raw_size, why);
	case KV_SINK:
		return check_sinks(data, h->raw_size / 4, why);
	case KV_OBSQ:
		return check_queries(head, h, data, why);
	case KV_QSTA:
		return check_query_stats(head, h, data, why);
	case KV_MASS:
		return check_mass(head, data, h->raw_size / 4, F32_INFINITY - 1, rows, why);
	case KV_PAID:
		return check_paid(head, h, data, rows, why);
	case KV_VNRM:
		return check_value_norms(head, h, data, rows, why);
	case KV_GATE:
		return check_scores(h, data, F32_INFINITY - 1, F32_SIGN, rows, why);
	case KV_NCAU:
		return check_scores(h, data, F32_INFINITY - 1, 0, rows, why);
	case KV_SCOR:
		return check_scores(h, data, F32_INFINITY, F32_SIGN, rows, why);
	case KV_BITS:
	case KV_PAGE:
	case KV_CLUS:
	case KV_LOWR:
		return kv_keyindex_check(head, h, data, rows, why);
	case KV_RHDK:
		return check_head_keys(head, h, data, why);
	case KV_EVNT:
		return kv_events_check(head, data, h->raw_size, why);
	case KV_PROV:
		return check_provenance(h, data, why);
	default:
		return KV_OK;
	}
}
