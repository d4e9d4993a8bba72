/* mix_word.h - random numbers that depend on words only, not on the order in which they are asked
 * for; private to methods/
 *
 * The finaliser of SplitMix64 (Steele, Lea, Flood 2014, "Fast Splittable Pseudorandom Number
 * Generators"), applied once for each word. */
#ifndef KVPIPE_MIX_WORD_H
#define KVPIPE_MIX_WORD_H

#include <stdint.h>

static inline uint64_t
mix_word(uint64_t state, uint64_t word)
{
	uint64_t z = (state ^ word) + 0x9e3779b97f4a7c15;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return z ^ z >> 31;
}

#endif
