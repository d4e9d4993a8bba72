/* head.c - the HEAD section: canonical JSON to struct kv_head and back; comparison of
 * identities
 *
 * Reading, writing and comparing follow one table of fields, sorted as the keys must be.
 * jansson reads; the text is written here, because it has to be the same with every version of
 * every library, in every locale. */

#include "head.h"

#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum kind { TEXT, HASH, FLAG, COUNT, REAL, FACTORS, DTYPE, ROPE, ROPE_TYPE };

struct field {
	const char *key;
	enum kind kind;
	size_t at;              /* offset in struct kv_model */
	uint32_t min, max;      /* of a COUNT */
	unsigned ropes;         /* only with these types of rope, a bit for each; 0: with any */
	int spare;              /* left out where it is 0 */
};

#define AT(name) offsetof(struct kv_model, name)
#define WIDE (1u << 24)

static const struct field model_fields[] = {
	{ "architecture", TEXT, AT(architecture), 0, 0, 0, 0 },
	{ "attention_bias", FLAG, AT(attention_bias), 0, 0, 0, 0 },
	{ "attention_multiplier", REAL, AT(attention_multiplier), 0, 0, 0, 1 },
	{ "embedding_multiplier", REAL, AT(embedding_multiplier), 0, 0, 0, 1 },
	{ "ffn", COUNT, AT(ffn), 1, WIDE, 0, 0 },
	{ "head_width", COUNT, AT(head_width), 1, 1024, 0, 0 },
	{ "hidden", COUNT, AT(hidden), 1, WIDE, 0, 0 },
	{ "kv_heads", COUNT, AT(kv_heads), 1, 4096, 0, 0 },
	{ "layers", COUNT, AT(layers), 1, 4096, 0, 0 },
	{ "logits_scaling", REAL, AT(logits_scaling), 0, 0, 0, 1 },
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
	{ NULL, TEXT, 0, 0, 0, 0, 0 }
};

#define LLAMA3 (1u << KV_ROPE_LLAMA3)
#define LINEAR (1u << KV_ROPE_LINEAR)
#define YARN (1u << KV_ROPE_YARN)
#define LONGROPE (1u << KV_ROPE_LONGROPE)

static const struct field rope_fields[] = {
	{ "attention_factor", REAL, AT(rope_attention_factor), 0, 0, YARN | LONGROPE, 0 },
	{ "beta_fast", REAL, AT(rope_beta_fast), 0, 0, YARN, 0 },
	{ "beta_slow", REAL, AT(rope_beta_slow), 0, 0, YARN, 0 },
	{ "factor", REAL, AT(rope_factor), 0, 0, LLAMA3 | LINEAR | YARN, 0 },
	{ "factors", FACTORS, AT(rope_factors), 0, 0, LONGROPE, 0 },
	{ "high_freq_factor", REAL, AT(rope_high_freq_factor), 0, 0, LLAMA3, 0 },
	{ "low_freq_factor", REAL, AT(rope_low_freq_factor), 0, 0, LLAMA3, 0 },
	{ "original_max_position", COUNT, AT(rope_original_max_position), 1, UINT32_MAX,
	    LLAMA3 | YARN | LONGROPE, 0 },
	{ "skip", COUNT, AT(rope_skip), 1, 4096, 0, 1 },
	{ "theta", REAL, AT(rope_theta), 0, 0, 0, 0 },
	{ "truncate", FLAG, AT(rope_truncate), 0, 0, YARN, 0 },
	{ "type", ROPE_TYPE, AT(rope_type), 0, 0, 0, 0 },
	{ "width", COUNT, AT(rope_width), 1, 1024, 0, 1 },
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
kv_rope_turned(const struct kv_model *m, uint32_t layer)
{
	if (m->rope_skip != 0 && (layer + 1) % m->rope_skip == 0)
		return 0;
	return m->rope_width != 0 ? m->rope_width : m->head_width;
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
get_text(char *out, const json_t *v, const struct field *f, struct kv_message *why)
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

static int get_fields(struct kv_model *m, json_t *o, const struct field *fields, const char *name,
    struct kv_message *why);

static int
get_field(struct kv_model *m, json_t *v, const struct field *f, struct kv_message *why)
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
	case DTYPE:
		return get_dtype((enum kv_dtype *)(void *)at, v, f->key, why);
	case ROPE_TYPE:
		return KV_OK;                   /* was read first */
	case ROPE:
		if (!json_is_object(v))
			return kv_bad(why, "rope must be an object");
		if (get_rope_type(&m->rope_type, json_object_get(v, "type"), why) != KV_OK)
			return why->code;
		return get_fields(m, v, rope_fields, "rope", why);
	}
	return KV_OK;
}

static int
belongs(const struct kv_model *m, const struct field *f)
{
	return f->ropes == 0 || (f->ropes >> m->rope_type & 1) != 0;
}

/* Is the value of a field that may be left out that which leaves it out? */
static int
is_left_out(const struct kv_model *m, const struct field *f)
{
	const char *at = (const char *)m + f->at;

	if (!f->spare)
		return 0;
	if (f->kind == REAL)
		return *(const double *)(const void *)at == 0;
	return f->kind == FLAG ? *(const int *)(const void *)at == 0 :
	    *(const uint32_t *)(const void *)at == 0;
}

/* All the fields, and no key that is none of them. */
static int
get_fields(struct kv_model *m, json_t *o, const struct field *fields, const char *name,
    struct kv_message *why)
{
	const struct field *f;
	const char *key;
	json_t *v;

	for (f = fields; f->key != NULL; f++) {
		if (!belongs(m, f))
			continue;
		v = json_object_get(o, f->key);
		if (v == NULL && f->spare)
			continue;
		if (v == NULL)
			return kv_bad(why, "%s.%s is missing", name, f->key);
		if (get_field(m, v, f, why) != KV_OK)
			return why->code;
		if (is_left_out(m, f))
			return kv_bad(why, "%s.%s says nothing and must be left out", name,
			    f->key);
	}
	json_object_foreach(o, key, v) {
		for (f = fields; f->key != NULL; f++)
			if (belongs(m, f) && strcmp(key, f->key) == 0)
				break;
		if (f->key == NULL)
			return kv_bad(why, "%s.%.60s is not known", name, key);
	}
	return KV_OK;
}

static int
get_head(struct kv_head *head, json_t *o, struct kv_message *why)
{
	json_t *keys = json_object_get(o, "keys"), *model = json_object_get(o, "model");
	struct kv_model *m = &head->model;

	if (!json_is_object(o))
		return kv_bad(why, "not a JSON object");
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
	    get_fields(m, model, model_fields, "model", why) != KV_OK)
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
	return KV_OK;
}

int
kv_head_get(struct kv_head *head, const void *json, size_t size, struct kv_message *why)
{
	json_error_t error;
	json_t *o = json_loadb(json, size, JSON_REJECT_DUPLICATES, &error);
	int code;

	memset(head, 0, sizeof *head);
	if (o == NULL)
		return kv_bad(why, "not JSON: byte %d: %s", error.position,
		    error.text);
	code = get_head(head, o, why);
	json_decref(o);
	return code;
}

/* ---- writing ---- */

struct text {
	char data[4096 + 32 * KV_ROPE_PAIRS];   /* enough for every field at its longest */
	size_t n;
};

static void put(struct text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void
put(struct text *t, const char *fmt, ...)
{
	size_t room = sizeof t->data - t->n;
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(t->data + t->n, room, fmt, ap);
	va_end(ap);
	if (n > 0)
		t->n += (size_t)n < room ? (size_t)n : room - 1;
}

/* %.17g, a point whatever the locale says, and .0 where the text would be that of an
 * integer. */
static void
put_real(struct text *t, double v)
{
	size_t start = t->n, i, n;

	put(t, "%.17g", v);
	for (i = n = start; i < t->n; i++)
		if (strchr("0123456789+-e", t->data[i]) != NULL)
			t->data[n++] = t->data[i];
		else if (n == start || t->data[n - 1] != '.')
			t->data[n++] = '.';     /* also for a decimal point of several bytes */
	t->data[n] = '\0';
	t->n = n;
	if (strpbrk(t->data + start, ".e") == NULL)
		put(t, ".0");
}

static void
put_factors(struct text *t, const struct kv_model *m)
{
	uint32_t i;

	for (i = 0; i < m->rope_n_factors && i < KV_ROPE_PAIRS; i++) {
		put(t, "%s", i == 0 ? "[" : ",");
		put_real(t, m->rope_factors[i]);
	}
	put(t, "%s", i == 0 ? "[]" : "]");
}

static void
put_text(struct text *t, const char *s, size_t most)
{
	json_t *v = json_stringn(s, strnlen(s, most));
	char *quoted = v ? json_dumps(v, JSON_ENCODE_ANY) : NULL;

	put(t, "%s", quoted ? quoted : "null");                 /* null is refused when read back */
	free(quoted);
	json_decref(v);
}

static const char *
dtype_text(enum kv_dtype type)
{
	const char *name = kv_dtype_name(type);

	return name != NULL ? name : "none";
}

static void
put_fields(struct text *t, const struct kv_model *m, const struct field *f)
{
	const char *at, *sep = "{";

	for (; f->key != NULL; f++) {
		if (!belongs(m, f) || is_left_out(m, f))
			continue;
		at = (const char *)m + f->at;
		put(t, "%s\"%s\":", sep, f->key);
		sep = ",";
		switch (f->kind) {
		case TEXT:
			put_text(t, at, sizeof m->architecture);
			break;
		case HASH:
			put_text(t, at, sizeof m->weights);
			break;
		case FLAG:
			put(t, "%s", *(const int *)(const void *)at ? "true" : "false");
			break;
		case COUNT:
			put(t, "%u", *(const uint32_t *)(const void *)at);
			break;
		case REAL:
			put_real(t, *(const double *)(const void *)at);
			break;
		case FACTORS:
			put_factors(t, m);
			break;
		case DTYPE:
			put(t, "\"%s\"", dtype_text(m->weights_dtype));
			break;
		case ROPE:
			put_fields(t, m, rope_fields);
			break;
		case ROPE_TYPE:
			put(t, "\"%s\"", rope_types[m->rope_type]);
			break;
		}
	}
	put(t, "}");
}

static int
is_finite(const struct kv_model *m)
{
	const double all[] = { m->norm_eps, m->rope_theta, m->rope_factor, m->rope_low_freq_factor,
		m->rope_high_freq_factor, m->rope_attention_factor, m->rope_beta_fast,
		m->rope_beta_slow, m->attention_multiplier, m->embedding_multiplier,
		m->logits_scaling, m->residual_multiplier };
	size_t i;

	for (i = 0; i < sizeof all / sizeof all[0]; i++)
		if (!isfinite(all[i]))
			return 0;
	for (i = 0; i < m->rope_n_factors && i < KV_ROPE_PAIRS; i++)
		if (!isfinite(m->rope_factors[i]))
			return 0;
	return 1;
}

int
kv_head_put(const struct kv_head *head, char **json, size_t *size, struct kv_message *why)
{
	const struct kv_model *m = &head->model;
	struct kv_head again;
	struct text t = { .n = 0 };

	*json = NULL;
	if (!is_finite(m))
		return kv_say(why, KV_EINVAL, "a real number of the model is not finite");
	if (kv_rope_name(m->rope_type) == NULL)
		return kv_say(why, KV_EINVAL, "rope.type %d is not known", (int)m->rope_type);
	put(&t, "{\"dtype\":\"%s\",\"keys\":\"rope\",\"model\":", dtype_text(head->dtype));
	put_fields(&t, m, model_fields);
	put(&t, ",\"next_position\":%u}", head->next_position);
	/* What the reader would refuse is not written. */
	if (kv_head_get(&again, t.data, t.n, why) != KV_OK)
		return why->code = KV_EINVAL;
	*json = strdup(t.data);
	if (*json == NULL)
		return kv_say(why, KV_ENOMEM, "no memory for HEAD");
	*size = t.n;
	return KV_OK;
}

int
kv_head_to_json(const struct kv_head *head, char **json)
{
	struct kv_message why = { 0 };
	size_t size;

	return kv_head_put(head, json, &size, &why);
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

/* ---- comparing ---- */

static void
describe(struct text *t, const struct kv_model *m, const struct field *f)
{
	const char *at = (const char *)m + f->at;

	t->n = 0;
	t->data[0] = '\0';
	switch (f->kind) {
	case TEXT:
	case HASH:
		put(t, "%s", at);
		break;
	case FLAG:
		put(t, "%s", *(const int *)(const void *)at ? "true" : "false");
		break;
	case COUNT:
		put(t, "%u", *(const uint32_t *)(const void *)at);
		break;
	case REAL:
		put(t, "%.17g", *(const double *)(const void *)at);
		break;
	case FACTORS:
		put_factors(t, m);
		break;
	case DTYPE:
		put(t, "%s", dtype_text(m->weights_dtype));
		break;
	case ROPE_TYPE:
		put(t, "%s", rope_types[m->rope_type]);
		break;
	case ROPE:
		break;
	}
}

int
kv_model_diff(const struct kv_model *a, const struct kv_model *b, const char *a_name,
    const char *b_name, char *text, size_t size)
{
	static const struct { const struct field *fields; const char *prefix; } groups[] = {
		{ model_fields, "" }, { rope_fields, "rope." }
	};
	const struct field *f;
	struct text in_a, in_b;
	size_t i, used = 0;
	int n = 0, k;

	if (size > 0)
		text[0] = '\0';
	for (i = 0; i < 2; i++)
		for (f = groups[i].fields; f->key != NULL; f++) {
			describe(&in_a, a, f);
			describe(&in_b, b, f);
			if (strcmp(in_a.data, in_b.data) == 0)
				continue;
			n++;
			if (used >= size)
				continue;
			if (f->kind == FACTORS)
				snprintf(in_a.data, sizeof in_a.data, "others");
			if (f->kind == FACTORS)
				snprintf(in_b.data, sizeof in_b.data, "others");
			k = snprintf(text + used, size - used, "%s%s%s: %s %s, %s %s",
			    n > 1 ? "; " : "", groups[i].prefix, f->key, in_a.data, a_name,
			    in_b.data, b_name);
			used += k > 0 ? (size_t)k : 0;
		}
	return n;
}
