/* scorers.h - prototypes of the scorers, from list.h; private to methods/ */
#ifndef KVPIPE_SCORERS_H
#define KVPIPE_SCORERS_H

#include "methods/methods.h"

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
