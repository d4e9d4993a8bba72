/* bench_quantised.c - part "rows" of bench_gpu: attention over rows of each type, and in bf16 */
#include <stdio.h>
#include <stdlib.h>

#include "libkvfile/rowtype.h"
#include "tests/gpu/bench_gpu.h"

enum { H = 32, G = 8, E = 128, PIECE = 1009 };   /* PIECE different rows are repeated */

struct case_of_rows {
	struct layer_rows rows[MOST_COPIES];
	int copies;
	struct query query;
	float *o, *lse;
};

/* n random rows on the device */
static void *
fill_rows(size_t n, enum kv_row_type type)
{
	static float numbers[PIECE * E];
	static char piece[PIECE * E * 4];
	const size_t row = kv_row_bytes(type, E);
	char *p = device_alloc(n * row);
	size_t i;

	for (i = 0; i < PIECE * E; i++)
		numbers[i] = (float)rand() / (float)RAND_MAX * 2 - 1;
	kv_rows_from_f32(piece, numbers, type, E, PIECE);
	for (i = 0; i < n; i += PIECE)
		o->put(dev, p + i * row, piece, (n - i < PIECE ? n - i : PIECE) * row);
	return p;
}

/* N queries at the last of S rows, and enough copies of the rows that they do not stay in L2 */
static struct case_of_rows *
make_case(enum kv_row_type keys, enum kv_row_type values, uint32_t N, uint32_t S)
{
	static uint64_t start[G];
	static uint32_t len[G];
	struct case_of_rows *c = calloc(1, sizeof *c);
	const size_t bytes = (size_t)G * S * (kv_row_bytes(keys, E) + kv_row_bytes(values, E));
	int i;

	c->copies = tiny || N > 1 ? 1 : (int)(400e6 / (double)bytes) + 1;
	if (c->copies > MOST_COPIES)
		c->copies = MOST_COPIES;
	for (i = 0; i < G; i++) {
		start[i] = (uint64_t)i * S;
		len[i] = S;
	}
	for (i = 0; i < c->copies; i++) {
		struct layer_rows *r = &c->rows[i];
		uint32_t g;

		*r = (struct layer_rows){ .k = fill_rows((size_t)G * S, keys),
			.v = fill_rows((size_t)G * S, values),
			.pos = device_alloc((size_t)G * S * 4), .start = start, .len = len,
			.heads = G, .width = E, .dtype = KV_BF16, .k_type = keys,
			.v_type = values };
		for (g = 0; g < G; g++) {
			uint32_t *p = count_up(S, 0);

			o->copy(dev, r->pos + start[g], p, S * 4);
			o->free(dev, p);
		}
	}
	c->query = (struct query){ .q = fill((size_t)N * H * E, KV_F32, 3),
		.pos = count_up(N, S - N), .N = N, .H = H };
	c->o = device_alloc((size_t)N * H * E * 4);
	c->lse = device_alloc((size_t)N * H * 4);
	return c;
}

static void
free_case(struct case_of_rows *c)
{
	int i;

	for (i = 0; i < c->copies; i++) {
		o->free(dev, c->rows[i].k);
		o->free(dev, c->rows[i].v);
		o->free(dev, c->rows[i].pos);
	}
	o->free(dev, (void *)c->query.q);
	o->free(dev, (void *)c->query.pos);
	o->free(dev, c->o);
	o->free(dev, c->lse);
	free(c);
}

static void
call_attend(void *arg, int i)
{
	struct case_of_rows *c = arg;

	o->attend(dev, c->o, c->lse, &c->query, &c->rows[i % c->copies]);
}

void
bench_rows(void)
{
	static const struct {
		enum kv_row_type keys, values;
		int prefill;
	} of[] = {
		{ KV_ROW_BF16, KV_ROW_BF16, 1 }, { KV_ROW_Q8_0, KV_ROW_Q8_0, 1 },
		{ KV_ROW_INT8, KV_ROW_INT8, 0 }, { KV_ROW_FP8, KV_ROW_FP8, 0 },
		{ KV_ROW_Q5_0, KV_ROW_Q5_0, 0 }, { KV_ROW_Q4_1, KV_ROW_Q4_1, 0 },
		{ KV_ROW_Q4_0, KV_ROW_Q4_0, 1 }, { KV_ROW_Q8_0, KV_ROW_Q4_0, 0 },
		{ KV_ROW_Q8_0 | KV_ROW_HADAMARD, KV_ROW_Q8_0 | KV_ROW_HADAMARD, 1 },
	};
	const uint32_t S = tiny ? 300 : 32768, N = tiny ? 80 : 8192;
	size_t i;

	for (i = 0; i < sizeof of / sizeof of[0]; i++) {
		const char *const keys = kv_row_type_name(of[i].keys),
			*const values = kv_row_type_name(of[i].values);
		struct case_of_rows *c = make_case(of[i].keys, of[i].values, 1, S);
		char what[96];

		snprintf(what, sizeof what, "attend decode %u/%u E %u S %u, keys %s values %s", H,
		    G, E, S, keys, values);
		report(what, call_attend, c, (double)G * S *
		    (double)(kv_row_bytes(of[i].keys, E) + kv_row_bytes(of[i].values, E)), 0);
		free_case(c);
		if (!of[i].prefill)
			continue;
		c = make_case(of[i].keys, of[i].values, N, N);
		snprintf(what, sizeof what, "attend prefill %u/%u E %u N %u, keys %s values %s", H,
		    G, E, N, keys, values);
		report(what, call_attend, c, 0, 2.0 * H * E * N * N);
		free_case(c);
	}
}
