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
	c->head = head;
	c->kind = h->kind;
	c->layer = h->layer;
	c->width = kv_row_type_multiple(type) > 1 ? kv_row_type_multiple(type) : width;
	c->bytes = kv_row_bytes(type, c->width);
	c->in_row = width / c->width;
	c->g = UINT32_MAX;
	c->coded = c->full = 0;
	c->have = 0;
}

/* Goes on to the next KV head that has rows. Returns 0 where there is none. */
static int
next_head(struct kv_row_check *c, const struct kv_rows *rows)
{
	uint32_t count;

	while (c->coded == 0 && c->full == 0) {
		if (++c->g >= rows->heads)
			return 0;
		count = rows->count[c->g];
		c->coded = (uint64_t)kv_head_coded(c->head, c->kind, c->layer, count) * c->in_row *
		    c->bytes;
		c->full = kv_head_bytes(c->head, c->kind, c->layer, count) - c->coded;
		c->n = 0;
	}
	return 1;
}

/* Says which row, or group of rows, has unit i of the KV head. */
static int
refuse(const struct kv_row_check *c, uint64_t i, struct kv_message *why)
{
	const char *type = kv_row_type_name(c->type);
	const uint64_t width = c->head->model.head_width;

	if (kv_row_type_kivi(c->type) && c->kind == KV_KEYS)
		return kv_bad(why, "head %u rows %llu-%llu channel %llu: no keys of %s: a scale "
		    "or minimum is not finite", c->g, (ull)(i / width * KV_GROUP_ROWS),
		    (ull)(i / width * KV_GROUP_ROWS + KV_GROUP_ROWS - 1), (ull)(i % width), type);
	return kv_bad(why, "head %u row %llu: no row of %s: a number in it is not finite", c->g,
	    (ull)(i / c->in_row), type);
}

/* Checks n whole units. */
static int
check_units(struct kv_row_check *c, const uint8_t *data, size_t n, struct kv_message *why)
{
	const size_t good = kv_rows_check(data, c->type, c->width, n);

	if (good < n)
		return refuse(c, c->n + good, why);
	c->n += n;
	return KV_OK;
}

/* Checks n bytes of the units of one KV head. */
static int
check_coded(struct kv_row_check *c, const uint8_t *data, size_t n, struct kv_message *why)
{
	size_t some;

	if (c->have > 0) {
		some = c->bytes - c->have < n ? c->bytes - c->have : n;
		memcpy(c->part + c->have, data, some);
		c->have += some;
		data += some;
		n -= some;
		if (c->have < c->bytes)
			return KV_OK;
		c->have = 0;
		if (check_units(c, c->part, 1, why) != KV_OK)
			return why->code;
	}
	if (check_units(c, data, n / c->bytes, why) != KV_OK)
		return why->code;
	c->have = n % c->bytes;
	memcpy(c->part, data + n - c->have, c->have);
	return KV_OK;
}

int
kv_row_check(struct kv_row_check *c, const struct kv_rows *rows, const uint8_t *data, size_t n,
    struct kv_message *why)
{
	size_t some;

	for (; c->type != 0 && n > 0 && next_head(c, rows); data += some, n -= some) {
		if (c->coded > 0) {
			some = c->coded < n ? (size_t)c->coded : n;
			c->coded -= some;
			if (check_coded(c, data, some, why) != KV_OK)
				return why->code;
		} else {
			some = c->full < n ? (size_t)c->full : n;
			c->full -= some;
		}
	}
	return KV_OK;
}
