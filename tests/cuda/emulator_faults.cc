/* emulator_faults.cc - error injection for tests
 *
 * A unit test counts calls (cuda_emulated_failure). For whole programs $KV_EMULATED_FAILURE
 * is CALL:N: the Nth call of that function of the runtime or of cuBLAS fails. `launch:N`: the
 * Nth launch is refused. `kernel:N`: the Nth kernel makes an illegal access; the call that
 * waits for it reports the error, and every later call fails, as on a GPU. `hang:N`: the Nth
 * kernel says so on standard error and never ends.
 *
 * $KV_EMULATED_WRONG is a part of the names of kernels that do nothing. */
#include "tests/cuda/emulator.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <string>

/* n > 0: the nth call from now on that can fail does. */
extern "C" { int cuda_emulated_failure; }

namespace emulator {
namespace {

bool faulted;                          /* a kernel has faulted */
thread_local cudaError_t last_error;

/* Is this the call that is to fail? */
bool
due(const char *call)
{
	static const char *const plan = getenv("KV_EMULATED_FAILURE");
	static const char *const colon = plan != NULL ? strrchr(plan, ':') : NULL;
	static unsigned long left = colon != NULL ? strtoul(colon + 1, NULL, 10) : 0;

	return left > 0 && std::string(plan, colon) == call && --left == 0;
}

} // namespace

int
setting(const char *name, int otherwise)
{
	const char *text = getenv(name);

	return text != NULL ? atoi(text) : otherwise;
}

cudaError_t
told(cudaError_t e)
{
	if (e != cudaSuccess)
		last_error = e;
	return e;
}

cudaError_t
failure(const char *call)
{
	return told(wanted(call));
}

cudaError_t
wanted(const char *call)
{
	if (faulted)
		return cudaErrorIllegalAddress;
	if (due(call) || (cuda_emulated_failure > 0 && --cuda_emulated_failure == 0))
		return cudaErrorUnknown;
	return cudaSuccess;
}

bool
kernel_faults(const char *kernel)
{
	static const char *const wrong = getenv("KV_EMULATED_WRONG");

	if (due("hang")) {
		fprintf(stderr, "emulator: %s hangs\n", kernel);
		for (;;)
			pause();
	}
	if (due("kernel"))
		faulted = true;
	return faulted || (wrong != NULL && strstr(kernel, wrong) != NULL);
}

} // namespace emulator

/* The error of any failed call stays until it is read here. */
cudaError_t
cudaGetLastError(void)
{
	const cudaError_t e = emulator::last_error;

	emulator::last_error = cudaSuccess;
	return e;
}
