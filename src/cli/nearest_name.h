/* nearest_name.h - finds the known name that is nearest to an unknown word */
#ifndef KVPIPE_NEAREST_NAME_H
#define KVPIPE_NEAREST_NAME_H

#include <stddef.h>

/* Candidates are tried one after the other. Pointers are not NUL-terminated texts; NULL = none. */
struct nearest_name {
	const char *word;
	/* the first candidate that begins with the word; the nearest one */
	const char *begins, *near;
	size_t begins_len, near_len, distance;
	unsigned n_begin;               /* number of candidates that begin with it */
};

void nearest_name_start(struct nearest_name *, const char *word);
/* Tries a name and its aliases, separated by blanks ("": none). */
void nearest_name_try(struct nearest_name *, const char *name, const char *aliases);

/* Returns ": did you mean --kernel?" with prefix "--", or "" if no candidate is near. Valid
 * until the next call. */
const char *nearest_name_text(const struct nearest_name *, const char *prefix);
/* As nearest_name_text(), with names[] as candidates; NULL ends the list. */
const char *did_you_mean(const char *prefix, const char *word, const char *const *names);

#endif
