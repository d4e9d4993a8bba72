/* gpu_missing.cu - ops that the GPU does not have yet; each says so */
#include "gpu/gpu_internal.h"

#define MISSING(op, ...) void gpu_##op(struct dev *d, __VA_ARGS__) { gpu_fail(d, #op ": not on the GPU yet"); }

MISSING(join, float *, const float *, size_t, const uint32_t *, uint32_t, uint32_t, enum join)
MISSING(top, struct chosen *, const float *, size_t, const uint32_t *, uint32_t)
MISSING(spread, float *, size_t, const float *, size_t, const uint32_t *, size_t, const uint32_t *, uint32_t)
MISSING(rebuild, struct layer_rows *, const struct chosen *, const struct low_rank *, const double *)
