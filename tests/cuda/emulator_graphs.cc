/* emulator_graphs.cc - stream capture and graphs
 *
 * During a capture launches and copies are recorded with copies of their arguments, and
 * executed by each launch of the graph. Calls that are not allowed then invalidate the
 * capture, as on a GPU. One stream at a time, without branches.
 *
 * A driver loads a kernel at its first launch (lazy loading), which may wait for the device, and so
 * must not be in a capture. */
#include "tests/cuda/emulator.h"

#include <set>
#include <thread>
#include <vector>

using namespace emulator;

struct emulated_graph {
	std::vector<std::function<void(void)>> work;
};

struct emulated_graph_exec {
	std::vector<std::function<void(void)>> work;
};

static struct {
	cudaStream_t stream;           /* NULL: none is being captured */
	std::thread::id thread;
	cudaGraph_t graph;
	bool broken;
} capture;
static size_t held;

/* For tests: graphs launched so far */
extern "C" unsigned long cuda_graphs;
unsigned long cuda_graphs;

bool
emulator::capturing(cudaStream_t s)
{
	return s != NULL && s == capture.stream;
}

cudaError_t
emulator::capture_work(std::function<void(void)> &&work)
{
	if (capture.broken)
		return told(cudaErrorStreamCaptureInvalidated);
	capture.graph->work.push_back(std::move(work));
	return cudaSuccess;
}

cudaError_t
emulator::invalidates_capture(cudaError_t e)
{
	if (capture.stream == NULL || capture.thread != std::this_thread::get_id())
		return cudaSuccess;
	capture.broken = true;
	return told(e);
}

size_t
emulator::graphs_held(void)
{
	return held;
}

void
emulator::load(cudaStream_t s, const std::string &kernel, const char *name)
{
	static std::set<std::pair<int, std::string>> loaded;

	if (loaded.count({ device, kernel }) > 0)
		return;
	if (capturing(s) && !capture.broken)
		die("%s is launched for the first time, in a capture", name);
	if (!capturing(s))
		loaded.insert({ device, kernel });
}

void
emulator::launch(cudaStream_t s, bool late, const char *name, const void *kernel, dim3 grid,
    dim3 block, size_t dynamic, std::function<void(void)> &&body)
{
	ALONE();
	const size_t granted = shared_granted(kernel);

	if (failure("launch") != cudaSuccess)
		return;
	load(s, std::string((const char *)&kernel, sizeof kernel), name);
	set_last(s, NULL);
	if (capturing(s)) {
		capture_work([=, body = std::move(body)] {
			run_grid(name, grid, block, dynamic, granted, body);
		});
		return;
	}
	if (late) {
		enqueue_kernel(s, [=] { run_grid(name, grid, block, dynamic, granted, body); });
		return;
	}
	finish_stream(s);
	run_grid(name, grid, block, dynamic, granted, body);
}

cudaError_t
cudaStreamBeginCapture(cudaStream_t s, cudaStreamCaptureMode)
{
	ALONE();
	if (capture.stream != NULL)
		die("two streams are captured at the same time");
	if (failure())
		return cudaErrorUnknown;
	capture = { s, std::this_thread::get_id(), new emulated_graph(), false };
	set_last(s, "the beginning of a capture");
	held++;
	return cudaSuccess;
}

cudaError_t
cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *graph)
{
	ALONE();
	const bool broken = capture.broken;

	*graph = NULL;
	if (!capturing(s))
		die("a stream that is not captured ends that");
	*graph = capture.graph;
	capture = {};
	if (!broken && !failure())
		return cudaSuccess;
	cudaGraphDestroy(*graph);
	*graph = NULL;
	return told(cudaErrorStreamCaptureInvalidated);
}

cudaError_t
cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long)
{
	ALONE();
	*exec = NULL;
	if (failure())
		return cudaErrorUnknown;
	*exec = new emulated_graph_exec{ graph->work };
	held++;
	return cudaSuccess;
}

cudaError_t
cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t s)
{
	ALONE();
	if (capture.stream != NULL)
		die("a graph is launched while another one is captured");
	if (failure())
		return cudaErrorUnknown;
	cuda_graphs++;
	finish_stream(s);
	set_last(s, "a graph");
	for (const auto &work : exec->work)
		work();
	return cudaSuccess;
}

cudaError_t
cudaGraphDestroy(cudaGraph_t graph)
{
	ALONE();
	delete graph;
	held--;
	return cudaSuccess;
}

cudaError_t
cudaGraphExecDestroy(cudaGraphExec_t exec)
{
	ALONE();
	delete exec;
	held--;
	return cudaSuccess;
}
