/* jinja.h - an interpreter for Hugging Face's chat templates (Jinja) that remembers where each
 * byte comes from
 *
 * It has the part of Jinja 3 that chat templates use, with the settings of transformers'
 * apply_chat_template(): trim_blocks, lstrip_blocks, {% break %}, and the tag {% generation %}.
 * Anything else is refused by name: statements when the template is read; filters, tests and
 * functions when they are reached, since most templates have branches for tools that are never
 * taken.
 *
 * Every byte of a text has a mark. Bytes of the template have 0; bytes of values, and of their
 * keys, keep their mark through filters, slices and concatenations. */
#ifndef KVPIPE_JINJA_H
#define KVPIPE_JINJA_H

#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

enum {
	CHAT_OK = 0,
	CHAT_EIO = -1,                 /* a file is missing or cannot be read */
	CHAT_EINVALID = -2,            /* damaged or contradictory, the template or the messages */
	CHAT_EUNSUPPORTED = -3,        /* not implemented here */
	CHAT_EREFUSED = -4,            /* refused by the template itself */
	CHAT_ENOMEM = -5
};

struct jinja;

/* Reads a template; name: for messages. Returns 0 or a CHAT_E* code with a message that names
 * the line. */
int jinja_read(const char *name, const char *text, size_t len, struct jinja **out, char *err,
    size_t errlen);
void jinja_free(struct jinja *);               /* NULL allowed */

/* A text and the mark of each byte, both for free(). */
struct marked_text {
	char *text;
	unsigned char *mark;
	size_t n;
};

/* The input of a rendering. */
struct jinja_context {
	const json_t *variables;       /* an object; texts in it are UTF-8 */
	/* Sets the marks, 0 at first, of a value in `variables`. value: a text, mark[n] for its
	 * bytes; a number, a boolean or null, mark[1] for its printed form; NULL: the key
	 * itself, mark[n]. variable: the variable that contains it; key: the innermost member
	 * that it belongs to, or the variable. NULL: all stay 0. */
	void (*mark)(const void *with, const char *variable, const char *key, const json_t *value,
	    unsigned char *mark, size_t n);
	const void *with;
	const char *date;              /* YYYY-MM-DD for strftime_now(); NULL: it is not defined */
	uint64_t *steps;               /* NULL, or set to the steps of work done */
};

/* Renders. Returns 0, or a CHAT_E* code with a message that names the line; CHAT_EREFUSED if
 * the template calls raise_exception(). With n bytes of variables it uses at most 64 MiB + 64 n
 * bytes of memory and 20 million + 8 n steps of work. */
int jinja_render(const struct jinja *, const struct jinja_context *, struct marked_text *out,
    char *err, size_t errlen);

#endif
