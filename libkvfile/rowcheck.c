/* rowcheck.c - checks quantised rows as their bytes pass */

#include "rowcheck.h"

#include <string.h>

void
kv_row_check_start(struct kv_row_check *c, const struct kv_head *head, const struct kv_header *h)
{
	const size_t width = head->model.head_width;
	enum kv_row_type type = 0;

	if (h->kind == KV_KEYS || h->kind == KV_VALS)
		type = kv_row_type_base(kv_head_row_type(head, h->kind, h->layer));
	c->type = kv_row_type_quantised(type) ? type : 0;
	if (c->type == 0)
		return;
	c->width = kv_row_type_multiple(type) > 1 ? kv_row_type_multiple(type) : width;
	c->bytes = kv_row_bytes(type, c->width);
	c->in_row = width / c->width;
	c->n = 0;
	c->have = 0;
}

/* Says which row has unit i. */
static int
refuse(const struct kv_row_check *c, const struct kv_rows *rows, uint64_t i,
    struct kv_message *why)
{
	uint64_t row = i / c->in_row;
	uint32_t g;

	for (g = 0; g + 1 < rows->heads && row >= rows->count[g]; g++)
		row -= rows->count[g];
	return kv_bad(why, "head %u row %llu: no row of %s: a number in it is not finite", g,
	    (ull)row, kv_row_type_name(c->type));
}

/* Checks n whole units. */
static int
check_units(struct kv_row_check *c, const struct kv_rows *rows, const uint8_t *data, size_t n,
    struct kv_message *why)
{
	const size_t good = kv_rows_check(data, c->type, c->width, n);

	if (good < n)
		return refuse(c, rows, c->n + good, why);
	c->n += n;
	return KV_OK;
}

int
kv_row_check(struct kv_row_check *c, const struct kv_rows *rows, const uint8_t *data, size_t n,
    struct kv_message *why)
{
	size_t some;

	if (c->type == 0 || n == 0)
		return KV_OK;
	if (c->have > 0) {
		some = c->bytes - c->have < n ? c->bytes - c->have : n;
		memcpy(c->part + c->have, data, some);
		c->have += some;
		data += some;
		n -= some;
		if (c->have < c->bytes)
			return KV_OK;
		c->have = 0;
		if (check_units(c, rows, c->part, 1, why) != KV_OK)
			return why->code;
	}
	if (check_units(c, rows, data, n / c->bytes, why) != KV_OK)
		return why->code;
	c->have = n % c->bytes;
	memcpy(c->part, data + n - c->have, c->have);
	return KV_OK;
}
