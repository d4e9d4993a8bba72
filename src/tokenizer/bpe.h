/* bpe.h - byte pair encoding of one word
 *
 * Sennrich, Haddow, Birch: Neural Machine Translation of Rare Words with Subword Units, ACL
 * 2016, section 3.2, on bytes (GPT-2) or on characters, with fallback to bytes (SentencePiece). */
#ifndef KVPIPE_BPE_H
#define KVPIPE_BPE_H

#include "tokenizer/vocab.h"

struct merge {
	uint32_t left, right;   /* ids */
	uint32_t id;            /* the merged token */
};

struct bpe {
	struct merge *merge;    /* [n] in order of rank, lowest first; rank = index */
	uint32_t n;
	uint32_t *slot; /* [mask + 1] open addressing over (left, right), rank + 1; 0 = free */
	size_t mask;
	/* token of each byte, or, with characters, of each ASCII character; VOCAB_NONE: none */
	uint32_t byte[256];
	int characters;         /* words consist of characters, not bytes */
	/* for what has no token */
	/* "<0x00>" ...; VOCAB_NONE: none, or no fallback */
	uint32_t fallback[256];
	uint32_t unk;           /* VOCAB_NONE: none */
	int unk_missing;        /* the tokenizer names one that the vocabulary lacks */
	int fuse_unk;           /* several in a row are one */
};

/* Allocates room for `merges` merges. Returns 0 or TOKENIZER_ENOMEM. */
int bpe_init(struct bpe *, size_t merges);
void bpe_free(struct bpe *);

/* Adds the merge of the next rank; at most as many as bpe_init() has room for. Replaces an
 * earlier merge of the same pair. */
void bpe_add(struct bpe *, uint32_t left, uint32_t right, uint32_t id);

/* Memory that bpe_word() reuses. Zero it before first use. */
struct bpe_work {
	struct symbol *symbol;
	size_t symbols;         /* allocated */
	struct candidate *heap;
	size_t n, cap;
};
void bpe_work_free(struct bpe_work *);

/* Appends the ids of word[len], in O(n log n). Leaves out characters without a token when there
 * is no unknown token, and adds their number to *lost. Returns 0, TOKENIZER_ENOMEM, or
 * TOKENIZER_EINVALID if the unknown token is needed and missing. */
int bpe_word(const struct bpe *, const struct vocab *, struct bpe_work *, const char *word,
    size_t len, struct ids *out, size_t *lost);

#endif
