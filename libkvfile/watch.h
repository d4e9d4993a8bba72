/* watch.h - reports to a struct kv_watch what a reader or writer does
 *
 * Internal to libkvfile. */
#ifndef KVFILE_WATCH_H
#define KVFILE_WATCH_H

#include "kvfile.h"

static inline void
kv_watch_begin(const struct kv_watch *watch, enum kv_doing doing)
{
	if (watch != NULL)
		watch->begin(watch->with, doing);
}

static inline void
kv_watch_end(const struct kv_watch *watch)
{
	if (watch != NULL)
		watch->end(watch->with);
}

#endif
