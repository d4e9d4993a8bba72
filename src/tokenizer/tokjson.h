/* tokjson.h - what a tokenizer consists of, and reading it from tokenizer.json */
#ifndef KVPIPE_TOKJSON_H
#define KVPIPE_TOKJSON_H

#include "tokenizer/added.h"
#include "tokenizer/bpe.h"
#include "tokenizer/decoder.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/pretok.h"
#include "tokenizer/vocab.h"

/* Only read once it is open, so threads can share it. */
struct tokenizer {
	struct vocab vocab;
	struct bpe bpe;
	struct normalizer normalizer;
	struct pretok pretok;
	struct decoder decoder;
	struct added raw;       /* looked for in the text as it is */
	struct added normal;    /* looked for after normalisation */
	struct ids before;      /* what the template puts before the text */
	struct ids after;       /* and after it */
	int byte_level;         /* words are bytes; otherwise characters */
	int spelled;            /* the last steps of pretok see bytes as vocab_spell() reads them */
	int ignore_merges;      /* a word that is a token is that token, never mind the merges */
	/* U+2581 begins a word of its own, unless one of these code points stands before it:
	 * sorted, those for which there is a merge over that place */
	int cuts;
	struct ids joined;
	char fingerprint[33];   /* formats/kv-snapshot.md section 6, "tokenizer" */
};

/* Fills a zeroed tokenizer from the files in a folder. Returns 0 or a TOKENIZER_E* code with a
 * message that names file and place; the caller frees what has been filled either way. */
int tokjson_read(struct tokenizer *, const char *dir, char *err, size_t errlen);

/* fingerprint.c: sets t->fingerprint. 0 or TOKENIZER_ENOMEM. */
int fingerprint(struct tokenizer *t);

#endif
