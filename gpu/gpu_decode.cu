/* gpu_decode.cu - attention of few queries, and over chosen rows */
#include "gpu/gpu_internal.h"

void
gpu_attend_few(struct dev *d, float *o, float *lse, const float *q, const struct layer_rows *l,
    const uint32_t *qpos, uint32_t N, uint32_t H)
{
	struct picks list;
	struct rows c;

	if (N == 0 || H == 0 || !gpu_rows_of(d, &c, l, H, "attend") ||
	    !gpu_picks_of(d, &list, l, NULL))
		return;
	gpu_attend_any(d, o, lse, q, &c, &list, l->dtype, qpos, N, H);
}

void
gpu_attend_chosen(struct dev *d, float *o, const float *q, const struct layer_rows *l,
    const struct chosen *chosen, uint32_t H)
{
	struct picks list;
	struct rows c;

	if (H == 0 || !gpu_rows_of(d, &c, l, H, "attend_chosen") ||
	    !gpu_picks_of(d, &list, l, chosen))
		return;
	gpu_attend_any(d, o, NULL, q, &c, &list, l->dtype, NULL, 1, H);
}
