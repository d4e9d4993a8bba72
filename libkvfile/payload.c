/* payload.c - the content of a reader's current section: loading, checking, copying it
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
	    (r->head.residual == 0 ||
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

/* ---- kv_copy() ---- */

/* Returns the stored blocks of the current section one after another, read now or when it was
 * loaded. */
struct walk {
	struct kv_reader *r;
	uint64_t i;
	size_t aside;
};

static int
next_stored(struct walk *w, struct kv_entry *e, const uint8_t **stored)
{
	struct kv_reader *r = w->r;
	uint64_t i = w->i++;

	entry_of(r, i, e);
	if (r->state == STATE_FRESH) {
		*stored = scratch(r, SCRATCH_STORED);
		return take_block(r, i, e, scratch(r, SCRATCH_STORED));
	}
	if (e->codec == CODEC_PLAIN)
		*stored = r->content + i * KV_BLOCK;
	else {
		*stored = r->aside.data + w->aside;
		w->aside += e->stored;
	}
	return KV_OK;
}

static int
has_plain_block(const struct kv_reader *r)
{
	uint64_t i;

	for (i = 0; i < r->blocks; i++)
		if (r->table[KV_ENTRY * i + 4] == CODEC_PLAIN)
			return 1;
	return 0;
}

/* Copies as stored, block by block. */
static int
copy_stored(struct kv_reader *r, struct kv_writer *w)
{
	struct walk walk = { r, 0, 0 };
	const uint8_t *stored;
	struct kv_header h = r->h;
	struct kv_entry e;
	int code = kv_writer_begin(w, &h, r->table);

	while (code == KV_OK && walk.i < r->blocks) {
		code = next_stored(&walk, &e, &stored);
		if (code == KV_OK)
			code = kv_writer_payload(w, stored, e.stored);
	}
	return code == KV_OK ? kv_writer_end(w) : code;
}

/* Copies with uncompressed blocks compressed. The table comes first and is known last, so
 * compressed blocks are kept. */
static int
copy_compressed(struct kv_reader *r, struct kv_writer *w)
{
	struct walk walk = { r, 0, 0 };
	struct kv_span whole;
	const uint8_t *stored;
	struct kv_entry e;
	int code = KV_OK;

	if (r->h.stored_size == r->h.raw_size && r->state == STATE_LOADED) {
		whole.data = r->content;
		whole.size = (size_t)r->h.raw_size;
		return kv_write(w, r->h.type, r->h.layer, r->h.element_size, &whole, 1);
	}
	kv_pack_start(kv_writer_pack(w), r->h.element_size);
	while (code == KV_OK && walk.i < r->blocks) {
		code = next_stored(&walk, &e, &stored);
		if (code == KV_OK &&
		    kv_pack_stored(kv_writer_pack(w), &e, stored, r->h.raw_size) != 0)
			code = no_memory(r);
	}
	return code == KV_OK ? kv_writer_packed(w, r->h.type, r->h.layer, r->h.raw_size) : code;
}

/* Copies a section that must come after the provenance, which is written last. */
static int
copy_late(struct kv_reader *r, struct kv_writer *w)
{
	struct walk walk = { r, 0, 0 };
	const uint8_t *stored;
	uint8_t bytes[KV_HEADER];
	struct kv_entry e;
	int code;

	kv_header_put(bytes, &r->h);
	code = kv_writer_late(w, bytes, sizeof bytes);
	if (code == KV_OK)
		code = kv_writer_late(w, r->table, (size_t)kv_table_size(r->h.raw_size));
	while (code == KV_OK && walk.i < r->blocks) {
		code = next_stored(&walk, &e, &stored);
		if (code == KV_OK)
			code = kv_writer_late(w, stored, e.stored);
	}
	return code;
}

static int
copy_section(struct kv_reader *r, struct kv_writer *w)
{
	int code;

	if (r->error.code != KV_OK)
		return r->error.code;
	if (r->state != STATE_FRESH && r->state != STATE_LOADED)
		return kv_reader_fail(r, KV_EINVAL, "kv_copy() without a section, or again");
	/* Content to be checked is checked before any of it is written; it is small. */
	if (r->state == STATE_FRESH && kv_content_is_checked(r->h.kind) &&
	    kv_payload_load(r) != KV_OK)
		goto damaged;
	if (scratch(r, SCRATCH_STORED) == NULL) {
		no_memory(r);
		goto damaged;
	}
	if ((r->h.kind == KV_KEYS || r->h.kind == KV_VALS) &&
	    !kv_head_same_type(&r->head, kv_writer_head(w), r->h.kind, r->h.layer))
		return kv_writer_refuse(w, r->h.kind, r->h.layer,
		    "its rows have another type here");
	if (r->h.kind == KV_POSN || kv_kind_is(r->h.kind, KV_INDEX)) {
		code = kv_writer_content(w, &r->h, r->content);
		if (code != KV_OK)
			return code;
	}
	if (r->h.kind == KV_POSN && r->in.watch != NULL)
		r->in.watch->rows_out += r->rows.total;
	if (r->h.kind == KV_PROV)
		code = kv_inherit(w, r);
	else if (r->provenance != NULL)
		code = copy_late(r, w);
	else if (kv_writer_compresses(w) && has_plain_block(r))
		code = copy_compressed(r, w);
	else
		code = copy_stored(r, w);
	if (r->error.code != KV_OK)
		goto damaged;
	if (code != KV_OK)
		return code;
	if (r->state == STATE_FRESH && kv_payload_end(r) != KV_OK)
		goto damaged;
	r->state = STATE_PASSED;
	return KV_OK;
damaged:
	kv_writer_abandon(w, r->error.code, r->error.text);
	return r->error.code;
}

int
kv_copy(struct kv_reader *r, struct kv_writer *w)
{
	int code;

	kv_watch_begin(r->in.watch, KV_DOING_WRITE);
	code = copy_section(r, w);
	kv_watch_end(r->in.watch);
	return code;
}

int
kv_copy_unknown(struct kv_reader *r, struct kv_writer *w, int rows_changed)
{
	int code;

	if (r->error.code != KV_OK)
		return r->error.code;
	if (rows_changed && kv_is_critical(r->h.type))
		return kv_reader_fail(r, KV_EINVAL, "critical, and the caller does not know it");
	if (rows_changed && !kv_is_safe(r->h.type))
		return 0;
	code = kv_copy(r, w);
	return code == KV_OK ? 1 : code;
}
