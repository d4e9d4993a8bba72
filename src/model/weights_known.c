/* weights_known.c - hashes of weights that have been read before */
#include <endian.h>
#include <string.h>
#include <sys/stat.h>

#include "libkvfile/remembered.h"
#include "model/model_files.h"
#include "model/weights_known.h"

#define FORMAT "kvpipe weights 1"

/* Seconds within which two changes may leave the same times: FAT counts them in twos. */
enum { GRAIN = 3 };

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
	XXH3_128bits_update(x, FORMAT "\n", sizeof FORMAT);
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

/* ---- what others call ---- */

static struct kv_remembered
file_of(const struct weights_known *k)
{
	return (struct kv_remembered){ .file = k->file, .format = FORMAT };
}

int
weights_known_find(struct weights_known *k, const char *file, const struct tensor_set *st,
    XXH3_state_t *x, char *hex)
{
	k->file = file;
	if (file == NULL)
		return 0;
	clock_gettime(CLOCK_REALTIME, &k->began);
	make_key(k, st, x);
	const struct kv_remembered r = file_of(k);
	return kv_remembered_find(&r, k->key, hex, 33);
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
	const struct kv_remembered r = file_of(k);

	if (k->file != NULL && are_settled(k, st))
		kv_remembered_add(&r, k->key, hex);
}
