/* index.h - the retrieval indexes of one layer, on a device (kv-snapshot(5), 4.14 to 4.18)
 *
 * Loads them from the content of a section and writes that, and extends them while rows are
 * appended. How a query uses them: retrieval.h. Only ops, a device and shapes: no model, no
 * cache. Letters as in ops.h.
 *
 * Candidates. A query chooses among rows (bits, clusters), pages or chunks. Candidate i of a
 * KV head stands for its rows i*u .. i*u + u-1, as far as there are so many: there are
 * ceil(len[g] / u) of them. Where several share a score, or some have none, label[g][i] says
 * which score is theirs: the (label - 1)th entry's (cluster's, page's, landmark's), and 0: it
 * is always read. So rows that are in no page or cluster, such as appended ones, are always
 * read. */
#ifndef KVPIPE_INDEX_H
#define KVPIPE_INDEX_H

#include "libkvfile/codec.h"
#include "ops/ops.h"

struct labels {
	uint32_t *at;                  /* device [G][stride]; from n[g] on 0 */
	size_t stride;                 /* capacity, in candidates */
	uint32_t *n;                   /* host [G] candidates that have been labelled so far */
};

struct layer_index {
	const struct ops *ops;
	struct dev *dev;
	uint32_t heads, width;         /* G, E */
	enum kv_dtype dtype;           /* of the keys */
	unsigned present;              /* 1 << enum kv_kind of each index */

	/* dtype of the bounds of pages: that of the keys. Behind the pages of each KV head there is
	 * room for one more, which retrieval writes to */
	struct entries bits, pages;
	/* the pages that compete are all but the last of each KV head, whole or not */
	struct labels page_label;

	uint32_t sink;                 /* clusters: rows in front that are in none */
	uint32_t *end;                 /* host [G] rows from here on are in no cluster */
	struct layer_rows mean;        /* k only: rows are the centroids of the clusters */
	struct labels row_label;

	struct low_rank low;
	void *left, *right;            /* what low points to; device */
	uint8_t *exact;
	uint8_t *host_exact;           /* host, a copy of it */
	uint32_t n_exact;              /* x: exact chunks of each KV head */
	/* k only: n / chunk rows in each KV head. First those of chunks that compete, ascending
	 * (len counts these alone), then those of the exact ones. */
	struct layer_rows landmark;
	struct labels chunk_label;
};

static inline int
index_has(const struct layer_index *x, enum kv_kind kind)
{
	return (x->present >> kind & 1) != 0;
}

/* For messages: "keys in one bit" and so on, and the command that makes it, "kv-quantize1b",
 * "kv-index --pages" ... */
const char *index_words(enum kv_kind);
const char *index_command(enum kv_kind);
/* text <- the commands of all these kinds (1 << enum kv_kind each), with ", " between them.
 * Returns text. */
enum { INDEX_COMMANDS = 128 };
const char *index_commands(char text[INDEX_COMMANDS], unsigned kinds);

/* An index with nothing in it. Returns 0, or KV_ENOMEM. */
int index_init(struct layer_index *, const struct ops *, struct dev *, uint32_t heads,
    uint32_t width, enum kv_dtype);
void index_free(struct layer_index *);                 /* all zero is allowed */

/* Loads what kv_load_index() gave, made of these rows, with the capacity of index_reserve().
 * Returns 0, or KV_ENOMEM. */
int index_load(struct layer_index *, const struct kv_index *, const struct layer_rows *rows);
/* Starts bits (rows 16, 32, 64, 128) or pages of so many rows: empty, without capacity. */
void index_start(struct layer_index *, enum kv_kind, uint32_t rows);
void index_drop(struct layer_index *, enum kv_kind);

/* Gives the indexes capacity for rows->capacity rows (rows->len where that is NULL). Returns
 * 0, or KV_ENOMEM (and then nothing has changed). */
int index_reserve(struct layer_index *, const struct layer_rows *);
/* Adds appended rows to bits and pages, which have the capacity. Allocates nothing, and looks at no
 * key before index_covers(). */
void index_extend(struct layer_index *, const struct layer_rows *);
/* Can index_extend() be captured and launched for a row at a time (op_graph_begin)? These
 * are the rows that it has been called for. Only bits can: the labels of pages come from
 * the host. */
int index_repeats(const struct layer_index *, const struct layer_rows *);
/* What index_extend() of bits does on the host; also takes it back. */
void index_count(struct layer_index *, const struct layer_rows *);

/* Of n rows of KV head g, the first one whose key is still looked at where it stands: it has no
 * entry, cluster or factor in one of the indexes. n: there is none. */
uint32_t index_covers(const struct layer_index *, uint32_t g, uint32_t n);

/* Appends clusters: new[g] centroids[g] (host, [new][E] of dtype) and, for the rows[g] rows
 * from max(end[g], sink) on, which of these each one is in: label[g] (host, from 0). rows[g]
 * 0: nothing for this KV head. Returns 0, or KV_ENOMEM. */
int index_add_clusters(struct layer_index *, const uint32_t *new, const void *const *centroids,
    const uint32_t *rows, const uint32_t *const *label);

/* rows->len are fewer than there were: what was made since then of rows that are no longer there is
 * taken back. clusters[G][2]: rows that are in clusters, and these, as they were when there were no
 * more rows than now. Returns 0, or KV_ENOMEM. */
int index_cut(struct layer_index *, const struct layer_rows *, const uint32_t *clusters);

/* Writes the section of layer l, directly after its KEYS (or what stands between). Bits,
 * pages and clusters are of all rows that were appended so far; with low rank the appended
 * rows are outside. Returns a KV_* code; the writer has the message. */
int index_write(const struct layer_index *, enum kv_kind, struct kv_writer *, uint32_t l);

#endif
