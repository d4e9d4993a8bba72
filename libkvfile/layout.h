/* layout.h - offsets of the parts of a section's content: section 4 of the format as numbers
 *
 * Internal to libkvfile, which has these offsets only here: the checks (content.c, keyindex.c)
 * and the codecs (codec_*.c) use them. Bytes from the start of the content. Nothing overflows
 * while the counts are below 2^32, and heads, widths and ranks are those that a HEAD allows. */
#ifndef KVFILE_LAYOUT_H
#define KVFILE_LAYOUT_H

#include "bytes.h"

/* ---- oBSq, 4.5 ---- */

#define QUERIES_SOURCE 0
#define QUERIES_COUNT 4
#define QUERIES_POS 8

/* sources: all queries are of stored rows; the last ones are not */
enum { OBSERVED_STORED = 1, OBSERVED_RUN = 2 };

/* End of the positions of w queries, and start of the queries after the fill. */
static inline uint64_t
queries_pos_end(uint32_t w)
{
	return QUERIES_POS + 4 * (uint64_t)w;
}

static inline uint64_t
queries_data(uint32_t w)
{
	return round64(queries_pos_end(w));
}

/* ---- qSTa, 4.22 ---- */

#define QUERY_STATS_FIRST 0
#define QUERY_STATS_COUNT 4
#define QUERY_STATS_FIELDS_END 8
#define QUERY_STATS_SUM 64              /* the numbers start here, f64 */

/* Numbers of the three parts, which follow each other. */
struct query_stats_parts {
	uint64_t sum, modulus, product;
};

static inline struct query_stats_parts
query_stats_parts(uint32_t heads, uint32_t width, uint32_t dims)
{
	return (struct query_stats_parts){ (uint64_t)heads * width, (uint64_t)heads * (dims / 2),
	    (uint64_t)heads * width * (width + 1) / 2 };
}

/* ---- rHDk, 4.19 ---- */

#define HEAD_KEYS_ID 0          /* hexadecimal digits, as text */
#define HEAD_KEYS_HEADS 32
#define HEAD_KEYS_WIDTH 36
#define HEAD_KEYS_ROWS 40
#define HEAD_KEYS_FEATURES 44
#define HEAD_KEYS_FIELDS_END 48
#define HEAD_KEYS_FEATURE 64

/* Start of the keys, after the features and the fill. */
static inline uint64_t
head_keys_data(uint32_t features)
{
	return round64(HEAD_KEYS_FEATURE + 4 * (uint64_t)features);
}

/* ---- indexes, 4.14 ---- */

#define INDEX_ROWS 0            /* u */
#define INDEX_ZERO 4
#define INDEX_KEYS 8
#define INDEX_FIELDS 16         /* of the type, from here to INDEX_HEAD */
#define INDEX_HEAD 64

/* ---- cLUS, 4.17 ---- */

#define CLUSTERS_SINK 16
#define CLUSTERS_FIELDS_END 20
#define CLUSTERS_COUNT INDEX_HEAD

static inline uint64_t
clusters_end(uint32_t heads)
{
	return CLUSTERS_COUNT + 4 * (uint64_t)heads;
}

static inline uint64_t
clusters_label(uint32_t heads)
{
	return clusters_end(heads) + 4 * (uint64_t)heads;
}

/* Number of rows of a KV head with a label. */
static inline uint32_t
clusters_labels(uint32_t end, uint32_t sink)
{
	return end > sink ? end - sink : 0;
}

/* ---- lOWR, 4.18 ---- */

#define LOW_RANK_ROWS 16
#define LOW_RANK_RANK 20
#define LOW_RANK_CHUNKS 24
#define LOW_RANK_FIELDS_END 28
#define LOW_RANK_EXACT INDEX_HEAD

/* End of the numbers of the x exact chunks of each head. */
static inline uint64_t
low_rank_exact_end(uint32_t heads, uint32_t x)
{
	return LOW_RANK_EXACT + 4 * (uint64_t)heads * x;
}

/* Elements of left factor, right factor and landmarks, which follow each other after the fill. */
struct low_rank_elements {
	uint64_t left, right, landmark;
};

static inline struct low_rank_elements
low_rank_elements(uint32_t heads, uint32_t width, uint32_t n, uint32_t rank, uint32_t chunk)
{
	return (struct low_rank_elements){ (uint64_t)n * rank, (uint64_t)heads * width * rank,
	    (uint64_t)heads * (n / chunk) * width };
}

#endif
