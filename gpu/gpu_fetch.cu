/* gpu_fetch.cu - elastic loading: selected rows that are in host memory, and slots for them
 *
 * Xu et al. 2025 (SpeContext), section 5.4. Which rows are new, which slots are free, and the copy
 * are two kernels, so that neither the selection nor a row passes through the host: it has launched
 * them before the selection is known. Rows are read from pinned memory over the bus by the threads
 * that store them (zero-copy), 16 bytes at a time: a copy engine would want a descriptor for each
 * row of 256 bytes.
 *
 * Fetches that are ahead run on a stream of their own, in few blocks: the bus is what they wait
 * for, and the multiprocessors are the step's. */
#include "gpu/gpu_block.h"
#include "gpu/gpu_quantised.h"

constexpr uint32_t PLACE_THREADS = 1024, FETCH_THREADS = 256;
/* units of keys, and of values, that a thread has in flight */
constexpr uint32_t PIECES = 4;
constexpr uint32_t FETCH_BLOCKS = 16;    /* of all KV heads; 512 KiB in flight */

/* struct offload_slots, and what it is called with, as a kernel's argument */
struct slot_table {
	uint32_t *row, *slot, *n, *new_row, *new_slot;
	uint64_t *fetched;
	uint32_t k_bytes, v_bytes;   /* of a row that is fetched */
	size_t stride;
	uint32_t slots;
	const uint8_t *exact;        /* [G][chunks]; NULL: all keys are fetched */
	uint32_t chunk, chunks;      /* rows of one; of a KV head */
	uint32_t stored[MAX_HEADS];
};

/* Is the key of row r one of those that are fetched? */
DEVICE bool
brings_key(const struct slot_table &t, uint32_t g, uint32_t r)
{
	return t.exact == NULL || r / t.chunk >= t.chunks ||
	    t.exact[(size_t)g * t.chunks + r / t.chunk] != 0;
}

/* One block for each KV head. at[] <- where each selected row is, or -1; marks the slots that stay
 * in `stays` (a bit for each), and lists the rows that are new, with their numbers in the
 * selection. Returns how many these are. part: [PLACE_THREADS / 32] */
DEVICE uint32_t
find_rows(uint32_t *at, const struct row_list &list, const struct slot_table &t, uint32_t *stays,
    uint32_t *part)
{
	const uint32_t g = blockIdx.x, n = list.n[g], stored = t.stored[g];
	const uint32_t *slot = t.slot + g * t.stride;
	uint32_t *new_row = t.new_row + (size_t)g * t.slots,
	    *new_slot = t.new_slot + (size_t)g * t.slots;
	uint32_t found = 0, all;

	for (uint32_t first = 0; first < n; first += PLACE_THREADS) {
		const uint32_t i = first + threadIdx.x, r = i < n ? listed_row(list, g, i) : NO_ROW;
		const uint32_t in = r < stored ? slot[r] : 0;

		if (in > 0)
			atomicOr(&stays[(in - 1) / 32], 1u << (in - 1) % 32);
		if (i < n)
			at[i] = r < stored ? in - 1 : t.slots + (r - stored);
		const uint32_t place = found + prefix_sum<PLACE_THREADS>(r < stored && in == 0,
		    part, &all);
		if (r < stored && in == 0 && place < t.slots) {
			new_row[place] = r;
			new_slot[place] = i;
		}
		found += all;
		__syncthreads();         /* part is free, and lists and bits are there */
	}
	return found;
}

/* Slot s, which is free, gets new row number i of the list, which has n, or none. Returns the keys
 * of it that are fetched. */
DEVICE uint32_t
fill_slot(uint32_t *at, const struct slot_table &t, uint32_t s, uint32_t i, uint32_t n)
{
	const uint32_t g = blockIdx.x;
	uint32_t *row = t.row + (size_t)g * t.slots + s, *slot = t.slot + g * t.stride;
	uint32_t *new_slot = t.new_slot + (size_t)g * t.slots + i;

	if (*row > 0)
		slot[*row - 1] = 0;
	*row = 0;
	if (i >= n)
		return 0;
	const uint32_t r = t.new_row[(size_t)g * t.slots + i];
	at[*new_slot] = s;
	*new_slot = s;
	*row = r + 1;
	slot[r] = s + 1;
	return brings_key(t, g, r);
}

/* One block for each KV head: new rows get the slots whose rows are not selected, both in ascending
 * order. */
static __global__ void __launch_bounds__(PLACE_THREADS)
place_rows(uint32_t *lists, size_t stride, const struct row_list list, const struct slot_table t)
{
	DYN_SHARED(uint32_t, stays);
	SHARED(uint32_t[PLACE_THREADS / 32], part);
	const uint32_t g = blockIdx.x;
	uint32_t *at = lists + g * stride, keys = 0, left = 0, all;

	for (uint32_t w = threadIdx.x; w < (t.slots + 31) / 32; w += PLACE_THREADS)
		stays[w] = 0;
	__syncthreads();
	const uint32_t n = find_rows(at, list, t, stays, part);
	for (uint32_t first = 0; first < t.slots; first += PLACE_THREADS) {
		const uint32_t s = first + threadIdx.x;
		const bool is_free = s < t.slots && (stays[s / 32] >> s % 32 & 1) == 0;
		const uint32_t i = left + prefix_sum<PLACE_THREADS>(is_free, part, &all);

		if (is_free)
			keys += fill_slot(at, t, s, i, n);
		left += all;
		__syncthreads();
	}
	prefix_sum<PLACE_THREADS>(keys, part, &all);
	if (threadIdx.x == 0) {
		t.n[g] = n;
		t.fetched[g] += (uint64_t)n * t.v_bytes + (uint64_t)all * t.k_bytes;
	}
}

/* Where rows come from and go to, in units of which a row is a multiple */
struct fetch_route {
	const void *from_k, *from_v;
	void *to_k, *to_v;
	const uint32_t *from_pos;
	uint32_t *to_pos;
	uint32_t heads, units;       /* units: of a row */
	/* row 0, slot 0, position of row 0 */
	uint64_t from[MAX_HEADS], to[MAX_HEADS], pos[MAX_HEADS];
};

/* Copies the new rows of KV head blockIdx.y: U is the unit, uint4 or uint16_t. Each thread issues
 * the loads of PIECES units of keys and of values before it stores the first. */
template <class U>
static __global__ void __launch_bounds__(FETCH_THREADS)
fetch_rows(const struct fetch_route way, const struct slot_table t)
{
	const uint32_t g = blockIdx.y, units = way.units, all = t.n[g] * units;
	const uint32_t *new_row = t.new_row + (size_t)g * t.slots;
	const uint32_t *new_slot = t.new_slot + (size_t)g * t.slots;
	const U *from_k = (const U *)way.from_k + way.from[g] * units;
	const U *from_v = (const U *)way.from_v + way.from[g] * units;
	U *to_k = (U *)way.to_k + way.to[g] * units, *to_v = (U *)way.to_v + way.to[g] * units;
	U k[PIECES], v[PIECES];
	bool key[PIECES];

	for (uint32_t first = blockIdx.x * FETCH_THREADS * PIECES; first < all;
	    first += gridDim.x * FETCH_THREADS * PIECES) {
UNROLL		for (uint32_t i = 0; i < PIECES; i++) {
			const uint32_t at = first + i * FETCH_THREADS + threadIdx.x;
			const uint32_t r = at < all ? new_row[at / units] : 0;
			const size_t unit = (size_t)r * units + at % units;

			key[i] = at < all && brings_key(t, g, r);
			if (key[i])
				k[i] = load_pinned(from_k + unit);
			if (at < all)
				v[i] = load_pinned(from_v + unit);
		}
UNROLL		for (uint32_t i = 0; i < PIECES; i++) {
			const uint32_t at = first + i * FETCH_THREADS + threadIdx.x;

			if (at >= all)
				continue;
			const uint32_t s = new_slot[at / units];
			if (key[i])
				to_k[(size_t)s * units + at % units] = k[i];
			to_v[(size_t)s * units + at % units] = v[i];
			if (at % units == 0)
				way.to_pos[way.to[g] + s] =
				    way.from_pos[way.pos[g] + new_row[at / units]];
		}
	}
}

/* As fetch_rows(), of keys or of values only, which have sizes of their own where rows are
 * quantised: those of way.from_k. keys: only those that t says. */
template <class U>
static __global__ void __launch_bounds__(FETCH_THREADS)
fetch_tensor(const struct fetch_route way, const struct slot_table t, bool keys)
{
	const uint32_t g = blockIdx.y, units = way.units, all = t.n[g] * units;
	const uint32_t *new_row = t.new_row + (size_t)g * t.slots;
	const uint32_t *new_slot = t.new_slot + (size_t)g * t.slots;
	const U *from = (const U *)way.from_k + way.from[g] * units;
	U *to = (U *)way.to_k + way.to[g] * units, held[PIECES];
	bool fetched[PIECES];

	for (uint32_t first = blockIdx.x * FETCH_THREADS * PIECES; first < all;
	    first += gridDim.x * FETCH_THREADS * PIECES) {
UNROLL		for (uint32_t i = 0; i < PIECES; i++) {
			const uint32_t at = first + i * FETCH_THREADS + threadIdx.x;
			const uint32_t r = at < all ? new_row[at / units] : 0;

			fetched[i] = at < all && (!keys || brings_key(t, g, r));
			if (fetched[i])
				held[i] = load_pinned(from + (size_t)r * units + at % units);
			if (at < all && at % units == 0)
				way.to_pos[way.to[g] + new_slot[at / units]] =
				    way.from_pos[way.pos[g] + r];
		}
UNROLL		for (uint32_t i = 0; i < PIECES; i++) {
			const uint32_t at = first + i * FETCH_THREADS + threadIdx.x;

			if (fetched[i])
				to[(size_t)new_slot[at / units] * units + at % units] = held[i];
		}
	}
}

/* Fills t and way. Returns 0 after a failure. */
static int
fetch_of(struct dev *d, struct slot_table *t, struct fetch_route *way,
    const struct layer_rows *rows, const struct low_rank *low, const struct offload_slots *f,
    uint32_t units)
{
	const uint32_t G = rows->heads;

	if (G == 0 || G > MAX_HEADS || f->slots == 0)
		gpu_fail(d, "rows of %u KV heads fetched to %u slots", G, f->slots);
	if (!gpu_ok(d))
		return 0;
	*t = { .row = f->row, .slot = f->slot, .n = f->n_new, .new_row = f->new_row,
		.new_slot = f->new_slot, .fetched = f->fetched,
		.k_bytes = (uint32_t)rows_k_bytes(f->to), .v_bytes = own_values(f->to) != NULL ?
		(uint32_t)rows_v_bytes(f->to) : 0, .stride = f->stride,
		.slots = f->slots, .exact = low != NULL ? low->exact : NULL, .chunk = low != NULL ?
		low->chunk : 1, .chunks = low != NULL ? low->n / low->chunk : 0, .stored = {} };
	*way = { .from_k = f->k, .from_v = f->v, .to_k = f->to->k, .to_v = f->to->v,
		.from_pos = rows->pos, .to_pos = f->to->pos, .heads = G, .units = units, .from = {},
		.to = {}, .pos = {} };
	for (uint32_t g = 0; g < G; g++) {
		t->stored[g] = f->host_count[g];
		way->from[g] = f->start[g];
		way->to[g] = f->to->start[g];
		way->pos[g] = rows->start[g];
	}
	return 1;
}

static void
launch_place(struct dev *d, cudaStream_t stream, struct chosen *to, const struct row_list &list,
    const struct slot_table &t, uint32_t G)
{
	LAUNCH_ON(d, stream, place_rows, G, PLACE_THREADS,
	    (t.slots + 31) / 32 * sizeof(uint32_t), to->at, to->stride, list, t);
}

template <class U>
static void
launch_fetch(struct dev *d, cudaStream_t stream, const struct slot_table &t,
    const struct fetch_route &way)
{
	LAUNCH_ON(d, stream, fetch_rows<U>, dim3(parts_of(FETCH_BLOCKS, way.heads), way.heads),
	    FETCH_THREADS, 0, way, t);
}

static void
launch_tensor(struct dev *d, cudaStream_t stream, const struct slot_table &t,
    struct fetch_route way, size_t bytes, bool keys)
{
	with_unit(d, (uintptr_t)way.from_k | (uintptr_t)way.to_k | bytes, [&](auto u) {
		way.units = (uint32_t)(bytes / sizeof u);
		LAUNCH_ON(d, stream, fetch_tensor<decltype(u)>,
		    dim3(parts_of(FETCH_BLOCKS, way.heads), way.heads), FETCH_THREADS, 0, way, t,
		    keys);
	});
}

/* Keys, and then values that are not in the keys */
static void
launch_tensors(struct dev *d, cudaStream_t stream, const struct slot_table &t,
    struct fetch_route way, const struct layer_rows *to)
{
	launch_tensor(d, stream, t, way, rows_k_bytes(to), true);
	if (own_values(to) == NULL)
		return;
	way.from_k = way.from_v;
	way.to_k = way.to_v;
	launch_tensor(d, stream, t, way, rows_v_bytes(to), false);
}

/* ---- beside other work ---- */

/* The stream goes first where both have blocks to start: a product fills every SM, and its
 * successor waits for them already. */
static int
open_stream(struct dev *d)
{
	struct fetching *f = &d->fetching;
	cudaEvent_t *done = &f->done[f->n % FETCHES];
	int least, greatest;

	if (f->stream == NULL && gpu_check(d, "cudaDeviceGetStreamPriorityRange",
	    cudaDeviceGetStreamPriorityRange(&least, &greatest)) &&
	    gpu_check(d, "cudaStreamCreate", cudaStreamCreateWithPriority(&f->stream,
	    cudaStreamNonBlocking, greatest)))
		gpu_check(d, "cudaEventCreate", cudaEventCreateWithFlags(&f->behind,
		    cudaEventDisableTiming));
	if (gpu_ok(d) && *done == NULL)
		gpu_check(d, "cudaEventCreate", cudaEventCreateWithFlags(done,
		    cudaEventDisableTiming));
	return gpu_ok(d);
}

/* Orders the other stream after all work so far. */
static int
begin_ahead(struct dev *d)
{
	cudaSetDevice(d->index);
	return gpu_ok(d) && open_stream(d) &&
	    gpu_check(d, "fetch", cudaEventRecord(d->fetching.behind, d->stream)) &&
	    gpu_check(d, "fetch", cudaStreamWaitEvent(d->fetching.stream, d->fetching.behind, 0));
}

uint64_t
gpu_fetch_chosen(struct dev *d, struct chosen *list, const struct chosen *chosen,
    const struct layer_rows *rows, const struct low_rank *low, const struct offload_slots *f,
    int ahead)
{
	const size_t bytes = f->to->width * kv_dtype_size(f->to->dtype);
	const uintptr_t places = (uintptr_t)f->to->k | (uintptr_t)f->to->v | (uintptr_t)f->k |
	    (uintptr_t)f->v;
	const bool wide = !d->reference && (bytes | places) % sizeof(uint4) == 0;
	const bool no_early_start = d->no_early_start;
	struct row_list from;
	struct slot_table table;
	struct fetch_route way;

	if (ahead)
		gpu_refuse_capture(d, "fetch_chosen ahead");
	if (chosen == NULL || chosen->rows != 1)
		gpu_fixes_lengths(d);
	if (!gpu_row_list_of(d, &from, rows, chosen) || !fetch_of(d, &table, &way, rows, low, f,
	    (uint32_t)(bytes / (wide ? sizeof(uint4) : sizeof(uint16_t)))))
		return d->fetching.n;
	for (uint32_t g = 0; g < way.heads; g++)
		list->n[g] = from.n[g];
	if (ahead && !begin_ahead(d))
		return d->fetching.n;
	const cudaStream_t stream = ahead ? d->fetching.stream : d->stream;
	launch_place(d, stream, list, from, table, way.heads);
	if (has_quantised(f->to) || own_values(f->to) == NULL)
		launch_tensors(d, stream, table, way, f->to);
	else
		(wide ? launch_fetch<uint4> : launch_fetch<uint16_t>)(d, stream, table, way);
	if (!ahead)
		return d->fetching.n;
	d->no_early_start = no_early_start;       /* nothing has come to the other stream */
	gpu_check(d, "fetch", cudaEventRecord(d->fetching.done[d->fetching.n % FETCHES],
	    d->fetching.stream));
	return d->fetching.n++;
}

/* The next kernel must not start before the wait has ended. */
void
gpu_fetch_wait(struct dev *d, uint64_t fetch)
{
	if (gpu_ok(d) && fetch < d->fetching.n)
		gpu_check(d, "fetch", cudaStreamWaitEvent(d->stream,
		    d->fetching.done[fetch % FETCHES], 0));
	d->no_early_start = true;
}

void
gpu_fetches_end(struct dev *d)
{
	if (gpu_ok(d) && d->fetching.stream != NULL)
		gpu_check_wait(d, "fetch", cudaStreamSynchronize(d->fetching.stream));
}

void
gpu_fetches_free(struct dev *d)
{
	struct fetching *f = &d->fetching;

	if (f->stream == NULL)
		return;
	cudaStreamSynchronize(f->stream);
	for (uint32_t i = 0; i < FETCHES; i++)
		if (f->done[i] != NULL)
			cudaEventDestroy(f->done[i]);
	if (f->behind != NULL)
		cudaEventDestroy(f->behind);
	cudaStreamDestroy(f->stream);
	*f = {};                         /* gpu_free() looks there, after a failure */
}
