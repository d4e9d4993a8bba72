/* block.c - codecs of one block: LZ4, and byte planes before it
 *
 * LZ4 cannot compress raw floats: the bytes of fraction and exponent alternate. Separated, the
 * plane of signs and exponents shrinks and the other stays; bf16 keys shrink to about 5/6. */

#include "block.h"

#include <lz4.h>

/* Inlined with constant e, so that the inner loops become shuffles. */
static inline void
split(uint8_t *dst, const uint8_t *src, size_t n, const unsigned e)
{
	unsigned p;
	size_t j;

	for (p = 0; p < e; p++)
		for (j = 0; j < n; j++)
			dst[p * n + j] = src[j * e + p];
}

static inline void
join(uint8_t *dst, const uint8_t *src, size_t n, const unsigned e)
{
	unsigned p;
	size_t j;

	for (j = 0; j < n; j++)
		for (p = 0; p < e; p++)
			dst[j * e + p] = src[p * n + j];
}

int
kv_block_decode(uint8_t *dst, size_t size, const uint8_t *src, size_t stored, unsigned codec,
    unsigned element, uint8_t *scratch)
{
	uint8_t *to = codec == CODEC_PLANES ? scratch : dst;
	int n = LZ4_decompress_safe((const char *)src, (char *)to, (int)stored, (int)size);

	if (n < 0 || (size_t)n != size)
		return -1;
	if (codec == CODEC_PLANES && element == 2)
		join(dst, scratch, size / 2, 2);
	else if (codec == CODEC_PLANES)
		join(dst, scratch, size / 4, 4);
	return 0;
}

size_t
kv_block_encode(uint8_t *dst, const uint8_t *src, size_t size, unsigned element, unsigned *codec,
    uint8_t *scratch)
{
	size_t most = size - (size + 63) / 64;
	int n;

	*codec = CODEC_LZ4;
	if (element > 1 && size % element == 0) {
		*codec = CODEC_PLANES;
		if (element == 2)
			split(scratch, src, size / 2, 2);
		else
			split(scratch, src, size / 4, 4);
		src = scratch;
	}
	n = LZ4_compress_default((const char *)src, (char *)dst, (int)size, (int)most);
	return n > 0 ? (size_t)n : 0;
}
