/* bus_error.h - ends the program with a message when a page of a mapped file cannot be read
 *
 * Reading a page of a mapping that the file has lost, or that the disk cannot read, raises
 * SIGBUS. Files whose readers can continue without the page are mapped by cli/mapped_file.h.
 * This handler is for all other mappings (weights, adapters, the programs themselves); it finds
 * out from the kernel which file it was. */
#ifndef KVPIPE_BUS_ERROR_H
#define KVPIPE_BUS_ERROR_H

/* Installs the handler. It writes "program: FILE: ..." to standard error, calls end(status),
 * which must be async-signal-safe, and ends the process with that status: EXIT_DAMAGED if the
 * file has become too short, else EXIT_RUN. For any other SIGBUS it calls end(0) and lets the
 * signal kill the process. */
void bus_error_catch(const char *program, void (*end)(int status));

#endif
