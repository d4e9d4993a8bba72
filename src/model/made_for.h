/* made_for.h - whether what was trained beside a model was trained for these weights
 *
 * Internal to model/. */
#ifndef KVPIPE_MADE_FOR_H
#define KVPIPE_MADE_FOR_H

#include <jansson.h>

#include "model/model.h"

/* Compares fingerprints of a configuration, one or a list of some (NULL: none is said), with the
 * model. what: the key, path: the file, for messages. *by_samples <- 1 if only samples of the
 * weights could be compared. Returns MODEL_OK, also where none is said; MODEL_EINVALID,
 * MODEL_EMISMATCH, MODEL_ENOMEM. */
int made_for(const json_t *weights, const char *what, const char *path, const struct model *,
    int *by_samples, char *err, size_t errlen);

#endif
