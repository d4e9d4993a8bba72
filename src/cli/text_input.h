/* text_input.h - texts and lists that a program reads whole, from files or standard input */
#ifndef KVPIPE_TEXT_INPUT_H
#define KVPIPE_TEXT_INPUT_H

#include <stddef.h>

#define TEXT_MARK "\xef\xbb\xbf"   /* U+FEFF, a byte order mark, in UTF-8 */
/* The name of an input for messages: "stdin" for "-" */
const char *path_name(const char *path);
/* The whole of a file ("-" = standard input), zero-terminated; a byte order mark is left out,
 * UTF-16 is refused. Both die. A list, a table, JSON: a NUL is refused, too. */
void must_read_list(const char *path, char **text, size_t *len);
/* What a model reads as it is: warns of a mark, of a NUL, and of lines that end in CR LF. */
void must_read_prose(const char *path, char **text, size_t *len);

#endif
