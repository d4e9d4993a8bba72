/* kvfile_sample.h - what the unit tests of libkvfile share: checks, sample snapshots, ways to
 * feed them
 *
 * A test program calls check() for every fact and returns check_done(). */
#ifndef KVFILE_SAMPLE_H
#define KVFILE_SAMPLE_H

#include "libkvfile/kvfile.h"

#include <stdio.h>

/* check(ok, format, ...): counts, and says what is wrong when ok is not true. The message is
 * made only then, and after ok. Has the value of ok. */
#define check(ok, ...) ((ok) ? check_passed() : check_failed(__VA_ARGS__))
int check_passed(void);
int check_failed(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Prints "N passed, N failed". Returns the exit status. */
int check_done(void);

/* A folder for this run, removed by check_done(); path gives "folder/name" in one of 16
 * buffers. */
const char *path(const char *name);

struct bytes {
	uint8_t *data;
	size_t size;
};

struct bytes slurp(const char *file);
struct bytes fixture(const char *name, const char *suffix); /* of tests/fixtures/rows */
void spill(const char *file, const void *data, size_t size);
int same(struct bytes a, struct bytes b);

/* ---- samples ---- */

#define SAMPLE_LAYERS 2
#define SAMPLE_HEADS 2

struct sample {
	enum kv_dtype dtype;
	uint32_t rows[SAMPLE_LAYERS][SAMPLE_HEADS];
	unsigned flags;                 /* of kv_create() */
	int extras;                     /* every optional section, and some nobody knows */
	int noise;                      /* content that does not compress */
};

extern const struct sample small_sample;        /* ragged, all extras, a few kB */
extern const struct sample large_sample;        /* KEYS and VALS of several blocks */

void sample_head(struct kv_head *head, const struct sample *s);

/* Content of KEYS, VALS and so on: the same for the same seed. */
void sample_fill(void *data, size_t size, uint32_t seed, int noise);

/* Writes the sample. Returns what kv_commit() did, or the first failure. */
int sample_write(const char *file, const struct sample *s);

/* Reads it back and checks every byte. */
void sample_check(struct kv_reader *r, const struct sample *s, const char *what);

/* ---- feeding ---- */

/* A pipe that a child process fills with the bytes, step at a time; to be read from the
 * descriptor. */
int feed(struct bytes b, size_t step);

/* A file in memory; from = 0 is read from its beginning, 1 is a stream. */
int in_memory(struct bytes b, int from);

/* Goes through a whole snapshot, index included. Returns the code; text (1024 bytes) gets the
 * message. */
int walk(int fd, const char *name, char *text);

/* Copies section by section. load: kv_load() each one first. */
int copy_sections(int fd, const char *to, unsigned flags, int load);

#endif
