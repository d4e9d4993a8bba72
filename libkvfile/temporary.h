/* temporary.h - a file that is written beside the name that it will have
 *
 * Internal to libkvfile, and for the text files of programs. It is locked as long as its writer
 * lives, so that the next writer of the same name can tell, and remove, what a killed one has
 * left. */
#ifndef KVFILE_TEMPORARY_H
#define KVFILE_TEMPORARY_H

#include <sys/types.h>

#pragma GCC visibility push(hidden)

struct kv_temporary {
	char *name;             /* NULL: there is none, or it has been renamed */
	int lock;               /* descriptor that holds the lock; 0: none */
};

/* The folder that a file is in, "." where the path names none. To be freed; NULL without memory. */
char *kv_folder_of(const char *path);
/* What rename() shall replace: the file that path leads to, be it there or not, and not a symbolic
 * link to it. In a folder where everybody may write, but remove only what is his, links of others
 * are not followed (EACCES), as Linux has it for open(2). To be freed; NULL with errno. */
char *kv_final_name(const char *path);

/* Removes files of dead writers of `final`, and creates a new one. Returns a descriptor to write
 * to, or -1 with errno; *t is then empty. */
int kv_temporary_create(struct kv_temporary *t, const char *final, mode_t mode);
/* It takes the name `final`. Returns 0, or -1 with errno. */
int kv_temporary_rename(struct kv_temporary *t, const char *final);
/* Removes it, if it still has its name, and lets go of the lock. */
void kv_temporary_end(struct kv_temporary *t);
/* Removes a temporary file of this folder, a descriptor, if its writer is dead. */
void kv_temporary_remove_dead(int folder, const char *name);

#pragma GCC visibility pop
#endif
