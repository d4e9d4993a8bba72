/* text_input.h - reads texts and lists whole, from files or standard input */
#ifndef KVPIPE_TEXT_INPUT_H
#define KVPIPE_TEXT_INPUT_H

#include <stddef.h>

#define TEXT_MARK "\xef\xbb\xbf"   /* U+FEFF, a byte order mark, in UTF-8 */
/* Returns the name of an input for messages: "stdin" for "-". */
const char *path_name(const char *path);
/* Reads a list, a table or JSON: a whole file ("-" = standard input), zero-terminated, without
 * a byte order mark. Dies for UTF-16 and for a NUL. */
void must_read_list(const char *path, char **text, size_t *len);
/* Reads text for a model, unchanged. Warns of a byte order mark, a NUL, and lines that end in
 * CR LF. Dies. */
void must_read_prose(const char *path, char **text, size_t *len);

#endif
