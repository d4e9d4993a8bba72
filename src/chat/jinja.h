/* jinja.h - the templates that turn a conversation into text, as Hugging Face's chat_template
 * has them, with a memory of where each byte comes from
 *
 * It computes the part of Jinja 3 that templates of conversations use, with the settings of
 * transformers' apply_chat_template(): trim_blocks, lstrip_blocks, {% break %}, and the tag
 * {% generation %}. What it does not know is refused by name: statements when the template is
 * read, filters, tests and functions when they are reached, since most templates have branches
 * for tools that never are.
 *
 * Every byte of a text has a mark. Those of the template are 0; those of values, and of their keys,
 * keep the mark that they were given through filters, slices and concatenations. */
#ifndef KVPIPE_JINJA_H
#define KVPIPE_JINJA_H

#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

enum {
	CHAT_OK = 0,
	CHAT_EIO = -1,                 /* a file is missing or cannot be read */
	CHAT_EINVALID = -2,            /* damaged or contradictory, the template or the messages */
	CHAT_EUNSUPPORTED = -3,        /* what we do not compute */
	CHAT_EREFUSED = -4,            /* the template itself refuses these messages */
	CHAT_ENOMEM = -5
};

struct jinja;

/* Reads a template; name is for messages. Returns 0 or a CHAT_E* code with a message that names the
 * line. */
int jinja_read(const char *name, const char *text, size_t len, struct jinja **out, char *err,
    size_t errlen);
void jinja_free(struct jinja *);               /* NULL allowed */

/* A text and the mark of each of its bytes, both for free(). */
struct marked_text {
	char *text;
	unsigned char *mark;
	size_t n;
};

/* What a template is rendered with. */
struct jinja_context {
	const json_t *variables;       /* an object; texts in it are UTF-8 */
	/* Sets the marks of something in them, which are 0. value: a text, mark[n] for its bytes; a
	 * number, a truth value or null, mark[1] for what is printed of it; NULL: the key itself,
	 * mark[n]. variable: in which it is; key: the innermost member that it belongs to, or the
	 * variable. NULL: all stay 0. */
	void (*mark)(const void *with, const char *variable, const char *key, const json_t *value,
	    unsigned char *mark, size_t n);
	const void *with;
	const char *date;              /* YYYY-MM-DD for strftime_now(); NULL: it is not defined */
	uint64_t *steps;               /* NULL, or how many steps of work it took */
};

/* Renders. Returns 0, or a CHAT_E* code with a message that names the line; CHAT_EREFUSED where the
 * template calls raise_exception(). With n bytes of variables it takes at most 64 MiB + 64 n bytes
 * of memory and 20 million + 8 n steps of work. */
int jinja_render(const struct jinja *, const struct jinja_context *, struct marked_text *out,
    char *err, size_t errlen);

#endif
