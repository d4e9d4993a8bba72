/* made_for.h - whether what was trained beside a model was trained for these weights
 *
 * Internal to model/. */
#ifndef KVPIPE_MADE_FOR_H
#define KVPIPE_MADE_FOR_H

#include <jansson.h>

#include "model/model.h"

/* Compares the fingerprint "target_weights" of an object of a configuration (NULL: it has none)
 * with the model. *by_samples <- 1 if only samples of the weights could be compared. path: for
 * messages. Returns MODEL_OK, also where nothing is said; MODEL_EMISMATCH, MODEL_ENOMEM. */
int made_for(const json_t *own, const char *path, const struct model *, int *by_samples, char *err,
    size_t errlen);

#endif
