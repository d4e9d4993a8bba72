/* index.h - the retrieval indexes of one layer, on a device (kv-snapshot(5), 4.14 to 4.18)
 *
 * Loads them from sections, writes them to sections, and extends them while rows are appended. How
 * a query uses them: retrieval.h. It knows ops, a device and shapes, but no model and no cache.
 * Letters as in ops.h.
 *
 * Candidates. A query chooses among rows (bits, clusters), pages or chunks. Candidate i of a KV
 * head stands for its rows i*u .. i*u + u-1, as far as they exist; there are ceil(len[g] / u)
 * candidates. Where candidates share a score, or have none, label[g][i] names the score of
 * candidate i: that of entry label - 1 (a cluster, page or landmark); 0: the candidate is always
 * read. So rows that are in no page or cluster, such as appended ones, are always read. */
#ifndef KVPIPE_INDEX_H
#define KVPIPE_INDEX_H

#include "libkvfile/codec.h"
#include "ops/ops.h"

struct labels {
	uint32_t *at;                  /* device [G][stride]; from n[g] on 0 */
	size_t stride;                 /* capacity, in candidates */
	uint32_t *n;                   /* host [G] candidates labelled so far */
};

struct layer_index {
	const struct ops *ops;
	struct dev *dev;
	uint32_t heads, width;         /* G, E */
	enum kv_dtype dtype;           /* of the keys */
	unsigned present;              /* 1 << enum kv_kind of each index */

	/* bounds of pages have the dtype of the keys. After the pages of each KV head there is room
	 * for one more, which retrieval writes */
	struct entries bits, pages;
	/* all pages compete except the last of each KV head, whole or not */
	struct labels page_label;

	uint32_t sink;                 /* clusters: the first rows, which are in none */
	uint32_t *end;                 /* host [G] rows from here on are in no cluster */
	struct layer_rows mean;        /* k only: rows are the centroids of the clusters */
	struct labels row_label;

	struct low_rank low;
	void *left, *right;            /* the arrays of low; device */
	uint8_t *exact;
	uint8_t *host_exact;           /* host, a copy of it */
	uint32_t n_exact;              /* exact chunks of each KV head */
	/* k only: n / chunk rows in each KV head. First those of the chunks that compete, ascending
	 * (len counts only these), then those of the exact chunks. */
	struct layer_rows landmark;
	struct labels chunk_label;
};

static inline int
index_has(const struct layer_index *x, enum kv_kind kind)
{
	return (x->present >> kind & 1) != 0;
}

/* For messages: return "keys in one bit" and so on; and the command that makes the index,
 * "kv-quantize1b", "kv-index --pages" ... */
const char *index_words(enum kv_kind);
const char *index_command(enum kv_kind);
/* text <- the commands of these kinds (1 << enum kv_kind each), separated by ", ". Returns text. */
enum { INDEX_COMMANDS = 128 };
const char *index_commands(char text[INDEX_COMMANDS], unsigned kinds);

/* Initializes a layer_index without any index. Returns 0, or KV_ENOMEM. */
int index_init(struct layer_index *, const struct ops *, struct dev *, uint32_t heads,
    uint32_t width, enum kv_dtype);
void index_free(struct layer_index *);                 /* all zero is allowed */

/* Copies an index from kv_load_index(), which was made of these rows, to the device, with the
 * capacity that index_reserve() gives. Returns 0, or KV_ENOMEM. */
int index_load(struct layer_index *, const struct kv_index *, const struct layer_rows *rows);
/* Adds an empty index without capacity: bits or pages with this many rows in an entry (bits: 16,
 * 32, 64 or 128). */
void index_start(struct layer_index *, enum kv_kind, uint32_t rows);
void index_drop(struct layer_index *, enum kv_kind);

/* Gives the indexes capacity for rows->capacity rows (rows->len where that is NULL). Returns
 * 0, or KV_ENOMEM (and then nothing has changed). */
int index_reserve(struct layer_index *, const struct layer_rows *);
/* Adds appended rows to bits and pages, which have the capacity. Allocates nothing, and reads no
 * key before row index_covers(). */
void index_extend(struct layer_index *, const struct layer_rows *);
/* Can index_extend() be captured, and launched for a row at a time (op_graph_begin)? rows: those of
 * its last call. Only bits can: the labels of pages come from the host. */
int index_repeats(const struct layer_index *, const struct layer_rows *);
/* Sets the host's counts of bits to rows->len, up or down. */
void index_count(struct layer_index *, const struct layer_rows *);

/* Returns the first of n rows of KV head g that some index does not cover by an entry, a cluster or
 * a factor, so that its key is read; n: none. */
uint32_t index_covers(const struct layer_index *, uint32_t g, uint32_t n);

/* Appends clusters: centroids[g] (host, [new[g]][E] of dtype), and label[g] (host, from 0), which
 * of these has each of the rows[g] rows from max(end[g], sink) on. rows[g] 0: nothing for this KV
 * head. Returns 0, or KV_ENOMEM. */
int index_add_clusters(struct layer_index *, const uint32_t *new, const void *const *centroids,
    const uint32_t *rows, const uint32_t *const *label);

/* Removes what was made of rows from rows->len on, which were dropped. clusters[G][2]: the numbers
 * of rows in clusters, and of clusters, at that length. Returns 0, or KV_ENOMEM. */
int index_cut(struct layer_index *, const struct layer_rows *, const uint32_t *clusters);

/* Writes the section of layer l, after its KEYS and before its VALS. Bits, pages and clusters
 * include the appended rows; low rank does not. Returns a KV_* code; the writer has the message. */
int index_write(const struct layer_index *, enum kv_kind, struct kv_writer *, uint32_t l);

#endif
