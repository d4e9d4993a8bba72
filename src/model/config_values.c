/* config_values.c - values of a configuration, checked */
#include <stdio.h>
#include <string.h>

#include "model/config_internal.h"

json_t *
config_get(const json_t *object, const char *key)
{
	json_t *v = json_object_get(object, key);

	return json_is_null(v) ? NULL : v;
}

int
config_hint(struct config *c, const char *key, int rc)
{
	const size_t n = strnlen(c->err, c->errlen);

	if ((rc == MODEL_EINVALID || rc == MODEL_EUNSUPPORTED) && n < c->errlen &&
	    strstr(c->err, "--allow-config") == NULL)
		snprintf(c->err + n, c->errlen - n, " (--allow-config %s ignores it)", key);
	return rc;
}

/* The hint for a key that has a default, beside the objects that can be passed over as a whole */
static int
hint_of(struct config *c, const json_t *object, const char *key, int rc)
{
	return object == c->json ? config_hint(c, key, rc) : rc;
}

int
config_count(struct config *c, const json_t *object, const char *key, uint32_t max,
    uint32_t fallback, uint32_t *out)
{
	const json_t *v = config_get(object, key);
	json_int_t n = 0;
	int rc = MODEL_OK;

	if (v == NULL && fallback == REQUIRED)
		return BAD(c, "no \"%s\"", key);
	if (v == NULL) {
		*out = fallback;
		return MODEL_OK;
	}
	if (!json_is_integer(v))
		rc = BAD(c, "\"%s\" is not an integer", key);
	else if ((n = json_integer_value(v)) < 1 || n > max)
		rc = BAD(c, "\"%s\" is %" JSON_INTEGER_FORMAT ", not 1 to %u", key, n, max);
	if (rc != MODEL_OK)
		return fallback == REQUIRED ? rc : hint_of(c, object, key, rc);
	*out = (uint32_t)n;
	return MODEL_OK;
}

int
config_real(struct config *c, const json_t *object, const char *key, double min, double max,
    double *out)
{
	const json_t *v = config_get(object, key);
	const double x = json_number_value(v);  /* 0 for what is no number */

	if (v == NULL)
		return MODEL_OK;
	if (!(x > 0))
		return hint_of(c, object, key, BAD(c, "\"%s\" is not a number above 0", key));
	if (x < min || x > max)
		return hint_of(c, object, key, BAD(c, "\"%s\" is %g, not %g to %g", key, x, min,
		    max));
	*out = x;
	return MODEL_OK;
}

int
config_flag(struct config *c, const json_t *object, const char *key, int *out)
{
	const json_t *v = config_get(object, key);

	if (v == NULL)
		return MODEL_OK;
	if (!json_is_boolean(v))
		return hint_of(c, object, key, BAD(c, "\"%s\" is neither true nor false", key));
	*out = json_is_true(v);
	return MODEL_OK;
}

const char *
config_show(const json_t *v, char *text, size_t size)
{
	size_t n = json_dumpb(v, text, size - 1, JSON_ENCODE_ANY | JSON_COMPACT);

	if (n == 0 || n > size - 1)
		n = n == 0 ? 0 : size - 1;
	text[n] = '\0';
	return text;
}

int
config_has(const json_t *v, const char *only)
{
	json_t *want = json_loads(only, JSON_DECODE_ANY, NULL);
	int same;

	if (json_is_number(v) && json_is_number(want))         /* 1 and 1.0 */
		same = json_number_value(v) == json_number_value(want);
	else
		same = json_equal(v, want);
	json_decref(want);
	return same;
}
