/* prefix_store.h - a prefix cache on disk: a folder with the rows of prompts, block by block, for
 * later prompts
 *
 * A prompt is cut into blocks of STORE_BLOCK tokens. The rows of a block are a file: a snapshot of
 * the tokens up to its end with the block's rows only. Its name is the hash of all that these rows
 * depend on: the model without its tokenizer, the types of keys and values, and all tokens from the
 * first on, as a chain of hashes, a link for each block. So the longest stored prefix of a prompt
 * is found by one open(2) for each stored block, prompts share the blocks of common prefixes, and
 * no list of files has to be kept consistent. The contents of a file, tokens included, are compared
 * with what its name stands for.
 *
 * With chunked eviction of new rows only (prefill.h, once) the rows that a chunk leaves depend on
 * the tokens up to its end and on the method, so they are stored, too: `evicted` is part of the
 * name, a block is a multiple of the chunk, and a file has the rows that are left.
 *
 * Many processes may use the folder. A file gets its name when it is complete, and is never
 * changed; a removed file stays readable for processes that have it open. Files are removed in the
 * order of last use (LRU), by their times. A block is newer than the blocks that continue it, so
 * that no block is left without its prefix. A damaged, missing or unwritable file is never an
 * error: its rows are computed, and the notice says so. */
#ifndef KVPIPE_PREFIX_STORE_H
#define KVPIPE_PREFIX_STORE_H

#include "cache/cache.h"
#include "engine/engine_error.h"

enum { STORE_BLOCK = 256 };

struct prefix_store {
	/* the caller's */
	const char *dir;
	uint64_t most;                  /* limit of the bytes of all files; 0 = none */
	unsigned flags;                 /* of kv_create() */
	/* how chunks of so many tokens were evicted: method, options; NULL: all rows are there.
	 * The chunk divides STORE_BLOCK, or is a multiple of it */
	const char *evicted;
	uint32_t chunk;
	uint32_t probes;                /* learned tokens that scored each chunk; 0: none */
	const char *products;           /* what activations are rounded to; NULL: not rounded */
	struct notice_hook notice;
	/* the rest belongs to prefix_store.c */
	const struct model *model;
	struct kv_head head;            /* of a block: how its rows are stored */
	const uint32_t *ids;            /* the prompt */
	uint32_t block;                 /* tokens of a block */
	uint32_t blocks;                /* whole blocks */
	char (*name)[33];               /* [blocks] hexadecimal digits */
	uint32_t there;                 /* loaded blocks */
	int off;                        /* 1: there is no folder, and none can be made */
};

/* Makes the folder if there is none, and names the blocks of the prompt ids[n], which must outlive
 * the store. stored: dtype and row types of the rows. ENGINE_ERUN when dir, or its parent, is not a
 * folder. */
int prefix_store_open(struct prefix_store *, const struct model *, const struct kv_head *stored,
    const uint32_t *ids, size_t n, struct engine_error *);
/* Returns how many tokens of the prompt have their rows in existing files, at most `most`, without
 * reading them; *bytes (NULL: not wanted) <- of these files. */
uint32_t prefix_store_tokens(const struct prefix_store *, uint32_t most, uint64_t *bytes);
/* Loads rows, tokens and log of the stored blocks into the empty cache, of at most `tokens` tokens,
 * from prefix_store_tokens(), with room for c->spare rows more; c->next_position <- the number of
 * these tokens. tile: as for reuse_log(). */
int prefix_store_load(struct prefix_store *, struct cache *c, uint32_t tokens, uint32_t tile,
    struct engine_error *);
/* Adds the missing blocks from a cache with all rows of the prompt, or those that `evicted` left,
 * and marks the blocks of the prompt as used now. c NULL: adds nothing, because rows were dropped,
 * and marks the loaded blocks. If c is not NULL, removes files until the folder is within its
 * limit. */
void prefix_store_keep(struct prefix_store *, const struct cache *c);
void prefix_store_close(struct prefix_store *);

/* prefix_store_lru.c. Removes unfinished files of killed writers, and the least recently used files
 * until the others have `most` bytes (0 = no limit). */
void store_make_room(const char *dir, uint64_t most, const struct notice_hook *);
/* Sets the times of the files of these names to now, the first one the newest. */
void store_used(const char *dir, char (*name)[33], uint32_t n);
/* Returns "dir/name.kv", to be freed; NULL without memory. */
char *store_path(const char *dir, const char *name);
/* Returns the bytes of a block; -1 if path is no regular file. */
int64_t store_has(const char *path);

#endif
