/* made_for.c - whether what was trained beside a model was trained, or tried, with these weights
 *
 * The same weights may stand in several files, a folder and a GGUF file that it was made of: then
 * a list has a fingerprint of each. */
#include <string.h>

#include "model/made_for.h"
#include "model/model_files.h"

enum { DIGITS = 32 };

/* The i-th fingerprint; NULL: it is none */
static const char *
digits_at(const json_t *weights, size_t i)
{
	const json_t *v = json_is_array(weights) ? json_array_get(weights, i) : weights;
	const char *text = json_string_value(v);

	return text != NULL && strlen(text) == DIGITS &&
	    strspn(text, "0123456789abcdef") == DIGITS ? text : NULL;
}

int
made_for(const json_t *weights, const char *what, const char *path, const struct model *m,
    int *by_samples, char *err, size_t errlen)
{
	const size_t n = json_is_array(weights) ? json_array_size(weights) : 1;
	int same = WEIGHTS_OTHER;
	size_t i;

	*by_samples = 0;
	if (weights == NULL || json_is_null(weights))
		return MODEL_OK;
	for (i = 0; i < n; i++)
		if (digits_at(weights, i) == NULL)
			return model_file_fail(err, errlen, MODEL_EINVALID, path,
			    "\"%s\" is not 32 hexadecimal digits, or a list of them", what);
	for (i = 0; i < n && same == WEIGHTS_OTHER; i++)
		same = model_has_weights(m, digits_at(weights, i), err, errlen);
	if (same < 0)
		return same;
	*by_samples = same == WEIGHTS_ALIKE;
	if (same != WEIGHTS_OTHER)
		return MODEL_OK;
	return model_file_fail(err, errlen, MODEL_EMISMATCH, path, "trained for weights %s%s, but "
	    "%s has %s", n > 0 ? digits_at(weights, 0) : "of none", n > 1 ? " and others" : "",
	    m->dir, m->weights);
}
