/* positions.h - a text that is longer than the model was made for runs all the same, with a
 * warning */
#ifndef KVPIPE_POSITIONS_H
#define KVPIPE_POSITIONS_H

#include "model/model.h"

/* Positions that the model was made for: max_position_embeddings, as scaling of the rotary
 * embedding stretches it */
uint64_t positions_of_model(const struct model *);
/* Tokens are going to run up to this position, which is not one of theirs. Warns, once in the
 * program, where a layer that sees all rows goes beyond what the model was made for. */
void warn_of_positions(const struct model *, uint64_t end);

#endif
