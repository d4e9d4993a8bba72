/* nearest_name.h - which name was meant by a word that is none: the nearest one */
#ifndef KVPIPE_NEAREST_NAME_H
#define KVPIPE_NEAREST_NAME_H

#include <stddef.h>

/* Names are shown to it one after the other. None of them is terminated; NULL = none. */
struct nearest_name {
	const char *word;
	const char *begins, *near;      /* the first that begins with the word; the nearest */
	size_t begins_len, near_len, distance;
	unsigned n_begin;               /* calls that had a name which begins with it */
};

void nearest_name_start(struct nearest_name *, const char *word);
/* A name, and others of the same thing with blanks between them ("": none). */
void nearest_name_try(struct nearest_name *, const char *name, const char *aliases);

/* ": did you mean --kernel?" with prefix "--", or "" where no name is near. Until the next call. */
const char *nearest_name_text(const struct nearest_name *, const char *prefix);
/* The same of names[], NULL behind them. */
const char *did_you_mean(const char *prefix, const char *word, const char *const *names);

#endif
