/* gpu_selfcheck_small.cu - the small problem of a kind of call, by its kernels and by naive ones
 *
 * Two KV heads of different lengths, so many rows that keys are split over blocks, queries in the
 * last positions. Numbers are uniform, and logits about as wide as those of models. A wrong
 * fragment, a missed wait or a tile too few changes results by much more than rounding does. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/gpu_selfcheck.h"

constexpr uint32_t HEADS = 2, LONG = 1100, SHORT = 1037;       /* KV heads; their rows */
constexpr uint32_t MANY = 150, WINDOW = 300, BLOCKS = 16;      /* MANY: queries of a prompt */
constexpr uint32_t MANY_ROWS = 1200;   /* queries times heads of a KV head: less memory, time */

#define SOFTCAP 20.0f

struct small {
	struct dev *d;
	void *block[BLOCKS];         /* device memory of the problem */
	unsigned blocks;
	bool failed;
	uint32_t random;
	struct layer_rows rows;
	uint64_t start[HEADS];
	uint32_t len[HEADS], capacity[HEADS];
	struct query query;
	float *o, *lse;              /* [N][H][E]; [N][H] */
	float *lists;                /* [H][LONG], of scores or mass */
	float *got[2];               /* host: results of naive kernels, and of the others */
	size_t n, lses;              /* numbers of the result; of them, behind the others, lse */
	float *host;                 /* for copies; as many as the longest array has */
};

/* ---- memory ---- */

static void *
device_memory(struct small *s, size_t bytes)
{
	void *p = s->blocks < BLOCKS ? gpu_alloc(s->d, bytes) : NULL;

	if (p == NULL)
		s->failed = true;
	else
		s->block[s->blocks++] = p;
	return p;
}

static void
put(struct small *s, void *to, const void *from, size_t bytes)
{
	if (!s->failed)
		gpu_put(s->d, to, from, bytes);
}

/* Uniform in +-most */
static float *
random_numbers(struct small *s, size_t n, float most)
{
	float *to = (float *)device_memory(s, n * sizeof *to);

	for (size_t i = 0; i < n && !s->failed; i++) {
		s->random = s->random * 1664525 + 1013904223;
		s->host[i] = ((float)(s->random >> 8) / (1 << 23) - 1) * most;
	}
	put(s, to, s->host, n * sizeof *to);
	return to;
}

/* 0, 1, 2 ... from `first` on */
static uint32_t *
counting(struct small *s, uint32_t n, uint32_t first)
{
	uint32_t *to = (uint32_t *)device_memory(s, n * sizeof *to), *at = (uint32_t *)s->host;

	for (uint32_t i = 0; i < n && !s->failed; i++)
		at[i] = first + i;
	put(s, to, at, n * sizeof *to);
	return to;
}

/* ---- the problem ---- */

/* s->rows <- HEADS * LONG random rows, of which the second KV head uses SHORT */
static void
make_rows(struct small *s, const struct kernel_case *c)
{
	struct layer_rows *r = &s->rows;
	const size_t n = (size_t)HEADS * LONG;
	float *k, *v;
	uint32_t *pos;

	*r = { .k = NULL, .v = NULL, .pos = NULL, .start = s->start, .len = s->len,
		.capacity = s->capacity, .heads = HEADS, .width = c->width,
		.dtype = (enum kv_dtype)c->dtype, .k_type = (enum kv_row_type)c->k_type,
		.v_type = (enum kv_row_type)c->v_type, .recent = NULL, .v_in_k = (int)c->latent };
	s->start[1] = LONG;
	s->capacity[0] = s->capacity[1] = LONG;
	r->k = device_memory(s, n * rows_k_bytes(r));
	r->v = c->latent ? r->k : device_memory(s, n * rows_v_bytes(r));
	r->pos = (uint32_t *)device_memory(s, n * sizeof *r->pos);
	k = random_numbers(s, n * c->width, 1);
	v = random_numbers(s, n * c->width, 1);
	pos = counting(s, LONG, 0);
	if (!s->failed)
		gpu_append(s->d, r, k, v, pos, LONG);
	s->len[1] = SHORT;
}

static uint32_t
queries_of(const struct kernel_case *c)
{
	return c->queries <= DECODE_QUERIES ? c->queries :
	    min(MANY, max(MANY_ROWS / c->heads, (uint32_t)DECODE_QUERIES + 1));
}

static void
make_queries(struct small *s, const struct kernel_case *c)
{
	const uint32_t N = queries_of(c), H = HEADS * c->heads;

	s->query = { .q = random_numbers(s, (size_t)N * H * c->width, 4),
		.pos = counting(s, N, LONG - N), .N = N, .H = H,
		.window = c->window ? WINDOW : 0, .softcap = c->softcap ? SOFTCAP : 0,
		.sinks = NULL };
}

/* Where results go, as many numbers as the op gives */
static void
make_results(struct small *s, const struct kernel_case *c)
{
	const size_t rows = (size_t)s->query.N * s->query.H;
	const bool attends = c->op == CHECKED_ATTEND || c->op == CHECKED_CHOSEN;

	s->o = (float *)device_memory(s, rows * c->width * sizeof *s->o);
	s->lse = (float *)device_memory(s, rows * sizeof *s->lse);
	s->lists = (float *)device_memory(s, (size_t)s->query.H * LONG * sizeof *s->lists);
	s->lses = c->op == CHECKED_ATTEND ? rows : 0;
	s->n = !attends ? (size_t)s->query.H * LONG :
	    (c->values ? rows * c->width : 0) + s->lses;
	for (unsigned i = 0; i < 2; i++)
		if ((s->got[i] = (float *)malloc(s->n * sizeof *s->got[i])) == NULL)
			s->failed = true;
}

/* ---- the ops ---- */

static void
run_attend(struct small *s, const struct kernel_case *c, float *got)
{
	const size_t rows = (size_t)s->query.N * s->query.H, all = c->values ? rows * c->width : 0;

	gpu_attend(s->d, c->values ? s->o : NULL, s->lse, &s->query, &s->rows);
	gpu_get(s->d, got, s->o, all * sizeof *got);
	gpu_get(s->d, got + all, s->lse, rows * sizeof *got);
}

/* Attends to every third entry and the last one of each KV head. */
static void
run_chosen(struct small *s, const struct kernel_case *c, float *got)
{
	const uint32_t entries = parts_of(LONG, c->entry);
	uint32_t n[HEADS], *at = (uint32_t *)s->host;
	struct chosen chosen = { .at = (uint32_t *)s->lists, .stride = entries, .n = n,
		.rows = c->entry };

	for (uint32_t g = 0; g < HEADS; g++) {
		const uint32_t last = (s->len[g] - 1) / c->entry;

		n[g] = 0;
		for (uint32_t i = 0; i <= last; i++)
			if (i % 3 == 0 || i == last)
				at[g * entries + n[g]++] = i;
	}
	put(s, chosen.at, at, (size_t)HEADS * entries * sizeof *at);
	gpu_attend_chosen(s->d, s->o, &s->query, &s->rows, &chosen);
	gpu_get(s->d, got, s->o, s->n * sizeof *got);
}

static void
run_mass(struct small *s, const struct kernel_case *c, float *got)
{
	const int reference = s->d->reference;

	s->d->reference = 1;           /* the same lse for all */
	gpu_attend(s->d, NULL, s->lse, &s->query, &s->rows);
	s->d->reference = reference;
	gpu_clear(s->d, s->lists, s->n * sizeof *s->lists);
	if (c->op == CHECKED_MASS)
		gpu_attend_mass(s->d, s->lists, LONG, &s->query, s->lse, &s->rows,
		    (enum over_queries)c->over);
	else
		gpu_window_mass(s->d, s->lists, LONG, &s->query, &s->rows,
		    c->entry ? &s->rows : NULL, (enum over_queries)c->over);
	gpu_get(s->d, got, s->lists, s->n * sizeof *got);
}

/* With entries for the rows that have one */
static void
run_bits(struct small *s, const struct kernel_case *c, float *got)
{
	uint64_t start[HEADS] = { 0, LONG / c->entry };
	uint32_t len[HEADS] = {}, capacity[HEADS] = { LONG / c->entry, SHORT / c->entry };
	struct entries bits = { .data = NULL, .bytes = (size_t)c->width * (4 + c->entry / 8),
		.start = start, .len = len, .capacity = capacity, .heads = HEADS,
		.width = c->width, .rows = c->entry };

	bits.data = device_memory(s, HEADS * (LONG / c->entry) * bits.bytes);
	if (s->failed)
		return;
	gpu_pack_bits(s->d, &bits, &s->rows);
	gpu_clear(s->d, s->lists, s->n * sizeof *s->lists);
	gpu_bits_scores(s->d, s->lists, LONG, &s->query, &bits, &s->rows);
	gpu_get(s->d, got, s->lists, s->n * sizeof *got);
}

static void
run(struct small *s, const struct kernel_case *c, float *got)
{
	struct dev *const d = s->d;

	/* Nothing of an earlier run may pass for a result. */
	memset(s->host, 0xff, (size_t)s->query.N * s->query.H * c->width * sizeof *s->host);
	put(s, s->o, s->host, (size_t)s->query.N * s->query.H * c->width * sizeof *s->o);
	put(s, s->lse, s->host, (size_t)s->query.N * s->query.H * sizeof *s->lse);
	for (unsigned i = 0; i < SCRATCHES; i++)
		gpu_clear(d, d->scratch[i].at, d->scratch[i].bytes);
	switch (c->op) {
	case CHECKED_ATTEND:
		run_attend(s, c, got);
		break;
	case CHECKED_CHOSEN:
		run_chosen(s, c, got);
		break;
	case CHECKED_MASS:
	case CHECKED_WINDOW:
		run_mass(s, c, got);
		break;
	case CHECKED_BITS:
		run_bits(s, c, got);
		break;
	}
}

/* ---- comparison ---- */

/* The greatest difference of n numbers, relative to the greatest magnitude of `want` */
static double
difference_of(const float *x, const float *want, size_t n)
{
	double most = 0, greatest = 0;

	for (size_t i = 0; i < n; i++) {
		if (!isfinite(want[i]) || !isfinite(x[i])) {
			if (want[i] != x[i])
				return INFINITY;
			continue;
		}
		most = fmax(most, fabs((double)want[i]));
		greatest = fmax(greatest, fabs((double)x[i] - want[i]));
	}
	return most > 0 ? greatest / most : greatest > 0 ? INFINITY : 0;
}

static double
difference(const struct small *s)
{
	const float *const want = s->got[0], *const x = s->got[1];
	const size_t n = s->n - s->lses;

	return fmax(difference_of(x, want, n), difference_of(x + n, want + n, s->lses));
}

static struct differences
compare_runs(struct small *s, const struct kernel_case *c)
{
	struct dev *const d = s->d;
	struct differences x = { -1, -1 };

	d->reference = 1;
	run(s, c, s->got[0]);
	d->reference = 0;
	d->no_wgmma = true;
	run(s, c, s->got[1]);
	if (s->failed || !gpu_ok(d))
		return x;
	x = { difference(s), 0 };
	if (d->hopper) {
		d->no_wgmma = false;
		d->any_wgmma = true;
		run(s, c, s->got[1]);
		x.hopper = difference(s);
	}
	return s->failed || !gpu_ok(d) ? differences{ -1, -1 } : x;
}

/* Decode attention and scores are as exact as f32, 1e-6 on the emulator; the others round queries
 * and weights to 16 bits, 2e-3 to 7e-3. */
double
gpu_check_tolerance(const struct kernel_case *c)
{
	const bool attends = c->op == CHECKED_ATTEND || c->op == CHECKED_CHOSEN;

	if (c->op == CHECKED_BITS)
		return 1e-4;
	return attends && c->queries <= DECODE_QUERIES && !c->latent ? 1e-3 : 0.03;
}

struct differences
gpu_check_case(struct dev *d, const struct kernel_case *c)
{
	const size_t rows = max((size_t)HEADS * LONG, (size_t)HEADS * c->heads * queries_of(c));
	struct differences x = { -1, -1 };
	struct small s = {};

	s.d = d;
	s.random = 1;
	if ((s.host = (float *)malloc(rows * c->width * sizeof *s.host)) == NULL)
		return x;
	make_rows(&s, c);
	make_queries(&s, c);
	make_results(&s, c);
	if (!s.failed)
		x = compare_runs(&s, c);
	for (unsigned i = 0; i < s.blocks; i++)
		gpu_free(d, s.block[i]);
	free(s.got[0]);
	free(s.got[1]);
	free(s.host);
	return x;
}
