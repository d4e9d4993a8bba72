/* terminal_escape.h - escapes texts from files and command lines for a terminal
 *
 * A file name, a label or a JSON key may contain anything, escape sequences included. */
#ifndef KVPIPE_TERMINAL_ESCAPE_H
#define KVPIPE_TERMINAL_ESCAPE_H

#include <stdio.h>

/* Returns the text with control characters (C0 with DEL, and C1 in UTF-8) written as \n, \t or
 * \x1b. Without any it is text itself; otherwise valid until the eighth call after this one. */
const char *shown(const char *text);

/* Writes text[n], whole characters. On a terminal control characters except newline and tab are
 * escaped as by shown(). Returns 0, or -1 on failure. */
int write_shown(FILE *to, const char *text, size_t n);

#endif
