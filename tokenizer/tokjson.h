/* tokjson.h - what a tokenizer consists of, and reading it from tokenizer.json */
#ifndef KVPIPE_TOKJSON_H
#define KVPIPE_TOKJSON_H

#include "tokenizer/added.h"
#include "tokenizer/bpe.h"
#include "tokenizer/pretok.h"
#include "tokenizer/vocab.h"

/* Only read once it is open, so threads can share it. */
struct tokenizer {
	struct vocab vocab;
	struct bpe bpe;
	struct pretok pretok;
	struct added raw;       /* looked for in the text as it is */
	struct added normal;    /* looked for after normalisation */
	uint32_t *before;       /* [n_before] what the template puts before the text */
	size_t n_before;
	int nfc;                /* the normaliser is NFC, not none */
	char fingerprint[33];   /* formats/kv-snapshot.md section 6, "tokenizer" */
	int ignore_merges;      /* a word that is a token is that token, never mind the merges */
};

/* Fills a zeroed tokenizer. Returns 0 or a TOKENIZER_E* code with a message that names file and place;
 * the caller frees what has been filled either way. */
int tokjson_read(struct tokenizer *, const char *path, char *err, size_t errlen);

#endif
