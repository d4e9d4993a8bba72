/* opt_score.h - the options of scoring methods, of kv-score, which other programs take as words
 * of --score */
#ifndef KVPIPE_OPT_SCORE_H
#define KVPIPE_OPT_SCORE_H

#include "cli/tool.h"
#include "engine/score.h"

/* The options without --method, for struct tool's more. One set of values in a process. */
extern const struct opt score_opts[];

/* Prints a line for each method. */
void opt_score_list(void);

/* *s <- a scorer of the method with the options; call after all have been set. Dies with
 * EXIT_USAGE, also for name NULL and for an option that the method does not use. */
void opt_score(struct scorer *s, const char *name);

/* the method that a snapshot names for scores from elsewhere */
#define SCORE_EXTERNAL "external"

/* Dies with EXIT_USAGE if an option of a method was given, for external scores. */
void opt_score_no_method(void);

/* As opt_score(), from the text of --score, "snapkv kernel=7", in a program that scores the
 * rows of a cache. Refuses methods that need data only a snapshot has. Returns the folder of
 * "lookahead=DIR kernel=5"; NULL for other methods. */
const char *opt_score_words(struct scorer *s, const char *text);

/* Adds method and options to the provenance; queries: number of observation queries. */
void opt_score_sign(const struct scorer *s, uint32_t queries);

#endif
