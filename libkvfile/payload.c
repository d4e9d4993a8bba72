/* payload.c - the content of a reader's current section: loading and checking it
 *
 * A block's stored hash is checked when it has been read, its raw hash when it has been
 * decoded; nothing uses the bytes before. Memory is allocated as blocks arrive, never by what a
 * header promises. */

#include "block.h"
#include "bytes.h"
#include "reader.h"
#include "writer.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* Names the rows in block i: ", head 1 rows 1200-1300", or nothing if there are none. */
static void
locate_rows(const struct kv_reader *r, uint64_t i, char *text, size_t size)
{
	const struct kv_rows *rows = &r->rows.rows;
	uint64_t start = 0, width, row[2], last;
	uint32_t g[2] = { 0, 0 };
	int k;

	text[0] = '\0';
	if (r->h.kind == KV_SCOR) {
		start = KV_SCORE_LABEL;
		width = 4;
	} else if ((r->h.kind == KV_KEYS || r->h.kind == KV_VALS) &&
	    r->h.raw_size > 0 && (r->head.residual == 0 ||
	    !kv_row_type_quantised(kv_head_row_type(&r->head, r->h.kind, r->h.layer))))
		width = kv_head_row_bytes(&r->head, r->h.kind, r->h.layer);
	else
		return;
	last = i * KV_BLOCK + kv_block_size(r->h.raw_size, i) - 1;
	if (!r->has_rows || r->rows.total == 0 || last < start)
		return;
	row[0] = i * KV_BLOCK < start ? 0 : (i * KV_BLOCK - start) / width;
	row[1] = (last - start) / width;
	for (k = 0; k < 2; k++)
		while (g[k] + 1 < rows->heads && row[k] >= rows->count[g[k]])
			row[k] -= rows->count[g[k]++];
	if (g[0] == g[1])
		snprintf(text, size, ", head %u rows %" PRIu64 "-%" PRIu64, g[0], row[0], row[1]);
	else
		snprintf(text, size, ", head %u row %" PRIu64 " to head %u row %" PRIu64, g[0],
		    row[0], g[1], row[1]);
}

static int
fail_block(struct kv_reader *r, uint64_t i, uint64_t offset, const char *what)
{
	char label[KV_LABEL], rows[120];

	locate_rows(r, i, rows, sizeof rows);
	return kv_bad(&r->error, "%.600s: %s block %" PRIu64 " at byte %" PRIu64 "%s: %s",
	    r->name, kv_label(label, r->h.type, r->h.layer), i, offset, rows, what);
}

static int
no_memory(struct kv_reader *r)
{
	return kv_reader_fail(r, KV_ENOMEM, "no memory");
}

/* Returns memory for one block of the current section; NULL: no memory. */
static uint8_t *
scratch(struct kv_reader *r, enum kv_scratch which)
{
	struct kv_buffer *b = &r->scratch[which];

	if (kv_buffer_need(b, r->blocks > 0 ? kv_block_size(r->h.raw_size, 0) : 1, 0,
	    KV_BLOCK) != 0)
		return NULL;
	return b->data;
}

static void
entry_of(const struct kv_reader *r, uint64_t i, struct kv_entry *e)
{
	kv_entry_get(r->table + KV_ENTRY * i, e);
}

/* buf <- the next block as it is stored */
static int
take_block(struct kv_reader *r, uint64_t i, const struct kv_entry *e, uint8_t *buf)
{
	uint64_t offset = r->in.pos;
	int taken, same;

	kv_watch_begin(r->in.watch, KV_DOING_READ);
	taken = kv_input_take(&r->in, buf, e->stored, NULL) == 0;
	same = taken && kv_same_hash(e->stored_hash, kv_hash(buf, e->stored));
	kv_watch_end(r->in.watch);
	if (!taken)
		return kv_reader_short(r, NULL, i);
	return same ? KV_OK : fail_block(r, i, offset, "checksum mismatch");
}

static int
decode_block(struct kv_reader *r, uint64_t i, const struct kv_entry *e, const uint8_t *stored,
    uint8_t *dst)
{
	size_t size = kv_block_size(r->h.raw_size, i);
	uint8_t *planes = scratch(r, SCRATCH_PLANES);
	int decoded, same;

	if (planes == NULL)
		return no_memory(r);
	kv_watch_begin(r->in.watch, KV_DOING_READ);
	decoded = kv_block_decode(dst, size, stored, e->stored, e->codec, r->h.element_size,
	    planes) == 0;
	same = decoded && kv_same_hash(e->raw_hash, kv_hash(dst, size));
	kv_watch_end(r->in.watch);
	if (!decoded)
		return fail_block(r, i, r->in.pos - e->stored, "cannot be decompressed");
	if (!same)
		return fail_block(r, i, r->in.pos - e->stored, "decompressed: checksum mismatch");
	return KV_OK;
}

int
kv_payload_end(struct kv_reader *r)
{
	uint8_t fill[64];
	size_t n = (size_t)(round64(r->h.stored_size) - r->h.stored_size);
	uint64_t offset = r->in.pos;

	if (kv_input_take(&r->in, fill, n, NULL) != 0)
		return kv_reader_short(r, "fill after the payload", 0);
	if (!all_zero(fill, n))
		return kv_reader_fail(r, KV_ECORRUPT, "the fill at byte %" PRIu64 " is not zero",
		    offset);
	kv_label(r->whole, r->h.type, r->h.layer);
	return KV_OK;
}

/* Checks content that has rules, and keeps what later sections are checked against. */
static int
check_content(struct kv_reader *r, const uint8_t *content)
{
	struct kv_message why;

	if (!kv_content_is_checked(r->h.kind))
		return KV_OK;
	if (kv_content_check(&r->head, &r->h, content, &r->rows, &why) != KV_OK)
		return kv_reader_fail(r, why.code, "%s", why.text);
	r->has_rows |= r->h.kind == KV_POSN;
	if (r->h.kind == KV_POSN && r->in.watch != NULL)
		r->in.watch->rows_in += r->rows.total;
	if (r->h.kind != KV_PROV)
		return KV_OK;
	r->provenance = malloc((size_t)r->h.raw_size + 1);
	if (r->provenance == NULL)
		return no_memory(r);
	if (r->h.raw_size > 0)
		memcpy(r->provenance, content, (size_t)r->h.raw_size);
	r->provenance[r->h.raw_size] = '\0';
	return KV_OK;
}

/* Checks the next n bytes of content, if they are quantised rows. */
static int
check_rows(struct kv_reader *r, const uint8_t *part, size_t n)
{
	struct kv_message why;

	if (kv_row_check(&r->row_check, &r->rows.rows, part, n, &why) != KV_OK)
		return kv_reader_fail(r, why.code, "%s", why.text);
	return KV_OK;
}

/* Loads block i into content_memory. aside: bytes of compressed blocks so far, for kv_copy(). */
static int
load_block(struct kv_reader *r, uint64_t i, size_t *aside)
{
	size_t at = (size_t)i * KV_BLOCK, size = kv_block_size(r->h.raw_size, i);
	struct kv_buffer *memory = &r->content_memory;
	struct kv_entry e;
	uint8_t *to;

	entry_of(r, i, &e);
	if (kv_buffer_need(memory, at + size, at, r->h.raw_size) != 0)
		return no_memory(r);
	to = memory->data + at;
	if (e.codec != CODEC_PLAIN) {
		if (kv_buffer_need(&r->aside, *aside + e.stored, *aside, r->h.stored_size) != 0)
			return no_memory(r);
		to = r->aside.data + *aside;
		*aside += e.stored;
	}
	if (take_block(r, i, &e, to) != KV_OK)
		return r->error.code;
	return e.codec == CODEC_PLAIN ? KV_OK : decode_block(r, i, &e, to, memory->data + at);
}

int
kv_payload_load(struct kv_reader *r)
{
	int code = KV_OK;
	size_t aside = 0;
	uint64_t i;

	if (r->h.raw_size > SIZE_MAX / 2)
		return no_memory(r);
	for (i = 0; i < r->blocks && code == KV_OK; i++)
		code = load_block(r, i, &aside);
	r->content = r->blocks > 0 ? r->content_memory.data : NULL;
	if (code != KV_OK || check_rows(r, r->content, (size_t)r->h.raw_size) != KV_OK ||
	    kv_payload_end(r) != KV_OK || check_content(r, r->content) != KV_OK)
		return r->error.code;
	r->state = STATE_LOADED;
	return KV_OK;
}

int
kv_payload_stored(struct kv_reader *r, uint64_t i, const struct kv_entry *e, const uint8_t **block)
{
	uint8_t *to = scratch(r, SCRATCH_STORED);

	*block = to;
	return to != NULL ? take_block(r, i, e, to) : no_memory(r);
}

int
kv_payload_next(struct kv_reader *r, const uint8_t **part, size_t *size)
{
	const uint64_t i = r->next++;
	uint8_t *stored = scratch(r, SCRATCH_STORED), *decoded = scratch(r, SCRATCH_DECODED);
	struct kv_entry e;

	if (stored == NULL || decoded == NULL)
		return no_memory(r);
	entry_of(r, i, &e);
	*size = kv_block_size(r->h.raw_size, i);
	if (take_block(r, i, &e, stored) != KV_OK)
		return r->error.code;
	*part = e.codec == CODEC_PLAIN ? stored : decoded;
	if (e.codec != CODEC_PLAIN && decode_block(r, i, &e, stored, decoded) != KV_OK)
		return r->error.code;
	return check_rows(r, *part, *size);
}

int
kv_payload_check(struct kv_reader *r)
{
	const uint8_t *part;
	size_t size;

	if (kv_content_is_checked(r->h.kind))
		return kv_payload_load(r);
	while (r->next < r->blocks)
		if (kv_payload_next(r, &part, &size) != KV_OK)
			return r->error.code;
	return kv_payload_end(r);
}
