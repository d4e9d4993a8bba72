/* bytes.h - little-endian integers in byte arrays, and the sizes that the format rounds to
 *
 * Internal to libkvfile. All integers read from or written to a file pass through these. */
#ifndef KVFILE_BYTES_H
#define KVFILE_BYTES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline uint16_t
get16(const uint8_t *p)
{
	return (uint16_t)(p[0] | p[1] << 8);
}

static inline uint32_t
get32(const uint8_t *p)
{
	return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static inline uint64_t
get64(const uint8_t *p)
{
	return get32(p) | (uint64_t)get32(p + 4) << 32;
}

static inline void
put16(uint8_t *p, uint16_t v)
{
	p[0] = (uint8_t)v;
	p[1] = (uint8_t)(v >> 8);
}

static inline void
put32(uint8_t *p, uint32_t v)
{
	put16(p, (uint16_t)v);
	put16(p + 2, (uint16_t)(v >> 16));
}

static inline void
put64(uint8_t *p, uint64_t v)
{
	put32(p, (uint32_t)v);
	put32(p + 4, (uint32_t)(v >> 32));
}

/* Returns the next multiple of 64. The caller keeps n below 2^64 - 63. */
static inline uint64_t
round64(uint64_t n)
{
	return (n + 63) & ~(uint64_t)63;
}

static inline int
all_zero(const uint8_t *p, size_t n)
{
	while (n > 0 && *p == 0)
		p++, n--;
	return n == 0;
}

#endif
