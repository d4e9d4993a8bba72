/* emulator_devices.cc - the three devices, and the errors of the runtime
 *
 * What tests see of the emulator is here: that it is one, what was not given back, and the call
 * that is to fail. */
#include "tests/cuda/emulator.h"

#include <stdio.h>
#include <stdlib.h>

namespace emulator {
int device;
struct total total;
}
using namespace emulator;

/* What the tests know it by */
extern "C" const int cuda_emulated = 1;
/* The so-manyth call from now on that can fail does; 0: none. */
extern "C" { int cuda_emulated_failure; }

/* What was taken and not given back: bytes of memory, streams and graphs */
extern "C" size_t
cuda_emulated_held(void)
{
	ALONE();
	return memory_held() + streams_held() + graphs_held();
}

extern "C" unsigned long cuda_launches;

static void __attribute__((destructor))
print_totals(void)
{
	if (getenv("KV_EMULATED_TOTALS") != NULL)
		fprintf(stderr, "emulator: %lu launches, copies: %lu up, %lu down, %lu within, "
		    "%lu waits\n", cuda_launches, total.up, total.down, total.within, total.waits);
}

cudaError_t
emulator::failure(void)
{
	return cuda_emulated_failure > 0 && --cuda_emulated_failure == 0 ? cudaErrorUnknown :
	    cudaSuccess;
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
	case cudaErrorUnknown: return "cudaErrorUnknown";
	}
	return "unknown";
}

const char *cudaGetErrorString(cudaError_t e) { return cudaGetErrorName(e); }
cudaError_t cudaDriverGetVersion(int *v) { *v = 13000; return cudaSuccess; }
cudaError_t cudaRuntimeGetVersion(int *v) { *v = 13000; return cudaSuccess; }
cudaError_t cudaGetDeviceCount(int *n) { *n = 3; return cudaSuccess; }

cudaError_t
cudaSetDevice(int d)
{
	ALONE();
	if (d < 0 || d > 2)
		return cudaErrorInvalidDevice;
	device = d;
	return cudaSuccess;
}

cudaError_t
cudaGetDeviceProperties(cudaDeviceProp *p, int d)
{
	static const char *const order[] = { "in order", "reversed", "random order" };

	*p = {};
	snprintf(p->name, sizeof p->name, "emulated, %s", order[d]);
	p->totalGlobalMem = device_bytes();
	p->sharedMemPerBlockOptin = MOST_SHARED;
	p->major = 8;
	p->multiProcessorCount = 3;
	p->l2CacheSize = 4 << 20;
	return cudaSuccess;
}
