/* reader.h - the reader: what reader.c (sections), payload.c (their content) and copy.c share
 *
 * Internal to libkvfile. */
#ifndef KVFILE_READER_H
#define KVFILE_READER_H

#include "content.h"
#include "input.h"
#include "order.h"
#include "rowcheck.h"
#include "seal.h"

#pragma GCC visibility push(hidden)

enum kv_state {
	STATE_FRESH,            /* header and table were read, content not yet */
	STATE_READING,          /* some of its blocks were returned by kv_read() */
	STATE_LOADED,           /* content is in memory, and checked */
	STATE_PASSED,           /* nothing left of it */
	STATE_END               /* the end marker was read */
};

enum kv_scratch { SCRATCH_STORED, SCRATCH_DECODED, SCRATCH_PLANES };

struct kv_reader {
	struct kv_input in;
	int close;              /* the descriptor is ours */
	char *name;
	struct kv_message error;
	struct kv_head head;
	struct kv_order order;
	struct kv_seal seal;
	struct kv_end end;
	struct kv_row_store rows;       /* of the current layer */
	int has_rows;
	char *provenance;
	uint64_t index_size;    /* bytes of iNDX */
	uint64_t index_good;    /* number of its entries before the first wrong one */

	/* the current section */
	int again;              /* kv_again() */
	enum kv_state state;
	struct kv_header h;
	uint64_t offset;        /* of its header */
	uint64_t payload;       /* of its first block */
	uint64_t blocks;
	struct kv_row_check row_check;  /* of KEYS and VALS */
	/* block that kv_read() returns next; if loaded: 1 = all was returned */
	uint64_t next;
	const uint8_t *table;   /* [blocks] entries, checked */
	const uint8_t *content; /* whole, once STATE_LOADED */
	char whole[KV_LABEL];   /* the last section that was read completely, "" for none */

	struct kv_buffer table_memory;
	struct kv_buffer content_memory;
	struct kv_buffer aside; /* compressed blocks of a section that is loaded */
	struct kv_buffer scratch[3];    /* [enum kv_scratch] a block each */
};

/* Records a failure as "name: section: ...". Returns code. */
int kv_reader_fail(struct kv_reader *r, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* As kv_load(), but fails for a section of another kind. */
int kv_load_kind(struct kv_reader *r, enum kv_kind kind, const char *function, const void **data);

/* Fails because the input ended or failed while reading `what`, NULL for block i. */
int kv_reader_short(struct kv_reader *r, const char *what, uint64_t i);

/* r->content <- the content of the current section, whole and checked. */
int kv_payload_load(struct kv_reader *r);

/* Reads and checks the content, and keeps only what later checks need. */
int kv_payload_check(struct kv_reader *r);

/* *block <- block i as it is stored, the next one, checked, valid until the next one is read. In
 * STATE_FRESH. */
int kv_payload_stored(struct kv_reader *r, uint64_t i, const struct kv_entry *e,
    const uint8_t **block);

/* *part <- the next block, decoded, valid until the next one is read. In STATE_READING, or
 * STATE_FRESH for content without rules. */
int kv_payload_next(struct kv_reader *r, const uint8_t **part, size_t *size);

/* Finishes the section: checks its zero fill, and updates the reader's state. */
int kv_payload_end(struct kv_reader *r);

#pragma GCC visibility pop
#endif
