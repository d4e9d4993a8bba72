/* positions.c - warns when a text is longer than the model was trained for */
#include <inttypes.h>

#include "cli/positions.h"
#include "cli/tool.h"

/* A layer with a window sees the same distances at any length. */
static int
sees_all(const struct kv_model *m)
{
	uint32_t l;

	for (l = 0; l < m->layers; l++)
		if (kv_layer_window(m, l) == 0)
			return 1;
	return m->layers == 0;
}

/* The length that llama3 and longrope name includes scaling; so does that of a model whose
 * layers with a window have another theta (Gemma 3). yarn scales the original context that it
 * names, linear that of the configuration. */
uint64_t
positions_of_model(const struct model *m)
{
	const struct kv_model *id = &m->id;
	const double factor = id->rope_factor > 1 && id->rope_window_theta == 0 ? id->rope_factor :
										  1;
	double scaled = 0;

	if (id->rope_type == KV_ROPE_YARN)
		scaled = factor * id->rope_original_max_position;
	else if (id->rope_type == KV_ROPE_LINEAR)
		scaled = factor * m->max_position;
	return scaled > m->max_position ? (uint64_t)scaled : m->max_position;
}

void
warn_of_positions(const struct model *m, uint64_t end)
{
	static int warned;
	const uint64_t most = positions_of_model(m);

	if (warned || end <= most || !sees_all(&m->id))
		return;
	warned = 1;
	warning("position %" PRIu64 ": the model was made for %" PRIu64
		" (max_position_embeddings)",
	    end - 1, most);
}
