/* leftovers.h - tensors in a model folder beside those of the model
 *
 * Internal to model/. Errors are MODEL_* codes, with a message in err[errlen]. */
#ifndef KVPIPE_LEFTOVERS_H
#define KVPIPE_LEFTOVERS_H

#include <stdint.h>

#include "model/checkpoint.h"
#include "model/overrides.h"
#include "model/safetensors.h"

/* needed: [tensors] 1 where the model has asked for the tensor. Of the others, says how many cannot
 * change what it computes. One that might is MODEL_EUNSUPPORTED, unless its name is in the
 * overrides. wrapped: those that see images are no part of the model, and so are those of layers
 * from number `layers` on. Scales of what the configuration has said is not quantised here are
 * passed over in silence. */
int leftovers_check(const struct tensor_set *, const uint8_t *needed, int wrapped, uint32_t layers,
    const struct checkpoint_config *, const struct overrides *, char *err, size_t errlen);

#endif
