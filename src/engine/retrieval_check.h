/* retrieval_check.h - does a layer have the index that retrieval needs? */
#ifndef KVPIPE_RETRIEVAL_CHECK_H
#define KVPIPE_RETRIEVAL_CHECK_H

#include "engine/engine_error.h"
#include "forward/sequence.h"

/* Keys can be turned back and forth only where all layers turn all channels. Else
 * ENGINE_EUNSUPPORTED with the reason. */
int low_rank_fit(const struct kv_model *, struct engine_error *);

/* Only layers in which a query sees all rows retrieve, and have indexes; those with a sliding
 * window read what they see. ENGINE_EUNSUPPORTED where no layer from l on is left. name: of the
 * snapshot. */
int retrieval_fit(const struct kv_model *, const char *name, uint32_t l, struct engine_error *);

/* ENGINE_ERUN, with the command that makes the index, unless layer l is dense or x has it;
 * ENGINE_EUNSUPPORTED where the index is none for the model. name: of the snapshot. */
int retrieval_check(const struct retrieval_options *, const char *name,
    const struct kv_model *, uint32_t l, const struct layer_index *x, struct engine_error *);

/* Makes the keys that the retrieval head of a loaded sequence lacks. ENGINE_ERUN where they cannot
 * be made, or mean nothing for its rows. told is called where only samples of the head were
 * compared with those of the snapshot. name: of the snapshot. */
int head_check(struct sequence *, const char *name, const struct notice_hook *told,
    struct engine_error *);

#endif
