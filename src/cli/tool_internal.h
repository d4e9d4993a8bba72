/* tool_internal.h - what the sources of tool.h share */
#ifndef KVPIPE_TOOL_INTERNAL_H
#define KVPIPE_TOOL_INTERNAL_H

#include <stdarg.h>

#include "cli/tool.h"

extern const struct tool *the_tool;     /* after tool_start() */

/* options.c. Defaults come from tool.c, the only reader of the environment. */
int options_parse(const struct tool *tool, int argc, char **argv);
uint32_t option_count(const char *where, const char *text, uint32_t least);    /* dies */
void option_append(struct strings *, const char *value);       /* keeps the pointer; dies */
/* Sets the value of o; where: the option as a message names it; dies. */
void option_set(const struct opt *o, const char *where, const char *text);

/* completion.c: prints the options, for shell completions */
void print_options(const struct tool *tool, const struct opt *all, size_t n);

/* progress.c */
enum { PROGRESS_AUTO, PROGRESS_ALWAYS, PROGRESS_NEVER };
void progress_mode(const char *where, const char *text);       /* dies unless auto, always, never */
void progress_clear(void);              /* erases the line, before a message is printed */

/* tool.c: stores the name of the unfinished output, which signal handlers and die() remove;
 * NULL = none. */
void unfinished(const char *path);
int ends_with(int status);              /* before exit(): remembers and returns the status */
void hold_signals(int hold);            /* while a new temporary file has no known name */
void message(const char *fmt, va_list ap);

#endif
