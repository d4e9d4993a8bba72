/* set_aside.c - what a cache keeps beside its rows, away while rows run that will not stay */
#include "cache/set_aside.h"

/* Lists grow with the rows, which are reserved meanwhile: they stay, and get no numbers. */
static void
pause_lists(struct cache *c, int paused)
{
	int i;

	for (i = 0; i < ROW_LISTS; i++)
		if (c->lists[i] != NULL)
			c->lists[i]->paused = paused;
}

struct set_aside
cache_set_aside(struct cache *c, int mass)
{
	const struct set_aside aside = { c->mass, c->index, c->query_stats };

	c->index = NULL;
	c->query_stats = NULL;
	if (mass)
		c->mass = NULL;
	pause_lists(c, 1);
	return aside;
}

void
cache_put_back(struct cache *c, const struct set_aside *aside)
{
	c->mass = aside->mass;
	c->index = aside->index;
	c->query_stats = aside->query_stats;
	pause_lists(c, 0);
}
