/* offload_store.c - keys and values of a snapshot that are not on the device
 *
 * If the file is not mapped, one call of preadv() reads rows that are adjacent in the file, or
 * nearly, into any slots. Reading the bytes between two rows costs less than another call, up to
 * about SKIPPED bytes. */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "offload/offload_store.h"

enum { AT_ONCE = 256 };                         /* buffers of a call */
enum { SKIPPED = 8192 };                        /* bytes */

static int
store_fail(struct offload_store *s, int code, const char *fmt, ...)
{
	va_list ap;

	if (s->error[0] != '\0')
		return code;
	va_start(ap, fmt);
	vsnprintf(s->error, sizeof s->error, fmt, ap);
	va_end(ap);
	return code;
}

void
offload_store_fail(struct offload_store *s, const char *message)
{
	store_fail(s, KV_ENOMEM, "%s: %s", s->name, message);
}

struct offload_store *
offload_store_new(const struct kv_reader *r, const struct file_mapper *mapper)
{
	const struct kv_head *head = kv_reader_head(r);
	struct offload_store *s = calloc(1, sizeof *s);
	uint32_t l;

	if (s == NULL)
		return NULL;
	s->layers = head->model.layers;
	s->heads = head->model.kv_heads;
	s->name = strdup(kv_reader_name(r));
	s->key_row = calloc(s->layers, sizeof *s->key_row);
	s->value_row = calloc(s->layers, sizeof *s->value_row);
	s->key = calloc(s->layers, sizeof *s->key);
	s->value = calloc(s->layers, sizeof *s->value);
	s->host_keys = calloc(s->layers, sizeof *s->host_keys);
	s->host_values = calloc(s->layers, sizeof *s->host_values);
	s->reads_file = 1;
	s->first = calloc((size_t)s->layers * s->heads, sizeof *s->first);
	s->count = calloc((size_t)s->layers * s->heads, sizeof *s->count);
	s->fd = dup(kv_reader_descriptor(r));
	if (s->name != NULL && s->key_row != NULL && s->value_row != NULL && s->key != NULL &&
	    s->value != NULL && s->host_keys != NULL && s->host_values != NULL &&
	    s->first != NULL && s->count != NULL && s->fd >= 0 &&
	    fstat(s->fd, &s->opened) == 0) {
		for (l = 0; l < s->layers; l++) {
			s->key_row[l] = kv_head_row_bytes(head, KV_KEYS, l);
			s->value_row[l] = kv_head_row_bytes(head, KV_VALS, l);
		}
		s->mapper = mapper;
		if (mapper != NULL && S_ISREG(s->opened.st_mode))
			s->map = mapper->map(s->fd, (size_t)s->opened.st_size);
		return s;
	}
	offload_store_free(s);
	return NULL;
}

void
offload_store_free(struct offload_store *s)
{
	uint32_t l;

	if (s == NULL)
		return;
	if (s->ops != NULL)                     /* the device may be reading them */
		s->ops->sync(s->dev);
	for (l = 0; s->ops != NULL && l < s->layers; l++) {
		s->ops->host_free(s->dev, s->host_keys[l]);
		s->ops->host_free(s->dev, s->host_values[l]);
	}
	if (s->map != NULL)
		s->mapper->unmap(s->map);
	if (s->fd >= 0)
		close(s->fd);
	free(s->name);
	free(s->key_row);
	free(s->value_row);
	free(s->key);
	free(s->value);
	free(s->host_keys);
	free(s->host_values);
	free(s->first);
	free(s->count);
	free(s);
}

void
offload_store_use_host_memory(struct offload_store *s, const struct ops *ops, struct dev *dev)
{
	s->ops = ops;
	s->dev = dev;
	s->reads_file = 0;
}

int
offload_store_in_host_memory(const struct offload_store *s, uint32_t layer)
{
	return s->host_keys[layer] != NULL && s->host_values[layer] != NULL;
}

const char *
offload_store_describe(const struct offload_store *s)
{
	uint32_t l;

	for (l = 0; l < s->layers && s->host_keys[l] == NULL && s->host_values[l] == NULL; l++)
		;
	if (l == s->layers)
		return s->map != NULL ? "in the file, mapped" : "in the file";
	return s->reads_file ? "in host memory, and some in the file" : "in host memory";
}

size_t
offload_store_widest(const struct offload_store *s)
{
	size_t most = 0;
	uint32_t l;

	for (l = 0; l < s->layers; l++) {
		most = s->key_row[l] > most ? s->key_row[l] : most;
		most = s->value_row[l] > most ? s->value_row[l] : most;
	}
	return most;
}

/* ---- filling ---- */

/* Stores the numbers of rows of a section's layer, and returns the offset of the content in the
 * file; 0: in none. */
static uint64_t
locate(struct offload_store *s, const struct kv_reader *r, const struct kv_section *sec)
{
	const struct kv_rows *rows = kv_current_rows(r);
	const size_t at = (size_t)sec->layer * s->heads;
	uint64_t before = 0, *place = &(sec->kind == KV_KEYS ? s->key : s->value)[sec->layer];
	uint32_t g;

	for (g = 0; g < s->heads; before += rows->count[g++]) {
		s->first[at + g] = before;
		s->count[at + g] = rows->count[g];
	}
	return *place = kv_reader_place(r);
}

static int
not_in_file(struct offload_store *s, const struct kv_section *sec)
{
	return store_fail(s, KV_EINVAL, "%s: %s of layer %u is compressed (-z), or not in a "
	    "file%s: its rows cannot be read one by one", s->name, sec->type, sec->layer,
	    s->ops != NULL ? ", and there is no memory for it" : "");
}

int
offload_store_locate(struct offload_store *s, const struct kv_reader *r,
    const struct kv_section *sec)
{
	if (locate(s, r, sec) == 0 && sec->raw_size > 0 && s->ops == NULL)
		return not_in_file(s, sec);
	return KV_OK;
}

int
offload_store_take_section(struct offload_store *s, struct kv_reader *r,
    const struct kv_section *sec)
{
	void **host = &(sec->kind == KV_KEYS ? s->host_keys : s->host_values)[sec->layer];
	const uint64_t place = locate(s, r, sec);
	const void *part;
	size_t size, at = 0;
	int rc = KV_OK;

	if (s->ops != NULL)
		*host = s->ops->host_alloc(s->dev, sec->raw_size);
	if (*host == NULL && place == 0 && sec->raw_size > 0)
		return not_in_file(s, sec);
	s->reads_file |= *host == NULL;
	do {
		rc = kv_read(r, &part, &size);
		if (rc == KV_OK && *host != NULL && size > 0)
			memcpy((char *)*host + at, part, size);
		at += size;
	} while (rc == KV_OK && size > 0);
	return rc;
}

static void *
copy_to_host(const struct offload_store *s, uint32_t layer, const struct layer_rows *from,
    const char *rows, size_t row)
{
	const size_t at = (size_t)layer * s->heads;
	const uint64_t all = s->first[at + s->heads - 1] + s->count[at + s->heads - 1];
	char *to = s->ops->host_alloc(s->dev, all * row);
	uint32_t g;

	for (g = 0; to != NULL && g < s->heads; g++)
		s->ops->get(s->dev, to + s->first[at + g] * row, rows + from->start[g] * row,
		    s->count[at + g] * row);
	return to;
}

int
offload_store_copy_layer(struct offload_store *s, uint32_t layer, const struct layer_rows *from)
{
	if (s->ops == NULL)
		return KV_OK;
	s->host_keys[layer] = copy_to_host(s, layer, from, from->k, s->key_row[layer]);
	/* memory for no bytes where values are in the keys */
	s->host_values[layer] = copy_to_host(s, layer, from, from->v,
	    from->v_in_k ? 0 : s->value_row[layer]);
	if (offload_store_in_host_memory(s, layer))
		return KV_OK;
	s->reads_file = 1;
	return s->key[layer] != 0 && s->value[layer] != 0 ? KV_OK : KV_ENOMEM;
}

/* ---- reading ---- */

static int
same_time(const struct timespec *a, const struct timespec *b)
{
	return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

void
offload_store_loaded(struct offload_store *s, const struct kv_reader *r)
{
	struct kv_digests d;

	kv_reader_digests(r, &d);
	memcpy(s->digest, d.stream, sizeof s->digest);
}

/* Does the file still hold the snapshot that was loaded? Reads all of it. */
static int
holds_the_same(const struct offload_store *s)
{
	struct kv_digests d = { .stream = "" };
	struct kv_reader *r = NULL;
	struct kv_section sec;
	int code = kv_open_fd(dup(s->fd), s->name, &r);

	if (code == KV_OK)
		while ((code = kv_next(r, &sec)) == 1)
			;
	if (code == KV_OK)
		kv_reader_digests(r, &d);
	kv_close(r);
	return code == KV_OK && strcmp(d.stream, s->digest) == 0;
}

int
offload_store_check(struct offload_store *s)
{
	struct stat now;

	if (s->error[0] != '\0')
		return KV_EIO;
	if (!s->reads_file)
		return KV_OK;
	if (fstat(s->fd, &now) != 0)
		return store_fail(s, KV_EIO, "%s: %s", s->name, strerror(errno));
	if (now.st_size != s->opened.st_size || !same_time(&now.st_mtim, &s->opened.st_mtim) ||
	    (!same_time(&now.st_ctim, &s->opened.st_ctim) && !holds_the_same(s)))
		return store_fail(s, KV_EIO, "%s has changed while its rows were read from it",
		    s->name);
	s->opened = now;
	if (s->map != NULL && s->mapper->broken(s->map))
		return store_fail(s, KV_EIO, "%s: a part of it cannot be read", s->name);
	return KV_OK;
}

/* Reads to[n] at an offset: one call, and more where a signal has cut it short. */
static int
read_run(struct offload_store *s, struct iovec *to, int n, uint64_t offset)
{
	ssize_t got;

	while (n > 0) {
		if ((got = preadv(s->fd, to, n, (off_t)offset)) < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return store_fail(s, KV_EIO, "%s: byte %llu: %s", s->name,
			    (unsigned long long)offset, strerror(errno));
		if (got == 0)
			return store_fail(s, KV_EIO, "%s ends at byte %llu: it was cut short while "
			    "its rows were read from it", s->name, (unsigned long long)offset);
		s->calls++;
		s->bytes += (uint64_t)got;
		offset += (uint64_t)got;
		for (; n > 0 && (size_t)got >= to->iov_len; to++, n--)
			got -= (ssize_t)to->iov_len;
		if (got > 0) {
			to->iov_base = (char *)to->iov_base + got;
			to->iov_len -= (size_t)got;
		}
	}
	return KV_OK;
}

/* Rows of a KV head, of `size` bytes each: in host memory, or in the file from this offset on */
struct rows_of_head {
	const char *host;
	uint64_t content;
	size_t size;
};

static struct rows_of_head
rows_of_head(const struct offload_store *s, uint32_t layer, uint32_t head, enum kv_kind kind)
{
	const int keys = kind == KV_KEYS;
	const size_t size = (keys ? s->key_row : s->value_row)[layer];
	const uint64_t first = s->first[(size_t)layer * s->heads + head] * size;
	const char *host = (keys ? s->host_keys : s->host_values)[layer];

	return (struct rows_of_head){ host != NULL ? host + first : NULL,
	    (keys ? s->key : s->value)[layer] + first, size };
}

/* Returns how many of n rows one call reads. */
static uint32_t
joined(size_t size, const uint32_t *row, uint32_t n)
{
	uint32_t run = 1;

	while (run < n && run < AT_ONCE / 2 &&
	    (row[run] - row[run - 1] - (size_t)1) * size <= SKIPPED)
		run++;
	return run;
}

/* Reads n rows by one call, into slot[0] .. slot[n-1]; discards the bytes between them. */
static int
read_joined(struct offload_store *s, const struct rows_of_head *from, const uint32_t *row,
    const uint32_t *slot, uint32_t n, char *to)
{
	struct iovec part[AT_ONCE];
	char skipped[SKIPPED];
	uint32_t i, between;
	int used = 0;

	for (i = 0; i < n; i++) {
		char *at = to + slot[i] * from->size;

		between = i > 0 ? row[i] - row[i - 1] - 1 : 0;
		if (between > 0)
			part[used++] = (struct iovec){ skipped, between * from->size };
		if (used > 0 && between == 0 &&
		    (char *)part[used - 1].iov_base + part[used - 1].iov_len == at)
			part[used - 1].iov_len += from->size;
		else
			part[used++] = (struct iovec){ at, from->size };
	}
	return read_run(s, part, used, from->content + row[0] * from->size);
}

/* As read_joined(), for rows in memory */
static void
copy_rows(const char *from, size_t size, const uint32_t *row, const uint32_t *slot, uint32_t n,
    char *to)
{
	uint32_t i;

	for (i = 0; i < n; i++)
		memcpy(to + slot[i] * size, from + row[i] * size, size);
}

static int
read_rows(struct offload_store *s, const struct rows_of_head *from, const uint32_t *row,
    const uint32_t *slot, uint32_t n, char *to)
{
	const char *host = from->host;
	uint32_t i, run;
	int rc = KV_OK;

	if (host == NULL && s->map != NULL)
		host = s->mapper->data(s->map) + from->content;
	if (host != NULL) {
		copy_rows(host, from->size, row, slot, n, to);
		return KV_OK;
	}
	for (i = 0; rc == KV_OK && i < n; i += run) {
		run = joined(from->size, row + i, n - i);
		rc = read_joined(s, from, row + i, slot + i, run, to);
	}
	return rc;
}

int
offload_store_read(struct offload_store *s, uint32_t layer, uint32_t head, const uint32_t *row,
    const uint32_t *slot, uint32_t n, void *key, void *value)
{
	const struct rows_of_head keys = rows_of_head(s, layer, head, KV_KEYS);
	const struct rows_of_head values = rows_of_head(s, layer, head, KV_VALS);
	int rc = s->error[0] == '\0' ? KV_OK : KV_EIO;

	if (rc == KV_OK && key != NULL)
		rc = read_rows(s, &keys, row, slot, n, key);
	if (rc == KV_OK && value != NULL)
		rc = read_rows(s, &values, row, slot, n, value);
	return rc;
}

int
offload_store_read_first(struct offload_store *s, uint32_t layer, uint32_t head, enum kv_kind kind,
    uint32_t n, void *to)
{
	const struct rows_of_head from = rows_of_head(s, layer, head, kind);
	struct iovec all = { to, n * from.size };

	if (s->error[0] != '\0')
		return KV_EIO;
	if (from.host == NULL)
		return read_run(s, &all, n > 0, from.content);
	if (n > 0)
		memcpy(to, from.host, n * from.size);
	return KV_OK;
}

const void *
offload_store_host_rows(const struct offload_store *s, uint32_t layer, uint32_t head,
    enum kv_kind kind)
{
	return rows_of_head(s, layer, head, kind).host;
}

void
offload_store_expect(const struct offload_store *s, uint32_t layer)
{
	const size_t at = (size_t)layer * s->heads + s->heads - 1;
	const uint64_t rows = s->first[at] + s->count[at];

	if (s->host_keys[layer] == NULL && s->key[layer] != 0)
		posix_fadvise(s->fd, (off_t)s->key[layer], (off_t)(rows * s->key_row[layer]),
		    POSIX_FADV_WILLNEED);
	if (s->host_values[layer] == NULL && s->value[layer] != 0)
		posix_fadvise(s->fd, (off_t)s->value[layer], (off_t)(rows * s->value_row[layer]),
		    POSIX_FADV_WILLNEED);
}
