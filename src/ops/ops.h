/* ops.h - the op table: everything that a backend (cpu/, gpu/) does for the model
 *
 * The transformer (forward.c) is written once over this table. A backend includes no other headers
 * of this project than this one, what it includes, and libkvfile's dtype.h and rowtype.h.
 *
 * Every op has a function type, op_NAME; the comment above it is the op's contract. The table has a
 * pointer to it, and a backend declares its functions with it: op_rmsnorm cpu_rmsnorm;
 *
 * Shape letters: L layers, N rows of this call (tokens), D model width, F ffn width, H query heads,
 * G KV heads, R = H/G, E head width, S rows of a cache, V vocabulary, W queries of an observation
 * window. Arrays are row-major: the last index varies fastest.
 *
 * Memory: a "device" pointer is dereferenced by ops only. A "host" pointer is ordinary memory; an
 * op reads it before it returns. An op that forward() calls allocates nothing, except scratch,
 * which grows to the size that is needed and is kept.
 *
 * Numbers: activations are f32. Sums are f32, in a fixed order that does not depend on the number
 * of threads: equal inputs give equal bytes. Weights and cache keep the dtype they are stored in.
 *
 * Errors are sticky: an op does not report its own failure. The backend stores the first failure
 * and does nothing after it; sync() returns its text. */
#ifndef KVPIPE_OPS_H
#define KVPIPE_OPS_H

#include "methods/reduce.h"
#include "ops/entries.h"
#include "ops/experts.h"
#include "ops/kernels.h"
#include "ops/rows.h"
#include "ops/weights.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One opened device of one backend: threads or a stream, scratch, the first failure */
struct dev;

/* The queries of one call: N query rows (tokens) of H heads. Query head h reads KV head h/R. A
 * query row sees the rows of the cache whose position is not greater than its own; the ops of
 * retrieval take one query row that sees all rows.
 *
 * window is for sliding-window attention: with window > 0 a query row at position p sees only the
 * rows at positions > p - window, itself among them. Positions ascend within a KV head, so what a
 * query row sees is a range of rows, and an op does work for that range only. For the ops of
 * retrieval, window > 0 is a failure.
 *
 * softcap bounds the logits (Gemma 2, section 2): with c = softcap > 0, "logit" and "score" in the
 * contract of an op mean c * tanh(logit / c).
 *
 * sinks are the learned sink logits of gpt-oss (OpenAI 2025, section 2.2): exp(sinks[h]) is a term
 * of the denominator of each softmax of head h, and of its log-sum-exp, and has no value. So the
 * weights of the rows add up to less than 1. Scores have no sinks. */
struct query {
	const float *q;              /* device [N][H][E], after rotary embedding, not scaled */
	const uint32_t *pos;         /* device [N], ascending */
	uint32_t N, H;
	uint32_t window;             /* 0: none */
	float softcap;               /* 0: none */
	const float *sinks;          /* device [H]; NULL: none */
};

/* ---- device ---- */

enum { THREADS_MOST = 1024 };   /* host threads of a device */

/* Opens device number index (0 for the CPU) with this many host threads, 0 = one for each
 * processor. Returns NULL on failure, with the reason in err[errlen]. */
typedef struct dev *op_open(int index, int threads, char *err, size_t errlen);
typedef void op_close(struct dev *);                                 /* NULL allowed */

/* Waits for all submitted work. Returns NULL, or the text of the first failure. */
typedef const char *op_sync(struct dev *);

/* Returns "8 threads, avx512, avx512bf16, oneDNN 2.6.3", for --version and -v. Owned by the
 * device. */
typedef const char *op_describe(struct dev *);

/* Sets whether later calls of matmul() may round x to bf16 where the weights are in bf16; sums stay
 * f32. Initially off. Returns `on`, or 0 (and it is off) where rounding gains nothing on this
 * processor. NULL: the backend decides. */
typedef int op_products_in_bf16(struct dev *, int on);

/* Sets whether later products with weights in blocks (weight_type.h) take x as it is. Initially
 * off: matmul() of at most 64 rows rounds x to 8 bits, with a scale for each 32 channels; and, by
 * products_in_bf16(), of more rows x and weights to bf16. NULL: the backend takes no such
 * weights. */
typedef void op_blocks_in_f32(struct dev *, int on);

/* Sets which kernels later calls use; initially unchecked. *findings outlives the device. Checked:
 * the first call of an op of its kind (types, widths, heads) waits for a check; results of kernels
 * that give something else are not used, and the program is warned. NULL: there is no choice. */
typedef void op_use_kernels(struct dev *, enum kernels, const struct findings *);

/* Records an event after all work so far, and returns it. */
typedef uint64_t op_event_record(struct dev *);

/* Waits for the work before that event, and returns as sync(). For an event older than the last 64
 * it may wait for later work, too. */
typedef const char *op_event_wait(struct dev *, uint64_t event);

/* ---- memory ---- */

/* *free <- bytes that can still be allocated, *total <- bytes of the device; SIZE_MAX: unknown
 * until alloc() fails. On the CPU they are what the limits of the process (ulimit -v, -d) allow. */
typedef void op_mem_info(struct dev *, size_t *free, size_t *total);

/* Returns device memory, aligned to 64 bytes, not cleared; NULL when there is not enough. */
typedef void *op_alloc(struct dev *, size_t bytes);
typedef void op_free(struct dev *, void *);                          /* NULL allowed */

typedef void op_put(struct dev *, void *dst, const void *src, size_t bytes);  /* device <- host */

/* dst[at[i]] <- rows[i] (host), i < n, elements of `bytes` bytes each; at (host) has no number
 * twice. The number of copies does not depend on n. Optional: NULL where
 * shares_memory. */
typedef void op_put_scattered(struct dev *, void *dst, const uint64_t *at, uint32_t n,
    const void *rows, size_t bytes);

/* host <- device; waits for all work before it. */
typedef void op_get(struct dev *, void *dst, const void *src, size_t bytes);

/* host <- device, without waiting for work that still runs. That work must not write these bytes,
 * and event_wait() must have returned for the work that wrote them. */
typedef void op_get_side(struct dev *, void *dst, const void *src, size_t bytes);

/* Returns pinned host memory, which get_async() can write to; NULL when there is not enough. */
typedef void *op_host_alloc(struct dev *, size_t bytes);
typedef void op_host_free(struct dev *, void *);                     /* NULL allowed */

/* host <- device, after all work so far, without waiting: the bytes have arrived when event_wait()
 * returns for an event recorded after this call. dst is within host_alloc()'s memory. */
typedef void op_get_async(struct dev *, void *dst, const void *src, size_t bytes);

/* device <- device, not overlapping */
typedef void op_copy(struct dev *, void *dst, const void *src, size_t bytes);
typedef void op_clear(struct dev *, void *dst, size_t bytes);        /* all bytes 0 */

/* Announces the sum of the bytes of all later calls of weights(), each rounded up to a multiple of
 * 256, so that the memory can be allocated at once. The call may be omitted. */
typedef void op_expect(struct dev *, size_t bytes);

/* Makes mapped weights usable as device memory and returns the pointer to use, valid until close().
 * The CPU returns host itself, without a copy. NULL when there is not enough memory. */
typedef const void *op_weights(struct dev *, const void *host, size_t bytes);

/* ---- graph capture: ops that are captured once and launched many times. A backend without capture
 * has NULL for all three ---- */

/* Begins graph capture: until graph_end() ops are captured, not executed. Returns 0 if the backend
 * cannot capture. Each op must have run before with similar arguments, since kernels and scratch
 * are loaded and allocated at the first run. What an op does on the host still happens: append()
 * and rope_append() increase len. Ops that copy from or to the host cannot be captured; ops with
 * arguments in host arrays can.
 *
 * Rows may be appended between two launches. These ops use the lengths at each launch: embed_ids,
 * project, rope_append, ffn, experts, mix and the ops that these are composed of; attend of at most
 * 8 query rows; the _each of these; argmax, copy and clear; pack_bits and bits_scores of an index
 * that lacks at most the newest whole entry; group_reduce and topk of lists that grow (struct
 * counts); attend_chosen and fetch_chosen of rows. All others use the lengths at the capture, which
 * must still hold. */
typedef int op_graph_begin(struct dev *);

/* Ends the capture and returns a number for graph_launch(), or 0 if the capture failed: nothing has
 * been executed then, except on the host. Each launch ends with adding 1 to *pos (device; NULL: to
 * nothing). */
typedef uint32_t op_graph_end(struct dev *, uint32_t *pos);

/* Launches the captured graph, with the pointers of the capture. Every KV head of every layer has
 * `more` rows more than at the time of the capture; the caller updates the host's len and
 * guarantees the capacity. Returns 0 if the graph cannot be launched: another one has been captured
 * since, scratch has moved, more > 0 and an op of the graph uses the lengths at the capture, or the
 * device has failed. */
typedef int op_graph_launch(struct dev *, uint32_t graph, uint32_t more);

/* ---- forward ---- */

/* x[N][D] f32 <- rows tok[N] (host; each < out) of table[V][D] */
typedef void op_embed(struct dev *, float *x, const struct mat *table, const uint32_t *tok,
    uint32_t N);

/* As embed(), with tok[N] on the device. An id that is not < out gives a row of NaN. */
typedef void op_embed_ids(struct dev *, float *x, const struct mat *table, const uint32_t *tok,
    uint32_t N);

/* y[N][D] <- x[n] * w[D] / sqrt(mean(x[n]^2) + eps); y may be x */
typedef void op_rmsnorm(struct dev *, float *y, const float *x, const float *w, uint32_t N,
    uint32_t D, float eps);

/* y[N][D] <- (x[n] - mean(x[n])) * w[n % heads][D] / sqrt(var(x[n]) + eps) + bias[n % heads][D];
 * heads > 0; bias NULL: none; y may be x */
typedef void op_layernorm(struct dev *, float *y, const float *x, const float *w,
    const float *bias, uint32_t heads, uint32_t N, uint32_t D, float eps);

/* y[N][out] <- x[N][in] . w^T (+ bias[out], NULL = none) (+ y when add) */
typedef void op_matmul(struct dev *, float *y, const float *x, const struct mat *w,
    const float *bias, uint32_t N, int add);

/* Rotary embedding of x[N][heads][E] in place, row n at position pos[n] (device): rotates the pair
 * (i, i + dims/2) by the angle pos * freq[i]; the channels from `dims` on are not changed.
 * Angle, sine and cosine are computed in double precision or as exactly. */
typedef void op_rope(struct dev *, float *x, const uint32_t *pos, const struct rotary *,
    uint32_t N, uint32_t heads, uint32_t E);

/* x[N][heads][E] in place: of the first dims channels of each head, 2i goes to i, and 2i + 1 to
 * i + dims/2. So pairs that stand side by side are where rope() has them. dims is even, E at most
 * 1024. */
typedef void op_split_pairs(struct dev *, float *x, uint32_t N, uint32_t heads, uint32_t E,
    uint32_t dims);

/* Appends k, v [N][G][E] f32 at positions pos[N] (device) to every KV head, in the types of its
 * rows; len[g] += N. The caller guarantees len[g] + N <= capacity[g]. A row that a quantised type
 * cannot store is a failure. */
typedef void op_append(struct dev *, struct layer_rows *, const float *k, const float *v,
    const uint32_t *pos, uint32_t N);

/* Evicts all rows of KV head g except keep[g][0 .. count[g]-1] (host, ascending). The kept rows
 * move to the front, in order and in place: keys, values (unless v is NULL), positions, and their
 * elements of the H lists of mass (device, at h*stride; NULL = none), which become 0 from count[g]
 * up to the old length. len[g] = count[g]. */
typedef void op_compact(struct dev *, struct layer_rows *, float *mass, size_t stride, uint32_t H,
    const uint32_t *count, uint32_t *const *keep);

/* As compact(), with the kept rows listed on the device: kept->at[g][0 .. kept->n[g]-1], ascending.
 * Optional: NULL where rank_rows() is. */
typedef void op_compact_listed(struct dev *, struct layer_rows *, float *mass, size_t stride,
    uint32_t H, const struct chosen *kept);

/* Rounds x[n] to the nearest numbers of dtype, ties to even */
typedef void op_round(struct dev *, float *x, size_t n, enum kv_dtype dtype);

/* y[N][F] <- silu(gate[N][F]) * up[N][F]; y may be gate. silu(x) = x / (1 + exp(-x)) */
typedef void op_swiglu(struct dev *, float *y, const float *gate, const float *up, uint32_t N,
    uint32_t F);

/* As swiglu(), with gelu(x) = x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) in place of silu
 * (GeGLU, Shazeer 2020) */
typedef void op_geglu(struct dev *, float *y, const float *gate, const float *up, uint32_t N,
    uint32_t F);

/* x[n] <- cap tanh(x[n] / cap), cap > 0 */
typedef void op_softcap(struct dev *, float *x, size_t n, float cap);

/* x[n] <- the nearest number within +-limit, limit > 0; NaN stays */
typedef void op_clamp(struct dev *, float *x, size_t n, float limit);

/* y[n] <- a x[n] + b y[n]; y may be x, and is not read if b is 0 */
typedef void op_mix(struct dev *, float *y, const float *x, size_t n, float a, float b);

/* y[n y_stride + i] <- x[n x_stride + i], i < width, n < rows; y does not overlap x */
typedef void op_copy_channels(struct dev *, float *y, size_t y_stride, const float *x,
    size_t x_stride, uint32_t width, size_t rows);

/* For each of N rows and each head the product with the head's own matrix A[rows][in]: y <- A x of
 * head h at x[(n heads + h) x_stride], or, transposed, y <- A^T x; y at y[(n heads + h) y_stride].
 * y does not overlap x. */
typedef void op_head_products(struct dev *, float *y, size_t y_stride, const float *x,
    size_t x_stride, const struct head_matrices *, int transposed, uint32_t N);

/* x[N][D] <- x[n] (1 + beta ln(1 + floor(pos[n] / period))), pos[N] on the device: queries whose
 * temperature falls with their position (Llama 4, Ministral 3) */
typedef void op_temper(struct dev *, float *x, const uint32_t *pos, uint32_t N, uint32_t D,
    float beta, uint32_t period);

/* y[n][times][E] <- x[n][E], each row so many times; y does not overlap x */
typedef void op_repeat_heads(struct dev *, float *y, const float *x, size_t n, uint32_t times,
    uint32_t E);

/* ---- mixtures of experts; both NULL: the backend has none ---- */

/* y[N][D] <- for each row of x[N][D] the weighted sum of what its experts (experts.h) make of it,
 * added in the order in which it chose them. scratch is expert_rows_at()'s; a backend where
 * shares_memory leaves its lists filled. A row with a score that is not a number is NaN. Weights of
 * an expert that no row chose are not read. */
typedef void op_experts(struct dev *, float *y, const float *x, const struct experts *,
    void *scratch, uint32_t N);

/* x[N][D] <- x[n] / (1 + exp(-s[n])) */
typedef void op_scale_rows(struct dev *, float *x, const float *s, uint32_t N, uint32_t D);

/* ---- fused ops, optional: where the composition of other ops is as good, a backend has NULL, or
 * the op returns 0 and has done nothing; compose.h then runs the composition. An op that returns 1
 * has done the work. It may round intermediate results differently, and need not write them to
 * memory ---- */

/* y <- matmul() of xn for each of the n products, where xn is rmsnorm() of x[N][D]. xn[N][D]
 * (device) is scratch, undefined on return. No y overlaps x or xn. */
typedef int op_project(struct dev *, const struct product *, uint32_t n, const float *x,
    const struct norm *, float *xn, uint32_t N);

/* rope() of q[N][H][E] and of k[N][G][E], then append() of k and v. k is undefined on return. */
typedef int op_rope_append(struct dev *, struct layer_rows *, float *q, float *k, const float *v,
    const uint32_t *pos, const struct rotary *, uint32_t N, uint32_t H);

/* rope_append() of one row to each of n caches of one shape and dtype: row i of q[n][H][E],
 * k[n][G][E], v[n][G][E] and pos[n] belongs to rows[i]. */
typedef int op_rope_append_each(struct dev *, struct layer_rows *const *rows, uint32_t n, float *q,
    float *k, const float *v, const uint32_t *pos, const struct rotary *, uint32_t H);

/* x[N][D] += down . swiglu(gate . xn, up . xn), where xn is rmsnorm() of x. xn[N][D], gate[N][F]
 * and up[N][F] (device) are scratch, undefined on return. Only called with ACT_SILU and a gate. */
typedef int op_ffn(struct dev *, float *x, const struct ffn *, float *xn, float *gate, float *up,
    uint32_t N);

/* ---- attention ---- */

/* o[N][H][E] <- attention, lse[N][H] <- its log-sum-exp (natural logarithm of the sum of
 * exp(logits)); each NULL = not wanted. Logits are q.k / sqrt(E). A query that sees no row gives 0
 * and -inf, with sinks 0 and its sink. Tiled: no N x S matrix is stored. */
typedef void op_attend(struct dev *, float *o, float *lse, const struct query *,
    const struct layer_rows *);

/* One of several calls of attend() or attend_chosen(), each for another cache: no call writes what
 * another one reads */
struct attention {
	float *o, *lse;              /* as attend()'s; lse NULL where rows are chosen */
	struct query query;
	const struct layer_rows *rows;
	const struct chosen *chosen; /* NULL: all rows, attend() */
};

/* Does attend() or attend_chosen() for each of n, with the same bytes; optional, as the fused
 * ops. */
typedef int op_attend_each(struct dev *, const struct attention *, uint32_t n);

/* Does attend() for the N query rows, each with the bytes of a call of its own with the rows before
 * it and its own row only: the last N rows of every KV head are those of the query rows, in order.
 * For tokens that run at once and must give what they give one after another; rows are read once
 * for all, if possible. Optional, as the fused ops. */
typedef int op_attend_apart(struct dev *, const struct attention *);

/* lse[n] <- log(exp(lse[n]) + exp(other[n])): the log-sum-exp over the union of two disjoint sets
 * of rows */
typedef void op_lse_merge(struct dev *, float *lse, const float *other, size_t n);

/* mass[h][s] (device, H lists at h*stride) += the sum over the N query rows n, in order, of
 * exp(q[n][h].k[s] / sqrt(E) - lse[n][h]), for each row s of KV head h/R that query row n sees; lse
 * is attend()'s. This is the attention mass of the row. The sum over a call is made first and then
 * added to mass, so that a long text, which takes many calls, loses little to rounding.
 * QUERIES_MAX: the maximum of the N and of the old value (which is not negative) instead of the
 * sum. */
typedef void op_attend_mass(struct dev *, float *mass, size_t stride, const struct query *,
    const float *lse, const struct layer_rows *, enum over_queries);

/* Query statistics (kv-snapshot(5), 4.22): adds the queries q[N][H][E], before rotary embedding, to
 * sums (device, in f64): [H][E] the sum of the queries; [H][W/2], W = dims, of the moduli of the
 * pairs (first + i, first + i + W/2); [H][E (E + 1) / 2] of the products of two channels, the
 * lower triangle row by row. One query after another, in order: the sums do not depend on how
 * queries are split over calls, and are the same on every device, since a product of two f32 is
 * exact in f64. */
typedef void op_query_stats(struct dev *, double *sums, const float *q, uint32_t N, uint32_t H,
    uint32_t E, uint32_t first, uint32_t dims);

/* Attention mass of an observation window (SnapKV): mass[h][s] (device, H lists at h*stride) <- the
 * sum or maximum over the N = W query rows of the softmax over *all* visible rows of KV head h/R,
 * for each of its len rows s. own (NULL = none; its v is not read): further rows of the same KV
 * heads, for instance those of the queries themselves. They are in the softmax and have no element
 * of mass. Equals attend() for lse, merged with the lse over own (without sinks), then
 * attend_mass(). */
typedef void op_window_mass(struct dev *, float *mass, size_t stride, const struct query *,
    const struct layer_rows *, const struct layer_rows *own, enum over_queries);

/* Values of one KV head, and the query heads that read them */
struct value_outputs {
	const struct mat *wo;          /* [D][H E]: the output projection of attention */
	const float *v;                /* device [n][E] */
	uint32_t n, width;             /* n rows of E */
	uint32_t first, heads;         /* query heads first .. first + heads - 1 */
	int euclidean;                 /* 1: Euclidean norms; 0: sums of absolute values */
};

/* norms[r][i] (device, lists `stride` apart) <- the norm of Wo_h v[i], h = first + r, where Wo_h is
 * the E columns of query head h: how long what the value adds to the residual stream is
 * (kv-snapshot(5), 4.23). */
typedef void op_value_norms(struct dev *, float *norms, size_t stride,
    const struct value_outputs *);

/* x[n] <- the activation of x. ACT_GELU: x/2 (1 + erf(x / sqrt(2))); ACT_GELU_TANH: as geglu()'s;
 * ACT_RELU2: max(x, 0)^2; ACT_SILU: as swiglu()'s; ACT_XIELU: as struct xielu (host) has it, which
 * is not read for the others */
typedef void op_activate(struct dev *, float *x, size_t n, enum activation, const struct xielu *);

/* Gate of Fast KVzip (2026): score[N][G] <- the mean over the R queries of a KV head of
 *
 *     1 / (1 + sum over sinks s of exp(base[g][s] . q / sqrt(m) - k . q / sqrt(m) - bias[g][r]))
 *
 * with q and k the rows q[N][G][R][m] and k[N][G][m], each normalised (RMSNorm of m channels). */
typedef void op_gate_scores(struct dev *, float *score, const float *q, const float *k,
    const struct gate_sinks *, uint32_t N);

/* ---- scores of methods, optional: where these are NULL, methods/knorm.c and keydiff.c run on the
 * host ---- */

/* score[g][s] (device, G lists at g*stride), s < len[g], <- minus the length of key s, in double
 * precision: the scores of the method knorm. */
typedef void op_knorm(struct dev *, float *score, size_t stride, const struct layer_rows *);

/* score[g][s], lists as of knorm(), <- minus the cosine between key s and the sum of all keys of
 * the KV head, each scaled to length 1; 0 where either is 0. In double precision: the scores of the
 * method keydiff. */
typedef void op_keydiff(struct dev *, float *score, size_t stride, const struct layer_rows *);

/* ---- ranks for eviction, optional: NULL in a backend whose memory the host shares. topk() of the
 * ranks chooses the same rows as methods/evict.c ---- */

/* The input for ranking the rows of a layer */
struct ranking {
	const float *lists;          /* device, H lists at h*stride */
	size_t stride;
	uint32_t H;
	struct list_rule rule;
	/* host [G], each. scored: how many rows have a score, the first ones. Rows before first and
	 * from last on are always kept. first <= last <= rows */
	const uint32_t *scored, *first, *last;
};

/* rank[g][s] (device, G lists at g*stride), s < len[g], <- the score of row s by the rule, from the
 * elements of the lists before scored[g] and no others; +inf before first[g] and from last[g] on;
 * -inf elsewhere from scored[g] on. nan[g] (device) <- the lowest s < scored[g] whose score is not
 * a number; UINT32_MAX: none. */
typedef void op_rank_rows(struct dev *, float *rank, size_t stride, uint32_t *nan,
    const struct ranking *, const struct layer_rows *);

/* ---- greedy sampling ---- */

/* tok[N] (device) <- for each row of x[N][n] (device) the lowest index of its greatest finite
 * element; 0 and -0 are equal. UINT32_MAX: none is finite. */
typedef void op_argmax(struct dev *, uint32_t *tok, const float *x, uint32_t n, uint32_t N);

/* ---- retrieval: one query row (N = 1), which sees all rows; its pos is not read. Scores are
 * logits, q.k / sqrt(E), of query head h with KV head h/R ---- */

/* Append the missing entries, so that KV head g has len[g] / e->rows of them, for which the caller
 * guarantees capacity. pack_bits(): one-bit keys, 4.15; pack_pages(): bounds of pages, 4.16, in
 * dtype. A launch of a graph with rows that were appended since the capture adds the
 * entry that the last row completes, if any. */
typedef void op_pack_bits(struct dev *, struct entries *e, const struct layer_rows *);
typedef void op_pack_pages(struct dev *, struct entries *e, const struct layer_rows *);

/* score[h][s] (device, H lists at h*stride), s < len, <- the score with the one-bit key where the
 * row has an entry, else with its key. Sums in f32; one-bit keys are never expanded in memory. */
typedef void op_bits_scores(struct dev *, float *score, size_t stride, const struct query *,
    const struct entries *bits, const struct layer_rows *);

/* score[h][i] <- for each entry the upper bound of q.k, the sum over channels of max(q*least,
 * q*greatest) (Tang et al. 2024, algorithm 1). dtype: of the bounds */
typedef void op_page_scores(struct dev *, float *score, size_t stride, const struct query *,
    const struct entries *pages, enum kv_dtype dtype);

/* score[h][s], s < len, <- the score with the exact key */
typedef void op_key_scores(struct dev *, float *score, size_t stride, const struct query *,
    const struct layer_rows *);

/* joint[g][i] (device, G lists at g*stride; may be score), i < n.n[g] <- the maximum, mean or sum
 * over the R query heads of KV head g of the softmax of their n.n[g] scores, or an increasing
 * function of it, the same for all i: only the order matters. A NaN score is read as -inf. With R =
 * 1: the scores themselves. sinks: as in struct query, terms of the denominators. */
typedef void op_group_reduce(struct dev *, float *joint, const float *score, size_t stride,
    struct counts n, const float *sinks, uint32_t H, uint32_t G, enum reduce);

/* to->at[g] <- the to->n[g] entries with the greatest of the n.n[g] scores joint[g], ascending; of
 * equal scores the lower entry is chosen. A NaN ranks below all numbers. to->n[g] <= n.n[g], also
 * where lists grow. Linear in n. */
typedef void op_topk(struct dev *, struct chosen *to, const float *joint, size_t stride,
    struct counts n, uint32_t G);

/* row[g][s] (device, at g*stride) <- joint[g][label[g][s]] for s < n[g] (host); label (device, u32,
 * at g*label_stride) */
typedef void op_scores_by_label(struct dev *, float *row, size_t stride, const float *joint,
    size_t joint_stride, const uint32_t *label, size_t label_stride, const uint32_t *n,
    uint32_t G);

/* o[H][E] <- attention over the rows of the selected entries only, with the softmax over these. A
 * KV head with none selected gives 0. KV heads may share rows: begin at the same one. */
typedef void op_attend_chosen(struct dev *, float *o, const struct query *,
    const struct layer_rows *, const struct chosen *);

/* to <- keys, values and positions of the rows of the selected entries, in order, in the types of
 * from, which are to's. The caller guarantees the capacity of to; its len[g] is set. */
typedef void op_gather(struct dev *, struct layer_rows *to, const struct layer_rows *from,
    const struct chosen *);

/* In `to`, which gather() has filled with the same selection, replaces the keys of rows below
 * low->n that are in no exact chunk: by the product of the factors, rotated to the row's position
 * (pairs (i, i + E/2), freq[E/2], device) and rounded to the dtype of to. Keys of a quantised type
 * are a failure. */
typedef void op_rebuild(struct dev *, struct layer_rows *to, const struct chosen *,
    const struct low_rank *low, const double *freq);

/* ---- elastic loading; optional: NULL where shares_memory ---- */

/* list->at[g] <- where in f->to the rows of the selection (NULL: all rows) are, in order,
 * list->n[g] of KV head g: row s >= host_count[g] at slots + s - host_count[g], others in a slot.
 * Copies each selected row that is in no slot into the slot of a row that is not selected, with its
 * position. At most `slots` rows of a KV head are offloaded ones. Of these, keys of rows below
 * low->n that are in no exact chunk are not fetched (low NULL: all are). ahead: only later calls of
 * this op are ordered after the fetch; other later ops are after fetch_wait() of the number that
 * this call returns. f and `rows` must not change until then. */
typedef uint64_t op_fetch_chosen(struct dev *, struct chosen *list, const struct chosen *,
    const struct layer_rows *rows, const struct low_rank *low, const struct offload_slots *f,
    int ahead);

/* Orders all later ops after that fetch. Does not block the host. */
typedef void op_fetch_wait(struct dev *, uint64_t fetch);

/* ---- the table ---- */

struct ops {
	const char *name;            /* "cpu", "cuda" */
	int runs_ahead;              /* 1: ops return before their work is done */
	int takes_recent;            /* 1: append, attend, attend_each take recent_rows */
	int shares_memory;           /* 1: device memory is ordinary memory */
	op_open *open;
	op_close *close;
	op_sync *sync;
	op_describe *describe;
	op_products_in_bf16 *products_in_bf16;
	op_blocks_in_f32 *blocks_in_f32;
	op_use_kernels *use_kernels;
	op_event_record *event_record;
	op_event_wait *event_wait;
	op_mem_info *mem_info;
	op_alloc *alloc;
	op_free *free;
	op_put *put;
	op_put_scattered *put_scattered;
	op_get *get;
	op_get_side *get_side;
	op_host_alloc *host_alloc;
	op_host_free *host_free;
	op_get_async *get_async;
	op_copy *copy;
	op_clear *clear;
	op_expect *expect;
	op_weights *weights;
	op_graph_begin *graph_begin;
	op_graph_end *graph_end;
	op_graph_launch *graph_launch;
	op_embed *embed;
	op_embed_ids *embed_ids;
	op_rmsnorm *rmsnorm;
	op_layernorm *layernorm;
	op_matmul *matmul;
	op_rope *rope;
	op_split_pairs *split_pairs;
	op_append *append;
	op_compact *compact;
	op_compact_listed *compact_listed;
	op_round *round;
	op_swiglu *swiglu;
	op_geglu *geglu;
	op_softcap *softcap;
	op_clamp *clamp;
	op_mix *mix;
	op_copy_channels *copy_channels;
	op_head_products *head_products;
	op_temper *temper;
	op_repeat_heads *repeat_heads;
	op_experts *experts;
	op_scale_rows *scale_rows;
	op_project *project;
	op_rope_append *rope_append;
	op_rope_append_each *rope_append_each;
	op_ffn *ffn;
	op_attend *attend;
	op_attend_each *attend_each;
	op_attend_apart *attend_apart;
	op_lse_merge *lse_merge;
	op_attend_mass *attend_mass;
	op_query_stats *query_stats;
	op_value_norms *value_norms;
	op_activate *activate;
	op_gate_scores *gate_scores;
	op_window_mass *window_mass;
	op_knorm *knorm;
	op_keydiff *keydiff;
	op_rank_rows *rank_rows;
	op_argmax *argmax;
	op_pack_bits *pack_bits;
	op_pack_pages *pack_pages;
	op_bits_scores *bits_scores;
	op_page_scores *page_scores;
	op_key_scores *key_scores;
	op_group_reduce *group_reduce;
	op_topk *topk;
	op_scores_by_label *scores_by_label;
	op_attend_chosen *attend_chosen;
	op_gather *gather;
	op_rebuild *rebuild;
	op_fetch_chosen *fetch_chosen;
	op_fetch_wait *fetch_wait;
};

/* A backend that cannot run here has NULL for open. */
extern const struct ops cpu_ops, gpu_ops;

#ifdef __cplusplus
}
#endif
#endif
