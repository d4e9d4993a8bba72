/* options.h - tables of options, and the options of one program as words in an option of another
 *
 * All functions die with EXIT_USAGE and name the option and the word. */
#ifndef KVPIPE_OPTIONS_H
#define KVPIPE_OPTIONS_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

#include "libkvfile/dtype.h"

/* Initial value of an OPT_COUNT that means "not given"; no given value equals it. */
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

/* Section of --help that shows the option. */
enum opt_group { OPT_HOW, OPT_READS, OPT_WRITES, OPT_COMMON, OPT_GROUPS };

struct opt {
	char letter;            /* 0 = long form only */
	const char *name;       /* long form */
	enum opt_kind kind;
	void *to;
	/* OPT_FLAG: the value to set; OPT_COUNT, OPT_BYTES: the least one: 1 if 0 means "not
	 * given" */
	int value;
	const char *arg;        /* "N" in the help; NULL for a flag */
	const char *help;
	enum opt_group group;
};

/* Sets options of a table from the value of --option, a text of words "name=value", or "name"
 * for a flag ("name=0" leaves it): how a program takes another one's options. Quotes and
 * backslashes are those of sh. Dies with EXIT_USAGE and names the option and the word. */
void options_words(const char *option, const char *text, const struct opt *table);
/* Returns the first word of the text, without its quotes, never freed; *rest <- the text after
 * it. */
const char *option_word(const char *option, const char *text, const char **rest);
/* Returns the text with another value in its last word "name=...", which must exist; to be
 * freed. */
char *option_reworded(const char *option, const char *text, const char *name, const char *value);

/* Returns the value of an OPT_SHARE; dies and names the option as `where` does, "--rate". */
double option_share(const char *where, const char *text);
/* Calls layers(with, first, last) for each layer, or range of layers, of a list such as
 * "0,1,30-31"; dies if it is none. most: of a number */
void option_layers(const char *option, const char *text, uint32_t most,
    void (*layers)(void *with, uint32_t first, uint32_t last), void *with);
/* Returns the type that the value of --dtype names; dies if it names none. */
enum kv_dtype option_dtype(const char *text);

#endif
