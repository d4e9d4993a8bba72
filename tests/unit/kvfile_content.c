/* kvfile_content.c - what is written comes back: every element type, shape, codec, from files
 * and streams */

#include "kvfile_sample.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Reads the file by itself, as a stream, and through a pipe. */
static void
check_readers(const char *file, const struct sample *s, const char *what,
    struct kv_digests *digests)
{
	static const char *const ways[] = { "file", "stream", "pipe" };
	struct bytes b = slurp(file);
	struct kv_reader *r;
	char text[100];
	int way, fd;

	for (way = 0; way < 3; way++) {
		snprintf(text, sizeof text, "%s, %s", what, ways[way]);
		fd = way == 2 ? feed(b, 65536) : in_memory(b, way);
		if (check(kv_open_fd(fd, text, &r) == KV_OK, "%s", kv_reader_error(r)))
			sample_check(r, s, text);
		kv_reader_digests(r, digests);
		check(digests->size == b.size, "%s: size %llu", text,
		    (unsigned long long)digests->size);
		kv_close(r);
	}
	free(b.data);
}

static void
check_sample(struct sample s, const char *what)
{
	struct kv_digests plain, packed;
	char text[100];

	s.flags = 0;
	check(sample_write(path("plain.kv"), &s) == KV_OK, "%s: not written", what);
	check_readers(path("plain.kv"), &s, what, &plain);
	s.flags = KV_LZ4;
	check(sample_write(path("lz4.kv"), &s) == KV_OK, "%s: not written", what);
	snprintf(text, sizeof text, "%s, lz4", what);
	check_readers(path("lz4.kv"), &s, text, &packed);
	check(strcmp(plain.logical, packed.logical) == 0, "%s: two logical digests", what);
	check(strcmp(plain.stream, packed.stream) != 0, "%s: one stream digest", what);
	check(packed.size < plain.size, "%s: %llu bytes compressed, %llu plain", what,
	    (unsigned long long)packed.size, (unsigned long long)plain.size);
}

static void
check_shapes(void)
{
	static const struct { uint32_t rows[2][2]; const char *name; } shapes[] = {
		{ { { 3, 5 }, { 4, 4 } }, "ragged" },
		{ { { 0, 5 }, { 4, 0 } }, "empty heads" },
		{ { { 0, 0 }, { 0, 0 } }, "no rows" },
		{ { { 1, 1 }, { 1, 2 } }, "single rows" },
	};
	static const enum kv_dtype types[] = { KV_F32, KV_F16, KV_BF16 };
	struct sample s = small_sample;
	char text[64];
	size_t i, t;

	for (i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
		for (t = 0; t < 3; t++) {
			s.dtype = types[t];
			memcpy(s.rows, shapes[i].rows, sizeof s.rows);
			snprintf(text, sizeof text, "%s %s", shapes[i].name,
			    kv_dtype_name(types[t]));
			check_sample(s, text);
		}
}

/* Blocks that do not compress stay as they are, in a file that compresses. */
static void
check_noise(void)
{
	struct sample s = large_sample;
	struct bytes plain, packed;

	s.noise = 1;
	s.extras = 0;
	check(sample_write(path("noise.kv"), &s) == KV_OK, "noise: not written");
	s.flags = KV_LZ4;
	check(sample_write(path("noise4.kv"), &s) == KV_OK, "noise: not written");
	plain = slurp(path("noise.kv"));
	packed = slurp(path("noise4.kv"));
	check(packed.size > plain.size - 1000 && packed.size <= plain.size,
	    "noise: %zu bytes of %zu",
	    packed.size, plain.size);
	free(plain.data);
	free(packed.data);
}

/* One list of positions when the heads agree, and payloads on pages. */
static void
check_layout(void)
{
	struct kv_section sec;
	struct kv_reader *r;
	uint64_t blocks;

	check(sample_write(path("layout.kv"), &small_sample) == KV_OK, "layout: not written");
	if (!check(kv_open(path("layout.kv"), &r) == KV_OK, "%s", kv_reader_error(r)))
		return;
	while (kv_next(r, &sec) == 1)
		if (strcmp(sec.type, "POSN") == 0)
			check(sec.raw_size == (sec.layer == 0 ? 4 + 8 + 4 * 8 : 4 + 4 + 4 * 4),
			    "POSN layer %u has %llu bytes", sec.layer,
			    (unsigned long long)sec.raw_size);
	kv_close(r);
	check(sample_write(path("layout.kv"), &large_sample) == KV_OK, "layout: not written");
	if (!check(kv_open(path("layout.kv"), &r) == KV_OK, "%s", kv_reader_error(r)))
		return;
	while (kv_next(r, &sec) == 1) {
		blocks = (sec.raw_size + (1 << 20) - 1) >> 20;
		check(sec.raw_size < 65536 ||
		    (sec.offset + 64 + (24 * blocks + 63) / 64 * 64) % 4096 == 0,
		    "%s layer %u does not start on a page", sec.type, sec.layer);
	}
	kv_close(r);
}

/* Loads nothing, or skips: then everything is checked, or next to nothing. */
static void
check_skipping(void)
{
	struct kv_section sec;
	struct kv_reader *r;
	struct bytes b;
	char text[1024];
	int code, rows_known = 1, way;

	check(sample_write(path("skip.kv"), &small_sample) == KV_OK, "skip: not written");
	b = slurp(path("skip.kv"));
	check(walk(in_memory(b, 0), "skip", text) == KV_OK, "walk: %s", text);
	check(walk(in_memory(b, 1), "skip", text) == KV_OK, "walk: %s", text);
	for (way = 0; way < 2; way++) {
		if (!check(kv_open_fd(in_memory(b, way), "skip", &r) == KV_OK, "%s",
		    kv_reader_error(r)))
			return;
		check(kv_current_rows(r) == NULL, "rows before the first layer");
		while ((code = kv_next(r, &sec)) == 1) {
			check(kv_skip(r) == KV_OK, "skip: %s", kv_reader_error(r));
			rows_known &= kv_current_rows(r) != NULL || sec.layer == KV_NO_LAYER;
		}
		check(code == 0, "skip: %s", kv_reader_error(r));
		check(rows_known, "a layer whose POSN was skipped has no rows");
		check(kv_reader_provenance(r)[0] == '{', "provenance was skipped");
		kv_close(r);
	}
	free(b.data);
}

/* Each section twice, loaded in between or not, on a mapping and on a stream */
static void
check_twice(void)
{
	struct kv_section one, two;
	const void *first, *second;
	struct kv_reader *r;
	struct bytes b;
	int code, way;

	check(sample_write(path("twice.kv"), &small_sample) == KV_OK, "twice: not written");
	b = slurp(path("twice.kv"));
	for (way = 0; way < 4; way++) {
		check(kv_open_fd(in_memory(b, way & 1), "twice", &r) == KV_OK, "%s",
		    kv_reader_error(r));
		while ((code = kv_next(r, &one)) == 1) {
			first = NULL;
			check(way < 2 || kv_load(r, &first) == KV_OK, "%s", kv_reader_error(r));
			check(kv_again(r) == KV_OK && kv_next(r, &two) == 1 &&
			    one.kind == two.kind && one.offset == two.offset &&
			    one.raw_size == two.raw_size, "%s: another section", one.type);
			check(kv_load(r, &second) == KV_OK && (way < 2 || first == second),
			    "%s: other content", one.type);
		}
		check(code == 0 && kv_again(r) == KV_EINVAL, "again at the end: %s",
		    kv_reader_error(r));
		kv_close(r);
	}
	free(b.data);
}

/* The parts of kv_read(), one behind the other, are what kv_load() gives; loaded first or not. */
static void
check_parts(struct kv_reader *whole, struct kv_reader *parts, int load, const char *what)
{
	const void *content, *part;
	struct kv_section sec;
	size_t at, size;

	while (kv_next(whole, &sec) == 1 && kv_next(parts, &sec) == 1) {
		check(kv_load(whole, &content) == KV_OK, "%s", kv_reader_error(whole));
		check(!load || kv_load(parts, &part) == KV_OK, "%s", kv_reader_error(parts));
		for (at = 0; kv_read(parts, &part, &size) == KV_OK && size > 0; at += size) {
			check(at + size <= sec.raw_size &&
			    memcmp((const char *)content + at, part, size) == 0,
			    "%s: %s: another part at byte %zu", what, sec.type, at);
			check(load || size <= 1 << 20 || sec.kind == KV_SCOR, "%s: %s: a part of "
			    "%zu bytes", what, sec.type, size);
		}
		check(at == sec.raw_size, "%s: %s: %zu bytes: %s", what, sec.type, at,
		    kv_reader_error(parts));
		check(kv_read(parts, &part, &size) == KV_OK && size == 0, "behind the last part");
	}
	check(kv_next(parts, &sec) == 0, "%s: %s", what, kv_reader_error(parts));
}

static void
check_reading(void)
{
	struct sample s = large_sample;
	struct kv_reader *whole, *parts;
	struct kv_section sec;
	const void *part;
	struct bytes b;
	size_t size;
	int way;

	for (way = 0; way < 8; way++) {
		s.flags = way & 4 ? KV_LZ4 : 0;
		check(sample_write(path("parts.kv"), &s) == KV_OK, "parts: not written");
		b = slurp(path("parts.kv"));
		check(kv_open(path("parts.kv"), &whole) == KV_OK &&
		    kv_open_fd(in_memory(b, way & 1), "parts", &parts) == KV_OK, "parts: not "
		    "opened");
		check_parts(whole, parts, way & 2, way & 1 ? "stream" : "file");
		kv_close(whole);
		kv_close(parts);
		free(b.data);
	}
	/* of each section the first block only: the others are checked, and damage there is
	 * found */
	b = slurp(path("parts.kv"));
	for (way = 0; way < 4; way++) {
		check(kv_open_fd(in_memory(b, way & 1), "parts", &parts) == KV_OK, "parts: not "
		    "opened");
		while (kv_next(parts, &sec) == 1 && sec.kind != KV_VALS)
			check(kv_read(parts, &part, &size) == KV_OK, "%s", kv_reader_error(parts));
		if (way == 1)
			b.data[sec.offset + sec.stored_size - 100] ^= 1;
		check(kv_read(parts, &part, &size) == KV_OK && size == 1 << 20, "a block");
		check(kv_next(parts, &sec) == (way < 2 ? 1 : KV_ECORRUPT), "the rest: %s",
		    kv_reader_error(parts));
		kv_close(parts);
	}
	free(b.data);
	check(kv_open(path("parts.kv"), &parts) == KV_OK, "parts: not opened");
	check(kv_next(parts, &sec) == 1 && kv_read(parts, &part, &size) == KV_OK &&
	    kv_load(parts, &part) == KV_EINVAL, "kv_load() after kv_read()");
	kv_close(parts);
	check(kv_open(path("parts.kv"), &parts) == KV_OK &&
	    kv_read(parts, &part, &size) == KV_EINVAL, "kv_read() before a section");
	kv_close(parts);
}

static void
check_identity(void)
{
	struct kv_head a, b;
	char text[200], tiny[8];

	sample_head(&a, &small_sample);
	b = a;
	check(kv_model_diff(&a.model, &b.model, "here", "there", text, sizeof text) == 0, "%s",
	    text);
	b.model.layers = 5;
	b.model.rope_theta = 10000;
	b.model.weights[31] = '0';
	check(kv_model_diff(&a.model, &b.model, "here", "there", text, sizeof text) == 3, "%s",
	    text);
	check(strncmp(text, "layers: 2 here, 5 there; weights: 00", 36) == 0 &&
	    strstr(text, "; rope.theta: 500000 here, 10000 there") != NULL, "%s", text);
	check(kv_model_diff(&a.model, &b.model, "here", "there", tiny, sizeof tiny) == 3 &&
	    strcmp(tiny, "layers:") == 0, "cut to %s", tiny);
}

static void
check_json(void)
{
	struct kv_head a, b;
	char text[200], *json = NULL;

	sample_head(&a, &small_sample);
	check(kv_head_to_json(&a, &json) == KV_OK && json != NULL &&
	    strncmp(json, "{\"dtype\":\"", 10) == 0, "%s", json);
	if (json == NULL)
		return;
	check(kv_head_from_json(&b, json, strlen(json), text, sizeof text) == KV_OK &&
	    memcmp(&a, &b, sizeof a) == 0, "not the same: %s", text);
	check(kv_head_from_json(&b, json, strlen(json) - 1, text, sizeof text) == KV_ECORRUPT &&
	    strstr(text, "not JSON") != NULL, "%s", text);
	free(json);
	a.reserved[15] = 1;
	check(kv_head_to_json(&a, &json) == KV_EINVAL && json == NULL, "a reserved field");
	a.reserved[15] = 0;
	a.model.reserved[0] = 1;
	check(kv_head_to_json(&a, &json) == KV_EINVAL && json == NULL, "one of the model");
	a.model.reserved[0] = 0;
	a.model.layers = 0;
	check(kv_head_to_json(&a, &json) == KV_EINVAL && json == NULL, "no layers");
}

/* Checks that HEAD says where documents begin, and nothing that a reader would refuse. */
static void
check_documents(void)
{
	static const uint32_t bad[][2] = { { 0, 5 }, { 3, 3 }, { 5, 3 }, { 3, 9 } };
	struct kv_head a, b;
	char text[200], *json = NULL;
	uint32_t i;

	sample_head(&a, &small_sample);
	a.next_position = 9;
	a.documents.n = 2;
	a.documents.start[0] = 3;
	a.documents.start[1] = 8;
	check(kv_head_to_json(&a, &json) == KV_OK && json != NULL &&
	    strncmp(json, "{\"documents\":[3,8],\"dtype\":\"", 28) == 0, "%s", json);
	if (json == NULL)
		return;
	check(kv_head_from_json(&b, json, strlen(json), text, sizeof text) == KV_OK &&
	    memcmp(&a, &b, sizeof a) == 0, "not the same: %s", text);
	free(json);
	for (i = 0; i < sizeof bad / sizeof *bad; i++) {
		memcpy(a.documents.start, bad[i], sizeof bad[i]);
		check(kv_head_to_json(&a, &json) == KV_EINVAL && json == NULL, "case %u", i);
	}
	a.next_position = UINT32_MAX;
	for (i = 0; i < KV_DOCUMENTS_MOST - 1; i++)
		a.documents.start[i] = UINT32_MAX - KV_DOCUMENTS_MOST + 1 + i;
	a.documents.n = KV_DOCUMENTS_MOST - 1;
	check(kv_head_to_json(&a, &json) == KV_OK, "the most documents");
	free(json);
	a.documents.n = KV_DOCUMENTS_MOST;
	check(kv_head_to_json(&a, &json) == KV_EINVAL && json == NULL, "one more");
}

int
main(void)
{
	check_shapes();
	check_sample(large_sample, "several blocks");
	check_noise();
	check_layout();
	check_skipping();
	check_twice();
	check_reading();
	check_identity();
	check_json();
	check_documents();
	return check_done();
}
