/* gguf_value.c - values of a GGUF file's metadata, by their keys */
#include <endian.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/gguf.h"
#include "model/model.h"
#include "model/model_files.h"

static const char *const names[GGUF_KINDS] = { "u8", "i8", "u16", "i16", "u32", "i32", "f32",
	"bool", "a string", "an array", "u64", "i64", "f64" };

static int
by_key(const void *key, const void *v)
{
	return strcmp(key, ((const struct gguf_value *)v)->key);
}

const struct gguf_value *
gguf_find(const struct gguf *g, const char *key)
{
	if (g->values == 0)
		return NULL;
	return bsearch(key, g->value, g->values, sizeof *g->value, by_key);
}

static uint16_t
le16_at(const uint8_t *p)
{
	uint16_t v;

	memcpy(&v, p, sizeof v);
	return le16toh(v);
}

static uint32_t
le32_at(const uint8_t *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof v);
	return le32toh(v);
}

static uint64_t
le64_at(const uint8_t *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof v);
	return le64toh(v);
}

/* *v <- a whole number of this kind, which lies at p. Returns 0 where it is none, or too large. */
static int
read_whole(enum gguf_kind kind, const uint8_t *p, int64_t *v)
{
	switch (kind) {
	case GGUF_U8:  *v = *p; return 1;
	case GGUF_I8:  *v = (int8_t)*p; return 1;
	case GGUF_U16: *v = le16_at(p); return 1;
	case GGUF_I16: *v = (int16_t)le16_at(p); return 1;
	case GGUF_U32: *v = le32_at(p); return 1;
	case GGUF_I32: *v = (int32_t)le32_at(p); return 1;
	case GGUF_I64: *v = (int64_t)le64_at(p); return 1;
	case GGUF_U64: *v = (int64_t)le64_at(p); return *v >= 0;
	default:       return 0;
	}
}

static size_t
size_of(enum gguf_kind kind)
{
	switch (kind) {
	case GGUF_U8: case GGUF_I8:
		return 1;
	case GGUF_U16: case GGUF_I16:
		return 2;
	case GGUF_U64: case GGUF_I64:
		return 8;
	default:
		return 4;
	}
}

int64_t
gguf_whole_at(const struct gguf_value *v, uint64_t i)
{
	int64_t n = 0;

	(void)read_whole(v->of, v->data + i * size_of(v->of), &n);
	return n;
}

static float
f32_at(const uint8_t *p)
{
	const uint32_t bits = le32_at(p);
	float x;

	memcpy(&x, &bits, sizeof x);
	return x;
}

float
gguf_f32_at(const struct gguf_value *v, uint64_t i)
{
	return f32_at(v->data + i * sizeof(float));
}

static int
other_kind(const struct gguf *g, const struct gguf_value *v, const char *want, char *err,
    size_t errlen)
{
	return model_file_fail(err, errlen, MODEL_EINVALID, g->path, "key %s is %s%s, not %s",
	    v->key, names[v->kind], v->kind == GGUF_ARRAY ? v->of == GGUF_STRING ? " of strings" :
	    v->of == GGUF_ARRAY ? " of arrays" : " of numbers" : "", want);
}

int
gguf_whole(const struct gguf *g, const char *key, uint64_t *out, char *err, size_t errlen)
{
	const struct gguf_value *v = gguf_find(g, key);
	int64_t n, other;
	uint64_t i;

	if (v == NULL)
		return MODEL_OK;
	if (v->kind == GGUF_ARRAY && v->count > 0 && read_whole(v->of, v->data, &n)) {
		for (i = 1; i < v->count; i++)
			if ((other = gguf_whole_at(v, i)) != n)
				return model_file_fail(err, errlen, MODEL_EUNSUPPORTED, g->path,
				    "key %s differs between layers, which is not supported: "
				    "%" PRId64 " and %" PRId64, key, n, other);
	} else if (v->kind == GGUF_ARRAY || !read_whole(v->kind, v->data, &n))
		return other_kind(g, v, "a whole number", err, errlen);
	if (n < 0)
		return model_file_fail(err, errlen, MODEL_EINVALID, g->path, "key %s is %" PRId64,
		    key, n);
	*out = (uint64_t)n;
	return MODEL_OK;
}

double
gguf_shortest(float x)
{
	char text[32];
	int digits;

	for (digits = 6; digits < 9; digits++) {
		snprintf(text, sizeof text, "%.*g", digits, (double)x);
		if (strtof(text, NULL) == x)
			return strtod(text, NULL);
	}
	return (double)x;
}

int
gguf_real(const struct gguf *g, const char *key, double *out, char *err, size_t errlen)
{
	const struct gguf_value *v = gguf_find(g, key);
	uint64_t bits;

	if (v == NULL)
		return MODEL_OK;
	if (v->kind == GGUF_F32)
		*out = gguf_shortest(f32_at(v->data));
	else if (v->kind == GGUF_F64) {
		bits = le64_at(v->data);
		memcpy(out, &bits, sizeof bits);
	} else
		return other_kind(g, v, "a real number", err, errlen);
	if (!isfinite(*out))
		return model_file_fail(err, errlen, MODEL_EINVALID, g->path, "key %s is not finite",
		    key);
	return MODEL_OK;
}

int
gguf_flag(const struct gguf *g, const char *key, int *out, char *err, size_t errlen)
{
	const struct gguf_value *v = gguf_find(g, key);

	if (v == NULL)
		return MODEL_OK;
	if (v->kind != GGUF_BOOL)
		return other_kind(g, v, "a bool", err, errlen);
	*out = *v->data != 0;
	return MODEL_OK;
}

int
gguf_text(const struct gguf *g, const char *key, const char **text, size_t *len, char *err,
    size_t errlen)
{
	const struct gguf_value *v = gguf_find(g, key);

	if (v == NULL)
		return MODEL_OK;
	if (v->kind != GGUF_STRING)
		return other_kind(g, v, "a string", err, errlen);
	if (memchr(v->data, '\0', v->count) != NULL)
		return model_file_fail(err, errlen, MODEL_EINVALID, g->path, "key %s: a string "
		    "with a zero byte", key);
	*text = (const char *)v->data;
	*len = v->count;
	return MODEL_OK;
}

int
gguf_array(const struct gguf *g, const char *key, enum gguf_kind of, const struct gguf_value **out,
    char *err, size_t errlen)
{
	const struct gguf_value *v = gguf_find(g, key);
	char want[32];

	*out = NULL;
	if (v == NULL)
		return MODEL_OK;
	if (v->kind != GGUF_ARRAY || (v->of != of && v->count > 0)) {
		snprintf(want, sizeof want, "an array of %s", of == GGUF_STRING ? "strings" :
		    names[of]);
		return other_kind(g, v, want, err, errlen);
	}
	*out = v;
	return MODEL_OK;
}

const char *
gguf_next_text(const uint8_t **at, size_t *len)
{
	const char *text = (const char *)*at + sizeof(uint64_t);

	*len = le64_at(*at);
	*at += sizeof(uint64_t) + *len;
	return text;
}
