/* kvzap.c - rows that a gate rates highly from their hidden states are kept
 *
 * KVzap (2026); kvpress's KVzapPress. The gate, a network of one or two layers that was trained on
 * the logarithm of KVzip+'s scores (model/gate.h), has rated each row when its token ran. A score
 * depends on its own row alone and means the same in every text, so that a threshold can choose
 * rows, while decoding, too (kv-evict --threshold X --recent 128, as its authors use it).
 *
 * Limits: knows no question; a gate is for one model; no rows are kept by force. */
#include <string.h>

#include "methods/scorers.h"

int
score_kvzap(const struct score_input *in, const struct score_options *opt, float *score)
{
	(void)opt;
	memcpy(score, in->gate, kv_rows_total(in->rows) * sizeof *score);
	return 0;
}
