/* fingerprint.c - a hash of everything that determines ids and texts
 *
 * formats/kv-snapshot.md section 6 defines it. Snapshots contain it, so a tokenizer's hash must
 * never change: new features add to the hash only if a file uses them. */
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "tokenizer/tokjson.h"

static void
hash_u32(XXH3_state_t *h, uint32_t v)
{
	unsigned char b[4] = { (unsigned char)v, (unsigned char)(v >> 8),
		(unsigned char)(v >> 16), (unsigned char)(v >> 24) };

	XXH3_128bits_update(h, b, sizeof(b));
}

/* Including its zero byte. */
static void
hash_string(XXH3_state_t *h, const char *s)
{
	XXH3_128bits_update(h, s, strlen(s) + 1);
}

static void
hash_tokens(XXH3_state_t *h, const struct vocab *v)
{
	const struct token *token;
	unsigned char flags;
	uint32_t id;

	for (id = 0; id < v->size; id++) {
		token = &v->token[id];
		if (!(token->flags & TOKEN_USED))
			continue;
		hash_u32(h, id);
		hash_u32(h, token->len);
		XXH3_128bits_update(h, v->text + token->at, token->len);
		flags = (unsigned char)(token->flags >> TOKEN_IDENTITY);
		XXH3_128bits_update(h, &flags, 1);
	}
}

static void
hash_ids(XXH3_state_t *h, const struct ids *ids)
{
	size_t i;

	for (i = 0; i < ids->n; i++)
		hash_u32(h, ids->ids[i]);
}

static void
hash_normalizer(XXH3_state_t *h, const struct normalizer *n)
{
	static const char *const names[] = { [NORMAL_NFC] = "nfc", [NORMAL_PREPEND] = "prepend",
		[NORMAL_REPLACE] = "replace", [NORMAL_REPLACE_EXPR] = "replace-matches" };
	unsigned i;

	for (i = 0; i < n->n; i++) {
		hash_string(h, names[n->step[i].kind]);
		if (n->step[i].from != NULL)
			hash_string(h, n->step[i].from);
		if (n->step[i].to != NULL)
			hash_string(h, n->step[i].to);
	}
	if (n->n == 0)
		hash_string(h, "none");
}

static const char *
behavior(enum pretok_behavior b)
{
	switch (b) {
	case PRETOK_REMOVED:              return "removed";
	case PRETOK_CONTIGUOUS:           return "contiguous";
	case PRETOK_MERGED_WITH_PREVIOUS: return "merged-with-previous";
	case PRETOK_MERGED_WITH_NEXT:     return "merged-with-next";
	default:                          return "isolated";
	}
}

static void
hash_step(XXH3_state_t *h, const struct pretok_step *s)
{
	static const char *const schemes[] = { [PRETOK_NEVER] = "never", [PRETOK_FIRST] = "first",
		[PRETOK_ALWAYS] = "always" };

	switch (s->kind) {
	case PRETOK_EXPR:
		/* inversion makes no difference if both sides are kept apart */
		if (s->behavior != PRETOK_ISOLATED) {
			hash_string(h, behavior(s->behavior));
			hash_string(h, s->invert ? "inverted" : "matches");
		}
		hash_string(h, s->text);
		break;
	case PRETOK_NUMERIC:
		hash_string(h, s->behavior == PRETOK_ISOLATED ? "\\p{N}" : "\\p{N}+");
		break;
	case PRETOK_PUNCTUATION:
		hash_string(h, "punctuation");
		hash_string(h, behavior(s->behavior));
		break;
	case PRETOK_SPACE:
		hash_string(h, "whitespace-split");
		break;
	case PRETOK_WORDS:
		hash_string(h, "whitespace");
		break;
	case PRETOK_METASPACE:
		hash_string(h, "metaspace");
		hash_string(h, s->meta);
		hash_string(h, schemes[s->prepend]);
		hash_string(h, s->splits ? "split" : "whole");
		break;
	case PRETOK_PREFIX_SPACE:
		hash_string(h, "prefix-space");
		break;
	case PRETOK_SPELL:
		hash_string(h, "byte-level");
		break;
	}
}

/* Hashes the additional settings of a vocabulary of characters. */
static void
hash_characters(XXH3_state_t *h, const struct decoder *d)
{
	static const char *const names[] = { [DECODE_BYTE_LEVEL] = "byte-level",
		[DECODE_REPLACE] = "replace", [DECODE_BYTE_FALLBACK] = "byte-fallback",
		[DECODE_STRIP] = "strip", [DECODE_METASPACE] = "metaspace" };
	const struct decode_step *s;
	unsigned i;

	hash_string(h, "characters");
	for (i = 0; i < d->n; i++) {
		s = &d->step[i];
		hash_string(h, names[s->kind]);
		if (s->from != NULL)
			hash_string(h, s->from);
		if (s->to != NULL)
			hash_string(h, s->to);
		if (s->kind == DECODE_STRIP) {
			hash_u32(h, (uint32_t)s->start);
			hash_u32(h, (uint32_t)s->stop);
		}
		if (s->kind == DECODE_METASPACE)
			hash_string(h, d->drops ? "drops" : "keeps");
	}
}

static void
hash_missing(XXH3_state_t *h, const struct bpe *b)
{
	unsigned i;

	for (i = 0; i < 256 && b->fallback[i] == VOCAB_NONE; i++)
		;
	if (i < 256)
		hash_string(h, "byte-fallback");
	if (b->unk == VOCAB_NONE)
		return;
	hash_string(h, b->fuse_unk ? "fused-unknown" : "unknown");
	hash_u32(h, b->unk);
}

static void
hash_tokenizer(XXH3_state_t *h, const struct tokenizer *t)
{
	size_t i;

	hash_tokens(h, &t->vocab);
	for (i = 0; i < t->bpe.n; i++) {
		hash_u32(h, t->bpe.merge[i].left);
		hash_u32(h, t->bpe.merge[i].right);
	}
	hash_normalizer(h, &t->normalizer);
	for (i = 0; i < t->pretok.n; i++)
		hash_step(h, &t->pretok.step[i]);
	hash_string(h, t->ignore_merges ? "ignore_merges" : "merges");
	hash_ids(h, &t->before);
	/* from here on only features that were refused when the hash was defined */
	if (t->after.n > 0) {
		hash_string(h, "after");
		hash_ids(h, &t->after);
	}
	hash_missing(h, &t->bpe);
	if (!t->byte_level)
		hash_characters(h, &t->decoder);
	if (t->decoder.strip_most > 0) {
		hash_string(h, "strip-beginning");
		hash_string(h, t->decoder.strip);
		hash_u32(h, (uint32_t)t->decoder.strip_most);
	}
}

int
fingerprint(struct tokenizer *t)
{
	XXH3_state_t *h = XXH3_createState();
	XXH128_canonical_t canonical;
	size_t i;

	if (h == NULL)
		return TOKENIZER_ENOMEM;
	XXH3_128bits_reset(h);
	hash_tokenizer(h, t);
	XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(h));
	XXH3_freeState(h);
	for (i = 0; i < sizeof(canonical.digest); i++)
		snprintf(t->fingerprint + 2 * i, 3, "%02x", canonical.digest[i]);
	return 0;
}
