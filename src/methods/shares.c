/* shares.c - layers share one budget by how their attention is spread (CAKE)
 *
 * Qin et al. 2025, "CAKE: Cascading and Adaptive KV Cache Eviction with Layer Preferences", ICLR,
 * section 4.2. The preference of a layer is
 *
 *     P = entropy^(1 / tau1) variance^(1 / tau2)          equation 6
 *
 * of the attention from its window (cake.c). Beside the rows that are always kept, layer l gets the
 * share P[l] / sum P of the budget, rounded down, but no more rows than it has. What the full
 * layers leave is divided evenly among the others, and then what rounding left; of what cannot be
 * divided the first layers get a row each; as often as rows are left and a layer has room. So the
 * total is exact. The authors' program does both once.
 *
 * In the paper layers are evicted while the prompt runs, each time the budget is divided among the
 * layers so far (cascading). The result is this division up to rounding, because the scores of a
 * layer do not change. */
#include <math.h>

#include "methods/budgets.h"

/* Returns the rows that layers with room have in all; *layers <- how many have any. */
static uint64_t
room_left(const struct layer_claim *claim, const uint32_t *share, size_t n, uint32_t *layers)
{
	uint64_t room = 0;
	size_t l;

	for (*layers = 0, l = 0; l < n; l++) {
		room += claim[l].room - share[l];
		*layers += claim[l].room > share[l];
	}
	return room;
}

/* Divides `left` rows evenly among the layers with room, the first ones get one more. Returns how
 * many do not fit. */
static uint64_t
share_evenly(const struct layer_claim *claim, uint32_t *share, size_t n, uint64_t left)
{
	uint64_t each, more, gets;
	uint32_t layers, i;
	size_t l;

	while (left > 0 && room_left(claim, share, n, &layers) > 0) {
		each = left / layers;
		more = left % layers;
		for (l = 0, i = 0; l < n; l++) {
			if (claim[l].room == share[l])
				continue;
			gets = each + (i++ < more);
			if (gets > claim[l].room - share[l])
				gets = claim[l].room - share[l];
			share[l] += (uint32_t)gets;
			left -= gets;
		}
	}
	return left;
}

/* A logarithm, because a small tau makes a preference that no number holds. */
double
layer_preference(const struct attention_spread *spread, double tau1, double tau2)
{
	return log(spread->entropy) / tau1 + log(spread->variance) / tau2;
}

void
share_layers(const struct layer_claim *claim, uint32_t *share, size_t n, uint64_t budget)
{
	double greatest = -INFINITY, sum = 0, p, quota;
	uint64_t beyond = 0, given = 0;
	size_t l;

	for (l = 0; l < n; l++)
		if (claim[l].room > 0)
			greatest = fmax(greatest, claim[l].preference);
	for (l = 0; l < n && greatest > -INFINITY; l++)
		if (claim[l].room > 0)
			sum += exp(claim[l].preference - greatest);
	for (l = 0; l < n; l++) {
		p = sum > 0 && claim[l].room > 0 ? exp(claim[l].preference - greatest) / sum : 0;
		quota = floor(p * (double)budget);
		share[l] = quota < claim[l].room ? (uint32_t)quota : claim[l].room;
		beyond += (uint64_t)quota - share[l];
		given += (uint64_t)quota;
	}
	share_evenly(claim, share, n, (budget > given ? budget - given : 0) +
	    share_evenly(claim, share, n, beyond));
}
