/* gpu_blas.cu - GEMM of many rows, by cuBLAS
 *
 * cuBLAS is half a gigabyte that decoding and most programs never use, so it is not linked but
 * loaded by dlopen() when the first product needs it; a missing library is a failure then.
 *
 * 16-bit weights are multiplied with x in the same dtype, with f32 accumulation. For bf16 x is
 * rounded. f16 ends at 65504: a row of x with greater elements, or only very small ones, is
 * divided by a power of two first, and its row of y multiplied by it afterwards. Only the device
 * knows which rows these are: the kernels for y are always launched, and return at once for a
 * row whose power is 1.
 *
 * cuBLAS takes any size; tensor cores are at full speed where `in` is a multiple of 8. f32
 * weights: f32 products on CUDA cores (not TF32). */
#include <dlfcn.h>
#include <stdlib.h>

#include <cublas_v2.h>

#include "gpu/gpu_block.h"
#include "gpu/gpu_internal.h"

/* As NVIDIA recommends for Hopper. With its own workspace cuBLAS allocates nothing, so that a
 * product can be captured. */
#define WORKSPACE ((size_t)32 << 20)

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)
#define LIBRARY "libcublas.so." TEXT(CUBLAS_VER_MAJOR)

struct blas {
	cublasHandle_t handle;         /* NULL: not opened yet */
	void *workspace;
	cublasStatus_t (*create)(cublasHandle_t *);
	cublasStatus_t (*destroy)(cublasHandle_t);
	cublasStatus_t (*set_stream)(cublasHandle_t, cudaStream_t);
	cublasStatus_t (*set_workspace)(cublasHandle_t, void *, size_t);
	cublasStatus_t (*set_math)(cublasHandle_t, cublasMath_t);
	const char *(*text)(cublasStatus_t);
	cublasStatus_t (*gemm)(cublasHandle_t, cublasOperation_t, cublasOperation_t, int m, int n,
	    int k, const void *alpha, const void *a, cudaDataType_t, int lda, const void *b,
	    cudaDataType_t, int ldb, const void *beta, void *c, cudaDataType_t, int ldc,
	    cublasComputeType_t, cublasGemmAlgo_t);
	cublasStatus_t (*gemm_batched)(cublasHandle_t, cublasOperation_t, cublasOperation_t, int m,
	    int n, int k, const void *alpha, const void *a, cudaDataType_t, int lda,
	    long long a_step, const void *b, cudaDataType_t, int ldb, long long b_step,
	    const void *beta, void *c, cudaDataType_t, int ldc, long long c_step, int batch,
	    cublasComputeType_t, cublasGemmAlgo_t);
};

/* ---- the library ---- */

/* Loads the library and finds the functions. It stays loaded until the process ends. */
static int
load(struct dev *d, struct blas *b)
{
	const struct { const char *name; void *at; } function[] = {
		{ "cublasCreate_v2", &b->create }, { "cublasDestroy_v2", &b->destroy },
		{ "cublasSetStream_v2", &b->set_stream },
		{ "cublasSetWorkspace_v2", &b->set_workspace },
		{ "cublasSetMathMode", &b->set_math },
		{ "cublasGetStatusString", &b->text }, { "cublasGemmEx", &b->gemm },
		{ "cublasGemmStridedBatchedEx", &b->gemm_batched },
	};
	void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL), *found;

	if (library == NULL)
		library = dlopen("/usr/local/cuda/lib64/" LIBRARY, RTLD_NOW | RTLD_LOCAL);
	if (library == NULL) {
		gpu_fail(d, "matmul: cuBLAS is not there: %s", dlerror());
		return 0;
	}
	for (const auto &f : function) {
		if ((found = dlsym(library, f.name)) == NULL) {
			gpu_fail(d, "matmul: " LIBRARY ": %s", dlerror());
			return 0;
		}
		memcpy(f.at, &found, sizeof found);
	}
	return 1;
}

static int
check(struct dev *d, const char *what, cublasStatus_t status)
{
	if (status == CUBLAS_STATUS_SUCCESS)
		return 1;
	gpu_fail(d, "matmul: cuBLAS: %s: %s", what, d->blas->text(status));
	return 0;
}

static int
workspace(struct dev *d, struct blas *b)
{
	b->workspace = gpu_alloc(d, WORKSPACE);
	return gpu_check(d, "matmul: workspace",
	    b->workspace != NULL ? cudaSuccess : cudaErrorMemoryAllocation);
}

/* cuBLAS allocates by itself: what the pool of alloc() keeps is given back where that is too
 * little. */
static cublasStatus_t
create(struct dev *d, struct blas *b)
{
	cublasStatus_t status = b->create(&b->handle);

	if (status == CUBLAS_STATUS_ALLOC_FAILED && gpu_trim(d))
		status = b->create(&b->handle);
	return status;
}

/* Opens cuBLAS at the first call; NULL after a failure. A product whose result is of 16 bits must
 * not add up partial sums of 16 bits (split-K). */
static const struct blas *
opened(struct dev *d)
{
	struct blas *b = d->blas;

	if (!gpu_ok(d) || (b != NULL && b->handle != NULL))
		return gpu_ok(d) ? b : NULL;
	if ((b = d->blas = (struct blas *)calloc(1, sizeof *b)) == NULL) {
		gpu_fail(d, "matmul: no memory");
		return NULL;
	}
	if (!load(d, b) || !gpu_check(d, "cudaSetDevice", cudaSetDevice(d->index)) ||
	    !workspace(d, b) || !check(d, "create", create(d, b)) ||
	    !check(d, "stream", b->set_stream(b->handle, d->stream)) ||
	    !check(d, "workspace", b->set_workspace(b->handle, b->workspace, WORKSPACE)) ||
	    !check(d, "math mode", b->set_math(b->handle,
	    CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION)))
		return NULL;
	return b;
}

void
gpu_blas_close(struct dev *d)
{
	if (d->blas == NULL)
		return;
	if (d->blas->handle != NULL)
		d->blas->destroy(d->blas->handle);
	gpu_free(d, d->blas->workspace);
	free(d->blas);
	d->blas = NULL;
}

/* ---- x to 16 bits ---- */

enum { THREADS = 256 };

/* The greatest magnitude in the block's row, in all threads; NaNs are ignored. */
template <int V>
DEVICE float
row_most(const float *row, uint32_t in)
{
	float most = 0;

	for (uint32_t i = V * threadIdx.x; i < in; i += V * THREADS) {
		const pack<float, V> p = *(const pack<float, V> *)(row + i);

		for (int e = 0; e < V; e++)
			most = fmaxf(most, fabsf(p.at[e]));
	}
	return block_max(most);
}

/* One block for each row; scale NULL: all scales are 1. */
template <class T, int V>
static __global__ void __launch_bounds__(THREADS)
narrow_rows(T *to, float *scale, const float *x, uint32_t in)
{
	const float *row = x + (size_t)blockIdx.x * in;
	float by = 1;

	to += (size_t)blockIdx.x * in;
	if (scale != NULL) {
		by = scale_of(row_most<V>(row, in));
		if (threadIdx.x == 0)
			scale[blockIdx.x] = by;
	}
	by = 1 / by;
	for (uint32_t i = V * threadIdx.x; i < in; i += V * THREADS) {
		const pack<float, V> p = *(const pack<float, V> *)(row + i);
		pack<T, V> q;

		for (int e = 0; e < V; e++)
			q.at[e] = narrow<T>(p.at[e] * by);
		*(pack<T, V> *)(to + i) = q;
	}
}

int
gpu_narrow_alloc(struct dev *d, struct narrow *to, enum kv_dtype dtype, uint32_t N, uint32_t in)
{
	const size_t scales = ((size_t)N * 4 + 255) / 256 * 256;
	char *at = (char *)gpu_scratch(d, SCRATCH_X, scales + (size_t)N * in * 2);

	if (at == NULL)
		return 0;
	*to = { at + scales, dtype == KV_F16 ? (float *)at : NULL, N, in, dtype };
	return 1;
}

/* x in the dtype of w. Of consecutive products with the same x only the first converts it.
 * Returns 0 after a failure. */
static int
narrowed(struct dev *d, struct narrow *to, const float *x, const struct mat *w, uint32_t N)
{
	const auto &have = d->narrowed;
	const bool wide = w->in % 4 == 0 && (uintptr_t)x % 16 == 0;

	if (!gpu_narrow_alloc(d, to, mat_elements(w), N, w->in))
		return 0;
	if (have.x == x && have.N == N && have.in == w->in && have.dtype == mat_elements(w))
		return 1;
	if (mat_elements(w) == KV_F16 && wide)
		LAUNCH(d, (narrow_rows<f16, 4>), N, THREADS, 0, (f16 *)to->at, to->scale, x, w->in);
	else if (mat_elements(w) == KV_F16)
		LAUNCH(d, (narrow_rows<f16, 1>), N, THREADS, 0, (f16 *)to->at, to->scale, x, w->in);
	else if (wide)
		LAUNCH(d, (narrow_rows<bf16, 4>), N, THREADS, 0, (bf16 *)to->at, NULL, x, w->in);
	else
		LAUNCH(d, (narrow_rows<bf16, 1>), N, THREADS, 0, (bf16 *)to->at, NULL, x, w->in);
	return 1;
}

/* to[n][width] <- the first numbers of the rows of x, n rows `stride` apart */
static __global__ void __launch_bounds__(THREADS)
narrow_channels(bf16 *to, const float *x, size_t stride, uint32_t width, size_t all)
{
	const size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;

	if (i < all)
		to[i] = narrow<bf16>(x[i / width * stride + i % width]);
}

/* ---- y before and after ---- */

/* y <- (bias + y when add) / scale, before the product is added to it */
static __global__ void __launch_bounds__(THREADS)
begin_rows(float *y, const float *scale, const float *bias, uint32_t out, int add)
{
	const float by = scale == NULL ? 1 : 1 / scale[blockIdx.x];
	float *row = y + (size_t)blockIdx.x * out;

	if (add && bias == NULL && by == 1)
		return;
	for (uint32_t i = blockIdx.y * THREADS + threadIdx.x; i < out; i += gridDim.y * THREADS)
		row[i] = ((bias != NULL ? bias[i] : 0) + (add ? row[i] : 0)) * by;
}

/* y <- y * scale */
static __global__ void __launch_bounds__(THREADS)
end_rows(float *y, const float *scale, uint32_t out)
{
	const float by = scale[blockIdx.x];
	float *row = y + (size_t)blockIdx.x * out;

	for (uint32_t i = blockIdx.y * THREADS + threadIdx.x; i < out && by != 1;
	    i += gridDim.y * THREADS)
		row[i] *= by;
}

/* ---- the product ---- */

static cudaDataType_t
type_of(enum kv_dtype dtype)
{
	return dtype == KV_F32 ? CUDA_R_32F : dtype == KV_F16 ? CUDA_R_16F : CUDA_R_16BF;
}

/* y <- x . w^T + beta y, rows of y `stride` apart. cuBLAS is column-major: its c = a^T b is our
 * y[N][out], with our w[out][in] as a and x[N][in] as b. */
static void
gemm(struct dev *d, const struct blas *b, void *y, enum kv_dtype dtype, size_t stride,
    const struct narrow *x, const struct mat *w, float beta)
{
	const float one = 1;
	const int in = (int)w->in, out = (int)w->out;
	const auto type = type_of(mat_elements(w));

	d->no_early_start = true;
	if (gpu_ok(d))
		check(d, "product", b->gemm(b->handle, CUBLAS_OP_T, CUBLAS_OP_N, out, (int)x->N, in,
		    &one, w->data, type, in, x->at, type, in, &beta, y, type_of(dtype), (int)stride,
		    CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
}

static void
multiply(struct dev *d, const struct blas *b, float *y, const struct narrow *x,
    const struct mat *w, const float *bias, int add)
{
	const unsigned across = parts_of(w->out, 4 * THREADS);
	const dim3 grid(x->N, across < 65536 ? across : 65535);

	if (bias != NULL || (add && x->scale != NULL))
		LAUNCH(d, begin_rows, grid, THREADS, 0, y, x->scale, bias, w->out, add);
	gemm(d, b, y, KV_F32, w->out, x, w, add || bias != NULL ? 1 : 0);
	if (x->scale != NULL)
		LAUNCH(d, end_rows, grid, THREADS, 0, y, x->scale, w->out);
	gpu_forget(d);
}

void
gpu_blas_narrow(struct dev *d, float *y, const struct narrow *x, const struct mat *w,
    const float *bias, int add)
{
	const struct blas *b;

	if (w->out > 0 && gpu_product_fits(d, w, x->N) && (b = opened(d)) != NULL)
		multiply(d, b, y, x, w, bias, add);
}

void
gpu_blas_bf16(struct dev *d, bf16 *y, size_t stride, const struct narrow *x, const struct mat *w)
{
	const struct blas *b;

	if (w->out > 0 && gpu_product_fits(d, w, x->N) && (b = opened(d)) != NULL)
		gemm(d, b, y, KV_BF16, stride, x, w, 0);
	gpu_forget(d);
}

void
gpu_blas_matmul(struct dev *d, float *y, const float *x, const struct mat *w, const float *bias,
    uint32_t N, int add)
{
	const struct blas *b = opened(d);
	struct narrow t = { x, NULL, N, w->in, mat_elements(w) };

	if (b == NULL || (mat_elements(w) != KV_F32 && !narrowed(d, &t, x, w, N)))
		return;
	multiply(d, b, y, &t, w, bias, add);
	if (t.at != x && (y + (size_t)N * w->out <= x || x + (size_t)N * w->in <= y))
		d->narrowed = { .x = x, .N = N, .in = w->in, .dtype = mat_elements(w) };
}

/* One product for all heads. Row-major w of a head is, to cuBLAS, its transpose. */
void
gpu_blas_heads(struct dev *d, float *y, size_t y_stride, const float *x, size_t x_stride,
    const struct head_matrices *a, int transposed, uint32_t N)
{
	const struct blas *b = opened(d);
	const int in = (int)a->w->in, rows = (int)a->rows, heads = (int)a->heads;
	const uint32_t width = transposed ? a->rows : a->w->in;
	const size_t all = (size_t)N * a->heads * width;
	const enum kv_dtype dtype = mat_elements(a->w);
	const auto type = type_of(dtype);
	const char *w = (const char *)a->w->data + (size_t)a->first * a->w->in *
	    kv_dtype_size(dtype);
	const float one = 1, zero = 0;
	struct narrow t = { x, NULL, N, width, dtype };

	if (b == NULL || !gpu_product_fits(d, a->w, N))
		return;
	if (dtype == KV_BF16) {
		if (!gpu_narrow_alloc(d, &t, KV_BF16, N * a->heads, width))
			return;
		LAUNCH(d, narrow_channels, parts_of(all, THREADS), THREADS, 0, (bf16 *)t.at, x,
		    x_stride, width, all);
		x_stride = width;
	}
	d->no_early_start = true;
	if (gpu_ok(d))
		check(d, "product", b->gemm_batched(b->handle, transposed ? CUBLAS_OP_N :
		    CUBLAS_OP_T, CUBLAS_OP_N, transposed ? in : rows, (int)N, (int)width, &one, w,
		    type, in, (long long)a->block * in, t.at, type, heads * (int)x_stride,
		    (long long)x_stride, &zero, y, CUDA_R_32F, heads * (int)y_stride,
		    (long long)y_stride, heads, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
	gpu_forget(d);
}
