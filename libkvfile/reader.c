/* reader.c - opens a snapshot and goes from section to section
 *
 * Everything that the specification demands of a section's place, header and table is checked
 * here or in functions called here; payload.c checks the content. */

#include "reader.h"
#include "bytes.h"
#include "head.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define TABLE_STEP 65536        /* a table is read in pieces of this size */

/* ---- failures ---- */

int
kv_reader_fail(struct kv_reader *r, int code, const char *fmt, ...)
{
	char label[KV_LABEL] = "", text[KV_TEXT - 100];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	if (r->h.type[0] != '\0')
		kv_label(label, r->h.type, r->h.layer);
	return kv_say(&r->error, code, "%.400s: %s%s%.500s", r->name, label, label[0] ? ": " : "",
	    text);
}

int
kv_reader_short(struct kv_reader *r, const char *what, uint64_t i)
{
	char label[KV_LABEL] = "", place[80];

	if (r->in.error != 0)
		return kv_say(&r->error, KV_EIO, "%.600s: read at byte %" PRIu64 ": %s", r->name,
		    r->in.pos, strerror(r->in.error));
	if (r->in.pos == 0)
		return kv_say(&r->error, KV_ETRUNCATED, "%.600s: truncated: empty %s", r->name,
		    r->in.regular ? "file" : "input: did the program before it fail?");
	if (what != NULL)
		snprintf(place, sizeof place, "%s", what);
	else
		snprintf(place, sizeof place, "block %" PRIu64 " of %" PRIu64, i, r->blocks);
	if (r->h.type[0] != '\0')
		kv_label(label, r->h.type, r->h.layer);
	return kv_say(&r->error, KV_ETRUNCATED, "%.600s: truncated at byte %" PRIu64
	    " in %s%s%s%s; %s section %s", r->name, r->in.pos, label, label[0] ? " (" : "", place,
	    label[0] ? ")" : "", r->whole[0] ? "last whole" : "no whole", r->whole);
}

/* ---- one header with its table ---- */

static int
take_table(struct kv_reader *r)
{
	uint64_t size = kv_table_size(r->h.raw_size), filled = round64(size), have;
	struct kv_buffer *memory = &r->table_memory;
	size_t step;

	r->table = NULL;
	if (filled > SIZE_MAX / 2)
		return kv_reader_short(r, "block table", 0);
	for (have = 0; have < filled; have += step) {
		step = filled - have < TABLE_STEP ? (size_t)(filled - have) : TABLE_STEP;
		if (kv_buffer_need(memory, (size_t)have + step, (size_t)have, filled) != 0)
			return kv_reader_fail(r, KV_ENOMEM, "no memory for its block table");
		if (kv_input_take(&r->in, memory->data + have, step, NULL) != 0)
			return kv_reader_short(r, "block table", 0);
	}
	r->table = memory->data;
	return KV_OK;
}

static int
fail_at(struct kv_reader *r, const struct kv_message *why)
{
	return kv_reader_fail(r, why->code, "at byte %" PRIu64 ": %s", r->offset, why->text);
}

static int
take_header(struct kv_reader *r)
{
	uint8_t buf[KV_HEADER];
	struct kv_message why;
	uint64_t size;
	size_t got;

	r->h.type[0] = '\0';
	r->offset = r->in.pos;
	if (kv_input_take(&r->in, buf, KV_HEADER, &got) != 0)
		return kv_reader_short(r, got == 0 ? "front of a section" : "a section header", 0);
	if (kv_header_get(buf, &r->h, &why) != KV_OK ||
	    kv_order_step(&r->order, &r->h, &why) != KV_OK ||
	    kv_size_check(&r->head, &r->rows, &r->h, &why) != KV_OK)
		return fail_at(r, &why);
	r->blocks = kv_blocks(r->h.raw_size);
	if (take_table(r) != KV_OK)
		return r->error.code;
	size = kv_table_size(r->h.raw_size);
	if (kv_table_check(&r->h, r->table, &why) != KV_OK)
		return fail_at(r, &why);
	if (size > 0 && !all_zero(r->table + size, (size_t)(round64(size) - size)))
		return kv_reader_fail(r, KV_ECORRUPT, "the fill after its table is not zero");
	r->payload = r->in.pos;
	r->next = 0;
	kv_row_check_start(&r->row_check, &r->head, &r->h);
	r->state = STATE_FRESH;
	if (r->h.kind == KV_POSN)
		r->has_rows = r->rows.has_keys = 0;
	if (r->h.kind == KV_KEYS) {
		r->rows.keys = kv_keys_hash(r->table, r->blocks);
		r->rows.has_keys = 1;
	}
	if (kv_is_covered(r->h.kind))
		if (kv_seal_add(&r->seal, &r->h, r->table, r->offset) != 0)
			return kv_reader_fail(r, KV_ENOMEM, "no memory for the index");
	return KV_OK;
}

/* Reads the next section up to its content. Sets r->h, offset, payload, blocks, table. */
static int
take_section(struct kv_reader *r)
{
	int code;

	kv_watch_begin(r->in.watch, KV_DOING_READ);
	code = take_header(r);
	kv_watch_end(r->in.watch);
	return code;
}

/* ---- opening ---- */

static int
open_head(struct kv_reader *r)
{
	uint8_t buf[KV_PREAMBLE];
	struct kv_message why;
	uint64_t features;

	if (kv_input_take(&r->in, buf, KV_PREAMBLE, NULL) != 0)
		return kv_reader_short(r, "the preamble", 0);
	if (kv_preamble_get(buf, &features, &why) != KV_OK)
		return kv_reader_fail(r, why.code, "%s", why.text);
	if (take_section(r) != KV_OK || kv_payload_load(r) != KV_OK)
		return r->error.code;
	if (kv_head_get(&r->head, r->content, (size_t)r->h.raw_size, &why) != KV_OK)
		return kv_reader_fail(r, why.code, "%s", why.text);
	if (((features & KV_FEATURE_ROW_TYPES) != 0) != kv_head_is_quantised(&r->head))
		return kv_reader_fail(r, KV_ECORRUPT, "row_types is %s, and feature bit 0 is %s",
		    kv_head_is_quantised(&r->head) ? "there" : "not there",
		    features & KV_FEATURE_ROW_TYPES ? "set" : "not set");
	if (((features & KV_FEATURE_LATENT) != 0) != (r->head.model.latent_rank != 0))
		return kv_reader_fail(r, KV_ECORRUPT, "latent_rank is %s, and feature bit 1 is %s",
		    r->head.model.latent_rank != 0 ? "there" : "not there",
		    features & KV_FEATURE_LATENT ? "set" : "not set");
	r->order.layers = r->head.model.layers;
	r->order.sinks = r->head.model.attention_sinks;
	r->state = STATE_PASSED;
	return KV_OK;
}

static int
open_reader(int fd, int own, const char *name, struct kv_reader **out)
{
	int error = fd < 0 ? errno : 0;
	struct kv_reader *r = calloc(1, sizeof *r);

	*out = r;
	if (r != NULL) {
		r->in.fd = -1;
		r->name = strdup(name);
	}
	if (r == NULL || r->name == NULL || kv_seal_start(&r->seal) != 0) {
		if (own && fd >= 0)
			close(fd);
		kv_close(r);
		*out = NULL;
		return KV_ENOMEM;
	}
	r->close = own;
	r->state = STATE_PASSED;
	if (error == 0)
		error = kv_input_open(&r->in, fd);
	if (error != 0)
		return kv_say(&r->error, KV_EIO, "%.600s: open: %s", name, strerror(error));
	return open_head(r);
}

int
kv_open(const char *path, struct kv_reader **out)
{
	if (strcmp(path, "-") == 0)
		return open_reader(STDIN_FILENO, 0, "stdin", out);
	return open_reader(open(path, O_RDONLY | O_CLOEXEC), 1, path, out);
}

int
kv_open_fd(int fd, const char *name, struct kv_reader **out)
{
	if (fd < 0)
		errno = EBADF;
	return open_reader(fd, 1, name, out);
}

void
kv_close(struct kv_reader *r)
{
	int i;

	if (r == NULL)
		return;
	if (r->close && r->in.fd >= 0)
		close(r->in.fd);
	kv_seal_free(&r->seal);
	kv_row_store_free(&r->rows);
	kv_buffer_free(&r->table_memory);
	kv_buffer_free(&r->content_memory);
	kv_buffer_free(&r->aside);
	free(r->provenance);
	for (i = 0; i < 3; i++)
		kv_buffer_free(&r->scratch[i]);
	free(r->name);
	free(r);
}

/* ---- the end ---- */

/* The index only saves time: an error in it is kept for kv_check_index(). */
static int
pass_index(struct kv_reader *r)
{
	r->end.index = r->offset;
	r->index_size = r->h.raw_size;
	if (r->index_size != r->seal.sections * KV_INDEXED)
		return kv_payload_check(r);     /* its length has no bound: not kept */
	if (kv_payload_load(r) != KV_OK)
		return r->error.code;
	r->index_good = kv_index_compare(&r->seal, r->content, r->index_size);
	return KV_OK;
}

static int
pass_end(struct kv_reader *r)
{
	struct kv_message why;
	uint8_t byte;
	size_t more;

	if (r->table[4] != CODEC_PLAIN)
		return kv_reader_fail(r, KV_ECORRUPT, "must not be compressed");
	if (kv_payload_load(r) != KV_OK)
		return r->error.code;
	r->end.size = r->in.pos;
	kv_seal_end(&r->seal, &r->end);
	if (kv_end_check(r->content, &r->end, &why) != KV_OK)
		return fail_at(r, &why);
	(void)kv_input_take(&r->in, &byte, 1, &more);
	if (r->in.error != 0)
		return kv_reader_short(r, "", 0);
	if (more > 0)
		return kv_bad(&r->error, "%.600s: bytes after ENDS, from byte %" PRIu64 " on",
		    r->name, r->end.size);
	r->state = STATE_END;
	return 0;
}

/* ---- next section ---- */

/* Returns 1, as kv_next(). */
static int
describe_current(const struct kv_reader *r, struct kv_section *sec)
{
	memcpy(sec->type, r->h.type, sizeof sec->type);
	sec->layer = r->h.layer;
	sec->element_size = r->h.element_size;
	sec->raw_size = r->h.raw_size;
	sec->stored_size = r->h.stored_size;
	sec->offset = r->offset;
	sec->kind = r->h.kind;
	memset(sec->reserved, 0, sizeof sec->reserved);
	return 1;
}

int
kv_again(struct kv_reader *r)
{
	if (r->error.code != KV_OK)
		return r->error.code;
	if (r->state != STATE_FRESH && r->state != STATE_LOADED)
		return kv_reader_fail(r, KV_EINVAL, "kv_again() without a section, or late");
	r->again = 1;
	return KV_OK;
}

int
kv_next(struct kv_reader *r, struct kv_section *sec)
{
	int code;

	if (r->error.code != KV_OK)
		return r->error.code;
	if (r->again) {
		r->again = 0;
		return describe_current(r, sec);
	}
	if (r->state <= STATE_READING && kv_payload_check(r) != KV_OK)
		return r->error.code;
	while (r->state != STATE_END) {
		code = take_section(r);
		if (code == KV_OK && r->h.kind == KV_ENDS)
			return pass_end(r);
		if (code == KV_OK && r->h.kind == KV_INDX)
			code = pass_index(r);
		else if (code == KV_OK && r->h.kind != KV_PADD)
			return describe_current(r, sec);
		if (code != KV_OK)
			return code;
	}
	return 0;
}

int
kv_load(struct kv_reader *r, const void **data)
{
	*data = NULL;
	if (r->error.code != KV_OK)
		return r->error.code;
	if (r->state == STATE_FRESH && kv_payload_load(r) != KV_OK)
		return r->error.code;
	if (r->state != STATE_LOADED)
		return kv_reader_fail(r, KV_EINVAL, "kv_load() without a section, or late");
	*data = r->content;
	return KV_OK;
}

int
kv_read(struct kv_reader *r, const void **data, size_t *size)
{
	const uint8_t *part = NULL;

	*data = NULL;
	*size = 0;
	if (r->error.code != KV_OK)
		return r->error.code;
	if (r->state == STATE_FRESH && kv_content_is_checked(r->h.kind) &&
	    kv_payload_load(r) != KV_OK)
		return r->error.code;
	if (r->state > STATE_LOADED)
		return kv_reader_fail(r, KV_EINVAL, "kv_read() without a section, or late");
	if (r->state == STATE_LOADED && r->next == 0) {
		r->next = 1;
		part = r->content;
		*size = (size_t)r->h.raw_size;
	} else if (r->state != STATE_LOADED) {
		r->state = STATE_READING;
		if (r->next < r->blocks && kv_payload_next(r, &part, size) != KV_OK)
			return r->error.code;
	}
	*data = part;
	return KV_OK;
}

int
kv_load_kind(struct kv_reader *r, enum kv_kind kind, const char *function, const void **data)
{
	*data = NULL;
	if (r->error.code == KV_OK && r->h.kind != kind)
		return kv_reader_fail(r, KV_EINVAL, "%s() wants %s", function, kv_kind_type(kind));
	return kv_load(r, data);
}

int
kv_load_rows(struct kv_reader *r, const struct kv_rows **rows)
{
	const void *data;
	int code = kv_load_kind(r, KV_POSN, "kv_load_rows", &data);

	*rows = code == KV_OK ? &r->rows.rows : NULL;
	return code;
}

uint64_t
kv_reader_place(const struct kv_reader *r)
{
	struct kv_entry e;
	uint64_t i;

	if (!r->in.whole || r->state > STATE_LOADED || r->h.raw_size != r->h.stored_size)
		return 0;
	for (i = 0; i < r->blocks; i++) {       /* equal sizes, but possibly compressed */
		kv_entry_get(r->table + KV_ENTRY * i, &e);
		if (e.codec != CODEC_PLAIN)
			return 0;
	}
	return r->payload;
}

int
kv_reader_descriptor(const struct kv_reader *r)
{
	return r->in.fd;
}

int
kv_skip(struct kv_reader *r)
{
	uint64_t filled = round64(r->h.stored_size);

	if (r->error.code != KV_OK)
		return r->error.code;
	if (r->state == STATE_LOADED)
		return KV_OK;
	if (r->state > STATE_LOADED)
		return kv_reader_fail(r, KV_EINVAL, "kv_skip() without a section");
	/* Positions and provenance are needed later. */
	if (!r->in.whole || r->state == STATE_READING || r->h.kind == KV_POSN ||
	    r->h.kind == KV_PROV) {
		if (kv_payload_check(r) != KV_OK)
			return r->error.code;
	} else if (kv_input_skip(&r->in, filled) != 0)
		return kv_reader_short(r, "skipped", 0);
	kv_label(r->whole, r->h.type, r->h.layer);
	r->state = STATE_PASSED;
	return KV_OK;
}

void
kv_reader_watch(struct kv_reader *r, struct kv_watch *watch)
{
	if (r->in.watch == NULL)
		watch->bytes_in += r->in.pos;
	r->in.watch = watch;
}

/* ---- state ---- */

const char *
kv_reader_error(const struct kv_reader *r)
{
	return r->error.text;
}

const char *
kv_reader_name(const struct kv_reader *r)
{
	return r->name;
}

const struct kv_head *
kv_reader_head(const struct kv_reader *r)
{
	return &r->head;
}

const struct kv_rows *
kv_current_rows(const struct kv_reader *r)
{
	return r->has_rows ? &r->rows.rows : NULL;
}

uint64_t
kv_reader_keys(const struct kv_reader *r)
{
	return r->rows.has_keys ? r->rows.keys : 0;
}

const char *
kv_reader_provenance(const struct kv_reader *r)
{
	return r->provenance != NULL ? r->provenance : "";
}

int
kv_check_index(struct kv_reader *r)
{
	uint64_t size = r->seal.sections * KV_INDEXED;
	char label[KV_LABEL];
	const uint8_t *entry;

	if (r->error.code != KV_OK)
		return r->error.code;
	if (r->state != STATE_END)
		return kv_reader_fail(r, KV_EINVAL, "kv_check_index() before the end");
	if (r->end.index == 0)
		return KV_OK;
	if (r->index_size != size)
		return kv_bad(&r->error, "%.600s: iNDX: %" PRIu64 " bytes of content, %" PRIu64
		    " sections need %" PRIu64, r->name, r->index_size, r->seal.sections, size);
	if (r->index_good == r->seal.sections)
		return KV_OK;
	entry = r->seal.index.data + r->index_good * KV_INDEXED;
	return kv_bad(&r->error, "%.600s: iNDX: entry %" PRIu64 " is not that of %s at byte %"
	    PRIu64, r->name, r->index_good,
	    kv_label(label, (const char *)entry, get32(entry + 4)), get64(entry + 8));
}

static void
hexadecimal(char text[33], const uint8_t hash[16])
{
	static const char digits[] = "0123456789abcdef";
	int i;

	for (i = 0; i < 16; i++) {
		text[2 * i] = digits[hash[i] >> 4];
		text[2 * i + 1] = digits[hash[i] & 15];
	}
	text[32] = '\0';
}

void
kv_reader_digests(const struct kv_reader *r, struct kv_digests *out)
{
	hexadecimal(out->stream, r->end.stream);
	hexadecimal(out->logical, r->end.logical);
	out->size = r->end.size;
	out->sections = r->end.sections;
}

/* ---- fuzzing: make fuzz-reader ---- */

#ifdef FUZZ
#include <sys/mman.h>

#include "codec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
fuzz_load(struct kv_reader *r, const struct kv_section *sec)
{
	struct kv_queries q;
	struct kv_values v;
	struct kv_index x;
	const void *content;

	if (sec->kind == KV_OBSQ)
		(void)kv_load_queries(r, &q);
	else if (kv_kind_is(sec->kind, KV_PER_ROW) || sec->kind == KV_SCOR)
		(void)kv_load_values(r, &v);
	else if (kv_kind_is(sec->kind, KV_INDEX))
		(void)kv_load_index(r, &x);
	else
		(void)kv_load(r, &content);
}

/* Reads data as a file, and as a stream: a file not read from its start is one. Hashes always
 * match. */
int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct kv_section sec;
	struct kv_reader *r;
	struct kv_log *log;
	struct kv_event e;
	int from, fd, code;

	for (from = 0; from < 2; from++) {
		fd = memfd_create("fuzz", 0);
		if (pwrite(fd, data, size, from) != (ssize_t)size ||
		    lseek(fd, from, SEEK_SET) != from)
			abort();
		if (kv_open_fd(fd, "fuzz", &r) == KV_OK) {
			log = kv_log_new(kv_reader_head(r));
			while ((code = kv_next(r, &sec)) == 1)
				if (kv_log_see(log, r, &sec) == KV_OK && size > 100 &&
				    data[100] % 2 == 0)
					fuzz_load(r, &sec);
			while (code == 0 && kv_log_next(log, &e) == 1)
				continue;
			(void)kv_check_index(r);
			kv_log_free(log);
		}
		kv_close(r);
	}
	return 0;
}
#endif
