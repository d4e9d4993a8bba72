/* positions.h - warns when a text is longer than the model was trained for; it runs all the
 * same */
#ifndef KVPIPE_POSITIONS_H
#define KVPIPE_POSITIONS_H

#include "model/model.h"

/* Returns the positions the model was trained for: max_position_embeddings, extended by RoPE
 * scaling. */
uint64_t positions_of_model(const struct model *);
/* Warns, once in the program, if tokens up to position end (exclusive) exceed that length in a
 * layer without a window. */
void warn_of_positions(const struct model *, uint64_t end);

#endif
