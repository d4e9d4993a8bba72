/* checkpoint.c - finds the tensors of a quantised matrix, and makes rows in bf16 of them
 *
 * A matrix is cut into pieces of rows, and each thread takes the next piece until none is left.
 * What a piece becomes does not depend on who makes it. */
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "model/checkpoint_internal.h"

enum { PIECE_ROWS = 16, MOST_THREADS = 64 };

static const struct checkpoint_scheme *const schemes[] = {
	[CHECKPOINT_FP8] = &checkpoint_grid, [CHECKPOINT_COMPRESSED] = &checkpoint_grid,
	[CHECKPOINT_GPTQ] = &checkpoint_gptq, [CHECKPOINT_AWQ] = &checkpoint_awq,
	[CHECKPOINT_NF4] = &checkpoint_nf4,
};

const char *
checkpoint_name(enum checkpoint_method method)
{
	static const char *const names[] = { [CHECKPOINT_PLAIN] = "plain", [CHECKPOINT_FP8] = "FP8",
		[CHECKPOINT_COMPRESSED] = "compressed-tensors", [CHECKPOINT_GPTQ] = "GPTQ",
		[CHECKPOINT_AWQ] = "AWQ", [CHECKPOINT_NF4] = "bitsandbytes" };

	return names[method];
}

/* ---- tensors ---- */

/* full <- the matrix's name with what in place of "weight". Returns full */
static const char *
part_name(const char *name, const char *what, char full[PART_NAME])
{
	const size_t n = strlen(name);

	snprintf(full, PART_NAME, "%.*s%s", (int)(n > 6 ? n - 6 : 0), name, what);
	return full;
}

const struct tensor *
checkpoint_part(const struct checkpoint_search *s, const char *what)
{
	char full[PART_NAME];

	return safetensors_find(s->files, part_name(s->name, what, full));
}

int
checkpoint_bad(const struct checkpoint_search *s, const struct tensor *t, const char *fmt, ...)
{
	char text[300];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	return model_file_fail(s->err, s->errlen, MODEL_EINVALID, t->file, "%s: %s", t->name, text);
}

int
checkpoint_unsupported(const struct checkpoint_search *s, const struct tensor *t, const char *fmt,
    ...)
{
	char text[300];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	return model_file_fail(s->err, s->errlen, MODEL_EUNSUPPORTED, t->file, "%s: %s", t->name,
	    text);
}

/* Its elements, as [rows][cols]: a vector is one column, a scalar one row of it. */
static int
has_shape(const struct tensor *t, uint64_t rows, uint64_t cols)
{
	const uint64_t have_rows = t->ndim > 0 ? t->dim[0] : 1;
	const uint64_t have_cols = t->ndim > 1 ? t->dim[1] : 1;

	return t->ndim <= 2 && have_rows == rows && have_cols == cols;
}

static int
has_type(const struct tensor *t, const char *type)
{
	return strcmp(type, "scale") == 0 ? t->dtype != 0 : strcmp(t->type, type) == 0;
}

int
checkpoint_need(const struct checkpoint_search *s, const char *what, const char *type,
    uint64_t rows, uint64_t cols, const struct tensor **out)
{
	const struct tensor *t = checkpoint_part(s, what);
	char full[PART_NAME];

	if (t == NULL)
		return model_file_fail(s->err, s->errlen, MODEL_EINVALID,
		    safetensors_file(s->files, 0, NULL), "no tensor %s, of quantised weights",
		    part_name(s->name, what, full));
	if (!has_type(t, type))
		return checkpoint_unsupported(s, t, "dtype %s is not supported there: want %s",
		    t->type, strcmp(type, "scale") == 0 ? "F32, F16 or BF16" : type);
	if (!has_shape(t, rows, cols))
		return checkpoint_bad(s, t, "want [%" PRIu64 "][%" PRIu64 "], file has [%" PRIu64
		    "][%" PRIu64 "]", rows, cols, t->ndim > 0 ? t->dim[0] : 1,
		    t->ndim > 1 ? t->dim[1] : 1);
	*out = t;
	return MODEL_OK;
}

int
checkpoint_groups(const struct checkpoint_search *s, const char *what, uint32_t cols,
    uint32_t groups, const struct tensor **out)
{
	uint32_t i, g;
	int rc;

	*out = NULL;
	if (checkpoint_part(s, what) == NULL)
		return MODEL_OK;
	if ((rc = checkpoint_need(s, what, "I32", cols, 1, out)) != MODEL_OK)
		return rc;
	for (i = 0; i < cols; i++)
		if ((g = checkpoint_word(*out, i)) >= groups)
			return checkpoint_bad(s, *out, "column %u is in group %" PRId32 " of %u", i,
			    (int32_t)g, groups);
	return MODEL_OK;
}

int
checkpoint_has(const struct checkpoint_config *config, const struct tensor_set *files,
    const char *name)
{
	const struct checkpoint_search s = { .config = config, .files = files, .name = name };

	return config->method != CHECKPOINT_PLAIN && schemes[config->method]->has(&s);
}

int
checkpoint_find(const struct checkpoint_config *config, const struct tensor_set *files,
    const char *name, uint32_t rows, uint32_t cols, struct checkpoint_matrix *m, char *err,
    size_t errlen)
{
	const struct checkpoint_search s = { config, files, name, err, errlen };
	int rc;

	*m = (struct checkpoint_matrix){ .scheme = schemes[config->method], .rows = rows,
		.cols = cols, .zeros_less_1 = config->zeros_less_1 };
	if ((rc = m->scheme->find(&s, m)) != MODEL_OK)
		return rc;
	m->tensor = (struct tensor){ .name = m->at.codes->name, .dtype = KV_BF16,
		.weight = WEIGHT_BF16, .ndim = 2, .dim = { rows, cols },
		.bytes = (uint64_t)rows * cols * 2, .type = "BF16", .file = m->at.codes->file,
		.quantised = m };
	return MODEL_OK;
}

void
checkpoint_mark(const struct checkpoint_matrix *m, const struct tensor_set *files,
    uint8_t *needed)
{
	const struct checkpoint_parts *p = &m->at;
	const struct tensor *const parts[] = { p->codes, p->scales, p->zeros, p->group, p->shape,
		p->map, p->scale_scales, p->scale_map, p->state };
	size_t i;

	for (i = 0; i < sizeof parts / sizeof parts[0]; i++)
		if (parts[i] != NULL)
			needed[parts[i] - safetensors_at(files, 0)] = 1;
}

static int
ends_with(const char *text, const char *tail)
{
	const size_t n = strlen(text), m = strlen(tail);

	return n >= m && strcmp(text + n - m, tail) == 0;
}

int
checkpoint_passes_over(const struct checkpoint_config *config, const struct tensor *t)
{
	static const char *const activations[] = { ".input_scale", ".activation_scale",
		".input_zero_point", ".output_scale", ".output_zero_point" };
	static const char *const cache[] = { ".k_scale", ".v_scale", ".k_zero_point",
		".v_zero_point", ".k_proj.output_scale", ".v_proj.output_scale" };
	size_t i;

	for (i = 0; config->activations && i < sizeof activations / sizeof activations[0]; i++)
		if (ends_with(t->name, activations[i]))
			return 1;
	for (i = 0; config->cache && i < sizeof cache / sizeof cache[0]; i++)
		if (ends_with(t->name, cache[i]))
			return 1;
	return 0;
}

/* ---- rows ---- */

struct making {
	const struct checkpoint_matrix *m;
	uint32_t from, n;
	uint16_t *out;
	float *memory;                  /* [threads][floats] */
	size_t floats;
	atomic_uint next;               /* piece */
	atomic_uint_least64_t bad;      /* lowest number that is not finite, UINT64_MAX: none */
};

/* What the scheme's program rounds to, and then bf16 */
static void
round_numbers(const struct checkpoint_matrix *m, float *x, size_t n, uint16_t *out)
{
	uint16_t half[256];
	size_t i, some;

	for (i = 0; m->rounded == KV_F16 && i < n; i += some) {
		some = n - i < 256 ? n - i : 256;
		kv_from_f32(half, x + i, KV_F16, some);
		kv_to_f32(x + i, half, KV_F16, some);
	}
	kv_from_f32(out, x, KV_BF16, n);
}

static void
note_bad(struct making *w, const uint16_t *out, uint64_t first, size_t n)
{
	uint_least64_t lowest = atomic_load(&w->bad);
	size_t i;

	for (i = 0; i < n; i++)
		if ((out[i] & 0x7f80) == 0x7f80)
			break;
	while (i < n && first + i < lowest &&
	    !atomic_compare_exchange_weak(&w->bad, &lowest, first + i))
		;
}

static int
make_next(struct making *w, float *memory)
{
	const uint32_t at = atomic_fetch_add(&w->next, 1) * PIECE_ROWS;
	const size_t cols = w->m->cols;
	struct checkpoint_piece p = { .row = w->from + at, .x = memory };
	size_t n;

	if (at >= w->n)
		return 0;
	p.n = w->n - at < PIECE_ROWS ? w->n - at : PIECE_ROWS;
	n = p.n * cols;
	p.scratch = memory + PIECE_ROWS * cols;
	w->m->scheme->numbers(w->m, &p);
	round_numbers(w->m, p.x, n, w->out + at * cols);
	note_bad(w, w->out + at * cols, (uint64_t)p.row * cols, n);
	return 1;
}

struct maker {
	struct making *work;
	float *memory;
	pthread_t thread;
};

static void *
make_beside(void *with)
{
	const struct maker *own = with;

	while (make_next(own->work, own->memory))
		;
	return NULL;
}

/* A thread that cannot be had is done without. */
static void
make_all(struct making *w, unsigned threads)
{
	struct maker own[MOST_THREADS];
	unsigned i, n;

	for (i = 0; i < threads; i++)
		own[i] = (struct maker){ w, w->memory + i * w->floats, 0 };
	for (n = 1; n < threads; n++)
		if (pthread_create(&own[n].thread, NULL, make_beside, &own[n]) != 0)
			break;
	make_beside(&own[0]);
	for (i = 1; i < n; i++)
		pthread_join(own[i].thread, NULL);
}

int
checkpoint_rows(const struct checkpoint_matrix *m, uint32_t from, uint32_t n, unsigned threads,
    uint16_t *out, char *err, size_t errlen)
{
	const uint32_t pieces = n / PIECE_ROWS + (n % PIECE_ROWS != 0);
	struct making w = { .m = m, .from = from, .n = n, .out = out,
		.floats = PIECE_ROWS * (size_t)m->cols + m->scheme->scratch(m, PIECE_ROWS) };
	const struct tensor *t = m->at.codes;
	uint64_t bad;

	threads = threads < 1 ? 1 : threads < MOST_THREADS ? threads : MOST_THREADS;
	threads = threads < pieces ? threads : pieces > 0 ? pieces : 1;
	atomic_init(&w.bad, UINT64_MAX);
	if ((w.memory = malloc(threads * w.floats * sizeof *w.memory)) == NULL)
		return model_file_fail(err, errlen, MODEL_ENOMEM, t->file, "%s: no memory for its "
		    "numbers", t->name);
	make_all(&w, threads);
	free(w.memory);
	if ((bad = atomic_load(&w.bad)) == UINT64_MAX)
		return MODEL_OK;
	return model_file_fail(err, errlen, MODEL_EINVALID, t->file, "%s: row %" PRIu64 ", column "
	    "%" PRIu64 " is not finite (%s): its code, its scale or their product", t->name,
	    bad / m->cols, bad % m->cols, m->scheme->name);
}
