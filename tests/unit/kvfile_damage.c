/* kvfile_damage.c - damage is found, told apart and located; lying lengths allocate nothing */

#include "kvfile_sample.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <xxhash.h>

static char text[1024];

/* Each byte gets a false bit in turn, read as a file and as a stream. */
static void
check_flips(const char *file, const char *what)
{
	struct bytes b = slurp(file);
	int way, missed = 0, code;
	size_t i;

	for (i = 0; i < b.size; i++)
		for (way = 0; way < 2; way++) {
			b.data[i] ^= (uint8_t)(1 << i % 8);
			code = walk(in_memory(b, way), what, text);
			if (code != KV_ECORRUPT && code != KV_EVERSION && missed++ < 5)
				printf("%s: byte %zu: %d %s\n", what, i, code, text);
			b.data[i] ^= (uint8_t)(1 << i % 8);
		}
	check(b.size > 2000 && missed == 0, "%s: %d of %zu false bits", what, missed, b.size);
	free(b.data);
}

static void
check_cuts(const char *file, const char *what)
{
	struct bytes b = slurp(file), part = b;
	int way, missed = 0, code;

	for (part.size = 0; part.size < b.size; part.size++)
		for (way = 0; way < 2; way++) {
			code = walk(in_memory(part, way), what, text);
			if ((code != KV_ETRUNCATED || strstr(text, "truncated") == NULL) &&
			    missed++ < 5)
				printf("%s: cut at %zu: %d %s\n", what, part.size, code, text);
		}
	check(missed == 0, "%s: %d of %zu cuts", what, missed, b.size);
	free(b.data);
}

/* Offset of the header of a section. */
static size_t
find(struct bytes b, const char *type, uint32_t layer)
{
	static const uint8_t mark[4] = { 0xab, 'K', 'V', 'S' };
	size_t i;

	for (i = 64; i + 64 <= b.size; i += 64)
		if (memcmp(b.data + i, mark, 4) == 0 && memcmp(b.data + i + 4, type, 4) == 0 &&
		    (layer == KV_NO_LAYER || b.data[i + 8] == layer))
			return i;
	abort();
}

static void
expect_failure(struct bytes b, int way, int code, const char *message)
{
	int got = walk(in_memory(b, way), "p.kv", text);

	check(got == code && strcmp(text, message) == 0, "%d, not %d:\n\tgot  %s\n\twant %s", got,
	    code,
	    text, message);
}

/* The messages themselves, on a snapshot with sections of three blocks. */
static void
check_messages(void)
{
	struct bytes b = slurp(path("large.kv")), part = b;
	size_t keys = find(b, "KEYS", 1), vals = find(b, "VALS", 1);
	char want[300];
	int way;

	for (way = 0; way < 2; way++) {
		b.data[keys + 192 + (1 << 20) + 77] ^= 4;
		snprintf(want, sizeof want, "p.kv: KEYS layer 1 block 1 at byte %zu, "
		    "head 0 rows 65536-131071: checksum mismatch", keys + 192 + (1 << 20));
		expect_failure(b, way, KV_ECORRUPT, want);
		b.data[keys + 192 + (1 << 20) + 77] ^= 4;

		b.data[vals + 192 + (2 << 20) + 5] ^= 1;
		snprintf(want, sizeof want, "p.kv: VALS layer 1 block 2 at byte %zu, "
		    "head 0 row 131072 to head 1 row 95: checksum mismatch",
		    vals + 192 + (2 << 20));
		expect_failure(b, way, KV_ECORRUPT, want);
		b.data[vals + 192 + (2 << 20) + 5] ^= 1;

		part.size = vals + 192 + (1 << 20) + 9;
		snprintf(want, sizeof want,
		    "p.kv: truncated at byte %zu in VALS layer 1 (block 1 of 3); "
		    "last whole section xVTs layer 1", part.size);
		expect_failure(part, way, KV_ETRUNCATED, want);
		part.size = vals;
		snprintf(want, sizeof want, "p.kv: truncated at byte %zu in front of a section; "
		    "last whole section xVTs layer 1", part.size);
		expect_failure(part, way, KV_ETRUNCATED, want);
	}
	part.size = 0;
	expect_failure(part, 0, KV_ETRUNCATED, "p.kv: truncated: empty file");
	check(walk(feed(part, 1), "stdin", text) == KV_ETRUNCATED && strcmp(text,
	    "stdin: truncated: "
	    "empty input: did the program before it fail?") == 0, "%s", text);
	free(b.data);
}

/* A header with right hashes and a length that nothing backs. */
static void
lie(uint8_t *header, uint64_t size)
{
	uint64_t hash;

	memcpy(header + 16, &size, 8);
	memcpy(header + 24, &size, 8);
	hash = XXH3_64bits(header, 56);
	memcpy(header + 56, &hash, 8);
}

/* In a process of 64 MiB: what is not there is missed, not what cannot be allocated. */
static void
check_lies(void)
{
	static const uint64_t sizes[] = { 1ull << 27, 1ull << 40, 1ull << 63, ~0ull << 2 };
	static const char *const types[] = { "POSN", "xVTs", "TOKS", "pROv" };
	struct bytes b = slurp(path("small.kv"));
	uint8_t header[64], *at;
	struct rlimit limit = { 64 << 20, 64 << 20 };
	int status, bad = 0, code, way;
	size_t s, t;
	pid_t child;

	fflush(stdout);
	child = fork();
	if (child == 0) {
#ifndef SANITIZED
		setrlimit(RLIMIT_AS, &limit);
#endif
		for (t = 0; t < 4; t++)
			for (s = 0; s < 4; s++)
				for (way = 0; way < 2; way++) {
					at = b.data + find(b, types[t], KV_NO_LAYER);
					memcpy(header, at, 64);
					lie(at, sizes[s]);
					code = walk(in_memory(b, way), "lie", text);
					if (code != KV_ETRUNCATED && code != KV_ECORRUPT)
						printf("%s of %llu bytes: %d %s\n", types[t],
						    (unsigned long long)sizes[s], code, text),
						    bad++;
					memcpy(at, header, 64);
				}
		fflush(stdout);
		_exit(bad);
	}
	(void)limit;
	check(waitpid(child, &status, 0) == child && status == 0, "lying lengths: status %d",
	    status);
	free(b.data);
}

/* The caller's mistakes are refused, and a failure stays. */
static void
check_calls(void)
{
	struct kv_section sec;
	struct kv_reader *r;
	const struct kv_rows *rows;
	const void *data;

	check(kv_open(path("none.kv"), &r) == KV_EIO && strstr(kv_reader_error(r),
	    "No such file") &&
	    strstr(kv_reader_error(r), "none.kv"), "%s", kv_reader_error(r));
	check(kv_next(r, &sec) == KV_EIO && kv_load(r, &data) == KV_EIO, "a failure does not stay");
	kv_close(r);
	kv_close(NULL);
	check(kv_open("/tmp", &r) == KV_EIO && strstr(kv_reader_error(r), "directory"), "%s",
	    kv_reader_error(r));
	kv_close(r);
	check(kv_open(path("small.kv"), &r) == KV_OK && kv_load(r, &data) == KV_EINVAL,
	    "load HEAD");
	kv_close(r);
	check(kv_open(path("small.kv"), &r) == KV_OK && kv_next(r, &sec) == 1 &&
	    kv_load_rows(r, &rows) == KV_EINVAL, "rows of TOKS");
	kv_close(r);
	check(kv_open(path("small.kv"), &r) == KV_OK && kv_check_index(r) == KV_EINVAL,
	    "early index");
	kv_close(r);
}

/* A file that another program cuts short, or writes anew, while it is read: what was handed out
 * stays as it was checked, and then the file ends, or is damaged. */
static void
check_changes(void)
{
	static const char *const ways[] = { "cut", "written anew" };
	struct kv_section sec;
	struct kv_reader *r;
	struct bytes b = slurp(path("large.kv"));
	const void *data;
	uint8_t *before;
	int way, code;
	size_t i;

	for (way = 0; way < 2; way++) {
		spill(path("changed.kv"), b.data, b.size);
		check(kv_open(path("changed.kv"), &r) == KV_OK, "%s: not opened", ways[way]);
		while ((code = kv_next(r, &sec)) == 1 && sec.kind != KV_KEYS)
			continue;
		check(code == 1 && kv_load(r, &data) == KV_OK, "%s: no keys", ways[way]);
		before = malloc(sec.raw_size);
		memcpy(before, data, sec.raw_size);
		for (i = sec.offset; i < b.size; i++)
			b.data[i] ^= 0x55;
		spill(path("changed.kv"), b.data, way == 0 ? 100 : b.size);
		for (i = sec.offset; i < b.size; i++)
			b.data[i] ^= 0x55;
		check(memcmp(before, data, sec.raw_size) == 0, "%s: what was read changes",
		    ways[way]);
		while ((code = kv_next(r, &sec)) == 1)
			continue;
		check(code == (way == 0 ? KV_ETRUNCATED : KV_ECORRUPT), "%s: %d %s", ways[way],
		    code, kv_reader_error(r));
		kv_close(r);
		free(before);
	}
	free(b.data);
}

int
main(void)
{
	struct sample s = small_sample;

	check(sample_write(path("small.kv"), &s) == KV_OK, "small: not written");
	s.flags = KV_LZ4;
	check(sample_write(path("lz4.kv"), &s) == KV_OK, "lz4: not written");
	check(sample_write(path("large.kv"), &large_sample) == KV_OK, "large: not written");
	check_flips(path("small.kv"), "small");
	check_flips(path("lz4.kv"), "lz4");
	check_cuts(path("small.kv"), "small");
	check_cuts(path("lz4.kv"), "lz4");
	check_messages();
	check_lies();
	check_calls();
	check_changes();
	return check_done();
}
