/* event_clock.cu - seconds between two points of a device's stream, and graphs of any ops, for
 * bench_gpu
 *
 * Events around the work measure what the GPU does, not what the host does. So that the GPU
 * does not wait for launches in between, a filler kernel runs in front of the first event while
 * the host queues the work. torch.cuda._sleep() and torch.cuda.Event do the same in peers.py.
 *
 * The backend's own graphs refuse ops whose arguments change from step to step. Here every call is
 * the same, so the stream is captured behind the backend's back, as torch.cuda.graph() does it.
 * Only an op that puts something is refused: the backend refills the buffer which the graph would
 * copy from. */
#include <stdio.h>
#include <stdlib.h>

#include "gpu/gpu_internal.h"

extern "C" {
#include "tests/gpu/event_clock.h"
}

/* Nanoseconds of the GPU; the emulator has no such clock, and nothing to hide. */
DEVICE uint64_t
timer(void)
{
#ifdef CUDA_EMULATED
	return UINT64_MAX;
#else
	uint64_t t;

	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
	return t;
#endif
}

static __global__ void
filler(uint64_t ns)
{
	const uint64_t from = timer();

	while (timer() - from < ns && from != UINT64_MAX)
		;
}

static cudaEvent_t first, last;

static void
must(const char *what, cudaError_t e)
{
	if (e == cudaSuccess)
		return;
	fprintf(stderr, "event clock: %s: %s\n", what, cudaGetErrorString(e));
	exit(1);
}

void
clock_start(struct dev *d, double seconds)
{
	cudaSetDevice(d->index);
	if (first == NULL) {
		must("cudaEventCreate", cudaEventCreateWithFlags(&first, 0));
		must("cudaEventCreate", cudaEventCreateWithFlags(&last, 0));
	}
	LAUNCH(d, filler, 1, 1, 0, (uint64_t)(seconds * 1e9));
	must("cudaEventRecord", cudaEventRecord(first, d->stream));
}

double
clock_stop(struct dev *d)
{
	float ms = 0;

	must("cudaEventRecord", cudaEventRecord(last, d->stream));
	must("cudaEventSynchronize", cudaEventSynchronize(last));
	must("cudaEventElapsedTime", cudaEventElapsedTime(&ms, first, last));
	return ms * 1e-3;
}

/* Of the buffers of put(), when the capture began */
static struct {
	unsigned turn;
	size_t used;
} staged;

int
calls_capture(struct dev *d)
{
	cudaError_t e;

	gpu_forget(d);
	d->no_early_start = true;
	staged = { d->out.turn, d->out.used };
	cudaSetDevice(d->index);
	e = cudaStreamBeginCapture(d->stream, cudaStreamCaptureModeThreadLocal);
	if (e == cudaSuccess)
		return 1;
	cudaGetLastError();
	fprintf(stderr, "event clock: not captured: %s\n", cudaGetErrorString(e));
	return 0;
}

struct calls *
calls_captured(struct dev *d)
{
	cudaGraph_t graph = NULL;
	cudaGraphExec_t exec = NULL;
	cudaError_t e = cudaStreamEndCapture(d->stream, &graph);

	gpu_forget(d);
	if (d->out.turn != staged.turn || d->out.used != staged.used)
		gpu_fail(d, "an op puts something: that of %s", d->kernel);
	if (e == cudaSuccess && gpu_ok(d))
		e = cudaGraphInstantiate(&exec, graph, 0);
	if (e != cudaSuccess)
		gpu_check(d, "capture", e);
	if (graph != NULL)
		cudaGraphDestroy(graph);
	if (gpu_ok(d))
		return (struct calls *)exec;
	fprintf(stderr, "event clock: not captured: %s\n", d->error);
	d->error[0] = '\0';
	return NULL;
}

void
calls_launch(struct dev *d, struct calls *c)
{
	must("cudaGraphLaunch", cudaGraphLaunch((cudaGraphExec_t)c, d->stream));
	d->no_early_start = true;
}

void
calls_free(struct calls *c)
{
	if (c != NULL)
		cudaGraphExecDestroy((cudaGraphExec_t)c);
}
