/* row_store.h - keys and values of a snapshot that stay in its file, read row by row
 *
 * A snapshot that is stored as it is has the rows of a KV head one behind the other (kv-snapshot(5), 4.4).
 * They have been checked once, when the snapshot was loaded; from then on the file must not change: its
 * size and times are looked at before what was read is used. It may be removed, or replaced by another
 * one: the descriptor stays that of the old one.
 *
 * Reading is by pread(), not by a mapping: a file that is cut short is an error then, not a signal, and
 * memory and address space are what the caller has given.
 *
 * Errors are KV_* codes, with a message in store->error. */
#ifndef KVPIPE_ROW_STORE_H
#define KVPIPE_ROW_STORE_H

#include <sys/stat.h>

#include "libkvfile/kvfile.h"

struct row_store {
	char *name;
	int fd;
	struct stat then;               /* when it was opened */
	uint32_t layers, heads;
	size_t row;                     /* bytes of a key, and of a value */
	uint64_t *key, *value;          /* [L] where the content begins; 0: not known */
	uint64_t *first;                /* [L][G] rows of the layer before those of this KV head */
	uint32_t *count;                /* [L][G] rows of this KV head */
	char error[512];                /* "": none */
	uint64_t calls, bytes;          /* reads of the file so far */
};

/* Of the file that a reader has open, which may be closed before the store is. NULL without memory or a
 * descriptor. */
struct row_store *row_store_new(const struct kv_reader *);
void row_store_free(struct row_store *);                /* NULL allowed */

/* The reader stands at a KEYS or VALS: notes its place. KV_EINVAL, with the message here: it is
 * compressed, or no file. */
int row_store_note(struct row_store *, const struct kv_reader *, const struct kv_section *);
/* The same of one that is not loaded: it is read and checked without being kept. Otherwise the reader has
 * the message. */
int row_store_pass(struct row_store *, struct kv_reader *, const struct kv_section *);

/* key and value (NULL: not wanted) at slot[i] * store->row <- row number row[i] of a KV head, for i < n;
 * row ascends. KV_EIO: the file cannot be read, or has changed. */
int row_store_read(struct row_store *, uint32_t layer, uint32_t head, const uint32_t *row,
    const uint32_t *slot, uint32_t n, void *key, void *value);
/* to <- keys (KV_KEYS) or values of the first n rows of a KV head. Returns as row_store_read(). */
int row_store_read_first(struct row_store *, uint32_t layer, uint32_t head, enum kv_kind, uint32_t n,
    void *to);
/* Is the file as it was? KV_OK, or KV_EIO. */
int row_store_check(struct row_store *);

#endif
