/* ops_recent.c - append and attend over quantised rows whose last ones stay full (kv-snapshot(5),
 * 4.20, 4.21), against double precision of the numbers of rows
 *
 * Rows are appended one by one. The reference knows all rows in full, and which of them a query
 * that runs with the last one sees as codes. KIVI's blocks are coded here once more, from the
 * specification; rows of other types by libkvfile, which kvfile_rowtype.c holds to ggml's bytes.
 * Devices that do not take such rows are left out. */
#include <string.h>

#include "tests/unit/ops_check.h"

enum { GROUP = 32, MOST_HEADS = 3, MOST_WIDTH = 128 };

struct recent {
	enum kv_row_type k, v;       /* 0: elements of dtype */
	enum kv_dtype dtype;
	uint32_t G, heads_each, E, R, N; /* query heads of a KV head; residual; query rows */
	uint32_t S[MOST_HEADS];      /* rows of each KV head */
	float softcap;
};

/* ---- the reference ---- */

/* x to the nearest number with 11 significant bits, ties to even: f16, subnormal numbers too.
 * Finite ones only */
static double
half(double x)
{
	int e;
	double unit;

	if (x == 0)
		return x;
	frexp(x, &e);
	unit = ldexp(1, (e < -13 ? -13 : e) - 11);
	return nearbyint(x / unit) * unit;
}

/* y[n] (step apart) <- the numbers that the codes of x[n] stand for; n = 32 */
static void
code_block(double *y, const double *x, size_t step, enum kv_row_type type)
{
	const double most_code = type == KV_ROW_KIVI2 ? 3 : 15;
	double h[GROUP], least, most, s, c;
	int i;

	for (i = 0; i < GROUP; i++)
		h[i] = half(x[i * step]);
	least = most = h[0];
	for (i = 1; i < GROUP; i++) {
		least = fmin(least, h[i]);
		most = fmax(most, h[i]);
	}
	s = half(half(most - least) / most_code);
	for (i = 0; i < GROUP; i++) {
		c = s == 0 ? 0 : nearbyint(fmin(half(half(h[i] - least) / s), most_code));
		y[i * step] = (double)((float)(c * s) + (float)least);
	}
}

static int
is_kivi(enum kv_row_type type)
{
	return type == KV_ROW_KIVI2 || type == KV_ROW_KIVI4;
}

/* x[E] <- the numbers that the codes of a row stand for */
static void
code_row(double *x, uint32_t E, enum kv_row_type type)
{
	float numbers[MOST_WIDTH] = { 0 };
	char row[MOST_WIDTH * sizeof(float)];
	uint32_t e;

	for (e = 0; is_kivi(type) && e < E; e += GROUP)
		code_block(x + e, x + e, 1, type);
	if (is_kivi(type))
		return;
	for (e = 0; e < E; e++)
		numbers[e] = (float)x[e];
	verdict(kv_rows_from_f32(row, numbers, type, E, 1) == 1, "a row cannot be coded");
	kv_rows_to_f32(numbers, row, type, E, 1);
	for (e = 0; e < E; e++)
		x[e] = numbers[e];
}

/* How many of this many keys, and values, are coded */
static uint32_t
values_coded(const struct recent *s, uint32_t rows)
{
	return rows > s->R ? rows - s->R : 0;
}

static uint32_t
keys_coded(const struct recent *s, uint32_t rows)
{
	return is_kivi(s->k) ? rows / s->R * s->R : values_coded(s, rows);
}

/* Keys k[S][E] and values v[S][E] become the numbers that a query sees, where those were coded that
 * are when there are `before` rows. */
static void
as_seen(double *k, double *v, const struct recent *s, uint32_t before)
{
	const uint32_t keys = s->k != 0 ? keys_coded(s, before) : 0;
	const uint32_t values = s->v != 0 ? values_coded(s, before) : 0;
	uint32_t row, e;

	for (row = 0; is_kivi(s->k) && row < keys; row += GROUP)
		for (e = 0; e < s->E; e++)
			code_block(k + row * s->E + e, k + row * s->E + e, s->E, s->k);
	for (row = 0; !is_kivi(s->k) && row < keys; row++)
		code_row(k + row * s->E, s->E, s->k);
	for (row = 0; row < values; row++)
		code_row(v + row * s->E, s->E, s->v);
}

/* o[E] <- softmax(q . k) . v over S rows */
static void
attend_rows(double *o, const float *q, const double *k, const double *v, const struct recent *s,
    uint32_t S)
{
	double *p = calloc(S + 1, sizeof *p), most = -INFINITY, sum = 0;
	uint32_t row, e;

	for (row = 0; row < S; row++) {
		for (e = 0; e < s->E; e++)
			p[row] += (double)q[e] * k[row * s->E + e];
		p[row] = ref_cap(p[row] / sqrt((double)s->E), s->softcap);
		most = fmax(most, p[row]);
	}
	for (e = 0; e < s->E; e++)
		o[e] = 0;
	for (row = 0; row < S; row++) {
		sum += p[row] = exp(p[row] - most);
		for (e = 0; e < s->E; e++)
			o[e] += p[row] * v[row * s->E + e];
	}
	for (e = 0; e < s->E && sum > 0; e++)
		o[e] /= sum;
	free(p);
}

/* ---- on a device ---- */

/* Rows without contents, with room for those of the case and as many full ones as must be there */
static void
make_rows(struct device *d, struct layer_rows *rows, struct recent_rows *r, const struct recent *s)
{
	static uint32_t len[MOST_HEADS], first[MOST_HEADS], k_coded[MOST_HEADS];
	static uint32_t v_coded[MOST_HEADS], capacity[MOST_HEADS];
	static uint64_t start[MOST_HEADS];
	const size_t full = s->E * kv_dtype_size(s->dtype);
	uint32_t g, total = 0;

	*rows = (struct layer_rows){ .start = start, .len = len, .capacity = capacity,
		.heads = s->G, .width = s->E, .dtype = s->dtype, .k_type = s->k,
		.v_type = s->v, .recent = r };
	*r = (struct recent_rows){ .residual = s->R, .first = first, .k_coded = k_coded,
		.v_coded = v_coded };
	for (g = 0; g < s->G; g++) {
		len[g] = first[g] = k_coded[g] = v_coded[g] = 0;
		start[g] = total;
		capacity[g] = (s->S[g] + GROUP) / GROUP * GROUP;
		total += capacity[g];
		r->capacity = capacity[g] > r->capacity ? capacity[g] : r->capacity;
	}
	rows->k = cleared(d, total * rows_k_bytes(rows));
	rows->v = cleared(d, total * rows_v_bytes(rows));
	rows->pos = cleared(d, total * sizeof *rows->pos);
	r->k = s->k != 0 ? cleared(d, s->G * r->capacity * full) : NULL;
	r->v = s->v != 0 ? cleared(d, s->G * r->capacity * full) : NULL;
}

/* Appends rows one by one. Rows that a KV head does not have are dropped again. */
static void
append_all(struct device *d, struct layer_rows *rows, const struct recent *s, const float *k,
    const float *v, uint32_t longest)
{
	const size_t width = (size_t)s->G * s->E;
	uint32_t row, g;

	for (row = 0; row < longest; row++) {
		void *dk = to_device(d, k + row * width, width * sizeof *k);
		void *dv = to_device(d, v + row * width, width * sizeof *v);
		void *pos = to_device(d, &row, sizeof row);

		d->ops->append(d->dev, rows, dk, dv, pos, 1);
		for (g = 0; g < s->G; g++)
			if (row >= s->S[g])
				rows->len[g]--;
		d->ops->free(d->dev, dk);
		d->ops->free(d->dev, dv);
		d->ops->free(d->dev, pos);
	}
}

static void
free_rows(struct device *d, struct layer_rows *rows)
{
	d->ops->free(d->dev, rows->k);
	d->ops->free(d->dev, rows->v);
	d->ops->free(d->dev, rows->pos);
	d->ops->free(d->dev, rows->recent->k);
	d->ops->free(d->dev, rows->recent->v);
}

/* How many rows KV head g had when a row was appended for the last time: one that ended early lost
 * it again. */
static uint32_t
rows_before(const struct recent *s, uint32_t g, uint32_t longest)
{
	return s->S[g] < longest ? s->S[g] : longest - 1;
}

static void
check_state(const struct device *d, const struct layer_rows *rows, const struct recent *s,
    uint32_t longest)
{
	const struct recent_rows *r = rows->recent;
	uint32_t g, n;

	for (g = 0; g < s->G; g++) {
		n = rows_before(s, g, longest);
		verdict(rows->len[g] == s->S[g], "%s: KV head %u has %u rows, want %u", d->name, g,
		    rows->len[g], s->S[g]);
		if (s->k != 0)
			verdict(r->k_coded[g] == keys_coded(s, n), "%s: %u keys coded of %u",
			    d->name, r->k_coded[g], n);
		if (s->v != 0)
			verdict(r->v_coded[g] == values_coded(s, n), "%s: %u values coded of %u",
			    d->name, r->v_coded[g], n);
	}
}

/* want[N][H][E] <- attention of all queries over all rows */
static void
reference(double *want, const struct recent *s, const float *q, const float *k, const float *v,
    uint32_t longest)
{
	const uint32_t H = s->G * s->heads_each;
	uint32_t g, n, h, i, e;

	for (g = 0; g < s->G; g++) {
		const uint32_t S = s->S[g];
		double *rk = calloc((size_t)S * s->E + 1, sizeof *rk);
		double *rv = calloc((size_t)S * s->E + 1, sizeof *rv);

		for (i = 0; i < S; i++)
			for (e = 0; e < s->E; e++) {
				rk[i * s->E + e] = k[((size_t)i * s->G + g) * s->E + e];
				rv[i * s->E + e] = v[((size_t)i * s->G + g) * s->E + e];
			}
		as_seen(rk, rv, s, rows_before(s, g, longest));
		for (n = 0; n < s->N; n++)
			for (h = g * s->heads_each; h < (g + 1) * s->heads_each; h++)
				attend_rows(want + ((size_t)n * H + h) * s->E,
				    q + ((size_t)n * H + h) * s->E, rk, rv, s, S);
		free(rk);
		free(rv);
	}
}

static void
test_case(const struct recent *s)
{
	const uint32_t H = s->G * s->heads_each;
	const size_t outputs = (size_t)s->N * H * s->E;
	uint32_t longest = 0, g, i;
	float *q, *k, *v, *o;
	double *want = calloc(outputs, sizeof *want);
	uint32_t *pos = calloc(s->N, sizeof *pos);
	int j;

	for (g = 0; g < s->G; g++)
		longest = s->S[g] > longest ? s->S[g] : longest;
	q = floats(outputs, 2);
	k = floats((size_t)longest * s->G * s->E, 1.5f);
	v = floats((size_t)longest * s->G * s->E, 1);
	/* a channel that stands out, and one that is constant */
	for (i = 0; i < longest * s->G; i++)
		k[i * s->E + 3] = k[i * s->E + 3] * 4 + 9, k[i * s->E + 5] = -0.75f;
	round_to(k, s->dtype, (size_t)longest * s->G * s->E);
	round_to(v, s->dtype, (size_t)longest * s->G * s->E);
	for (i = 0; i < s->N; i++)
		pos[i] = longest + i;
	reference(want, s, q, k, v, longest);
	new_case();
	for (j = 0; j < devices; j++) {
		struct device *d = &device[j];
		struct query query = { .N = s->N, .H = H, .softcap = s->softcap };
		struct recent_rows recent;
		struct layer_rows rows;
		void *dq, *dp, *out;

		if (!d->ops->takes_recent)
			continue;
		make_rows(d, &rows, &recent, s);
		append_all(d, &rows, s, k, v, longest);
		check_state(d, &rows, s, longest);
		query.q = dq = to_device(d, q, outputs * sizeof *q);
		query.pos = dp = to_device(d, pos, s->N * sizeof *pos);
		out = d->ops->alloc(d->dev, outputs * sizeof *o);
		d->ops->attend(d->dev, out, NULL, &query, &rows);
		o = from_device(d, out, outputs);
		compare(d, ATTEND_RECENT, "recent", o, want, outputs);
		free(o);
		d->ops->free(d->dev, dq);
		d->ops->free(d->dev, dp);
		d->ops->free(d->dev, out);
		free_rows(d, &rows);
	}
	free(q);
	free(k);
	free(v);
	free(want);
	free(pos);
}

/* ---- what is refused ---- */

enum fault { TOO_MANY, KEY_INFINITE, VALUE_INFINITE, WANTS_MASS, WANTS_GATHER };

/* Appends n rows, one of which may be infinite, or asks for what is not computed over such rows, on
 * a device of its own: the failure has the text. */
static void
test_fault(const struct device *on, enum fault fault, uint32_t n, const char *text)
{
	const struct recent s = { KV_ROW_KIVI2, KV_ROW_KIVI4, KV_BF16, 1, 1, 32, 32, 1, { n }, 0 };
	struct device d = *on;
	float *k = floats((size_t)n * s.E, 1), *v = floats((size_t)n * s.E, 1), mass[64] = { 0 };
	struct query query = { .q = k, .pos = (uint32_t[]){ n }, .N = 1, .H = 1 };
	struct chosen chosen = { (uint32_t[]){ 0 }, 1, (uint32_t[]){ 1 }, 1 };
	struct recent_rows recent;
	struct layer_rows rows;
	char err[128] = "";
	const char *why;

	d.dev = d.ops->open(0, 1, err, sizeof err);
	make_rows(&d, &rows, &recent, &s);
	if (fault == TOO_MANY)
		recent.capacity = n - 1;
	if (fault == KEY_INFINITE)
		k[7 * s.E + 9] = INFINITY;
	if (fault == VALUE_INFINITE)
		v[9] = INFINITY;
	append_all(&d, &rows, &s, k, v, n);
	if (fault == WANTS_MASS)
		d.ops->attend_mass(d.dev, mass, 64, &query, mass, &rows, QUERIES_SUM);
	if (fault == WANTS_GATHER)
		d.ops->gather(d.dev, &rows, &rows, &chosen);
	why = d.ops->sync(d.dev);
	verdict(why != NULL && strstr(why, text) != NULL, "%s: \"%s\", want \"%s\"", on->name,
	    why != NULL ? why : "no failure", text);
	free_rows(&d, &rows);
	d.ops->close(d.dev);
	free(k);
	free(v);
}

static void
test_faults(void)
{
	static const char refused[] = "not over full rows behind quantised ones";
	int j;

	for (j = 0; j < devices; j++) {
		if (!device[j].ops->takes_recent)
			continue;
		test_fault(&device[j], TOO_MANY, 5, "has 4 full rows of 4, no room for 1");
		test_fault(&device[j], KEY_INFINITE, 33, "keys 0 to 31 of KV head 0 are not");
		test_fault(&device[j], VALUE_INFINITE, 34, "value 0 of KV head 0 is not finite");
		test_fault(&device[j], WANTS_MASS, 40, refused);
		test_fault(&device[j], WANTS_GATHER, 40, refused);
	}
}

/* Rows about every boundary, all widths, few and many queries, each type with each */
static void
test_grid(void)
{
	static const uint32_t R[] = { 32, 64, 128 }, E[] = { 64, 32, 96, 128 };
	static const uint32_t N[] = { 1, 1, 3, 40 }, each[] = { 1, 3, 4, 8 };
	static const enum kv_row_type k[] = { KV_ROW_KIVI2, KV_ROW_KIVI4, KV_ROW_KIVI2, 0,
		KV_ROW_KIVI4 };
	static const enum kv_row_type v[] = { KV_ROW_KIVI2, KV_ROW_KIVI4, 0, KV_ROW_KIVI2,
		KV_ROW_KIVI2 };
	static const enum kv_dtype dtype[] = { KV_BF16, KV_F16, KV_F32 };
	uint32_t i, S;

	for (i = 0; i < 72; i++) {
		const uint32_t r = R[i % 3];
		const uint32_t rows[] = { 1, 31, 32, 33, r - 1, r, r + 1, 2 * r, 2 * r + 1,
			3 * r + 17, 3 * r + 33, r + 31 };

		S = rows[i % 12];
		test_case(&(struct recent){ k[i % 5], v[i % 5], dtype[i % 3], 1 + i % 2,
			each[i / 2 % 4], E[i / 3 % 4], r, N[i % 4],
			{ S, i % 3 ? S : S * 2 / 3 }, i % 7 == 0 ? 3 : 0 });
	}
}

/* Types that store each row by itself, alone and together with KIVI's: residuals of any number,
 * widths without blocks, transformed keys or values */
static void
test_row_local(void)
{
	static const uint32_t R[] = { 1, 5, 33, 128 }, N[] = { 1, 1, 3, 40 }, each[] = { 1, 3, 9 };
	static const struct { enum kv_row_type k, v; uint32_t E; } type[] = {
		{ KV_ROW_Q8_0, KV_ROW_Q8_0, 64 }, { KV_ROW_Q4_0, KV_ROW_Q4_0, 96 },
		{ KV_ROW_Q4_0 | KV_ROW_HADAMARD, KV_ROW_Q4_0 | KV_ROW_HADAMARD, 64 },
		{ KV_ROW_Q5_0 | KV_ROW_HADAMARD, KV_ROW_Q4_1, 128 },
		{ KV_ROW_Q4_1, KV_ROW_Q5_0, 32 },
		{ 0, KV_ROW_Q8_0 | KV_ROW_HADAMARD, 64 }, { KV_ROW_FP8 | KV_ROW_HADAMARD, 0, 16 },
		{ KV_ROW_INT8, KV_ROW_FP8, 80 },
		{ KV_ROW_INT8 | KV_ROW_HADAMARD, KV_ROW_INT8, 128 } };
	static const enum kv_dtype dtype[] = { KV_BF16, KV_F16, KV_F32 };
	uint32_t i, S;

	for (i = 0; i < 72; i++) {
		const uint32_t r = R[i / 9 % 4];
		const uint32_t rows[] = { 1, r, r + 1, r + 64, r + 77, 3 * r + 130, 400 };

		S = rows[i % 7];
		test_case(&(struct recent){ type[i % 9].k, type[i % 9].v, dtype[i % 3], 1 + i % 2,
			each[i % 3], type[i % 9].E, r, N[i % 4], { S, i % 3 ? S : S * 2 / 3 },
			i % 7 == 0 ? 3 : 0 });
	}
	test_case(&(struct recent){ KV_ROW_KIVI4, KV_ROW_Q8_0, KV_BF16, 2, 3, 64, 32, 1,
		{ 101, 64 }, 0 });
	test_case(&(struct recent){ KV_ROW_Q4_0 | KV_ROW_HADAMARD, KV_ROW_KIVI2, KV_F16, 2, 4, 64,
		32, 1, { 77, 130 }, 0 });
	for (i = 0; i < 4; i++)                        /* split-KV */
		test_case(&(struct recent){ KV_ROW_Q4_0 | KV_ROW_HADAMARD * (i % 2), KV_ROW_Q4_0 |
			KV_ROW_HADAMARD, KV_BF16, 1, i < 2 ? 3 : 9, 64, 7, 1, { 1130 + 13 * i },
			0 });
}

void
test_recent(void)
{
	uint32_t i;

	test_faults();
	test_grid();
	test_row_local();
	for (i = 0; i < 4; i++)                        /* split-KV */
		test_case(&(struct recent){ i % 2 ? KV_ROW_KIVI2 : KV_ROW_KIVI4, KV_ROW_KIVI2,
			KV_BF16, 1, i < 2 ? 3 : 9, 64, 64, 1, { 1130 + 13 * i }, 0 });
}
