/* emulator_streams.cc - streams, events, copies
 *
 * Work of a stream is executed as late as possible: when something waits for it. Kernels run at
 * once, behind all that their stream has before them, but for those that LAUNCH_ON launches on
 * another stream than the device's: they are as late as copies. */
#include "tests/cuda/emulator.h"

#include <chrono>
#include <deque>
#include <set>

struct pending {
	void *to = NULL;
	const void *from = NULL;       /* NULL: a byte instead */
	size_t bytes = 0;
	int byte = 0;
	cudaStream_t stream = NULL;    /* not NULL: waits for items of that stream up to until */
	uint64_t until = 0;
	bool release = false;          /* frees `to` */
	std::function<void(void)> kernel = nullptr;
};

struct emulated_stream {
	std::deque<struct pending> queue;
	uint64_t queued, done;
	const char *last;              /* what it got last; NULL: a kernel of ours */
};

struct emulated_event {
	cudaStream_t stream;           /* NULL: not recorded yet */
	bool captured;                 /* the last time into a graph */
	uint64_t until;
	double at;                     /* ms: when the work before it had been done */
};

using namespace emulator;

static std::set<cudaStream_t> streams;

static double
now_ms(void)
{
	using namespace std::chrono;

	return duration<double, std::milli>(steady_clock::now().time_since_epoch()).count();
}

static void
execute(const struct pending &p)
{
	uncover();
	if (p.from != NULL)
		memcpy(p.to, p.from, p.bytes);
	else
		memset(p.to, p.byte, p.bytes);
	cover();
	if (note_written != NULL)
		note_written(p.to, p.from, p.bytes);
}

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
		if (p.kernel)
			p.kernel();
		else if (p.release)
			release(p.to);
		else
			execute(p);
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

void
emulator::set_last(cudaStream_t s, const char *what)
{
	s->last = what;
}

const char *
emulator::last_of(cudaStream_t s)
{
	return s->last;
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
emulator::enqueue_kernel(cudaStream_t s, std::function<void(void)> &&kernel)
{
	enqueue(s, { .kernel = std::move(kernel) });
}

void
emulator::enqueue_release(cudaStream_t s, void *p)
{
	enqueue(s, { .to = p, .release = true });
}

void
emulator::finish_stream(cudaStream_t s)
{
	ALONE();
	finish(s, UINT64_MAX);
}

/* Late execution shows a buffer that is refilled too early, or read before the wait. Memory
 * that is not pinned is copied at once, as the driver does. */
cudaError_t
cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind, cudaStream_t s)
{
	ALONE();
	const bool to_device = bytes > 0 && on_device(to, bytes);
	const bool from_device = bytes > 0 && on_device(from, bytes);

	if (const cudaError_t e = failure(); e != cudaSuccess)
		return e;
	if (bytes == 0)
		return cudaSuccess;
	if (kind != cudaMemcpyDefault &&
	    (to_device != (kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice) ||
	    from_device != (kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice)))
		die("copy of the wrong kind, %d", (int)kind);
	set_last(s, "a copy");
	const bool at_once = (!to_device && !is_pinned(to, bytes)) ||
	    (!from_device && !is_pinned(from, bytes));
	const struct pending copy = { .to = to, .from = from, .bytes = bytes };
	if (capturing(s))
		return at_once ? invalidates_capture(cudaErrorStreamCaptureUnsupported) :
		    capture_work([copy] { execute(copy); });
	if (from_device && !to_device && is_pinned(to, bytes))
		memset(to, 0xff, bytes);
	(!from_device ? total.up : !to_device ? total.down : total.within)++;
	total.up_bytes += from_device ? 0 : bytes;
	total.down_bytes += from_device && !to_device ? bytes : 0;
	enqueue(s, copy);
	if (at_once)
		finish(s, UINT64_MAX);
	return cudaSuccess;
}

cudaError_t
cudaMemsetAsync(void *p, int byte, size_t bytes, cudaStream_t s)
{
	ALONE();
	if (const cudaError_t e = failure(); e != cudaSuccess)
		return e;
	if (bytes == 0)
		return cudaSuccess;
	if (!on_device(p, bytes))
		die("memset of host memory");
	set_last(s, "a memset");
	const struct pending set = { .to = p, .bytes = bytes, .byte = byte };
	if (capturing(s))
		return capture_work([set] { execute(set); });
	total.within++;
	enqueue(s, set);
	return cudaSuccess;
}

cudaError_t
cudaStreamCreateWithFlags(cudaStream_t *s, unsigned)
{
	ALONE();
	*s = NULL;
	if (const cudaError_t e = failure(); e != cudaSuccess)
		return e;
	streams.insert(*s = new emulated_stream());
	return cudaSuccess;
}

/* The emulator has no priorities: what runs when is told by `late` alone. */
cudaError_t
cudaStreamCreateWithPriority(cudaStream_t *s, unsigned flags, int)
{
	return cudaStreamCreateWithFlags(s, flags);
}

cudaError_t
cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
	*least = *greatest = 0;
	return cudaSuccess;
}

cudaError_t
cudaStreamDestroy(cudaStream_t s)
{
	ALONE();
	if (capturing(s))
		die("a stream is destroyed while it is captured");
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
	if (capturing(s))
		return invalidates_capture(cudaErrorStreamCaptureUnsupported);
	total.waits++;
	finish(s, UINT64_MAX);
	return failure();
}

cudaError_t
cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned)
{
	ALONE();
	if (capturing(s) && !e->captured)
		return invalidates_capture(cudaErrorStreamCaptureIsolation);
	if (!capturing(s) && e->captured)
		die("a stream waits for an event of a graph");
	if (const cudaError_t e = failure(); e != cudaSuccess)
		return e;
	set_last(s, "a wait for an event");
	if (e->stream != NULL)
		enqueue(s, { .stream = e->stream, .until = e->until });
	return cudaSuccess;
}

cudaError_t
cudaEventCreateWithFlags(cudaEvent_t *e, unsigned)
{
	ALONE();
	*e = NULL;
	if (const cudaError_t e = failure(); e != cudaSuccess)
		return e;
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
	e->captured = capturing(s);
	e->stream = e->captured ? NULL : s;
	e->until = s->queued;
	e->at = now_ms();
	return failure();
}

cudaError_t
cudaEventSynchronize(cudaEvent_t e)
{
	ALONE();
	if (e->captured) {
		invalidates_capture(cudaErrorCapturedEvent);
		return cudaErrorCapturedEvent;
	}
	total.waits++;
	if (e->stream != NULL && e->stream->done < e->until) {
		finish(e->stream, e->until);
		e->at = now_ms();
	}
	return failure();
}

cudaError_t
cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
	*ms = (float)(to->at - from->at);
	return failure();
}
