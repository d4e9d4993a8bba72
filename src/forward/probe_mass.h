/* probe_mass.h - the attention mass that stored rows get from tokens which are run without being
 * stored
 *
 * The queries of these tokens see the stored rows of a range of positions, the rows of the first
 * positions (sinks), and their own keys. The attention weights of the range's rows are summed over
 * the queries, or their maximum is taken, while forward() runs. KVzip (Kim et al. 2025) goes
 * through a text in this way, range by range. Letters as in ops.h. */
#ifndef KVPIPE_PROBE_MASS_H
#define KVPIPE_PROBE_MASS_H

#include "forward/forward.h"

struct probe_mass {
	enum over_queries over;
	/* [L] host, as in pAID of a snapshot: KV head 0's R lists of its stored rows, then KV
	 * head 1's, ...; 0 for rows of no range so far */
	float **mass;

	/* the current range; host [L][G], row numbers: the range, the sinks before it, and where
	 * the rows of tokens begin that are only run */
	uint32_t *first, *end, *sinks, *stored;
	float **range_mass;            /* [L] device [H][stride]: the mass of its rows so far */
	size_t stride;
	/* scratch: device [N][H], log-sum-exps; host [G] each */
	float *part;
	uint64_t *start;
	uint32_t *len;
};

/* For the rows that are stored in c now, and calls of forward() with up to `rows` rows. NULL
 * without memory. */
struct probe_mass *probe_mass_new(const struct cache *c, enum over_queries over, uint32_t rows);
void probe_mass_free(struct probe_mass *, const struct cache *c);      /* NULL allowed */

/* The next range: rows at positions from .. to-1, and rows at positions below `sink` which stand
 * in the softmax too. Ranges must not overlap. Returns 0, or MODEL_ENOMEM. */
int probe_mass_begin(struct probe_mass *, const struct cache *c, uint32_t sink, uint32_t from,
    uint32_t to);
/* Adds the attention weights of these queries in layer l, which already holds their own rows. lse:
 * scratch, device [N][H]. Called by forward(). */
void probe_mass_add(struct probe_mass *, const struct cache *c, uint32_t l, const struct query *,
    float *lse);
/* Ends the range: the mass of its rows goes to p->mass. */
void probe_mass_end(struct probe_mass *, const struct cache *c);
/* +inf for the sinks of the last range. */
void probe_mass_keep_sinks(struct probe_mass *, const struct cache *c);

#endif
