/* head_keys.h - a retrieval head beside one sequence: its keys of all tokens so far, and the query
 * of the one that runs next
 *
 * The head sees every token, whatever rows the model's own layers still have: row p of its keys is
 * that of the token at position p. So a cache whose rows have other positions cannot have one.
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
	 * done are whole. NULL: the head has none */
	float *feature;
	uint32_t first, started, done, room;
	/* scratch, device: [HEAD_ROWS][D] each of two, [HEAD_ROWS][G][E], [H][E], [HEAD_ROWS] */
	float *e, *f, *k, *q;
	uint32_t *pos;
	const char *id;                 /* the head's name; an older one's, where it made keys */
	uint32_t prepared;              /* rows of e, f and pos: of the keys that were made last */
};

/* Of a text without tokens, with keys of this type. NULL without memory. */
struct head_keys *head_keys_new(const struct retrieval_head *, enum kv_dtype);
void head_keys_free(struct head_keys *);                /* NULL allowed */

/* Room for keys of so many tokens, and for the features of `rows` that run at once. Returns 0, or
 * KV_ENOMEM (and then nothing has changed). */
int head_keys_reserve(struct head_keys *, uint64_t tokens, uint32_t rows);

/* Takes what it needs of the residual stream x[N][D of the model] (device), of tokens from this
 * position on, in front of layer l of the model; nothing in front of most layers. They come in the
 * order of the text. */
void head_keys_note(struct head_keys *, uint32_t l, const float *x, uint32_t position, uint32_t N);

/* Appends the keys that can be known of the tokens id[n] (host): all, or, with features, those up
 * to the one behind the last that ran through the model. Returns how many keys there are then. The
 * room has been reserved. */
uint32_t head_keys_extend(struct head_keys *, const uint32_t *id, size_t n);

/* q[H][E] (device, until the next call of any of these) of the token whose key is the last one,
 * which head_keys_extend() has just appended. */
const float *head_keys_query(struct head_keys *);

/* *feature <- that of the last token that ran (host, to be freed), or NULL: the head has none.
 * Returns 0, or KV_ENOMEM. */
int head_keys_feature(const struct head_keys *, float **feature);
/* Only the first n tokens are left, whose last one has this feature. */
void head_keys_cut(struct head_keys *, size_t n, const float *feature);

/* Fills a text without tokens from a section. KV_EINVAL: of another head, or shape. */
int head_keys_load(struct head_keys *, const struct kv_head_keys *);
/* Writes the section: all keys, and the features of their last token, which must be whole unless
 * there are none. Returns a KV_* code; the writer has the message. */
int head_keys_save(const struct head_keys *, struct kv_writer *);

/* Bytes on the device for one more token; and of the features of so many rows that run at once,
 * which for a prompt that runs layer by layer are all of it. */
uint64_t head_keys_row_bytes(const struct retrieval_head *, enum kv_dtype);
uint64_t head_keys_feature_bytes(const struct retrieval_head *, uint64_t rows);

#endif
