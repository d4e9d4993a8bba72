/* program.h - the programs, for those who list or run them */
#ifndef KVPIPE_PROGRAM_H
#define KVPIPE_PROGRAM_H

struct program {
	const char *name;       /* "kv-score"; NULL: a group begins */
	const char *about;      /* one line; of a group its title */
};

/* In groups; ends with an entry whose about is NULL. */
extern const struct program programs[];

/* The line of this program, or NULL. */
const char *program_about(const char *name);

#endif
