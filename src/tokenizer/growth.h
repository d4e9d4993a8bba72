/* growth.h - the bound on the length of a text after a normaliser's or decoder's replacements
 *
 * tokenizer.json chooses the replacements: without a bound a small file could turn a short text
 * into gigabytes. Unicode's own decompositions make at most 18 characters of one. */
#ifndef KVPIPE_GROWTH_H
#define KVPIPE_GROWTH_H

#include <stddef.h>

#define GROWTH_FOLD 64
#define GROWTH_BESIDE 256

/* Returns the most bytes that a text of len bytes may become; below half of the address space. */
static inline size_t
growth_most(size_t len)
{
	return len > ((size_t)-1 / 2 - GROWTH_BESIDE) / GROWTH_FOLD ? (size_t)-1 / 2 :
	    len * GROWTH_FOLD + GROWTH_BESIDE;
}

#endif
