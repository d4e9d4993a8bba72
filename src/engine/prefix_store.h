/* prefix_store.h - a folder that keeps the rows of prompts, block by block, for prompts to come
 *
 * A prompt is cut into blocks of STORE_BLOCK tokens. The rows of a block are a file: a snapshot
 * of the tokens up to its end that has lost all rows but its own. Its name is the hash of what
 * these rows depend on: the model without its tokenizer, the type of keys and values, and all
 * tokens from the first on, as a chain of hashes, a link for each block. So the longest stored
 * prefix of a prompt is found by one open(2) for each block that is there, prompts share what
 * they have in common, and nothing has to be kept in step. What a name promises is compared with
 * what the file says, tokens and all.
 *
 * Many processes may use the folder. A file gets its name when it is complete, and is never
 * changed; one that is removed stays readable for those who have it open. The times of the files
 * say which blocks were used last; each block is newer than those that begin with it, so that
 * what is removed first is of no use to the others. What is damaged, missing or cannot be written
 * is never an error: rows are computed then, and the notice says so. */
#ifndef KVPIPE_PREFIX_STORE_H
#define KVPIPE_PREFIX_STORE_H

#include "cache/cache.h"
#include "engine/engine_error.h"

enum { STORE_BLOCK = 256 };

struct prefix_store {
	/* the caller's */
	const char *dir;
	uint64_t most;                  /* bytes of files; 0 = no limit */
	unsigned flags;                 /* of kv_create() */
	const char *products;           /* what activations are rounded to; NULL: nothing */
	struct notice_hook notice;
	/* prefix_store.c's */
	const struct model *model;
	enum kv_dtype dtype;
	const uint32_t *ids;            /* the prompt */
	uint32_t blocks;                /* whole ones */
	char (*name)[33];               /* [blocks] hexadecimal digits */
	uint32_t there;                 /* blocks that have been loaded */
	int off;                        /* there is no folder, and none can be made */
};

/* Makes the folder if need be, and names the blocks of the prompt, which must stay. ENGINE_ERUN
 * when dir is no folder, or is to be in none. */
int prefix_store_open(struct prefix_store *, const struct model *, enum kv_dtype dtype,
    const uint32_t *ids, size_t n, struct engine_error *);
/* How many rows there seem to be, at most `most`. */
uint32_t prefix_store_rows(const struct prefix_store *, uint32_t most);
/* The empty cache gets rows, tokens and log of the blocks that are there, and room for c->spare
 * rows behind `rows`, what prefix_store_rows() said; these it does not pass. c->next_position
 * tells how many they are. tile: reuse_log(). */
int prefix_store_load(struct prefix_store *, struct cache *c, uint32_t rows, uint32_t tile,
    struct engine_error *);
/* The cache has all rows of the prompt: adds the blocks that are not there. NULL: it has lost
 * some, and nothing is added. In both cases the blocks of the prompt count as used, and the
 * folder shrinks to its limit. */
void prefix_store_keep(struct prefix_store *, const struct cache *c);
void prefix_store_close(struct prefix_store *);

/* prefix_store_lru.c: removes what killed writers have left, and the files that were used longest
 * ago until the others have `most` bytes (0 = no limit). */
void store_make_room(const char *dir, uint64_t most, const struct notice_hook *);
/* The files of these names were used now, the first one last. */
void store_used(const char *dir, char (*name)[33], uint32_t n);
/* "dir/name.kv", to be freed; NULL without memory. */
char *store_path(const char *dir, const char *name);
/* Bytes of a block, -1 where there is none: a file, and nothing that has the name of one. */
int64_t store_has(const char *path);

#endif
