/* opt_rows.c - how rows are stored: --keys and --values */
#include <stdio.h>
#include <string.h>

#include "cli/opt_rows.h"
#include "cli/snapshot_io.h"
#include "cli/tool.h"

struct rows_options rows_options = { .residual = NOT_GIVEN };

enum { RESIDUAL = 128 };                /* the paper's */

/* Returns 0 where the option was not given. */
static enum kv_row_type
type_of(const char *option, const char *name)
{
	const enum kv_row_type type = name != NULL ? kv_row_type_named(name) : 0;

	if (name != NULL && type == 0)
		die(EXIT_USAGE, "--%s %s: want q8_0, q4_0, q4_1, q5_0, int8 or fp8, each also with "
		    "-hadamard, kivi2 or kivi4, or bf16, f16 or f32", option, name);
	if (rows_options.rotate && kv_row_type_kivi(type))
		die(EXIT_USAGE, "--rotate: %s has a scale for each channel of keys, which the "
		    "transform would mix", name);
	if (rows_options.rotate && kv_row_type_quantised(type))
		return (enum kv_row_type)(type | KV_ROW_HADAMARD);
	return type;
}

static void
skip(void *layers, uint32_t first, uint32_t last)
{
	memset((char *)layers + first, 1, last - first + 1);
}

void
opt_rows(void)
{
	const int kivi = kv_row_type_kivi(type_of("keys", rows_options.keys)) +
	    kv_row_type_kivi(type_of("values", rows_options.values));
	const uint32_t residual = rows_options.residual;

	if (residual == NOT_GIVEN)
		return;
	if (!kivi)
		die(EXIT_USAGE, "--residual is for kivi2 and kivi4: other types quantise every "
		    "row");
	if (residual == 0 || residual % KV_GROUP_ROWS != 0 || residual > KV_RESIDUAL_MOST)
		die(EXIT_USAGE, "--residual %u: want a multiple of %d, at most %d", residual,
		    KV_GROUP_ROWS, KV_RESIDUAL_MOST);
}

/* KIVI's rows cannot be dropped one by one, as a window drops them. */
static void
refuse_window(const struct kv_head *head, uint32_t l, const char *option, const char *name)
{
	if (kv_layer_window(&head->model, l) != 0)
		die(EXIT_USAGE, "--%s %s: layer %u has a sliding window, whose rows are dropped "
		    "one by one: --skip-layers leaves it as it is", option, name, l);
}

static void
set_types(uint8_t *types, const char *option, const char *name, const struct kv_head *head)
{
	const enum kv_row_type type = type_of(option, name);
	const uint32_t width = head->model.head_width;
	char skipped[KV_LAYERS_MOST] = "";
	uint32_t l;

	if (type == 0)
		return;
	if (!kv_row_type_quantised(type) && type != (enum kv_row_type)head->dtype)
		die(EXIT_USAGE, "--%s %s: rows that are not quantised are %s here (--dtype)",
		    option, name, kv_dtype_name(head->dtype));
	if (kv_row_bytes(type, width) == 0)
		die(EXIT_USAGE, "--%s %s: the heads of this model have %u channels, which is no "
		    "%s: use int8 or fp8", option, name, width,
		    kv_row_bytes(kv_row_type_base(type), width) != 0 ? "power of 2" :
		    "multiple of 32");
	if (kv_row_type_kivi(type) && head->residual != 0 &&
	    rows_options.residual != NOT_GIVEN && rows_options.residual != head->residual)
		die(EXIT_USAGE, "--residual %u: the snapshot leaves %u rows full; dequantise it "
		    "first (--keys %s --values %s)", rows_options.residual, head->residual,
		    kv_dtype_name(head->dtype), kv_dtype_name(head->dtype));
	if (rows_options.skip_layers != NULL)
		option_layers("skip-layers", rows_options.skip_layers, KV_LAYERS_MOST - 1, skip,
		    skipped);
	for (l = 0; l < head->model.layers; l++) {
		if (skipped[l])
			continue;
		if (kv_row_type_kivi(type))
			refuse_window(head, l, option, name);
		types[l] = kv_row_type_quantised(type) ? (uint8_t)type : 0;
	}
}

void
opt_rows_head(struct kv_head *head)
{
	set_types(head->key_type, "keys", rows_options.keys, head);
	set_types(head->value_type, "values", rows_options.values, head);
	if (!kv_head_is_grouped(head))
		head->residual = 0;
	else if (head->residual == 0)
		head->residual = rows_options.residual != NOT_GIVEN ? rows_options.residual :
		    RESIDUAL;
}

void
opt_rows_same(const struct kv_head *there, const char *name)
{
	struct kv_head want = *there;
	char words[ROWS_WORDS];

	opt_rows_head(&want);
	if (!kv_head_same_rows(&want, there))
		die(EXIT_USAGE, "--keys, --values: %s holds %s: kv-quantize changes their types",
		    name, rows_words(words, there));
}

void
opt_rows_sign(void)
{
	if (rows_options.keys != NULL)
		sign_text("keys", rows_options.keys);
	if (rows_options.values != NULL)
		sign_text("values", rows_options.values);
	if (rows_options.rotate)
		sign_count("rotate", 1);
	if (rows_options.residual != NOT_GIVEN)
		sign_count("residual", rows_options.residual);
	if (rows_options.skip_layers != NULL)
		sign_text("skip-layers", rows_options.skip_layers);
}

const char *
rows_words(char text[ROWS_WORDS], const struct kv_head *head)
{
	const enum kv_row_type keys = kv_head_row_type(head, KV_KEYS, 0);
	const enum kv_row_type values = kv_head_row_type(head, KV_VALS, 0);
	uint32_t l;

	for (l = 0; l < head->model.layers; l++)
		if (kv_head_row_type(head, KV_KEYS, l) != keys ||
		    kv_head_row_type(head, KV_VALS, l) != values)
			return strcpy(text, "rows of several types");
	if (keys == values)
		return strcpy(text, kv_row_type_name(keys));
	snprintf(text, ROWS_WORDS, "%s keys and %s values", kv_row_type_name(keys),
	    kv_row_type_name(values));
	return text;
}
