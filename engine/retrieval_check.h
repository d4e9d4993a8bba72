/* retrieval_check.h - does a layer have the index that retrieval needs? */
#ifndef KVPIPE_RETRIEVAL_CHECK_H
#define KVPIPE_RETRIEVAL_CHECK_H

#include "engine/engine_error.h"
#include "model/retrieve.h"

/* ENGINE_ERUN, with the command that makes the index, unless layer l is dense or x has it. name: of
 * the snapshot. */
int retrieval_check(const struct retrieval_options *, const char *name, uint32_t l,
    const struct layer_index *x, struct engine_error *);

#endif
