/* head_text.c - writes a HEAD as canonical JSON, and compares two identities
 *
 * The text is written here and not by a library, because it must be the same with every version
 * of every library, in every locale. */

#include "head_fields.h"

#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Enough for every field of an identity at its longest, and for all row types */
enum { FIELDS_MOST = 4096 + 32 * KV_ROPE_PAIRS + 5 * KV_LAYERS_MOST,
	DOCUMENTS_MOST = 32 + 11 * KV_DOCUMENTS_MOST,
	ROW_TYPES_MOST = 64 + 2 * KV_LAYERS_MOST * (int)sizeof "\"q8_0-hadamard\"," };

struct text {
	char *data;
	size_t size, n;
};

static void add_text(struct text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void
add_text(struct text *t, const char *fmt, ...)
{
	size_t room = t->size - t->n;
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(t->data + t->n, room, fmt, ap);
	va_end(ap);
	if (n > 0)
		t->n += (size_t)n < room ? (size_t)n : room - 1;
}

/* Prints %.17g, with a point in every locale, and .0 if it would look like an integer. */
static void
put_real(struct text *t, double v)
{
	size_t start = t->n, i, n;

	add_text(t, "%.17g", v);
	for (i = n = start; i < t->n; i++)
		if (strchr("0123456789+-e", t->data[i]) != NULL)
			t->data[n++] = t->data[i];
		else if (n == start || t->data[n - 1] != '.')
			t->data[n++] = '.';     /* a decimal point may have several bytes */
	t->data[n] = '\0';
	t->n = n;
	if (strpbrk(t->data + start, ".e") == NULL)
		add_text(t, ".0");
}

static void
put_factors(struct text *t, const struct kv_model *m)
{
	uint32_t i;

	for (i = 0; i < m->rope_n_factors && i < KV_ROPE_PAIRS; i++) {
		add_text(t, "%s", i == 0 ? "[" : ",");
		put_real(t, m->rope_factors[i]);
	}
	add_text(t, "%s", i == 0 ? "[]" : "]");
}

static void
put_layers(struct text *t, const uint8_t *set)
{
	const char *sep = "[";
	uint32_t l;

	for (l = 0; l < KV_LAYERS_MOST; l++)
		if (set[l / 8] >> l % 8 & 1) {
			add_text(t, "%s%u", sep, l);
			sep = ",";
		}
	add_text(t, "%s]", *sep == '[' ? "[" : "");
}

static void
put_text(struct text *t, const char *s, size_t most)
{
	json_t *v = json_stringn(s, strnlen(s, most));
	char *quoted = v ? json_dumps(v, JSON_ENCODE_ANY) : NULL;

	add_text(t, "%s", quoted ? quoted : "null");    /* null is refused when read back */
	free(quoted);
	json_decref(v);
}

static const char *
dtype_text(enum kv_dtype type)
{
	const char *name = kv_dtype_name(type);

	return name != NULL ? name : "none";
}

static void put_fields(struct text *t, const struct kv_model *m, const struct head_field *f);

/* Writes the value of a field as JSON, or, for a message, without quotes. */
static void
put_value(struct text *t, const struct kv_model *m, const struct head_field *f, int json)
{
	const void *at = (const char *)m + f->at;

	switch (f->kind) {
	case TEXT:
	case HASH:
		if (json)
			put_text(t, at, f->kind == TEXT ? sizeof m->architecture :
			    sizeof m->weights);
		else
			add_text(t, "%s", (const char *)at);
		break;
	case FLAG:
		add_text(t, "%s", *(const int *)at ? "true" : "false");
		break;
	case COUNT:
		add_text(t, "%u", *(const uint32_t *)at);
		break;
	case REAL:
		if (json)
			put_real(t, *(const double *)at);
		else
			add_text(t, "%.17g", *(const double *)at);
		break;
	case FACTORS:
		put_factors(t, m);
		break;
	case LAYERS:
		put_layers(t, at);
		break;
	case DTYPE:
		add_text(t, json ? "\"%s\"" : "%s", dtype_text(m->weights_dtype));
		break;
	case ROPE_TYPE:
		add_text(t, json ? "\"%s\"" : "%s", kv_rope_name(m->rope_type));
		break;
	case ROPE:
		if (json)               /* its fields are compared separately */
			put_fields(t, m, kv_rope_fields);
		break;
	}
}

static void
put_fields(struct text *t, const struct kv_model *m, const struct head_field *f)
{
	const char *sep = "{";

	for (; f->key != NULL; f++) {
		if (!kv_head_belongs(m, f) || kv_head_is_left_out(m, f))
			continue;
		add_text(t, "%s\"%s\":", sep, f->key);
		sep = ",";
		put_value(t, m, f, 1);
	}
	add_text(t, "}");
}

static int
is_finite(const struct kv_model *m)
{
	const double all[] = { m->norm_eps, m->rope_theta, m->rope_factor, m->rope_low_freq_factor,
		m->rope_high_freq_factor, m->rope_attention_factor, m->rope_beta_fast,
		m->rope_beta_slow, m->attention_multiplier, m->embedding_multiplier,
		m->logits_scaling, m->residual_multiplier, m->attention_softcap, m->logits_softcap,
		m->rope_window_theta, m->rope_query_beta };
	size_t i;

	for (i = 0; i < sizeof all / sizeof all[0]; i++)
		if (!isfinite(all[i]))
			return 0;
	for (i = 0; i < m->rope_n_factors && i < KV_ROPE_PAIRS; i++)
		if (!isfinite(m->rope_factors[i]))
			return 0;
	return 1;
}

static void
put_row_types(struct text *t, const char *key, const struct kv_head *head, enum kv_kind kind)
{
	const char *name;
	uint32_t l;

	add_text(t, "\"%s\":", key);
	for (l = 0; l < head->model.layers && l < KV_LAYERS_MOST; l++) {
		name = kv_row_type_name(kv_head_row_type(head, kind, l));
		add_text(t, "%s\"%s\"", l == 0 ? "[" : ",", name != NULL ? name : "none");
	}
	add_text(t, "]");
}

static void
put_documents(struct text *t, const struct kv_documents *d)
{
	uint32_t i;

	if (d->n == 0)
		return;
	add_text(t, "\"documents\":");
	for (i = 0; i < d->n; i++)
		add_text(t, "%s%u", i == 0 ? "[" : ",", d->start[i]);
	add_text(t, "],");
}

static void
put_head(struct text *t, const struct kv_head *head)
{
	add_text(t, "{");
	put_documents(t, &head->documents);
	add_text(t, "\"dtype\":\"%s\",\"keys\":\"rope\",\"model\":", dtype_text(head->dtype));
	put_fields(t, &head->model, kv_model_fields);
	add_text(t, ",\"next_position\":%u", head->next_position);
	if (kv_head_is_quantised(head)) {
		add_text(t, ",\"row_types\":{");
		put_row_types(t, "keys", head, KV_KEYS);
		if (head->residual != 0)
			add_text(t, ",\"residual\":%u", head->residual);
		add_text(t, ",");
		put_row_types(t, "values", head, KV_VALS);
		add_text(t, "}");
	}
	add_text(t, "}");
}

/* Returns whether all reserved fields are 0. Others were set by a caller of a later version. */
static int
is_reserved_empty(const struct kv_head *head)
{
	size_t i;

	for (i = 0; i < sizeof head->reserved / sizeof *head->reserved; i++)
		if (head->reserved[i] != 0 || head->model.reserved[i] != 0)
			return 0;
	return 1;
}

int
kv_head_put(const struct kv_head *head, char **json, size_t *size, struct kv_message *why)
{
	const struct kv_model *m = &head->model;
	struct text t = { .size = FIELDS_MOST + ROW_TYPES_MOST + DOCUMENTS_MOST };
	struct kv_head again;

	*json = NULL;
	if (!is_finite(m))
		return kv_say(why, KV_EINVAL, "a real number of the model is not finite");
	if (!is_reserved_empty(head))
		return kv_say(why, KV_EINVAL, "a reserved field is not 0");
	if (kv_rope_name(m->rope_type) == NULL)
		return kv_say(why, KV_EINVAL, "rope.type %d is not known", (int)m->rope_type);
	if (head->documents.n >= KV_DOCUMENTS_MOST)
		return kv_say(why, KV_EINVAL, "%u documents: at most %d",
		    head->documents.n + 1, KV_DOCUMENTS_MOST);
	if ((t.data = malloc(t.size)) == NULL)
		return kv_say(why, KV_ENOMEM, "no memory for HEAD");
	put_head(&t, head);
	/* Never writes what the reader would refuse. */
	if (kv_head_get(&again, t.data, t.n, why) != KV_OK) {
		free(t.data);
		return why->code = KV_EINVAL;
	}
	*json = t.data;
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

/* ---- comparing ---- */

static void
describe_field(struct text *t, const struct kv_model *m, const struct head_field *f)
{
	t->n = 0;
	t->data[0] = '\0';
	put_value(t, m, f, 0);
}

int
kv_model_diff(const struct kv_model *a, const struct kv_model *b, const char *a_name,
    const char *b_name, char *text, size_t size)
{
	static const struct { const struct head_field *fields; const char *prefix; } groups[] = {
		{ kv_model_fields, "" }, { kv_rope_fields, "rope." }
	};
	char a_data[FIELDS_MOST], b_data[FIELDS_MOST];
	struct text in_a = { a_data, sizeof a_data, 0 }, in_b = { b_data, sizeof b_data, 0 };
	const struct head_field *f;
	size_t i, used = 0;
	int n = 0, k;

	if (size > 0)
		text[0] = '\0';
	for (i = 0; i < 2; i++)
		for (f = groups[i].fields; f->key != NULL; f++) {
			describe_field(&in_a, a, f);
			describe_field(&in_b, b, f);
			if (strcmp(in_a.data, in_b.data) == 0)
				continue;
			n++;
			if (used >= size)
				continue;
			if (f->kind == FACTORS || f->kind == LAYERS) {
				snprintf(a_data, sizeof a_data, "others");
				snprintf(b_data, sizeof b_data, "others");
			}
			k = snprintf(text + used, size - used, "%s%s%s: %s %s, %s %s",
			    n > 1 ? "; " : "", groups[i].prefix, f->key, in_a.data, a_name,
			    in_b.data, b_name);
			used += k > 0 ? (size_t)k : 0;
		}
	return n;
}
