/* gpu_internal.h - what the files of the CUDA backend share
 *
 * port.h           what kernels use that is not plain CUDA C
 * gpu_device.cu    open, errors, the op table
 * gpu_memory.cu    allocation, scratch, copies to and from the host
 * gpu_graph.cu    ops that are taken down once and carried out many times
 * gpu_weights.cu   weights on their way to the GPU
 * gpu_rows.cu      everything that handles one row at a time
 * gpu_rope_append.cu     queries and keys are turned, keys and values become rows of the cache
 * gpu_argmax.cu  the next token
 * gpu_matmul.cu    matrix products
 * gpu_gemv.cu       of few rows
 * gpu_blas.cu      of many rows: cuBLAS
 * gpu_compact.cu      rows that stay move up
 * gpu_keys.cu      what keys say by themselves
 * gpu_layer.cu     what a layer does with these
 * gpu_attend.cu    attention of many queries, on tensor cores
 * gpu_attend_plain.cu   the same without: any shape and type
 * gpu_decode.cu    attention of few queries: rows are cut into parts; chosen rows
 * gpu_mass.cu      attention mass, from the log-sum-exp
 * gpu_mass_tiles.cu  the same on tensor cores
 * gpu_index.cu     indexes for retrieval: making their entries
 * gpu_bits.cu      scores of rows from their keys in one bit
 * gpu_scores.cu    scores of rows from their keys, and of pages
 * gpu_group_reduce.cu    retrieval: what query heads that share a KV head want, entry by entry
 * gpu_topk.cu       retrieval: the greatest of many scores
 * gpu_chosen.cu    retrieval: only the rows that were chosen
 * gpu_rebuild.cu   retrieval: keys of chosen rows from two factors
 *
 * Beside each fast kernel stands a naive one with the same result, reference_..., which sums in
 * f32 and is used for shapes and types that the fast one does not take, and for all work
 * after gpu_force_reference(1).
 *
 * All work goes to one stream, in order, except what read() copies; an op returns before it is
 * done. No sum depends on the order in which threads or blocks run: no floating-point atomics. */
#ifndef GPU_INTERNAL_H
#define GPU_INTERNAL_H

#include "gpu/port.h"
#include "model/ops.h"

/* Most KV heads of a layer: their places go to kernels by value. */
#define MAX_HEADS 128

/* Points in the work that can be told from later ones. */
#define MARKS 64

/* Most buffers of a struct staging. */
#define MAX_BUFFERS 4

/* Scratch that an op may use while it is enqueued and running: one piece for each purpose. */
enum scratch {
	SCRATCH_X,                   /* activations in 16 bits */
	SCRATCH_PARTS,               /* what blocks leave for those that put it together */
	SCRATCH_LIST,                /* lists from the host */
	SCRATCH_BINS,                /* topk()'s histograms: all zero when it is not running */
	SCRATCHES
};

/* Pinned host memory on the way between a device and memory that is not pinned: buffers that are
 * filled in turns. */
struct staging {
	char *at;                    /* [buffers][size] */
	bool ours;                   /* that memory was there, and has only been pinned */
	size_t size, used;           /* bytes of each; of the one whose turn it is */
	unsigned buffers, turn;
	cudaEvent_t done[MAX_BUFFERS];       /* the copies from or to a buffer */
};

struct dev {
	int index;
	unsigned threads;            /* that bring weights; 0 = all processors */
	cudaStream_t stream;
	struct blas *blas;           /* gpu_blas.cu's; NULL = not opened yet */
	unsigned sms;                /* multiprocessors */
	size_t cache;                /* bytes of the second-level cache */
	size_t most_shared;          /* bytes of dynamic shared memory that a block may have */
	int reference;               /* only naive kernels */
	bool early;                  /* LAUNCH_EARLY is more than LAUNCH */
	bool one_split;              /* and asks for all shared memory (port.h) */
	char error[256];             /* the first failure; "" = none */
	char text[320];
	struct { void *at; size_t bytes; } scratch[SCRATCHES];
	/* Of which activations SCRATCH_X holds a copy in 16 bits; x NULL: of none. Forgotten by
	 * every launch, put and copy, so that nothing can change x unnoticed: it is known only
	 * from one product to the next that directly follows it. */
	struct { const float *x; uint32_t N, in; enum kv_dtype dtype; } narrowed;
	int recording;               /* gpu_graph.cu's: ops are taken down */
	cudaGraphExec_t graph;       /* what graph_launch() carries out; NULL: nothing */
	uint32_t *grown;             /* device: replays of it so far; NULL: not needed yet */
	uint32_t recordings;         /* so far; the last one's number */
	unsigned moves, moves_then;  /* of scratch, to other places; at the recording */
	const char *kernel;          /* the last one that was launched */
	struct staging out, in;      /* of put(), and of get() and read() */
	cudaStream_t reader;         /* of read(), beside the work */
	cudaEvent_t marks[MARKS];    /* the last ones, number n in place n % MARKS */
	uint64_t marked;             /* how many there were */
	struct weights *weights;     /* gpu_weights.cu's */
	struct upload *upload;
	size_t expected;             /* bytes of weights that are still to come; 0 = not known */
};

/* For tests: devices that are opened from now on use only naive kernels. */
extern "C" void gpu_force_reference(int);
/* To measure what it gains: on these no kernel starts before the one ahead of it has ended. */
extern "C" void gpu_force_in_turn(int);
/* On these, kernels that start early all ask for the same split of cache and shared memory. */
extern "C" void gpu_force_one_split(int);

/* Remembers the first failure. */
void gpu_fail(struct dev *, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* 1 when e is no error; else 0, and what failed is remembered under that name. */
int gpu_check(struct dev *, const char *what, cudaError_t e);
/* The same of a call that waits: what a kernel did wrong comes out then; the last one that was
 * launched, which is the likeliest, is named. */
int gpu_check_wait(struct dev *, const char *what, cudaError_t e);
/* Has nothing failed? Ops do nothing otherwise. */
static inline int
gpu_ok(const struct dev *d)
{
	return d->error[0] == '\0';
}
/* Waits for the event; 0 after a failure, which is remembered under that name. */
int gpu_sync_event(struct dev *, const char *what, cudaEvent_t);
/* NULL after a failure; what was there is lost when it has to grow, and it is then cleared. */
void *gpu_scratch(struct dev *, enum scratch, size_t bytes);
/* The array of n elements of host memory, in scratch on the device */
void *gpu_list(struct dev *, const void *host, size_t bytes);

/* Buffers of `size` bytes each, in memory of aligned_alloc() that becomes theirs, or, NULL, in new
 * memory; closing one that is all zero is allowed. */
void gpu_staging_open(struct dev *, struct staging *, unsigned buffers, size_t size, void *memory);
void gpu_staging_close(struct staging *);
/* Where up to *n bytes, which becomes what there is room for, can be written that the caller then
 * copies on this stream. Waits where copies out of that buffer are not done. */
char *gpu_staging_next(struct dev *, struct staging *, cudaStream_t, size_t *n);

/* What put() does in two steps, for what is not in one piece on the host: where up to *bytes, which
 * becomes what there is room for, can be written; and the copy of it. NULL after a failure, for
 * which the second step may be called, too. */
char *gpu_put_next(struct dev *, size_t *bytes);
void gpu_put_done(struct dev *, void *dst, const void *written, size_t bytes);

/* Memory of the device is about to be written, or a graph to be captured. */
static inline void
gpu_forget(struct dev *d)
{
	d->narrowed.x = NULL;
}

/* 0, and a failure, where a product would have too many rows or columns */
int gpu_product_fits(struct dev *, const struct mat *w, uint32_t N);

/* gpu_gemv.cu: n products of at most FEW_ROWS rows of x, or where norm is not NULL of rmsnorm() of
 * these; in one launch where weights are of one type */
enum { FEW_ROWS = 8 };
enum outcome {
	SUMS,                        /* y <- */
	SUMS_ADDED,                  /* y += */
	SUMS_GATED                   /* of two: p[0].y <- silu(the first) * the second */
};
void gpu_few(struct dev *, const struct product *p, uint32_t n, const float *x,
    const struct norm *, uint32_t N, enum outcome);

/* gpu_blas.cu: matmul() of many rows */
void gpu_blas_matmul(
    struct dev *, float *, const float *, const struct mat *, const float *, uint32_t, int);

/* Activations in the type of the weights that they are multiplied with */
struct narrow {
	const void *at;              /* [N][in] */
	float *scale;                /* [N] what each row was divided by; NULL: all by 1 */
	uint32_t N, in;
	enum kv_dtype dtype;
};

/* Room for N rows of 16 bits, in SCRATCH_X; 0 after a failure. */
int gpu_narrow_room(struct dev *, struct narrow *, enum kv_dtype, uint32_t N, uint32_t in);
/* matmul() of these */
void gpu_blas_narrow(struct dev *, float *, const struct narrow *, const struct mat *,
    const float *, int);

/* gpu_rows.cu: what rmsnorm(), and swiglu(), make of N rows, in room of 16 bits. gpu_norm_narrow()
 * does not take all shapes: 0 when nothing was done. */
int gpu_norm_narrow(struct dev *, struct narrow *to, enum kv_dtype, const float *x,
    const struct norm *, uint32_t N, uint32_t D);
int gpu_gated_narrow(struct dev *, struct narrow *to, enum kv_dtype, const float *gate,
    const float *up, uint32_t N, uint32_t F);

/* An end to what brings weights; and to the weights, too. */
void gpu_weights_end(struct dev *);
void gpu_weights_free(struct dev *);

/* gpu_graph.cu: what was recorded is forgotten. */
void gpu_record_end(struct dev *);

/* Closes d->blas; NULL allowed. */
void gpu_blas_close(struct dev *);

struct rows;
struct picks;
/* gpu_attend_plain.cu: attend() without tensor cores, */
void gpu_attend_plain(struct dev *, float *o, float *lse, const struct query *,
    const struct layer_rows *, const struct rows *);
/* and by the naive kernel, for all shapes and types. The rows of a list are seen
 * by all queries; pos is then not read. */
void gpu_attend_any(struct dev *, float *o, float *lse, const struct query *, const struct rows *,
    const struct picks *, enum kv_dtype);

/* gpu_decode.cu: attend() of at most FEW_QUERIES rows, for all shapes and types */
enum { FEW_QUERIES = 8 };
void gpu_attend_few(struct dev *, float *o, float *lse, const struct query *,
    const struct layer_rows *);

/* For LAUNCH only */
int gpu_may_launch(struct dev *, const void *kernel, size_t shared);
void gpu_launched(struct dev *, const char *kernel);

/* The rows of a layer as a kernel's argument */
struct rows {
	const void *k, *v;           /* v NULL: not read */
	const uint32_t *pos;
	uint32_t G, E;
	/* so many rows more are in each KV head than len; NULL: none. grown_by() */
	const uint32_t *grown;
	uint64_t start[MAX_HEADS];
	uint32_t len[MAX_HEADS];
};

/* Fills r; 0 after a failure, when there are too many heads, or H is no multiple of them. */
int gpu_rows_of(struct dev *, struct rows *r, const struct layer_rows *, uint32_t H,
    const char *op);
/* The same for kernels that add grown_by(): these can be recorded. */
int gpu_growing_rows_of(struct dev *, struct rows *r, const struct layer_rows *, uint32_t H,
    const char *op);
/* No sliding window is asked for; for the ops of retrieval: there is one query row. Return 0 after a
 * failure. */
int gpu_whole_window(struct dev *, const struct query *);
int gpu_one_query_row(struct dev *, const struct query *);
/* Fails while ops are recorded: this one depends on what the host knows now. */
void gpu_not_recorded(struct dev *, const char *op);

DEVICE uint32_t
grown_by(const struct rows &c)
{
	return c.grown != NULL ? load_settled(c.grown) : 0;
}

/* Instead of a row's number or place, where there is no row */
constexpr uint32_t NO_ROW = UINT32_MAX;

/* Lists of rows as a kernel's argument: the chosen entries, or all rows in order */
struct picks {
	const uint32_t *at;          /* entries; NULL: all rows */
	size_t stride;
	uint32_t rows;               /* of an entry */
	uint32_t n[MAX_HEADS];       /* rows of each list */
};

/* Fills p (chosen NULL: all rows); 0 after a failure. */
int gpu_picks_of(struct dev *, struct picks *p, const struct layer_rows *, const struct chosen *);

/* Where in the KV head row i of the list stands */
DEVICE uint32_t
picked_row(const struct picks &p, uint32_t g, uint32_t i)
{
	return p.at == NULL ? i : p.at[g * p.stride + i / p.rows] * p.rows + i % p.rows;
}

/* How many scores each KV head has, and how many of them are wanted, as a kernel's argument */
struct lists {
	uint32_t n[MAX_HEADS], k[MAX_HEADS];
	uint32_t longest;            /* of n */
};

/* gpu_group_reduce.cu: fills l (k NULL: none is wanted); 0 after a failure, or when there are too many. */
int gpu_lists_of(struct dev *, struct lists *l, const uint32_t *n, const uint32_t *k, uint32_t G,
    const char *op);

/* Cosine and sine. Only the whole quarters of a turn are taken off in double precision, in five
 * operations instead of the hundred of a sincos(): some GPUs have 64 times fewer of these. What
 * is left, at most 1/2, loses 1.5e-8 of a quarter as f32. */
DEVICE void
turn_by(float *c, float *s, double angle)
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

/* Rows whose greatest element is within these stay as they are: what is far smaller becomes
 * subnormal, and loses no more than rounding takes from the greatest anyway. */
#define LEAST_F16 0x1p-6f
#define MOST_F16 65504.0f
#define LEAST_SCALE (-24)              /* y / 2^-24 does not overflow */

/* f16: the power of two that a row is divided by whose greatest magnitude that is: then it is
 * below 2^15. 1 for a row of zeros, and where there are infinities. */
DEVICE float
scale_of(float most)
{
	int power = (int)(__float_as_uint(most) >> 23) - 127 - 14;

	if ((most >= LEAST_F16 && most <= MOST_F16) || most == 0 || most > 3.4028234e38f)
		return 1;
	power = power < LEAST_SCALE ? LEAST_SCALE : power;
	return __uint_as_float((unsigned)(power + 127) << 23);
}

/* The greatest in the block, in all threads; once in a kernel */
DEVICE float
block_max(float x)
{
	SHARED(float[32], part);

	x = warp_max(x);
	if (threadIdx.x % 32 == 0)
		part[threadIdx.x / 32] = x;
	__syncthreads();
	for (unsigned i = 0; i < blockDim.x / 32; i++)
		x = fmaxf(x, part[i]);
	return x;
}

/* How many of len ascending positions are not greater than limit. First a guess, which is right
 * where no position is missing. */
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

/* ---- the ops; contracts in model/ops.h ---- */

extern "C" {
op_mem_info gpu_mem_info;
op_alloc gpu_alloc;
op_free gpu_free;
op_put gpu_put;
op_get gpu_get;
op_get_side gpu_get_side;
op_event_record gpu_event_record;
op_event_wait gpu_event_wait;
op_host_alloc gpu_host_alloc;
op_host_free gpu_host_free;
op_get_async gpu_get_async;
op_copy gpu_copy;
op_clear gpu_clear;
op_expect gpu_expect;
op_weights gpu_weights;
op_graph_begin gpu_graph_begin;
op_graph_end gpu_graph_end;
op_graph_launch gpu_graph_launch;
op_embed gpu_embed;
op_embed_ids gpu_embed_ids;
op_argmax gpu_argmax;
op_rmsnorm gpu_rmsnorm;
op_rope gpu_rope;
op_append gpu_append;
op_compact gpu_compact;
op_round gpu_round;
op_swiglu gpu_swiglu;
op_project gpu_project;
op_rope_append gpu_rope_append;
op_ffn gpu_ffn;
op_matmul gpu_matmul;
op_attend gpu_attend;
op_attend_mass gpu_attend_mass;
op_lse_merge gpu_lse_merge;
op_window_mass gpu_window_mass;
op_knorm gpu_knorm;
op_keydiff gpu_keydiff;
op_pack_bits gpu_pack_bits;
op_pack_pages gpu_pack_pages;
op_bits_scores gpu_bits_scores;
op_page_scores gpu_page_scores;
op_key_scores gpu_key_scores;
op_group_reduce gpu_group_reduce;
op_topk gpu_topk;
op_scores_by_label gpu_scores_by_label;
op_attend_chosen gpu_attend_chosen;
op_gather gpu_gather;
op_rebuild gpu_rebuild;
}

#endif
