/* normalizer.h - changes text before it is cut into words */
#ifndef KVPIPE_NORMALIZER_H
#define KVPIPE_NORMALIZER_H

#include <stddef.h>
#include <stdint.h>

#define NORMALIZER_MOST 16

enum normal_kind {
	NORMAL_NFC,
	NORMAL_PREPEND,         /* puts `to` before a text that is not empty */
	NORMAL_REPLACE,         /* `from` becomes `to` */
	NORMAL_REPLACE_EXPR     /* replaces matches of the expression `from` by `to` */
};

struct normal_step {
	enum normal_kind kind;
	char *from, *to;        /* owned */
	void *code;             /* NORMAL_REPLACE_EXPR: expr.h */
	uint64_t own;
};

struct normalizer {
	unsigned n;
	struct normal_step step[NORMALIZER_MOST];
};

/* Appends a step. Owns from and to, also on failure; either may be NULL if the kind has none.
 * Returns 0 or a TOKENIZER_E* code with a message. */
int normalizer_add(struct normalizer *, enum normal_kind, char *from, char *to, char *err,
    size_t errlen);
void normalizer_free(struct normalizer *);

struct expr_work;

/* out <- text[len], which must be well-formed UTF-8, normalised; *outlen <- its bytes. work:
 * uses up its steps (expr.h). prepend: apply NORMAL_PREPEND; 0 for a text that continues
 * another. *out is NULL if nothing changes, otherwise for free(). Linear in len. Returns 0 or a
 * TOKENIZER_E* code with a message. */
int normalizer_run(const struct normalizer *, struct expr_work *work, const char *text, size_t len,
    int prepend, char **out, size_t *outlen, char *err, size_t errlen);

#endif
