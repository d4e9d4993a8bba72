/* ops_sinks.c - learned sink logits in attention and attention mass, against double precision
 *
 * A sink is a term of a softmax without a row: it takes weight from all rows, and a query that sees
 * no row has nothing but its sink. */
#include "tests/unit/ops_cache.h"

void
test_sinks(void)
{
	static const struct shape shape[] = {
		{ 1, 64, 8, 64, 700, KV_BF16, 1, LATE | SINKS, 0, 0 },   /* gpt-oss */
		{ 1, 64, 8, 64, 400, KV_BF16, 1, LATE | SINKS, 128, 0 },
		{ 300, 8, 1, 64, 330, KV_BF16, 1, PROMPT | SINKS, 128, 0 },
		{ 20, 64, 8, 64, 90, KV_BF16, 1, SINKS, 0, 0 },
		/* decoding: split-KV */
		{ 1, 8, 2, 128, 3001, KV_F16, 1, LATE | SINKS, 0, 0 },
		{ 2, 3, 3, 33, 1700, KV_F32, 1, LATE | PACKED | SINKS, 0, 0 },
		{ 8, 6, 2, 96, 600, KV_BF16, 1, EVICTED | SINKS, 0, 0 },
		/* queries that see nothing, and heads without rows */
		{ 17, 9, 3, 24, 40, KV_F32, 1, ONE_LONG | SINKS, 0, 0 },
		{ 9, 8, 4, 80, 5, KV_F16, 1, SINKS, 0, 0 },
		{ 33, 5, 5, 32, 300, KV_BF16, 1, EVICTED | LATE | SINKS, 65, 0 },
		{ 5, 4, 2, 64, 0, KV_BF16, 1, SINKS, 0, 0 },
		{ 130, 4, 2, 256, 129, KV_BF16, 1, PROMPT | SINKS, 0, 1 },
		{ 1, 300, 2, 16, 40, KV_F16, 1, SINKS, 0, 0 },
		{ 9, 4, 2, 64, 200, KV_F32, 30, SINKS, 0, 0 },  /* logits of several hundred */
	};
	struct shape s;
	size_t i;

	for (i = 0; i < COUNT(shape); i++) {
		s = shape[i];
		if (!in_sample())
			continue;
		test_attend(&s);
		s.scale = s.scale > 2 ? s.scale : 1.75f;
		if (s.scale > 2 && s.type != KV_F32)
			continue;
		test_window_mass(&s, 0, i % 3 ? QUERIES_SUM : QUERIES_MAX);
		if (s.scale < 2)                /* the oracle adds exponentials */
			test_window_mass(&s, 1, i % 4 ? QUERIES_SUM : QUERIES_MAX);
		test_attend_mass(&s, i % 2 ? QUERIES_SUM : QUERIES_MAX);
	}
	for (i = 0; i < 12; i++) {
		cache_types = (struct cache_types){ cache_type_for(64, i, 1),
			cache_type_for(64, i + 5, 1), 0 };
		s = (struct shape){ i % 3 == 2 ? 20 : 1, 8, 2, 64, 300 + 60 * (uint32_t)i, KV_BF16,
			1, LATE | SINKS, i % 2 ? 0 : 90, 0 };
		if (in_sample()) {
			test_attend(&s);
			test_window_mass(&s, 1, QUERIES_SUM);
		}
	}
	cache_types = (struct cache_types){ 0, 0, 0 };
}
