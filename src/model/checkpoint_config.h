/* checkpoint_config.h - quantization_config of config.json
 *
 * Included by config*.c and its test only. */
#ifndef KVPIPE_CHECKPOINT_CONFIG_H
#define KVPIPE_CHECKPOINT_CONFIG_H

#include "model/checkpoint.h"
#include "model/config_internal.h"

/* out <- how the matrices of the folder are quantised; CHECKPOINT_PLAIN where the configuration has
 * no such object. Each key of it is understood, harmless, or refused by name, as those around it.
 * Returns MODEL_* */
int checkpoint_config(struct config *, struct checkpoint_config *out);

#endif
