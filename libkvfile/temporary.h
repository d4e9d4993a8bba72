/* temporary.h - a file that is written under a temporary name beside its final one
 *
 * Internal to libkvfile, and for the text files of programs. It is locked while its writer
 * lives, so that the next writer of the same name can detect and remove what a killed one has
 * left. */
#ifndef KVFILE_TEMPORARY_H
#define KVFILE_TEMPORARY_H

#include <sys/types.h>

#pragma GCC visibility push(hidden)

struct kv_temporary {
	char *name;             /* NULL: no file, or it has been renamed */
	int lock;               /* descriptor that holds the lock; 0: none */
};

/* Returns the folder that a file is in, "." if the path names none. To be freed; NULL without
 * memory. */
char *kv_folder_of(const char *path);
/* Returns the name that rename() shall replace: the file that path leads to, existing or not,
 * and not a symbolic link to it. In a folder where everybody may write but remove only their
 * own files, links of others are not followed (EACCES), as Linux does for open(2). To be freed;
 * NULL with errno. */
char *kv_final_name(const char *path);

/* Removes files of dead writers of `final`, and creates a new one. Returns a descriptor to
 * write to, or -1 with errno and empty *t. */
int kv_temporary_create(struct kv_temporary *t, const char *final, mode_t mode);
/* Renames it to `final`. Returns 0, or -1 with errno. */
int kv_temporary_rename(struct kv_temporary *t, const char *final);
/* Removes it unless it was renamed, and releases the lock. */
void kv_temporary_end(struct kv_temporary *t);
/* Removes a temporary file in the folder with this descriptor, if its writer is dead. */
void kv_temporary_remove_dead(int folder, const char *name);

#pragma GCC visibility pop
#endif
