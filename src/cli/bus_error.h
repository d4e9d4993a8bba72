/* bus_error.h - a mapped file that cannot be read any more ends the program with a message
 *
 * A page of a mapping that its file no longer has, or that the disk does not give, is a SIGBUS for
 * whoever looks at it. Who can go on without such a page maps by cli/mapped_file.h; the rest of
 * what is mapped (weights, adapters, programs themselves) ends here: the kernel knows which file it
 * was. */
#ifndef KVPIPE_BUS_ERROR_H
#define KVPIPE_BUS_ERROR_H

/* Installs the handler. It says "program: FILE: ..." on standard error, calls end(status), which
 * does only what a handler may do, and ends the process with that status: EXIT_DAMAGED where the
 * file has become too short, else EXIT_RUN. Any other SIGBUS calls end(0) and kills. */
void bus_error_catch(const char *program, void (*end)(int status));

#endif
