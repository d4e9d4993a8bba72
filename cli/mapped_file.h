/* mapped_file.h - a file that is mapped for reading, and may be cut short meanwhile
 *
 * Reading a page that the file no longer has, or that cannot be read, would kill the process (SIGBUS). Here
 * it becomes a page of zeros, and the mapping knows: a handler of SIGBUS, which the first mapping installs,
 * puts it there. Who reads looks at mapped_file_broken() before what was read is used. A SIGBUS from
 * elsewhere goes where it would have gone. Signals are the process's, so this is not in a library: it
 * comes to model/ as a struct file_mapper. */
#ifndef KVPIPE_MAPPED_FILE_H
#define KVPIPE_MAPPED_FILE_H

#include "model/row_store.h"

extern const struct file_mapper mapped_files;           /* these */

/* Maps the first `size` bytes of the file, for reads in no order. NULL: it cannot be mapped, or the addresses
 * of the process are limited (ulimit -v), or there are too many mappings. The descriptor may be closed. */
struct mapped_file *map_file(int fd, size_t size);
void unmap_file(struct mapped_file *);                  /* NULL allowed */
const char *mapped_file_data(const struct mapped_file *);
/* 1: some of what was read since was not there, and has been zeros. */
int mapped_file_broken(const struct mapped_file *);

#endif
