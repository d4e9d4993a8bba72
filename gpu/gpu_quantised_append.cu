/* gpu_quantised_append.cu - rows of quantised types are stored; the Walsh-Hadamard transform of
 * rows of f32; formats of rows on the host
 *
 * The bytes are those of kv_rows_from_f32(), so each operation is rounded by itself: products and
 * sums are written as __fmul_rn() and __fadd_rn(), which the compiler does not contract.
 *
 * Whether a row can be stored is known on the device only, and nobody waits for it. The kernel
 * stores the failure in pinned memory of the host, d->refused; what waits for the device looks
 * there (gpu_check_refused()). */
#include "gpu/gpu_quantised.h"

constexpr uint32_t THREADS = 128, WARPS = THREADS / 32;
constexpr uint32_t BLOCK = 32;           /* channels of a block: one for each lane */
#define E4M3_MOST 448.0f

/* ---- Walsh-Hadamard transform ---- */

/* One warp for each row */
static __global__ void __launch_bounds__(THREADS)
transform_rows(float *to, const float *x, uint32_t E, size_t n)
{
	DYN_SHARED(float, rows);                       /* [WARPS][E] */
	const size_t i = (size_t)blockIdx.x * WARPS + threadIdx.x / 32;
	float *const row = rows + threadIdx.x / 32 * E;

	pdl_trigger();
	pdl_wait();
	if (i >= n)
		return;
	for (uint32_t e = threadIdx.x % 32; e < E; e += 32)
		row[e] = x[i * E + e];
	transform_row(row, E);
	for (uint32_t e = threadIdx.x % 32; e < E; e += 32)
		to[i * E + e] = row[e];
}

void
gpu_transform(struct dev *d, float *to, const float *x, uint32_t E, size_t n)
{
	if (n > 0 && E > 0)
		LAUNCH_PDL(d, transform_rows, parts_of(n, WARPS), THREADS,
		    WARPS * E * sizeof(float), to, x, E, n);
}

const float *
gpu_queries_for(struct dev *d, const struct query *query, enum kv_row_type type, uint32_t E)
{
	const size_t n = (size_t)query->N * query->H;
	float *to;

	if (!is_transformed(type))
		return query->q;
	if ((to = (float *)gpu_scratch(d, SCRATCH_QUERIES, n * E * sizeof *to)) != NULL)
		gpu_transform(d, to, query->q, E, n);
	return to;
}

void
gpu_transform_back(struct dev *d, float *o, enum kv_row_type type, uint32_t E, size_t n)
{
	if (o != NULL && is_transformed(type))
		gpu_transform(d, o, o, E, n);
}

/* ---- codes ---- */

DEVICE bool
is_finite(float x)
{
	return fabsf(x) <= 3.4028235e38f;
}

/* 0 of 0, and of a scale so small that its inverse is not finite */
DEVICE float
inverse(float scale)
{
	const float inv = scale != 0 ? __fdiv_rn(1, scale) : 0;

	return is_finite(inv) ? inv : 0;
}

/* x of the first lane for which `is` holds, as it does for one */
DEVICE float
first_of(float x, bool is)
{
	return __shfl_sync(ALL_LANES, x, (unsigned)__ffs((int)__ballot_sync(ALL_LANES, is)) - 1);
}

/* Returns the lanes' x of largest magnitude, the first one of equals: its sign, of a zero too,
 * decides a byte. All x are finite. */
DEVICE float
largest(float x)
{
	const float most = warp_max(fabsf(x));

	return most == 0 ? 0 : first_of(x, fabsf(x) == most);
}

/* Of q4_1: the greatest x minus *least, which is the least x */
DEVICE float
range_of(float *least, float x)
{
	const float most = warp_max(x);

	*least = first_of(x, x == -warp_max(-x));
	return __fsub_rn(most, *least);
}

/* To the nearest integer, ties to even; |x| is below 2^22. */
DEVICE float
nearest_even(float x)
{
	const float units = 12582912;          /* 1.5 2^23: floats there are 1 apart */

	return __fsub_rn(__fadd_rn(x, units), units);
}

/* To the nearest integer, ties away from 0 */
DEVICE int
nearest_away(float x)
{
	const int whole = (int)x;

	return fabsf(__fsub_rn(x, (float)whole)) < 0.5f ? whole : whole + (x < 0 ? -1 : 1);
}

/* Nearest e4m3, ties to even; |x| is at most E4M3_MOST, or rounds to it. */
DEVICE uint32_t
e4m3_of(float x)
{
	const uint32_t a = __float_as_uint(x) & 0x7fffffff;
	const int exponent = max((int)(a >> 23) - 126, -5);    /* below 2^-6: multiples of 2^-9 */
	const float power = __uint_as_float((uint32_t)(4 - exponent + 127) << 23);
	const int units = (int)nearest_even(__fmul_rn(__uint_as_float(a), power));

	return min((uint32_t)((exponent + 5) * 8 + units), 0x7eu) | (__float_as_uint(x) >> 24 &
	    0x80);
}

DEVICE void
store_16(unsigned char *to, uint32_t bits)
{
	*(uint16_t *)to = (uint16_t)bits;
}

/* trunc(x * inv + middle), at most `most` */
DEVICE uint32_t
code_of(float x, float inv, float middle, uint32_t most)
{
	return min((uint32_t)__fadd_rn(__fmul_rn(x, inv), middle), most);
}

/* Bytes from the 4-bit codes of all lanes: those of lanes i and i + 16 */
DEVICE void
store_fours(unsigned char *to, uint32_t code)
{
	const uint32_t lane = threadIdx.x % 32;
	const uint32_t high = __shfl_sync(ALL_LANES, code, lane % 16 + 16);

	if (lane < 16)
		to[lane] = (unsigned char)((code & 15) | (high & 15) << 4);
}

/* Stores a block, of which each lane has a channel, a finite number. Returns false where the type
 * cannot store it. */
DEVICE bool
store_block(unsigned char *to, float x, uint32_t type)
{
	const uint32_t lane = threadIdx.x % 32;
	float least = 0;
	const float m = type == KV_ROW_Q4_1 ? range_of(&least, x) : largest(x);
	const float scale = type == KV_ROW_Q8_0 ? __fdiv_rn(fabsf(m), 127) :
	    type == KV_ROW_Q4_0 ? __fdiv_rn(m, -8) : type == KV_ROW_Q5_0 ? __fdiv_rn(m, -16) :
	    __fdiv_rn(m, 15);
	const float inv = inverse(scale);
	const f16 stored = narrow<f16>(scale), low = narrow<f16>(least);

	if (!is_finite(widen(stored)) || (type == KV_ROW_Q4_1 &&
	    !is_finite(widen(stored) + widen(low))))
		return false;
	if (lane == 0)
		store_16(to, stored.bits);
	if (type == KV_ROW_Q8_0) {
		to[2 + lane] = (unsigned char)nearest_away(__fmul_rn(x, inv));
	} else if (type == KV_ROW_Q4_0) {
		store_fours(to + 2, code_of(x, inv, 8.5f, 15));
	} else if (type == KV_ROW_Q4_1) {
		if (lane == 0)
			store_16(to + 2, low.bits);
		store_fours(to + 4, code_of(__fsub_rn(x, least), inv, 0.5f, 15));
	} else {
		const uint32_t code = code_of(x, inv, 16.5f, 31);
		const uint32_t fifth = __ballot_sync(ALL_LANES, code >> 4);

		if (lane < 2)
			store_16(to + 2 + 2 * lane, fifth >> 16 * lane & 0xffff);
		store_fours(to + 6, code);
	}
	return true;
}

/* Stores a row of int8 or fp8, whose greatest magnitude is `most`. Returns false where the type
 * cannot. */
DEVICE bool
store_scaled(unsigned char *to, const float *x, float most, uint32_t type, uint32_t E)
{
	const uint32_t lane = threadIdx.x % 32;
	const float scale = __fdiv_rn(most, type == KV_ROW_INT8 ? 127 : E4M3_MOST);

	if (!is_finite(scale))
		return false;
	if (lane < 4)
		to[lane] = (unsigned char)(__float_as_uint(scale) >> 8 * lane);
	for (uint32_t e = lane; e < E; e += 32) {
		const float code = scale != 0 ? __fdiv_rn(x[e], scale) : 0;

		to[4 + e] = (unsigned char)(type == KV_ROW_FP8 ? (scale == 0 ? 0 : e4m3_of(code)) :
		    (uint32_t)(int)nearest_even(code > 127 ? 127 : code < -127 ? -127 : code));
	}
	return true;
}

/* Stores a row by a warp. Returns false where the type cannot; then it is undefined. */
DEVICE bool
store_row(unsigned char *to, const float *x, uint32_t type, uint32_t E)
{
	const uint32_t lane = threadIdx.x % 32;
	bool finite = true, stored = true;
	float most = 0;

	for (uint32_t e = lane; e < E; e += 32) {
		finite &= is_finite(x[e]);
		most = fmaxf(most, fabsf(x[e]));
	}
	if (__any_sync(ALL_LANES, !finite))
		return false;
	most = warp_max(most);
	if (!has_blocks(type))
		return store_scaled(to, x, most, type, E);
	for (uint32_t b = 0; b < E / BLOCK && stored; b++)
		stored = store_block(to + b * block_bytes(type), x[b * BLOCK + lane], type);
	return stored;
}

/* ---- append ---- */

/* One call; which 0: keys, 1: values */
struct append_call {
	const float *x[2];           /* [N][G][E] */
	const uint32_t *pos;
	uint32_t *to_pos;
	struct row_format format[2];
	uint32_t transformed[2], N;
	/* pinned memory of the host, [2][MAX_HEADS]: 1 + the type that cannot store a row of keys,
	 * of values, of each KV head */
	uint32_t *refused;
};

DEVICE void
store_elements(unsigned char *to, const float *x, uint32_t type, uint32_t E)
{
	for (uint32_t e = threadIdx.x % 32; e < E; e += 32)
		if (type == KV_ROW_F32)
			((float *)to)[e] = x[e];
		else if (type == KV_ROW_F16)
			((f16 *)to)[e] = narrow<f16>(x[e]);
		else
			((bf16 *)to)[e] = narrow<bf16>(x[e]);
}

/* One warp for each row of a KV head; blockIdx.y: keys, values */
static __global__ void __launch_bounds__(THREADS)
append_rows(const struct rows to, const __grid_constant__ struct append_call p)
{
	DYN_SHARED(float, rows);                       /* [WARPS][E] */
	const uint32_t i = blockIdx.x * WARPS + threadIdx.x / 32, n = i / to.G, g = i % to.G;
	const uint32_t lane = threadIdx.x % 32, which = blockIdx.y, E = to.E;
	const uint32_t appended = appended_rows(to);
	float *const x = rows + threadIdx.x / 32 * E;
	const struct row_format f = p.format[which];

	if (n >= p.N)
		return;
	const size_t row = to.start[g] + to.len[g] + appended + n;
	unsigned char *const at = (unsigned char *)(which ? to.v : to.k) + row * f.bytes;
	for (uint32_t e = lane; e < E; e += 32)
		x[e] = p.x[which][(size_t)i * E + e];
	__syncwarp();
	if (p.transformed[which])
		transform_row(x, E);
	if (f.type < KV_ROW_Q8_0)
		store_elements(at, x, f.type, E);
	else if (!store_row(at, x, f.type, E) && lane == 0)
		store_pinned(&p.refused[which * MAX_HEADS + g], 1 + (f.type |
		    (p.transformed[which] ? (uint32_t)KV_ROW_HADAMARD : 0)));
	if (which == 0 && lane == 0)
		p.to_pos[row] = p.pos[n];
}

/* d->refused, initially 0; NULL after a failure */
static uint32_t *
refused_of(struct dev *d)
{
	const size_t bytes = 2 * MAX_HEADS * sizeof *d->refused;

	if (d->refused == NULL) {
		if ((d->refused = (uint32_t *)gpu_host_alloc(d, bytes)) == NULL)
			gpu_fail(d, "no memory");
		else
			memset(d->refused, 0, bytes);
	}
	return d->refused;
}

void
gpu_append_quantised(struct dev *d, const struct rows *to, uint32_t *to_pos, const float *k,
    const float *v, const uint32_t *pos, uint32_t N, const struct layer_rows *l)
{
	struct append_call p = { .x = { k, v }, .pos = pos, .to_pos = to_pos, .format = {},
		.transformed = { is_transformed(rows_k_type(l)), is_transformed(rows_v_type(l)) },
		.N = N, .refused = refused_of(d) };
	struct row_formats f;

	if (!gpu_ok(d) || !gpu_formats_of(d, &f, l, "store"))
		return;
	p.format[0] = f.k;
	p.format[1] = f.v;
	LAUNCH(d, append_rows, dim3(parts_of((size_t)N * to->G, WARPS), to->v != NULL ? 2 : 1),
	    THREADS, WARPS * to->E * sizeof(float), *to, p);
}

/* ---- on the host ---- */

int
gpu_formats_of(struct dev *d, struct row_formats *f, const struct layer_rows *l, const char *op)
{
	*f = { { (uint32_t)untransformed(rows_k_type(l)), (uint32_t)rows_k_bytes(l) },
		{ (uint32_t)untransformed(rows_v_type(l)), (uint32_t)rows_v_bytes(l) } };
	if (f->k.bytes == 0 || f->v.bytes == 0)
		gpu_fail(d, "%s: rows of width %u of types %d and %d", op, l->width,
		    (int)rows_k_type(l), (int)rows_v_type(l));
	return gpu_ok(d);
}

void
gpu_check_refused(struct dev *d)
{
	const volatile uint32_t *const refused = d->refused;

	for (uint32_t i = 0; refused != NULL && i < 2 * MAX_HEADS; i++)
		if (refused[i] > 0)
			gpu_fail(d, "store: a %s of KV head %u is not finite, or too large for %s",
			    i < MAX_HEADS ? "key" : "value", i % MAX_HEADS,
			    kv_row_type_name((enum kv_row_type)(refused[i] - 1)));
}
