/* rowcheck.h - checks quantised rows (4.20, 4.21) as their bytes pass, in pieces of any size
 *
 * Internal to libkvfile; reader and writer check by the same rule. */
#ifndef KVFILE_ROWCHECK_H
#define KVFILE_ROWCHECK_H

#include "content.h"

#pragma GCC visibility push(hidden)

/* The state between two pieces */
struct kv_row_check {
	const struct kv_head *head;
	enum kv_kind kind;
	uint32_t layer;
	enum kv_row_type type;          /* 0: nothing is checked */
	size_t width, bytes;            /* of a unit: a block of 32 numbers, or a row */
	size_t in_row;                  /* units of a row */
	uint32_t g;                     /* the KV head at hand; the bytes that are left of it: */
	uint64_t coded, full;           /* of units, and of elements behind them */
	uint64_t n;                     /* units of it that were checked */
	uint8_t part[4 + KV_ROW_WIDTH_MOST]; /* the first bytes of the next unit */
	size_t have;                    /* of these */
};

/* Begins a section. head stays as it is until the section's end. */
void kv_row_check_start(struct kv_row_check *c, const struct kv_head *head,
    const struct kv_header *h);

/* Checks the next n bytes of its content. rows: of its layer. Returns KV_OK, or KV_ECORRUPT. */
int kv_row_check(struct kv_row_check *c, const struct kv_rows *rows, const uint8_t *data, size_t n,
    struct kv_message *why);

#pragma GCC visibility pop
#endif
