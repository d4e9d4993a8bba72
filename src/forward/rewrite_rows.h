/* rewrite_rows.h - computes rows of a cache again, in their places
 *
 * For documents that were prefilled apart: some tokens run again, and see the rows of all documents
 * before them. Their new keys and values replace the old ones; no row is added or dropped. */
#ifndef KVPIPE_REWRITE_ROWS_H
#define KVPIPE_REWRITE_ROWS_H

#include "forward/forward.h"

struct rewrite_rows;

/* Returns memory for the new rows of up to N tokens at once, in any layer of this cache; NULL
 * without memory. */
struct rewrite_rows *rewrite_rows_new(const struct cache *, uint32_t N);
void rewrite_rows_free(struct rewrite_rows *);          /* NULL allowed */

/* Runs rows x[N][D] (device) at positions pos[N] (host, ascending) through layers l0 .. l1-1, in
 * tiles of the workspace's rows; x <- the output. In every KV head that has a row at one of these
 * positions its key and value are replaced; a KV head from which it was evicted stays without, and
 * the token sees the rows that there are. The cache must want no mass, no statistics, no lists and
 * no indexes, and no layer is offloaded. Calls step (NULL = none) after each tile, with `done` and
 * the rows run in this call, times layers. Returns 0, or MODEL_EIO when the device failed or the
 * last row is not finite (err says how). */
int rewrite_rows_run(struct rewrite_rows *, struct sequence *, struct workspace *, float *x,
    const uint32_t *pos, uint32_t N, uint32_t l0, uint32_t l1, uint64_t done,
    const struct step_hook *step, char *err, size_t errlen);

#endif
