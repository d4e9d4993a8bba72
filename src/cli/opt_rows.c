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
	const enum kv_row_type keys = type_of("keys", rows_options.keys);
	const enum kv_row_type values = type_of("values", rows_options.values);
	const uint32_t residual = rows_options.residual;

	if (residual == NOT_GIVEN)
		return;
	if (!kv_row_type_quantised(keys) && !kv_row_type_quantised(values))
		die(EXIT_USAGE, "--residual: no type is quantised (--keys, --values)");
	if (residual > KV_RESIDUAL_MOST)
		die(EXIT_USAGE, "--residual %u: want at most %d", residual, KV_RESIDUAL_MOST);
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
		die(EXIT_UNSUPPORTED, "--%s %s: the heads of this model have %u channels, which is "
		    "no %s: use int8 or fp8", option, name, width,
		    kv_row_bytes(kv_row_type_base(type), width) != 0 ? "power of 2" :
		    "multiple of 32");
	if (rows_options.skip_layers != NULL)
		option_layers("skip-layers", rows_options.skip_layers, KV_LAYERS_MOST - 1, skip,
		    skipped);
	for (l = 0; l < head->model.layers; l++)
		if (!skipped[l])
			types[l] = kv_row_type_quantised(type) ? (uint8_t)type : 0;
}

/* How many sections of a kind stay quantised as they are */
static uint32_t
kept(const uint8_t *before, const uint8_t *after, uint32_t layers)
{
	uint32_t l, n = 0;

	for (l = 0; l < layers; l++)
		n += before[l] != 0 && before[l] == after[l];
	return n;
}

/* The residual of rows of these types, which were those of `before`: as given, as it was, or, with
 * KIVI's types, the usual one. What stays quantised has the full rows that it has. */
static uint32_t
residual_of(const struct kv_head *before, const struct kv_head *after)
{
	const uint32_t layers = after->model.layers, given = rows_options.residual;
	const uint32_t stay = kept(before->key_type, after->key_type, layers) +
	    kept(before->value_type, after->value_type, layers);
	const int kivi = kv_head_is_grouped(after);
	const char *dtype = kv_dtype_name(after->dtype);
	uint32_t residual = kivi ? RESIDUAL : 0;

	if (!kv_head_is_quantised(after))
		return 0;
	if (given != NOT_GIVEN)
		residual = given;
	else if ((kivi || stay > 0) && before->residual > 0)
		residual = before->residual;
	if (kivi && (residual == 0 || residual % KV_GROUP_ROWS != 0))
		die(EXIT_USAGE, "--residual %u: kivi2 and kivi4 want a multiple of %d", residual,
		    KV_GROUP_ROWS);
	if (stay > 0 && residual != before->residual)
		die(EXIT_UNSUPPORTED, "--residual %u: rows that stay quantised as they are have %u "
		    "full ones behind them; dequantise the snapshot first (--keys %s --values %s)",
		    residual, before->residual, dtype, dtype);
	return residual;
}

/* Full rows behind quantised ones are not dropped one by one, as a window drops them. */
static void
refuse_windows(const struct kv_head *head)
{
	uint32_t l;

	for (l = 0; l < head->model.layers; l++)
		if (kv_layer_window(&head->model, l) != 0 &&
		    (head->key_type[l] != 0 || head->value_type[l] != 0))
			die(EXIT_UNSUPPORTED, "--residual %u: layer %u has a sliding window, whose "
			    "rows are dropped one by one: --skip-layers leaves it as it is",
			    head->residual, l);
}

/* Values that are channels of keys have the types of these. */
static void
set_latent_types(struct kv_head *head)
{
	const char *keys = rows_options.keys, *values = rows_options.values;

	if (values != NULL && (keys == NULL || strcmp(keys, values) != 0))
		die(EXIT_UNSUPPORTED, "--values %s: the values of this model are channels of its "
		    "keys (latent attention), which --keys is for", values);
	memcpy(head->value_type, head->key_type, sizeof head->value_type);
	if (kv_head_is_grouped(head))
		die(EXIT_UNSUPPORTED, "--keys %s: KIVI quantises keys by channel and values by "
		    "token, and the values of this model are channels of its keys (latent "
		    "attention)",
		    keys);
	if (rows_options.residual != NOT_GIVEN && rows_options.residual != 0)
		die(EXIT_UNSUPPORTED, "--residual %u: no rows stay full with latent attention",
		    rows_options.residual);
}

const char *
opt_rows_kivi(void)
{
	if (kv_row_type_kivi(type_of("keys", rows_options.keys)))
		return rows_options.keys;
	if (kv_row_type_kivi(type_of("values", rows_options.values)))
		return rows_options.values;
	return NULL;
}

void
opt_rows_head(struct kv_head *head)
{
	const struct kv_head before = *head;

	set_types(head->key_type, "keys", rows_options.keys, head);
	set_types(head->value_type, "values", rows_options.values, head);
	if (head->model.latent_rank != 0)
		set_latent_types(head);
	head->residual = residual_of(&before, head);
	if (head->residual != 0)
		refuse_windows(head);
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
