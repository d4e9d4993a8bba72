/* bpe.c - byte pair encoding of one word
 *
 * The symbols of the word are a doubly linked list in an array. A heap holds the pairs that have a
 * merge, lowest rank first, then leftmost. A merge makes at most two new pairs; pairs it destroys
 * stay in the heap and are recognised when they are popped. So a word of n bytes costs n log n.
 *
 * A popped candidate is used if its pair *now* merges into the token it was queued for. If two
 * different pairs give the same token this differs from "if the pair is still there": Hugging
 * Face does it this way. */
#include <stdlib.h>
#include <string.h>

#include "tokenizer/bpe.h"
#include "tokenizer/utf8.h"

struct symbol {
	uint32_t id;            /* VOCAB_NONE: merged into a symbol on the left */
	uint32_t before, after; /* neighbours; UINT32_MAX and the number of symbols at the ends */
};

struct candidate {
	uint64_t key;           /* rank << 32 | place of the left symbol */
	uint32_t id;            /* the merged token */
};

int
bpe_init(struct bpe *b, size_t merges)
{
	size_t slots = 16, i;

	memset(b, 0, sizeof(*b));
	for (i = 0; i < 256; i++)
		b->byte[i] = b->fallback[i] = VOCAB_NONE;
	b->unk = VOCAB_NONE;
	if (merges >= UINT32_MAX / 4)
		return TOKENIZER_ENOMEM;
	while (slots < 2 * merges)
		slots *= 2;
	b->merge = calloc(merges + 1, sizeof(*b->merge));
	b->slot = calloc(slots, sizeof(*b->slot));
	if (b->merge == NULL || b->slot == NULL) {
		bpe_free(b);
		return TOKENIZER_ENOMEM;
	}
	b->mask = slots - 1;
	return 0;
}

void
bpe_free(struct bpe *b)
{
	free(b->merge);
	free(b->slot);
	memset(b, 0, sizeof(*b));
}

/* Returns the slot with this pair, or the free one for it. */
static uint32_t *
probe(const struct bpe *b, uint32_t left, uint32_t right)
{
	/* Fibonacci hashing: the upper half of the product is well mixed */
	uint64_t key = ((uint64_t)left << 32 | right) * 0x9e3779b97f4a7c15u;
	size_t i = (size_t)(key ^ key >> 32) & b->mask;
	const struct merge *m;

	for (; b->slot[i] != 0; i = (i + 1) & b->mask) {
		m = &b->merge[b->slot[i] - 1];
		if (m->left == left && m->right == right)
			break;
	}
	return &b->slot[i];
}

void
bpe_add(struct bpe *b, uint32_t left, uint32_t right, uint32_t id)
{
	uint32_t *slot = probe(b, left, right);

	b->merge[b->n].left = left;
	b->merge[b->n].right = right;
	b->merge[b->n].id = id;
	*slot = ++b->n;
}

void
bpe_work_free(struct bpe_work *w)
{
	free(w->symbol);
	free(w->heap);
	memset(w, 0, sizeof(*w));
}

static int
push(struct bpe_work *w, uint64_t key, uint32_t id)
{
	struct candidate *p;
	size_t i, up, cap;

	if (w->n == w->cap) {
		cap = w->cap + w->cap / 2 + 64;
		if (cap > SIZE_MAX / sizeof(*p))
			return TOKENIZER_ENOMEM;
		p = realloc(w->heap, cap * sizeof(*p));
		if (p == NULL)
			return TOKENIZER_ENOMEM;
		w->heap = p;
		w->cap = cap;
	}
	for (i = w->n++; i > 0; i = up) {
		up = (i - 1) / 2;
		if (w->heap[up].key <= key)
			break;
		w->heap[i] = w->heap[up];
	}
	w->heap[i].key = key;
	w->heap[i].id = id;
	return 0;
}

static struct candidate
pop(struct bpe_work *w)
{
	struct candidate top = w->heap[0], last = w->heap[--w->n];
	size_t i, down;

	for (i = 0; (down = 2 * i + 1) < w->n; i = down) {
		if (down + 1 < w->n && w->heap[down + 1].key < w->heap[down].key)
			down++;
		if (last.key <= w->heap[down].key)
			break;
		w->heap[i] = w->heap[down];
	}
	w->heap[i] = last;
	return top;
}

/* Queues the pair whose left symbol is at place, if it has a merge. */
static int
consider(const struct bpe *b, struct bpe_work *w, uint32_t place)
{
	const struct symbol *left = &w->symbol[place];
	uint32_t slot = *probe(b, left->id, w->symbol[left->after].id);

	if (slot == 0)
		return 0;
	return push(w, (uint64_t)(slot - 1) << 32 | place, b->merge[slot - 1].id);
}

/* Applies the candidate, unless it is outdated, and queues the new pairs. */
static int
take(const struct bpe *b, struct bpe_work *w, struct candidate c, uint32_t symbols)
{
	uint32_t place = (uint32_t)c.key, slot;
	struct symbol *left = &w->symbol[place], *right;
	int rc = 0;

	if (left->id == VOCAB_NONE || left->after == symbols)
		return 0;
	right = &w->symbol[left->after];
	slot = *probe(b, left->id, right->id);
	if (slot == 0 || b->merge[slot - 1].id != c.id)
		return 0;
	left->id = c.id;
	left->after = right->after;
	right->id = VOCAB_NONE;
	if (left->after != symbols)
		w->symbol[left->after].before = place;
	if (left->before != UINT32_MAX)
		rc = consider(b, w, left->before);
	if (rc == 0 && left->after != symbols)
		rc = consider(b, w, place);
	return rc;
}

static void
add(struct bpe_work *w, uint32_t *n, uint32_t id)
{
	w->symbol[*n].id = id;
	w->symbol[*n].before = *n - 1;
	w->symbol[*n].after = *n + 1;
	(*n)++;
}

/* Handles a character without a token. As in Hugging Face's code, an unknown token waits in
 * *unknown for the next character that has one, also if bytes come before that. */
static int
add_missing(const struct bpe *b, struct bpe_work *w, uint32_t *n, const char *c, size_t len,
    uint32_t *unknown, size_t *lost)
{
	size_t i, known = 0;

	for (i = 0; i < len; i++)
		known += b->fallback[(unsigned char)c[i]] != VOCAB_NONE;
	if (known == len) {
		for (i = 0; i < len; i++)
			add(w, n, b->fallback[(unsigned char)c[i]]);
		return 0;
	}
	if (b->unk_missing)
		return TOKENIZER_EINVALID;
	if (b->unk == VOCAB_NONE) {
		(*lost)++;
		return 0;
	}
	if (*unknown != VOCAB_NONE && !b->fuse_unk)
		add(w, n, *unknown);
	*unknown = b->unk;
	return 0;
}

/* Sets the symbols of the word; room for two of each byte. */
static int
spread(const struct bpe *b, const struct vocab *v, struct bpe_work *w, const char *word,
    size_t len, uint32_t *n, size_t *lost)
{
	uint32_t id, unknown = VOCAB_NONE;
	char spelled[2];
	unsigned used = 1;
	size_t i;
	int rc;

	for (i = *n = 0; i < len; i += used) {
		id = b->byte[(unsigned char)word[i]];
		if (b->characters && (unsigned char)word[i] >= 0x80) {
			utf8_get(word + i, &used);
			id = vocab_find(v, word + i, used);
		} else
			used = 1;
		if (id != VOCAB_NONE) {
			if (unknown != VOCAB_NONE)
				add(w, n, unknown);
			unknown = VOCAB_NONE;
			add(w, n, id);
			continue;
		}
		/* a byte is spelled as a character, which may itself fall back to bytes */
		rc = b->characters ?
		    add_missing(b, w, n, word + i, used, &unknown, lost) :
		    add_missing(b, w, n, spelled, vocab_unspell(word + i, 1, spelled), &unknown,
		    lost);
		if (rc != 0)
			return rc;
	}
	if (unknown != VOCAB_NONE)
		add(w, n, unknown);
	return 0;
}

int
bpe_word(const struct bpe *b, const struct vocab *v, struct bpe_work *w, const char *word,
    size_t len, struct ids *out, size_t *lost)
{
	uint32_t i, n;
	int rc;

	if (len >= UINT32_MAX / 2)
		return TOKENIZER_ENOMEM;
	if (2 * len > w->symbols) {
		free(w->symbol);
		w->symbols = 3 * len;
		w->symbol = malloc(w->symbols * sizeof(*w->symbol));
		if (w->symbol == NULL) {
			w->symbols = 0;
			return TOKENIZER_ENOMEM;
		}
	}
	if ((rc = spread(b, v, w, word, len, &n, lost)) != 0)
		return rc;
	w->n = 0;
	for (i = 0; i + 1 < n && rc == 0; i++)
		rc = consider(b, w, i);
	while (w->n > 0 && rc == 0)
		rc = take(b, w, pop(w), n);
	for (i = 0; i < n && rc == 0; i = w->symbol[i].after)
		rc = ids_push(out, w->symbol[i].id);
	return rc;
}
