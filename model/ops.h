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
	uint32_t *room;
	uint32_t heads;              /* G */
	uint32_t width;              /* E */
	enum kv_dtype dtype;
};

/* How what several queries give to a row is put together. */
enum over { OVER_SUM, OVER_MAX };

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

	/* ---- memory ---- */

	/* device; 64-byte aligned, not cleared; NULL when there is none */
	void *(*alloc)(struct dev *, size_t bytes);
	void (*free)(struct dev *, void *);                        /* NULL allowed */
	void (*put)(struct dev *, void *dst, const void *src, size_t bytes);   /* device <- host */
	/* host <- device, waits */
	void (*get)(struct dev *, void *dst, const void *src, size_t bytes);
	/* device <- device, not overlapping */
	void (*copy)(struct dev *, void *dst, const void *src, size_t bytes);
	/* at[i] <- at[rows[i]] for i = 0 .. n-1, in this order and in place: rows[n] (host,
	 * ascending) of `bytes` bytes each move together. Order stays, nothing is allocated. */
	void (*keep)(struct dev *, void *at, size_t bytes, const uint32_t *rows, uint32_t n);
	/* Makes mapped weights usable as device memory: returns the pointer to use. The CPU
	 * returns host itself (no copy). Valid until close(). NULL when there is no room. */
	const void *(*weights)(struct dev *, const void *host, size_t bytes);

	/* ---- forward ---- */

	/* x[N][D] f32 <- rows tok[N] (host; each < out) of table[V][D] */
	void (*embed)(struct dev *, float *x, const struct mat *table, const uint32_t *tok,
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
	 * layer's dtype; len[g] += N. The caller has made room (len[g] + N <= room[g]). */
	void (*store)(struct dev *, struct layer_rows *, const float *k, const float *v,
	    const uint32_t *pos, uint32_t N);
	/* o[N][H][E] and lse[N][H] (natural logarithm of the sum of exp(logits)), each NULL =
	 * not wanted, of attention of q[N][H][E] at qpos[N] (device, ascending) over the rows with
	 * pos <= qpos: logits q.k / sqrt(E), query head h reads KV head h / (H/G). A row that
	 * sees nothing gives 0 and -inf. Tiled: no N x S matrix ever exists. */
	void (*attend)(struct dev *, float *o, float *lse, const float *q,
	    const struct layer_rows *, const uint32_t *qpos, uint32_t N, uint32_t H);
	/* mass[h][s] (device, H lists at h*stride) += sum over the N rows n, in order, of
	 * exp(q[n][h].k[s] / sqrt(E) - lse[n][h]), for each row s of KV head h/(H/G) that row n
	 * sees. With the lse that attend() gives, that is the attention which each row
	 * receives. The sum of a call is made first and then added, so that a long text,
	 * which comes in many calls, loses little to rounding. OVER_MAX: the greatest of the
	 * N and of what was there (which is not negative), instead of the sum. */
	void (*attend_mass)(struct dev *, float *mass, size_t stride, const float *q,
	    const float *lse, const struct layer_rows *, const uint32_t *qpos, uint32_t N,
	    uint32_t H, enum over);
	/* mass[h][s] (host, H lists at h*stride) <- sum (or maximum) over the W rows of
	 * q[W][H][E] of the softmax over *all* visible rows of KV head h/(H/G), for each of
	 * its len rows s. own (NULL = none; its v is not read): rows of the same KV heads that
	 * stand elsewhere. They are in the softmax, and get nothing in mass. Window attention
	 * of SnapKV: attend() for lse, also of own, then attend_mass(). */
	void (*window_mass)(struct dev *, float *mass, size_t stride, const float *q,
	    const struct layer_rows *, const struct layer_rows *own, const uint32_t *qpos,
	    uint32_t W, uint32_t H, enum over);
	/* y[N][F] <- silu(gate[N][F]) * up[N][F]; y may be gate. silu(x) = x / (1 + exp(-x)) */
	void (*swiglu)(struct dev *, float *y, const float *gate, const float *up, uint32_t N,
	    uint32_t F);
};

/* A backend that cannot run here has NULL for open. */
extern const struct ops cpu_ops, gpu_ops;

#ifdef __cplusplus
}
#endif
#endif
