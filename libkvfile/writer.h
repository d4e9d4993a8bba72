/* writer.h - the part of a writer that kv_copy() and the codecs use beyond kvfile.h
 *
 * Internal to libkvfile. All return KV_OK or the writer's error. */
#ifndef KVFILE_WRITER_H
#define KVFILE_WRITER_H

#include "pack.h"

#pragma GCC visibility push(hidden)

/* Write a section as another snapshot stores it: h and table of kv_table_size(), then its
 * blocks, then the end. */
int kv_writer_begin(struct kv_writer *w, const struct kv_header *h, const uint8_t *table);
int kv_writer_payload(struct kv_writer *w, const void *data, size_t n);
int kv_writer_end(struct kv_writer *w);

/* Write a section whose blocks the caller has put into the writer's pack, which keeps all of
 * them. */
struct kv_pack *kv_writer_pack(struct kv_writer *w);
int kv_writer_packed(struct kv_writer *w, const char *type, uint32_t layer, uint64_t raw_size);

/* Adds a section that kv_commit() writes after the provenance: header, table without fill,
 * blocks without fill. */
int kv_writer_late(struct kv_writer *w, const void *data, size_t n);

int kv_writer_compresses(const struct kv_writer *w);

/* Call before kv_writer_begin() for content that kv_content_is_checked(): checks that it
 * matches the sections before it here, whatever preceded it in its own snapshot. */
int kv_writer_content(struct kv_writer *w, const struct kv_header *h, const uint8_t *content);

const struct kv_head *kv_writer_head(const struct kv_writer *w);

/* Returns KV_EINVAL; text says what is wrong with a section of this kind. */
int kv_writer_refuse(struct kv_writer *w, enum kv_kind kind, uint32_t layer, const char *text);

/* Marks the input of the current section as damaged, so that no end marker will be written. */
void kv_writer_abandon(struct kv_writer *w, int code, const char *reason);

#pragma GCC visibility pop
#endif
