/* old_options.h - options that were renamed or moved to a program of their own */
#ifndef KVPIPE_OLD_OPTIONS_H
#define KVPIPE_OLD_OPTIONS_H

/* Returns the replacement of an old option (name without dashes) of this program, or of a word
 * of --evict and so on (program "--evict"): "--sink", "kv-plan --offload". NULL: never existed. */
const char *old_option(const char *program, const char *name);

#endif
