/* head_keys.h - a retrieval head's state for one sequence: its keys of all tokens so far, and the
 * query of the token that runs next
 *
 * The head sees every token, also those whose rows the model's layers have dropped: row p of its
 * keys is that of the token at position p. So a cache whose rows have been renumbered cannot have a
 * head.
 *
 * Letters as in ops.h, of the head; errors are KV_* codes. */
#ifndef KVPIPE_HEAD_KEYS_H
#define KVPIPE_HEAD_KEYS_H

#include "libkvfile/codec.h"
#include "model/retrieval_head.h"

struct head_keys {
	const struct retrieval_head *head;
	struct layer_rows keys;         /* k only; each KV head has the same rows */
	/* device [room][D] features, of the tokens at positions first .. started-1; those before
	 * `done` are complete. NULL: the head has none */
	float *feature;
	uint32_t first, started, done, room;
	/* scratch, device: [HEAD_ROWS][D] each of two, [HEAD_ROWS][G][E], [H][E], [HEAD_ROWS] */
	float *e, *f, *k, *q;
	uint32_t *pos;
	/* the head's name; that of an older head, if it made keys */
	const char *id;
	/* rows of e, f and pos, from the keys that were made last */
	uint32_t prepared;
};

/* Returns the state for a text without tokens, with keys of this type; NULL without memory. */
struct head_keys *head_keys_new(const struct retrieval_head *, enum kv_dtype);
void head_keys_free(struct head_keys *);                /* NULL allowed */

/* Makes room for keys of `tokens` tokens, and for the features of `rows` rows that run at once.
 * Returns 0, or KV_ENOMEM (and then nothing has changed). */
int head_keys_reserve(struct head_keys *, uint64_t tokens, uint32_t rows);

/* Adds to the features from x[N][D of the model] (device), the residual stream before layer l of
 * the model, of N tokens from this position on, in the order of the text. Does nothing before
 * layers that the head does not use. */
void head_keys_note(struct head_keys *, uint32_t l, const float *x, uint32_t position, uint32_t N);

/* Appends the missing keys of the tokens id[n] (host): of all, or, with features, of those up to
 * the one after the last that has run through the model. Returns how many keys there are. The
 * caller has reserved the room. */
uint32_t head_keys_extend(struct head_keys *, const uint32_t *id, size_t n);

/* Returns the query [H][E] (device, until the next call of any of these functions) of the token
 * whose key head_keys_extend() has just appended last. */
const float *head_keys_query(struct head_keys *);

/* *feature <- the feature of the last token that ran (host, to be freed), or NULL: the head has
 * none. Returns 0, or KV_ENOMEM. */
int head_keys_feature(const struct head_keys *, float **feature);
/* Removes all but the first n tokens, the last of which has this feature. */
void head_keys_cut(struct head_keys *, size_t n, const float *feature);

/* Fills the state of a text without tokens from a section. Returns 0, KV_ENOMEM, or KV_EINVAL: the
 * section is of another head or shape. */
int head_keys_load(struct head_keys *, const struct kv_head_keys *);
/* Writes the section: all keys, and the features, if any, of the last token, which must be
 * complete. Returns a KV_* code; the writer has the message. */
int head_keys_save(const struct head_keys *, struct kv_writer *);

/* Return the bytes on the device of one more token; and of the features of this many rows that run
 * at once (all tokens of a prompt that runs layer by layer). */
uint64_t head_keys_row_bytes(const struct retrieval_head *, enum kv_dtype);
uint64_t head_keys_feature_bytes(const struct retrieval_head *, uint64_t rows);

#endif
