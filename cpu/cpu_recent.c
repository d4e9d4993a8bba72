/* cpu_recent.c - appending to quantised rows whose last rows stay full, and attention over them
 * (kv-snapshot(5), 4.20, 4.21)
 *
 * Before rows are added those that have become old enough are coded. So the queries of the added
 * rows see the rows before them as they were stored, and the added ones in full: the paper's
 * order. */
#include "cpu/cpu_internal.h"

struct append {
	struct dev *d;
	struct layer_rows *rows;
	const float *k, *v;
	const uint32_t *pos;
	uint32_t N;
	float *scratch;              /* [threads][KV_GROUP_ROWS][E] */
};

/* Codes the groups of keys of KV head g from row s up to row `end`, of KIVI's types. */
static void
code_groups(const struct append *a, size_t g, uint32_t s, uint32_t end, float *x)
{
	const struct layer_rows *c = a->rows;
	const struct recent_rows *r = c->recent;
	const size_t E = c->width, row = E * kv_dtype_size(c->dtype), code = rows_k_bytes(c);
	const char *full = (const char *)r->k + g * r->capacity * row;

	for (; s < end; s += KV_GROUP_ROWS) {
		kv_to_f32(x, full + (s - r->first[g]) * row, c->dtype, KV_GROUP_ROWS * E);
		if (!kv_group_from_f32((char *)c->k + (c->start[g] + s) * code, x, c->k_type, E))
			cpu_fail(a->d, "store: keys %u to %u of KV head %zu are not finite, or too "
			    "large for %s", s, s + KV_GROUP_ROWS - 1, g,
			    kv_row_type_name(c->k_type));
	}
}

/* Codes rows s to end-1 of KV head g, each by itself. */
static void
code_rows(const struct append *a, size_t g, uint32_t s, uint32_t end, float *x, const void *full,
    void *stored, enum kv_row_type type, const char *what)
{
	const struct layer_rows *c = a->rows;
	const struct recent_rows *r = c->recent;
	const size_t E = c->width, row = E * kv_dtype_size(c->dtype), code = kv_row_bytes(type, E);
	const char *from = (const char *)full + g * r->capacity * row;

	for (; s < end; s++) {
		kv_to_f32(x, from + (s - r->first[g]) * row, c->dtype, E);
		if (kv_rows_from_f32((char *)stored + (c->start[g] + s) * code, x, type, E, 1) < 1)
			cpu_fail(a->d, "store: %s %u of KV head %zu is not finite, or too large "
			    "for %s", what, s, g, kv_row_type_name(type));
	}
}

/* Codes the rows of KV head g that have become old enough. */
static void
code_old(const struct append *a, size_t g, float *x)
{
	const struct layer_rows *c = a->rows;
	const struct recent_rows *r = c->recent;
	const uint32_t keys = kv_coded_keys(rows_k_type(c), c->len[g], r->residual);
	const uint32_t values = kv_coded_values(rows_v_type(c), c->len[g], r->residual);

	if (r->k != NULL) {
		if (kv_row_type_kivi(c->k_type))
			code_groups(a, g, r->k_coded[g], keys, x);
		else
			code_rows(a, g, r->k_coded[g], keys, x, r->k, c->k, c->k_type, "key");
		r->k_coded[g] = keys;
	}
	if (r->v != NULL) {
		code_rows(a, g, r->v_coded[g], values, x, r->v, c->v, c->v_type, "value");
		r->v_coded[g] = values;
	}
}

/* Adds N rows of the call behind the len[g] of KV head g, as elements of dtype in `full`, or, where
 * that is NULL, of the type in `stored`. */
static void
add_rows(const struct append *a, size_t g, const float *x, void *full, void *stored,
    enum kv_row_type type, const char *what)
{
	const struct layer_rows *c = a->rows;
	const struct recent_rows *r = c->recent;
	const size_t E = c->width, row = E * kv_dtype_size(c->dtype);
	size_t n, at;

	for (n = 0; n < a->N; n++) {
		const float *from = x + (n * c->heads + g) * E;

		if (full != NULL) {
			at = g * r->capacity + c->len[g] + n - r->first[g];
			kv_from_f32((char *)full + at * row, from, c->dtype, E);
			continue;
		}
		cpu_store_row(a->d, stored, c->start[g] + c->len[g] + n, from, type, E, what, g);
	}
}

static void
append_head(void *arg, size_t g, int thread)
{
	const struct append *a = arg;
	struct layer_rows *c = a->rows;
	const struct recent_rows *r = c->recent;

	code_old(a, g, a->scratch + (size_t)thread * KV_GROUP_ROWS * c->width);
	add_rows(a, g, a->k, r->k, c->k, rows_k_type(c), "key");
	add_rows(a, g, a->v, r->v, c->v, rows_v_type(c), "value");
	memcpy(c->pos + c->start[g] + c->len[g], a->pos, a->N * sizeof *a->pos);
}

void
cpu_append_recent(struct dev *d, struct layer_rows *c, const float *k, const float *v,
    const uint32_t *pos, uint32_t N)
{
	struct append a = { d, c, k, v, pos, N, NULL };
	const struct recent_rows *r = c->recent;
	uint32_t g;

	for (g = 0; g < c->heads; g++)
		if (c->len[g] < r->first[g] || N > r->capacity - (c->len[g] - r->first[g])) {
			cpu_fail(d, "store: KV head %u has %u full rows of %u, no room for %u", g,
			    c->len[g] - r->first[g], r->capacity, N);
			return;
		}
	a.scratch = cpu_scratch(d, (size_t)d->threads * KV_GROUP_ROWS * c->width *
	    sizeof *a.scratch);
	if (a.scratch != NULL)
		cpu_run(d, append_head, &a, c->heads, (size_t)N * c->heads * c->width);
}

int
cpu_refuse_recent(struct dev *d, const struct layer_rows *rows, const char *op)
{
	if (rows->recent != NULL)
		cpu_fail(d, "%s: not over full rows behind quantised ones", op);
	return rows->recent != NULL;
}

/* ---- attention ---- */

void
cpu_use_vnni(const struct vnni_products *vnni, struct attend_job *j)
{
	j->k_vnni = vnni != NULL && vnni->takes_keys(j->k_type, j->E) ? vnni : NULL;
	j->v_vnni = vnni != NULL && vnni->takes_values(j->v_type, j->E) ? vnni : NULL;
}

/* A job over rows that all have full keys, or all have codes, and the same for values */
static struct attend_job
part_of(const struct attend_job *j, const struct layer_rows *rows, size_t g, int keys_full,
    int values_full)
{
	const struct recent_rows *r = rows->recent;
	const size_t row = j->E * kv_dtype_size(rows->dtype), at = g * r->capacity * row;
	struct attend_job part = *j;

	if (keys_full) {
		part.k = (const char *)r->k + at;
		part.k_type = (enum kv_row_type)rows->dtype;
		part.k_bytes = row;
		part.k_before = r->first[g];
	}
	if (values_full && j->v != NULL) {
		part.v = (const char *)r->v + at;
		part.v_type = (enum kv_row_type)rows->dtype;
		part.v_bytes = row;
		part.v_before = r->first[g];
	}
	return part;
}

/* Transforms the queries of a job, which are the thread's scratch. */
static void
turn_queries(const struct simd *simd, struct attend_job *j)
{
	simd->transform((float *)j->q, j->E, j->M);
}

static void
turn_output(const struct simd *simd, struct attend_job *j)
{
	size_t m;

	for (m = 0; m < j->M; m++)
		simd->transform(j->o + m * PADDED(j->E), j->E, 1);
}

void
cpu_attend_recent(const struct simd *simd, const struct vnni_products *vnni,
    const struct layer_rows *rows, size_t g, struct attend_job *j)
{
	const struct recent_rows *r = rows->recent;
	const size_t last = j->last;
	const size_t k = r->k != NULL ? r->k_coded[g] : SIZE_MAX;
	const size_t v = r->v != NULL ? r->v_coded[g] : SIZE_MAX;
	/* full rows are not transformed */
	int q_turned = cpu_transformed(rows_k_type(rows));
	int o_turned = cpu_transformed(rows_v_type(rows));
	struct attend_job part;
	size_t end;

	for (; j->first < last; j->first = end) {
		end = last;
		if (j->first < k && k < end)
			end = k;
		if (j->first < v && v < end)
			end = v;
		j->last = end;
		if (q_turned && j->first >= k) {
			turn_queries(simd, j);
			q_turned = 0;
		}
		if (o_turned && j->first >= v) {
			turn_output(simd, j);
			o_turned = 0;
		}
		part = part_of(j, rows, g, j->first >= k, j->first >= v);
		if (j->v != NULL)
			cpu_use_vnni(vnni, &part);
		simd->attend(&part);
	}
	if (o_turned)
		turn_output(simd, j);
}
