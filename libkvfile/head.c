/* head.c - the HEAD section: the table of its fields, and canonical JSON to struct kv_head
 *
 * Reading, writing and comparing (head_text.c) use one table of fields, sorted as the keys must
 * be. jansson parses. */

#include "head_fields.h"
#include "jsontext.h"

#include <string.h>

#define AT(name) offsetof(struct kv_model, name)
#define WIDE (1u << 24)

const struct head_field kv_model_fields[] = {
	{ "architecture", TEXT, AT(architecture), 0, 0, 0, 0 },
	{ "attention_bias", FLAG, AT(attention_bias), 0, 0, 0, 0 },
	{ "attention_multiplier", REAL, AT(attention_multiplier), 0, 0, 0, 1 },
	{ "attention_sinks", FLAG, AT(attention_sinks), 0, 0, 0, 1 },
	{ "attention_softcap", REAL, AT(attention_softcap), 0, 0, 0, 1 },
	{ "embedding_multiplier", REAL, AT(embedding_multiplier), 0, 0, 0, 1 },
	{ "experts", COUNT, AT(experts), 1, 1024, 0, 1 },
	{ "experts_chosen", COUNT, AT(experts_chosen), 1, 1024, 0, 1 },
	{ "ffn", COUNT, AT(ffn), 1, WIDE, 0, 0 },
	{ "head_width", COUNT, AT(head_width), 1, 1024, 0, 0 },
	{ "hidden", COUNT, AT(hidden), 1, WIDE, 0, 0 },
	{ "kv_heads", COUNT, AT(kv_heads), 1, 4096, 0, 0 },
	{ "latent_nope", COUNT, AT(latent_nope), 1, 1024, 0, 1 },
	{ "latent_rank", COUNT, AT(latent_rank), 1, 1022, 0, 1 },
	{ "latent_value", COUNT, AT(latent_value), 1, 1024, 0, 1 },
	{ "layers", COUNT, AT(layers), 1, 4096, 0, 0 },
	{ "logits_scaling", REAL, AT(logits_scaling), 0, 0, 0, 1 },
	{ "logits_softcap", REAL, AT(logits_softcap), 0, 0, 0, 1 },
	{ "mlp_bias", FLAG, AT(mlp_bias), 0, 0, 0, 1 },
	{ "norm_eps", REAL, AT(norm_eps), 0, 0, 0, 0 },
	{ "query_heads", COUNT, AT(query_heads), 1, 4096, 0, 0 },
	{ "residual_multiplier", REAL, AT(residual_multiplier), 0, 0, 0, 1 },
	{ "rope", ROPE, 0, 0, 0, 0, 0 },
	{ "tied_embeddings", FLAG, AT(tied_embeddings), 0, 0, 0, 0 },
	{ "tokenizer", HASH, AT(tokenizer), 0, 0, 0, 0 },
	{ "vocabulary", COUNT, AT(vocabulary), 1, WIDE, 0, 0 },
	{ "weights", HASH, AT(weights), 0, 0, 0, 0 },
	{ "weights_dtype", DTYPE, AT(weights_dtype), 0, 0, 0, 0 },
	{ "weights_rule", COUNT, AT(weights_rule), 2, 2, 0, 1 },
	{ "whole_layers", LAYERS, AT(whole), 0, 0, 0, 1 },
	{ "window", COUNT, AT(window), 1, UINT32_MAX, 0, 1 },
	{ NULL, TEXT, 0, 0, 0, 0, 0 }
};

#define LLAMA3 (1u << KV_ROPE_LLAMA3)
#define LINEAR (1u << KV_ROPE_LINEAR)
#define YARN (1u << KV_ROPE_YARN)
#define LONGROPE (1u << KV_ROPE_LONGROPE)

const struct head_field kv_rope_fields[] = {
	{ "attention_factor", REAL, AT(rope_attention_factor), 0, 0, YARN | LONGROPE, 0 },
	{ "beta_fast", REAL, AT(rope_beta_fast), 0, 0, YARN, 0 },
	{ "beta_slow", REAL, AT(rope_beta_slow), 0, 0, YARN, 0 },
	{ "factor", REAL, AT(rope_factor), 0, 0, LLAMA3 | LINEAR | YARN, 0 },
	{ "factors", FACTORS, AT(rope_factors), 0, 0, LONGROPE, 0 },
	{ "high_freq_factor", REAL, AT(rope_high_freq_factor), 0, 0, LLAMA3, 0 },
	{ "low_freq_factor", REAL, AT(rope_low_freq_factor), 0, 0, LLAMA3, 0 },
	{ "original_max_position", COUNT, AT(rope_original_max_position), 1, UINT32_MAX,
	    LLAMA3 | YARN | LONGROPE, 0 },
	{ "query_beta", REAL, AT(rope_query_beta), 0, 0, YARN, 1 },
	{ "skip", COUNT, AT(rope_skip), 1, 4096, 0, 1 },
	{ "theta", REAL, AT(rope_theta), 0, 0, 0, 0 },
	{ "truncate", FLAG, AT(rope_truncate), 0, 0, YARN, 0 },
	{ "type", ROPE_TYPE, AT(rope_type), 0, 0, 0, 0 },
	{ "width", COUNT, AT(rope_width), 1, 1024, 0, 1 },
	{ "window_theta", REAL, AT(rope_window_theta), 0, 0, 0, 1 },
	{ NULL, TEXT, 0, 0, 0, 0, 0 }
};

static const char *const rope_types[] = {
	[KV_ROPE_DEFAULT] = "default",
	[KV_ROPE_LLAMA3] = "llama3",
	[KV_ROPE_LINEAR] = "linear",
	[KV_ROPE_YARN] = "yarn",
	[KV_ROPE_LONGROPE] = "longrope"
};

const char *
kv_rope_name(enum kv_rope type)
{
	const size_t i = (size_t)type;

	return i < sizeof rope_types / sizeof rope_types[0] ? rope_types[i] : NULL;
}

uint32_t
kv_rope_dims(const struct kv_model *m, uint32_t layer)
{
	if (m->rope_skip != 0 && (layer + 1) % m->rope_skip == 0)
		return 0;
	return m->rope_width != 0 ? m->rope_width : m->head_width;
}

uint32_t
kv_rope_first(const struct kv_model *m)
{
	return m->latent_rank;
}

int
kv_head_is_whole(const struct kv_model *m, uint32_t layer)
{
	return m->whole[layer / 8] >> layer % 8 & 1;
}

uint32_t
kv_layer_window(const struct kv_model *m, uint32_t layer)
{
	return kv_head_is_whole(m, layer) ? 0 : m->window;
}

uint32_t
kv_first_seen(const struct kv_model *m, uint32_t layer, uint32_t position)
{
	const uint32_t window = kv_layer_window(m, layer);

	return window == 0 || position < window ? 0 : position - window + 1;
}

enum kv_row_type
kv_head_row_type(const struct kv_head *head, enum kv_kind kind, uint32_t layer)
{
	const uint8_t *types = kind == KV_KEYS ? head->key_type : head->value_type;

	return layer < KV_LAYERS_MOST && types[layer] != 0 ? (enum kv_row_type)types[layer] :
	    (enum kv_row_type)head->dtype;
}

size_t
kv_head_row_bytes(const struct kv_head *head, enum kv_kind kind, uint32_t layer)
{
	if (kind == KV_VALS && head->model.latent_rank != 0)
		return 0;
	return kv_row_bytes(kv_head_row_type(head, kind, layer), head->model.head_width);
}

int
kv_head_is_quantised(const struct kv_head *head)
{
	uint32_t l;

	for (l = 0; l < head->model.layers && l < KV_LAYERS_MOST; l++)
		if (head->key_type[l] != 0 || head->value_type[l] != 0)
			return 1;
	return 0;
}

int
kv_head_same_type(const struct kv_head *a, const struct kv_head *b, enum kv_kind kind,
    uint32_t layer)
{
	const enum kv_row_type type = kv_head_row_type(a, kind, layer);

	return type == kv_head_row_type(b, kind, layer) &&
	    (!kv_row_type_quantised(type) || a->residual == b->residual);
}

int
kv_head_same_rows(const struct kv_head *a, const struct kv_head *b)
{
	uint32_t l;

	for (l = 0; l < a->model.layers && l < KV_LAYERS_MOST; l++)
		if (!kv_head_same_type(a, b, KV_KEYS, l) || !kv_head_same_type(a, b, KV_VALS, l))
			return 0;
	return 1;
}

/* ---- reading ---- */

static int
get_count(uint32_t *out, const json_t *v, const char *key, uint32_t min, uint32_t max,
    struct kv_message *why)
{
	json_int_t n = json_integer_value(v);

	if (!json_is_integer(v))
		return kv_bad(why, "%s must be a whole number", key);
	if (n < (json_int_t)min || n > (json_int_t)max)
		return kv_bad(why, "%s is %lld, must be %u to %u", key,
		    (long long)n, min, max);
	*out = (uint32_t)n;
	return KV_OK;
}

static int
get_dtype(enum kv_dtype *out, const json_t *v, const char *key, struct kv_message *why)
{
	if (!json_is_string(v))
		return kv_bad(why, "%s must be a string", key);
	*out = kv_dtype_named(json_string_value(v));
	if (kv_dtype_size(*out) == 0)
		return kv_bad(why, "%s \"%.40s\" is not known", key,
		    json_string_value(v));
	return KV_OK;
}

static int
get_text(char *out, const json_t *v, const struct head_field *f, struct kv_message *why)
{
	const char *s = json_string_value(v);
	size_t n = json_string_length(v);

	if (s == NULL)
		return kv_bad(why, "%s must be a string", f->key);
	if (f->kind == TEXT && (n < 1 || n > 31))
		return kv_bad(why, "%s has %zu bytes, must have 1 to 31", f->key, n);
	if (f->kind == HASH && (n != 32 || strspn(s, "0123456789abcdef") != 32))
		return kv_bad(why, "%s must be 32 lower-case hexadecimal digits",
		    f->key);
	memcpy(out, s, n + 1);
	return KV_OK;
}

static int
get_rope_type(enum kv_rope *out, const json_t *v, struct kv_message *why)
{
	const char *s = json_string_value(v);
	size_t i;

	if (s == NULL)
		return kv_bad(why, "rope.type must be a string");
	for (i = 0; i < sizeof rope_types / sizeof rope_types[0]; i++)
		if (strcmp(s, rope_types[i]) == 0) {
			*out = (enum kv_rope)i;
			return KV_OK;
		}
	return kv_bad(why, "rope.type \"%.40s\" is not known", s);
}

static int
get_factors(struct kv_model *m, const json_t *v, struct kv_message *why)
{
	const size_t n = json_array_size(v);
	const json_t *x;
	size_t i;

	if (!json_is_array(v) || n < 1 || n > KV_ROPE_PAIRS)
		return kv_bad(why, "rope.factors must be a list of 1 to %d numbers", KV_ROPE_PAIRS);
	for (i = 0; i < n; i++) {
		x = json_array_get(v, i);
		if (!json_is_number(x) || !(json_number_value(x) > 0))
			return kv_bad(why, "rope.factors: element %zu is no number above 0", i);
		m->rope_factors[i] = json_number_value(x);
	}
	m->rope_n_factors = (uint32_t)n;
	return KV_OK;
}

/* Reads a list of layers, ascending. */
static int
get_layers(uint8_t *set, const json_t *v, const struct head_field *f, struct kv_message *why)
{
	json_int_t l, next = 0;
	size_t i;

	for (i = 0; i < json_array_size(v); i++, next = l + 1) {
		l = json_integer_value(json_array_get(v, i));
		if (!json_is_integer(json_array_get(v, i)) || l < next || l >= KV_LAYERS_MOST)
			return kv_bad(why, "%s: element %zu is no layer behind the one before it",
			    f->key, i);
		set[l / 8] |= (uint8_t)(1u << l % 8);
	}
	return json_is_array(v) ? KV_OK : kv_bad(why, "%s must be a list of layers", f->key);
}

static int get_fields(struct kv_model *m, json_t *o, const struct head_field *fields,
    const char *name, struct kv_message *why);

static int
get_field(struct kv_model *m, json_t *v, const struct head_field *f, struct kv_message *why)
{
	char *at = (char *)m + f->at;

	switch (f->kind) {
	case TEXT:
	case HASH:
		return get_text(at, v, f, why);
	case FLAG:
		if (!json_is_boolean(v))
			return kv_bad(why, "%s must be true or false", f->key);
		*(int *)(void *)at = json_is_true(v);
		return KV_OK;
	case COUNT:
		return get_count((uint32_t *)(void *)at, v, f->key, f->min, f->max, why);
	case REAL:
		if (!json_is_number(v))
			return kv_bad(why, "%s must be a number", f->key);
		*(double *)(void *)at = json_number_value(v);
		return KV_OK;
	case FACTORS:
		return get_factors(m, v, why);
	case LAYERS:
		return get_layers((uint8_t *)at, v, f, why);
	case DTYPE:
		return get_dtype((enum kv_dtype *)(void *)at, v, f->key, why);
	case ROPE_TYPE:
		return KV_OK;                   /* was read first */
	case ROPE:
		if (!json_is_object(v))
			return kv_bad(why, "rope must be an object");
		if (get_rope_type(&m->rope_type, json_object_get(v, "type"), why) != KV_OK)
			return why->code;
		return get_fields(m, v, kv_rope_fields, "rope", why);
	}
	return KV_OK;
}

int
kv_head_belongs(const struct kv_model *m, const struct head_field *f)
{
	return f->ropes == 0 || (f->ropes >> m->rope_type & 1) != 0;
}

int
kv_head_is_left_out(const struct kv_model *m, const struct head_field *f)
{
	const char *at = (const char *)m + f->at;

	if (!f->spare)
		return 0;
	if (f->kind == REAL)
		return *(const double *)(const void *)at == 0;
	if (f->kind == LAYERS)
		return memcmp(at, (const uint8_t[KV_LAYERS_MOST / 8]){ 0 },
		    KV_LAYERS_MOST / 8) == 0;
	return f->kind == FLAG ? *(const int *)(const void *)at == 0 :
	    *(const uint32_t *)(const void *)at == 0;
}

/* Reads all the fields, and refuses other keys. */
static int
get_fields(struct kv_model *m, json_t *o, const struct head_field *fields, const char *name,
    struct kv_message *why)
{
	const struct head_field *f;
	const char *key;
	json_t *v;

	for (f = fields; f->key != NULL; f++) {
		if (!kv_head_belongs(m, f))
			continue;
		v = json_object_get(o, f->key);
		if (v == NULL && f->spare)
			continue;
		if (v == NULL)
			return kv_bad(why, "%s.%s is missing", name, f->key);
		if (get_field(m, v, f, why) != KV_OK)
			return why->code;
		if (kv_head_is_left_out(m, f))
			return kv_bad(why, "%s.%s says nothing and must be left out", name,
			    f->key);
	}
	json_object_foreach(o, key, v) {
		for (f = fields; f->key != NULL; f++)
			if (kv_head_belongs(m, f) && strcmp(key, f->key) == 0)
				break;
		if (f->key == NULL)
			return kv_bad(why, "%s.%.60s does not go with its type", name, key);
	}
	return KV_OK;
}

/* Checks that windows refer to existing layers, some of which have one. */
static int
check_windows(const struct kv_model *m, struct kv_message *why)
{
	uint32_t l, whole = 0;

	for (l = 0; l < KV_LAYERS_MOST; l++) {
		whole += (uint32_t)kv_head_is_whole(m, l);
		if (kv_head_is_whole(m, l) && (l >= m->layers || m->window == 0))
			return kv_bad(why, "whole_layers: layer %u of %u, with a window of %u", l,
			    m->layers, m->window);
	}
	if (m->window != 0 && whole == m->layers)
		return kv_bad(why, "window is %u, and all layers are whole", m->window);
	if (m->rope_window_theta != 0 && m->window == 0)
		return kv_bad(why, "rope.window_theta without a window");
	if ((m->experts == 0) != (m->experts_chosen == 0) || m->experts_chosen > m->experts)
		return kv_bad(why, "experts_chosen is %u, of %u experts", m->experts_chosen,
		    m->experts);
	if (m->attention_softcap < 0 || m->logits_softcap < 0)
		return kv_bad(why, "a softcap is negative");
	return KV_OK;
}

/* types[L] <- a list of names of row types; 0 for that of dtype */
static int
get_row_types(uint8_t *types, const json_t *v, const char *key, const struct kv_head *head,
    struct kv_message *why)
{
	const uint32_t width = head->model.head_width;
	enum kv_row_type type;
	const char *name;
	size_t l;

	if (!json_is_array(v) || json_array_size(v) != head->model.layers)
		return kv_bad(why, "row_types.%s must be a list of %u types, one of each layer",
		    key, head->model.layers);
	for (l = 0; l < head->model.layers; l++) {
		name = json_string_value(json_array_get(v, l));
		type = name != NULL ? kv_row_type_named(name) : 0;
		if (type == 0 ||
		    (!kv_row_type_quantised(type) && type != (enum kv_row_type)head->dtype))
			return kv_bad(why, "row_types.%s: \"%.40s\" of layer %zu is neither a "
			    "quantised type nor dtype", key, name != NULL ? name : "", l);
		if (kv_row_bytes(type, width) == 0)
			return kv_bad(why, "row_types.%s: %s does not allow a head width of %u",
			    key, name, width);
		types[l] = kv_row_type_quantised(type) ? (uint8_t)type : 0;
	}
	return KV_OK;
}

/* Checks that values that are channels of keys are stored as these, each row by itself. */
static int
check_latent_types(const struct kv_head *head, const json_t *o, struct kv_message *why)
{
	if (head->model.latent_rank == 0)
		return KV_OK;
	if (memcmp(head->key_type, head->value_type, sizeof head->key_type) != 0)
		return kv_bad(why, "row_types.values differs from keys, whose channels values are "
		    "(latent_rank)");
	if (kv_head_is_grouped(head) || json_object_get(o, "residual") != NULL)
		return kv_bad(why, "row_types: neither kivi2, kivi4 nor residual goes with "
		    "latent_rank");
	return KV_OK;
}

/* Reads `residual`, which must be there with KIVI's types, and a multiple of a group of keys. */
static int
get_residual(struct kv_head *head, const json_t *o, struct kv_message *why)
{
	const json_t *residual = json_object_get(o, "residual");
	const int grouped = kv_head_is_grouped(head);

	if (residual == NULL)
		return !grouped ? KV_OK :
		    kv_bad(why, "row_types.residual is missing: a type is kivi2 or kivi4");
	if (get_count(&head->residual, residual, "row_types.residual", 1, KV_RESIDUAL_MOST, why) !=
	    KV_OK)
		return why->code;
	if (grouped && head->residual % KV_GROUP_ROWS != 0)
		return kv_bad(why, "row_types.residual is %u, must be a multiple of %d with kivi2 "
		    "and kivi4", head->residual, KV_GROUP_ROWS);
	return KV_OK;
}

static int
get_all_row_types(struct kv_head *head, json_t *o, struct kv_message *why)
{
	if (!json_is_object(o))
		return kv_bad(why, "row_types must be an object");
	if (json_object_size(o) != 2 + (size_t)(json_object_get(o, "residual") != NULL))
		return kv_bad(why, "row_types must have keys, values and, perhaps, residual, "
		    "and nothing else");
	if (get_row_types(head->key_type, json_object_get(o, "keys"), "keys", head, why) != KV_OK ||
	    get_row_types(head->value_type, json_object_get(o, "values"), "values", head, why) !=
	    KV_OK)
		return why->code;
	if (!kv_head_is_quantised(head))
		return kv_bad(why, "row_types names no quantised type and must be left out");
	if (check_latent_types(head, o, why) != KV_OK)
		return why->code;
	return get_residual(head, o, why);
}

/* Reads where documents begin: ascending, after position 0 and before the next one. */
static int
get_documents(struct kv_head *head, const json_t *v, struct kv_message *why)
{
	struct kv_documents *d = &head->documents;
	uint32_t before = 0;

	if (!json_is_array(v) || json_array_size(v) == 0 ||
	    json_array_size(v) > KV_DOCUMENTS_MOST - 1)
		return kv_bad(why, "documents must be a list of 1 to %d positions",
		    KV_DOCUMENTS_MOST - 1);
	for (; d->n < json_array_size(v); before = d->start[d->n++])
		if (get_count(&d->start[d->n], json_array_get(v, d->n), "documents", before + 1,
		    head->next_position - 1, why) != KV_OK)
			return kv_bad(why, "documents must ascend, from 1 to below next_position");
	return KV_OK;
}

/* Checks the widths of multi-head latent attention, which come together, 4.26. */
static int
check_latent(const struct kv_model *m, struct kv_message *why)
{
	const int some = m->latent_rank != 0 || m->latent_nope != 0 || m->latent_value != 0;

	if (!some)
		return KV_OK;
	if (m->latent_rank == 0 || m->latent_nope == 0 || m->latent_value == 0)
		return kv_bad(why, "latent_rank, latent_nope and latent_value come together");
	if (m->kv_heads != 1 || m->rope_width == 0 ||
	    m->latent_rank + m->rope_width != m->head_width)
		return kv_bad(why, "latent_rank %u and rope.width %u do not make up a head width "
		    "of %u of one KV head", m->latent_rank, m->rope_width, m->head_width);
	if (m->window != 0 || m->rope_skip != 0)
		return kv_bad(why, "latent_rank with a window, or layers that are not rotated");
	return KV_OK;
}

static int
get_head(struct kv_head *head, json_t *o, struct kv_message *why)
{
	json_t *documents = json_object_get(o, "documents");
	json_t *row_types = json_object_get(o, "row_types");
	json_t *keys = json_object_get(o, "keys"), *model = json_object_get(o, "model");
	struct kv_model *m = &head->model;

	if (!json_is_string(keys))
		return kv_bad(why, "keys must be a string");
	if (strcmp(json_string_value(keys), "rope") != 0)
		return kv_bad(why, "keys \"%.40s\" is not known",
		    json_string_value(keys));
	if (!json_is_object(model))
		return kv_bad(why, "model must be an object");
	if (get_dtype(&head->dtype, json_object_get(o, "dtype"), "dtype", why) != KV_OK ||
	    get_count(&head->next_position, json_object_get(o, "next_position"), "next_position", 1,
	    UINT32_MAX, why) != KV_OK ||
	    get_fields(m, model, kv_model_fields, "model", why) != KV_OK)
		return why->code;
	if (m->query_heads % m->kv_heads != 0)
		return kv_bad(why, "%u query heads are no multiple of %u KV heads",
		    m->query_heads, m->kv_heads);
	if (m->rope_width != 0 && (m->rope_width % 2 != 0 || m->rope_width >= m->head_width))
		return kv_bad(why, "rope.width is %u of a head width of %u", m->rope_width,
		    m->head_width);
	if (m->rope_type == KV_ROPE_LONGROPE && m->rope_n_factors !=
	    (m->rope_width != 0 ? m->rope_width : m->head_width) / 2)
		return kv_bad(why, "rope.factors: %u of them do not fit the head width",
		    m->rope_n_factors);
	if (check_latent(m, why) != KV_OK)
		return why->code;
	if ((row_types != NULL && get_all_row_types(head, row_types, why) != KV_OK) ||
	    (documents != NULL && get_documents(head, documents, why) != KV_OK))
		return why->code;
	return check_windows(m, why);
}

int
kv_head_get(struct kv_head *head, const void *json, size_t size, struct kv_message *why)
{
	json_t *o = kv_json_object(json, size, why);
	int code;

	memset(head, 0, sizeof *head);
	if (o == NULL)
		return why->code;
	code = kv_head_known(o, why);
	if (code == KV_OK)
		code = get_head(head, o, why);
	json_decref(o);
	return code;
}

int
kv_head_from_json(struct kv_head *head, const char *json, size_t n, char *text, size_t size)
{
	struct kv_message why = { 0 };
	int code = kv_head_get(head, json, n, &why);

	if (size > 0)
		snprintf(text, size, "%s", why.text);
	return code;
}
