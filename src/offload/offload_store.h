/* offload_store.h - keys and values of a snapshot that are not on the device: in its file, or in
 * host memory
 *
 * A device with memory of its own reads rows from pinned host memory (fetch_chosen()); then the
 * host reads no rows while tokens run. Without such memory, or without enough of it, rows stay in
 * the file and are read one by one: in a snapshot that is not compressed, the rows of a KV head are
 * contiguous (kv-snapshot(5), 4.4).
 *
 * The file must not change while rows are read from it. It was checked when the snapshot was
 * loaded; after that its size and times are compared before rows are used. A descriptor is kept
 * open, so the file may be removed or replaced. Both change ctime, as does writing the file and
 * setting back mtime: if only ctime has changed, the whole file is checked again.
 *
 * Rows are read from a mapping, if the program can map a file that may be truncated later
 * (cli/mapped_file.h), else by preadv(). A file that is truncated, or cannot be read, is an error
 * with either.
 *
 * Errors are KV_* codes, with a message in store->error. */
#ifndef KVPIPE_OFFLOAD_STORE_H
#define KVPIPE_OFFLOAD_STORE_H

#include <sys/stat.h>

#include "libkvfile/kvfile.h"
#include "ops/ops.h"

/* Maps a file such that a page which cannot be read has zeros, instead of raising a signal. */
struct mapped_file;
struct file_mapper {
	struct mapped_file *(*map)(int fd, size_t size);        /* NULL: it cannot be mapped */
	void (*unmap)(struct mapped_file *);                    /* NULL allowed */
	const char *(*data)(const struct mapped_file *);
	int (*broken)(const struct mapped_file *);              /* 1: a page could not be read */
};

struct offload_store {
	char *name;
	int fd;
	struct stat opened;             /* fstat() when the file was opened, or checked again */
	char digest[33];                /* of the snapshot, when it was loaded */
	uint32_t layers, heads;
	size_t *key_row, *value_row;    /* [L] bytes of a row */
	uint64_t *key, *value;          /* [L] offset of the content in the file; 0: none */
	uint64_t *first;                /* [L][G] rows of the layer before those of this KV head */
	uint32_t *count;                /* [L][G] rows of this KV head */
	/* rows in host memory: the device that reads them (ops NULL: none), and [L] keys and
	 * values, KV head after KV head; NULL: this layer's are in the file */
	const struct ops *ops;
	struct dev *dev;
	void **host_keys, **host_values;
	int reads_file;                 /* 1: rows of some layer are read from the file */
	const struct file_mapper *mapper;
	struct mapped_file *map;        /* of the file; NULL: not mapped */
	char error[512];                /* "": none */
	uint64_t calls, bytes;          /* reads of the file so far */
};

/* Returns a store for the file of a reader, which may be closed before the store is; NULL without
 * memory or a descriptor. mapper (NULL: none) must outlive the store. */
struct offload_store *offload_store_new(const struct kv_reader *, const struct file_mapper *mapper);
void offload_store_free(struct offload_store *);        /* NULL allowed; waits for the device */
/* Has offload_store_take_section() put later sections into host memory that the device reads, as
 * long as there is some. */
void offload_store_use_host_memory(struct offload_store *, const struct ops *, struct dev *);

/* Stores the place in the file of the KEYS or VALS that the reader stands at, so that its layer,
 * which is loaded to the device, can be offloaded later. Returns 0, or KV_EINVAL (store->error):
 * the section is compressed, or in no file, and no host memory is used. */
int offload_store_locate(struct offload_store *, const struct kv_reader *,
    const struct kv_section *);
/* As offload_store_locate(), for a section that is not loaded to the device: reads and checks it,
 * and puts it into host memory if there is some. The reader has the message of other errors. */
int offload_store_take_section(struct offload_store *, struct kv_reader *,
    const struct kv_section *);
/* Copies the rows of a located layer, the first ones of `from` on the device, to host memory if
 * there is some. Returns 0, or KV_ENOMEM: no host memory, and they are not in the file. */
int offload_store_copy_layer(struct offload_store *, uint32_t layer, const struct layer_rows *from);
/* Returns 1 if both keys and values of this layer are in host memory. */
int offload_store_in_host_memory(const struct offload_store *, uint32_t layer);

/* key and value (NULL: not wanted), rows of the bytes that the layer's have, at slot[i] <- row
 * number row[i] of a KV head, for i < n; row ascends. Returns 0, or KV_EIO: the file cannot be
 * read, or has changed. */
int offload_store_read(struct offload_store *, uint32_t layer, uint32_t head, const uint32_t *row,
    const uint32_t *slot, uint32_t n, void *key, void *value);
/* to <- keys (KV_KEYS) or values of the first n rows of a KV head. Returns as
 * offload_store_read(). */
int offload_store_read_first(struct offload_store *, uint32_t layer, uint32_t head, enum kv_kind,
    uint32_t n, void *to);
/* Returns the first row of a KV head in host memory that the device reads; NULL: in the file. */
const void *offload_store_host_rows(const struct offload_store *, uint32_t layer, uint32_t head,
    enum kv_kind);
/* Has the system begin to read a layer that is in the file, which will be read soon. */
void offload_store_expect(const struct offload_store *, uint32_t layer);
/* Stores a failure, unless there is one. */
void offload_store_fail(struct offload_store *, const char *message);
/* Returns the bytes of the largest row of any layer. */
size_t offload_store_widest(const struct offload_store *);
/* Returns where the offloaded rows are, for messages: "in the file", "in the file, mapped", "in
 * host memory", or in both */
const char *offload_store_describe(const struct offload_store *);
/* Stores the digest of the snapshot, which the reader has read to its end. */
void offload_store_loaded(struct offload_store *, const struct kv_reader *);
/* Returns KV_EIO if rows are read from the file and it has changed since it was opened, else
 * KV_OK. */
int offload_store_check(struct offload_store *);

#endif
