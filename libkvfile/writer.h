/* writer.h - what kv_copy() and the codecs need of a writer beyond kvfile.h
 *
 * Internal to libkvfile. All return KV_OK or the writer's error. */
#ifndef KVFILE_WRITER_H
#define KVFILE_WRITER_H

#include "pack.h"

#pragma GCC visibility push(hidden)

/* A section as another snapshot stores it: h and table of kv_table_size(), then its blocks,
 * then the end. */
int kv_writer_begin(struct kv_writer *w, const struct kv_header *h, const uint8_t *table);
int kv_writer_payload(struct kv_writer *w, const void *data, size_t n);
int kv_writer_end(struct kv_writer *w);

/* A section whose blocks the caller has put into the writer's pack, and that keeps all of
 * them. */
struct kv_pack *kv_writer_pack(struct kv_writer *w);
int kv_writer_packed(struct kv_writer *w, const char *type, uint32_t layer, uint64_t raw_size);

/* A piece of a section that kv_commit() shall write after the provenance: header, table without
 * fill, blocks without fill. */
int kv_writer_late(struct kv_writer *w, const void *data, size_t n);

int kv_writer_compresses(const struct kv_writer *w);

/* To be called with content that kv_content_is_checked(), before kv_writer_begin(): it must
 * agree with what stands before it here, whatever stood before it in its own snapshot. */
int kv_writer_content(struct kv_writer *w, const struct kv_header *h, const uint8_t *content);

const struct kv_head *kv_writer_head(const struct kv_writer *w);

/* KV_EINVAL: the text says what is wrong with a section of this kind. */
int kv_writer_refuse(struct kv_writer *w, enum kv_kind kind, uint32_t layer, const char *text);

/* The input of the section being written is damaged: there shall be no end marker. */
void kv_writer_abandon(struct kv_writer *w, int code, const char *reason);

#pragma GCC visibility pop
#endif
