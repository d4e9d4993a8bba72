/* offload_thresholds.h - how many layers' keys and values are offloaded, by length of
 * the text
 *
 * SpeContext (Xu et al. 2025), section 6. With L layers, H KV heads of width D, groups of alpha
 * query heads, R requests, rows of e bytes an element, and a budget of B rows for a layer on the
 * host, a text of S tokens takes on the device (equation 7; equation 6 with no layer on the host)
 *
 *     M(i, S) = 1.3 (M_O + M_D) + 2 e R H D ((L - i + 1 + alpha) S + i B)
 *
 * bytes with i layers on the host: M_O of weights, M_D of the retrieval head, three tenths of both
 * for activations, a layer of keys for the head, alpha for keys and values that the authors'
 * program repeats for each query head. e is 2 in the paper, hence its factor of 4. Algorithm 1
 * prints the term of the buffers without that factor; this follows equation 7, which has it.
 *
 * Where rows are quantised, the bytes of the rows of each layer take the place of 2 e D; what the
 * head has, and the repeated rows, keep e.
 *
 * Pure C. Sums are exact. */
#ifndef METHODS_OFFLOAD_H
#define METHODS_OFFLOAD_H

#include <stdint.h>

struct offload_plan {
	uint64_t limit;                 /* bytes of the device */
	uint64_t weights, head_weights; /* M_O, M_D: bytes; below 2^60 */
	/* L, H, D, alpha; all at least 1, L and D below 2^16 */
	uint32_t layers, kv_heads, width, group;
	uint32_t requests, budget;      /* R, B; at least 1 */
	uint32_t element;               /* e; below 2^16 */
	/* [L] bytes of a key and a value of a KV head in each layer; NULL: 2 e D in all */
	const uint32_t *row_bytes;
};

#define OFFLOAD_NONE UINT32_MAX

/* Algorithm 1: *tokens <- the longest text that fits with i layers on the host, i <= L (UINT64_MAX:
 * any does). Returns 0, and *tokens 0, when not even the fixed part fits. */
int offload_threshold(const struct offload_plan *, uint32_t i, uint64_t *tokens);

/* Algorithm 2: returns the number of layers on the host, counted from the last one, while the
 * token after S others runs: the fewest with which S + 1 tokens fit (equation 8). OFFLOAD_NONE:
 * no number suffices. For a text shorter than the budget a layer on the host costs more than it
 * frees, and none is offloaded. */
uint32_t offload_layers(const struct offload_plan *, uint64_t S);

#endif
