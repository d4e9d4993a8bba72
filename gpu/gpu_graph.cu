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
 * Lists of the host, as the calls of attend_each() are one, are copied when the capture has ended,
 * to memory of the graph: a copy that is captured would be made at each launch.
 *
 * The graph holds pointers into scratch: once scratch has been reallocated it cannot be
 * launched any more. */
#include <stdio.h>
#include <stdlib.h>

#include "gpu/gpu_internal.h"

/* The last kernel of the graph: one more row appended, the next position */
static __global__ void
count_step(uint32_t *appended, uint32_t *pos)
{
	++*appended;
	if (pos != NULL)
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
	gpu_free(d, d->lists.at);
	free(d->lists.host);
	d->lists = {};
}

/* ---- lists ---- */

/* Most bytes of the lists of a graph: 64 sequences of 100 layers with 128 KV heads */
#define MOST_LISTS ((size_t)32 << 20)

/* Memory for the lists of a step, as it cannot be allocated during the capture: what has been
 * listed since the last capture is at least a step's. */
static void
alloc_lists(struct dev *d)
{
	const size_t bytes = d->listed < MOST_LISTS ? d->listed : MOST_LISTS;

	d->listed = 0;
	if (bytes == 0)
		return;
	d->lists = { (char *)gpu_alloc(d, bytes), (char *)malloc(bytes), bytes, 0 };
	if (d->lists.at == NULL || d->lists.host == NULL)
		gpu_fail(d, "no memory for %zu bytes of lists", bytes);
}

void *
gpu_graph_list(struct dev *d, const void *host, size_t bytes)
{
	const size_t at = d->lists.used;

	if (bytes > d->lists.bytes - at)
		gpu_fail(d, "a list of %zu bytes, behind %zu of %zu", bytes, at, d->lists.bytes);
	if (!gpu_ok(d))
		return NULL;
	memcpy(d->lists.host + at, host, bytes);
	d->lists.used += min(gpu_list_size(bytes), d->lists.bytes - at);
	return d->lists.at + at;
}

/* The capture has ended. */
static void
put_lists(struct dev *d)
{
	if (d->lists.used > 0)
		gpu_put(d, d->lists.at, d->lists.host, d->lists.used);
	free(d->lists.host);
	d->lists.host = NULL;
}

/* ---- capture and launch ---- */

/* A capture that fails is not a failure of the device: clears the error, and describe() says
 * from now on that steps are not captured, and why. Returns 0. */
static uint32_t
capture_failed(struct dev *d)
{
	static const char what[] = "; steps are not captured: ";
	char *at = strstr(d->text, what);

	if (at == NULL)
		at = d->text + strlen(d->text);
	snprintf(at, (size_t)(d->text + sizeof d->text - at), "%s%s", what, d->error);
	d->error[0] = '\0';
	return 0;
}

/* Loading a kernel at its first launch may not be allowed during a capture: count_step() is
 * launched here once, and the ops' kernels have run before. */
int
gpu_graph_begin(struct dev *d)
{
	if (!gpu_ok(d) || d->capturing)
		return 0;
	gpu_graph_drop(d);
	alloc_lists(d);
	if (d->appended == NULL &&
	    (d->appended = (uint32_t *)gpu_alloc(d, sizeof *d->appended)) == NULL)
		gpu_fail(d, "no memory");
	LAUNCH(d, set_appended, 1, 1, 0, d->appended, UINT32_MAX);
	LAUNCH(d, count_step, 1, 1, 0, d->appended, NULL);              /* 0 */
	if (!gpu_ok(d) || !gpu_check(d, "cudaStreamBeginCapture", cudaStreamBeginCapture(d->stream,
	    cudaStreamCaptureModeThreadLocal)))
		return (int)capture_failed(d);
	gpu_forget(d);
	d->no_early_start = true;
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
	put_lists(d);
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
	if (!gpu_ok(d))
		return 0;
	gpu_forget(d);
	d->no_early_start = true;
	cudaSetDevice(d->index);
	d->kernel = "of a captured step";
	return gpu_check(d, "captured step", cudaGraphLaunch(d->graph, d->stream));
}
