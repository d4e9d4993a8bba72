/* opt_score.h - the options of scoring methods: those of kv-score, which other programs take as
 * words */
#ifndef KVPIPE_OPT_SCORE_H
#define KVPIPE_OPT_SCORE_H

#include "cli/tool.h"
#include "engine/score.h"

/* Without --method, for struct tool's more. One set of values for a process. */
extern const struct opt score_opts[];

/* One line for each method, on standard output. */
void opt_score_list(void);

/* *s <- a scorer of the method with the options, when all have been set: one that the method does
 * not use is refused. Dies with EXIT_USAGE; name NULL: so, too. */
void opt_score(struct scorer *s, const char *name);

/* In a snapshot the method of scores that come from elsewhere */
#define SCORE_EXTERNAL "external"

/* That is so: dies with EXIT_USAGE when an option of a method was given. */
void opt_score_no_method(void);

/* The same from the text of --score, "snapkv kernel=7", in a program that scores the rows of a
 * cache. Refuses methods that need what only a snapshot has. Returns the folder that the method
 * goes by, "lookahead=DIR kernel=5"; NULL: it goes by none. */
const char *opt_score_words(struct scorer *s, const char *text);

/* Tells method and options to the provenance; queries: how many observation queries there were. */
void opt_score_sign(const struct scorer *s, uint32_t queries);

#endif
