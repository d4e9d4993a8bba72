/* codec.h - the content of sections as C structures, and back (kv-snapshot(5), section 4)
 *
 * A loader reads the current section of the reader, as kv_load() does, and fills a structure with
 * its numbers and with pointers to its arrays. Nothing is copied: the pointers are valid as long
 * as what kv_load() gives. The content has been checked, so the arrays have the sizes given here.
 * A writer takes the same structure, adds header, fill and the hash of the keys to the caller's
 * arrays, and writes the section in its place; it keeps nothing of the structure.
 *
 * All return KV_OK or a KV_E*, and the message is in the reader or the writer: KV_EINVAL if the
 * current section is of another kind, and for content that a reader would refuse.
 *
 * Letters: L, H, G, E, V, S[g] as in the format; "heads in order" is KV head 0, 1, ..., G-1,
 * concatenated. Arrays are as stored, little-endian; `element` is kv_head.dtype. KEYS and VALS
 * need no structure: kv_load() and kv_write(), elements [sum S][E], heads in order. POSN:
 * kv_load_rows(), kv_write_rows(). eVNt: kv_log_...(). */
#ifndef KVFILE_CODEC_H
#define KVFILE_CODEC_H

#include "kvfile.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- TOKS, 4.2; LGTS, 4.7 ---- */

struct kv_tokens {
	uint64_t n;
	const uint32_t *id;             /* [n] all tokens of the sequence so far */
};

/* Returns the number of ids in a TOKS section, without loading it. */
uint64_t kv_token_count(const struct kv_section *sec);
int kv_load_tokens(struct kv_reader *r, struct kv_tokens *tokens);
int kv_write_tokens(struct kv_writer *w, const struct kv_tokens *tokens);

/* [V] after the last token. */
int kv_load_logits(struct kv_reader *r, const float **logits);
int kv_write_logits(struct kv_writer *w, const float *logits);

/* ---- SINk: learned sinks, 4.27 ---- */

/* *sinks <- logits [H], a term each of the denominator of its head's softmax. */
int kv_load_sinks(struct kv_reader *r, const float **sinks);
int kv_write_sinks(struct kv_writer *w, uint32_t layer, const float *sinks);

/* ---- oBSq: observation queries, 4.5 ---- */

struct kv_queries {
	uint32_t n;                     /* W, at least 1 */
	const uint32_t *pos;            /* [W] strictly ascending */
	const void *q;                  /* element [H][W][E] after rotary embedding, not scaled */
	/* Trailing queries of tokens that are not stored: their positions are next_position or
	 * greater, and their keys are here. */
	uint32_t n_own;                 /* K; 0: none */
	const void *own;                /* element [G][K][E] after rotary embedding */
};

int kv_load_queries(struct kv_reader *r, struct kv_queries *q);
int kv_write_queries(struct kv_writer *w, uint32_t layer, const struct kv_queries *q);

/* ---- qSTa: query statistics, 4.22 ---- */

struct kv_query_stats {
	uint32_t first;                 /* queries at lower positions are not counted */
	uint32_t n;                     /* queries counted */
	/* of the queries before rotary embedding: [H][E] sum; [H][W/2] sum of the moduli of
	 * rotated pairs, W = kv_rope_dims(); [H][E (E + 1) / 2] sum of the products of two
	 * channels, the lower triangle row by row */
	const double *sum, *modulus, *product;
};

/* Returns how many numbers the three arrays of a layer have together. */
uint64_t kv_query_stats_numbers(const struct kv_model *m, uint32_t layer);
/* *s <- pointers to the arrays in a layer's numbers, which follow each other. */
void kv_query_stats_arrays(struct kv_query_stats *s, const struct kv_model *m, uint32_t layer,
    const double *numbers);
int kv_load_query_stats(struct kv_reader *r, struct kv_query_stats *s);
/* The arrays must follow each other, as kv_query_stats_arrays() has them. */
int kv_write_query_stats(struct kv_writer *w, uint32_t layer, const struct kv_query_stats *s);

/* ---- rHDk: keys of a retrieval head, 4.19 ---- */

enum { KV_HEAD_ID = 32 };               /* hexadecimal digits of a head's identity */

struct kv_head_keys {
	char id[KV_HEAD_ID + 1];
	uint32_t heads, width;          /* of the retrieval head, which need not be the model's */
	uint32_t n;                     /* rows: of the tokens at positions 0 to n-1, at least 1 */
	uint32_t n_feature;             /* 0: the head sees embeddings only */
	const float *feature;           /* [n_feature] of the token at position n-1 */
	const void *key;                /* element [heads][n][width] after rotary embedding */
};

int kv_load_head_keys(struct kv_reader *r, struct kv_head_keys *k);
int kv_write_head_keys(struct kv_writer *w, const struct kv_head_keys *k);

/* ---- values of rows: sCOR, 4.6; mASS, 4.11; pAID, 4.13; vNRM, gATE, nCAU, 4.23 to 4.25 ---- */

struct kv_values {
	/* how they were made; UTF-8, below KV_SCORE_LABEL bytes; NULL for mASS, which has none */
	const char *label;
	uint64_t n;
	/* [n] heads in order: kv_values_lists() lists of S[g] for each KV head. The end of the
	 * content. */
	const float *value;
};

/* Returns how many lists a KV head has: H/G, one for each query head, in mASS, pAID and vNRM; one
 * in gATE, nCAU and sCOR. */
uint32_t kv_values_lists(enum kv_kind kind, const struct kv_model *m);
int kv_load_values(struct kv_reader *r, struct kv_values *v);
int kv_write_values(struct kv_writer *w, enum kv_kind kind, uint32_t layer,
    const struct kv_values *v);

/* ---- indexes: bITS, pAGE, cLUS, lOWR, 4.14 to 4.18 ---- */

/* KV_BITS: f16 [E] zero, f16 [E] scale, (rows / 8 bytes) [E]; KV_PAGE: element [E] the minimum
 * of the keys, [E] the maximum. Entry i of a KV head covers its rows i * rows to i * rows +
 * rows-1. */
struct kv_entries {
	uint32_t rows;                  /* u */
	uint64_t n;                     /* sum of floor(S[g] / u) */
	const void *data;               /* [n] of kv_entry_size() bytes, heads in order */
};

struct kv_clusters {
	uint32_t sink;                  /* leading rows that are in no cluster */
	const uint32_t *count;          /* [G] clusters */
	const uint32_t *end;            /* [G] rows from here on are in no cluster */
	const uint32_t *label;          /* of each head [max(end[g] - sink, 0)], below count[g] */
	const void *mean;               /* element, heads in order: [count[g]][E] */
};

struct kv_low_rank {
	uint32_t chunk;                 /* u: rows of a chunk */
	uint32_t n;                     /* rows that are in the index, a multiple of chunk */
	uint32_t rank;                  /* r, at least 1 */
	uint32_t n_exact;               /* x: chunks of each KV head whose exact keys are stored */
	const uint32_t *exact;          /* [G][x] their numbers, ascending */
	const void *left;               /* element [n][r] */
	const void *right;              /* element [G][E][r] */
	const void *landmark;           /* element [G][n / chunk][E] */
};

struct kv_index {
	enum kv_kind kind;
	__extension__ union {                   /* without a name, which C99 does not know */
		struct kv_entries entries;      /* KV_BITS, KV_PAGE */
		struct kv_clusters clusters;    /* KV_CLUS */
		struct kv_low_rank low_rank;    /* KV_LOWR */
	};
};

int kv_load_index(struct kv_reader *r, struct kv_index *x);
/* Call after the keys of the layer were written or copied: the index contains their hash. */
int kv_write_index(struct kv_writer *w, uint32_t layer, const struct kv_index *x);

/* Returns the bytes of an entry of KV_BITS or KV_PAGE; rows as in struct kv_entries, width is
 * E. */
size_t kv_entry_size(enum kv_kind kind, uint32_t rows, uint32_t width, enum kv_dtype dtype);

#ifdef __cplusplus
}
#endif
#endif
