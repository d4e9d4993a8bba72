/* vnni_avx512.c - attention of few query rows over quantised rows in integers, with the
 * instructions of AVX512-VNNI and AVX512-VBMI
 *
 * Codes are multiplied as they are stored, and the scale of a block of 32 channels multiplies one
 * sum. The other factor is rounded to 16 bits.
 *
 * Scores: each block of a query has a scale of its own, and 16-bit numbers, which are taken as an
 * upper and a lower byte. VPDPBUSD multiplies four channels of 16 keys, one in each lane, so four
 * bytes of 16 keys are transposed for it. The error of a score is below 2^-16 of the greatest
 * number in a block of the query times the sum of the magnitudes of the key's channels.
 *
 * Outputs: for each block the weights of the rows of a tile are multiplied by the rows' scales and
 * then rounded to 16 bits with a sign, relative to the greatest product. The product has the scale,
 * so a row with a large weight but tiny values does not cost other rows precision. VPDPWSSD
 * multiplies the numbers of two rows in one channel. */
#if defined(__AVX512VNNI__) && defined(__AVX512VBMI__)
#include "cpu/simd_skinny.h"

#define WORDS 8                      /* of four channels, in a block */

/* A block of a query: the bytes of its 16-bit numbers, four channels in each word */
struct query_block {
	int32_t high[WORDS], low[WORDS];
	int32_t bias;                /* makes codes signed: minus their offset times the sum */
	float scale, sum;            /* of one unit of the numbers; sum of the query's channels */
	int32_t unused;
};

#define GREATEST (127 * 256)         /* whose upper byte, rounded up, is 127 */

/* Returns the number to subtract from a stored code. q4_1 has no offset of its own: with 8 its
 * codes are smaller, and so are rounding errors; 8 scales are added to its minimum instead. */
INLINE int
code_offset(const enum kv_row_type type)
{
	return type == KV_ROW_Q5_0 ? 16 : type == KV_ROW_Q4_0 || type == KV_ROW_Q4_1 ? 8 : 128;
}

/* Where block b of a row begins; of int8, where its codes minus a scale do */
INLINE size_t
block_at(size_t b, const enum kv_row_type type)
{
	return type == KV_ROW_INT8 ? 32 * b : b * block_bytes(type);
}

INLINE size_t
codes_at(size_t b, const enum kv_row_type type)
{
	return type == KV_ROW_INT8 ? 4 + 32 * b : type == KV_ROW_Q8_0 ? 2 + 34 * b :
	    b * block_bytes(type) + block_bytes(type) - 16;
}

/* ---- queries ---- */

/* Bytes of 16 channels, of both halves, into four words each; returns the sum of the numbers. */
INLINE int
split_numbers(int32_t *high, int32_t *low, __m512 q, __m512 by)
{
	const __m512i number = _mm512_cvtps_epi32(_mm512_mul_ps(q, by));
	const __m512i upper = _mm512_srai_epi32(_mm512_add_epi32(number, _mm512_set1_epi32(128)),
	    8);

	_mm_storeu_si128((void *)high, _mm512_cvtepi32_epi8(upper));
	_mm_storeu_si128((void *)low, _mm512_cvtepi32_epi8(number));
	return _mm512_reduce_add_epi32(number);
}

static void
prepare(const struct attend_job *j)
{
	struct query_block *to = j->codes;
	const int offset = code_offset(j->k_type);
	const float *q = j->q;
	size_t i, n = j->M * j->E / 32;

	for (i = 0; i < n; i++, to++, q += 32) {
		const __m512 a = vload(q), b = vload(q + 16);
		const float most = _mm512_reduce_max_ps(_mm512_max_ps(_mm512_abs_ps(a),
		    _mm512_abs_ps(b)));
		const __m512 by = _mm512_set1_ps(most > 1e-30f ? GREATEST / most : 0);
		int sum = split_numbers(to->high, to->low, a, by);

		sum += split_numbers(to->high + 4, to->low + 4, b, by);
		to->bias = -offset * sum;
		to->sum = _mm512_reduce_add_ps(a + b);
		/* not a number where some channel is none */
		to->scale = most / GREATEST + 0 * to->sum;
	}
}

/* ---- what 16 rows have in common ---- */

/* Addresses of 16 rows, also as two vectors: wide loads of what has just been stored wait. */
struct sixteen {
	const char *row[16];
	__m512i low, high;
};

/* Those of rows first .. of the tile; rows that are not there repeat the last one. */
INLINE void
find_rows(struct sixteen *to, const char *rows, size_t bytes, const struct tile *t, size_t first)
{
	const __m512i base = _mm512_set1_epi64((int64_t)rows), size = _mm512_set1_epi64(
	    (int64_t)bytes);
	const uint32_t *at = t->at + first;
	uint32_t some[16];
	size_t i;

	for (i = 0; i < 16 && first + 16 > t->rows; i++, at = some)
		some[i] = t->at[first + i < t->rows ? first + i : t->rows - 1];
	to->low = _mm512_add_epi64(base, _mm512_mul_epu32(size, _mm512_cvtepu32_epi64(
	    _mm256_loadu_si256((const void *)at))));
	to->high = _mm512_add_epi64(base, _mm512_mul_epu32(size, _mm512_cvtepu32_epi64(
	    _mm256_loadu_si256((const void *)(at + 8)))));
	_mm512_storeu_si512(to->row, to->low);
	_mm512_storeu_si512(to->row + 8, to->high);
}

/* words[4] <- the 16 bytes at `at` of 16 rows: lane r of words[i] has four of row r */
INLINE void
transpose_words(__m512i words[4], const char *const row[16], size_t at)
{
	__m512i z[4], low, high;
	int k;

#define PIECE(i) _mm_loadu_si128((const void *)(row[i] + at))
UNROLL	for (k = 0; k < 4; k++) {
		z[k] = _mm512_castsi128_si512(PIECE(k));
		z[k] = _mm512_inserti32x4(z[k], PIECE(4 + k), 1);
		z[k] = _mm512_inserti32x4(z[k], PIECE(8 + k), 2);
		z[k] = _mm512_inserti32x4(z[k], PIECE(12 + k), 3);
	}
#undef PIECE
	low = _mm512_unpacklo_epi32(z[0], z[1]);
	high = _mm512_unpacklo_epi32(z[2], z[3]);
	words[0] = _mm512_unpacklo_epi64(low, high);
	words[1] = _mm512_unpackhi_epi64(low, high);
	low = _mm512_unpackhi_epi32(z[0], z[1]);
	high = _mm512_unpackhi_epi32(z[2], z[3]);
	words[2] = _mm512_unpacklo_epi64(low, high);
	words[3] = _mm512_unpackhi_epi64(low, high);
}

/* The four bytes at `at` of 16 rows */
INLINE __m512i
gather(const struct sixteen *rows, size_t at)
{
	return _mm512_inserti64x4(_mm512_castsi256_si512(
	    _mm512_i64gather_epi32(rows->low, (const void *)at, 1)),
	    _mm512_i64gather_epi32(rows->high, (const void *)at, 1), 1);
}

/* The scale of block b of 16 rows, and, of q4_1, the number that the code 8 stands for */
INLINE __m512
gather_scales(__m512 *least, const struct sixteen *rows, size_t b, const enum kv_row_type type)
{
	const __m512i word = gather(rows, type == KV_ROW_INT8 ? 0 : block_at(b, type));
	__m512 scale;

	if (type == KV_ROW_INT8)
		return _mm512_castsi512_ps(word);
	scale = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(word));
	if (type == KV_ROW_Q4_1)
		*least = vmadd(vset(code_offset(type)), scale,
		    _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32(word, 16))));
	return scale;
}

/* words[WORDS] <- codes of block b of 16 rows, without a sign */
INLINE void
load_words(__m512i words[WORDS], const struct sixteen *rows, size_t b, const enum kv_row_type type)
{
	const __m512i four = _mm512_set1_epi8(15), sign = _mm512_set1_epi8(-128);
	const size_t at = codes_at(b, type);
	/* a bit of the number in each of 4 bits is bit 4 of a byte */
	const __m512i fifths = _mm512_setr_epi32(0, 0x10, 0x1000, 0x1010, 0x100000, 0x100010,
	    0x101000, 0x101010, 0x10000000, 0x10000010, 0x10001000, 0x10001010, 0x10100000,
	    0x10100010, 0x10101000, 0x10101010);
	__m512i fifth;
	int i;

	transpose_words(words, rows->row, at);
	if (type == KV_ROW_Q8_0 || type == KV_ROW_INT8) {
		transpose_words(words + 4, rows->row, at + 16);
UNROLL		for (i = 0; i < WORDS; i++)
			words[i] = _mm512_xor_si512(words[i], sign);
		return;
	}
UNROLL	for (i = 0; i < 4; i++) {
		words[4 + i] = _mm512_and_si512(_mm512_srli_epi16(words[i], 4), four);
		words[i] = _mm512_and_si512(words[i], four);
	}
	if (type != KV_ROW_Q5_0)
		return;
	fifth = gather(rows, block_at(b, type) + 2);
UNROLL	for (i = 0; i < WORDS; i++)
		words[i] = _mm512_or_si512(words[i], _mm512_permutexvar_epi32(
		    _mm512_srli_epi32(fifth, 4 * i), fifths));
}

/* Rows in order: the next tile is prefetched evenly, keys while scores are computed, values while
 * outputs are; in two places at a time, half a tile apart. */
INLINE void
prefetch_piece(const char *at, size_t bytes, size_t half)
{
	prefetch(at, bytes);
	prefetch(at + half, bytes);
}

/* score[nq] += q[nq] (`blocks` apart) . codes, of one block of 16 keys */
INLINE void
add_block(__m512 score[QROWS], const struct query_block *q, size_t blocks, const int nq,
    const __m512i words[WORDS], __m512 scale)
{
	__m512i high[QROWS], low[QROWS];
	int m, i;

UNROLL	for (m = 0; m < nq; m++) {
		high[m] = _mm512_setzero_si512();
		low[m] = _mm512_set1_epi32(q[m * blocks].bias);
	}
UNROLL	for (i = 0; i < WORDS; i++)
UNROLL		for (m = 0; m < nq; m++) {
			high[m] = _mm512_dpbusd_epi32(high[m], words[i],
			    _mm512_set1_epi32(q[m * blocks].high[i]));
			low[m] = _mm512_dpbusd_epi32(low[m], words[i],
			    _mm512_set1_epi32(q[m * blocks].low[i]));
		}
UNROLL	for (m = 0; m < nq; m++) {
		high[m] = _mm512_add_epi32(_mm512_slli_epi32(high[m], 8), low[m]);
		score[m] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(high[m]),
		    _mm512_mul_ps(scale, _mm512_set1_ps(q[m * blocks].scale)), score[m]);
	}
}

/* s[nq][16] (KEY_TILE apart) <- q[nq] . 16 keys */
INLINE void
score_keys(float *s, const struct query_block *q, const int nq, const struct sixteen *rows,
    const enum kv_row_type type, size_t blocks, const char *next, size_t piece)
{
	__m512 score[QROWS], scale, least;
	__m512i words[WORDS];
	size_t b;
	int m;

UNROLL	for (m = 0; m < nq; m++)
		score[m] = vset(0);
	for (b = 0; b < blocks; b++) {
		if (next != NULL)
			prefetch_piece(next + b * piece, piece, KEY_TILE / 16 * blocks * piece);
		scale = gather_scales(&least, rows, b, type);
		load_words(words, rows, b, type);
		add_block(score, q + b, blocks, nq, words, scale);
UNROLL		for (m = 0; m < nq && type == KV_ROW_Q4_1; m++)
			score[m] = _mm512_fmadd_ps(least,
			    _mm512_set1_ps(q[m * blocks + b].sum), score[m]);
	}
UNROLL	for (m = 0; m < nq; m++)
		vstore(s + m * KEY_TILE, score[m]);
}

INLINE void
scores_as(const struct attend_job *j, const struct tile *t, size_t M, const struct query_block *q,
    const enum kv_row_type type)
{
	const size_t blocks = j->E / 32, piece = 8 * t->k_bytes / blocks;
	const char *next = j->at == NULL ? t->k + KEY_TILE * t->k_bytes : NULL;
	struct sixteen rows;
	size_t first, m, i;

#define SCORES(n) score_keys(j->s + m * KEY_TILE + first, q + m * blocks, n, &rows, type, blocks, \
	m == 0 && next != NULL ? next + first / 16 * blocks * piece : NULL, piece)
	for (first = 0; first < t->rows; first += 16) {
		find_rows(&rows, t->k, t->k_bytes, t, first);
		if (next != NULL && t->v != NULL && j->v_vnni == NULL)
			prefetch_piece(t->v + (KEY_TILE + first / 2) * t->v_bytes, 8 * t->v_bytes,
			    KEY_TILE / 2 * t->v_bytes);
		for (i = 0; i < 16 && j->at != NULL && first + i < t->rows && t->v != NULL; i++)
			prefetch(t->v + t->at[first + i] * t->v_bytes, t->v_bytes);
		for (m = 0; m < M; m += QROWS)
			FOR_SOME_ROWS(M - m, SCORES);
	}
#undef SCORES
}

/* Of values never KV_ROW_Q4_1 */
#define FOR_VNNI_TYPE(type, CALL) do { \
	switch (type) { \
	case KV_ROW_Q8_0: CALL(KV_ROW_Q8_0); break; \
	case KV_ROW_Q4_0: CALL(KV_ROW_Q4_0); break; \
	case KV_ROW_Q4_1: CALL(KV_ROW_Q4_1); break; \
	case KV_ROW_Q5_0: CALL(KV_ROW_Q5_0); break; \
	default: CALL(KV_ROW_INT8); \
	} \
} while (0)

static void
scores(const struct attend_job *j, const struct tile *t, size_t m, size_t n)
{
	const struct query_block *q = (const struct query_block *)j->codes + m * (j->E / 32);

#define SCORES_AS(type) scores_as(j, t, n, q, type)
	FOR_VNNI_TYPE(j->k_type, SCORES_AS);
#undef SCORES_AS
}

/* ---- outputs ---- */

/* The weights of a tile's rows in one block: weight times scale in units of `unit` */
struct weights {
	int16_t number[KEY_TILE];
	float unit;
};

/* p[KEY_TILE] are the weights, scale[4] the scales of the rows */
INLINE void
round_weights(struct weights *w, const float *p, const __m512 scale[4])
{
	const __m512i order = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
	__m512 x[4], most = vset(0x1p-100f), by;
	__m512i a, b;
	int i;

UNROLL	for (i = 0; i < 4; i++) {
		x[i] = vload(p + 16 * i) * scale[i];
		most = _mm512_range_ps(most, x[i], 11);        /* the greater magnitude */
	}
	most = vmax(most, ROTATE(most, 8));
	most = vmax(most, ROTATE(most, 4));
	most = vmax(most, ROTATE(most, 2));
	most = vmax(most, ROTATE(most, 1));
	by = _mm512_rcp14_ps(most) * 32764.0f;         /* about; not above 32767 / most */
UNROLL	for (i = 0; i < 4; i += 2) {
		a = _mm512_cvtps_epi32(x[i] * by);
		b = _mm512_cvtps_epi32(x[i + 1] * by);
		_mm512_storeu_si512(w->number + 16 * i,
		    _mm512_permutexvar_epi64(order, _mm512_packs_epi32(a, b)));
	}
	w->unit = 1 / by[0];
}

/* pair[2] <- the codes of 16 channels of two rows each, lane e of pair[0] those of channel e, with
 * their sign */
INLINE void
load_pairs(__m512i pair[2], const char *a, const char *b, size_t at, const enum kv_row_type type)
{
	/* bytes of both rows to the lower byte of each number, or to the upper one */
	static const uint8_t order[64] = {
#define FOUR_BYTES(e) e, e, 32 + (e), 32 + (e)
#define SIXTEEN_BYTES(e) FOUR_BYTES(e), FOUR_BYTES(e + 1), FOUR_BYTES(e + 2), FOUR_BYTES(e + 3)
		SIXTEEN_BYTES(0), SIXTEEN_BYTES(4), SIXTEEN_BYTES(8), SIXTEEN_BYTES(12),
	};
	const __m512i from = _mm512_loadu_si512(order), sixteen = _mm512_set1_epi8(16);
	const __mmask64 lower = 0x5555555555555555;
	uint32_t fifth_a, fifth_b;
	__m512i z;

	if (type == KV_ROW_Q8_0 || type == KV_ROW_INT8) {
		z = _mm512_inserti64x4(_mm512_castsi256_si512(
		    _mm256_loadu_si256((const void *)(a + at))),
		    _mm256_loadu_si256((const void *)(b + at)), 1);
		pair[0] = _mm512_srai_epi16(_mm512_maskz_permutexvar_epi8(~lower, from, z), 8);
		pair[1] = _mm512_srai_epi16(_mm512_maskz_permutexvar_epi8(~lower,
		    _mm512_add_epi8(from, sixteen), z), 8);
		return;
	}
	z = _mm512_inserti32x4(_mm512_castsi128_si512(
	    _mm_loadu_si128((const void *)(a + at))), _mm_loadu_si128((const void *)(b + at)), 2);
	z = _mm512_maskz_permutexvar_epi8(lower, from, z);
	pair[0] = _mm512_and_si512(z, _mm512_set1_epi16(15));
	pair[1] = _mm512_srli_epi16(z, 4);
	if (type == KV_ROW_Q4_0) {
		pair[0] = _mm512_sub_epi16(pair[0], _mm512_set1_epi16(8));
		pair[1] = _mm512_sub_epi16(pair[1], _mm512_set1_epi16(8));
	}
	if (type == KV_ROW_Q5_0) {             /* 16 less where the fifth bit is not set */
		memcpy(&fifth_a, a + at - 4, sizeof fifth_a);
		memcpy(&fifth_b, b + at - 4, sizeof fifth_b);
		pair[0] = _mm512_mask_sub_epi16(pair[0], ~(_pdep_u32(fifth_a, 0x55555555) |
		    _pdep_u32(fifth_b, 0xaaaaaaaa)), pair[0], _mm512_set1_epi16(16));
		pair[1] = _mm512_mask_sub_epi16(pair[1], ~(_pdep_u32(fifth_a >> 16, 0x55555555) |
		    _pdep_u32(fifth_b >> 16, 0xaaaaaaaa)), pair[1], _mm512_set1_epi16(16));
	}
}

/* o[nq][32] (E apart) += weights . a block of the values */
INLINE void
add_values(float *o, size_t E, const struct weights *w, const int nq, const struct sixteen *rows,
    size_t n, size_t at, const enum kv_row_type type, const char *next, size_t stride)
{
	const size_t half = 16 * E / 32 * stride;
	__m512i sum[QROWS][2], pair[2], weight;
	int32_t two;
	size_t r;
	int m, i, k;

UNROLL	for (m = 0; m < nq; m++)
UNROLL		for (i = 0; i < 2; i++)
			sum[m][i] = _mm512_setzero_si512();
	for (r = 0; r < n; r += 4) {
		const char *const *row = rows[r / 16].row + r % 16;

		__builtin_prefetch(next + r / 4 * stride);
		__builtin_prefetch(next + half + r / 4 * stride);
UNROLL		for (k = 0; k < 4; k += 2) {
			load_pairs(pair, row[k], row[k + 1], at, type);
UNROLL			for (m = 0; m < nq; m++) {
				memcpy(&two, w[m].number + r + k, sizeof two);
				weight = _mm512_set1_epi32(two);
UNROLL				for (i = 0; i < 2; i++)
					sum[m][i] = _mm512_dpwssd_epi32(sum[m][i], pair[i],
					    weight);
			}
		}
	}
UNROLL	for (m = 0; m < nq; m++)
UNROLL		for (i = 0; i < 2; i++) {
			float *to = o + m * E + 16 * i;

			vstore(to, vmadd(_mm512_cvtepi32_ps(sum[m][i]), vset(w[m].unit),
			    vload(to)));
		}
}

/* The block of the values for all query rows */
INLINE void
add_block_of_values(const struct attend_job *j, const struct tile *t, float *o, size_t M, size_t b,
    const struct sixteen rows[KEY_TILE / 16], const enum kv_row_type type)
{
	const size_t stride = 2 * t->v_bytes / (j->E / 32);
	const char *next = t->v + KEY_TILE * t->v_bytes + 16 * b * stride;
	struct weights w[SKINNY_ROWS];
	__m512 scale[4], none;
	size_t m;
	int i;

UNROLL	for (i = 0; i < 4; i++)
		scale[i] = gather_scales(&none, rows + i, b, type);
	for (m = 0; m < M; m++)
		round_weights(&w[m], j->s + m * KEY_TILE, scale);
#define ADD(n) add_values(o + m * j->E + 32 * b, j->E, w + m, n, rows, t->rows, codes_at(b, type), \
	type, next, stride)
	for (m = 0; m < M; m += QROWS)
		FOR_SOME_ROWS(M - m, ADD);
#undef ADD
}

static void
outputs(const struct attend_job *j, const struct tile *t, float *o, size_t n)
{
	struct sixteen rows[KEY_TILE / 16];
	size_t b, i;

	for (i = 0; i < KEY_TILE / 16; i++)
		find_rows(&rows[i], t->v, t->v_bytes, t, 16 * i);
	for (i = 0; i < t->ahead && j->at != NULL; i++)
		prefetch(t->k + t->at[KEY_TILE + i] * t->k_bytes, t->k_bytes);
#define ADD(type) add_block_of_values(j, t, o, n, b, rows, type)
	for (b = 0; b < j->E / 32; b++)
		FOR_VNNI_TYPE(j->v_type, ADD);
#undef ADD
}

/* fp8 has no integers; the blocks of int8 are pieces of 32 channels here. */
static int
takes_keys(enum kv_row_type type, size_t E)
{
	return E % 32 == 0 && type >= KV_ROW_Q8_0 && type <= KV_ROW_INT8;
}

/* With q4_1 a scale may be nothing beside its minimum, whose weight must not be rounded. */
static int
takes_values(enum kv_row_type type, size_t E)
{
	return type != KV_ROW_Q4_1 && takes_keys(type, E);
}

const struct vnni_products vnni_avx512 = {
	.name = "avx512vnni",
	.takes_keys = takes_keys,
	.takes_values = takes_values,
	.prepare = prepare,
	.scores = scores,
	.outputs = outputs,
};

#endif
