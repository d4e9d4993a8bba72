/* model_weights - the hash of all weights, and the file that remembers it */

#include <fcntl.h>
#include <sys/wait.h>
#include <time.h>

#include "model/overrides.h"
#include "model/weights_hash.h"
#include "model/weights_known.h"
#include "tests/unit/model_folder.h"

enum { LONG = 3 * (1 << 20) + 12, SHORT = 40, BYTES = LONG + SHORT };

static uint8_t data[BYTES];

/* One tensor of four pieces, the last one short, a small and an empty one. */
static char *
make_weights(void)
{
	char *dir = make_dir(), header[512];
	size_t i;

	for (i = 0; i < BYTES; i++)
		data[i] = (uint8_t)(i * 2654435761u >> 13);
	snprintf(header, sizeof header, "{\"b\":{\"dtype\":\"F32\",\"shape\":[%d],\"data_offsets\":"
	    "[0,%d]},\"a\":{\"dtype\":\"F16\",\"shape\":[4,5],\"data_offsets\":[%d,%d]},"
	    "\"c\":{\"dtype\":\"BF16\",\"shape\":[0,7],\"data_offsets\":[%d,%d]}}", LONG / 4, LONG,
	    LONG, BYTES, BYTES, BYTES);
	write_safetensors(dir, "model.safetensors", header, 1, data, BYTES);
	return dir;
}

/* Changes a byte of the data, in place. */
static void
change(const char *dir, long at)
{
	char path[256];
	FILE *f;

	snprintf(path, sizeof path, "%s/model.safetensors", dir);
	if ((f = fopen(path, "r+b")) == NULL || fseek(f, at - BYTES, SEEK_END) != 0 ||
	    fputc(data[at] ^ 1, f) == EOF || fclose(f) != 0)
		abort();
}

static struct tensor_set *
open_weights(const char *dir)
{
	struct tensor_set *st;
	char err[512] = "";

	if (safetensors_open(dir, &no_overrides, &st, err, sizeof err) != MODEL_OK) {
		fprintf(stderr, "%s\n", err);
		exit(1);
	}
	return st;
}

static void
hash(const char *dir, unsigned threads, char *whole, char *sampled)
{
	struct weights_reading how = { .threads = threads };
	struct tensor_set *st = open_weights(dir);
	char err[512];

	CHECK(weights_hash(st, &how, whole, err, sizeof err) == MODEL_OK, "%s", err);
	CHECK(how.bytes == BYTES, "%" PRIu64 " bytes read", how.bytes);
	CHECK(weights_hash_sampled(st, sampled, err, sizeof err) == MODEL_OK, "%s", err);
	safetensors_close(st);
}

static void
test_threads(void)
{
	char *dir = make_weights(), one[33], many[33], sampled[33];
	unsigned n;

	hash(dir, 0, one, sampled);
	for (n = 1; n <= 70; n = n * 2 + 1) {
		hash(dir, n, many, sampled);
		CHECK(strcmp(one, many) == 0, "%u threads: %s, not %s", n, many, one);
	}
	free(dir);
}

/* Bytes at the seams of pieces; the second is between the samples of older programs. */
static void
test_every_byte(void)
{
	static const long at[] = { 0, 5000, (1 << 20) - 1, 1 << 20, LONG - 1, LONG, BYTES - 1 };
	char *dir = make_weights(), before[33], whole[33], sampled_before[33], sampled[33];
	size_t i;

	hash(dir, 2, before, sampled_before);
	free(dir);
	for (i = 0; i < sizeof at / sizeof *at; i++) {
		dir = make_weights();
		change(dir, at[i]);
		hash(dir, 2, whole, sampled);
		CHECK(strcmp(before, whole) != 0, "byte %ld does not count", at[i]);
		CHECK(at[i] != 5000 || strcmp(sampled_before, sampled) == 0, "samples: %s",
		    sampled);
		free(dir);
	}
}

/* ---- what is remembered ---- */

/* Looks up as if `later` seconds had passed since the files were made. Remembers `hex` where
 * nothing is found. */
static int
find(const char *file, struct tensor_set *st, int later, char *hex)
{
	XXH3_state_t *x = XXH3_createState();
	struct weights_known k;
	char found[33] = "";
	const int there = weights_known_find(&k, file, st, x, found);

	XXH3_freeState(x);
	k.began.tv_sec += later;
	if (there)
		CHECK(strcmp(found, hex) == 0, "found %s, not %s", found, hex);
	else
		weights_known_add(&k, st, hex);
	return there;
}

static char hex[] = "00112233445566778899aabbccddeeff";

static char *
known_file(const char *dir)
{
	char *file;

	if (asprintf(&file, "%s/cache/kvpipe/fingerprints", dir) == -1)
		abort();
	return file;
}

static unsigned
mode_of(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 ? st.st_mode & 07777 : 0;
}

static void
test_known(void)
{
	char *dir = make_weights(), *file = known_file(dir), folder[256];
	struct tensor_set *st = open_weights(dir);

	CHECK(!find(NULL, st, 10, hex), "without a file");
	CHECK(!find(file, st, 0, hex) && access(file, F_OK) == -1, "files of just now");
	CHECK(!find(file, st, 10, hex), "the first time");
	CHECK(find(file, st, 0, hex), "the second time");
	CHECK(mode_of(file) == 0600, "file %o", mode_of(file));
	snprintf(folder, sizeof folder, "%s/cache/kvpipe", dir);
	CHECK(mode_of(folder) == 0700, "folder %o", mode_of(folder));
	snprintf(folder, sizeof folder, "%s/cache", dir);
	CHECK(mode_of(folder) == 0700, "upper folder %o", mode_of(folder));
	safetensors_close(st);
	free(file);
	free(dir);
}

/* Size and mtime as before: ctime tells. And a file that takes the place of another one. */
static void
test_changed(void)
{
	char *dir = make_weights(), *file = known_file(dir), path[256];
	struct tensor_set *st = open_weights(dir);
	struct timespec times[2], pause = { 0, 20000000 };
	struct stat before;

	snprintf(path, sizeof path, "%s/model.safetensors", dir);
	find(file, st, 10, hex);
	CHECK(stat(path, &before) == 0, "stat");
	nanosleep(&pause, NULL);
	change(dir, 5000);
	times[0] = before.st_atim;
	times[1] = before.st_mtim;
	CHECK(utimensat(AT_FDCWD, path, times, 0) == 0, "utimensat");
	safetensors_close(st);
	st = open_weights(dir);
	CHECK(!find(file, st, 10, hex), "dated back");
	CHECK(find(file, st, 10, hex), "remembered anew");
	nanosleep(&pause, NULL);
	change(dir, 5001);
	/* read as it was when it was opened, and not as it is */
	CHECK(unlink(file) == 0 && !find(file, st, 10, hex) && access(file, F_OK) == -1,
	    "changed while it was read");
	safetensors_close(st);
	free(file);
	free(dir);
}

/* What stands in place of the file is as good as none, and is replaced where that can be. */
static void
test_damaged(void)
{
	char *dir = make_weights(), *file = known_file(dir), text[256], other[300];
	struct tensor_set *st = open_weights(dir);
	size_t n, i;
	FILE *f;

	find(file, st, 10, hex);
	f = fopen(file, "rb");
	n = f != NULL ? fread(text, 1, sizeof text, f) : 0;
	CHECK(n == 100 && fclose(f) == 0, "%zu bytes", n);
	for (i = 0; i < n; i++) {
		text[i] ^= 1;
		write_file("", file, text, n);
		CHECK(!find(file, st, 0, hex), "byte %zu is changed", i);
		text[i] ^= 1;
		write_file("", file, text, i);
		CHECK(!find(file, st, 0, hex), "cut at byte %zu", i);
	}
	write_file("", file, text, n);
	CHECK(find(file, st, 0, hex), "whole again");
	CHECK(chmod(file, 0620) == 0 && !find(file, st, 0, hex), "others may write");
	CHECK(chmod(file, 0600) == 0 && find(file, st, 0, hex), "they may not");
	snprintf(other, sizeof other, "%s.other", file);
	CHECK(rename(file, other) == 0 && symlink(other, file) == 0, "symlink");
	CHECK(!find(file, st, 0, hex), "a symbolic link is followed");
	CHECK(unlink(file) == 0 && mkfifo(file, 0600) == 0 && !find(file, st, 0, hex), "a FIFO");
	CHECK(!find(file, st, 10, hex) && find(file, st, 0, hex), "replaced");
	safetensors_close(st);
	free(file);
	free(dir);
}

/* Many folders: the file does not grow without bound, and the newest ones are in it. Of many
 * processes each writes whole files. */
static void
test_many(void)
{
	char *dir = make_weights(), *file = known_file(dir);
	struct tensor_set *st = open_weights(dir);
	struct weights_known k = { .file = file, .began = { (time_t)1 << 40, 0 } };
	struct stat s;
	int i, p, status;

	for (p = 0; p < 6; p++)
		if (fork() == 0) {
			for (i = 0; i < 60; i++) {
				snprintf(k.key, sizeof k.key, "%032x", p * 60 + i);
				weights_known_add(&k, st, hex);
			}
			_exit(0);
		}
	for (p = 0; p < 6; p++)
		CHECK(wait(&status) > 0 && status == 0, "a process has failed");
	find(file, st, 10, hex);
	CHECK(find(file, st, 0, hex), "the newest one");
	for (i = 0; i < 300; i++) {
		snprintf(k.key, sizeof k.key, "%032x", 1000 + i);
		weights_known_add(&k, st, hex);
		CHECK(i != 254 || find(file, st, 0, hex), "one of 256");
	}
	CHECK(stat(file, &s) == 0 && s.st_size == 17 + 256 * 66 + 17, "%jd bytes",
	    (intmax_t)s.st_size);
	CHECK(!find(file, st, 0, hex), "the oldest one");
	safetensors_close(st);
	free(file);
	free(dir);
}

int
main(void)
{
	make_scratch();
	test_threads();
	test_every_byte();
	test_known();
	test_changed();
	test_damaged();
	test_many();
	return failures != 0;
}
