/* ops.h - what a backend can do: one table of small operations
 *
 * The transformer (forward.c) is written once over this table; cpu/ and gpu/ implement it and
 * see nothing else of this project than this file.
 *
 * Letters: L layers, N rows in this call, D model width, F ffn width, H query heads, G KV
 * heads, R = H/G, E head width, S rows of a cache, V vocabulary, W observation queries.
 * Row-major, last index fastest.
 *
 * Memory: a pointer marked "device" is dereferenced by ops only; "host" pointers are ordinary
 * memory, read before the op returns. Nothing is allocated inside an op that forward() calls,
 * except scratch that grows once.
 *
 * Numbers: activations f32, sums in f32 in a fixed order that does not depend on the number of
 * threads: the same input gives the same bytes. Weights and cache stay in their own type.
 *
 * Errors: ops return nothing. A backend remembers its first failure (and does nothing from then
 * on); sync() reports it. */
#ifndef KVPIPE_OPS_H
#define KVPIPE_OPS_H

#include "libkvfile/dtype.h"
#include "methods/reduce.h"

#ifdef __cplusplus
extern "C" {
#endif

/* one opened device of one backend: threads or stream, scratch, first error */
struct dev;

/* A weight matrix as it is stored: w[out][in], device. */
struct mat {
	const void *data;
	enum kv_dtype dtype;
	uint32_t out, in;
};

/* What stands before a product: rmsnorm() with these weights, device f32 [in] */
struct norm {
	const float *w;
	float eps;
};

/* One of several products of the same rows */
struct product {
	float *y;                    /* device [N][w->out] */
	const struct mat *w;
	const float *bias;           /* device [w->out]; NULL: none */
};

/* The second half of a layer: a norm and a gated feed-forward network, all on the device */
struct ffn {
	struct norm norm;
	struct mat gate, up, down;   /* [F][D], [F][D], [D][F] */
};

/* One layer of keys and values. The rows of KV head g are k + start[g]*E ..., len[g] of them,
 * positions ascending. A growing cache leaves room after each head; in a section of a snapshot
 * the heads are packed. */
struct layer_rows {
	/* device, [rows][E] of dtype; v may be NULL where only keys are read */
	void *k, *v;
	uint32_t *pos;               /* device, [rows] position of each row */
	uint64_t *start;             /* host [G] first row of each KV head */
	uint32_t *len;               /* host [G] rows in use; heads may differ */
	/* host [G] rows that each KV head has room for; NULL where nothing is appended */
	uint32_t *capacity;
	uint32_t heads;              /* G */
	uint32_t width;              /* E */
	enum kv_dtype dtype;
};

/* ---- retrieval: finding the rows that matter to a query, and reading only them ---- */

/* What an index keeps of every `rows` consecutive rows of a KV head: entry i is about its rows
 * i*rows .. i*rows + rows-1. The rows behind the last whole entry have none. Entry i of KV head g
 * begins at byte (start[g] + i) * bytes of data, laid out as in kv-snapshot(5): 4.15 keys in one
 * bit, 4.16 bounds of pages. More entries than the rows can have are a failure: rows were
 * dropped, and the index is not about those that are left. */
struct entries {
	void *data;                  /* device; begins at a multiple of 64 */
	size_t bytes;                /* of one entry */
	uint64_t *start;             /* host [G] */
	uint32_t *len;               /* host [G] entries in use */
	uint32_t *capacity;              /* host [G] entries that there is room for */
	uint32_t heads, width;       /* G, E */
	uint32_t rows;               /* of one entry */
};

/* Entries that were chosen of each KV head, ascending. Entry i stands for the rows i*rows ..
 * i*rows + rows-1, as far as there are so many. Where the last of all entries has fewer, it is
 * one of those chosen, if any is: so the number of rows is known without a look at the list. */
struct chosen {
	uint32_t *at;                /* device [G][stride] */
	size_t stride;
	uint32_t *n;                 /* host [G] entries in each list */
	uint32_t rows;               /* of one entry; 1: the entries are rows */
};

/* Keys before rotary embedding as a product of two factors (kv-snapshot(5), 4.18), for the
 * first n rows of every KV head. */
struct low_rank {
	const void *left;            /* device [n][rank] */
	const void *right;           /* device [G][E][rank] */
	const uint8_t *exact;        /* device [G][n / chunk] 1: not for the rows of this chunk */
	uint32_t n, rank, chunk;
	enum kv_dtype dtype;
};

struct ops {
	const char *name;            /* "cpu", "cuda" */

	/* ---- device ---- */

	/* Opens device number index (0 for the CPU); threads 0 = all. NULL on failure, with the
	 * reason in err[errlen]. */
	struct dev *(*open)(int index, int threads, char *err, size_t errlen);
	void (*close)(struct dev *);                               /* NULL allowed */
	/* Waits for all work; returns NULL, or the text of the first failure. */
	const char *(*sync)(struct dev *);
	/* "8 threads, avx512, oneDNN 2.6.3"; for --version and -v. Owned by the device. */
	const char *(*describe)(struct dev *);
	/* Ops return before their work is done, so that the host can do something else meanwhile. */
	int runs_ahead;
	/* The point behind all work so far. */
	uint64_t (*event_record)(struct dev *);
	/* Waits for the work before that point, and returns as sync() does. It may wait for later
	 * work, too, when more than 64 points have been marked since. */
	const char *(*event_wait)(struct dev *, uint64_t mark);

	/* ---- memory ---- */

	/* Bytes that can still be allocated, and that there are at all; SIZE_MAX: the device does
	 * not say, and alloc() finds out. */
	void (*mem_info)(struct dev *, size_t *free, size_t *total);
	/* device; 64-byte aligned, not cleared; NULL when there is none */
	void *(*alloc)(struct dev *, size_t bytes);
	void (*free)(struct dev *, void *);                        /* NULL allowed */
	void (*put)(struct dev *, void *dst, const void *src, size_t bytes);   /* device <- host */
	/* host <- device, waits */
	void (*get)(struct dev *, void *dst, const void *src, size_t bytes);
	/* The same beside the work that has not been waited for: that must not write these bytes,
	 * and of what they hold wait() has said that it is there. */
	void (*get_side)(struct dev *, void *dst, const void *src, size_t bytes);
	/* host memory, for get_async(); NULL when there is none */
	void *(*host_alloc)(struct dev *, size_t bytes);
	void (*host_free)(struct dev *, void *);                   /* NULL allowed */
	/* host <- device, when all work so far is done; does not wait, event_record() and wait() do. dst is
	 * within host_alloc()'s memory. */
	void (*get_async)(struct dev *, void *dst, const void *src, size_t bytes);
	/* device <- device, not overlapping */
	void (*copy)(struct dev *, void *dst, const void *src, size_t bytes);
	void (*clear)(struct dev *, void *dst, size_t bytes);      /* all bytes 0 */
	/* weights() will be called for so many bytes in all, each piece rounded up to a multiple of
	 * 256: memory for them may be made at once. Need not be called. */
	void (*expect)(struct dev *, size_t bytes);
	/* Makes mapped weights usable as device memory: returns the pointer to use. The CPU
	 * returns host itself (no copy). Valid until close(). NULL when there is no room. */
	const void *(*weights)(struct dev *, const void *host, size_t bytes);

	/* ---- a step that repeats: ops that are taken down once and carried out many times. NULL, all
	 * three of them, where a backend has nothing for that ---- */

	/* From here to graph_end() ops are taken down instead of carried out, if that is possible;
	 * else returns 0. Each should have been carried out with like arguments before. What they
	 * do on the host they do: append() and rope_append() make len grow. Only look_up, project,
	 * place and what these are made of, ffn, attend() of at most 8 rows, greatest, copy and
	 * clear can be recorded. */
	int (*graph_begin)(struct dev *);
	/* The end of it. What was taken down, by which graph_launch() carries it out; as its last act
	 * that adds 1 to *pos (device). 0: it cannot be, and nothing has happened, except on the
	 * host. */
	uint32_t (*graph_end)(struct dev *, uint32_t *pos);
	/* Carries it out, with the pointers of then. The len of every layer is what it was then,
	 * and n more in the replay that n others came before; the host's, and room for the rows,
	 * are the caller's business. Returns 0 when that can no longer be replayed, for instance
	 * because something else has been recorded since, or after a failure. */
	int (*graph_launch)(struct dev *, uint32_t recorded);

	/* ---- forward ---- */

	/* x[N][D] f32 <- rows tok[N] (host; each < out) of table[V][D] */
	void (*embed)(struct dev *, float *x, const struct mat *table, const uint32_t *tok,
	    uint32_t N);
	/* The same with ids on the device, tok[N]. One that is not < out gives a row of NaN. */
	void (*embed_ids)(struct dev *, float *x, const struct mat *table, const uint32_t *tok,
	    uint32_t N);
	/* y[N][D] <- x[n] * w[D] / sqrt(mean(x[n]^2) + eps); y may be x */
	void (*rmsnorm)(struct dev *, float *y, const float *x, const float *w, uint32_t N,
	    uint32_t D, float eps);
	/* y[N][out] <- x[N][in] . w^T (+ bias[out], NULL = none) (+ y when add) */
	void (*matmul)(struct dev *, float *y, const float *x, const struct mat *w,
	    const float *bias, uint32_t N, int add);
	/* x[N][heads][E] in place, row n at position pos[n] (device): the pair (i, i + E/2) is
	 * turned by pos * freq[i] (device, [E/2]). Angle, sine and cosine are computed in
	 * double precision or as exactly. */
	void (*rope)(struct dev *, float *x, const uint32_t *pos, const double *freq, uint32_t N,
	    uint32_t heads, uint32_t E);
	/* Appends k, v [N][G][E] f32 at positions pos[N] (device) to every KV head, in the
	 * layer's dtype; len[g] += N. The caller has made room (len[g] + N <= capacity[g]). */
	void (*append)(struct dev *, struct layer_rows *, const float *k, const float *v,
	    const uint32_t *pos, uint32_t N);
	/* Of KV head g only the rows keep[g][0 .. count[g]-1] (host, ascending) stay. They move up,
	 * in order and in place: keys, values (unless v is NULL), positions, and what is about
	 * them in the H lists of mass (device, at h*stride; NULL = none), where zeros come
	 * behind them up to the old length. len[g] = count[g]. */
	void (*compact)(struct dev *, struct layer_rows *, float *mass, size_t stride, uint32_t H,
	    const uint32_t *count, uint32_t *const *keep);
	/* x[n], each rounded to the nearest number of dtype, of two as near to the even one */
	void (*round)(struct dev *, float *x, size_t n, enum kv_dtype dtype);
	/* y[N][F] <- silu(gate[N][F]) * up[N][F]; y may be gate. silu(x) = x / (1 + exp(-x)) */
	void (*swiglu)(struct dev *, float *y, const float *gate, const float *up, uint32_t N,
	    uint32_t F);
	/* ---- what a layer does with these: a backend may do several at once, and then what stands
	 * between them is rounded as it likes and need not be in memory ---- */

	/* rmsnorm() of x[N][D] to xn[N][D] (device), then matmul() of that for each of the n
	 * products. What is in xn afterwards is not said. No y overlaps x or xn. */
	void (*project)(struct dev *, const struct product *, uint32_t n, const float *x,
	    const struct norm *, float *xn, uint32_t N);
	/* rope() of q[N][H][E] and of k[N][G][E], then append() of k and v. What is in k afterwards
	 * is not said. */
	void (*rope_append)(struct dev *, struct layer_rows *, float *q, float *k, const float *v,
	    const uint32_t *pos, const double *freq, uint32_t N, uint32_t H);
	/* x[N][D] += down . swiglu(gate . xn, up . xn), where xn is rmsnorm() of x. What is in
	 * xn[N][D], gate[N][F] and up[N][F] (device) afterwards is not said. */
	void (*ffn)(struct dev *, float *x, const struct ffn *, float *xn, float *gate, float *up,
	    uint32_t N);
	/* o[N][H][E] and lse[N][H] (natural logarithm of the sum of exp(logits)), each NULL =
	 * not wanted, of attention of q[N][H][E] at qpos[N] (device, ascending) over the rows with
	 * pos <= qpos: logits q.k / sqrt(E), query head h reads KV head h / (H/G). A row that
	 * sees nothing gives 0 and -inf. Tiled: no N x S matrix ever exists. */
	void (*attend)(struct dev *, float *o, float *lse, const float *q,
	    const struct layer_rows *, const uint32_t *qpos, uint32_t N, uint32_t H);
	/* lse[n] <- the logarithm of exp(lse) + exp(other[n]): that of the rows of both, where
	 * attend() saw some of them at a time */
	void (*lse_merge)(struct dev *, float *lse, const float *other, size_t n);
	/* mass[h][s] (device, H lists at h*stride) += sum over the N rows n, in order, of
	 * exp(q[n][h].k[s] / sqrt(E) - lse[n][h]), for each row s of KV head h/(H/G) that row n
	 * sees. With the lse that attend() gives, that is the attention which each row
	 * receives. The sum of a call is made first and then added, so that a long text,
	 * which comes in many calls, loses little to rounding. QUERIES_MAX: the greatest of the
	 * N and of what was there (which is not negative), instead of the sum. */
	void (*attend_mass)(struct dev *, float *mass, size_t stride, const float *q,
	    const float *lse, const struct layer_rows *, const uint32_t *qpos, uint32_t N,
	    uint32_t H, enum over_queries);
	/* What keys say by themselves, for the methods of these names: score[g][s] (device, G lists
	 * at g*stride), s < len. Minus the length of key s, in double precision. */
	void (*knorm)(struct dev *, float *score, size_t stride, const struct layer_rows *);
	/* Minus the cosine between key s and the sum of all keys of the KV head, each scaled to
	 * length 1; 0 where either is 0. In double precision. */
	void (*keydiff)(struct dev *, float *score, size_t stride, const struct layer_rows *);
	/* mass[h][s] (device, H lists at h*stride) <- sum (or maximum) over the W rows of
	 * q[W][H][E] of the softmax over *all* visible rows of KV head h/(H/G), for each of
	 * its len rows s. own (NULL = none; its v is not read): rows of the same KV heads that
	 * stand elsewhere. They are in the softmax, and get nothing in mass. Window attention
	 * of SnapKV: attend() for lse, also of own, then attend_mass(). */
	void (*window_mass)(struct dev *, float *mass, size_t stride, const float *q,
	    const struct layer_rows *, const struct layer_rows *own, const uint32_t *qpos,
	    uint32_t W, uint32_t H, enum over_queries);
	/* *tok (device) <- the lowest i of the greatest finite x[i] (device), i < n; 0 and -0 are
	 * equal. UINT32_MAX: none is finite. */
	void (*argmax)(struct dev *, uint32_t *tok, const float *x, uint32_t n);
	/* ---- retrieval: one query row, q[H][E] (device, f32, after rotary embedding); it sees
	 * all rows. Scores are logits, divided by sqrt(E), of query head h with KV head h/R ---- */

	/* Appends the entries of rows that are there and have none: of KV head g up to
	 * len[g] / e->rows, where the caller has made room. Keys in one bit, 4.15; bounds of
	 * pages, 4.16, in the dtype of the rows. */
	void (*pack_bits)(struct dev *, struct entries *e, const struct layer_rows *);
	void (*pack_pages)(struct dev *, struct entries *e, const struct layer_rows *);
	/* score[h][s] (device, H lists at h*stride), s < len: of the rows that have an entry
	 * with their key in one bit, of the others with their key. Sums in f32; the bits are
	 * never widened to keys. */
	void (*bits_scores)(struct dev *, float *score, size_t stride, const float *q,
	    const struct entries *bits, const struct layer_rows *, uint32_t H);
	/* score[h][i] for each entry: the most that q.k can be, sum over channels of
	 * max(q*least, q*greatest) (Tang et al. 2024, algorithm 1). dtype: of the bounds */
	void (*page_scores)(struct dev *, float *score, size_t stride, const float *q,
	    const struct entries *pages, enum kv_dtype dtype, uint32_t H);
	/* score[h][s], s < len, with the keys as they are */
	void (*key_scores)(struct dev *, float *score, size_t stride, const float *q,
	    const struct layer_rows *, uint32_t H);
	/* joint[g][i] (device, G lists at g*stride; may be score), i < n[g] (host): over the R
	 * query heads of KV head g the maximum, mean or sum of the softmax of their n[g] scores,
	 * or any increasing function of it that is the same for all i: only the order counts.
	 * A NaN counts as -inf there. Without sharing (R 1) the scores themselves. */
	void (*group_reduce)(struct dev *, float *joint, const float *score, size_t stride,
	    const uint32_t *n, uint32_t H, uint32_t G, enum reduce);
	/* to->at[g] <- the to->n[g] entries with the greatest of the n[g] (host) scores
	 * joint[g], ascending; of equal ones the lower entry. A NaN comes after all numbers.
	 * to->n[g] <= n[g]. Linear in n. */
	void (*topk)(struct dev *, struct chosen *to, const float *joint, size_t stride,
	    const uint32_t *n, uint32_t G);
	/* row[g][s] (device, at g*stride) <- joint[g][label[g][s]] for s < n[g] (host);
	 * label (device, u32, at g*label_stride) */
	void (*scores_by_label)(struct dev *, float *row, size_t stride, const float *joint,
	    size_t joint_stride, const uint32_t *label, size_t label_stride, const uint32_t *n,
	    uint32_t G);
	/* o[H][E] <- attention of q over the rows of the chosen entries only, with the softmax
	 * over these. A KV head without any gives 0. */
	void (*attend_chosen)(struct dev *, float *o, const float *q, const struct layer_rows *,
	    const struct chosen *, uint32_t H);
	/* to <- keys, values and positions of the rows of the chosen entries, in order; to has
	 * room for them, its len[g] is set. */
	void (*gather)(struct dev *, struct layer_rows *to, const struct layer_rows *from,
	    const struct chosen *);
	/* Replaces keys of what gather() made of the same choice by the product of the factors,
	 * turned to the row's position (freq as in rope()) and rounded to the dtype of to: of
	 * rows below low->n that stand in no exact chunk. */
	void (*rebuild)(struct dev *, struct layer_rows *to, const struct chosen *,
	    const struct low_rank *low, const double *freq);

};

/* A backend that cannot run here has NULL for open. */
extern const struct ops cpu_ops, gpu_ops;

#ifdef __cplusplus
}
#endif
#endif
