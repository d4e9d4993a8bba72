/* snapshot_info.h - lists the contents of a snapshot: rows, queries, values of rows, indexes,
 * events
 *
 * The snapshot is read once, with one section in memory at a time. */
#ifndef KVPIPE_SNAPSHOT_INFO_H
#define KVPIPE_SNAPSHOT_INFO_H

#include "engine/engine_error.h"
#include "libkvfile/codec.h"

struct layer_info {
	uint32_t least, most;           /* rows of a KV head */
	uint64_t rows;                  /* of all heads */
	uint32_t queries;               /* W, 0 = none */
	uint32_t own_keys;              /* how many of the queries have a key of their own */
	int has_query_stats;
	uint32_t stats_first, stats_queries;    /* of them: from which position on, how many */
	int mass;                       /* 1: there is attention mass */
	int probe_mass;                 /* 1: there is probe mass */
	int value_norms;                /* 1: there are norms of value outputs */
	int gate_scores;                /* 1: there are gate scores */
	int noncausal;                  /* 1: there is non-causal attention */
};

/* The indexes of a layer (kv-snapshot(5), 4.14 to 4.18). All zero: none. */
struct index_info {
	uint64_t bytes[KV_KIND_END];     /* of each kind; 0: none */
	uint32_t group;                 /* rows of an entry of bits */
	uint32_t page;
	uint32_t sink, least, most;     /* sink rows; clusters of a KV head */
	uint32_t rank, rows, chunk, exact;      /* rows, and chunks of them */
};

struct snapshot_info {
	struct layer_info *layer;       /* [L] */
	struct index_info *index;       /* [L] */
	uint64_t tokens, rows;
	uint64_t tensor_bytes, tensor_stored;   /* of keys and values */
	char scores[KV_SCORE_LABEL];    /* label of the first scores, "" = none */
	char probe_mass[KV_SCORE_LABEL];        /* label of the first probe mass */
	char value_norms[KV_SCORE_LABEL];       /* label of the first norms; "" = none */
	char gate_scores[KV_SCORE_LABEL];       /* label of the first gate scores; "" = none */
	char noncausal[KV_SCORE_LABEL];         /* label of the first non-causal attention */
	int logits;                     /* 1: there are logits */
	struct kv_head_keys head_keys;  /* without its arrays; n 0: none */
	struct kv_log *log;
	struct kv_digests digests;
	/* every section, with list */
	struct kv_section *section;     /* [n] */
	size_t n, room;
};

/* *info <- the contents of the snapshot; reads it to the end. list: lists sections, and checks keys
 * and values, which are otherwise skipped if the input can seek. Returns an ENGINE_* code; free
 * info, also after a failure. */
int snapshot_info_read(struct snapshot_info *info, struct kv_reader *r, int list,
    struct engine_error *);
void snapshot_info_free(struct snapshot_info *);

/* Returns the number of rows as a share of those of the whole text. */
double snapshot_share_kept(const struct snapshot_info *, const struct kv_model *);
/* Returns the bytes of keys and values, not compressed, as a share of those that all rows of the
 * whole text have as elements of dtype. */
double snapshot_share_bytes(const struct snapshot_info *, const struct kv_head *);

#endif
