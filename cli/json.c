/* json.c - JSON on standard output */
#include <math.h>
#include <stdio.h>

#include "cli/json.h"
#include "cli/tool.h"

void
put(json_t *o, const char *key, json_t *value)
{
	if (json_object_set_new(o, key, value) != 0)
		die(EXIT_RUN, "JSON: '%s': out of memory, or not UTF-8", key);
}

void
put_count(json_t *o, const char *key, uint64_t n)
{
	put(o, key, json_integer((json_int_t)n));
}

void
put_real(json_t *o, const char *key, double x)
{
	put(o, key, isfinite(x) ? json_real(x) : json_null());
}

void
print_json(json_t *o)
{
	if (json_dumpf(o, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(17)) != 0)
		die(EXIT_RUN, "stdout:");
	putchar('\n');
	json_decref(o);
}
