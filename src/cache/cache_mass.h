/* cache_mass.h - memory for the attention mass of the rows of a cache; internal to cache/ */
#ifndef KVPIPE_CACHE_MASS_H
#define KVPIPE_CACHE_MASS_H

#include "cache/cache.h"

#define NO_LAYER UINT32_MAX

/* Moves the mass of layer l to lists of the greatest capacity. The mass of new rows is 0. Gives the
 * old memory to layer spare_to; NO_LAYER: frees it. Returns 0, or MODEL_ENOMEM. */
int mass_resize(struct cache *, uint32_t l, const uint32_t *capacity, uint32_t spare_to);
/* Returns the mass of layer l; sum NULL if the cache wants none. */
struct attention_mass mass_of(const struct cache *, uint32_t l);
void mass_clear(struct cache *, uint32_t l);            /* of a layer that has no row any more */
void mass_free(struct cache *);                         /* of all layers, if it is wanted */

#endif
