/* budget.c - the number of rows for a rate
 *
 * The papers' programs round in five ways; in one of them a rate of 0.2 of 10 rows is 1,
 * because 10 * (1 - 0.8) is 1.9999999999999996. Here it is 2: before rounding down, the product
 * is increased by more than its rounding error. */
#include <math.h>

#include "methods/methods.h"

uint64_t
budget_of_rate(uint64_t rows, double rate)
{
	double kept = floor((double)rows * rate + 1e-9);

	return kept >= (double)rows ? rows : (uint64_t)kept;
}
