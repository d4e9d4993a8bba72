/* simd_blockdots.h - BLOCK_DOTS(), products of a few rows of x with rows of blocks, over the
 * products of a chunk: sums, no_sum(), add_chunk(), add_blocks() and total() of the file that
 * includes this */

enum { AHEAD = 8192 };       /* bytes: nearer or farther, weights were read more slowly */

/* One row of x: a chunk is decoded and multiplied at once. behind: bytes behind the weight row that
 * may be read */
INLINE float
one_dot(const struct x_chunk *x, const uint8_t *w, const enum weight_type type, size_t in,
    size_t behind)
{
	/* blocks of 256 leave no rest */
	const size_t step = weight_row_bytes(type, CHUNK), last = type < WEIGHT_Q4_K ? in % CHUNK :
	    0;
	const size_t part = weight_row_bytes(type, last);
	uint8_t copy[(CHUNK / 32) * 34];
	sums s = no_sum();
	size_t i, line;

	for (i = 0; i + CHUNK <= in; i += CHUNK, w += step, x++) {
UNROLL		for (line = 0; line < step; line += 64)
			__builtin_prefetch(w + AHEAD + line);
		s = add_blocks(s, w, x, type, CHUNK);
	}
	if (last > 0 && behind < step - part) {
		memset(copy, 0, sizeof copy);
		w = memcpy(copy, w, part);
	}
	return total(last > 0 ? add_blocks(s, w, x, type, last) : s);
}

INLINE void
decode_row(struct chunk *c, const uint8_t *w, const enum weight_type type, size_t in)
{
	const size_t step = weight_row_bytes(type, CHUNK);
	size_t i;

	for (i = 0; i < in; i += CHUNK, w += step, c++)
		decode_part(c, w, type, in - i < CHUNK ? in - i : CHUNK);
}

INLINE void
put_dot(float *y, float dot, const float *bias, int add)
{
	if (bias != NULL)
		dot += *bias;
	*y = add ? *y + dot : dot;
}

INLINE void
block_dots(const struct block_product *p, const enum weight_type type)
{
	const size_t bytes = weight_row_bytes(type, p->in), chunks = chunks_of(p->in);
	const uint8_t *w = p->w;
	size_t r, n, i;

	for (r = 0; r < p->rows; r++, w += bytes) {
		const float *bias = p->bias == NULL ? NULL : p->bias + r;

		if (p->N == 1) {
			put_dot(p->y + r, one_dot(p->x, w, type, p->in,
			    (p->rows - r - 1) * bytes), bias, p->add);
			continue;
		}
		decode_row(p->decoded, w, type, p->in);
		for (n = 0; n < p->N; n++) {
			const struct x_chunk *x = p->x + n * chunks;
			sums s = no_sum();

			for (i = 0; i < chunks; i++)
				s = add_chunk(s, &p->decoded[i], &x[i], type);
			put_dot(p->y + n * p->ldy + r, total(s), bias, p->add);
		}
	}
}

void
BLOCK_DOTS(const struct block_product *p, enum weight_type type)
{
	switch (type) {
#define CASE(t) case t: block_dots(p, t); break;
	BLOCK_TYPES(CASE)
#undef CASE
	default:
		break;
	}
}
