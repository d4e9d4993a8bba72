/* model_overrides.h - what of a model folder is passed over: what options, the environment and a
 * file in the folder name
 *
 * The folder's own kvpipe-methods.conf has lines allow-config=KEY and allow-tensor=NAME. They count
 * for this folder only, and each that passes over something is said. */
#ifndef KVPIPE_MODEL_OVERRIDES_H
#define KVPIPE_MODEL_OVERRIDES_H

#include "model/overrides.h"

/* For the model folder. Stays as it is until the program ends, and marks what was there. */
const struct overrides *overrides_of_model(const char *dir);
/* For what is loaded besides: without the lines of that file. Marks the same. */
const struct overrides *overrides_given(void);
/* Signs what was there, and warns of lines of the folder that passed over something, once. */
void overrides_sign(void);

#endif
