/* evicting.c - the budget options, and the choice of the rows of a layer that stay */
#include "tools/evicting.h"

#define NOT_GIVEN UINT32_MAX

static uint32_t budget = NOT_GIVEN, sink, recent;
static double rate;                     /* 0 = not given */

const struct opt evicting_opts[] = {
	{ 0, "budget", OPT_COUNT, &budget, 0, "N", "keep N rows in each KV head of each layer" },
	{ 0, "rate", OPT_SHARE, &rate, 0, "R", "keep this share of them: 0.1 or 10%" },
	{ 0, "sink", OPT_COUNT, &sink, 0, "N", "always keep the first N positions" },
	{ 0, "recent", OPT_COUNT, &recent, 0, "N", "always keep the last N positions" },
	{ .name = NULL }
};

static struct evict_options options;

void
evicting_check(void)
{
	if ((budget == NOT_GIVEN) == (rate == 0))
		die(EXIT_USAGE, "give --budget or --rate, and not both");
	if (budget == 0)
		die(EXIT_USAGE, "--budget 0 would keep nothing");
	options.budget = budget != NOT_GIVEN ? budget : 0;
	options.rate = rate;
	options.sink = sink;
	options.recent = recent;
}

void
evicting_sign(void)
{
	if (budget != NOT_GIVEN)
		sign_count("budget", budget);
	else
		sign_real("rate", rate);
	sign_count("sink", sink);
	sign_count("recent", recent);
}

int
evicting_keeps_all(void)
{
	return rate == 1;
}

void
evicting_choose(const struct evict_input *in, struct kept *out)
{
	char why[256];

	switch (evict_choose(in, &options, out, why, sizeof why)) {
	case EVICT_EBUDGET:
		die(EXIT_USAGE, "layer %u %s", in->layer, why);
	case EVICT_ENOMEM:
		die(EXIT_RUN, "out of memory");
	}
}
