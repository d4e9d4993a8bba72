/* content.h - rules for the content of sections that this version knows (section 4); HEAD's are in
 * head.h
 *
 * Internal to libkvfile; reader and writer check by the same rules. */
#ifndef KVFILE_CONTENT_H
#define KVFILE_CONTENT_H

#include "buffer.h"
#include "section.h"

#pragma GCC visibility push(hidden)

#define KV_HEAD_MOST ((uint64_t)1 << 20)        /* bytes of HEAD, 4.1 */

/* Rows that own their memory, and the hash of the keys, which indexes of the layer must match. */
struct kv_row_store {
	struct kv_rows rows;
	uint32_t *count;                /* [G], rows.count */
	const uint32_t **pos;           /* [G], rows.pos */
	struct kv_buffer positions;     /* u32 [sum of lists] */
	uint64_t total;                 /* kv_rows_total() */
	uint64_t keys;                  /* kv_keys_hash() of the layer's KEYS */
	int has_keys;                   /* KEYS was read or written */
};

/* Checks a section's header, as far as its type is known. rows: of the layer. */
int kv_size_check(const struct kv_head *head, const struct kv_row_store *rows,
    const struct kv_header *h, struct kv_message *why);

/* Returns whether kv_content_check() must see the content of this type. */
int kv_content_is_checked(enum kv_kind kind);

/* Checks the whole content of such a section, after kv_size_check(). rows: of its layer; a POSN
 * is stored into them. */
int kv_content_check(const struct kv_head *head, const struct kv_header *h, const uint8_t *data,
    struct kv_row_store *rows, struct kv_message *why);

/* eVNt: checks each event by itself, 4.12. */
int kv_events_check(const struct kv_head *head, const uint8_t *data, uint64_t size,
    struct kv_message *why);

/* Checks an index by 4.14 to 4.18, and that it is made for these keys and rows. */
int kv_keyindex_check(const struct kv_head *head, const struct kv_header *h, const uint8_t *data,
    const struct kv_row_store *rows, struct kv_message *why);

/* POSN: content to rows and back. kv_rows_put() allocates *data of *size bytes. */
int kv_rows_get(struct kv_row_store *s, const struct kv_head *head, const uint8_t *data,
    uint64_t size, struct kv_message *why);
int kv_rows_put(const struct kv_rows *rows, const struct kv_head *head, uint8_t **data,
    size_t *size, struct kv_message *why);

/* Returns whether all KV heads have the same rows. */
int kv_rows_agree(const struct kv_rows *rows);

void kv_row_store_free(struct kv_row_store *s);

#pragma GCC visibility pop
#endif
