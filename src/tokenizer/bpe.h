/* bpe.h - byte pair encoding of one word
 *
 * Sennrich, Haddow, Birch: Neural Machine Translation of Rare Words with Subword Units, ACL 2016,
 * section 3.2, on bytes (GPT-2) or on characters, with bytes for those that are missing
 * (SentencePiece). */
#ifndef KVPIPE_BPE_H
#define KVPIPE_BPE_H

#include "tokenizer/vocab.h"

struct merge {
	uint32_t left, right;   /* ids */
	uint32_t id;            /* what the two become */
};

struct bpe {
	struct merge *merge;    /* [n] in order of rank, lowest first; rank = index */
	uint32_t n;
	uint32_t *slot; /* [mask + 1] open addressing over (left, right), rank + 1; 0 = free */
	size_t mask;
	/* the token of each byte, or, with characters, of each ASCII character; VOCAB_NONE where
	 * there is none */
	uint32_t byte[256];
	int characters;         /* words are made of characters, not of bytes */
	/* for what has no token */
	/* "<0x00>" ...; VOCAB_NONE where there is none, or without fallback */
	uint32_t fallback[256];
	uint32_t unk;           /* VOCAB_NONE: there is none */
	int unk_missing;        /* there should be one, the vocabulary does not have it */
	int fuse_unk;           /* several in a row are one */
};

/* Room for `merges` merges. 0 or TOKENIZER_ENOMEM. */
int bpe_init(struct bpe *, size_t merges);
void bpe_free(struct bpe *);

/* Adds the merge of the next rank; no more than bpe_init() made room for. A pair that has one
 * already gets this one instead. */
void bpe_add(struct bpe *, uint32_t left, uint32_t right, uint32_t id);

/* Memory that bpe_word() uses again from word to word. Zero it before first use. */
struct bpe_work {
	struct symbol *symbol;
	size_t symbols;         /* allocated */
	struct candidate *heap;
	size_t n, cap;
};
void bpe_work_free(struct bpe_work *);

/* Appends the ids of word[len]. n log n, whatever the word. *lost grows by the characters that
 * have no token, not even an unknown one, and are left out. Returns 0, TOKENIZER_ENOMEM, or
 * TOKENIZER_EINVALID when there should be an unknown token and is none. */
int bpe_word(const struct bpe *, const struct vocab *, struct bpe_work *, const char *word,
    size_t len, struct ids *out, size_t *lost);

#endif
