/* tokload.h - what the parts that read tokenizer.json share; only tok*.c include this */
#ifndef KVPIPE_TOKLOAD_H
#define KVPIPE_TOKLOAD_H

#include <jansson.h>

#include "tokenizer/expr.h"
#include "tokenizer/tokjson.h"
#include "tokenizer/toktables.h"

struct load {
	struct tokenizer *t;
	const char *path;
	json_t *vocab;          /* model.vocab, empty if tables_cut() has read it; borrowed */
	struct tables tables;   /* words of the vocabulary, as spelled in the file, -> id */
	json_t *added;          /* content of the added tokens read so far -> id */
	json_t *by_content;     /* tokadded.c's */
	struct expr_work *expr; /* tokadded.c's; NULL: none is needed */
	json_t *config;         /* tokenizer_config.json; NULL: no file */
	char *err;
	size_t errlen;
};

/* Writes "path: " and the message; returns code. */
int load_fail(struct load *, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
int load_no_memory(struct load *);

/* ---- each reads one value; place: for the message. 0 or a TOKENIZER_E* code ---- */

/* Refuses keys of object that are in use and not in known, a list like " type pattern ". */
int load_only(struct load *, const char *place, json_t *object, const char *known);

/* *value <- a required boolean. */
int load_bool(struct load *, const char *place, json_t *object, const char *key, int *value);

/* *value <- a required string, valid as long as the JSON. */
int load_string(struct load *, const char *place, json_t *object, const char *key,
    const char **value);

/* Returns whether v is null, false, "", 0, [] or {}, which all mean "not in use". v may be
 * NULL. */
int load_is_off(const json_t *v);

/* *value <- a string of exactly one character. */
int load_character(struct load *, const char *place, json_t *object, const char *key,
    const char **value);

/* One of the two outputs <- component.pattern, the other <- NULL. */
int load_pattern(struct load *, const char *place, json_t *component, const char **string,
    const char **regex);

/* Refuses a component by its name. */
int load_not_supported(struct load *, const char *place, const char *type);

/* ---- components ---- */

/* Keys of ByteLevel as any kind of component. */
#define BYTE_LEVEL " type add_prefix_space trim_offsets use_regex "

/* Reads one component; last: no component follows. */
typedef int load_reader(struct load *, const char *place, json_t *component, const char *type,
    int last);

/* Calls read() for a component, or for each component of a Sequence (in its member `list`). */
int load_each(struct load *, const char *place, json_t *component, const char *list,
    load_reader *read);

load_reader load_normalizer, load_pretokenizer;         /* toksteps.c */
load_reader load_decoder;                               /* tokdecoder.c, after the two above */
load_reader load_processor;                             /* tokpost.c, after the vocabulary */

/* tokvocab.c: refuses other models, whose components differ too. */
int load_is_bpe(struct load *, const json_t *model);

/* tokvocab.c: reads model and added_tokens, after normaliser, pre-tokeniser and decoder. */
int load_vocabulary(struct load *, json_t *model, json_t *added);

/* tokadded.c. load_added(): reads added_tokens, after the vocabulary. load_config_ids(), before it:
 * makes *size greater than the ids that tokenizer_config.json adds. */
int load_added(struct load *, json_t *list);
int load_config_ids(struct load *, uint32_t *size);

/* Sets what id stands for; text: as in the file. Returns 0 or a TOKENIZER_E* code. */
int load_token(struct load *, uint32_t id, const char *text, unsigned flags);

/* Returns the id of a key of the vocabulary, or -1. */
long long load_id(const struct load *, const char *key);

#endif
