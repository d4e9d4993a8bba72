/* made_for.c - whether what was trained beside a model was trained for these weights */
#include "model/made_for.h"
#include "model/model_files.h"

int
made_for(const json_t *own, const char *path, const struct model *m, int *by_samples, char *err,
    size_t errlen)
{
	const json_t *weights = json_object_get(own, "target_weights");
	int same = WEIGHTS_SAME;

	if (weights != NULL && !json_is_null(weights))
		same = !json_is_string(weights) ? WEIGHTS_OTHER :
		    model_has_weights(m, json_string_value(weights), err, errlen);
	*by_samples = same == WEIGHTS_ALIKE;
	if (same == WEIGHTS_OTHER)
		return model_file_fail(err, errlen, MODEL_EMISMATCH, path,
		    "trained for weights %s, but %s has %s",
		    json_is_string(weights) ? json_string_value(weights) : "unknown", m->dir,
		    m->weights);
	return same < 0 ? same : MODEL_OK;
}
