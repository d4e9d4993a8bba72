/* mapped_file.h - maps a file for reading and survives its truncation
 *
 * Reading a page that the file has lost, or that cannot be read, would kill the process
 * (SIGBUS). The first mapping installs a SIGBUS handler that replaces such a page by zeros and
 * marks the mapping. The reader checks broken() before it uses what it has read. Any other
 * SIGBUS is passed on to the previous handler. Signals belong to the process, so this is not in
 * a library: model/ gets it as a struct file_mapper. */
#ifndef KVPIPE_MAPPED_FILE_H
#define KVPIPE_MAPPED_FILE_H

#include "offload/offload_store.h"

/* Maps nothing if the address space is limited (ulimit -v), and at most 256 files at a time.
 * The descriptor of a mapped file may be closed. */
extern const struct file_mapper mapped_files;

#endif
