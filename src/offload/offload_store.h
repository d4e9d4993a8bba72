/* offload_store.h - keys and values of a snapshot that are not on the device: in its file, or in host memory
 *
 * A device with memory of its own reads rows in pinned host memory by itself (fetch_chosen()), and
 * then neither file nor host is asked while tokens run. Where there is no such memory, or not enough,
 * rows stay in the file and are read row by row. A snapshot that is stored as it is has the rows of a KV head one behind the other (kv-snapshot(5), 4.4).
 * They have been checked once, when the snapshot was loaded; from then on the file must not change: its
 * size and times are looked at before what was read is used. It may be removed, or replaced by another
 * one: the descriptor stays that of the old one. That changes the time of the inode, as does a file that is
 * written and dated back: then all of it is checked again.
 *
 * Rows are read from a mapping, where the program has a way to map a file that may be cut short
 * (cli/mapped_file.h), else by preadv(). A file that is cut short, or cannot be read, is an error with either.
 *
 * Errors are KV_* codes, with a message in store->error. */
#ifndef KVPIPE_OFFLOAD_STORE_H
#define KVPIPE_OFFLOAD_STORE_H

#include <sys/stat.h>

#include "libkvfile/kvfile.h"
#include "ops/ops.h"

/* A file is mapped such that a page which cannot be read is one of zeros, and no signal. */
struct mapped_file;
struct file_mapper {
	struct mapped_file *(*map)(int fd, size_t size);        /* NULL: it cannot be */
	void (*unmap)(struct mapped_file *);                    /* NULL allowed */
	const char *(*data)(const struct mapped_file *);
	int (*broken)(const struct mapped_file *);              /* 1: there was such a page */
};

struct row_store {
	char *name;
	int fd;
	struct stat then;               /* when it was opened, or checked again */
	char digest[33];                /* of the stream, when it was loaded */
	uint32_t layers, heads;
	size_t row;                     /* bytes of a key, and of a value */
	uint64_t *key, *value;          /* [L] where the content begins; 0: not known */
	uint64_t *first;                /* [L][G] rows of the layer before those of this KV head */
	uint32_t *count;                /* [L][G] rows of this KV head */
	/* rows in host memory: what this memory is of (ops NULL: none is), and [L] keys and values, the
	 * rows of a KV head behind those of the one before; NULL: of this layer they are not there */
	const struct ops *ops;
	struct dev *dev;
	void **kept_keys, **kept_values;
	int reads_file;                 /* rows of a layer are read from the file */
	const struct file_mapper *mapper;
	struct mapped_file *map;        /* of it; NULL: not mapped */
	char error[512];                /* "": none */
	uint64_t calls, bytes;          /* reads of the file so far */
};

/* Of the file that a reader has open, which may be closed before the store is. mapper (NULL: none) outlives
 * it. NULL without memory or a descriptor. */
struct row_store *row_store_new(const struct kv_reader *, const struct file_mapper *mapper);
void row_store_free(struct row_store *);                /* NULL allowed; waits for the device */
/* Rows that are passed from now on are kept in host memory that the device reads, as long as there is
 * some. */
void row_store_keep(struct row_store *, const struct ops *, struct dev *);

/* The reader stands at a KEYS or VALS that is loaded: notes its place, for when these rows are no longer on
 * the device. KV_EINVAL, with the message here: it is compressed, or no file, and there is no host memory
 * for it. */
int row_store_note(struct row_store *, const struct kv_reader *, const struct kv_section *);
/* The same of one that is not loaded: it is read and checked, and goes to host memory or nowhere. Otherwise
 * the reader has the message. */
int row_store_pass(struct row_store *, struct kv_reader *, const struct kv_section *);
/* Of a layer that was noted: its rows, which the device still has as the first ones of `from`, go to host
 * memory, where there is some. Returns 0, or KV_ENOMEM: there is none, and the file has them not. */
int row_store_take(struct row_store *, uint32_t layer, const struct layer_rows *from);
/* Are both keys and values of this layer in host memory? */
int row_store_has(const struct row_store *, uint32_t layer);

/* key and value (NULL: not wanted) at slot[i] * store->row <- row number row[i] of a KV head, for i < n;
 * row ascends. KV_EIO: the file cannot be read, or has changed. */
int row_store_read(struct row_store *, uint32_t layer, uint32_t head, const uint32_t *row,
    const uint32_t *slot, uint32_t n, void *key, void *value);
/* to <- keys (KV_KEYS) or values of the first n rows of a KV head. Returns as row_store_read(). */
int row_store_read_first(struct row_store *, uint32_t layer, uint32_t head, enum kv_kind, uint32_t n,
    void *to);
/* "in the file", "in the file, mapped", "in host memory", or that they are in both: where the rows are that were
 * passed or taken */
const char *row_store_where(const struct row_store *);
/* The reader has come to the end: this is what the file must stay. */
void row_store_loaded(struct row_store *, const struct kv_reader *);
/* Is the file as it was, where it is read? KV_OK, or KV_EIO. */
int row_store_check(struct row_store *);

#endif
