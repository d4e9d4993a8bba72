/* snapshot_info.h - what a snapshot holds: rows, queries, values of rows, indexes, events
 *
 * Read in one go, a section in memory at a time. */
#ifndef KVPIPE_SNAPSHOT_INFO_H
#define KVPIPE_SNAPSHOT_INFO_H

#include "engine/engine_error.h"
#include "libkvfile/codec.h"

struct layer_info {
	uint32_t least, most;           /* rows of a KV head */
	uint64_t rows;                  /* of all heads */
	uint32_t queries;               /* W, 0 = none */
	uint32_t own_keys;              /* how many of the queries have their own key with them */
	int mass;                       /* attention received is there */
	int probe_mass;                 /* attention mass of a probe is there */
};

/* The indexes of a layer (kv-snapshot(5), 4.14 to 4.18). All zero: none. */
struct index_info {
	uint64_t bytes[KV_UNKNOWN];     /* of each kind; 0: it is not there */
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
	char scores[KV_SCORE_LABEL];    /* label of the first ones, "" = none */
	char probe_mass[KV_SCORE_LABEL];        /* the same of a probe's mass */
	int logits;                     /* they are there */
	struct kv_head_keys head_keys;  /* without its arrays; n 0: none */
	struct kv_log *log;
	struct kv_digests digests;
	/* every section, when they are listed */
	struct kv_section *section;     /* [n] */
	size_t n, room;
};

/* *info <- the snapshot, from the first section to the end. list: sections are listed, and keys and
 * values checked; otherwise they are skipped where the input can seek. Returns an ENGINE_* code;
 * info is freed by the caller also when it failed. */
int snapshot_info_read(struct snapshot_info *info, struct kv_reader *r, int list,
    struct engine_error *);
void snapshot_info_free(struct snapshot_info *);

/* Rows held / rows that the whole text would have. */
double snapshot_share_kept(const struct snapshot_info *, const struct kv_model *);

#endif
