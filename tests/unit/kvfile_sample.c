/* kvfile_sample.c - what the unit tests of libkvfile share */

#include "kvfile_sample.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define NEXT_POSITION 200000
#define WIDTH 8
#define WINDOW 3

static int n_passed, n_failed;
static char folder[64];

/* ---- checks ---- */

int
check_passed(void)
{
	n_passed++;
	return 1;
}

int
check_failed(const char *fmt, ...)
{
	va_list ap;

	n_failed++;
	printf("FAILED: ");
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	printf("\n");
	return 0;
}

int
check_done(void)
{
	const struct dirent *e;
	DIR *d = folder[0] ? opendir(folder) : NULL;

	while (d != NULL && (e = readdir(d)) != NULL)
		(void)unlinkat(dirfd(d), e->d_name, 0);
	if (d != NULL) {
		closedir(d);
		rmdir(folder);
	}
	printf("%d passed, %d failed\n", n_passed, n_failed);
	return n_failed != 0;
}

const char *
path(const char *name)
{
	static char buffers[16][128];
	static unsigned i;
	char *p = buffers[i++ % 16];

	if (folder[0] == '\0') {
		strcpy(folder, "/tmp/kvfile.XXXXXX");
		if (mkdtemp(folder) == NULL)
			abort();
	}
	snprintf(p, sizeof buffers[0], "%s/%s", folder, name);
	return p;
}

struct bytes
slurp(const char *file)
{
	struct bytes b = { NULL, 0 };
	FILE *f = fopen(file, "rb");
	size_t n;

	if (f == NULL)
		return b;
	do {
		b.data = realloc(b.data, b.size + (1 << 20));
		n = fread(b.data + b.size, 1, 1 << 20, f);
		b.size += n;
	} while (n > 0);
	fclose(f);
	return b;
}

struct bytes
fixture(const char *name, const char *suffix)
{
	char file[512];

	snprintf(file, sizeof file, "%s/%s.%s", FIXTURES, name, suffix);
	return slurp(file);
}

void
spill(const char *file, const void *data, size_t size)
{
	FILE *f = fopen(file, "wb");

	if (f == NULL || fwrite(data, 1, size, f) != size || fclose(f) != 0)
		abort();
}

int
same(struct bytes a, struct bytes b)
{
	return a.size == b.size && a.size > 0 && memcmp(a.data, b.data, a.size) == 0;
}

/* ---- samples ---- */

const struct sample small_sample = { KV_BF16, { { 3, 5 }, { 4, 4 } }, 0, 1, 0 };

/* 2 MiB and 16 KiB of each: three blocks, the last one short. */
const struct sample large_sample = { KV_BF16, { { 100000, 32096 }, { 132000, 96 } }, 0, 1, 0 };

void
sample_head(struct kv_head *head, const struct sample *s)
{
	struct kv_model *m = &head->model;

	memset(head, 0, sizeof *head);
	head->dtype = s->dtype;
	head->next_position = NEXT_POSITION;
	strcpy(m->architecture, "llama");
	m->layers = SAMPLE_LAYERS;
	m->hidden = 32;
	m->ffn = 64;
	m->query_heads = 2 * SAMPLE_HEADS;
	m->kv_heads = SAMPLE_HEADS;
	m->head_width = WIDTH;
	m->vocabulary = 50;
	m->norm_eps = 1e-5;
	m->rope_type = KV_ROPE_LLAMA3;
	m->rope_theta = 500000;
	m->rope_factor = 32;
	m->rope_low_freq_factor = 1;
	m->rope_high_freq_factor = 4;
	m->rope_original_max_position = 8192;
	m->weights_dtype = KV_BF16;
	strcpy(m->weights, "00112233445566778899aabbccddeeff");
	strcpy(m->tokenizer, "ffeeddccbbaa99887766554433221100");
}

/* Little floats have few different high bytes: what compression lives on. */
void
sample_fill(void *data, size_t size, uint32_t seed, int noise)
{
	uint8_t *p = data;
	uint32_t x = seed * 2654435761u + 12345;
	size_t i;

	for (i = 0; i < size; i++) {
		x = x * 1664525 + 1013904223;
		p[i] = (uint8_t)(x >> 24);
		if (!noise && i % 2 == 1)
			p[i] = (uint8_t)(0x3c + (x >> 30));
	}
}

static uint64_t
total(const struct sample *s, uint32_t l)
{
	return (uint64_t)s->rows[l][0] + s->rows[l][1];
}

/* [heads][rows] positions; heads of equal length agree. */
static void
make_rows(struct kv_rows *rows, const struct sample *s, uint32_t l, uint32_t **pos)
{
	uint32_t g, i;

	for (g = 0; g < SAMPLE_HEADS; g++) {
		pos[g] = malloc(4 * (size_t)s->rows[l][g] + 1);
		for (i = 0; i < s->rows[l][g]; i++)
			pos[g][i] = i + (s->rows[l][g] < 1000 ? 7 * (i + 1) : 0);
	}
	rows->heads = SAMPLE_HEADS;
	rows->count = s->rows[l];
	rows->pos = (const uint32_t *const *)pos;
}

static size_t
section_size(const struct sample *s, const char *type, uint32_t l)
{
	size_t e = kv_dtype_size(s->dtype);

	if (strcmp(type, "oBSq") == 0)
		return 64 + 2 * SAMPLE_HEADS * WINDOW * WIDTH * e;
	if (strcmp(type, "sCOR") == 0)
		return KV_SCORE_LABEL + 4 * (size_t)total(s, l);
	if (strcmp(type, "LGTS") == 0)
		return 50 * 4;
	if (strcmp(type, "TOKS") == 0)
		return 12 * 4;
	if (strcmp(type, "xVTs") == 0)
		return 333;                     /* odd: no byte planes */
	if (strcmp(type, "xVTS") == 0)
		return 70001;
	return (size_t)total(s, l) * WIDTH * e;
}

/* Malloc'ed content of any section but POSN; what has rules obeys them. */
static uint8_t *
section_content(const struct sample *s, const char *type, uint32_t l)
{
	size_t n = section_size(s, type, l), i;
	uint8_t *p = malloc(n + 1);

	sample_fill(p, n, l * 31 + (uint32_t)(unsigned char)type[0] + (uint32_t)type[3], s->noise);
	if (strcmp(type, "sCOR") == 0) {
		memset(p, 0, KV_SCORE_LABEL);
		strcpy((char *)p, "snapkv window=32");
		for (i = KV_SCORE_LABEL + 3; i < n; i += 4)
			p[i] = 0x3c;            /* no NaN */
	}
	if (strcmp(type, "oBSq") == 0) {
		memset(p, 0, 64);
		p[0] = 1;
		p[4] = WINDOW;
		for (i = 0; i < WINDOW; i++)
			p[8 + 4 * i] = (uint8_t)(100 + i);
	}
	return p;
}

static int
write_section(struct kv_writer *w, const struct sample *s, const char *type, uint32_t l, unsigned e)
{
	uint8_t *p = section_content(s, type, l);
	size_t n = section_size(s, type, l), cut = n / 3;
	struct kv_span spans[3] = { { p, cut }, { NULL, 0 }, { p + cut, n - cut } };
	int code = kv_write(w, type, strcmp(type, "LGTS") == 0 || strcmp(type, "TOKS") == 0 ?
	    KV_NO_LAYER : l, e, spans, 3);

	free(p);
	return code;
}

static int
write_layer(struct kv_writer *w, const struct sample *s, uint32_t l)
{
	unsigned e = (unsigned)kv_dtype_size(s->dtype);
	uint32_t *pos[SAMPLE_HEADS], g;
	struct kv_rows rows;
	int code;

	make_rows(&rows, s, l, pos);
	code = kv_write_rows(w, l, &rows);
	for (g = 0; g < SAMPLE_HEADS; g++)
		free(pos[g]);
	if (code == KV_OK && s->extras) {
		code = write_section(w, s, "oBSq", l, e);
		if (code == KV_OK)
			code = write_section(w, s, "sCOR", l, 4);
	}
	if (code == KV_OK)
		code = write_section(w, s, "KEYS", l, e);
	if (code == KV_OK && s->extras)
		code = write_section(w, s, "xVTs", l, 2);
	if (code == KV_OK)
		code = write_section(w, s, "VALS", l, e);
	if (code == KV_OK && s->extras && total(s, l) > 1000)
		code = write_section(w, s, "xVTS", l, 1);
	return code;
}

int
sample_write(const char *file, const struct sample *s)
{
	struct kv_head head;
	struct kv_writer *w;
	uint32_t l;
	int code;

	sample_head(&head, s);
	code = kv_create(file, &head, s->flags, &w);
	if (code == KV_OK)
		code = write_section(w, s, "TOKS", 0, 1);
	for (l = 0; l < SAMPLE_LAYERS && code == KV_OK; l++)
		code = write_layer(w, s, l);
	if (code == KV_OK && s->extras) {
		code = write_section(w, s, "LGTS", 0, 4);
		if (code == KV_OK)
			code = kv_sign(w, "a \"tool\"", "1", "{\"rate\":0.2}");
	}
	if (code == KV_OK)
		code = kv_commit(w);
	kv_writer_free(w);
	return code;
}

static void
check_rows(struct kv_reader *r, const struct sample *s, uint32_t l, const char *what)
{
	const struct kv_rows *rows;
	struct kv_rows want;
	uint32_t *pos[SAMPLE_HEADS], g;

	if (!check(kv_load_rows(r, &rows) == KV_OK, "%s: rows: %s", what, kv_reader_error(r)))
		return;
	make_rows(&want, s, l, pos);
	check(rows == kv_current_rows(r), "%s: kv_current_rows() is not kv_load_rows()", what);
	for (g = 0; g < SAMPLE_HEADS; g++) {
		check(rows->count[g] == want.count[g], "%s: layer %u head %u: %u rows, not %u",
		    what, l,
		    g, rows->count[g], want.count[g]);
		check(rows->count[g] == 0 || memcmp(rows->pos[g], pos[g],
		    4 * (size_t)rows->count[g]) ==
		    0, "%s: layer %u head %u: other positions", what, l, g);
		free(pos[g]);
	}
}

void
sample_check(struct kv_reader *r, const struct sample *s, const char *what)
{
	struct kv_section sec;
	const void *data;
	uint8_t *want;
	uint32_t l;
	int code, n = 0;

	while ((code = kv_next(r, &sec)) == 1) {
		n++;
		l = sec.layer == KV_NO_LAYER ? 0 : sec.layer;
		if (strcmp(sec.type, "POSN") == 0) {
			check_rows(r, s, l, what);
			continue;
		}
		if (strcmp(sec.type, "pROv") == 0)
			continue;
		if (!check(kv_load(r, &data) == KV_OK, "%s: %s", what, kv_reader_error(r)))
			return;
		check(sec.raw_size == section_size(s, sec.type, l),
		    "%s: %s layer %u has %llu bytes",
		    what, sec.type, l, (unsigned long long)sec.raw_size);
		check((uintptr_t)data % 64 == 0, "%s: %s is not aligned", what, sec.type);
		want = section_content(s, sec.type, l);
		check((data == NULL) == (sec.raw_size == 0), "%s: %s: NULL", what, sec.type);
		check(data == NULL || memcmp(data, want, (size_t)sec.raw_size) == 0,
		    "%s: %s layer %u differs", what, sec.type, l);
		free(want);
	}
	check(code == 0, "%s: %d %s", what, code, kv_reader_error(r));
	check(n >= 1 + 3 * SAMPLE_LAYERS, "%s: only %d sections", what, n);
	check(kv_check_index(r) == KV_OK, "%s: %s", what, kv_reader_error(r));
	check(!s->extras || strcmp(kv_reader_provenance(r), "{\"options\":{\"rate\":0.2},"
	    "\"tool\":\"a \\\"tool\\\"\",\"version\":\"1\"}\n") == 0, "%s: provenance %s", what,
	    kv_reader_provenance(r));
}

/* ---- feeding ---- */

int
feed(struct bytes b, size_t step)
{
	int fd[2];
	size_t at, n;
	ssize_t k;

	fflush(stdout);
	while (waitpid(-1, NULL, WNOHANG) > 0)
		continue;
	if (pipe(fd) != 0)
		abort();
	if (fork() == 0) {
		close(fd[0]);
		for (at = 0; at < b.size; at += (size_t)k) {
			n = b.size - at < step ? b.size - at : step;
			k = write(fd[1], b.data + at, n);
			if (k < 0)
				break;
		}
		_exit(0);
	}
	close(fd[1]);
	return fd[0];
}

int
in_memory(struct bytes b, int from)
{
	int fd = memfd_create("sample", 0);

	if (fd < 0 || pwrite(fd, b.data, b.size, from) != (ssize_t)b.size ||
	    ftruncate(fd, (off_t)b.size + from) != 0 || lseek(fd, from, SEEK_SET) != from)
		abort();
	return fd;
}

int
walk(int fd, const char *name, char *text)
{
	struct kv_section sec;
	struct kv_reader *r;
	int code = kv_open_fd(fd, name, &r);

	if (code == KV_OK)
		while ((code = kv_next(r, &sec)) == 1)
			continue;
	if (code == KV_OK)
		code = kv_check_index(r);
	if (text != NULL)
		snprintf(text, 1024, "%s", kv_reader_error(r));
	kv_close(r);
	return code;
}

int
copy_sections(int fd, const char *to, unsigned flags, int load)
{
	struct kv_section sec;
	struct kv_reader *r;
	struct kv_writer *w = NULL;
	const void *data;
	int code = kv_open_fd(fd, "copied", &r);

	if (code == KV_OK)
		code = kv_create(to, kv_reader_head(r), flags, &w);
	while (code == KV_OK && (code = kv_next(r, &sec)) == 1) {
		code = load ? kv_load(r, &data) : KV_OK;
		if (code == KV_OK)
			code = kv_copy(r, w);
	}
	if (code == KV_OK)
		code = kv_inherit(w, r);
	if (code == KV_OK)
		code = kv_commit(w);
	if (code != KV_OK)
		printf("copy: %s %s\n", kv_reader_error(r), w != NULL ? kv_writer_error(w) : "");
	kv_close(r);
	kv_writer_free(w);
	return code;
}
