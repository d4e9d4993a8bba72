/* offload_store.h - keys and values of a snapshot that are not on the device: in its file, or in
 * host memory
 *
 * A device with memory of its own reads rows in pinned host memory (fetch_chosen()); then neither
 * file nor host is needed while tokens run. Where there is no such memory, or not enough, rows stay
 * in the file and are read one by one. A snapshot that is not compressed has the rows of a KV head
 * contiguous (kv-snapshot(5), 4.4).
 *
 * The file must not change while rows are read from it. It was checked when the snapshot was
 * loaded; after that its size and times are compared before rows are used. A descriptor is kept
 * open: the file may be removed, or replaced. Both change the time of the inode, as does a file
 * that is written and dated back: where only that time has changed, the whole file is checked
 * again.
 *
 * Rows are read from a mapping, where the program can map a file that may be cut short
 * (cli/mapped_file.h), else by preadv(). A file that is cut short, or cannot be read, is an error
 * with either.
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

struct offload_store {
	char *name;
	int fd;
	struct stat opened;             /* when it was opened, or checked again */
	char digest[33];                /* of the stream, when it was loaded */
	uint32_t layers, heads;
	size_t row;                     /* bytes of a key, and of a value */
	uint64_t *key, *value;          /* [L] where the content begins; 0: not known */
	uint64_t *first;                /* [L][G] rows of the layer before those of this KV head */
	uint32_t *count;                /* [L][G] rows of this KV head */
	/* rows in host memory: the device that reads them (ops NULL: none), and [L] keys and
	 * values, KV head after KV head; NULL: this layer's are not there */
	const struct ops *ops;
	struct dev *dev;
	void **host_keys, **host_values;
	int reads_file;                 /* rows of a layer are read from the file */
	const struct file_mapper *mapper;
	struct mapped_file *map;        /* of it; NULL: not mapped */
	char error[512];                /* "": none */
	uint64_t calls, bytes;          /* reads of the file so far */
};

/* Opens the file of a reader, which may be closed before the store is. mapper (NULL: none) must
 * outlive the store. NULL without memory or a descriptor. */
struct offload_store *offload_store_new(const struct kv_reader *, const struct file_mapper *mapper);
void offload_store_free(struct offload_store *);        /* NULL allowed; waits for the device */
/* Sections that are taken later go to host memory that the device reads, as long as there is
 * some. */
void offload_store_use_host_memory(struct offload_store *, const struct ops *, struct dev *);

/* Notes where in the file the KEYS or VALS is that the reader stands at, and that is loaded to the
 * device: its layer may be offloaded later. Returns 0, or KV_EINVAL (store->error): it is
 * compressed, or in no file, and there is no host memory for it. */
int offload_store_locate(struct offload_store *, const struct kv_reader *,
    const struct kv_section *);
/* As offload_store_locate(), for a section that is not loaded: reads and checks it, and puts it
 * into host memory where there is some. The reader has the message of other errors. */
int offload_store_take_section(struct offload_store *, struct kv_reader *,
    const struct kv_section *);
/* Copies the rows of a located layer from the device, where they are the first ones of `from`, to
 * host memory, where there is some. Returns 0, or KV_ENOMEM: there is none, and the file does not
 * have them. */
int offload_store_copy_layer(struct offload_store *, uint32_t layer, const struct layer_rows *from);
/* Returns 1 where both keys and values of this layer are in host memory. */
int offload_store_in_host_memory(const struct offload_store *, uint32_t layer);

/* key and value (NULL: not wanted) at slot[i] * store->row <- row number row[i] of a KV head, for i
 * < n; row ascends. KV_EIO: the file cannot be read, or has changed. */
int offload_store_read(struct offload_store *, uint32_t layer, uint32_t head, const uint32_t *row,
    const uint32_t *slot, uint32_t n, void *key, void *value);
/* to <- keys (KV_KEYS) or values of the first n rows of a KV head. Returns as
 * offload_store_read(). */
int offload_store_read_first(struct offload_store *, uint32_t layer, uint32_t head, enum kv_kind,
    uint32_t n, void *to);
/* Returns where the offloaded rows are: "in the file", "in the file, mapped", "in host memory", or
 * in both */
const char *offload_store_describe(const struct offload_store *);
/* Keeps the digest of the snapshot, which the reader has read to its end. */
void offload_store_loaded(struct offload_store *, const struct kv_reader *);
/* Returns KV_OK where the file, if rows are read from it, has not changed, else KV_EIO. */
int offload_store_check(struct offload_store *);

#endif
