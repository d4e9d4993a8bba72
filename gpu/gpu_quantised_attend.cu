/* gpu_quantised_attend.cu - prefill attention over rows of quantised types */
#include "gpu/gpu_quantised.h"

void
gpu_attend_quantised(struct dev *d, float *o, float *lse, const struct query *query,
    const struct layer_rows *l, const struct rows *c)
{
	struct query q = *query;
	struct row_formats f;
	struct row_list list;

	if (!gpu_formats_of(d, &f, l, "attend") ||
	    (q.q = gpu_queries_for(d, query, rows_k_type(l), l->width)) == NULL ||
	    !gpu_row_list_of(d, &list, l, NULL))
		return;
	gpu_attend_any(d, o, lse, &q, c, &list, &f);
	gpu_transform_back(d, o, rows_v_type(l), l->width, (size_t)q.N * q.H);
}
