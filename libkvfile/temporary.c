/* temporary.c - a file that is written under a temporary name beside its final one */

#include "temporary.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define TRIES 100               /* names */
#define MOST_LINKS 40           /* most symbolic links in a row, as in the kernel */

/* Returns the target of the symbolic link at path, relative to the working directory. */
static char *
follow(const char *path)
{
	const char *slash = strrchr(path, '/');
	char target[PATH_MAX], *next;
	ssize_t n = readlink(path, target, sizeof target - 1);

	if (n < 0)
		return NULL;
	target[n] = '\0';
	if (target[0] == '/' || slash == NULL)
		return strdup(target);
	return asprintf(&next, "%.*s%s", (int)(slash + 1 - path), path, target) < 0 ? NULL : next;
}

char *
kv_folder_of(const char *path)
{
	const char *slash = strrchr(path, '/');

	if (slash == NULL)
		return strdup(".");
	return strndup(path, slash == path ? 1 : (size_t)(slash - path));
}

/* Linux's fs.protected_symlinks, which the kernel cannot apply to a file opened under another
 * name. */
static int
may_follow(const char *path, const struct stat *link)
{
	char *folder = kv_folder_of(path);
	struct stat st;
	int may = folder != NULL && stat(folder, &st) == 0 && ((st.st_mode & S_ISVTX) == 0 ||
	    (st.st_mode & S_IWOTH) == 0 || link->st_uid == geteuid() || link->st_uid == st.st_uid);

	free(folder);
	if (!may)
		errno = EACCES;
	return may;
}

char *
kv_final_name(const char *path)
{
	char *at = strdup(path), *next;
	struct stat st;
	int i;

	for (i = 0; at != NULL && lstat(at, &st) == 0 && S_ISLNK(st.st_mode); i++) {
		next = i < MOST_LINKS && may_follow(at, &st) ? follow(at) : NULL;
		if (i == MOST_LINKS)
			errno = ELOOP;
		free(at);
		at = next;
	}
	return at;
}

/* ---- files of dead writers ---- */

/* Returns whether this is the name of a temporary file of `base`: base.tmp.PID or
 * base.tmp.PID.N */
static int
is_temporary(const char *name, const char *base)
{
	const size_t n = strlen(base);
	const char *p = name + n + 5;

	if (strncmp(name, base, n) != 0 || strncmp(name + n, ".tmp.", 5) != 0 || *p == '\0')
		return 0;
	p += strspn(p, "0123456789");
	if (p[0] == '.' && p[1] != '\0')
		p += 1 + strspn(p + 1, "0123456789");
	return *p == '\0' && p > name + n + 5;
}

/* A writer holds a lock from the creation of its file until it is renamed or removed. On file
 * systems without locks nothing is removed. */
void
kv_temporary_remove_dead(int folder, const char *name)
{
	int fd = openat(folder, name, O_WRONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
	struct stat st, now;

	if (fd < 0)
		return;
	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && flock(fd, LOCK_EX | LOCK_NB) == 0 &&
	    fstatat(folder, name, &now, AT_SYMLINK_NOFOLLOW) == 0 && now.st_ino == st.st_ino &&
	    now.st_dev == st.st_dev)
		unlinkat(folder, name, 0);
	close(fd);
}

static void
remove_dead(const char *final)
{
	const char *slash = strrchr(final, '/'), *base = slash == NULL ? final : slash + 1;
	char *folder = kv_folder_of(final);
	DIR *d = folder != NULL ? opendir(folder) : NULL;
	struct dirent *e;

	while (d != NULL && (e = readdir(d)) != NULL)
		if (is_temporary(e->d_name, base))
			kv_temporary_remove_dead(dirfd(d), e->d_name);
	if (d != NULL)
		closedir(d);
	free(folder);
}

/* ---- ours ---- */

/* Creates and locks name. Before the lock another process may have removed the file as a dead
 * writer's, or be about to (then it is locked): -1 with EEXIST, as if the name were in use. */
static int
create(struct kv_temporary *t, const char *name, mode_t mode)
{
	int fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode), error;
	struct stat st;

	if (fd < 0)
		return -1;
	if (flock(fd, LOCK_EX | LOCK_NB) != 0 ? errno == EWOULDBLOCK :
	    fstat(fd, &st) == 0 && st.st_nlink == 0)
		error = EEXIST;
	else if ((t->lock = fcntl(fd, F_DUPFD_CLOEXEC, 3)) > 0)
		return fd;
	else {
		error = errno;
		t->lock = 0;
		unlink(name);
	}
	close(fd);
	errno = error;
	return -1;
}

int
kv_temporary_create(struct kv_temporary *t, const char *final, mode_t mode)
{
	size_t size = strlen(final) + 40;
	char *name = malloc(size);
	int i, fd = -1;

	*t = (struct kv_temporary){ .name = NULL };
	if (name == NULL)
		return -1;
	remove_dead(final);
	snprintf(name, size, "%s.tmp.%ld", final, (long)getpid());
	for (i = 1; i <= TRIES; i++) {
		if ((fd = create(t, name, mode)) >= 0 || errno != EEXIST)
			break;
		snprintf(name, size, "%s.tmp.%ld.%d", final, (long)getpid(), i);
	}
	if (fd < 0)
		free(name);
	else
		t->name = name;
	return fd;
}

int
kv_temporary_rename(struct kv_temporary *t, const char *final)
{
	if (rename(t->name, final) != 0)
		return -1;
	free(t->name);
	t->name = NULL;
	return 0;
}

void
kv_temporary_end(struct kv_temporary *t)
{
	if (t->name != NULL)
		unlink(t->name);
	free(t->name);
	if (t->lock > 0)
		close(t->lock);
	*t = (struct kv_temporary){ .name = NULL };
}
