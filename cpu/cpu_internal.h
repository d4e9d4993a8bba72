/* cpu_internal.h - what the files of the CPU backend share
 *
 * cpu_device.c  open, memory, errors, the op table
 * cpu_matmul.c  matrix products: oneDNN on converted panels; GEMV and skinny GEMM for few rows
 * cpu_bf16.c    matrix products in bf16, where that is asked for
 * cpu_blocks.c  matrix products with weights in blocks, for few rows
 * cpu_attend.c  attention, of all rows or chosen ones: how the work is cut into items
 * cpu_mass.c    attention mass, with the same items (cpu_attend.h)
 * cpu_index.c   indexes for retrieval: packing keys, scoring rows with them
 * cpu_latent.c  latent attention: channels put together, products of each query head
 * cpu_rows.c    everything that handles one row at a time
 * cpu_recent.c  KIVI's rows, the last of which are full: appending, attention
 * cpu_compact.c compact: the kept rows move up
 * cpu_choose.c  retrieval: which entries a step reads
 * cpu_chosen.c  retrieval: gather and rebuild of the chosen rows
 * cpu_threads.c the threads
 * cpu_limits.c  what the limits of the process leave of its memory
 * simd_*.c      inner loops, compiled once per instruction set
 * simd_quantised.h  rows of any type as vectors
 * simd_skinny.h     attention of few query rows
 * simd_kivi.h       KIVI's keys, by channel
 * bf16_avx512.c inner loops of products in bf16, for the one set that has them
 * vnni_avx512.c attention over quantised rows in integers, likewise
 * vnni_blocks.c products with weights in blocks, likewise
 * dispatch.c    picks one of those sets, a struct simd, when a device is opened
 *
 * Nothing outside cpu/ and its tests includes this.
 *
 * Work is cut into items by the shapes alone, and each item is computed by one thread in
 * one order. So which thread takes which item, and how many there are, cannot change a
 * result. */
#ifndef CPU_INTERNAL_H
#define CPU_INTERNAL_H

#include "ops/ops.h"

/* Keys that attention handles at once. Rows of scores, and of the transposed keys, have
 * this many floats. */
#define KEY_TILE 64

/* Rows of scores that are computed at once: they stay in L1 between the two products. */
#define SCORE_ROWS 48

/* At most so many query heads of a KV head (GQA) are served by one pass over what they read. */
#define GROUP_HEADS 4

/* What topk() needs behind each of its three arrays: whole vectors are written. */
#define TOPK_SLACK 16

/* E rounded up to whole vectors of every instruction set: the row length of values and
 * outputs in scratch. */
#define PADDED(E) (((size_t)(E) + 15) & ~(size_t)15)

/* One KV head and M query rows that read it: query row m is row n = m / R of the call,
 * query head m % R of the group. Scratch belongs to one thread. */
struct attend_job {
	const void *k, *v;           /* this KV head's rows; v NULL: only m, l */
	/* without KV_ROW_HADAMARD: the job computes on rows as they are stored, so the caller
	 * transforms queries before and outputs after it */
	enum kv_row_type k_type, v_type;
	size_t k_bytes, v_bytes;     /* of a row */
	/* rows of the head in front of k, and of v: those in front of full rows. A multiple
	 * of KV_GROUP_ROWS where k_type is KIVI's */
	size_t k_before, v_before;
	size_t E, M;
	size_t first, last;          /* rows first..last-1 of the head, or of those chosen */
	const uint32_t *at;          /* [last - first] where these are in k and v; NULL: in order */
	const float *q;              /* [M][E], multiplied by 1/sqrt(E) */
	/* [M] query row m sees rows from[m] .. seen[m]-1 of the head; neither falls as m grows */
	const uint32_t *from, *seen;
	float softcap;               /* of logits; 0: none */
	float *m;                    /* [M] largest logit so far, -inf at first */
	float *l;                    /* [M][16] lanes whose sum is the sum of exp(logit - m) */
	float *o;                    /* [M][PADDED(E)] sum of exp(logit - m) * v */
	float *kt;                   /* scratch [E][KEY_TILE] */
	float *vt;                   /* scratch [KEY_TILE][PADDED(E)] */
	float *s;                    /* scratch [SCORE_ROWS][KEY_TILE] */
	enum over_queries over;              /* for mass() */
	/* of keys and of values, where few query rows are computed in integers; else NULL */
	const struct vnni_products *k_vnni, *v_vnni;
	void *codes;                 /* scratch [VNNI_FLOATS(E, M)] of k_vnni */
	int few;                     /* 1: no tile of f32 is prepared for so few query rows */
};

/* Attention of few query rows over quantised rows, in integers. struct tile: simd_skinny.h */
struct tile;
struct vnni_products {
	const char *name;            /* "avx512vnni" */

	int (*takes_keys)(enum kv_row_type, size_t E), (*takes_values)(enum kv_row_type, size_t E);
	/* Rounds the queries of the job; before scores(). */
	void (*prepare)(const struct attend_job *);
	/* j->s[n][KEY_TILE] <- scores of query rows m .. m+n-1 with the tile, n <= SKINNY_ROWS */
	void (*scores)(const struct attend_job *j, const struct tile *, size_t m, size_t n);
	/* o[n][E] += j->s[n][KEY_TILE] . values of the tile */
	void (*outputs)(const struct attend_job *j, const struct tile *, float *o, size_t n);
};

/* So many query rows of a call are few, at most. Of few, so many are computed at once. */
#define SKINNY_ROWS 8
#define VNNI_FLOATS(E, M) ((M) * ((E) / 32 * 20))

/* Some entries of one KV head, and the M query heads that read it */
struct entries_job {
	const char *data;            /* n entries of `bytes` bytes */
	size_t n, bytes;
	size_t rows;                 /* of one entry */
	enum kv_dtype dtype;         /* of bounds */
	size_t E, M;
	const float *q;              /* [M][E], multiplied by 1/sqrt(E) */
	float *score;                /* M lists, stride apart: of the rows, or of the entries */
	size_t stride;
	float *w;                    /* scratch [GROUP_HEADS][PADDED(E)] */
};

struct x_chunk;
struct block_product;
typedef void cpu_block_dots(const struct block_product *, enum weight_type);

/* Floats from one row of x to the next, for dots() */
#define DOTS_LD(in) (((in) + 31) / 32 * 32)

/* The inner loops of one instruction set. */
struct simd {
	const char *name;            /* "base", "avx2", "avx512" */

	/* dst[n] f32 <- src[n] of type */
	void (*widen)(float *dst, const void *src, enum kv_dtype type, size_t n);

	/* dst[N][DOTS_LD(in)] <- x[N][in] in the order in which dots() takes it for weights of
	 * type, with zeros behind */
	void (*arrange)(float *dst, const float *x, size_t N, size_t in, enum kv_dtype type);

	/* y[n][r] <- x[n] . w[r] (+ bias[r], NULL = none) (+ y[n][r] when add), n < N, r <
	 * rows; rows of y are ldy apart, x as arrange() has left it, w[rows][in] of type. The sum
	 * has the same order for every N and rows. */
	void (*dots)(float *y, size_t ldy, const float *x, size_t N, const void *w,
	    enum kv_dtype type, size_t rows, size_t in, const float *bias, int add);

	/* y[n][in] += the sum over r, in order, of x[n][r] w[r], n < N, r < rows; rows of y are
	 * ldy apart, of x ldx, w[rows][in] of type */
	void (*add_rows)(float *y, size_t ldy, const float *x, size_t ldx, size_t N, const void *w,
	    enum kv_dtype type, size_t rows, size_t in);

	/* For weights in blocks (cpu_blocks.h). round_x: dst <- x[N][in] rounded to 8 bits.
	 * block_dots: as dots(). widen_blocks: dst[in] f32 <- a row, as weight_to_f32(). */
	void (*round_x)(struct x_chunk *dst, const float *x, size_t N, size_t in);
	cpu_block_dots *block_dots;
	void (*widen_blocks)(float *dst, const void *w, enum weight_type, size_t in);

	/* Online softmax over rows first..last-1: updates m, l and o. */
	void (*attend)(const struct attend_job *);

	/* mass[r*stride + s - first] += sum over the query rows of head r, in order, of
	 * exp(logit - lse[m]), first <= s < last; or the greatest of them and of what was
	 * there. l, o and v are not used; m holds the log-sum-exp of each query row. */
	void (*mass)(const struct attend_job *, float *mass, size_t stride, size_t R);

	/* score[m*stride + s - first] <- q[m] . key s, rows first..last-1, without softcap; only
	 * k, q and the scratch of the job are used */
	void (*key_scores)(const struct attend_job *, float *score, size_t stride);

	/* dst[n][E] <- rows, as kv_rows_to_f32() of a type without KV_ROW_HADAMARD */
	void (*dequantise)(float *dst, const void *rows, enum kv_row_type, size_t E, size_t n);

	/* One entry of an index <- keys[u][E] of type, kv-snapshot(5) 4.15 and 4.16; u of bits
	 * is 16, 32, 64 or 128 */
	void (*pack_bits)(void *entry, const void *keys, enum kv_dtype type, size_t u, size_t E);
	void (*pack_page)(void *entry, const void *keys, enum kv_dtype type, size_t u, size_t E);

	/* Scores of the rows of entries from keys in one bit, and of pages */
	void (*bits_scores)(const struct entries_job *);
	void (*page_scores)(const struct entries_job *);

	/* Log-sum-exp of n scores; 0 where that is -inf. NaN counts as -inf, infinity as
	 * FLT_MAX. */
	float (*lse)(const float *score, size_t n);
	/* joint[i] <- an increasing function of the maximum (or sum) over the R rows of
	 * score[R][stride] of exp(score[r][i] - lse[r]), i < n */
	void (*group_reduce)(float *joint, const float *score, size_t stride, const float *lse,
	    size_t n, size_t R, enum reduce);
	/* out[k] <- the numbers of the k greatest of n scores, as topk() in ops.h, 1 <= k <= n.
	 * scratch of 3 (n + TOPK_SLACK) */
	void (*topk)(uint32_t *out, const float *score, size_t n, size_t k, uint32_t *scratch);

	/* sum[j] += x[t][i] * x[t][j], j <= i < E, for t = 0 .. n-1 in order. x[n][E], and 8
	 * numbers behind it, which do not count */
	void (*add_products)(double *sum, const double *x, size_t E, size_t i, size_t n);

	/* y[D] <- x[D] * w[D] / sqrt(mean(x^2) + eps) */
	void (*rmsnorm)(float *y, const float *x, const float *w, size_t D, float eps);

	/* as layernorm() of ops.h, of one row */
	void (*layernorm)(float *y, const float *x, const float *w, const float *bias, size_t D,
	    float eps);

	/* c[half], s[half] <- cosine and sine of pos * freq[i], which is in double precision */
	void (*cos_sin)(float *c, float *s, uint32_t pos, const double *freq, size_t half);

	/* x[heads][E]: (x[i], x[i + E/2]) rotated by the angle with cosine c[i] and sine
	 * s[i], i < E/2 */
	void (*rotate)(float *x, const float *c, const float *s, size_t heads, size_t E);

	/* x[n][E] <- their Walsh-Hadamard transforms, the bytes of kv_rows_rotate() */
	void (*transform)(float *x, size_t E, size_t n);

	/* y[n] <- silu(gate[n]) * up[n] */
	void (*swiglu)(float *y, const float *gate, const float *up, size_t n);
	void (*geglu)(float *y, const float *gate, const float *up, size_t n);

	/* x[n] <- gelu(x), by tanh */
	void (*gelu_tanh)(float *x, size_t n);

	/* x[n] <- c tanh(x[n] / c), c > 0 */
	void (*cap)(float *x, size_t n, float c);
};

/* A panel of products in bf16: weight rows, and channels of them, that are reordered at
 * once. Rows of x that meet it at once. */
#define BF16_COLS 48
#define BF16_DEPTH 2048
#define BF16_ROWS 8

/* Inner loops of products of numbers in bf16 that are summed in f32 */
struct bf16_products {
	const char *name;            /* "avx512bf16" */

	/* dst[rows][ld] <- x[rows][in] rounded to bf16, then zeros; ld is in, up to a multiple of
	 * 32 */
	void (*round_rows)(uint16_t *dst, size_t ld, const float *x, size_t rows, size_t in);

	/* panel[up to 32s of in / 2][BF16_COLS] <- pairs of channels of w[cols][in] in bf16, whose
	 * rows are ldw apart; cols <= BF16_COLS, in <= BF16_DEPTH */
	void (*pack)(uint32_t *panel, const uint16_t *w, size_t ldw, size_t cols, size_t in);

	/* y[n][c] <- x[n] . w[c] (+ bias[c], NULL = none) (+ y[n][c] when add), n < rows, c < cols,
	 * w as pack() has left it. x[BF16_ROWS][ldx]: all of them are read, rows of them count. */
	void (*multiply)(float *y, size_t ldy, const uint16_t *x, size_t ldx, const uint32_t *panel,
	    size_t rows, size_t cols, size_t in, const float *bias, int add);
};

struct thread_pool;

struct dev {
	int threads;
	int warm;                    /* oneDNN has made its code */
	struct thread_pool *pool;
	const struct simd *simd;
	const struct bf16_products *bf16;  /* while products are in bf16; else NULL */
	const struct vnni_products *vnni;  /* NULL: not on this processor */
	cpu_block_dots *block_dots;
	int exact;                   /* 1: no product rounds x, blocks_in_f32() */
	void *scratch;               /* 64-byte aligned; grows, never shrinks */
	size_t scratch_bytes;
	char text[96];               /* describe() */
	char error[160];             /* the first failure; "" while all is well */
};

/* The best instruction set that this processor runs, or the forced one. */
const struct simd *cpu_simd(void);

/* For tests: devices opened from now on use that instruction set; NULL: the best one again.
 * Returns 0 when there is none of that name, or it does not run here. */
int cpu_force_isa(const char *name);

/* What this processor, or the forced instruction set, has for products in bf16; NULL: nothing. */
const struct bf16_products *cpu_bf16(void);

/* Returns the integer kernels for quantised rows; NULL: this processor does not run them, or an
 * instruction set is forced. */
const struct vnni_products *cpu_vnni(void);

/* Returns the products with weights in blocks of this processor, or of the forced instruction
 * set. */
cpu_block_dots *cpu_blocks(void);

/* matmul() of w in bf16, or in blocks, by d->bf16 */
op_matmul cpu_bf16_matmul;
int cpu_bf16_takes(enum weight_type);

/* matmul() of at most 64 rows of x and w in blocks */
op_matmul cpu_blocks_matmul;

/* Does matmul() read weights of that type once and widen them in registers, for so many rows of
 * x? */
int cpu_few_rows(const struct dev *, size_t N, enum weight_type);

/* dst[n][in] f32 <- rows first .. first+n-1 of w, of any type */
void cpu_widen_rows(const struct simd *, float *dst, const struct mat *w, size_t first, size_t n);

/* dst[n] f32 <- channels first .. first+n-1 of row o of w; n <= 1024 */
void cpu_widen_row(const struct simd *, float *dst, const struct mat *w, size_t o, size_t first,
    size_t n);

/* Calls work(arg, item, thread) for every item < items, thread < d->threads, and returns when
 * all are done. Which thread takes which item differs from run to run. cost is the number of
 * elements that are read or multiplied: little work stays on the calling thread. */
void cpu_run(struct dev *, void (*work)(void *arg, size_t item, int thread), void *arg,
    size_t items, size_t cost);

/* threads counts the calling one. NULL with errno when there are not so many. */
struct thread_pool *cpu_pool_open(int threads);
void cpu_pool_close(struct thread_pool *);
void cpu_pool_run(struct thread_pool *, void (*work)(void *, size_t, int), void *arg, size_t items);

/* How many threads oneDNN uses when called from this one. Returns the setting before. */
int cpu_blas_threads(int threads);

/* Scratch of at least bytes for the op that is running; NULL after remembering the failure. */
void *cpu_scratch(struct dev *, size_t bytes);

/* Do the limits of the process leave what oneDNN allocates? It aborts where it has no memory for
 * its code. Returns 0 after remembering the failure. */
int cpu_has_room(struct dev *);

/* Remembers the first failure. May be called by any thread. */
void cpu_fail(struct dev *, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* For the ops of retrieval: there is one query row, and no sliding window. Returns 0 after
 * remembering the failure. */
int cpu_one_query_row(struct dev *, const struct query *);

/* Rows of KV head g that the chosen entries stand for. Entries behind the end are none. */
size_t cpu_chosen_rows(const struct chosen *, const struct layer_rows *, size_t g);
/* Returns 0 after remembering the failure. */
int cpu_can_be_chosen(struct dev *, const struct layer_rows *, const struct chosen *);

/* Stores x[width] as row number `row` of rows of KV head g; what: "key", "value". Remembers a
 * failure where the type cannot store it. */
void cpu_store_row(struct dev *, void *rows, size_t row, const float *x, enum kv_row_type,
    size_t width, const char *what, size_t g);
/* append() to quantised rows with full ones behind them. Does not change len. */
void cpu_append_recent(struct dev *, struct layer_rows *, const float *k, const float *v,
    const uint32_t *pos, uint32_t N);
/* Has keys, and values, that vnni (NULL: none) takes computed in integers. */
void cpu_use_vnni(const struct vnni_products *vnni, struct attend_job *);
/* simd->attend() of quantised and full rows of KV head g, part by part: one maximum, sum and output
 * go through all parts. The output is that of rows that are not transformed. */
void cpu_attend_recent(const struct simd *, const struct vnni_products *, const struct layer_rows *,
    size_t g, struct attend_job *);
/* For ops that do not take such rows. Returns 1 after remembering the failure, 0 for other rows. */
int cpu_refuse_recent(struct dev *, const struct layer_rows *, const char *op);

/* Are rows of the type stored as their Walsh-Hadamard transform? */
static inline int
cpu_transformed(enum kv_row_type type)
{
	return ((unsigned)type & KV_ROW_HADAMARD) != 0;
}

/* Ops of the other files; contracts in ops/ops.h */
op_mem_info cpu_mem_info;
op_embed cpu_embed;
op_embed_ids cpu_embed_ids;
op_argmax cpu_argmax;
op_geglu cpu_geglu;
op_softcap cpu_softcap;
op_clamp cpu_clamp;
op_mix cpu_mix;
op_repeat_heads cpu_repeat_heads;
op_rmsnorm cpu_rmsnorm;
op_matmul cpu_matmul;
op_rope cpu_rope;
op_append cpu_append;
op_attend cpu_attend;
op_attend_each cpu_attend_each;
op_attend_apart cpu_attend_apart;
op_attend_mass cpu_attend_mass;
op_lse_merge cpu_lse_merge;
/* lse[n] <- that of the terms of both. A NaN stays. */
void cpu_add_lse(float *lse, const float *other, size_t n);
op_query_stats cpu_query_stats;
op_value_norms cpu_value_norms;
op_activate cpu_activate;
op_gate_scores cpu_gate_scores;
op_window_mass cpu_window_mass;
op_group_reduce cpu_group_reduce;
op_topk cpu_topk;
op_scores_by_label cpu_scores_by_label;
op_attend_chosen cpu_attend_chosen;
op_gather cpu_gather;
op_rebuild cpu_rebuild;
op_pack_bits cpu_pack_bits;
op_pack_pages cpu_pack_pages;
op_bits_scores cpu_bits_scores;
op_page_scores cpu_page_scores;
op_key_scores cpu_key_scores;
op_compact cpu_compact;
op_round cpu_round;
op_swiglu cpu_swiglu;
op_temper cpu_temper;
op_copy_channels cpu_copy_channels;
op_head_products cpu_head_products;
op_layernorm cpu_layernorm;
op_split_pairs cpu_split_pairs;
op_experts cpu_experts;
op_scale_rows cpu_scale_rows;

#endif
