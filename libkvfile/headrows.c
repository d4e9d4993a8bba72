/* headrows.c - the rows of a KV head in KEYS and VALS as numbers, of any type, 4.4, 4.20, 4.21 */
#include "kvfile.h"

uint32_t
kv_head_coded(const struct kv_head *head, enum kv_kind kind, uint32_t layer, uint32_t rows)
{
	const enum kv_row_type type = kv_head_row_type(head, kind, layer);

	return kind == KV_KEYS ? kv_coded_keys(type, rows, head->residual) :
	    kv_coded_values(type, rows, head->residual);
}

uint64_t
kv_head_bytes(const struct kv_head *head, enum kv_kind kind, uint32_t layer, uint32_t rows)
{
	const uint64_t coded = kv_head_coded(head, kind, layer, rows);

	if (kind == KV_VALS && head->model.latent_rank != 0)
		return 0;
	return coded * kv_head_row_bytes(head, kind, layer) +
	    (rows - coded) * head->model.head_width * kv_dtype_size(head->dtype);
}

int
kv_head_is_grouped(const struct kv_head *head)
{
	uint32_t l;

	for (l = 0; l < head->model.layers && l < KV_LAYERS_MOST; l++)
		if (kv_row_type_kivi((enum kv_row_type)head->key_type[l]) ||
		    kv_row_type_kivi((enum kv_row_type)head->value_type[l]))
			return 1;
	return 0;
}

/* Where row `row` of a KV head with so many coded ones begins */
static size_t
place(const struct kv_head *head, enum kv_kind kind, uint32_t layer, uint32_t coded, uint32_t row)
{
	const size_t full = head->model.head_width * kv_dtype_size(head->dtype);
	const size_t before = row < coded ? row : coded;

	return before * kv_head_row_bytes(head, kind, layer) + (row - before) * full;
}

/* How many of rows first .. first+n-1 lie before `coded` */
static uint32_t
coded_of(uint32_t coded, uint32_t first, uint32_t n)
{
	const uint32_t left = coded > first ? coded - first : 0;

	return left < n ? left : n;
}

void
kv_head_rows_to_f32(float *dst, const struct kv_head *head, enum kv_kind kind, uint32_t layer,
    const void *content, uint32_t rows, uint32_t first, uint32_t n)
{
	const enum kv_row_type type = kv_head_row_type(head, kind, layer);
	const size_t E = head->model.head_width;
	const uint32_t coded = kv_head_coded(head, kind, layer, rows);
	const uint32_t in_codes = coded_of(coded, first, n);
	const char *from = content;
	uint32_t i;

	if (kind != KV_KEYS || !kv_row_type_kivi(type))
		kv_rows_to_f32(dst, from + place(head, kind, layer, coded, first), type, E,
		    in_codes);
	else
		for (i = 0; i < in_codes; i += KV_GROUP_ROWS)
			kv_group_to_f32(dst + i * E, from + place(head, kind, layer, coded,
			    first + i), type, E);
	kv_to_f32(dst + in_codes * E, from + place(head, kind, layer, coded, first + in_codes),
	    head->dtype, (n - in_codes) * E);
}

uint32_t
kv_head_rows_from_f32(void *content, const float *src, const struct kv_head *head,
    enum kv_kind kind, uint32_t layer, uint32_t rows, uint32_t first, uint32_t n)
{
	const enum kv_row_type type = kv_head_row_type(head, kind, layer);
	const size_t E = head->model.head_width;
	const uint32_t coded = kv_head_coded(head, kind, layer, rows);
	const uint32_t in_codes = coded_of(coded, first, n);
	char *to = content;
	uint32_t i = 0;

	if (kind != KV_KEYS || !kv_row_type_kivi(type))
		i = (uint32_t)kv_rows_from_f32(to + place(head, kind, layer, coded, first), src,
		    type, E, in_codes);
	else
		while (i < in_codes && kv_group_from_f32(to + place(head, kind, layer, coded,
		    first + i), src + i * E, type, E))
			i += KV_GROUP_ROWS;
	if (i < in_codes)
		return i;
	kv_from_f32(to + place(head, kind, layer, coded, first + in_codes), src + in_codes * E,
	    head->dtype, (n - in_codes) * E);
	return n;
}
