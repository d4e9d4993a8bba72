/* tokload.h - the parts of reading tokenizer.json; only tok*.c include this */
#ifndef KVPIPE_TOKLOAD_H
#define KVPIPE_TOKLOAD_H

#include <jansson.h>

#include "tokenizer/tokjson.h"

struct load {
	struct tokenizer *t;
	const char *path;
	json_t *vocab;          /* model.vocab: keys as spelled in the file -> id; borrowed */
	json_t *added;          /* content of the added tokens read so far -> id */
	char *err;
	size_t errlen;
};

/* Writes "path: " and the message; returns code. */
int load_fail(struct load *, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
int load_no_memory(struct load *);

/* ---- one value each; place is for the message. 0 or a TOKENIZER_E* code ---- */

/* Refuses keys of object that are in use and not among known, a list like " type pattern ". */
int load_only(struct load *, const char *place, json_t *object, const char *known);

/* *value <- a true or false that must be there. */
int load_bool(struct load *, const char *place, json_t *object, const char *key, int *value);

/* *value <- a string that must be there; it lives as long as the JSON does. */
int load_string(struct load *, const char *place, json_t *object, const char *key,
    const char **value);

/* Null, false, "", 0, [] and {} all say: not in use. v may be NULL. */
int load_is_off(const json_t *v);

/* ---- the big parts ---- */

/* tokvocab.c: model and added_tokens, after the normaliser is known. */
int load_vocabulary(struct load *, json_t *model, json_t *added);

#endif
