/* gguf_config.h - the configuration of a model in a GGUF file, as its config.json would have it */
#ifndef KVPIPE_GGUF_CONFIG_H
#define KVPIPE_GGUF_CONFIG_H

#include <jansson.h>
#include <stddef.h>

#include "model/overrides.h"

/* *out <- an object with keys of config.json, to be json_decref'ed; the reader of configurations
 * judges its values. A key of the architecture that is unknown, or that says what is not computed,
 * is MODEL_EUNSUPPORTED unless the overrides name it, and one of another type MODEL_EINVALID. */
int gguf_config(const char *path, const struct overrides *, json_t **out, char *err, size_t errlen);

#endif
