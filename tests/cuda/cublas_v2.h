/* cublas_v2.h - replaces cuBLAS' header: the one product that gpu/ calls, computed on the
 * CPU. See cuda_runtime.h. */
#ifndef CUBLAS_V2_H
#define CUBLAS_V2_H

#include <cuda_runtime.h>

#define CUBLAS_VER_MAJOR 13

typedef struct emulated_cublas *cublasHandle_t;
enum cublasStatus_t {
	CUBLAS_STATUS_SUCCESS = 0, CUBLAS_STATUS_NOT_INITIALIZED = 1,
	CUBLAS_STATUS_ALLOC_FAILED = 3,
	CUBLAS_STATUS_EXECUTION_FAILED = 13, CUBLAS_STATUS_NOT_SUPPORTED = 15,
};
enum cublasOperation_t { CUBLAS_OP_N = 0, CUBLAS_OP_T = 1 };
enum cudaDataType_t { CUDA_R_32F = 0, CUDA_R_16F = 2, CUDA_R_16BF = 14 };
enum cublasComputeType_t { CUBLAS_COMPUTE_32F = 68 };
enum cublasGemmAlgo_t { CUBLAS_GEMM_DEFAULT = -1 };
enum cublasMath_t {
	CUBLAS_DEFAULT_MATH = 0, CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION = 16,
};

extern "C" {
cublasStatus_t cublasCreate_v2(cublasHandle_t *);
cublasStatus_t cublasDestroy_v2(cublasHandle_t);
cublasStatus_t cublasSetStream_v2(cublasHandle_t, cudaStream_t);
cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t, void *, size_t);
cublasStatus_t cublasSetMathMode(cublasHandle_t, cublasMath_t);
const char *cublasGetStatusString(cublasStatus_t);
/* Column-major, as in cuBLAS: c[n][m] <- alpha * op(a) . op(b) + beta * c */
cublasStatus_t cublasGemmEx(cublasHandle_t, cublasOperation_t ta, cublasOperation_t tb, int m,
    int n, int k, const void *alpha, const void *a, cudaDataType_t atype, int lda, const void *b,
    cudaDataType_t btype, int ldb, const void *beta, void *c, cudaDataType_t ctype, int ldc,
    cublasComputeType_t, cublasGemmAlgo_t);
/* `batch` of them, whose matrices are so many elements behind each other */
cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t, cublasOperation_t ta,
    cublasOperation_t tb, int m, int n, int k, const void *alpha, const void *a,
    cudaDataType_t atype, int lda, long long a_step, const void *b, cudaDataType_t btype, int ldb,
    long long b_step, const void *beta, void *c, cudaDataType_t ctype, int ldc, long long c_step,
    int batch, cublasComputeType_t, cublasGemmAlgo_t);
}

#endif
