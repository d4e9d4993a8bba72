/* primitives.cu - runs each primitive of gpu/port.h once and prints its output; those of
 * gpu/port_hopper.h where the GPU has compute capability 9.0
 *
 * Built twice: by nvcc, with the instructions of the hardware, and with tests/cuda, with
 * models of them. Both must print the same lines; otherwise a model is wrong. Numbers are
 * small integers, so that sums are exact in any order. */
#include <stdio.h>
#include <stdlib.h>

#include "gpu/port_codes.h"
#include "gpu/port_hopper.h"

enum { WORDS = 4096 };

/* What LAUNCH needs of a device; here an error ends the program. */
struct dev {
	cudaStream_t stream;
};

static int
gpu_may_launch(struct dev *, const void *, size_t)
{
	return 1;
}

[[maybe_unused]] static void
gpu_launched(struct dev *, const char *kernel)
{
	cudaError_t e = cudaGetLastError();

	if (e != cudaSuccess) {
		fprintf(stderr, "%s: %s\n", kernel, cudaGetErrorString(e));
		exit(1);
	}
}

DEVICE uint32_t
noise(uint32_t x)
{
	x ^= x >> 16;
	x *= 0x7feb352du;
	x ^= x >> 15;
	x *= 0x846ca68bu;
	return x ^ x >> 16;
}

/* A number from -8 to 7 */
DEVICE float
small(uint32_t x)
{
	return (float)(noise(x) % 16) - 8;
}

template <class T>
static __global__ void
products(uint32_t *out)
{
	const uint32_t lane = threadIdx.x;
	uint32_t a[4], b[2];
	float d[4];

	for (int i = 0; i < 4; i++)
		a[i] = pair<T>(small(lane * 16 + i), small(lane * 16 + i + 8));
	for (int i = 0; i < 2; i++)
		b[i] = pair<T>(small(1000 + lane * 16 + i), small(1000 + lane * 16 + i + 8));
	for (int i = 0; i < 4; i++)
		d[i] = small(2000 + lane * 16 + i);
	mma(T{}, d, a, b);
	for (int i = 0; i < 4; i++)
		out[lane * 4 + i] = __float_as_uint(d[i]);
}

static __global__ void
bytes(uint32_t *out)
{
	const uint32_t lane = threadIdx.x;
	uint32_t a[4], b[2], d[4];

	for (uint32_t i = 0; i < 4; i++) {
		a[i] = noise(lane * 16 + i);
		b[i % 2] = noise(1000 + lane * 16 + i);
		d[i] = noise(2000 + lane * 16 + i);
	}
	mma_u8(d, a, b);
	for (int i = 0; i < 4; i++)
		out[lane * 4 + i] = d[i];
}

template <bool TRANSPOSED>
static __global__ void
matrices(uint32_t *out)
{
	DYN_SHARED(uint16_t, m);
	const uint32_t lane = threadIdx.x;
	uint32_t r[4];

	for (int i = 0; i < 32; i++)
		m[lane * 32 + i] = (uint16_t)noise(lane * 32 + i);
	__syncthreads();
	/* rows of 16 bytes in a scattered order */
	ldmatrix_x4<TRANSPOSED>(r, m + (lane * 7 + 3) % 128 * 8);
	for (int i = 0; i < 4; i++)
		out[lane * 4 + i] = r[i];
}

static __global__ void
copies(uint32_t *out, const uint32_t *in)
{
	DYN_SHARED(uint32_t, to);
	const uint32_t t = threadIdx.x;

	cp_async16(to + t * 4, in + t * 4, t % 3 != 0);
	cp_async_commit();
	cp_async16(to + 128 + t * 4, in + 128 + t * 4, true);
	cp_async_commit();
	cp_async_wait<1>();
	__syncthreads();
	for (int i = 0; i < 4; i++)
		out[t * 4 + i] = to[(t ^ 1) * 4 + i];
	cp_async_wait<0>();
	__syncthreads();
	for (int i = 0; i < 4; i++)
		out[128 + t * 4 + i] = to[128 + (t ^ 1) * 4 + i];
}

static __global__ void
scalars(uint32_t *out, const uint32_t *in)
{
	const uint32_t t = threadIdx.x;
	const uint4 v = load_once(in + t * 4);
	const float x = __uint_as_float(noise(t));
	const float y = small(t) * 0.25f + (float)t / 1024;

	out[t] = v.x ^ v.y ^ v.z ^ v.w;
	out[32 + t] = pair<bf16>(y, x);
	out[64 + t] = pair<f16>(y, y * 1000);
	out[96 + t] = __float_as_uint(widen(f16{ (uint16_t)noise(t) })) & 0x7fc00000;
	out[128 + t] = __float_as_uint(warp_sum(small(t)));
	out[160 + t] = __float_as_uint(warp_max(small(t)));
	/* approximate: rounded */
	out[192 + t] = (uint32_t)(exp2_fast(small(t)) * 1024 + 0.5f);
	out[224 + t] = __ballot_sync(ALL_LANES, noise(t) & 1);
	out[256 + t] = __float_as_uint(exp2_fast(-INFINITY));
	out[288 + t] = load_l2(in + t);
}

/* Two halves, some of them subnormal (below 2^-14): any bits but infinities and NaNs */
DEVICE uint32_t
halves_of(uint32_t x)
{
	return noise(x) & (x % 3 == 0 ? 0x83ff83ffu : 0xbbffbbffu);
}

/* Arithmetic on halves, which would show a flush of subnormals to 0; and on integers */
static __global__ void
halves(uint32_t *out)
{
	const uint32_t t = threadIdx.x;
	const uint32_t x = halves_of(t + 1), y = halves_of(1000 + t), nan = t % 5 == 0 ? 0x7e00 : 0;
	uint32_t a[4], b[2];
	float d[4] = {};

	out[t] = mul_f16x2(x, y);
	out[32 + t] = mul_f16x2(x, pair<f16>(small(t) * 64, small(t + 32) * 64));
	out[64 + t] = max_f16x2(x | nan, y);
	for (int i = 0; i < 4; i++)      /* one bit of the lowest ten in each half */
		a[i] = 0x00010001u << noise(t * 4 + i) % 10;
	for (int i = 0; i < 2; i++)
		b[i] = pair<f16>(small(t * 2 + i), small(t * 2 + i + 500));
	mma(f16{}, d, a, b);
	for (int i = 0; i < 4; i++)
		out[96 + t * 4 + i] = __float_as_uint(d[i]);
	out[224 + t] = warp_sum_u32(noise(t) % 1000);
	out[256 + t] = warp_scan(noise(t) % 1000);
}

/* Two products of a warpgroup that add to small numbers, and one that does not. All of shared
 * memory is small numbers, so matrices may be anywhere. */
template <class T, int N, bool TRANSPOSED, bool REGISTERS>
static __global__ void
warpgroup_products(uint32_t *out)
{
	DYN_SHARED(T, m);
	const uint32_t t = threadIdx.x;
	const uint64_t a = matrix_descriptor(m, 0, 1024) + 2, b = TRANSPOSED ?
	    matrix_descriptor(m + 5120, 4096, 2048) : matrix_descriptor(m + 5120, 0, 2048) + 4;
	float d[N / 2], e[N / 2];
	uint32_t x[4], sum = 0;

	for (uint32_t i = t; i < 24576; i += 128)
		m[i] = narrow<T>(small(i));
	for (int i = 0; i < 4; i++)
		x[i] = pair<T>(small(t * 16 + i), small(t * 16 + i + 8));
UNROLL	for (int i = 0; i < N / 2; i++)
		d[i] = e[i] = small(3000 + t * 64 + i);
	fence_proxy_async();
	__syncthreads();
	settled(d);
	settled(e);
	wgmma_fence();
	for (int k = 0; k < 2; k++) {
		const uint64_t next = b + k * (TRANSPOSED ? 256 : 2);

		if constexpr (REGISTERS)
			wgmma_rs<T, N, TRANSPOSED>(d, x, next, true);
		else
			wgmma_ss<T, N, TRANSPOSED>(d, a + k * 2, next, true);
	}
	wgmma_commit();
	if constexpr (REGISTERS)
		wgmma_rs<T, N, TRANSPOSED>(e, x, b, false);
	else
		wgmma_ss<T, N, TRANSPOSED>(e, a, b, false);
	wgmma_commit();
	wgmma_wait<1>();
	settled(d);
UNROLL	for (int i = 0; i < N / 2; i++)
		sum = sum * 31 + (uint32_t)(int)d[i];
	wgmma_wait<0>();
	settled(e);
UNROLL	for (int i = 0; i < N / 2; i++)
		sum = sum * 31 + (uint32_t)(int)e[i];
	out[t] = sum;
}

/* Three rounds: warp 0 writes, to shared memory or to that of the device, warp 1 reads and lets it
 * write again. */
template <bool ON_DEVICE>
static __global__ void
barriers(uint32_t *out)
{
	DYN_SHARED(uint64_t, full);
	uint64_t *const empty = full + 1;
	uint32_t *const word = ON_DEVICE ? out + 96 : (uint32_t *)(full + 2);
	const uint32_t t = threadIdx.x, lane = t % 32;

	if (t == 0) {
		mbarrier_init(full, 32);
		mbarrier_init(empty, 1);
	}
	__syncthreads();
	for (uint32_t round = 0; round < 3; round++) {
		if (t < 32) {
			mbarrier_wait(empty, round % 2 ^ 1);
			word[lane] = noise(round * 32 + lane);
			mbarrier_arrive(full);
			bar_arrive(1 + round, 64);
		} else {
			mbarrier_wait(full, round % 2);
			bar_sync(1 + round, 64);
			out[round * 32 + lane] = word[lane ^ 1];
			__syncwarp();
			if (lane == 0)
				mbarrier_arrive(empty);
		}
	}
}

static void
print(struct dev *d, const char *what, uint32_t *out, int words)
{
	uint32_t host[WORDS];
	uint64_t h = 14695981039346656037u;

	if (cudaMemcpyAsync(host, out, sizeof host, cudaMemcpyDeviceToHost,
	    d->stream) != cudaSuccess || cudaStreamSynchronize(d->stream) != cudaSuccess) {
		fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(cudaGetLastError()));
		exit(1);
	}
	for (int i = 0; i < words; i++)
		h = (h ^ host[i]) * 1099511628211u;
	printf("%-24s %016llx  %08x %08x\n", what, (unsigned long long)h, host[0], host[words - 1]);
}

template <class T>
static void
print_products(struct dev *d, const char *type, uint32_t *out)
{
	const size_t shared = 48 << 10;
	char what[64];

	const auto line = [&](const char *name) {
		snprintf(what, sizeof what, "%s %s", name, type);
		print(d, what, out, 128);
	};
	LAUNCH(d, (warpgroup_products<T, 64, false, false>), 1, 128, shared, out);
	line("wgmma_ss n64");
	LAUNCH(d, (warpgroup_products<T, 128, false, false>), 1, 128, shared, out);
	line("wgmma_ss n128");
	LAUNCH(d, (warpgroup_products<T, 64, true, true>), 1, 128, shared, out);
	line("wgmma_rs n64, turned");
	LAUNCH(d, (warpgroup_products<T, 128, true, true>), 1, 128, shared, out);
	line("wgmma_rs n128, turned");
}

static void
print_hopper(struct dev *d, uint32_t *out)
{
	print_products<bf16>(d, "bf16", out);
	print_products<f16>(d, "f16", out);
	LAUNCH(d, barriers<false>, 1, 64, 1024, out);
	print(d, "mbarrier, bar", out, 96);
	LAUNCH(d, barriers<true>, 1, 64, 1024, out);
	print(d, "mbarrier, bar, on device", out, 128);
}

int
main(void)
{
	struct dev dev = {}, *d = &dev;
	cudaDeviceProp properties;
	uint32_t host[WORDS], *in, *out;

	if (cudaStreamCreateWithFlags(&dev.stream, cudaStreamNonBlocking) != cudaSuccess ||
	    cudaMalloc((void **)&in, sizeof host) != cudaSuccess ||
	    cudaMalloc((void **)&out, sizeof host) != cudaSuccess ||
	    cudaGetDeviceProperties(&properties, 0) != cudaSuccess) {
		fprintf(stderr, "primitives: no GPU, or no memory on it\n");
		return 1;
	}
	for (uint32_t i = 0; i < WORDS; i++)
		host[i] = i * 2654435761u;
	cudaMemcpyAsync(in, host, sizeof host, cudaMemcpyHostToDevice, d->stream);
	LAUNCH(d, products<bf16>, 1, 32, 0, out);
	print(d, "mma bf16", out, 128);
	LAUNCH(d, products<f16>, 1, 32, 0, out);
	print(d, "mma f16", out, 128);
	LAUNCH(d, bytes, 1, 32, 0, out);
	print(d, "mma of bytes", out, 128);
	LAUNCH(d, matrices<false>, 1, 32, 2048, out);
	print(d, "ldmatrix_x4", out, 128);
	LAUNCH(d, matrices<true>, 1, 32, 2048, out);
	print(d, "ldmatrix_x4 transposed", out, 128);
	LAUNCH(d, copies, 1, 32, 1024, out, in);
	print(d, "cp_async16", out, 256);
	LAUNCH(d, scalars, 1, 32, 0, out, in);
	print(d, "scalars", out, 320);
	LAUNCH(d, halves, 1, 32, 0, out);
	print(d, "halves", out, 288);
	if (properties.major == 9 && properties.minor == 0)
		print_hopper(d, out);
	cudaStreamDestroy(dev.stream);
	cudaFree(in);
	cudaFree(out);
	return 0;
}
