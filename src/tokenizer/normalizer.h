/* normalizer.h - what happens to text before it is cut into words */
#ifndef KVPIPE_NORMALIZER_H
#define KVPIPE_NORMALIZER_H

#include <stddef.h>
#include <stdint.h>

#define NORMALIZER_MOST 16

enum normal_kind {
	NORMAL_NFC,
	NORMAL_PREPEND,         /* `to` in front of what is not empty */
	NORMAL_REPLACE,         /* `from` becomes `to` */
	NORMAL_REPLACE_EXPR     /* what the expression `from` matches becomes `to` */
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

/* Appends a step. Takes from and to over, also when it fails; either may be NULL where the kind has
 * none. Returns 0 or a TOKENIZER_E* code with a message. */
int normalizer_add(struct normalizer *, enum normal_kind, char *from, char *to, char *err,
    size_t errlen);
void normalizer_free(struct normalizer *);

struct expr_work;

/* out <- text[len], which must be well-formed UTF-8, normalised; *outlen its bytes. work: its steps
 * are used up, expr.h. prepend: with the steps of this kind; without where the text goes on in the
 * middle of another one. *out is NULL when that is the text itself, otherwise for free(). Linear in
 * len. Returns 0 or a TOKENIZER_E* code with a message. */
int normalizer_run(const struct normalizer *, struct expr_work *work, const char *text, size_t len,
    int prepend, char **out, size_t *outlen, char *err, size_t errlen);

#endif
