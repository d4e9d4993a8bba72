/* kvfile_rows.c - how many rows are before a position, against counting them */

#include "kvfile_sample.h"

static uint32_t
counted(const uint32_t *pos, uint32_t n, uint64_t limit)
{
	uint32_t before = 0, i;

	for (i = 0; i < n; i++)
		before += pos[i] < limit;
	return before;
}

/* Every limit around every position, in lists of 0 to 40 rows with gaps of 1 to 3 */
static void
check_lists(void)
{
	uint32_t pos[40], n, i, got, bad = 0;
	uint64_t limit;

	for (i = 0; i < 40; i++)
		pos[i] = i == 0 ? 2 : pos[i - 1] + 1 + i * i % 3;
	for (n = 0; n <= 40; n++)
		for (limit = 0; limit < (uint64_t)pos[39] + 3; limit++) {
			got = kv_rows_before(pos, n, limit);
			bad += got != counted(pos, n, limit);
		}
	check(bad == 0, "%u numbers of rows before a limit are wrong", bad);
}

static void
check_ends(void)
{
	static const uint32_t last[] = { 0, UINT32_MAX };

	check(kv_rows_before(NULL, 0, 5) == 0, "no rows");
	check(kv_rows_before(last, 2, 0) == 0, "before position 0");
	check(kv_rows_before(last, 2, UINT32_MAX) == 1, "before the greatest position");
	check(kv_rows_before(last, 2, (uint64_t)UINT32_MAX + 1) == 2, "after the greatest "
	    "position");
}

int
main(void)
{
	check_lists();
	check_ends();
	return check_done();
}
