/* weights_known.c - hashes of weights that have been read before
 *
 * A text: a line that names the format, a line for each folder, the newest last, and a line with
 * the XXH3-64 of all before. It is read whole and replaced whole, by rename(2), so that readers and
 * writers need not wait for each other: of two that write at once one is forgotten, and its weights
 * are read again. */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libkvfile/temporary.h"
#include "model/model_files.h"
#include "model/weights_known.h"

#define FORMAT "kvpipe weights 1\n"

enum {
	MOST = 256,                     /* folders */
	LINE = 66,                      /* key, a blank, hash, newline */
	HEADER = sizeof FORMAT - 1,
	END = 17,                       /* of the file: 16 digits, newline */
	LARGEST = HEADER + MOST * LINE + END,
	/* Seconds within which two changes may leave the same times: FAT counts them in twos. */
	GRAIN = 3
};

/* ---- the key ---- */

static void
add_number(XXH3_state_t *x, uint64_t n)
{
	n = htole64(n);
	XXH3_128bits_update(x, &n, sizeof n);
}

static void
add_time(XXH3_state_t *x, const struct timespec *t)
{
	add_number(x, (uint64_t)t->tv_sec);
	add_number(x, (uint64_t)t->tv_nsec);
}

/* The files, and which of them each tensor is from: what the rest of a tensor is, they say. */
static void
make_key(struct weights_known *k, const struct tensor_set *st, XXH3_state_t *x)
{
	const struct tensor *t;
	const char *path;
	struct stat s;
	size_t i, f;

	XXH3_128bits_reset(x);
	XXH3_128bits_update(x, FORMAT, HEADER);
	for (i = 0; safetensors_file(st, i, &s) != NULL; i++) {
		add_number(x, s.st_dev);
		add_number(x, s.st_ino);
		add_number(x, (uint64_t)s.st_size);
		add_time(x, &s.st_mtim);
		add_time(x, &s.st_ctim);
	}
	for (i = 0; (t = safetensors_at(st, i)) != NULL; i++) {
		for (f = 0; (path = safetensors_file(st, f, NULL)) != NULL && path != t->file; f++)
			;
		add_number(x, f);
		XXH3_128bits_update(x, t->name, strlen(t->name) + 1);
	}
	model_hash_text(XXH3_128bits_digest(x), k->key);
}

/* ---- the file ---- */

static size_t
put_end(char *text, size_t n)
{
	return n + (size_t)snprintf(text + n, END + 1, "%016" PRIx64 "\n", XXH3_64bits(text, n));
}

/* Is this what we have written? Returns the number of lines, 0 where it is not. */
static size_t
check_text(const char *text, size_t n)
{
	char end[END + 1];

	if (n < HEADER + END || (n - HEADER - END) % LINE != 0 || memcmp(text, FORMAT, HEADER) != 0)
		return 0;
	snprintf(end, sizeof end, "%016" PRIx64 "\n", XXH3_64bits(text, n - END));
	return memcmp(text + n - END, end, END) == 0 ? (n - HEADER - END) / LINE : 0;
}

/* text[LARGEST] <- the file, if it is ours alone. Returns how many lines it has. */
static size_t
read_lines(const char *file, char *text)
{
	const int fd = open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
	struct stat st;
	size_t n = 0;
	ssize_t got;

	if (fd == -1)
		return 0;
	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid() &&
	    (st.st_mode & (S_IWGRP | S_IWOTH)) == 0 && st.st_size <= LARGEST)
		while (n < LARGEST && (got = read(fd, text + n, LARGEST - n)) > 0)
			n += (size_t)got;
	close(fd);
	return check_text(text, n);
}

/* The folder of the file, and the one that this is in. */
static void
make_folders(const char *file)
{
	char *path = strdup(file), *last = path != NULL ? strrchr(path, '/') : NULL, *upper;

	if (last != NULL && last > path) {
		*last = '\0';
		if (mkdir(path, 0700) == -1 && errno == ENOENT &&
		    (upper = strrchr(path, '/')) != NULL && upper > path) {
			*upper = '\0';
			(void)mkdir(path, 0700);
			*upper = '/';
			(void)mkdir(path, 0700);
		}
	}
	free(path);
}

static void
replace(const char *file, const char *text, size_t n)
{
	struct kv_temporary t;
	int fd, written;

	make_folders(file);
	if ((fd = kv_temporary_create(&t, file, 0600)) == -1)
		return;
	written = write(fd, text, n) == (ssize_t)n;
	if (close(fd) == 0 && written)
		(void)kv_temporary_rename(&t, file);
	kv_temporary_end(&t);
}

/* ---- what others call ---- */

int
weights_known_find(struct weights_known *k, const char *file, const struct tensor_set *st,
    XXH3_state_t *x, char *hex)
{
	char text[LARGEST];
	size_t i, n;

	k->file = file;
	if (file == NULL)
		return 0;
	clock_gettime(CLOCK_REALTIME, &k->began);
	make_key(k, st, x);
	n = read_lines(file, text);
	for (i = 0; i < n; i++) {
		const char *line = text + HEADER + i * LINE;

		if (memcmp(line, k->key, 32) == 0) {
			memcpy(hex, line + 33, 32);
			hex[32] = '\0';
			return 1;
		}
	}
	return 0;
}

static int
is_before(const struct timespec *a, const struct timespec *b)
{
	return a->tv_sec != b->tv_sec ? a->tv_sec < b->tv_sec : a->tv_nsec < b->tv_nsec;
}

static int
same_time(const struct timespec *a, const struct timespec *b)
{
	return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

/* Whether a change of these bytes, from when they began to be read, would be seen. */
static int
are_settled(const struct weights_known *k, const struct tensor_set *st)
{
	const struct timespec limit = { k->began.tv_sec - GRAIN, k->began.tv_nsec };
	struct stat then, now;
	const char *path;
	size_t i;

	for (i = 0; (path = safetensors_file(st, i, &then)) != NULL; i++)
		if (stat(path, &now) == -1 || now.st_dev != then.st_dev ||
		    now.st_ino != then.st_ino || now.st_size != then.st_size ||
		    !same_time(&now.st_mtim, &then.st_mtim) ||
		    !same_time(&now.st_ctim, &then.st_ctim) ||
		    !is_before(&now.st_mtim, &limit) || !is_before(&now.st_ctim, &limit))
			return 0;
	return 1;
}

void
weights_known_add(const struct weights_known *k, const struct tensor_set *st, const char *hex)
{
	char old[LARGEST], new[LARGEST + 1];
	size_t lines, first, n = HEADER;

	if (k->file == NULL || !are_settled(k, st))
		return;
	lines = read_lines(k->file, old);
	first = lines < MOST ? 0 : lines - MOST + 1;
	memcpy(new, FORMAT, HEADER);
	memcpy(new + n, old + HEADER + first * LINE, (lines - first) * LINE);
	n += (lines - first) * LINE;
	n += (size_t)snprintf(new + n, LINE + 1, "%s %s\n", k->key, hex);
	replace(k->file, new, put_end(new, n));
}
