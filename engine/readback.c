/* readback.c - numbers that a device makes for one layer after another, on their way to the host */
#include "engine/readback.h"
#include "cli/tool.h"

static struct place {
	struct area there;
	float *host;                    /* host_alloc()'s; NULL: none */
	size_t room;                    /* floats of it */
	const float *from;              /* what is fetched; NULL: the place is free */
	uint64_t mark;                  /* when it has come */
} places[FETCHES];

int
fetching_place(const struct device *d, size_t n, float **at)
{
	int i;

	for (i = 0; i < FETCHES && places[i].from != NULL; i++)
		;
	if (i == FETCHES)
		die(EXIT_RUN, "more than %d layers are under way", FETCHES);
	*at = device_room(d, &places[i].there, n * sizeof **at);
	return i;
}

void
fetching_begin(const struct device *d, int place, const float *from, size_t n)
{
	struct place *p = &places[place];

	p->from = from;
	if (!device_shares_memory(d)) {
		if (p->host == NULL || p->room < n) {
			p->room = device_growth(p->host, n);
			d->ops->host_free(d->dev, p->host);
			if ((p->host = d->ops->host_alloc(d->dev,
			    p->room * sizeof *p->host)) == NULL)
				die(EXIT_RUN, "no memory for %zu numbers", n);
		}
		d->ops->get_async(d->dev, p->host, from, n * sizeof *p->host);
	}
	p->mark = d->ops->event_record(d->dev);
}

const float *
fetching_end(const struct device *d, int place)
{
	struct place *p = &places[place];
	const float *from = p->from;

	device_wait(d, p->mark);
	p->from = NULL;
	return device_shares_memory(d) ? from : p->host;
}

void
fetching_release(const struct device *d)
{
	int i;

	for (i = 0; i < FETCHES; i++) {
		device_release(d, &places[i].there);
		d->ops->host_free(d->dev, places[i].host);
		places[i] = (struct place){ .host = NULL };
	}
}
