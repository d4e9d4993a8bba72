/* probe_mass.h - the attention mass that stored rows get from probe tokens, which are run without
 * being stored
 *
 * The queries of these tokens see the stored rows of a range of positions, the rows of the first
 * positions (sinks), and their own keys. While forward() runs, the attention weights of the range's
 * rows are summed over the queries, or their maximum is kept. KVzip (Kim et al. 2025) scores a text
 * in this way, range by range. Letters as in ops.h. */
#ifndef KVPIPE_PROBE_MASS_H
#define KVPIPE_PROBE_MASS_H

#include "forward/forward.h"

struct probe_mass {
	enum over_queries over;
	/* [L] host, as in pAID of a snapshot: KV head 0's R lists of its stored rows, then KV head
	 * 1's, ...; 0 for rows in no range so far */
	float **mass;

	/* the current range, host [L][G] row numbers: first .. end-1 the range, 0 .. sinks-1 the
	 * sinks, from `stored` on the rows of probe tokens */
	uint32_t *first, *end, *sinks, *stored;
	/* [L] device [H][stride]: the mass of the range's rows so far */
	float **range_mass;
	size_t stride;
	/* scratch: device [N][H], log-sum-exps; host [G] each */
	float *part;
	uint64_t *start;
	uint32_t *len;
	/* probe_mass_weigh(): scratch, host [N][D], [N][H] and [2][D]; else NULL */
	float *host_x, *host_lse, *host_w;
};

/* Returns a probe_mass of 0 for the rows that are stored in c now, for calls of forward() with up
 * to `rows` rows; NULL without memory. */
struct probe_mass *probe_mass_new(const struct cache *c, enum over_queries over, uint32_t rows);
void probe_mass_free(struct probe_mass *, const struct cache *c);      /* NULL allowed */

/* KVzip+ (kvpress, 2025): has the attention that a probe token pays in a layer divided by the
 * length of its input of attention, behind the norm; call it before the first range, and at the
 * end probe_mass_times_norms(), which multiplies the mass of each row by the Euclidean norm of its
 * value output. Return 0, or MODEL_ENOMEM. */
int probe_mass_weigh(struct probe_mass *, const struct cache *c, uint32_t rows);
int probe_mass_times_norms(struct probe_mass *, const struct cache *c);

/* Begins a range: rows at positions from .. to-1. Rows at positions below `sink` are in the
 * softmax, too. Ranges must not overlap. Returns 0, or MODEL_ENOMEM. */
int probe_mass_begin(struct probe_mass *, const struct cache *c, uint32_t sink, uint32_t from,
    uint32_t to);
/* Adds the attention weights of these queries in layer l, to which their own rows have been
 * appended. lse: scratch, device [N][H]; x: device [N][D], the residual stream before the layer.
 * Called by forward(). */
void probe_mass_add(struct probe_mass *, const struct cache *c, uint32_t l, const struct query *,
    float *lse, const float *x);
/* Ends the range: copies the mass of its rows to p->mass. */
void probe_mass_end(struct probe_mass *, const struct cache *c);
/* Sets the mass of the sinks of the last range to +inf. */
void probe_mass_keep_sinks(struct probe_mass *, const struct cache *c);

#endif
