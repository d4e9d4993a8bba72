/* bpe.h - byte pair encoding of one word
 *
 * Sennrich, Haddow, Birch: Neural Machine Translation of Rare Words with Subword Units, ACL 2016,
 * section 3.2, on bytes. */
#ifndef KVPIPE_BPE_H
#define KVPIPE_BPE_H

#include "tokenizer/tokenizer.h"

struct merge {
	uint32_t left, right;   /* ids */
	uint32_t id;            /* what the two become */
};

struct bpe {
	struct merge *merge;    /* [n] in order of rank, lowest first; rank = index */
	uint32_t n;
	uint32_t *slot; /* [mask + 1] open addressing over (left, right), rank + 1; 0 = free */
	size_t mask;
	uint32_t byte[256];     /* the token of each byte, VOCAB_NONE where there is none */
};

/* Room for `merges` merges. 0 or TOKENIZER_ENOMEM. */
int bpe_init(struct bpe *, size_t merges);
void bpe_free(struct bpe *);

/* Adds the merge of the next rank; no more than bpe_init() made room for. 0, or -1 when the pair
 * has one already. */
int bpe_add(struct bpe *, uint32_t left, uint32_t right, uint32_t id);

/* Memory that bpe_word() uses again from word to word. Zero it before first use. */
struct bpe_work {
	struct symbol *symbol;
	size_t symbols;         /* allocated */
	struct candidate *heap;
	size_t n, cap;
};
void bpe_work_free(struct bpe_work *);

/* Appends the ids of word[len]. n log n, whatever the word. Returns 0, TOKENIZER_ENOMEM, or
 * TOKENIZER_EUNSUPPORTED when the vocabulary has no token for one of the bytes; *bad is then its
 * offset. */
int bpe_word(const struct bpe *, struct bpe_work *, const char *word, size_t len, struct ids *out,
    size_t *bad);

#endif
