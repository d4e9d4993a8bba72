/* adapter_config.h - adapter_config.json: PEFT's LoRA configuration, and what kvpipe adds to it
 *
 * Internal to model/. What changes the arithmetic and is not supported is refused by name. */
#ifndef KVPIPE_ADAPTER_CONFIG_H
#define KVPIPE_ADAPTER_CONFIG_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "model/overrides.h"

/* The linears of a layer, in the order of struct adapter_layer. */
enum { ADAPTER_LINEARS = 7 };
extern const char *const adapter_linears[ADAPTER_LINEARS];      /* "q_proj", ... */

struct adapter_config {
	uint32_t tokens;                /* learned tokens, at least 1 */
	uint32_t rank;                  /* 0: no LoRA */
	double scale;                   /* alpha / r, with rank-stabilised LoRA alpha / sqrt(r) */
	unsigned linears;               /* 1 << i for each of adapter_linears[] that has a LoRA */
	json_t *weights;                /* what made_for() takes; to be freed by json_decref() */
};

#define ADAPTER_WEIGHTS "weights"       /* the key that says so */
#define ADAPTER_CONFIG "adapter_config.json"

/* Returns MODEL_*, with a message in err[errlen]. */
int adapter_config_read(const char *dir, const struct overrides *, struct adapter_config *out,
    char *err, size_t errlen);

#endif
