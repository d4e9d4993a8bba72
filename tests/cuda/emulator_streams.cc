/* emulator_streams.cc - streams, events, copies
 *
 * What a stream was asked for is done as late as may be: when somebody waits for it. */
#include "tests/cuda/emulator.h"

#include <deque>
#include <set>

struct pending {
	void *to = NULL;
	const void *from = NULL;       /* NULL: a byte instead */
	size_t bytes = 0;
	int byte = 0;
	cudaStream_t stream = NULL;    /* not NULL: waits until so much of that stream is done */
	uint64_t until = 0;
};

struct emulated_stream {
	std::deque<struct pending> queue;
	uint64_t queued, done;
};

struct emulated_event {
	cudaStream_t stream;           /* NULL: not recorded yet */
	uint64_t until;
};

using namespace emulator;

static std::set<cudaStream_t> streams;

static void
finish(cudaStream_t s, uint64_t until)
{
	while (s->done < until && !s->queue.empty()) {
		const struct pending p = s->queue.front();

		s->queue.pop_front();
		s->done++;
		if (p.stream != NULL) {
			if (streams.count(p.stream) > 0)
				finish(p.stream, p.until);
			continue;
		}
		uncover();
		if (p.from != NULL)
			memcpy(p.to, p.from, p.bytes);
		else
			memset(p.to, p.byte, p.bytes);
		cover();
	}
}

void
emulator::finish_all(void)
{
	for (cudaStream_t s : streams)
		finish(s, UINT64_MAX);
}

size_t
emulator::streams_held(void)
{
	return streams.size();
}

static void
enqueue(cudaStream_t s, const struct pending &p)
{
	if (streams.count(s) == 0)
		die("work for a stream that is not there");
	s->queue.push_back(p);
	s->queued++;
}

void
emulator::finish_stream(cudaStream_t s)
{
	ALONE();
	finish(s, UINT64_MAX);
}

/* As late as may be: a buffer that is filled again too early, or read before it was waited for, is
 * then wrong. Memory that is not pinned is copied at once, as a GPU's driver does. */
cudaError_t
cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind, cudaStream_t s)
{
	ALONE();
	const bool to_device = bytes > 0 && on_device(to, bytes);
	const bool from_device = bytes > 0 && on_device(from, bytes);

	if (failure())
		return cudaErrorUnknown;
	if (bytes == 0)
		return cudaSuccess;
	if (kind != cudaMemcpyDefault &&
	    (to_device != (kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice) ||
	    from_device != (kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice)))
		die("copy of the wrong kind, %d", (int)kind);
	if (from_device && !to_device && is_pinned(to, bytes))
		memset(to, 0xff, bytes);
	enqueue(s, { .to = to, .from = from, .bytes = bytes });
	if ((!to_device && !is_pinned(to, bytes)) || (!from_device && !is_pinned(from, bytes)))
		finish(s, UINT64_MAX);
	return cudaSuccess;
}

cudaError_t
cudaMemsetAsync(void *p, int byte, size_t bytes, cudaStream_t s)
{
	ALONE();
	if (failure())
		return cudaErrorUnknown;
	if (bytes == 0)
		return cudaSuccess;
	if (!on_device(p, bytes))
		die("memset of host memory");
	enqueue(s, { .to = p, .bytes = bytes, .byte = byte });
	return cudaSuccess;
}

cudaError_t
cudaStreamCreateWithFlags(cudaStream_t *s, unsigned)
{
	ALONE();
	*s = NULL;
	if (failure())
		return cudaErrorUnknown;
	streams.insert(*s = new emulated_stream());
	return cudaSuccess;
}

cudaError_t
cudaStreamDestroy(cudaStream_t s)
{
	ALONE();
	finish_all();
	if (streams.erase(s) == 0)
		die("a stream that is not there is destroyed");
	delete s;
	return cudaSuccess;
}

cudaError_t
cudaStreamSynchronize(cudaStream_t s)
{
	ALONE();
	finish(s, UINT64_MAX);
	return failure();
}

cudaError_t
cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned)
{
	ALONE();
	if (failure())
		return cudaErrorUnknown;
	if (e->stream != NULL)
		enqueue(s, { .stream = e->stream, .until = e->until });
	return cudaSuccess;
}

cudaError_t
cudaEventCreateWithFlags(cudaEvent_t *e, unsigned)
{
	ALONE();
	*e = NULL;
	if (failure())
		return cudaErrorUnknown;
	*e = new emulated_event();
	return cudaSuccess;
}

cudaError_t
cudaEventDestroy(cudaEvent_t e)
{
	delete e;
	return cudaSuccess;
}

cudaError_t
cudaEventRecord(cudaEvent_t e, cudaStream_t s)
{
	ALONE();
	e->stream = s;
	e->until = s->queued;
	return failure();
}

cudaError_t
cudaEventSynchronize(cudaEvent_t e)
{
	ALONE();
	if (e->stream != NULL)
		finish(e->stream, e->until);
	return failure();
}
