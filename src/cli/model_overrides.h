/* model_overrides.h - unknown configuration keys and tensors to ignore: from options, the
 * environment and the model folder
 *
 * The folder's kvpipe-methods.conf has lines allow-config=KEY and allow-tensor=NAME. They apply
 * to this folder only, and each one that is used is reported. */
#ifndef KVPIPE_MODEL_OVERRIDES_H
#define KVPIPE_MODEL_OVERRIDES_H

#include "model/overrides.h"

/* Returns the overrides for the model folder, valid until the program ends. Loading marks those
 * that were used. */
const struct overrides *overrides_of_model(const char *dir);
/* As overrides_of_model(), but without the folder's lines: for adapters and other files. */
const struct overrides *overrides_given(void);
/* Adds the used overrides to the provenance, and warns once of used lines of the folder. */
void overrides_sign(void);

#endif
