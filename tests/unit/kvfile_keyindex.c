/* kvfile_keyindex.c - indexes: the hash of the keys they were made from, and what is refused of
 * them */

#include "kvfile_sample.h"

#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#ifndef VECTORS
#define VECTORS "formats/vectors"
#endif

#define MIB ((size_t)1 << 20)

/* From the document: 4.14, over the content. */
static uint64_t
hash_of(const uint8_t *keys, size_t size)
{
	uint64_t raw[8];
	size_t i, n = (size + MIB - 1) / MIB;

	for (i = 0; i < n; i++)
		raw[i] = XXH3_64bits(keys + i * MIB, size - i * MIB < MIB ? size - i * MIB : MIB);
	return XXH3_64bits(raw, 8 * n);
}

enum pass { LOADED, COPIED, SKIPPED, LEFT };

/* Goes through a snapshot; want: what sample_write() wrote, from the first read. */
static void
check_keys(int fd, unsigned flags, enum pass pass, uint64_t want[SAMPLE_LAYERS])
{
	struct kv_section sec = { .type = "" };
	struct kv_reader *r;
	struct kv_writer *w;
	const void *data;
	int code;

	check(kv_open_fd(fd, "keys", &r) == KV_OK && kv_create("/dev/null", kv_reader_head(r),
	    flags, &w) == KV_OK, "keys: not opened");
	while ((code = kv_next(r, &sec)) == 1) {
		if (strcmp(sec.type, "POSN") == 0)
			check(kv_reader_keys(r) == 0, "a hash before the keys");
		if (strcmp(sec.type, "KEYS") != 0 || pass == COPIED)
			check(kv_copy(r, w) == KV_OK || pass != COPIED, "%s", kv_writer_error(w));
		else if (pass == SKIPPED)
			check(kv_skip(r) == KV_OK, "%s", kv_reader_error(r));
		else if (pass == LOADED && kv_load(r, &data) == KV_OK && want[sec.layer] == 0)
			want[sec.layer] = hash_of(data, (size_t)sec.raw_size);
		if (strcmp(sec.type, "KEYS") == 0 || strcmp(sec.type, "VALS") == 0)
			check(kv_reader_keys(r) == want[sec.layer], "%s layer %u: %016llx",
			    sec.type, sec.layer, (unsigned long long)kv_reader_keys(r));
		if (pass == COPIED && (strcmp(sec.type, "KEYS") == 0 ||
		    strcmp(sec.type, "VALS") == 0))
			check(kv_writer_keys(w) == want[sec.layer], "writer, %s layer %u: %016llx",
			    sec.type, sec.layer, (unsigned long long)kv_writer_keys(w));
		else if (pass == COPIED)
			check(strcmp(sec.type, "POSN") != 0 || kv_writer_keys(w) == 0,
			    "the writer has a hash before the keys");
	}
	check(code == 0, "%s", kv_reader_error(r));
	kv_close(r);
	kv_writer_free(w);
}

static void
check_hashes(struct sample s)
{
	uint64_t want[SAMPLE_LAYERS] = { 0, 0 };
	struct bytes b;
	enum pass pass;
	int way;

	for (s.flags = 0; s.flags <= KV_LZ4; s.flags++) {
		check(sample_write(path("keys.kv"), &s) == KV_OK, "not written");
		b = slurp(path("keys.kv"));
		for (pass = LOADED; pass <= LEFT; pass++)
			for (way = 0; way < 3; way++) {
				check_keys(way < 2 ? in_memory(b, way) : feed(b, 50000), 0, pass,
				    want);
				if (pass == COPIED)
					check_keys(in_memory(b, way & 1), KV_LZ4, pass, want);
			}
		free(b.data);
	}
}

/* ---- what is refused ---- */

#define ROWS0 70
#define ROWS1 40
#define WIDTH 8                 /* of the samples */

/* A writer that stands behind the keys of layer 0: bf16, heads with 70 and 40 rows, or, agreed,
 * 40 rows each. */
static struct kv_writer *
begin(int agreed)
{
	static const uint8_t keys[(ROWS0 + ROWS1) * WIDTH * 2] = { 1, 2, 3 };
	uint32_t pos[ROWS0], count[] = { agreed ? ROWS1 : ROWS0, ROWS1 }, i;
	const uint32_t *const lists[] = { pos, pos };
	struct kv_rows rows = { 2, count, lists };
	struct kv_span token = { "\1\0\0", 4 };
	struct kv_span span = { keys, (count[0] + count[1]) * WIDTH * 2 };
	struct kv_head head;
	struct kv_writer *w;

	for (i = 0; i < ROWS0; i++)
		pos[i] = 2 * i;
	sample_head(&head, &small_sample);
	check(kv_create("/dev/null", &head, 0, &w) == KV_OK &&
	    kv_write(w, "TOKS", KV_NO_LAYER, 1, &token, 1) == KV_OK &&
	    kv_write_rows(w, 0, &rows) == KV_OK && kv_write(w, "KEYS", 0, 2, &span, 1) == KV_OK,
	    "%s", kv_writer_error(w));
	check(kv_writer_keys(w) == hash_of(keys, span.size), "the writer's hash");
	return w;
}

struct words {
	uint32_t at, value;             /* byte, u32 there */
};

/* Writes the index with its numbers (up to the first at 0 after the first) and the right hash,
 * else zeros; message "": it must be taken. */
static void
try(const char *type, int agreed, size_t size, const struct words *words, const char *message)
{
	struct kv_writer *w = begin(agreed);
	uint8_t *p = calloc(1, size + 1);
	uint64_t hash = kv_writer_keys(w);
	struct kv_span span = { p, size };
	int i, code;

	if (size >= 16)
		memcpy(p + 8, &hash, 8);
	for (i = 0; i == 0 || words[i].at > 0; i++)
		memcpy(p + words[i].at, &words[i].value, 4);
	code = kv_write(w, type, 0, 2, &span, 1);
	check(code == (message[0] != '\0' ? KV_EINVAL : KV_OK) &&
	    strstr(kv_writer_error(w), message) != NULL, "%s: %d %s, not %s", type, code,
	    kv_writer_error(w), message);
	free(p);
	kv_writer_free(w);
}

#define WORDS(...) ((struct words[]){ __VA_ARGS__, { 0, 0 } })

static void
check_entries(void)
{
	/* 16 rows: 4 and 2 entries of 8 * (4 + 2) bytes */
	try("bITS", 0, 64 + 6 * 48, WORDS({ 0, 16 }), "");
	try("bITS", 0, 64 + 3 * 64, WORDS({ 0, 32 }), "");
	try("bITS", 0, 64 + 1 * 96, WORDS({ 0, 64 }), "");
	try("bITS", 0, 64, WORDS({ 0, 128 }), "");
	try("bITS", 0, 63, WORDS({ 0, 128 }), "cannot be right");
	try("bITS", 0, 64 + 6 * 48, WORDS({ 0, 17 }), "groups of 17 rows, must be 16, 32, 64 or "
	    "128");
	try("bITS", 0, 64 + 5 * 48, WORDS({ 0, 16 }),
	    "304 bytes of content, 6 groups of 16 rows need 352");
	try("bITS", 0, 64 + 6 * 48, WORDS({ 0, 16 }, { 4, 1 }), "zero");
	try("bITS", 0, 64 + 6 * 48, WORDS({ 0, 16 }, { 16, 1 }), "zero");
	try("bITS", 0, 64 + 6 * 48, WORDS({ 0, 16 }, { 60, 1u << 31 }), "zero");
	try("bITS", 0, 64 + 6 * 48, WORDS({ 0, 16 }, { 8, 0 }), "made from other keys");
	/* the greatest f16; infinity; -0 */
	try("bITS", 0, 64 + 6 * 48, WORDS({ 0, 16 }, { 64, 0xfbfffbff }, { 80, 0x7bff7bff }), "");
	try("bITS", 0, 64 + 6 * 48, WORDS({ 0, 16 }, { 64 + 4 * 48 + 12, 0xfc000000 }),
	    "head 1 group 0 channel 7: the zero is not finite");
	try("bITS", 0, 64 + 6 * 48, WORDS({ 0, 16 }, { 64 + 3 * 48 + 16, 0x8000 }),
	    "head 0 group 3 channel 0: the scale is negative, or not finite");
	try("bITS", 0, 64 + 6 * 48, WORDS({ 0, 16 }, { 64 + 48 + 20, 0x7c00 }),
	    "head 0 group 1 channel 2: the scale is negative, or not finite");
	/* 3 rows: 23 and 13 entries of 2 * 8 * 2 bytes */
	try("pAGE", 0, 64 + 36 * 32, WORDS({ 0, 3 }), "");
	try("pAGE", 0, 64, WORDS({ 0, 65536 }), "");
	try("pAGE", 0, 64 + 35 * 32, WORDS({ 0, 3 }),
	    "1184 bytes of content, 36 pages of 3 rows need 1216");
	try("pAGE", 0, 64, WORDS({ 0, 65537 }), "pages of 65537 rows, must be 2 to 65536");
	try("pAGE", 0, 64 + 110 * 32, WORDS({ 0, 1 }), "pages of 1 rows");
	try("pAGE", 0, 64, WORDS({ 0, 0 }), "pages of 0 rows");
	try("pAGE", 0, 64 + 36 * 32, WORDS({ 0, 3 }, { 20, 1 }), "zero");
	try("pAGE", 0, 64 + 36 * 32, WORDS({ 0, 3 }, { 12, 0 }), "made from other keys");
}

static void
check_places(void)
{
	struct kv_writer *w = begin(0);
	struct kv_span span = { "", 0 };
	uint32_t pos = 0, count[] = { 1, 1 };
	const uint32_t *const lists[] = { &pos, &pos };
	struct kv_rows rows = { 2, count, lists };
	uint8_t front[64] = { 128 };

	span.size = (ROWS0 + ROWS1) * WIDTH * 2;
	span.data = calloc(1, span.size);
	check(kv_write(w, "VALS", 0, 2, &span, 1) == KV_OK && kv_write_rows(w, 1, &rows) == KV_OK,
	    "%s", kv_writer_error(w));
	check(kv_writer_keys(w) == 0, "the hash of another layer");
	free((void *)(uintptr_t)span.data);
	span.data = front;
	span.size = sizeof front;
	check(kv_write(w, "bITS", 1, 2, &span, 1) == KV_EINVAL && strstr(kv_writer_error(w),
	    "wrong order: KEYS layer 1 is missing") != NULL, "%s", kv_writer_error(w));
	kv_writer_free(w);
}

/* Copies a vector, with the keys replaced by their own copy, bit flipped or not. */
static void
check_copy(uint8_t bit, int load, int want)
{
	struct kv_section sec;
	struct kv_reader *r;
	struct kv_writer *w;
	const void *data;
	int code = KV_OK;

	check(kv_open(VECTORS "/passed/indexes.kv", &r) == KV_OK &&
	    kv_create("/dev/null", kv_reader_head(r), 0, &w) == KV_OK, "not opened");
	while (code == KV_OK && (code = kv_next(r, &sec)) == 1) {
		code = KV_OK;
		if (strcmp(sec.type, "KEYS") == 0) {
			uint8_t *keys = malloc(sec.raw_size);
			struct kv_span span = { keys, sec.raw_size };

			check(kv_load(r, &data) == KV_OK, "%s", kv_reader_error(r));
			memcpy(keys, data, sec.raw_size);
			keys[sec.raw_size - 1] ^= bit;
			code = kv_write(w, sec.type, sec.layer, sec.element_size, &span, 1);
			free(keys);
		} else if (!load || (code = kv_load(r, &data)) == KV_OK)
			code = kv_copy(r, w);
	}
	check(code == want && (want == KV_OK || strstr(kv_writer_error(w),
	    "bITS layer 0: made from other keys") != NULL), "%d %s", code, kv_writer_error(w));
	check((kv_commit(w) == KV_OK) == (want == KV_OK), "committed after %d", code);
	kv_close(r);
	kv_writer_free(w);
}

int
main(void)
{
	struct sample empty = { KV_F16, { { 0, 0 }, { 0, 4 } }, 0, 0, 0 };

	check_hashes(small_sample);
	check_hashes(large_sample);
	check_hashes(empty);
	check_entries();
	check_places();
	check_copy(0, 0, KV_OK);
	check_copy(1, 0, KV_EINVAL);
	check_copy(1, 1, KV_EINVAL);
	return check_done();
}
