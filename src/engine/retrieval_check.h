/* retrieval_check.h - checks that a model and its layers have what retrieval needs */
#ifndef KVPIPE_RETRIEVAL_CHECK_H
#define KVPIPE_RETRIEVAL_CHECK_H

#include "engine/engine_error.h"
#include "forward/sequence.h"

/* Fails with ENGINE_EUNSUPPORTED unless all layers rotate all channels: only then keys can be
 * un-rotated and rotated again. */
int low_rank_fit(const struct kv_model *, struct engine_error *);

/* Fails with ENGINE_EUNSUPPORTED if the keys of layer l are quantised: their factors would replace
 * them. name: of the snapshot. */
int low_rank_rows_fit(enum kv_row_type keys, const char *name, uint32_t l, struct engine_error *);

/* Fails with ENGINE_EUNSUPPORTED if no layer from l on can retrieve. Only layers in which a query
 * sees all rows retrieve and have indexes; those with a sliding window read all rows in it. name:
 * of the snapshot. */
int retrieval_fit(const struct kv_model *, const char *name, uint32_t l, struct engine_error *);

/* Fails with ENGINE_ERUN, and the command that makes the index, unless layer l is dense or x has
 * the index; with ENGINE_EUNSUPPORTED if the model or the rows cannot have this index.
 * name: of the snapshot. */
int retrieval_check(const struct retrieval_options *, const char *name,
    const struct kv_model *, uint32_t l, const struct layer_rows *rows,
    const struct layer_index *x, struct engine_error *);

/* Replaces PER_MODEL by what fits the model: rows for each query head where it has latent
 * attention, and a retrieval head chooses. ENGINE_EUNSUPPORTED: rows for each query head of another
 * model; ENGINE_EMODEL: the query heads of the retrieval head are no multiple of the model's. head:
 * NULL where the method needs none. */
int retrieval_resolve(struct retrieval_options *, const struct kv_model *,
    const struct retrieval_head *head, struct engine_error *);

/* Returns the bytes on the device of the lists that retrieval (NULL: none) needs for steps over so
 * many rows of a KV head, and with a retrieval head (NULL: none) a text of so many tokens. 0 for
 * options that retrieval_resolve() refuses. */
uint64_t retrieval_demand(const struct retrieval_options *, const struct model *,
    const struct retrieval_head *, uint64_t rows, uint64_t text);

/* Makes the missing keys of the retrieval head of a loaded sequence. ENGINE_ERUN if they cannot be
 * made, ENGINE_EUNSUPPORTED if rows are not at their positions in the text. Calls told if only
 * samples of the head were compared with those of the snapshot. name: of the snapshot. */
int head_check(struct sequence *, const char *name, const struct notice_hook *told,
    struct engine_error *);

#endif
