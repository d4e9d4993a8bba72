/* overrides.h - what of a model folder is passed over although nobody knows it, and who is told of
 * the rest
 *
 * A folder is refused for what might change the arithmetic. Who knows better names it. */
#ifndef KVPIPE_OVERRIDES_H
#define KVPIPE_OVERRIDES_H

#include <stddef.h>

#include "model/notice.h"

struct name_list {
	const char *const *at;
	size_t n;
	unsigned char *there;   /* [n] <- 1 where there was such a name; NULL: nobody asks */
};

struct overrides {
	/* of configurations; "rope_scaling.KEY" is one of an object */
	struct name_list keys;
	struct name_list tensors;       /* '*' stands for any letters, also none */
	struct notice_hook notice;      /* told of what is passed over without being named here */
};

/* Nothing is passed over, and nobody is told. */
extern const struct overrides no_overrides;

/* Is the name of a tensor in the list? Marks all that it matches. */
int name_list_matches(const struct name_list *, const char *name);

#endif
