/* writer.c - writes a snapshot, front to back
 *
 * A section is first hashed (and compressed) block by block, which gives its table; then
 * header, table and blocks are written. Only compressed blocks are held in between. */

#include "writer.h"
#include "bytes.h"
#include "content.h"
#include "head.h"
#include "order.h"
#include "output.h"
#include "provenance.h"
#include "rowcheck.h"
#include "seal.h"
#include "spans.h"

#include <stdio.h>
#include <stdlib.h>

struct kv_writer {
	struct kv_output out;
	struct kv_message error;
	struct kv_head head;
	struct kv_order order;
	struct kv_seal seal;
	struct kv_pack pack;
	unsigned flags;
	int committed;
	struct kv_row_store rows;       /* of the current layer */
	uint64_t offset;                /* of the last header */
	uint64_t fill;                  /* zeros after the payload of that section */
	struct kv_buffer gathered;      /* one block out of several spans */
	struct kv_buffer late;          /* stored sections that follow the provenance */
	size_t late_size;
	char *lines[2];                 /* provenance: inherited, our own; NULL for none */
	const struct kv_reader *inherited;
};

static const uint8_t zeros[KV_ALIGN];

/* ---- failures ---- */

static int
fail(struct kv_writer *w, int code, const char *type, uint32_t layer, const char *text)
{
	char label[KV_LABEL];

	return kv_say(&w->error, code, "%.400s: %s: %.500s", w->out.name,
	    kv_label(label, type, layer), text);
}

int
kv_writer_refuse(struct kv_writer *w, enum kv_kind kind, uint32_t layer, const char *text)
{
	if (w->error.code != KV_OK)
		return w->error.code;
	if (*kv_kind_type(kind) == '\0')
		return kv_say(&w->error, KV_EINVAL, "%.600s: no kind of section", w->out.name);
	return fail(w, KV_EINVAL, kv_kind_type(kind), layer, text);
}

const struct kv_head *
kv_writer_head(const struct kv_writer *w)
{
	return &w->head;
}

static int
no_memory(struct kv_writer *w)
{
	return kv_say(&w->error, KV_ENOMEM, "%.600s: no memory", w->out.name);
}

void
kv_writer_abandon(struct kv_writer *w, int code, const char *reason)
{
	if (w->error.code == KV_OK)
		kv_say(&w->error, code, "%.400s: not finished: %.500s", w->out.name, reason);
}

/* ---- sections ---- */

/* Writes as many pADD as needed to align the payload of h to a page (3.4). */
static int
align(struct kv_writer *w, const struct kv_header *h)
{
	uint64_t start = w->out.size + KV_HEADER + round64(kv_table_size(h->raw_size));
	struct kv_header pad = { .type = "pADD", .layer = KV_NO_LAYER, .element_size = 1 };
	uint8_t bytes[KV_HEADER];
	uint64_t n = (KV_ALIGN - start % KV_ALIGN) % KV_ALIGN / KV_HEADER;

	if (h->raw_size < KV_ALIGNED_FROM)
		return KV_OK;
	pad.table_hash = kv_hash(NULL, 0);
	kv_header_put(bytes, &pad);
	for (; n > 0; n--)
		if (kv_output_put(&w->out, bytes, sizeof bytes, &w->error) != KV_OK)
			return w->error.code;
	return KV_OK;
}

int
kv_writer_begin(struct kv_writer *w, const struct kv_header *from, const uint8_t *table)
{
	uint64_t size = kv_table_size(from->raw_size);
	struct kv_header h = *from;
	struct kv_message why;
	uint8_t bytes[KV_HEADER];

	if (w->error.code != KV_OK)
		return w->error.code;
	if (kv_order_step(&w->order, &h, &why) != KV_OK ||
	    kv_size_check(&w->head, &w->rows, &h, &why) != KV_OK)
		return fail(w, KV_EINVAL, h.type, h.layer, why.text);
	if (h.kind == KV_KEYS) {
		w->rows.keys = kv_keys_hash(table, kv_blocks(h.raw_size));
		w->rows.has_keys = 1;
	}
	if (align(w, &h) != KV_OK)
		return w->error.code;
	w->offset = w->out.size;
	h.table_hash = kv_hash(table, (size_t)size);
	kv_header_put(bytes, &h);
	w->fill = round64(h.stored_size) - h.stored_size;
	if (kv_is_covered(h.kind))
		if (kv_seal_add(&w->seal, &h, table, w->offset) != 0)
			return no_memory(w);
	if (kv_output_put(&w->out, bytes, sizeof bytes, &w->error) != KV_OK ||
	    kv_output_put(&w->out, table, (size_t)size, &w->error) != KV_OK ||
	    kv_output_put(&w->out, zeros, (size_t)(round64(size) - size), &w->error) != KV_OK)
		return w->error.code;
	return KV_OK;
}

int
kv_writer_payload(struct kv_writer *w, const void *data, size_t n)
{
	if (w->error.code != KV_OK)
		return w->error.code;
	return kv_output_put(&w->out, data, n, &w->error);
}

int
kv_writer_end(struct kv_writer *w)
{
	return kv_writer_payload(w, zeros, (size_t)w->fill);
}

struct kv_pack *
kv_writer_pack(struct kv_writer *w)
{
	return &w->pack;
}

static void
make_header(struct kv_header *h, const struct kv_pack *p, const char *type, uint32_t layer,
    uint64_t raw_size)
{
	memset(h, 0, sizeof *h);
	memcpy(h->type, type, 4);
	h->kind = kv_kind_of(type);
	h->layer = layer;
	h->element_size = p->element;
	h->raw_size = raw_size;
	h->stored_size = p->stored;
}

int
kv_writer_packed(struct kv_writer *w, const char *type, uint32_t layer, uint64_t raw_size)
{
	struct kv_pack *p = &w->pack;
	struct kv_header h;

	make_header(&h, p, type, layer, raw_size);
	if (kv_writer_begin(w, &h, p->table.data) == KV_OK &&
	    kv_writer_payload(w, p->store.data, p->kept) == KV_OK)
		(void)kv_writer_end(w);
	kv_pack_drop(p);
	return w->error.code;
}

int
kv_writer_compresses(const struct kv_writer *w)
{
	return (w->flags & KV_LZ4) != 0;
}

int
kv_writer_content(struct kv_writer *w, const struct kv_header *h, const uint8_t *content)
{
	struct kv_message why;

	if (w->error.code == KV_OK &&
	    kv_content_check(&w->head, h, content, &w->rows, &why) != KV_OK)
		fail(w, KV_EINVAL, h->type, h->layer, why.text);
	return w->error.code;
}

int
kv_writer_late(struct kv_writer *w, const void *data, size_t n)
{
	if (w->error.code != KV_OK || n == 0)
		return w->error.code;
	if (kv_buffer_need(&w->late, w->late_size + n, w->late_size, UINT64_MAX) != 0)
		return no_memory(w);
	memcpy(w->late.data + w->late_size, data, n);
	w->late_size += n;
	return KV_OK;
}

/* ---- spans ---- */

static int
pack_spans(struct kv_writer *w, const struct kv_header *h, const struct kv_span *spans,
    int compress)
{
	struct cursor c = { spans, 0 };
	struct kv_row_check rows;
	struct kv_message why;
	const uint8_t *data;
	uint64_t i;
	size_t n;

	kv_row_check_start(&rows, &w->head, h);
	for (i = 0; i < kv_blocks(h->raw_size); i++) {
		n = kv_block_size(h->raw_size, i);
		data = take(&c, n, w->gathered.data);
		if (kv_row_check(&rows, &w->rows.rows, data, n, &why) != KV_OK)
			return fail(w, KV_EINVAL, h->type, h->layer, why.text);
		if (kv_pack_content(&w->pack, data, n, compress, h->raw_size) != 0)
			return no_memory(w);
	}
	return KV_OK;
}

/* Writes header and table, then each block from the spans or the pack. */
static int
write_spans(struct kv_writer *w, const struct kv_header *h, const struct kv_span *spans)
{
	struct cursor c = { spans, 0 };
	uint64_t i, blocks = kv_blocks(h->raw_size);
	const uint8_t *data, *kept = w->pack.store.data;
	struct kv_entry e;

	if (kv_writer_begin(w, h, w->pack.table.data) != KV_OK)
		return w->error.code;
	for (i = 0; i < blocks; i++) {
		kv_entry_get(w->pack.table.data + KV_ENTRY * i, &e);
		data = take(&c, kv_block_size(h->raw_size, i), w->gathered.data);
		if (e.codec != CODEC_PLAIN) {
			data = kept;
			kept += e.stored;
		}
		if (kv_writer_payload(w, data, e.stored) != KV_OK)
			return w->error.code;
	}
	return kv_writer_end(w);
}

static int
add_spans(struct kv_writer *w, const char *type, uint32_t layer, const struct kv_span *spans,
    size_t n, uint64_t *size)
{
	size_t i;

	*size = 0;
	for (i = 0; i < n; i++) {
		if (spans[i].data == NULL && spans[i].size > 0)
			return fail(w, KV_EINVAL, type, layer, "a span without data");
		if (__builtin_add_overflow(*size, (uint64_t)spans[i].size, size) ||
		    *size > SIZE_MAX / 2)
			return fail(w, KV_EINVAL, type, layer, "more bytes than there can be");
	}
	return KV_OK;
}

/* Never writes what a reader would refuse. Content that is checked is small enough to be
 * gathered. */
static int
check_spans(struct kv_writer *w, const struct kv_header *h, const struct kv_span *spans)
{
	struct cursor c = { spans, 0 };
	struct kv_message why;
	uint8_t *memory = NULL;

	if (kv_size_check(&w->head, &w->rows, h, &why) != KV_OK)
		return fail(w, KV_EINVAL, h->type, h->layer, why.text);
	if (!kv_content_is_checked(h->kind) || h->raw_size == 0)
		return KV_OK;
	if (spans->size < h->raw_size) {
		memory = malloc((size_t)h->raw_size);
		if (memory == NULL)
			return no_memory(w);
	}
	(void)kv_writer_content(w, h, take(&c, (size_t)h->raw_size, memory));
	free(memory);
	return w->error.code;
}

static int
put_section(struct kv_writer *w, const char *type, uint32_t layer, unsigned element_size,
    const struct kv_span *spans, size_t n, int compress)
{
	struct kv_header h;
	uint64_t size;

	if (add_spans(w, type, layer, spans, n, &size) != KV_OK)
		return w->error.code;
	kv_pack_start(&w->pack, element_size);
	make_header(&h, &w->pack, type, layer, size);
	if (check_spans(w, &h, spans) != KV_OK)
		return w->error.code;
	if (n > 1 && kv_buffer_need(&w->gathered, KV_BLOCK, 0, KV_BLOCK) != 0)
		return no_memory(w);
	if (pack_spans(w, &h, spans, compress) == KV_OK) {
		h.stored_size = w->pack.stored;
		(void)write_spans(w, &h, spans);
	}
	kv_pack_drop(&w->pack);
	return w->error.code;
}

static int
write_section(struct kv_writer *w, const char *type, uint32_t layer, unsigned element_size,
    const struct kv_span *spans, size_t n, int compress)
{
	kv_watch_begin(w->out.watch, KV_DOING_WRITE);
	(void)put_section(w, type, layer, element_size, spans, n, compress);
	kv_watch_end(w->out.watch);
	return w->error.code;
}

int
kv_write(struct kv_writer *w, const char *type, uint32_t layer, unsigned element_size,
    const struct kv_span *spans, size_t n)
{
	enum kv_kind kind = strlen(type) == 4 ? kv_kind_of(type) : KV_UNKNOWN;
	int i;

	if (w->error.code != KV_OK)
		return w->error.code;
	for (i = 0; i < 4 && ((type[i] & ~0x20) >= 'A' && (type[i] & ~0x20) <= 'Z'); i++)
		continue;
	if (i < 4 || type[4] != '\0' || (type[2] & 0x20) != 0)
		return kv_say(&w->error, KV_EINVAL, "%.600s: not a section type", w->out.name);
	if (kind == KV_HEAD || kind == KV_PROV || !kv_is_covered(kind) ||
	    (kind == KV_UNKNOWN && kv_is_critical(type)))
		return fail(w, KV_EINVAL, type, layer, "not one that kv_write() writes");
	if (element_size != 1 && element_size != 2 && element_size != 4)
		return fail(w, KV_EINVAL, type, layer, "element size must be 1, 2 or 4");
	return write_section(w, type, layer, element_size, spans, n, kv_writer_compresses(w));
}

int
kv_write_rows(struct kv_writer *w, uint32_t layer, const struct kv_rows *rows)
{
	struct kv_message why;
	struct kv_span span;
	uint8_t *data = NULL;

	if (w->error.code != KV_OK)
		return w->error.code;
	if (kv_rows_put(rows, &w->head, &data, &span.size, &why) != KV_OK)
		return fail(w, why.code, "POSN", layer, why.text);
	span.data = data;
	(void)write_section(w, "POSN", layer, 1, &span, 1, kv_writer_compresses(w));
	if (w->out.watch != NULL)
		w->out.watch->rows_out += kv_rows_total(rows);
	free(data);
	return w->error.code;
}

/* ---- provenance ---- */

static int
append_line(struct kv_writer *w, char **text, const char *more)
{
	size_t before = *text != NULL ? strlen(*text) : 0, n = strlen(more) + 1;
	char *longer = realloc(*text, before + n);

	if (longer == NULL)
		return no_memory(w);
	memcpy(longer + before, more, n);
	*text = longer;
	return KV_OK;
}

int
kv_sign(struct kv_writer *w, const char *tool, const char *version, const char *options)
{
	struct kv_message why;
	char *line = NULL;

	if (w->error.code != KV_OK)
		return w->error.code;
	if (kv_provenance_line(&line, tool, version, options, &why) != KV_OK)
		fail(w, why.code, "pROv", KV_NO_LAYER, why.text);
	else
		(void)append_line(w, &w->lines[1], line);
	free(line);
	return w->error.code;
}

int
kv_inherit(struct kv_writer *w, const struct kv_reader *r)
{
	if (w->error.code != KV_OK || r == w->inherited)
		return w->error.code;
	w->inherited = r;
	return append_line(w, &w->lines[0], kv_reader_provenance(r));
}

/* ---- start and end ---- */

static void
start(struct kv_writer *w, const struct kv_span *head)
{
	uint8_t preamble[KV_PREAMBLE];

	w->order.layers = w->head.model.layers;
	w->order.sinks = w->head.model.attention_sinks;
	kv_preamble_put(preamble, (kv_head_is_quantised(&w->head) ? KV_FEATURE_ROW_TYPES : 0) |
	    (w->head.model.latent_rank != 0 ? KV_FEATURE_LATENT : 0));
	if (kv_output_put(&w->out, preamble, sizeof preamble, &w->error) == KV_OK &&
	    write_section(w, "HEAD", KV_NO_LAYER, 1, head, 1, 0) == KV_OK)
		(void)kv_output_flush(&w->out, &w->error);
}

/* HEAD first: if the program's JSON allocator ends it (kvfile.h), no file is left. */
int
kv_create(const char *path, const struct kv_head *head, unsigned flags, struct kv_writer **out)
{
	struct kv_writer *w = calloc(1, sizeof *w);
	struct kv_message why;
	struct kv_span span;
	char *json;
	int code;

	*out = w;
	if (w == NULL || kv_seal_start(&w->seal) != 0) {
		kv_writer_free(w);
		*out = NULL;
		return KV_ENOMEM;
	}
	w->head = *head;
	w->flags = flags;
	code = kv_head_put(&w->head, &json, &span.size, &why);
	span.data = json;
	if (kv_output_open(&w->out, path, flags, &w->error) != KV_OK)
		;
	else if ((flags & ~(unsigned)(KV_LZ4 | KV_PRIVATE)) != 0)
		kv_say(&w->error, KV_EINVAL, "%.600s: flags 0x%x", w->out.name, flags);
	else if (code != KV_OK)
		fail(w, code, "HEAD", KV_NO_LAYER, why.text);
	else
		start(w, &span);
	free(json);
	return w->error.code;
}

static int
write_late(struct kv_writer *w)
{
	const uint8_t *p = w->late.data, *table;
	size_t left = w->late_size;
	struct kv_message why;
	struct kv_header h;

	while (left > 0) {
		if (kv_header_get(p, &h, &why) != KV_OK)
			return kv_say(&w->error, KV_EINVAL, "%.600s: %s", w->out.name, why.text);
		table = p + KV_HEADER;
		p = table + kv_table_size(h.raw_size);
		if (kv_writer_begin(w, &h, table) != KV_OK ||
		    kv_writer_payload(w, p, (size_t)h.stored_size) != KV_OK ||
		    kv_writer_end(w) != KV_OK)
			return w->error.code;
		p += h.stored_size;
		left = w->late_size - (size_t)(p - w->late.data);
	}
	return KV_OK;
}

/* Provenance, index and end are stored uncompressed: they are small, and can be read in the
 * file. */
static int
write_end(struct kv_writer *w)
{
	struct kv_span lines[2] = {
		{ w->lines[0], w->lines[0] != NULL ? strlen(w->lines[0]) : 0 },
		{ w->lines[1], w->lines[1] != NULL ? strlen(w->lines[1]) : 0 }
	};
	struct kv_end end = { .size = 0 };
	struct kv_span span;
	uint8_t bytes[64];

	if (lines[0].size + lines[1].size > 0 &&
	    write_section(w, "pROv", KV_NO_LAYER, 1, lines, 2, 0) != KV_OK)
		return w->error.code;
	if (write_late(w) != KV_OK)
		return w->error.code;
	span.data = w->seal.index.data;
	span.size = (size_t)(w->seal.sections * KV_INDEXED);
	if (write_section(w, "iNDX", KV_NO_LAYER, 1, &span, 1, 0) != KV_OK)
		return w->error.code;
	end.index = w->offset;
	end.size = w->out.size + KV_HEADER + 64 + 64;   /* header, table and content of ENDS */
	kv_seal_end(&w->seal, &end);
	kv_end_put(bytes, &end);
	span.data = bytes;
	span.size = sizeof bytes;
	return write_section(w, "ENDS", KV_NO_LAYER, 1, &span, 1, 0);
}

int
kv_commit(struct kv_writer *w)
{
	struct kv_message why;

	if (w->error.code != KV_OK)
		return w->error.code;
	if (w->committed)
		return kv_say(&w->error, KV_EINVAL, "%.600s: kv_commit() again", w->out.name);
	if (kv_order_whole(&w->order, &why) != KV_OK)
		return fail(w, KV_EINVAL, "ENDS", KV_NO_LAYER, why.text);
	kv_watch_begin(w->out.watch, KV_DOING_WRITE);
	w->committed = write_end(w) == KV_OK && kv_output_commit(&w->out, &w->error) == KV_OK;
	kv_watch_end(w->out.watch);
	return w->error.code;
}

void
kv_writer_free(struct kv_writer *w)
{
	if (w == NULL)
		return;
	kv_output_free(&w->out);
	kv_seal_free(&w->seal);
	kv_pack_free(&w->pack);
	kv_buffer_free(&w->gathered);
	kv_buffer_free(&w->late);
	kv_row_store_free(&w->rows);
	free(w->lines[0]);
	free(w->lines[1]);
	free(w);
}

const char *
kv_writer_error(const struct kv_writer *w)
{
	return w->error.text;
}

const char *
kv_writer_temporary(const struct kv_writer *w)
{
	return w->out.temporary.name;
}

uint64_t
kv_writer_keys(const struct kv_writer *w)
{
	return w->rows.has_keys ? w->rows.keys : 0;
}

uint64_t
kv_writer_size(const struct kv_writer *w)
{
	return w->out.size;
}

void
kv_writer_watch(struct kv_writer *w, struct kv_watch *watch)
{
	if (w->out.watch == NULL)
		watch->bytes_out += w->out.size;
	w->out.watch = watch;
}
