/* latent.h - multi-head latent attention (DeepSeek-V2, 2024, section 2.1), in the absorbed form
 *
 * All query heads read one row: the latent vector, which is the value, too, and a rotated key.
 * Queries are multiplied into the space of the latent vector before attention, its output out of
 * it after that (kv-snapshot(5), 4.26). */
#ifndef KVPIPE_LATENT_H
#define KVPIPE_LATENT_H

#include "forward/forward_internal.h"

/* Returns the floats of a row in a workspace that latent attention has for itself. */
uint64_t latent_floats(const struct model *m);
/* ws->q, ws->k <- queries [N][H][E] and keys [N][1][E] of the rows in ws->x, before rotary
 * embedding; ws->v is ws->k */
void latent_project(const struct model *m, struct workspace *ws, uint32_t l, uint32_t N);
/* Returns what attention gives, ws->o [N][H][E], out of the latent space: [N][H][value]. */
const float *latent_output(const struct model *m, struct workspace *ws, uint32_t l, uint32_t N);

#endif
