/* gpu_internal.h - what the files of the CUDA backend share
 *
 * port.h, port_hopper.h   launches, shared memory, PTX instructions: what the emulator replaces
 * gpu_device.cu        open, errors, launches, the op table
 * gpu_memory.cu        allocation, scratch, copies to and from the host, events
 * gpu_graph.cu         CUDA graphs: capture and launch of a decode step
 * gpu_selfcheck.cu     kernels must give what naive ones give, at their first use on a GPU
 * gpu_weights.cu       upload of weights
 * gpu_rows.cu          embedding lookup, RMSNorm, rounding, SwiGLU
 * gpu_*quantised*.cu   rows of quantised types: append, attention, mass, scores, indexes
 * gpu_rope_append.cu   RoPE, append to the cache, both in one
 * gpu_argmax.cu        argmax of the logits
 * gpu_matmul.cu        matrix products: chooses between the two files below
 * gpu_gemv.cu          of up to 8 rows: GEMV / skinny GEMM with fused norm and SwiGLU
 * gpu_blas.cu          of more rows: cuBLAS GEMM
 * gpu_compact.cu       compaction of the cache after an eviction
 * gpu_keys.cu, gpu_keep.cu   scores knorm and keydiff; ranks of the rows of a layer, for topk()
 * gpu_layer.cu         the fused ops project and ffn
 * gpu_latent.cu        latent attention: products of each head
 * gpu_latent_attend.cu latent attention: attention over rows that are key and value
 * gpu_experts.cu       mixtures of experts
 * gpu_attend.cu        prefill attention on tensor cores (FlashAttention-2; gpu_attend_mma.h)
 * gpu_attend_wgmma.cu  the same for Hopper (FlashAttention-3)
 * gpu_attend_plain.cu  prefill attention in f32: any shape and type
 * gpu_decode.cu        decode attention (split-KV), also over selected rows and of several texts
 * gpu_mass.cu, gpu_mass_tiles.cu   attention mass, from the log-sum-exp; on tensor cores
 * gpu_mass_wgmma.cu    the same for Hopper
 * gpu_querystats.cu, gpu_valuenorms.cu, gpu_gate.cu   query statistics, norms, gates
 * gpu_index.cu         retrieval: building one-bit keys and page bounds
 * gpu_bits*.cu         retrieval: scores from one-bit keys (FIER)
 * gpu_sinks.cu         learned sink logits of attention
 * gpu_scores.cu        retrieval: scores from keys and from page bounds (Quest); softcap
 * gpu_group_reduce.cu  retrieval: softmax scores of the query heads of a KV head, reduced
 * gpu_topk.cu          retrieval: top-k by radix select
 * gpu_chosen.cu        retrieval: gather of selected rows, and rows that come from the host
 * gpu_fetch.cu         retrieval: selected rows that are in host memory (elastic loading)
 * gpu_rebuild.cu       retrieval: keys of selected rows from low-rank factors (ShadowKV)
 *
 * Beside each fast kernel there is a naive one with the same result, reference_..., which sums in
 * f32. It serves shapes and types that the fast kernel does not take, and everything after
 * gpu_force_reference(1).
 *
 * All work goes to one stream, in order, except the copies of get_side() and fetches that are
 * ahead; an op returns before its work is done. No sum depends on the order in which threads or
 * blocks run: there are no floating-point atomics. */
#ifndef GPU_INTERNAL_H
#define GPU_INTERNAL_H

#include <type_traits>

#include "gpu/gpu_ops.h"
#include "gpu/port.h"
#include "ops/ops.h"

/* Most KV heads of a layer: their offsets and lengths are passed to kernels by value. */
#define MAX_HEADS 128

/* Recorded events that are told apart from later ones */
#define EVENTS 64

/* Fetches ahead that are told apart from later ones: of all layers of some texts */
#define FETCHES 1024

/* Most buffers of a struct staging. */
#define MAX_BUFFERS 4

/* Scratch of an op while it is enqueued and running: one buffer for each purpose. */
enum scratch {
	SCRATCH_X,                   /* activations in 16 bits */
	SCRATCH_PARTS,               /* partial results, between two kernels of an op */
	SCRATCH_LIST,                /* lists from the host */
	SCRATCH_SUMS,                /* log-sum-exps that the caller did not want */
	SCRATCH_QUERIES,             /* Walsh-Hadamard transforms of queries */
	SCRATCH_BINS,                /* topk()'s histograms: all zero between two calls */
	SCRATCHES
};

/* Pinned staging buffers between the device and host memory that is not pinned; they are
 * filled in turn. */
struct staging {
	char *at;                    /* [buffers][size] */
	bool ours;                   /* our own memory, registered; else the runtime's */
	size_t size, used;           /* bytes of a buffer; of the current one in use */
	unsigned buffers, turn;      /* turn: the current one */
	cudaEvent_t done[MAX_BUFFERS];       /* the copies from or to a buffer have ended */
};

/* fetch_chosen() ahead */
struct fetching {
	cudaStream_t stream;         /* NULL: there was none yet */
	cudaEvent_t behind;          /* the work of d->stream before a fetch */
	cudaEvent_t done[FETCHES];   /* the last ones: number n is done[n % FETCHES] */
	uint64_t n;                  /* how many there were */
};

struct dev {
	int index;
	unsigned threads;            /* host threads for the weight upload; 0 = all processors */
	cudaStream_t stream;
	cudaMemPool_t pool;          /* of alloc(); NULL: the driver has none */
	struct blas *blas;           /* gpu_blas.cu's; NULL = not opened yet */
	unsigned sms;                /* multiprocessors */
	size_t l2;                   /* bytes of the L2 cache */
	size_t most_shared;          /* bytes of dynamic shared memory that a block may have */
	bool hopper, any_wgmma;      /* it runs code for sm_90a; gpu_force_wgmma() */
	bool no_wgmma;               /* such code is not used for this call */
	int reference;               /* only naive kernels */
	bool pdl;                    /* programmatic dependent launch is on (port.h) */
	bool no_early_start;         /* the last work on the stream is no kernel of ours */
	char error[256];             /* the first failure; "" = none */
	char text[320];
	struct { void *at; size_t bytes; } scratch[SCRATCHES];
	/* The activations that SCRATCH_X holds a 16-bit copy of; x NULL: none. Every launch,
	 * put and copy forgets them, since it may change x: the copy is used only by a
	 * product that directly follows what made it, another product or attention. */
	struct { const float *x; uint32_t N, in; enum kv_dtype dtype; } narrowed;
	int capturing;               /* between graph_begin() and graph_end() */
	cudaGraphExec_t graph;       /* what graph_launch() launches; NULL: none */
	/* device: the rows of every KV head beyond those at the time of the capture; NULL: not
	 * needed yet. It counts the launches of the graph by itself: appended_next is what it
	 * holds when they have run. */
	uint32_t *appended, appended_next;
	/* a bit for each kernel of pack_bits(), of gpu_scores_quantised() that has run */
	unsigned packed, scored;
	bool fixed_lengths;          /* an op of the graph goes by the lengths of the capture */
	size_t listed;               /* bytes of lists since the last capture */
	/* the lists of the graph, on the device; and on the host while it is captured */
	struct { char *at, *host; size_t bytes, used; } lists;
	uint32_t captures;           /* captures so far: the number of the last one */
	/* how often scratch has been reallocated; and at the time of the capture */
	unsigned scratch_moves, scratch_moves_then;
	const char *kernel;          /* the last one that was launched */
	struct staging out, in;      /* of put(); of get() and get_side() */
	cudaStream_t side_stream;    /* of get_side() */
	cudaEvent_t events[EVENTS];  /* the last ones: number n is events[n % EVENTS] */
	uint64_t events_recorded;    /* how many there were */
	struct fetching fetching;
	struct weights *weights;     /* gpu_weights.cu's */
	struct checks *checks;       /* gpu_selfcheck.cu's; NULL: kernels are used unchecked */
	struct upload *upload;
	/* pinned memory, NULL: none yet: rows that a quantised type cannot store, which
	 * gpu_check_refused() makes a failure (gpu_quantised_append.cu) */
	uint32_t *refused;
	size_t expected;             /* bytes of weights that expect() announced; 0 = not known */
};

/* For tests and benchmarks: settings of devices that are opened from now on. Only naive
 * kernels; */
extern "C" void gpu_force_reference(int);
/* no programmatic dependent launch; */
extern "C" void gpu_force_no_pdl(int);
/* prefill attention and attention mass by products of warpgroups (gpu_..._wgmma.cu) also for calls
 * too short to gain from it. */
extern "C" void gpu_force_wgmma(int);

/* gpu_selfcheck.cu: frees d->checks. */
void gpu_checks_close(struct dev *);

/* Remembers the first failure. */
void gpu_fail(struct dev *, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Returns 1 when e is no error; else 0 after remembering the failure under that name. */
int gpu_check(struct dev *, const char *what, cudaError_t e);
/* The same for a call that waits, where errors of kernels surface: names the last kernel
 * launched, which is the likeliest cause. */
int gpu_check_wait(struct dev *, const char *what, cudaError_t e);
/* 1: nothing has failed. Ops do nothing otherwise. */
static inline int
gpu_ok(const struct dev *d)
{
	return d->error[0] == '\0';
}
/* Remembers the failure where a kernel that has ended could not store a row. */
void gpu_check_refused(struct dev *);
/* Waits for the event. Returns 0 after remembering a failure under that name. */
int gpu_sync_event(struct dev *, const char *what, cudaEvent_t);
/* The pool of alloc() and free(), which are in the order of the stream */
void gpu_pool_open(struct dev *);
void gpu_pool_close(struct dev *);
/* Gives back to the driver what the pool keeps. Returns 0 when that is nothing, or after a
 * failure. */
int gpu_trim(struct dev *);
/* As alloc(), for memory that another stream writes first; cudaFree() */
void *gpu_alloc_apart(struct dev *, size_t bytes);
/* Device scratch of at least `bytes`; NULL after a failure. Growing it loses its contents and
 * clears it. */
void *gpu_scratch(struct dev *, enum scratch, size_t bytes);
/* Copies a host array to the device, where it is until the next list is; NULL after a failure.
 * During a capture: to memory that lives as long as the graph (gpu_graph.cu). */
void *gpu_list(struct dev *, const void *host, size_t bytes);
void *gpu_graph_list(struct dev *, const void *host, size_t bytes);
/* What a list takes there: lists begin at multiples of 256. */
static inline size_t
gpu_list_size(size_t bytes)
{
	return (bytes + 255) / 256 * 256;
}

/* Opens staging buffers of `size` bytes each, in memory of aligned_alloc(), which it takes
 * over, or (NULL) in new memory. Closing a struct that is all zero is allowed. */
void gpu_staging_open(struct dev *, struct staging *, unsigned buffers, size_t size, void *memory);
void gpu_staging_close(struct staging *);
/* Returns where the caller may write up to *n bytes, which it then copies on this stream;
 * reduces *n to what fits. Waits for earlier copies out of that buffer. */
char *gpu_staging_next(struct dev *, struct staging *, cudaStream_t, size_t *n);

/* put() in two steps, for data that is not contiguous on the host. The first returns where to
 * write up to *bytes, and reduces *bytes to what fits; the second copies them. The first
 * returns NULL after a failure; the second may be called even then. */
char *gpu_put_next(struct dev *, size_t *bytes);
void gpu_put_done(struct dev *, void *dst, const void *written, size_t bytes);

/* Device memory is about to be written, or a graph to be captured: forgets the 16-bit copy of
 * x. */
static inline void
gpu_forget(struct dev *d)
{
	d->narrowed.x = NULL;
}

/* Returns 0 after remembering the failure where a product has too many rows or columns. */
int gpu_product_fits(struct dev *, const struct mat *w, uint32_t N);

/* gpu_gemv.cu: n products of at most GEMV_ROWS rows of x, or (norm not NULL) of rmsnorm() of
 * these rows; one launch for weights of one dtype */
enum { GEMV_ROWS = 8 };
enum epilogue {
	EPILOGUE_STORE,              /* y <- product */
	EPILOGUE_ADD,                /* y += product */
	EPILOGUE_SWIGLU              /* two products: p[0].y <- silu(first) * second */
};
void gpu_gemv(struct dev *, const struct product *p, uint32_t n, const float *x,
    const struct norm *, uint32_t N, enum epilogue);

/* gpu_blas.cu: matmul() of many rows */
void gpu_blas_matmul(
    struct dev *, float *, const float *, const struct mat *, const float *, uint32_t, int);

/* Activations in the 16-bit dtype of the weights that they are multiplied with */
struct narrow {
	const void *at;              /* [N][in] */
	float *scale;                /* [N] divisor of each row; NULL: 1 for all */
	uint32_t N, in;
	enum kv_dtype dtype;
};

/* Allocates N rows of 16 bits in SCRATCH_X; returns 0 after a failure. */
int gpu_narrow_alloc(struct dev *, struct narrow *, enum kv_dtype, uint32_t N, uint32_t in);
/* matmul() of them */
void gpu_blas_narrow(struct dev *, float *, const struct narrow *, const struct mat *,
    const float *, int);
/* matmul() in bf16, weights and result, each sum rounded once; rows of y are `stride` apart */
void gpu_blas_bf16(struct dev *, bf16 *y, size_t stride, const struct narrow *, const struct mat *);

/* head_products() of weights in f32 or bf16 */
void gpu_blas_heads(struct dev *, float *y, size_t y_stride, const float *x, size_t x_stride,
    const struct head_matrices *, int transposed, uint32_t N);

/* gpu_rows.cu: rmsnorm() and swiglu() of N rows with a 16-bit result. gpu_norm_narrow() does
 * not take all shapes: it returns 0 when it has done nothing. The other two return 0 after a
 * failure. gate_up: [N][2][F], a row of the gate and one of up */
int gpu_norm_narrow(struct dev *, struct narrow *to, enum kv_dtype, const float *x,
    const struct norm *, uint32_t N, uint32_t D);
int gpu_swiglu_narrow(struct dev *, struct narrow *to, enum kv_dtype, const float *gate,
    const float *up, uint32_t N, uint32_t F);
int gpu_swiglu_bf16(struct dev *, struct narrow *to, const bf16 *gate_up, uint32_t N, uint32_t F);

/* gpu_weights.cu: ends the upload, once its copies are done; that, and frees the weights. */
void gpu_weights_end(struct dev *);
void gpu_weights_free(struct dev *);

/* gpu_graph.cu: destroys the captured graph. */
void gpu_graph_drop(struct dev *);

/* gpu_fetch.cu: waits for all fetches; frees what they use. */
void gpu_fetches_end(struct dev *);
void gpu_fetches_free(struct dev *);

/* Closes d->blas; NULL allowed. */
void gpu_blas_close(struct dev *);

struct rows;
struct row_list;
/* gpu_attend_plain.cu: attend() without tensor cores, for all shapes and types */
void gpu_attend_plain(struct dev *, float *o, float *lse, const struct query *,
    const struct layer_rows *, const struct rows *);

/* gpu_decode.cu: attend() of at most DECODE_QUERIES query rows, for all shapes and types */
enum { DECODE_QUERIES = 8 };
void gpu_attend_decode(struct dev *, float *o, float *lse, const struct query *,
    const struct layer_rows *);

/* For LAUNCH only: before and after a launch */
int gpu_may_launch(struct dev *, const void *kernel, size_t shared);
void gpu_launched(struct dev *, const char *kernel);

/* For LAUNCH_PDL only: may the next kernel start before the one before it has ended? Only directly
 * behind one of ours, see port.h: not behind cuBLAS, a copy, a graph or a wait for another
 * stream. */
static inline bool
gpu_starts_early(const struct dev *d)
{
	return d->pdl && !d->no_early_start;
}

/* struct layer_rows as a kernel's argument */
struct rows {
	const void *k, *v;           /* v NULL: not read */
	const uint32_t *pos;
	uint32_t G, E;
	/* rows of each KV head beyond len, appended by launches of a graph; NULL: none. Read
	 * it by appended_rows(). */
	const uint32_t *appended;
	uint64_t start[MAX_HEADS];
	uint32_t len[MAX_HEADS];
};

/* Fills r. Returns 0 after a failure: too many KV heads, or H is not a multiple of them. A graph
 * with this op can be launched as long as no row has been appended. */
int gpu_rows_of(struct dev *, struct rows *r, const struct layer_rows *, uint32_t H,
    const char *op);
/* The same for kernels that add appended_rows() to every len: these can be captured. */
int gpu_capturable_rows_of(struct dev *, struct rows *r, const struct layer_rows *, uint32_t H,
    const char *op);
/* The most rows of a KV head while a graph with this op is launched; 0: it is not captured,
 * or nothing can be appended. */
uint32_t gpu_rows_to_come(const struct dev *, const struct layer_rows *);
/* For the ops of retrieval: there is one query row, without a sliding window. Returns 0 after a
 * failure. */
int gpu_one_query_row(struct dev *, const struct query *);
/* The values of rows as ops that write or move rows have them; NULL: there are none, or they are
 * the keys */
static inline void *
own_values(const struct layer_rows *l)
{
	return l->v_in_k ? NULL : l->v;
}
/* Fails during a capture: this op copies from or to the host. */
void gpu_refuse_capture(struct dev *, const char *op);
/* This op goes by the lengths that the host has now: a graph with it holds as long as they do. */
static inline void
gpu_fixes_lengths(struct dev *d)
{
	d->fixed_lengths |= d->capturing != 0;
}

DEVICE uint32_t
appended_rows(const struct rows &c)
{
	return c.appended != NULL ? load_l2(c.appended) : 0;
}

/* ---- sliding windows and softcapped logits ----
 *
 * Most models have neither. Fast kernels have a template argument LIMITED: without it they are
 * as if there were no such thing. */

/* struct query's window and softcap as a kernel's argument */
struct limits {
	/* a query row at position p sees positions p - reach .. p; UINT32_MAX: no window */
	uint32_t reach;
	float cap, per_cap;          /* c in the unit of the logits, and 1 / c; 0: no softcap */
};

/* unit: 1, or log2(e) for logits in base 2 */
static inline struct limits
limits_of(const struct query *query, double unit)
{
	const double cap = query->softcap > 0 ? query->softcap * unit : 0;

	return { query->window - 1, (float)cap, (float)(cap > 0 ? 1 / cap : 0) };
}

static inline bool
is_limited(const struct limits &l)
{
	return l.reach != UINT32_MAX || l.cap > 0;
}

/* work(std::true_type{}) where the call is limited, else work(std::false_type{}) */
template <class F>
static inline void
with_limited(const struct limits &l, F &&work)
{
	if (is_limited(l))
		work(std::true_type{});
	else
		work(std::false_type{});
}

/* Does a query row at position p see this position? */
DEVICE bool
in_reach(uint32_t p, uint32_t pos, uint32_t reach)
{
	return pos <= p && p - pos <= reach;
}

DEVICE float
softcapped(float logit, const struct limits &l)
{
	return l.cap * tanhf(logit * l.per_cap);
}

/* ---- learned sinks ---- */

/* A call of attention whose results lack the sinks of its heads */
struct sinks_call {
	float *o, *lse;              /* [rows][E], NULL: none; [rows] */
	const float *sinks;          /* [H] */
	size_t rows;                 /* N * H; 0: nothing to do */
	uint32_t H, E;
};

/* gpu_sinks.cu: takes the sinks out of the queries of n calls, which then want log-sum-exps, in
 * scratch where they did not. Returns false after a failure. */
bool gpu_sinks_of(struct dev *, struct sinks_call *, struct attention *, uint32_t n);
/* gpu_sinks.cu: behind these calls, in one launch */
void gpu_add_sinks(struct dev *, const struct sinks_call *, uint32_t n);

/* Stands for a row that does not exist */
constexpr uint32_t NO_ROW = UINT32_MAX;

/* struct chosen as a kernel's argument: the selected entries, or all rows in order */
struct row_list {
	const uint32_t *at;          /* entries; NULL: all rows */
	size_t stride;
	uint32_t rows;               /* of an entry */
	uint32_t reciprocal, shift;  /* for entry_number() */
	uint32_t n[MAX_HEADS];       /* rows of each list, less than 2^31 */
};

/* Fills p (chosen NULL: all rows). Returns 0 after a failure. */
int gpu_row_list_of(struct dev *, struct row_list *p, const struct layer_rows *,
    const struct chosen *);

/* i / p.rows for i < 2^31, without a division: of 2 i * r / 2^(32 + s), where r = 2^(31 + s) / rows
 * is rounded up and 2^s is rows or the next power of two, rounding adds less than 1 / rows. */
DEVICE uint32_t
entry_number(const struct row_list &p, uint32_t i)
{
	return __umulhi(2 * i, p.reciprocal) >> p.shift;
}

/* The row of KV head g that is number i of its list */
DEVICE uint32_t
listed_row(const struct row_list &p, uint32_t g, uint32_t i)
{
	if (p.at == NULL)
		return i;
	const uint32_t entry = entry_number(p, i);

	return (p.at[g * p.stride + entry] - entry) * p.rows + i;
}

/* Lists of scores as a kernel's argument: n[g] scores of KV head g, and as many more as rows have
 * been appended where these are lists that grow, of which the k[g] greatest are wanted */
struct lists {
	uint32_t n[MAX_HEADS], k[MAX_HEADS];
	uint32_t longest, most;      /* of n; that grids, kernels and scratch are made for */
	const uint32_t *appended;    /* NULL: none. Read it by grown(). */
};

/* gpu_group_reduce.cu: fills l (k NULL: all 0). Returns 0 after a failure, for instance too
 * many lists. A graph with lists that do not grow can be launched as long as no row has been
 * appended. */
int gpu_lists_of(struct dev *, struct lists *l, struct counts n, const uint32_t *k, uint32_t G,
    const char *op);

/* The elements that each list has beyond n */
DEVICE uint32_t
grown(const struct lists &l)
{
	return l.appended != NULL ? load_l2(l.appended) : 0;
}

/* Cosine and sine of an angle in double precision. Only the range reduction to quarter turns
 * is in double precision: five operations instead of the hundred of sincos(), since some GPUs
 * have 64 times less f64 throughput. The remainder, at most half a quarter turn, loses 1.5e-8
 * of a quarter as f32. */
DEVICE void
cos_sin(float *c, float *s, double angle)
{
	const double quarters = angle * 0.63661977236758134308, whole = rint(quarters);
	const int64_t quadrant = (int64_t)whole;
	float cosine, sine;

	sincospif((float)(quarters - whole) / 2, &sine, &cosine);
	*c = quadrant & 1 ? sine : cosine;
	*s = quadrant & 1 ? cosine : sine;
	if ((quadrant + 1) & 2)
		*c = -*c;
	if (quadrant & 2)
		*s = -*s;
}

/* f16 rows whose greatest magnitude is in this range are not scaled: much smaller elements
 * become subnormal, which loses no more than rounding takes from the greatest element. */
#define LEAST_F16 0x1p-6f
#define MOST_F16 65504.0f
#define LEAST_SCALE (-24)              /* y / 2^-24 does not overflow */

/* f16: the power of two to divide a row by whose greatest magnitude is `most`, so that it
 * becomes less than 2^15. 1 for rows of zeros and rows with infinities. */
DEVICE float
scale_of(float most)
{
	int power = (int)(__float_as_uint(most) >> 23) - 127 - 14;

	if ((most >= LEAST_F16 && most <= MOST_F16) || most == 0 || most > 3.4028234e38f)
		return 1;
	power = power < LEAST_SCALE ? LEAST_SCALE : power;
	return __uint_as_float((unsigned)(power + 127) << 23);
}

/* How many of len ascending positions are <= limit: the guess that no position is missing, then
 * binary search */
DEVICE uint32_t
seen_rows(const uint32_t *pos, uint32_t len, uint32_t limit)
{
	uint32_t low = 0, high = len;

	if (len == 0 || limit < pos[0])
		return 0;
	if (limit - pos[0] < len) {
		const uint32_t next = limit - pos[0] + 1;

		if (pos[next - 1] == limit && (next == len || pos[next] > limit))
			return next;
	} else if (pos[len - 1] <= limit)
		return len;
	while (low < high) {
		const uint32_t middle = low + (high - low) / 2;

		if (pos[middle] <= limit)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* The first row that a query row at position p sees, of those with positions up to p: `seen` rows,
 * at ascending positions. As no two rows have the same position, only the last reach + 1 can be in
 * reach; where no position is missing among them, the first of them is the one. Else it is
 * searched for with 16 loads at a time: what takes time is the loads that wait for others. */
DEVICE uint32_t
first_seen(const uint32_t *pos, uint32_t seen, uint32_t p, uint32_t reach)
{
	constexpr uint32_t LOADS = 16;

	if (p <= reach)
		return 0;
	uint32_t low = seen - min(seen, reach + 1), high = seen;       /* least, greatest result */

	while (low < high) {
		const uint32_t step = (high - low - 1) / LOADS + 1;
		uint32_t n = 0;

UNROLL		for (uint32_t i = 0; i < LOADS; i++)
			n += low + i * step < high && p - pos[low + i * step] > reach;
		high = min(high, low + n * step);
		low += n > 0 ? (n - 1) * step + 1 : 0;
	}
	return low;
}

/* work(T{}) with the C++ type of dtype */
template <class F>
static inline void
with_type(enum kv_dtype dtype, F &&work)
{
	switch (dtype) {
	case KV_F32:
		work(float{});
		break;
	case KV_F16:
		work(f16{});
		break;
	case KV_BF16:
		work(bf16{});
		break;
	}
}

static inline unsigned
parts_of(size_t n, size_t part)
{
	return (unsigned)((n + part - 1) / part);
}

/* Blocks of a kernel whose threads stride over n elements, part of them to a block at a time */
static inline unsigned
grid_of(size_t n, size_t part)
{
	const unsigned blocks = parts_of(n, part);

	return blocks < 65536 ? blocks : 65536;
}

#endif
