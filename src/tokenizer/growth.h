/* growth.h - how long a text may become when a normaliser or a decoder replaces what is in it
 *
 * A tokenizer.json says what by: without a bound a small file makes gigabytes of a short text.
 * Unicode's own decompositions make 18 characters of one at most. */
#ifndef KVPIPE_GROWTH_H
#define KVPIPE_GROWTH_H

#include <stddef.h>

#define GROWTH_FOLD 64
#define GROWTH_BESIDE 256

/* Bytes that a text of so many may become; it is below half of the address space. */
static inline size_t
growth_most(size_t len)
{
	return len > ((size_t)-1 / 2 - GROWTH_BESIDE) / GROWTH_FOLD ? (size_t)-1 / 2 :
	    len * GROWTH_FOLD + GROWTH_BESIDE;
}

#endif
