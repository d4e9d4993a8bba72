/* options.h - tables of options, and options of one program as words in the value of another one's
 *
 * All functions die with EXIT_USAGE, and name the option and the word. */
#ifndef KVPIPE_OPTIONS_H
#define KVPIPE_OPTIONS_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

/* An OPT_COUNT that begins with this value was not given: no value of an option is it. */
#define NOT_GIVEN UINT32_MAX
#define REAL_NOT_GIVEN INFINITY /* an OPT_REAL */

enum opt_kind {
	OPT_FLAG,               /* int *: set to value */
	OPT_STRING,             /* const char ** */
	OPT_STRINGS,            /* struct strings *: may be repeated */
	OPT_COUNT,              /* uint32_t *: value .. NOT_GIVEN-1, suffixes k (1024) and m */
	OPT_SEED,               /* uint64_t * */
	OPT_BYTES,              /* uint64_t *: value .. 2^63-1, suffix k, m, g or t, or a capital */
	OPT_REAL,               /* double *: finite */
	OPT_SHARE               /* double *: 0 < x <= 1; "10%" is 0.1 */
};

struct strings {
	const char **at;
	size_t n;
};

/* Where --help shows an option. */
enum opt_group { OPT_HOW, OPT_READS, OPT_WRITES, OPT_COMMON, OPT_GROUPS };

struct opt {
	char letter;            /* 0 = long form only */
	const char *name;       /* long form */
	enum opt_kind kind;
	void *to;
	/* of OPT_FLAG; of OPT_COUNT and OPT_BYTES the least: 1 where 0 means "not given" */
	int value;
	const char *arg;        /* "N" in the help; NULL for a flag */
	const char *help;
	enum opt_group group;
};

/* Sets options of a table from the value of --option, a text of words "name=value", or "name" for
 * a flag ("name=0" leaves it): how a program takes the options of another one. Quotes and
 * backslashes are those of sh. Dies with EXIT_USAGE and names the option and the word. */
void options_words(const char *option, const char *text, const struct opt *table);
/* The first word of the text, without its quotes, which lives on; *rest <- what is behind it. */
const char *option_word(const char *option, const char *text, const char **rest);
/* The text with another value in its last word "name=...", which is there; must be freed. */
char *option_reworded(const char *option, const char *text, const char *name, const char *value);

/* A value of OPT_SHARE; dies and names the option as `where` does, "--rate". */
double option_share(const char *where, const char *text);

#endif
