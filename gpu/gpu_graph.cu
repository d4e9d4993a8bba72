/* gpu_graph.cu - CUDA graphs: ops that are captured once and launched many times
 *
 * A decode step is a few hundred kernels of some microseconds each. Launched one by one they
 * leave gaps and keep the host busy; a graph is one launch, with about a microsecond between its
 * kernels. The arguments of a captured kernel never change, but every step appends a row. As
 * every KV head of every layer grows by the same number, one counter on the device is enough:
 * kernels that take a struct rows add *rows.appended to every length (appended_rows()). Grids
 * must not depend on lengths. Where an eviction follows every step, the counter is reset to 0
 * before each launch, and the graph may have ops that know the lengths of the capture only.
 *
 * The graph holds pointers into scratch: once scratch has been reallocated it cannot be
 * launched any more. */
#include <stdio.h>

#include "gpu/gpu_internal.h"

/* The last kernel of the graph: one more row appended, the next position */
static __global__ void
count_step(uint32_t *appended, uint32_t *pos)
{
	++*appended;
	++*pos;
}

static __global__ void
set_appended(uint32_t *appended, uint32_t n)
{
	*appended = n;
}

void
gpu_graph_drop(struct dev *d)
{
	if (d->graph != NULL)
		cudaGraphExecDestroy(d->graph);
	d->graph = NULL;
}

/* A capture that fails is not a failure of the device: clears the error, and describe() says
 * from now on that steps are not captured, and why. Returns 0. */
static uint32_t
capture_failed(struct dev *d)
{
	static const char what[] = "; steps are not recorded: ";
	char *at = strstr(d->text, what);

	if (at == NULL)
		at = d->text + strlen(d->text);
	snprintf(at, (size_t)(d->text + sizeof d->text - at), "%s%s", what, d->error);
	d->error[0] = '\0';
	return 0;
}

/* Loading a kernel at its first launch may not be allowed during a capture: count_step() is
 * launched here once, with a counter for a position, and the ops' kernels have run before. */
int
gpu_graph_begin(struct dev *d)
{
	if (!gpu_ok(d) || d->capturing)
		return 0;
	gpu_graph_drop(d);
	if (d->appended == NULL &&
	    (d->appended = (uint32_t *)gpu_alloc(d, sizeof *d->appended)) == NULL)
		gpu_fail(d, "no memory");
	LAUNCH(d, count_step, 1, 1, 0, d->appended, d->appended);
	LAUNCH(d, set_appended, 1, 1, 0, d->appended, 0u);
	if (!gpu_ok(d) || !gpu_check(d, "cudaStreamBeginCapture", cudaStreamBeginCapture(d->stream,
	    cudaStreamCaptureModeThreadLocal)))
		return (int)capture_failed(d);
	gpu_forget(d);
	d->capturing = 1;
	d->fixed_lengths = false;
	d->appended_next = 0;
	d->captures++;
	d->scratch_moves_then = d->scratch_moves;
	return 1;
}

/* An op that failed during the capture has not been executed: its error is cleared, too. */
uint32_t
gpu_graph_end(struct dev *d, uint32_t *pos)
{
	cudaGraph_t graph = NULL;

	if (!d->capturing)
		return 0;
	LAUNCH(d, count_step, 1, 1, 0, d->appended, pos);
	d->capturing = 0;
	if (gpu_check(d, "cudaStreamEndCapture", cudaStreamEndCapture(d->stream, &graph)) &&
	    gpu_ok(d) && !gpu_check(d, "cudaGraphInstantiate",
	    cudaGraphInstantiate(&d->graph, graph, 0)))
		d->graph = NULL;
	if (graph != NULL)
		cudaGraphDestroy(graph);
	gpu_forget(d);
	return d->graph != NULL ? d->captures : capture_failed(d);
}

int
gpu_graph_launch(struct dev *d, uint32_t graph, uint32_t more)
{
	if (!gpu_ok(d) || d->capturing || d->graph == NULL || graph != d->captures ||
	    d->scratch_moves != d->scratch_moves_then || (more > 0 && d->fixed_lengths))
		return 0;
	if (more != d->appended_next)
		LAUNCH(d, set_appended, 1, 1, 0, d->appended, more);
	d->appended_next = more + 1;
	gpu_forget(d);
	d->after_cublas = false;
	cudaSetDevice(d->index);
	d->kernel = "of a recorded step";
	return gpu_check(d, "recorded step", cudaGraphLaunch(d->graph, d->stream));
}
