/* program.h - the list of programs, for those that list or run them */
#ifndef KVPIPE_PROGRAM_H
#define KVPIPE_PROGRAM_H

struct program {
	const char *name;       /* "kv-score"; NULL: a group begins */
	const char *about;      /* one line; for a group its title */
};

/* By group; ends with an entry whose about is NULL. */
extern const struct program programs[];

/* Returns the line of this program, or NULL. */
const char *program_about(const char *name);

#endif
