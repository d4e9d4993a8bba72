/* scorers.h - prototypes of the scorers, from list.h; private to methods/ */
#ifndef KVPIPE_SCORERS_H
#define KVPIPE_SCORERS_H

#include "methods/methods.h"

/* Returns how many channels of a value count, the first ones. */
static inline uint32_t
value_channels(const struct score_input *in)
{
	return in->value_width != 0 ? in->value_width : in->width;
}

#define LISTS(name) int lists_##name(const struct score_input *, const struct score_options *, \
	struct list_rule *, uint32_t *);
#define OP(name)
#define NO_OP
#define METHOD(name, needs, uses, op, ...) \
	int score_##name(const struct score_input *, const struct score_options *, float *); \
	op
#include "methods/list.h"
#undef METHOD
#undef NO_OP
#undef OP
#undef LISTS

#endif
