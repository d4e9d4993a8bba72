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
