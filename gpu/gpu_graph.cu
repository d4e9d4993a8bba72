/* gpu_graph.cu - ops that are taken down once and carried out many times: a CUDA graph
 *
 * A step of decoding is a few hundred kernels of some microseconds each. Launched one by one they
 * leave gaps, and keep the host busy; a graph is launched once, with about a microsecond between its
 * kernels. Arguments are those of the recording, but rows come with every step. Since each KV head of
 * each layer then grows by the same, one counter on the device is all that has to change: kernels
 * that take rows by struct rows add *rows.grown to every length (grown_by()). Grids must not depend
 * on lengths.
 *
 * Scratch must stay where it was. Where it has moved since, there is nothing to replay. */
#include <stdio.h>

#include "gpu/gpu_internal.h"

/* The end of a replay: a row more, a position further. pos NULL: the beginning. */
static __global__ void
count(uint32_t *grown, uint32_t *pos)
{
	*grown = pos == NULL ? 0 : *grown + 1;
	if (pos != NULL)
		++*pos;
}

void
gpu_record_end(struct dev *d)
{
	if (d->graph != NULL)
		cudaGraphExecDestroy(d->graph);
	d->graph = NULL;
}

/* What has failed is no failure, and is forgotten: steps are not recorded. describe() says so, and
 * why, since else nobody would know. */
static uint32_t
cannot(struct dev *d)
{
	static const char what[] = "; steps are not recorded: ";
	char *at = strstr(d->text, what);

	if (at == NULL)
		at = d->text + strlen(d->text);
	snprintf(at, (size_t)(d->text + sizeof d->text - at), "%s%s", what, d->error);
	d->error[0] = '\0';
	return 0;
}

/* What does not work here is no failure: then there is no recording, and ops are carried out. Kernels
 * are loaded when they run for the first time, which a capture may not allow: count() does so here,
 * those of the ops have run before. */
int
gpu_graph_begin(struct dev *d)
{
	if (!gpu_ok(d) || d->recording)
		return 0;
	gpu_record_end(d);
	if (d->grown == NULL && (d->grown = (uint32_t *)gpu_alloc(d, sizeof *d->grown)) == NULL)
		gpu_fail(d, "no memory");
	LAUNCH(d, count, 1, 1, 0, d->grown, NULL);
	if (!gpu_ok(d) || !gpu_check(d, "cudaStreamBeginCapture", cudaStreamBeginCapture(d->stream,
	    cudaStreamCaptureModeThreadLocal)))
		return (int)cannot(d);
	gpu_forget(d);
	d->recording = 1;
	d->recordings++;
	d->moves_then = d->moves;
	return 1;
}

/* What failed while ops were taken down has not happened. */
uint32_t
gpu_graph_end(struct dev *d, uint32_t *pos)
{
	cudaGraph_t graph = NULL;

	if (!d->recording)
		return 0;
	LAUNCH(d, count, 1, 1, 0, d->grown, pos);
	d->recording = 0;
	if (gpu_check(d, "cudaStreamEndCapture", cudaStreamEndCapture(d->stream, &graph)) &&
	    gpu_ok(d) && !gpu_check(d, "cudaGraphInstantiate",
	    cudaGraphInstantiate(&d->graph, graph, 0)))
		d->graph = NULL;
	if (graph != NULL)
		cudaGraphDestroy(graph);
	gpu_forget(d);
	return d->graph != NULL ? d->recordings : cannot(d);
}

int
gpu_graph_launch(struct dev *d, uint32_t recorded)
{
	if (!gpu_ok(d) || d->recording || d->graph == NULL || recorded != d->recordings ||
	    d->moves != d->moves_then)
		return 0;
	gpu_forget(d);
	cudaSetDevice(d->index);
	d->kernel = "of a recorded step";
	return gpu_check(d, "recorded step", cudaGraphLaunch(d->graph, d->stream));
}
