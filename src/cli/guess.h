/* guess.h - which name was meant by a word that is none: the nearest one */
#ifndef KVPIPE_GUESS_H
#define KVPIPE_GUESS_H

#include <stddef.h>

/* Names are shown to it one after the other. None of them is terminated; NULL = none. */
struct guess {
	const char *word;
	const char *begins, *near;      /* the first that begins with the word, and the nearest one */
	size_t begins_len, near_len, distance;
	unsigned n_begin;               /* calls that had a name which begins with it */
};

void guess_start(struct guess *, const char *word);
/* A name, and others of the same thing with blanks between them ("": none). */
void guess_try(struct guess *, const char *name, const char *aliases);

/* ": did you mean --kernel?" with prefix "--", or "" where no name is near. Until the next call. */
const char *guess_text(const struct guess *, const char *prefix);
/* The same of names[], NULL behind them. */
const char *did_you_mean(const char *prefix, const char *word, const char *const *names);

#endif
