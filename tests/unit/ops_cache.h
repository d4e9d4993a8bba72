/* ops_cache.h - random caches and queries for the tests of attention, and the shapes that they
 * share
 *
 * Heads are ragged, one may be empty; positions have holes; some queries see nothing; rows of the
 * cache that are not in use hold NaN, so that reading one shows. So do rows that lie far before all
 * windows: attention within a window does no work for them. */
#ifndef OPS_CACHE_H
#define OPS_CACHE_H

#include <stdio.h>

#include "tests/unit/ops_check.h"

#define COUNT(a) (sizeof(a) / sizeof(a)[0])

/* Up to so many query rows every device computes in f32. */
#define DECODE_ROWS 8

enum form {
	PACKED = 1,                  /* heads one after the other, instead of cap rows each */
	ONE_LONG = 2,                /* heads but the first have one row or none */
	LATE = 4,                    /* queries that see most rows */
	PROMPT = 8,                  /* the first head has every row up to the last of N queries */
	RISING = 16,                 /* later keys are greater */
	EVICTED = 32,                /* larger holes in the positions */
	FAR = 64,                    /* positions near the greatest number */
	FIRST = 128,                 /* positions from 0 on, instead of 2 */
	SINKS = 256,                 /* heads have sinks */
};

struct shape {
	uint32_t N, H, G, E, S;      /* S rows of the longest head */
	enum kv_dtype type;
	float scale;                 /* of queries and keys */
	int form;                    /* enum form, together */
	uint32_t window;             /* 0: none */
	float softcap;               /* 0: none */
};

/* How the rows of caches are stored that are made from now on; 0: as elements of the shape's type,
 * as at first. own: keys of the queries themselves */
extern struct cache_types {
	enum kv_row_type k, v, own;
} cache_types;

/* Keys and values as host arrays: what the stored rows stand for, and these */
struct cache {
	float *k, *v;
	void *k_rows, *v_rows;
	enum kv_row_type k_type, v_type;
	uint32_t *pos, *qpos, len[64], cap;
	uint64_t start[64];
	size_t rows;
};

void cache_make(struct cache *, const struct shape *);
/* Keys of the queries themselves: N of them, each at the position of its query, in some KV heads
 * fewer, in one perhaps none */
void cache_make_own(struct cache *, const struct shape *, const uint32_t *qpos);
void cache_free(struct cache *);
struct ref_rows cache_reference(const struct cache *, const struct shape *);
/* Queries of the shape, for the reference */
struct query cache_query(const struct shape *, const float *q, const uint32_t *pos);
/* Copies of all that of a query on a device, which drop_query() frees */
struct query query_on_device(struct device *, const struct shape *, const struct query *);
void drop_query(struct device *, struct query *);
struct layer_rows cache_on_device(struct device *, struct cache *, const struct shape *,
    int values);
void cache_free_rows(struct device *, struct layer_rows *);
/* Type number i of those that a width allows, of which every second one is of the transform if a
 * transform is allowed; 0 is among them where `elements`. */
enum kv_row_type cache_type_for(uint32_t E, size_t i, int elements);
/* Stores the rows of c->k and c->v once more, as they are now, and replaces these by what the rows
 * stand for. Rows that a type cannot store are bytes 0xff, and stay what they are in k and v. */
void cache_store(struct cache *, const struct shape *);
void cache_name(char *what, size_t size, const char *op, const struct shape *);

/* Shapes that every op goes through: number i < SHAPES of a grid, and the odd ones */
enum { SHAPES = 49, ODD_SHAPES = 10 };
struct shape shape_of(size_t i);
extern const struct shape odd_shape[ODD_SHAPES];

/* One shape, on all devices: ops_attend.c, ops_mass.c */
void test_attend(const struct shape *);
void test_attend_mass(const struct shape *, enum over_queries);
void test_window_mass(const struct shape *, int with_own, enum over_queries);
void test_stored(void);                                     /* ops_stored.c */

#endif
