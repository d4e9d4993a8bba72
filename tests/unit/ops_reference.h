/* ops_reference.h - every op of ops/ops.h once more, in double precision and as its formula reads
 *
 * Nothing here is shared with the code under test except the conversions of libkvfile/dtype.h. */
#ifndef OPS_REFERENCE_H
#define OPS_REFERENCE_H

#include "ops/ops.h"

/* A layer of keys and values as host arrays: row r of KV head g is at start[g] + r */
struct ref_rows {
	const float *k, *v;          /* [rows][E] */
	const uint32_t *pos;         /* [rows] */
	const uint64_t *start;       /* [G] */
	const uint32_t *len;         /* [G] */
	size_t G, E;
};

void ref_rmsnorm(double *y, const float *x, const float *w, size_t N, size_t D, double eps);
/* w[out][in]; y holds the previous y when add */
void ref_matmul(double *y, const float *x, const float *w, const float *bias, size_t N,
    size_t in, size_t out, int add);
void ref_rope(double *y, const float *x, const uint32_t *pos, const double *freq, size_t N,
    size_t heads, size_t E);
/* The pointers of the query are to host arrays. */
void ref_attend(double *o, double *lse, const struct query *, const struct ref_rows *);
void ref_attend_mass(double *mass, size_t stride, const struct query *, const struct ref_rows *,
    enum over_queries);
/* own: NULL, or further rows in the softmax */
void ref_window_mass(double *mass, size_t stride, const struct query *, const struct ref_rows *,
    const struct ref_rows *own, enum over_queries);
/* Does a query row at position p see a row at position pos? */
int ref_sees(const struct query *, uint32_t p, uint32_t pos);
/* What softcap makes of a logit; 0: nothing */
double ref_cap(double logit, double softcap);
void ref_geglu(double *y, const float *gate, const float *up, size_t n);
void ref_swiglu(double *y, const float *gate, const float *up, size_t n);

/* entry <- that of k[u][E]: kv-snapshot(5), 4.15 and 4.16 */
void ref_pack_bits(unsigned char *entry, const float *k, size_t u, size_t E);
void ref_pack_page(unsigned char *entry, const float *k, enum kv_dtype, size_t u, size_t E);
/* Logits of q[E] with row i of an entry, with a page, with a key */
double ref_bits_score(const float *q, const unsigned char *entry, size_t u, size_t E, size_t i);
double ref_page_score(const float *q, const unsigned char *entry, enum kv_dtype, size_t E);
double ref_key_score(const float *q, const float *k, size_t E);

/* What the error of a score depends on: products a b that are added up, a of the query */
struct ref_terms {
	size_t n;
	double magnitude, a, b, most_a, most_b;        /* sums of |a b|, |a|, |b|; the greatest */
};
/* The terms of the same scores, without 1 / sqrt(E) */
struct ref_terms ref_bits_terms(const float *q, const unsigned char *entry, size_t u, size_t E,
    size_t i);
struct ref_terms ref_page_terms(const float *q, const unsigned char *entry, enum kv_dtype,
    size_t E);
struct ref_terms ref_key_terms(const float *q, const float *k, size_t E);

#endif
