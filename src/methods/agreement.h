/* agreement.h - how far two lists of scores of the same rows agree
 *
 * Pure C on host arrays, as methods.h. Scores are f32 without NaN; +inf and -inf are allowed. */
#ifndef KVPIPE_AGREEMENT_H
#define KVPIPE_AGREEMENT_H

#include <stdint.h>

/* The two scores of a row. */
struct score_pair {
	float a, b;
};

/* Returns Kendall's tau-b: concordant less discordant pairs of rows, over the geometric mean of
 * the pairs not tied in the first list and those not tied in the second. 1: same order, 0:
 * unrelated, -1: reversed. NaN if a list has only ties, or fewer than two rows. Sorts pair[n];
 * scratch[n]. O(n log n). */
double kendall_tau(struct score_pair *pair, float *scratch, uint32_t n);

/* Returns the share of the best rows by a that are also among the best by b. "Best" are the
 * rows that kv-evict would keep at this rate: floor(n * rate + 1e-9), at least one; of equal
 * scores the lower row. n >= 1; best[2 * n]. */
double score_recall(const float *a, const float *b, uint32_t n, double rate, uint32_t *best);

/* Returns the sum of the k greatest of score[n], added in the order of the rows; best[k]. k <=
 * n. */
double sum_of_greatest(const float *score, uint32_t n, uint32_t k, uint32_t *best);

#endif
