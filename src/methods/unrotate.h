/* unrotate.h - keys before rotary embedding, from those that are stored, after it; private to
 * methods/ */
#ifndef KVPIPE_UNROTATE_H
#define KVPIPE_UNROTATE_H

#include "methods/methods.h"

/* The rotations of positions, for one thread. A rotation is one of a multiple of UNROTATE_STEP
 * and one of what is left. */
#define UNROTATE_STEP 64

struct unrotation {
	uint32_t pairs;
	double *cos, *sin;              /* [UNROTATE_STEP][pairs] by 0, 1, ... positions */
	double *base_cos, *base_sin;    /* [pairs] by `base` positions, over rope_factor */
	uint32_t base;
};

/* Returns 0, or -1 when out of memory. Needs NEED_ROPE. */
int unrotation_init(struct unrotation *, const struct score_input *);
void unrotation_free(struct unrotation *);
/* key[E] <- the stored key [E], at this position, before rotary embedding. */
void unrotate_key(double *key, struct unrotation *, const struct score_input *, const float *stored,
    uint32_t position);

#endif
