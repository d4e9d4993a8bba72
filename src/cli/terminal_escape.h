/* terminal_escape.h - texts from files and command lines, made fit for a terminal
 *
 * A file name, a label, a key of JSON may hold anything, ESC sequences included. */
#ifndef KVPIPE_TERMINAL_ESCAPE_H
#define KVPIPE_TERMINAL_ESCAPE_H

#include <stdio.h>

/* The text with control characters (C0 with DEL, and C1 in UTF-8) written as \n, \t or \x1b. What
 * has none is returned as it is; otherwise valid until the eighth call after this one. */
const char *shown(const char *text);

/* Writes text[n], whole characters: where `to` is a terminal with control characters as shown() has
 * them, but for newline and tab; else as it is. Returns 0, or -1 when that has failed. */
int write_shown(FILE *to, const char *text, size_t n);

#endif
