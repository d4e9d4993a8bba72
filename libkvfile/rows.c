/* rows.c - the POSN section: the rows of a layer (4.3) */

#include "content.h"
#include "bytes.h"

#include <stdlib.h>

uint64_t
kv_rows_total(const struct kv_rows *rows)
{
	uint64_t sum = 0;
	uint32_t g;

	for (g = 0; g < rows->heads; g++)
		sum += rows->count[g];
	return sum;
}

uint32_t
kv_rows_before(const uint32_t *pos, uint32_t n, uint64_t limit)
{
	uint32_t low = 0, mid;

	while (low < n) {
		mid = low + (n - low) / 2;
		if (pos[mid] < limit)
			low = mid + 1;
		else
			n = mid;
	}
	return low;
}

static int
check_ascending(const uint32_t *pos, uint32_t n, uint32_t next, uint32_t g, struct kv_message *why)
{
	uint32_t i;

	for (i = 1; i < n; i++)
		if (pos[i] <= pos[i - 1])
			return kv_bad(why, "head %u row %u: position %u after %u, must ascend",
			    g, i, pos[i], pos[i - 1]);
	if (n > 0 && pos[n - 1] >= next)
		return kv_bad(why, "head %u row %u: position %u, next_position is %u", g,
		    n - 1, pos[n - 1], next);
	return KV_OK;
}

static int
allocate(struct kv_row_store *s, uint32_t heads, uint64_t listed, struct kv_message *why)
{
	if (s->count == NULL) {
		s->count = calloc(heads, sizeof *s->count);
		s->pos = calloc(heads, sizeof *s->pos);
	}
	if (s->count == NULL || s->pos == NULL || listed > SIZE_MAX / 8 ||
	    kv_buffer_need(&s->positions, (size_t)listed * 4 + 4, 0, UINT64_MAX) != 0)
		return kv_say(why, KV_ENOMEM, "no memory for %llu positions", (ull)listed);
	s->rows.heads = heads;
	s->rows.count = s->count;
	s->rows.pos = s->pos;
	return KV_OK;
}

int
kv_rows_get(struct kv_row_store *s, const struct kv_head *head, const uint8_t *data, uint64_t size,
    struct kv_message *why)
{
	uint32_t g, i, lists = get32(data), heads = head->model.kv_heads;
	uint32_t next = head->next_position, *pos;
	uint64_t listed = 0;
	const uint8_t *from;

	if (lists != 1 && lists != heads)
		return kv_bad(why, "%u lists of positions, must be 1 or %u", lists,
		    heads);
	if (size < 4 + 4 * (uint64_t)lists)
		return kv_bad(why, "%llu bytes cannot hold the lengths of %u lists",
		    (ull)size, lists);
	for (i = 0; i < lists; i++)
		listed += get32(data + 4 + 4 * i);
	if (size != 4 + 4 * (uint64_t)lists + 4 * listed)
		return kv_bad(why, "%llu bytes of content, %llu rows need %llu",
		    (ull)size, (ull)listed,
		    (ull)(4 + 4 * (uint64_t)lists + 4 * listed));
	if (allocate(s, heads, listed, why) != KV_OK)
		return why->code;
	pos = (uint32_t *)(void *)s->positions.data;
	from = data + 4 + 4 * (size_t)lists;
	for (g = 0; g < heads; g++) {
		s->count[g] = get32(data + 4 + (lists == 1 ? 0 : 4 * (size_t)g));
		s->pos[g] = pos;
		if (lists == 1 && g > 0) {
			s->pos[g] = s->pos[0];
			continue;
		}
		for (i = 0; i < s->count[g]; i++)
			pos[i] = get32(from + 4 * (size_t)i);
		if (check_ascending(pos, s->count[g], next, g, why) != KV_OK)
			return why->code;
		pos += s->count[g];
		from += 4 * (size_t)s->count[g];
	}
	s->total = kv_rows_total(&s->rows);
	s->has_keys = 0;
	return KV_OK;
}

int
kv_rows_agree(const struct kv_rows *rows)
{
	uint32_t g;

	for (g = 1; g < rows->heads; g++) {
		if (rows->count[g] != rows->count[0])
			return 0;
		if (rows->count[0] > 0 && rows->pos[g] != rows->pos[0] &&
		    memcmp(rows->pos[g], rows->pos[0], (size_t)4 * rows->count[0]) != 0)
			return 0;
	}
	return 1;
}

int
kv_rows_put(const struct kv_rows *rows, const struct kv_head *head, uint8_t **data, size_t *size,
    struct kv_message *why)
{
	uint32_t g, i, lists, next = head->next_position;
	uint64_t listed = 0;
	uint8_t *p;

	if (rows->heads != head->model.kv_heads)
		return kv_say(why, KV_EINVAL, "rows of %u KV heads for a model with %u",
		    rows->heads, head->model.kv_heads);
	lists = kv_rows_agree(rows) ? 1 : rows->heads;
	for (g = 0; g < lists; g++) {
		if (check_ascending(rows->pos[g], rows->count[g], next, g, why) != KV_OK)
			return why->code = KV_EINVAL;
		listed += rows->count[g];
	}
	*size = 4 + 4 * (size_t)lists + 4 * (size_t)listed;
	*data = p = malloc(*size);
	if (p == NULL)
		return kv_say(why, KV_ENOMEM, "no memory for %llu positions", (ull)listed);
	put32(p, lists);
	for (g = 0; g < lists; g++)
		put32(p += 4, rows->count[g]);
	p += 4;
	for (g = 0; g < lists; g++)
		for (i = 0; i < rows->count[g]; i++, p += 4)
			put32(p, rows->pos[g][i]);
	return KV_OK;
}

void
kv_row_store_free(struct kv_row_store *s)
{
	free(s->count);
	free(s->pos);
	kv_buffer_free(&s->positions);
	memset(s, 0, sizeof *s);
}
