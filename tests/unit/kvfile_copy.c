/* kvfile_copy.c - sections pass from input to output as they are stored */

#include "kvfile_sample.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* Every way in, loaded first or not: the same bytes as the file want. */
static void
check_ways(struct bytes from, struct bytes want, unsigned flags, const char *what)
{
	static const char *const ways[] = { "file", "stream", "pipe", "pipe of single bytes" };
	struct bytes got;
	int way, load, fd;

	for (way = 0; way < 4; way++)
		for (load = 0; load < 2; load++) {
			if (way == 3 && from.size > 100000)
				continue;
			fd = way < 2 ? in_memory(from, way) : feed(from, way == 2 ? 50000 : 1);
			check(copy_sections(fd, path("copy.kv"), flags, load) == KV_OK,
			    "%s, %s: not copied", what,
			    ways[way]);
			got = slurp(path("copy.kv"));
			check(same(got, want), "%s, %s, load %d: the copy differs", what,
			    ways[way], load);
			free(got.data);
		}
}

static void
check_copies(struct sample s, const char *what)
{
	struct bytes plain, packed;
	char text[100];

	s.flags = 0;
	check(sample_write(path("plain.kv"), &s) == KV_OK, "%s: not written", what);
	s.flags = KV_LZ4;
	check(sample_write(path("lz4.kv"), &s) == KV_OK, "%s: not written", what);
	plain = slurp(path("plain.kv"));
	packed = slurp(path("lz4.kv"));
	check_ways(plain, plain, 0, what);
	snprintf(text, sizeof text, "%s, compressed", what);
	check_ways(packed, packed, 0, text);
	snprintf(text, sizeof text, "%s, compressed again", what);
	check_ways(packed, packed, KV_LZ4, text);
	snprintf(text, sizeof text, "%s, being compressed", what);
	check_ways(plain, packed, KV_LZ4, text);
	free(plain.data);
	free(packed.data);
}

/* Unknown sections: all stay when the rows stay, only the safe ones when they change. */
static void
check_unknown(void)
{
	struct kv_section sec;
	struct kv_reader *r;
	struct kv_writer *w;
	int changed, code, n, kept;

	check(sample_write(path("in.kv"), &large_sample) == KV_OK, "unknown: not written");
	for (changed = 0; changed < 2; changed++) {
		check(kv_open(path("in.kv"), &r) == KV_OK && kv_create(path("out.kv"),
		    kv_reader_head(r), 0, &w) == KV_OK, "unknown: not opened");
		n = kept = 0;
		while ((code = kv_next(r, &sec)) == 1)
			if (sec.type[0] == 'x') {
				code = kv_copy_unknown(r, w, changed);
				check(code == (changed && sec.type[3] == 'S' ? 0 : 1),
				    "unknown: %s: %d",
				    sec.type, code);
				n++;
				kept += code;
			} else
				check(kv_copy(r, w) == KV_OK, "unknown: %s", kv_reader_error(r));
		check(code == 0 && kv_commit(w) == KV_OK, "unknown: %s", kv_writer_error(w));
		check(n == 4 && kept == (changed ? 2 : 4), "unknown: %d of %d were kept", kept, n);
		kv_close(r);
		kv_writer_free(w);
	}
}

static void
limit_memory(rlim_t most)
{
#ifndef SANITIZED
	struct rlimit limit = { most, most };

	setrlimit(RLIMIT_AS, &limit);
#else
	(void)most;
#endif
}

/* 96 MiB of KEYS and of VALS go from pipe to pipe in a process that has 48. */
static void
check_memory(void)
{
	struct sample s = { KV_F32, { { 196000, 196000 }, { 0, 0 } }, 0, 0, 1 };
	struct kv_head head;
	struct kv_writer *w;
	uint8_t *content = calloc(1, 96 << 20);
	uint32_t *pos = calloc(3 << 20, 4), l;
	uint32_t count[2] = { 3 << 19, 3 << 19 };
	const uint32_t *lists[2] = { pos, pos };
	struct kv_rows rows = { 2, count, lists };
	struct kv_span span = { content, 96 << 20 };
	int fd[2], status = 0, code;
	char name[40];
	pid_t child;

	for (l = 0; l < 3 << 20; l++)
		pos[l] = l;
	sample_head(&head, &s);
	head.next_position = 1 << 23;
	fflush(stdout);
	if (pipe(fd) != 0)
		abort();
	child = fork();
	if (child == 0) {
		close(fd[1]);
		free(content);
		free(pos);
		limit_memory(48 << 20);
		_exit(copy_sections(fd[0], "/dev/null", 0, 0) != KV_OK);
	}
	close(fd[0]);
	snprintf(name, sizeof name, "/dev/fd/%d", fd[1]);
	code = kv_create(name, &head, 0, &w);
	check(code == KV_OK, "memory: %s", kv_writer_error(w));
	code = kv_write(w, "TOKS", KV_NO_LAYER, 1, &(struct kv_span){ pos, 4 }, 1);
	for (l = 0; l < 2 && code == KV_OK; l++) {
		code = kv_write_rows(w, l, &rows);
		if (code == KV_OK)
			code = kv_write(w, "KEYS", l, 4, &span, 1);
		if (code == KV_OK)
			code = kv_write(w, "VALS", l, 4, &span, 1);
	}
	check(code == KV_OK && kv_commit(w) == KV_OK, "memory: %s", kv_writer_error(w));
	kv_writer_free(w);
	close(fd[1]);
	check(waitpid(child, &status, 0) == child && status == 0,
	    "memory: the copying process needs more");
	free(content);
	free(pos);
}

/* An input that breaks off: nothing takes the output's name, and no end marker is written. */
static void
check_damage(void)
{
	struct bytes b, out;
	struct kv_section sec;
	struct kv_reader *r;
	struct kv_writer *w;
	int code = KV_OK;

	check(sample_write(path("in.kv"), &small_sample) == KV_OK, "damage: not written");
	b = slurp(path("in.kv"));
	b.size -= 700;
	spill(path("kept.kv"), "before", 6);
	check(kv_open_fd(in_memory(b, 1), "cut", &r) == KV_OK, "damage: %s", kv_reader_error(r));
	check(kv_create(path("kept.kv"), kv_reader_head(r), 0, &w) == KV_OK, "damage: no writer");
	while (code == KV_OK && (code = kv_next(r, &sec)) == 1)
		code = kv_copy(r, w);
	check(code == KV_ETRUNCATED, "damage: %d", code);
	check(access(kv_writer_temporary(w), F_OK) == 0, "damage: no temporary file");
	kv_writer_free(w);
	kv_close(r);
	out = slurp(path("kept.kv"));
	check(out.size == 6 && memcmp(out.data, "before", 6) == 0,
	    "damage: the output was replaced");
	free(out.data);

	/* A block that is wrong poisons the writer. */
	b.size += 700;
	b.data[0x1400] ^= 1;
	check(kv_open_fd(in_memory(b, 1), "flipped", &r) == KV_OK &&
	    kv_create("/dev/null", kv_reader_head(r), 0, &w) == KV_OK, "damage: not opened");
	for (code = KV_OK; code == KV_OK && (code = kv_next(r, &sec)) == 1;)
		code = kv_copy(r, w);
	check(code == KV_ECORRUPT && kv_commit(w) == KV_ECORRUPT, "damage: committed after %d %s",
	    code,
	    kv_reader_error(r));
	kv_writer_free(w);
	kv_close(r);
	free(b.data);
}

int
main(void)
{
	check_copies(small_sample, "small");
	check_copies(large_sample, "several blocks");
	check_unknown();
	check_memory();
	check_damage();
	return check_done();
}
