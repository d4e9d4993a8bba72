/* emulator_devices.cc - the three devices, and the names of errors
 *
 * For tests: $KV_EMULATED_DRIVER is the version of the driver (0: none), $KV_EMULATED_GPUS
 * how many devices there are, $KV_EMULATED_CAPABILITY ten times their compute capability,
 * $KV_EMULATED_POOLS whether they have memory pools (0: no). */
#include "tests/cuda/emulator.h"

#include <stdio.h>
#include <stdlib.h>

namespace emulator {
int device;
struct total total;
}
using namespace emulator;

/* Its presence tells tests that they run on the emulator. */
extern "C" const int cuda_emulated = 1;

/* For leak checks: bytes of memory, streams and graphs that exist */
extern "C" size_t
cuda_emulated_held(void)
{
	ALONE();
	return memory_held() + streams_held() + graphs_held();
}

extern "C" unsigned long cuda_launches, cuda_graphs, cuda_products;

static void __attribute__((destructor))
print_totals(void)
{
	if (getenv("KV_EMULATED_TOTALS") != NULL)
		fprintf(stderr, "emulator: %lu kernels, %lu products, %lu graphs, copies: %lu up, "
		    "%lu down (%lu bytes), %lu within, %lu waits, %lu blocking calls for memory, "
		    "%lu bytes copied up, %lu read by kernels\n",
		    cuda_launches, cuda_products, cuda_graphs, total.up, total.down,
		    total.down_bytes, total.within, total.waits, total.blocking, total.up_bytes,
		    total.read_bytes);
}

const char *
cudaGetErrorName(cudaError_t e)
{
	switch (e) {
	case cudaSuccess: return "cudaSuccess";
	case cudaErrorInvalidValue: return "cudaErrorInvalidValue";
	case cudaErrorMemoryAllocation: return "cudaErrorMemoryAllocation";
	case cudaErrorInsufficientDriver: return "cudaErrorInsufficientDriver";
	case cudaErrorNoDevice: return "cudaErrorNoDevice";
	case cudaErrorInvalidDevice: return "cudaErrorInvalidDevice";
	case cudaErrorNotSupported: return "cudaErrorNotSupported";
	case cudaErrorStreamCaptureUnsupported: return "cudaErrorStreamCaptureUnsupported";
	case cudaErrorStreamCaptureInvalidated: return "cudaErrorStreamCaptureInvalidated";
	case cudaErrorStreamCaptureIsolation: return "cudaErrorStreamCaptureIsolation";
	case cudaErrorCapturedEvent: return "cudaErrorCapturedEvent";
	case cudaErrorIllegalAddress: return "cudaErrorIllegalAddress";
	case cudaErrorUnknown: return "cudaErrorUnknown";
	}
	return "unknown";
}

const char *cudaGetErrorString(cudaError_t e) { return cudaGetErrorName(e); }
cudaError_t cudaRuntimeGetVersion(int *v) { *v = 13000; return cudaSuccess; }

cudaError_t
cudaDriverGetVersion(int *v)
{
	*v = setting("KV_EMULATED_DRIVER", 13000);
	return cudaSuccess;
}

cudaError_t
cudaGetDeviceCount(int *n)
{
	ALONE();
	*n = setting("KV_EMULATED_GPUS", 3);
	return *n == 0 ? told(cudaErrorNoDevice) : failure();
}

cudaError_t
cudaSetDevice(int d)
{
	ALONE();
	if (d < 0 || d > 2)
		return told(cudaErrorInvalidDevice);
	device = d;
	return cudaSuccess;
}

cudaError_t
cudaDeviceGetAttribute(int *value, cudaDeviceAttr, int)
{
	ALONE();
	*value = setting("KV_EMULATED_POOLS", 1);
	return failure();
}

cudaError_t
cudaGetDeviceProperties(cudaDeviceProp *p, int d)
{
	ALONE();
	static const char *const order[] = { "in order", "reversed", "random order" };
	const int capability = setting("KV_EMULATED_CAPABILITY", 80);

	*p = {};
	snprintf(p->name, sizeof p->name, "emulated, %s", order[d]);
	p->uuid.bytes[0] = (char)d;
	p->totalGlobalMem = device_bytes();
	p->sharedMemPerBlockOptin = MOST_SHARED;
	p->major = capability / 10;
	p->minor = capability % 10;
	p->multiProcessorCount = 3;
	p->l2CacheSize = 4 << 20;
	return failure();
}
