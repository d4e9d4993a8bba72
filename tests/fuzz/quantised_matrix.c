/* quantised_matrix.c - make fuzz-quantised: a quantised matrix from bytes (src/model/checkpoint.h)
 *
 * The first byte says which configuration: one of a list, or JSON that follows. Then come a shape
 * and, for each tensor that a scheme may have, whether it is left out, has its right type and
 * shape, or others, and what is in it. Tensors are memory of exactly their size, so that what reads
 * beside one is found. What is accepted must become numbers in bf16, or be refused. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/checkpoint.h"
#include "model/checkpoint_config.h"
#include "model/safetensors_internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *, size_t);

#define COMPRESSED(form, rest) "{\"quant_method\":\"compressed-tensors\",\"format\":\"" form \
	"\",\"config_groups\":{\"g\":{\"weights\":{" rest "}}}}"

static const char *const configs[] = {
	"{\"quant_method\":\"fp8\",\"weight_block_size\":[3,8]}", "{\"quant_method\":\"fp8\"}",
	COMPRESSED("float-quantized", "\"type\":\"float\",\"strategy\":\"channel\""),
	COMPRESSED("int-quantized", "\"strategy\":\"channel\",\"symmetric\":false"),
	COMPRESSED("pack-quantized", "\"num_bits\":4,\"group_size\":8,\"symmetric\":false"),
	COMPRESSED("pack-quantized", "\"num_bits\":8,\"strategy\":\"tensor\""),
	"{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":8}",
	"{\"quant_method\":\"gptq\",\"bits\":8,\"group_size\":-1,\"dynamic\":{\"a\":1}}",
	"{\"quant_method\":\"awq\",\"group_size\":8}",
	"{\"quant_method\":\"bitsandbytes\",\"load_in_4bit\":true}",
};

struct input {
	const uint8_t *at;
	size_t n;
};

static uint8_t
next(struct input *in)
{
	if (in->n == 0)
		return 0;
	in->n--;
	return *in->at++;
}

/* ---- tensors ---- */

static const struct { const char *name; size_t bytes; enum kv_dtype dtype; } types[] = {
	{ "I32", 4, 0 }, { "U8", 1, 0 }, { "I8", 1, 0 }, { "F8_E4M3", 1, 0 }, { "I64", 8, 0 },
	{ "F16", 2, KV_F16 }, { "BF16", 2, KV_BF16 }, { "F32", 4, KV_F32 },
};

struct wanted {
	const char *name, *type;
	uint32_t rows, cols;
};

static void
set_type(struct tensor *t, size_t i)
{
	t->type = types[i].name;
	t->dtype = types[i].dtype;
	t->weight = (enum weight_type)types[i].dtype;
}

static size_t
type_size(const char *type, struct tensor *t)
{
	size_t i = 0;

	while (strcmp(types[i].name, type) != 0)
		i++;
	set_type(t, i);
	return types[i].bytes;
}

static void
add(struct tensor_set *st, struct input *in, const struct wanted *w)
{
	static const char *const scale_types[] = { "F16", "BF16", "F32" };
	struct tensor *t = &st->tensor[st->n];
	const uint8_t how = next(in);
	const char *type = w->type[0] == 's' ? scale_types[how % 3] : w->type;
	size_t size, i;

	*t = (struct tensor){ .name = w->name, .file = "fuzz", .ndim = 2,
		.dim = { w->rows, w->cols } };
	if (how > 250)
		return;
	size = type_size(type, t);
	if (how > 230)
		size = type_size(types[next(in) % 8].name, t);
	if (how > 210)
		t->dim[next(in) % 2] = next(in) % 50;
	t->ndim = how > 200 ? next(in) % 3 : t->ndim;
	memset(t->dim + t->ndim, 0, (TENSOR_DIMENSIONS - t->ndim) * sizeof *t->dim);
	t->bytes = size;
	for (i = 0; i < t->ndim; i++)
		t->bytes *= t->dim[i];
	if ((t->copy = malloc(t->bytes + 1)) == NULL)
		return;
	/* without the byte behind it, which is there for an empty one */
	t->copy = realloc(t->copy, t->bytes > 0 ? t->bytes : 1);
	for (i = 0; i < t->bytes; i++)
		((uint8_t *)t->copy)[i] = next(in);
	t->data = t->copy;
	st->n++;
}

/* What the tensor holds, where that is nothing that any bytes can be */
static void
fill(struct tensor_set *st, const char *name, const void *data, size_t bytes)
{
	size_t i;

	for (i = 0; i < st->n; i++)
		if (strcmp(st->tensor[i].name, name) == 0 && st->tensor[i].bytes == bytes &&
		    bytes > 0)
			memcpy(st->tensor[i].copy, data, bytes);
}

static uint32_t
over(uint32_t n, uint32_t by)
{
	return by == 0 ? 1 : n / by + (n % by != 0);
}

static void
add_all(struct tensor_set *st, struct input *in, const struct checkpoint_config *c, uint32_t rows,
    uint32_t cols)
{
	const struct checkpoint_way *w = &c->way[0];
	const uint32_t each = w->bits == 4 ? 8 : 4, groups = over(cols, w->block_cols);
	const uint32_t tall = over(rows, w->block_rows), blocks = over(rows * cols, 32);
	char state[200];
	const int64_t shape[2] = { rows, cols };
	const int n = snprintf(state, sizeof state, "{\"quant_type\":\"nf4\",\"blocksize\":32,"
	    "\"dtype\":\"bfloat16\",\"shape\":[%u,%u],\"nested_blocksize\":16,"
	    "\"nested_offset\":0.5}", rows, cols);
	const int awq = c->method == CHECKPOINT_AWQ;
	const struct wanted all[] = {
		{ "m.weight", c->method == CHECKPOINT_NF4 ? "U8" : w->is_float ? "F8_E4M3" : "I8",
		    c->method == CHECKPOINT_NF4 ? over(rows * cols, 2) : rows,
		    c->method == CHECKPOINT_NF4 ? 1 : cols },
		{ "m.weight_scale_inv", "s", tall, groups },
		{ "m.weight_scale", "s", tall, groups },
		{ "m.weight_packed", "I32", rows, over(cols, each) },
		{ "m.weight_shape", "I64", 2, 1 },
		{ "m.weight_zero_point", w->packed ? "I32" : "I8",
		    w->packed ? over(rows, each) : tall, groups },
		{ "m.weight_g_idx", "I32", cols, 1 },
		{ "m.qweight", "I32", awq ? cols : over(cols, each), awq ? over(rows, 8) : rows },
		{ "m.qzeros", "I32", groups, over(rows, each) },
		{ "m.scales", "s", groups, rows }, { "m.g_idx", "I32", cols, 1 },
		{ "m.weight.absmax", next(in) & 1 ? "U8" : "F32", blocks, 1 },
		{ "m.weight.quant_map", "F32", 16, 1 },
		{ "m.weight.nested_absmax", "F32", over(blocks, 16), 1 },
		{ "m.weight.nested_quant_map", "F32", 256, 1 },
		{ "m.weight.quant_state.bitsandbytes__nf4", "U8", (uint32_t)n, 1 },
	};
	static const float map[16] = { -1.0f, -0.6961928009986877f, -0.5250730514526367f,
		-0.39491748809814453f, -0.28444138169288635f, -0.18477343022823334f,
		-0.09105003625154495f, 0.0f, 0.07958029955625534f, 0.16093020141124725f,
		0.24611230194568634f, 0.33791524171829224f, 0.44070982933044434f,
		0.5626170039176941f, 0.7229568362236023f, 1.0f };
	size_t i;

	for (i = 0; i < sizeof all / sizeof all[0]; i++)
		add(st, in, &all[i]);
	fill(st, "m.weight_shape", shape, sizeof shape);
	fill(st, "m.weight.quant_map", map, sizeof map);
	fill(st, "m.weight.quant_state.bitsandbytes__nf4", state, (size_t)n);
}

/* ---- a matrix ---- */

static int
read_config(struct input *in, struct checkpoint_config *out)
{
	const uint8_t which = next(in);
	const char *text = configs[which % (sizeof configs / sizeof configs[0])];
	size_t length = strlen(text);
	char err[512];
	struct config c = { .path = "fuzz", .overrides = &no_overrides, .err = err,
		.errlen = sizeof err };
	json_t *q;
	int rc;

	if (which >= 200) {
		text = (const char *)in->at;
		length = strnlen(text, in->n);
		in->at += length;
		in->n -= length;
	}
	if ((q = json_loadb(text, length, JSON_DECODE_ANY, NULL)) == NULL)
		return 0;
	c.json = json_pack("{s:o}", "quantization_config", q);
	rc = checkpoint_config(&c, out);
	json_decref(c.json);
	return rc == MODEL_OK && out->method != CHECKPOINT_PLAIN;
}

static void
try_matrix(struct input *in, const struct checkpoint_config *config, struct tensor_set *st)
{
	const uint32_t rows = 1 + next(in) % 40, cols = 1 + next(in) % 48;
	struct checkpoint_matrix m;
	uint8_t needed[16] = { 0 };
	uint16_t *out = malloc(rows * cols * sizeof *out);
	char err[512];

	add_all(st, in, config, rows, cols);
	qsort(st->tensor, st->n, sizeof *st->tensor, safetensors_by_name);
	if (out != NULL && checkpoint_has(config, st, "m.weight") &&
	    checkpoint_find(config, st, "m.weight", rows, cols, &m, err, sizeof err) == MODEL_OK) {
		checkpoint_mark(&m, st, needed);
		(void)checkpoint_rows(&m, 0, rows, 1, out, err, sizeof err);
	}
	free(out);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = { data, size };
	struct tensor tensor[16];
	struct shard shard = { .path = (char *)"fuzz", .name = "fuzz" };
	struct tensor_set st = { .tensor = tensor, .shard = &shard, .shards = 1 };
	struct checkpoint_config config;
	size_t i;

	if (!read_config(&in, &config))
		return 0;
	try_matrix(&in, &config, &st);
	for (i = 0; i < st.n; i++)
		free(st.tensor[i].copy);
	return 0;
}
