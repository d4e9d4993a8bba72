/* emulator_cublas.cc - replaces cuBLAS: a plain matrix product, and the loading of the
 * library */
#include "tests/cuda/emulator.h"

#include <cublas_v2.h>
#include <dlfcn.h>
#include <stdio.h>

#include <vector>

#include "libkvfile/dtype.h"

using namespace emulator;

/* Device memory that must be free when cuBLAS is opened */
static constexpr size_t HANDLE = (size_t)4 << 20;

/* Products of cuBLAS so far */
extern "C" unsigned long cuda_products;
unsigned long cuda_products;

struct emulated_cublas {
	cudaStream_t stream;
	cublasMath_t math;
};

cublasStatus_t
cublasCreate_v2(cublasHandle_t *h)
{
	size_t free, total;

	ALONE();
	*h = NULL;
	if (wanted())
		return CUBLAS_STATUS_NOT_INITIALIZED;
	if (cudaMemGetInfo(&free, &total) != cudaSuccess || free < HANDLE)
		return CUBLAS_STATUS_ALLOC_FAILED;
	*h = new emulated_cublas();
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t
cublasDestroy_v2(cublasHandle_t h)
{
	delete h;
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t
cublasSetStream_v2(cublasHandle_t h, cudaStream_t s)
{
	h->stream = s;
	return CUBLAS_STATUS_SUCCESS;
}

const char *
cublasGetStatusString(cublasStatus_t status)
{
	switch (status) {
	case CUBLAS_STATUS_SUCCESS: return "CUBLAS_STATUS_SUCCESS";
	case CUBLAS_STATUS_NOT_INITIALIZED: return "CUBLAS_STATUS_NOT_INITIALIZED";
	case CUBLAS_STATUS_ALLOC_FAILED: return "CUBLAS_STATUS_ALLOC_FAILED";
	case CUBLAS_STATUS_EXECUTION_FAILED: return "CUBLAS_STATUS_EXECUTION_FAILED";
	case CUBLAS_STATUS_NOT_SUPPORTED: return "CUBLAS_STATUS_NOT_SUPPORTED";
	}
	return "unknown";
}

cublasStatus_t
cublasSetWorkspace_v2(cublasHandle_t, void *, size_t)
{
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t
cublasSetMathMode(cublasHandle_t h, cublasMath_t math)
{
	h->math = math;
	return CUBLAS_STATUS_SUCCESS;
}

static enum kv_dtype
dtype_of(cudaDataType_t type)
{
	return type == CUDA_R_32F ? KV_F32 : type == CUDA_R_16BF ? KV_BF16 : KV_F16;
}

/* So many columns of p, each of k elements, as f32 and contiguous; padded with zeros to a
 * multiple of BLOCK columns. */
static constexpr int BLOCK = 16;

static std::vector<float>
widened(const void *p, int columns, int k, int ld, cudaDataType_t type)
{
	const enum kv_dtype dtype = dtype_of(type);
	std::vector<float> all((size_t)(columns + BLOCK - 1) / BLOCK * BLOCK * k);

	for (int i = 0; i < columns; i++)
		kv_to_f32(&all[(size_t)i * k],
		    (const char *)p + (size_t)i * ld * kv_dtype_size(dtype), dtype, (size_t)k);
	return all;
}

/* BLOCK columns interleaved: the first element of each, the second of each, ... */
static std::vector<float>
interleaved(const std::vector<float> &all, int k)
{
	std::vector<float> to(all.size());

	for (size_t i = 0; i < all.size(); i++) {
		const size_t column = i / k, x = i % k;

		to[(column / BLOCK * k + x) * BLOCK + column % BLOCK] = all[i];
	}
	return to;
}

/* n elements of c <- alpha * sum + beta * c, rounded once to the type of c */
static void
store(char *c, enum kv_dtype dtype, const float *sum, int n, float alpha, float beta)
{
	float to[BLOCK] = {};

	if (beta != 0)
		kv_to_f32(to, c, dtype, (size_t)n);
	for (int e = 0; e < n; e++)
		to[e] = alpha * sum[e] + (beta != 0 ? beta * to[e] : 0);
	kv_from_f32(c, to, dtype, (size_t)n);
	if (note_written != NULL)
		note_written(c, NULL, (size_t)n * kv_dtype_size(dtype));
}

/* One product: c <- alpha * op(a) . b + beta * c */
struct product {
	bool transposed;                       /* op(a) = a^T */
	int m, n, k;
	const void *a;
	int lda;
	const void *b;
	int ldb;
	void *c;
	int ldc;
	cudaDataType_t atype, btype, ctype;
	float alpha, beta;
};

/* m columns of k elements, from k columns of m elements */
static std::vector<float>
turned(const std::vector<float> &a, int m, int k)
{
	std::vector<float> to((size_t)(m + BLOCK - 1) / BLOCK * BLOCK * k);

	for (int i = 0; i < m; i++)
		for (int x = 0; x < k; x++)
			to[(size_t)i * k + x] = a[(size_t)x * m + i];
	return to;
}

static void
multiply(const struct product &y)
{
	uncover();
	const std::vector<float> wa = interleaved(y.transposed ?
	    widened(y.a, y.m, y.k, y.lda, y.atype) :
	    turned(widened(y.a, y.k, y.m, y.lda, y.atype), y.m, y.k), y.k);
	const std::vector<float> wb = widened(y.b, y.n, y.k, y.ldb, y.btype);
	const enum kv_dtype to = dtype_of(y.ctype);
	for (int i = 0; i < y.m; i += BLOCK)
		for (int j = 0; j < y.n; j++) {
			const float *p = &wa[(size_t)i * y.k], *q = &wb[(size_t)j * y.k];
			float sum[BLOCK] = {};

			for (int x = 0; x < y.k; x++, p += BLOCK)
				for (int e = 0; e < BLOCK; e++)
					sum[e] += p[e] * q[x];
			store((char *)y.c + ((size_t)j * y.ldc + i) * kv_dtype_size(to), to, sum,
			    y.m - i < BLOCK ? y.m - i : BLOCK, y.alpha, y.beta);
		}
	cover();
}

/* cuBLAS chooses a kernel by these. */
static void
load_product(cudaStream_t s, const struct product &p, size_t n)
{
	char what[120], key[160];

	snprintf(what, sizeof what, "a product of cuBLAS, %d x %d x %d, types %d and %d", p.m, p.n,
	    p.k, (int)p.atype, (int)p.ctype);
	snprintf(key, sizeof key, "%s, %zu of them, %d", what, n, p.transposed);
	load(s, key, what);
}

/* n products, in a capture or now */
static void
multiply_all(cublasHandle_t h, const std::vector<struct product> &all)
{
	const auto work = [all] {
		for (const struct product &p : all)
			multiply(p);
	};

	cuda_products++;
	if (!all.empty())
		load_product(h->stream, all[0], all.size());
	set_last(h->stream, "a product of cuBLAS");
	if (capturing(h->stream)) {
		capture_work(work);
		return;
	}
	finish_stream(h->stream);
	work();
}

/* Only what gpu/ uses: a transposed, b not, c in f32 or in the type of both. With c in 16 bits
 * cuBLAS may add up partial sums in 16 bits, unless that is forbidden; here it must be. */
cublasStatus_t
cublasGemmEx(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k,
    const void *alpha, const void *a, cudaDataType_t atype, int lda, const void *b,
    cudaDataType_t btype, int ldb, const void *beta, void *c, cudaDataType_t ctype, int ldc,
    cublasComputeType_t, cublasGemmAlgo_t)
{
	ALONE();
	if ((ctype != CUDA_R_32F && (ctype != atype ||
	    h->math != CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION)) || atype != btype ||
	    ta != CUBLAS_OP_T || tb != CUBLAS_OP_N)
		return CUBLAS_STATUS_NOT_SUPPORTED;
	if (wanted())
		return CUBLAS_STATUS_EXECUTION_FAILED;
	multiply_all(h, { { true, m, n, k, a, lda, b, ldb, c, ldc, atype, btype, ctype,
		*(const float *)alpha, *(const float *)beta } });
	return CUBLAS_STATUS_SUCCESS;
}

/* Only what gpu/ uses: b not transposed, c in f32 */
cublasStatus_t
cublasGemmStridedBatchedEx(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m,
    int n, int k, const void *alpha, const void *a, cudaDataType_t atype, int lda,
    long long a_step, const void *b, cudaDataType_t btype, int ldb, long long b_step,
    const void *beta, void *c, cudaDataType_t ctype, int ldc, long long c_step, int batch,
    cublasComputeType_t, cublasGemmAlgo_t)
{
	const size_t size = kv_dtype_size(dtype_of(atype));
	std::vector<struct product> all;

	ALONE();
	if (ctype != CUDA_R_32F || atype != btype || tb != CUBLAS_OP_N)
		return CUBLAS_STATUS_NOT_SUPPORTED;
	if (wanted())
		return CUBLAS_STATUS_EXECUTION_FAILED;
	for (long long i = 0; i < batch; i++)
		all.push_back({ ta == CUBLAS_OP_T, m, n, k, (const char *)a + i * a_step * size,
			lda, (const char *)b + i * b_step * size, ldb, (float *)c + i * c_step, ldc,
			atype, btype, ctype, *(const float *)alpha, *(const float *)beta });
	multiply_all(h, all);
	return CUBLAS_STATUS_SUCCESS;
}

/* ---- loading it ---- */

int cublas_missing;

void *
emulated_dlopen(const char *, int)
{
	return cublas_missing ? NULL : (void *)&cublas_missing;
}

const char *
emulated_dlerror(void)
{
	return "the emulator was told to have no libcublas";
}

int
emulated_dladdr(const void *, Dl_info *info)
{
	info->dli_fname = "/proc/self/exe";
	return 1;
}

void *
emulated_dlsym(void *, const char *name)
{
	static const struct { const char *name; void *at; } function[] = {
		{ "cublasCreate_v2", (void *)cublasCreate_v2 },
		{ "cublasDestroy_v2", (void *)cublasDestroy_v2 },
		{ "cublasSetStream_v2", (void *)cublasSetStream_v2 },
		{ "cublasSetWorkspace_v2", (void *)cublasSetWorkspace_v2 },
		{ "cublasSetMathMode", (void *)cublasSetMathMode },
		{ "cublasGetStatusString", (void *)cublasGetStatusString },
		{ "cublasGemmEx", (void *)cublasGemmEx },
		{ "cublasGemmStridedBatchedEx", (void *)cublasGemmStridedBatchedEx },
	};

	for (const auto &f : function)
		if (strcmp(f.name, name) == 0)
			return f.at;
	return NULL;
}
