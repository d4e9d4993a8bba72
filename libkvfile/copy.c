/* copy.c - copying sections as they are stored: the reader's current one, or one that is held
 *
 * Blocks are checked and not decoded. A fresh section is read block by block while it is written,
 * so that no memory holds it. */

#include "block.h"
#include "reader.h"
#include "writer.h"

#include <stdlib.h>

/* A section whose blocks next_stored() returns one after another */
struct stored {
	const struct kv_header *h;
	const uint8_t *table;
	const uint8_t *content, *aside; /* whole; its compressed blocks as they are stored */
	struct kv_reader *fresh;        /* NULL: blocks are in memory */
	uint64_t blocks, i;
	size_t at;                      /* in aside */
};

struct kv_held {
	struct kv_header h;
	uint64_t blocks;
	struct kv_buffer table, content, aside;
	struct kv_head head;            /* of its snapshot */
};

static struct stored
stored_of(struct kv_reader *r)
{
	return (struct stored){ .h = &r->h, .table = r->table, .content = r->content,
		.aside = r->aside.data, .fresh = r->state == STATE_FRESH ? r : NULL,
		.blocks = r->blocks };
}

static int
no_memory(struct stored *s, struct kv_writer *w)
{
	return s->fresh != NULL ? kv_reader_fail(s->fresh, KV_ENOMEM, "no memory") :
	    kv_writer_refuse(w, s->h->kind, s->h->layer, "no memory");
}

static int
next_stored(struct stored *s, struct kv_entry *e, const uint8_t **block)
{
	const uint64_t i = s->i++;

	kv_entry_get(s->table + KV_ENTRY * i, e);
	if (s->fresh != NULL)
		return kv_payload_stored(s->fresh, i, e, block);
	if (e->codec == CODEC_PLAIN)
		*block = s->content + i * KV_BLOCK;
	else {
		*block = s->aside + s->at;
		s->at += e->stored;
	}
	return KV_OK;
}

static int
has_plain_block(const struct stored *s)
{
	uint64_t i;

	for (i = 0; i < s->blocks; i++)
		if (s->table[KV_ENTRY * i + 4] == CODEC_PLAIN)
			return 1;
	return 0;
}

/* Copies as stored, block by block. */
static int
copy_stored(struct stored *s, struct kv_writer *w)
{
	const uint8_t *block;
	struct kv_header h = *s->h;
	struct kv_entry e;
	int code = kv_writer_begin(w, &h, s->table);

	while (code == KV_OK && s->i < s->blocks) {
		code = next_stored(s, &e, &block);
		if (code == KV_OK)
			code = kv_writer_payload(w, block, e.stored);
	}
	return code == KV_OK ? kv_writer_end(w) : code;
}

/* Copies with uncompressed blocks compressed. The table comes first and is known last, so
 * compressed blocks are kept. */
static int
copy_compressed(struct stored *s, struct kv_writer *w)
{
	struct kv_span whole;
	const uint8_t *block;
	struct kv_entry e;
	int code = KV_OK;

	if (s->h->stored_size == s->h->raw_size && s->fresh == NULL) {
		whole.data = s->content;
		whole.size = (size_t)s->h->raw_size;
		return kv_write(w, s->h->type, s->h->layer, s->h->element_size, &whole, 1);
	}
	kv_pack_start(kv_writer_pack(w), s->h->element_size);
	while (code == KV_OK && s->i < s->blocks) {
		code = next_stored(s, &e, &block);
		if (code == KV_OK &&
		    kv_pack_stored(kv_writer_pack(w), &e, block, s->h->raw_size) != 0)
			code = no_memory(s, w);
	}
	return code == KV_OK ?
	    kv_writer_packed(w, s->h->type, s->h->layer, s->h->raw_size) : code;
}

/* Copies a section that must come after the provenance, which is written last. */
static int
copy_late(struct stored *s, struct kv_writer *w)
{
	struct kv_header h = *s->h;
	const uint8_t *block;
	uint8_t bytes[KV_HEADER];
	struct kv_entry e;
	int code;

	kv_header_put(bytes, &h);
	code = kv_writer_late(w, bytes, sizeof bytes);
	if (code == KV_OK)
		code = kv_writer_late(w, s->table, (size_t)kv_table_size(s->h->raw_size));
	while (code == KV_OK && s->i < s->blocks) {
		code = next_stored(s, &e, &block);
		if (code == KV_OK)
			code = kv_writer_late(w, block, e.stored);
	}
	return code;
}

/* Checks that the section may follow what w has. head: of its snapshot */
static int
check(const struct stored *s, const struct kv_head *head, struct kv_writer *w)
{
	const enum kv_kind kind = s->h->kind;

	if ((kind == KV_KEYS || kind == KV_VALS) &&
	    !kv_head_same_type(head, kv_writer_head(w), kind, s->h->layer))
		return kv_writer_refuse(w, kind, s->h->layer, "its rows have another type here");
	if (kind == KV_POSN || kv_kind_is(kind, KV_INDEX))
		return kv_writer_content(w, s->h, s->content);
	return KV_OK;
}

static int
copy_blocks(struct stored *s, struct kv_writer *w)
{
	return kv_writer_compresses(w) && has_plain_block(s) ? copy_compressed(s, w) :
	    copy_stored(s, w);
}

static int
copy_section(struct kv_reader *r, struct kv_writer *w)
{
	struct stored s;
	int code;

	if (r->error.code != KV_OK)
		return r->error.code;
	if (r->state != STATE_FRESH && r->state != STATE_LOADED)
		return kv_reader_fail(r, KV_EINVAL, "kv_copy() without a section, or again");
	/* Content to be checked is checked before any of it is written; it is small. */
	if (r->state == STATE_FRESH && kv_content_is_checked(r->h.kind) &&
	    kv_payload_load(r) != KV_OK)
		goto damaged;
	s = stored_of(r);
	if ((code = check(&s, &r->head, w)) != KV_OK)
		return code;
	if (r->h.kind == KV_POSN && r->in.watch != NULL)
		r->in.watch->rows_out += r->rows.total;
	if (r->h.kind == KV_PROV)
		code = kv_inherit(w, r);
	else if (r->provenance != NULL)
		code = copy_late(&s, w);
	else
		code = copy_blocks(&s, w);
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

/* ---- held sections ---- */

int
kv_hold(struct kv_reader *r, struct kv_held **out)
{
	struct kv_held *held;

	*out = NULL;
	if (r->error.code != KV_OK)
		return r->error.code;
	if ((r->state != STATE_FRESH && r->state != STATE_LOADED) || r->h.kind == KV_POSN ||
	    r->h.kind == KV_PROV || r->provenance != NULL)
		return kv_reader_fail(r, KV_EINVAL, "kv_hold() without a section among the "
		    "layers, of positions, or again");
	if (r->state == STATE_FRESH && kv_payload_load(r) != KV_OK)
		return r->error.code;
	if ((held = malloc(sizeof *held)) == NULL)
		return kv_reader_fail(r, KV_ENOMEM, "no memory");
	*held = (struct kv_held){ .h = r->h, .blocks = r->blocks, .table = r->table_memory,
		.content = r->content_memory, .aside = r->aside, .head = r->head };
	r->table_memory = r->content_memory = r->aside = (struct kv_buffer){ NULL, 0, 0 };
	r->table = r->content = NULL;
	r->state = STATE_PASSED;
	*out = held;
	return KV_OK;
}

const void *
kv_held_content(const struct kv_held *held)
{
	return held->blocks > 0 ? held->content.data : NULL;
}

int
kv_write_held(struct kv_writer *w, const struct kv_held *held)
{
	struct stored s = { .h = &held->h, .table = held->table.data,
		.content = kv_held_content(held), .aside = held->aside.data,
		.blocks = held->blocks };
	const int code = check(&s, &held->head, w);

	return code == KV_OK ? copy_blocks(&s, w) : code;
}

void
kv_held_free(struct kv_held *held)
{
	if (held == NULL)
		return;
	kv_buffer_free(&held->table);
	kv_buffer_free(&held->content);
	kv_buffer_free(&held->aside);
	free(held);
}
