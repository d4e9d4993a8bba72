/* methods_mask.c - head masks: what is read, what is refused and where, which heads stream */
#include <string.h>

#include "methods/methods.h"
#include "tests/unit/methods_check.h"

static void
refuse(const char *text, const char *want)
{
	struct head_mask mask;
	char why[200] = "";

	check(head_mask_parse(&mask, text, strlen(text), why, sizeof why) == TABLE_ETEXT &&
	    strstr(why, want) == why, "'%s' must be refused with '%s', not '%s'", text, want, why);
	check(mask.full == NULL, "something is left behind");
}

/* want: 1 for each streaming head */
static void
expect_streaming(const char *text, uint32_t layers, uint32_t heads, double sparsity,
    const char *want)
{
	struct head_mask mask;
	uint8_t streaming[32] = { 0 };
	char got[33] = "", why[200] = "";
	uint32_t i;

	check(head_mask_parse(&mask, text, strlen(text), why, sizeof why) == TABLE_OK, "%s", why);
	check(mask.layers == layers && mask.heads == heads, "%u x %u", mask.layers, mask.heads);
	check(head_mask_cut(&mask, sparsity, streaming) == 0, "no memory");
	for (i = 0; i < layers * heads; i++)
		got[i] = streaming[i] ? '1' : '0';
	check(strcmp(got, want) == 0, "sparsity %g: %s, must be %s", sparsity, got, want);
	head_mask_free(&mask);
}

int
main(void)
{
	static const char text[] = "# of a model\n0.9\t0.1\t0.5\t0.49\n\n-10, 10 ,.7 1e-1 # x\r\n";

	expect_streaming(text, 2, 4, -1, "01011001");
	expect_streaming(text, 2, 4, 0, "00000000");
	expect_streaming(text, 2, 4, 0.125, "00001000");
	expect_streaming(text, 2, 4, 0.25, "01001000");  /* of two 0.1 that of the lower layer */
	expect_streaming(text, 2, 4, 0.375, "01001001");
	expect_streaming(text, 2, 4, 0.3, "01001000");  /* 2.4 */
	expect_streaming(text, 2, 4, 0.32, "01001001");  /* 2.56 */
	expect_streaming(text, 2, 4, 0.3125, "01001000");  /* 2.5: to even */
	expect_streaming(text, 2, 4, 1, "11111111");
	expect_streaming("2 3 -1\n4 5 -2", 2, 3, 0.34, "001001"); /* clipped: 1 1 0 */
	expect_streaming("2 3 -1\n4 5 -2", 2, 3, 0.5, "101001");

	refuse("", "line 1 column 1: there are no numbers");
	refuse("# nothing\n\n", "line 1 column 1: there are no numbers");
	refuse("1 2\n1 full\n", "line 2 column 2: 'full' is not a number");
	refuse("1 2x\n", "line 1 column 2: '2x' is not a number");
	refuse("1 nan\n", "line 1 column 2: 'nan' is not a number");
	refuse("1 2\n\n1 2 3\n", "line 3 column 3: the lines before have 2 numbers, this one 3");
	refuse("1 2\n1\n", "line 2 column 2: the lines before have 2 numbers, this one 1");
	return failures != 0;
}
