/* mapped_file.h - a file that is mapped for reading, and may be cut short meanwhile
 *
 * Reading a page that the file no longer has, or that cannot be read, would kill the process
 * (SIGBUS). Here it becomes a page of zeros, and the mapping knows: a handler of SIGBUS, which the
 * first mapping installs, puts it there. Who reads looks at broken() before what was read is used.
 * A SIGBUS from elsewhere goes where it would have gone. Signals are the process's, so this is not
 * in a library: it comes to model/ as a struct file_mapper. */
#ifndef KVPIPE_MAPPED_FILE_H
#define KVPIPE_MAPPED_FILE_H

#include "offload/offload_store.h"

/* Nothing is mapped where the addresses of the process are limited (ulimit -v), and no more than
 * 256 files at a time. The descriptor of a mapped file may be closed. */
extern const struct file_mapper mapped_files;

#endif
