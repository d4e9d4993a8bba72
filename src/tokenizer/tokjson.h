/* tokjson.h - the parts of a tokenizer, and reading them from tokenizer.json */
#ifndef KVPIPE_TOKJSON_H
#define KVPIPE_TOKJSON_H

#include "tokenizer/added.h"
#include "tokenizer/bpe.h"
#include "tokenizer/decoder.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/pretok.h"
#include "tokenizer/vocab.h"

/* Not changed after it is opened, so threads can share it. */
struct tokenizer {
	struct vocab vocab;
	struct bpe bpe;
	struct normalizer normalizer;
	struct pretok pretok;
	struct decoder decoder;
	struct added raw;       /* found in the original text */
	struct added normal;    /* found in normalised text */
	struct ids before;      /* the template's tokens before the text */
	struct ids after;       /* and after it */
	int byte_level;         /* words are bytes; otherwise characters */
	/* the last steps of pretok produce spelled bytes, for vocab_spell() */
	int spelled;
	int ignore_merges;      /* a word that is a token becomes that token without merges */
	/* U+2581 begins a word of its own, except after these code points, sorted: those with a
	 * merge across that place */
	int cuts;
	struct ids joined;
	char fingerprint[33];   /* formats/kv-snapshot.md section 6, "tokenizer" */
};

/* Fills a zeroed tokenizer from the files of a folder. Returns 0 or a TOKENIZER_E* code with a
 * message that names file and place; the caller frees the parts in both cases. */
int tokjson_read(struct tokenizer *, const char *dir, char *err, size_t errlen);
/* The same from an object as tokenizer.json has it; path: for messages. */
int tokjson_read_object(struct tokenizer *, const char *path, json_t *, char *err, size_t errlen);

/* fingerprint.c: sets t->fingerprint. Returns 0 or TOKENIZER_ENOMEM. */
int fingerprint(struct tokenizer *t);

#endif
