/* prefix_store_lru.c - removes the least recently used files of a prefix store
 *
 * Failures are ignored: a folder that cannot be changed is left as it is. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "engine/prefix_store.h"
#include "libkvfile/temporary.h"

#define NAME 32                 /* digits */
#define SUFFIX ".kv"

char *
store_path(const char *dir, const char *name)
{
	char *path;

	return asprintf(&path, "%s/%s" SUFFIX, dir, name) < 0 ? NULL : path;
}

int64_t
store_has(const char *path)
{
	struct stat st;

	return lstat(path, &st) == 0 && S_ISREG(st.st_mode) ? (int64_t)st.st_size : -1;
}

/* Sets explicit times, since the system's clock may give many files the same time. */
void
store_used(const char *dir, char (*name)[33], uint32_t n)
{
	struct timespec now[2];
	uint32_t i;

	clock_gettime(CLOCK_REALTIME, &now[0]);
	for (i = 0; i < n; i++) {
		const long before = now[0].tv_nsec - (long)i * 1000;
		char *path = store_path(dir, name[i]);

		now[1] = (struct timespec){ now[0].tv_sec - (before < 0), before < 0 ?
		    before + 1000000000 : before };
		if (path != NULL)
			(void)utimensat(AT_FDCWD, path, (struct timespec[]){ now[1], now[1] },
			    AT_SYMLINK_NOFOLLOW);
		free(path);
	}
}

/* ---- what is there ---- */

struct file {
	char name[NAME + sizeof SUFFIX];
	uint64_t size;
	struct timespec used;
};

struct files {
	struct file *at;
	size_t n, cap;
	uint64_t bytes;
};

static int
add_file(struct files *f, const char *name, const struct stat *st)
{
	struct file *more;

	if (f->n == f->cap) {
		f->cap = f->cap * 2 + 256;
		if ((more = realloc(f->at, f->cap * sizeof *more)) == NULL)
			return -1;
		f->at = more;
	}
	memcpy(f->at[f->n].name, name, sizeof f->at->name);
	f->at[f->n].size = (uint64_t)st->st_size;
	f->at[f->n++].used = st->st_mtim;
	f->bytes += (uint64_t)st->st_size;
	return 0;
}

/* Lists the blocks in the folder, and removes unfinished files whose writers have ended. */
static int
list(DIR *d, struct files *f)
{
	struct dirent *e;
	struct stat st;

	while ((e = readdir(d)) != NULL) {
		const char *rest = e->d_name + NAME;

		if (strspn(e->d_name, "0123456789abcdef") != NAME || strncmp(rest, SUFFIX, 3) != 0)
			continue;
		if (strncmp(rest, SUFFIX ".tmp.", 8) == 0)
			kv_temporary_remove_dead(dirfd(d), e->d_name);
		else if (rest[3] == '\0' &&
		    fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
		    S_ISREG(st.st_mode) && add_file(f, e->d_name, &st) != 0)
			return -1;
	}
	return 0;
}

static int
by_use(const void *one, const void *two)
{
	const struct file *a = one, *b = two;

	if (a->used.tv_sec != b->used.tv_sec)
		return a->used.tv_sec < b->used.tv_sec ? -1 : 1;
	if (a->used.tv_nsec != b->used.tv_nsec)
		return a->used.tv_nsec < b->used.tv_nsec ? -1 : 1;
	return strcmp(a->name, b->name);
}

/* Removes the least recently used files until there are at most `most` bytes. Files of other users,
 * in a sticky folder, cannot be removed. */
static void
remove_oldest(DIR *d, const char *dir, struct files *f, uint64_t most,
    const struct notice_hook *told)
{
	size_t i, left = 0;
	int error = 0;

	qsort(f->at, f->n, sizeof *f->at, by_use);
	for (i = 0; i < f->n && f->bytes > most; i++)
		if (unlinkat(dirfd(d), f->at[i].name, 0) == 0 || errno == ENOENT)
			f->bytes -= f->at[i].size;
		else {
			error = errno;
			left++;
		}
	if (f->bytes > most)
		notice(told,
		    "%s: %zu blocks cannot be removed (%s): it has %" PRIu64
		    " bytes, which is more than %" PRIu64,
		    dir, left, strerror(error), f->bytes, most);
}

/* Locks the folder, because two processes together would remove too much. Goes on without a lock if
 * the folder cannot be locked. */
void
store_make_room(const char *dir, uint64_t most, const struct notice_hook *told)
{
	DIR *d = opendir(dir);
	struct files f = { .at = NULL };

	if (d != NULL && (flock(dirfd(d), LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) &&
	    list(d, &f) == 0 && most != 0 && f.bytes > most)
		remove_oldest(d, dir, &f, most, told);
	free(f.at);
	if (d != NULL)
		closedir(d);
}
