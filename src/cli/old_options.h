/* old_options.h - options that have another name now, or are a program of their own */
#ifndef KVPIPE_OLD_OPTIONS_H
#define KVPIPE_OLD_OPTIONS_H

/* What stands for the option (without its dashes) of this program, or for the word in --evict and
 * so on (program "--evict"): "--sink", "kv-plan --offload". NULL: it never was one. */
const char *old_option(const char *program, const char *name);

#endif
