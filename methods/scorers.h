/* scorers.h - prototypes of the scorers, from list.h; private to methods/ */
#ifndef KVPIPE_SCORERS_H
#define KVPIPE_SCORERS_H

#include "methods/methods.h"

#define METHOD(name, ...) \
	int score_##name(const struct score_input *, const struct score_options *, float *);
#include "methods/list.h"
#undef METHOD

#endif
