/* name_hints.h - hints for unknown names of methods, policies and retrieval methods */
#ifndef KVPIPE_NAME_HINTS_H
#define KVPIPE_NAME_HINTS_H

#include "methods/methods.h"

enum name_kind { NAME_METHOD, NAME_POLICY, NAME_RETRIEVE };

/* Returns the hint for an unknown name of this kind, beginning with ": ", or "": that it is of
 * another kind, the options for the paper's method of this name, or the nearest name. Valid
 * until the next call. */
const char *name_hint(enum name_kind, const char *name);

/* Prints one line of --list: the name in a column of this width, its description, aliases in
 * parentheses, and the options it uses in brackets. */
void print_listed(int width, const char *name, const char *about, const char *uses,
    const char *aliases);

#endif
