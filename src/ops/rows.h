/* rows.h - keys and values of one layer, as ops take them: how their rows lie in memory and are
 * stored
 *
 * Letters as in ops.h. */
#ifndef KVPIPE_ROWS_H
#define KVPIPE_ROWS_H

#include "libkvfile/rowtype.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The full rows behind quantised ones, and from where on they count (kv-snapshot(5), 4.20). Row s
 * of KV head g is row g capacity + s - first[g] of k and v, as elements of dtype: from first[g] on
 * all rows are there, also those that are coded already, so that a cache can go back to fewer
 * rows. */
struct recent_rows {
	void *k, *v;                 /* device; k NULL where keys are not quantised, v likewise */
	uint32_t capacity;           /* rows of each KV head */
	uint32_t residual;           /* R */
	uint32_t *first;             /* host [G] */
	/* host [G]: of quantised types the rows before these are read from their codes, those from
	 * there on from k and v above. first[g] is at most either. Multiples of 32 for KIVI's
	 * keys. */
	uint32_t *k_coded, *v_coded;
};

/* Keys and values of one layer. KV head g has len[g] rows, from row start[g] on: its key s begins
 * at byte (start[g] + s) * rows_k_bytes() of k. Positions ascend within a KV head. A growing cache
 * has spare capacity after the rows of each KV head; in a section of a snapshot the heads are
 * packed.
 *
 * start[g] + s is taken modulo 2^64 before it becomes an address: so the first rows of a KV head
 * may be missing if no op reads them (offload.h). */
struct layer_rows {
	/* device, [rows] of E numbers; v may be NULL where only keys are read */
	void *k, *v;
	uint32_t *pos;               /* device, [rows] position of each row */
	uint64_t *start;             /* host [G] first row of each KV head */
	uint32_t *len;               /* host [G] rows in use; heads may differ */
	uint32_t *capacity;          /* host [G] rows allocated; NULL where nothing is appended */
	uint32_t heads;              /* G */
	uint32_t width;              /* E */
	enum kv_dtype dtype;         /* of what ops make from rows, and of rows of type 0 */
	/* how rows are stored; 0: as elements of dtype. The ops take the numbers that rows stand
	 * for (rowtype.h), computed from as they are stored. */
	enum kv_row_type k_type, v_type;
	/* Where the last rows are full though k_type or v_type is quantised, always with KIVI's
	 * types; else NULL. KIVI's keys lie in k in groups of 32 rows, which begin at rows that are
	 * multiples of 32 in a KV head; start[g] is one, too. The bytes of a row are then those of
	 * a coded row. */
	struct recent_rows *recent;
	/* 1: multi-head latent attention: v is k, a value is the first channels of its key, and no
	 * op writes it by itself */
	int v_in_k;
};

/* The type of the rows of k and v, never 0, and the bytes of one */
static inline enum kv_row_type
rows_k_type(const struct layer_rows *r)
{
	return r->k_type != 0 ? r->k_type : (enum kv_row_type)r->dtype;
}

static inline enum kv_row_type
rows_v_type(const struct layer_rows *r)
{
	return r->v_type != 0 ? r->v_type : (enum kv_row_type)r->dtype;
}

static inline size_t
rows_k_bytes(const struct layer_rows *r)
{
	return kv_row_bytes(rows_k_type(r), r->width);
}

static inline size_t
rows_v_bytes(const struct layer_rows *r)
{
	return kv_row_bytes(rows_v_type(r), r->width);
}

#ifdef __cplusplus
}
#endif
#endif
