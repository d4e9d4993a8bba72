/* name_hints.h - names of methods, policies and ways to retrieve, and what was meant by one that
 * is not there */
#ifndef KVPIPE_NAME_HINTS_H
#define KVPIPE_NAME_HINTS_H

#include "methods/methods.h"

enum name_kind { NAME_METHOD, NAME_POLICY, NAME_RETRIEVE };

/* What a message says behind a name that is none of this kind: that it is one of another kind,
 * which options make what the paper of this name describes, or which name is near; or "". Begins
 * with ": ". Until the next call. */
const char *name_hint(enum name_kind, const char *name);

/* One line of --list on standard output: the name in a column of this width, what it is, its
 * aliases in parentheses, the options that it uses in brackets. */
void print_listed(int width, const char *name, const char *about, const char *uses,
    const char *aliases);

#endif
