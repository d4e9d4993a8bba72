/* chat_render.c - renders messages through a template
 *
 * If a turn is open at one end, a guard, a letter with a mark of its own, is added to that end
 * of its contents before rendering, and the text is cut at it. So the template sees a whole
 * conversation, and trims contents at the ends of the whole, never at a cut. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chat/chat_internal.h"

#define GUARD "x"
enum { CONTENTS = 1, BEGINS = 2, ENDS = 3 };    /* marks */

static const char *const roles[] = { "system", "user", "assistant" };

static int
is_role(const json_t *role)
{
	const size_t n = json_string_length(role);
	size_t i;

	for (i = 0; i < sizeof(roles) / sizeof(roles[0]); i++)
		if (n == strlen(roles[i]) && memcmp(json_string_value(role), roles[i], n) == 0)
			return 1;
	return 0;
}

/* ---- messages ---- */

/* {"type": "text", "text": ..} of a list; NULL for something else */
static const json_t *
text_part(const json_t *part)
{
	const char *type = json_string_value(json_object_get(part, "type"));
	const json_t *text = json_object_get(part, "text");

	return type != NULL && strcmp(type, "text") == 0 && json_is_string(text) ? text : NULL;
}

/* Returns the parts as one text, NULL without memory. */
static json_t *
join_parts(const json_t *parts)
{
	size_t i, n = 0, len;
	char *p = NULL;
	FILE *f = open_memstream(&p, &n);
	json_t *all = NULL;
	int whole = 1;

	if (f == NULL)
		return NULL;
	for (i = 0; i < json_array_size(parts); i++) {
		len = json_string_length(text_part(json_array_get(parts, i)));
		whole &= fwrite(json_string_value(text_part(json_array_get(parts, i))), 1, len,
		    f) == len;
	}
	whole &= fclose(f) == 0;
	if (whole && p != NULL)                 /* fclose() may succeed without memory for it */
		all = json_stringn(p, n);
	free(p);
	return all;
}

static int
check_message(json_t *m, size_t number, char *err, size_t errlen)
{
	json_t *role = json_object_get(m, "role"), *content = json_object_get(m, "content");
	const json_t *calls = json_object_get(m, "tool_calls");
	const char *type;
	size_t i;

	if (!json_is_object(m) || !json_is_string(role)) {
		snprintf(err, errlen, "message %zu: want an object with a \"role\"", number);
		return CHAT_EINVALID;
	}
	if (!is_role(role)) {
		snprintf(err, errlen,
		    "message %zu: the role \"%.40s\" is not system, user or assistant",
		    number, json_string_value(role));
		return CHAT_EUNSUPPORTED;
	}
	if (json_array_size(calls) > 0) {
		snprintf(err, errlen, "message %zu: calls of tools are not supported", number);
		return CHAT_EUNSUPPORTED;
	}
	if (json_is_string(content))
		return 0;
	if (!json_is_array(content)) {
		snprintf(err, errlen, "message %zu: want a text \"content\", or a list of texts",
		    number);
		return CHAT_EINVALID;
	}
	for (i = 0; i < json_array_size(content); i++)
		if (text_part(json_array_get(content, i)) == NULL) {
			type = json_string_value(json_object_get(json_array_get(content, i),
			    "type"));
			snprintf(err, errlen,
			    "message %zu: part %zu of its content is %.40s, not text",
			    number, i + 1, type != NULL ? type : "of no type");
			return CHAT_EUNSUPPORTED;
		}
	if (json_object_set_new(m, "content", join_parts(content)) != 0) {
		snprintf(err, errlen, "message %zu: no memory", number);
		return CHAT_ENOMEM;
	}
	return 0;
}

int
chat_messages(json_t *messages, char *err, size_t errlen)
{
	size_t i;
	int rc = 0;

	if (!json_is_array(messages) || json_array_size(messages) == 0) {
		snprintf(err, errlen, json_is_array(messages) ? "there is no message" :
		    "want a list of messages");
		return CHAT_EINVALID;
	}
	for (i = 0; rc == 0 && i < json_array_size(messages); i++)
		rc = check_message(json_array_get(messages, i), i + 1, err, errlen);
	return rc;
}

/* ---- guards ---- */

/* The contents with a guard at their beginning, and at their end; NULL: none */
struct guards {
	const json_t *begins, *ends;
};

/* with: struct guards. Roles are written by the template, and tokens that are variables are
 * markup; everything else in a message, and in the user's variables, is contents, keys and
 * numbers too. */
static void
set_marks(const void *with, const char *variable, const char *key, const json_t *value,
    unsigned char *mark, size_t n)
{
	const struct guards *g = with;
	const int is_text = json_is_string(value);

	if (is_text && (strcmp(variable, "messages") == 0 ?
	    strcmp(key, "role") == 0 && is_role(value) :
	    strcmp(key, variable) == 0 && chat_is_token(variable)))
		return;
	memset(mark, CONTENTS, n);
	if (is_text && value == g->begins)
		mark[0] = BEGINS;
	if (is_text && value == g->ends)
		mark[n - 1] = ENDS;
}

/* contents <- before + contents + after */
static const json_t *
guard(json_t *message, const char *before, const char *after)
{
	const json_t *content = json_object_get(message, "content");
	const size_t n = json_string_length(content), b = strlen(before), a = strlen(after);
	json_t *guarded = NULL;
	char *p = malloc(n + a + b + 1);

	if (p != NULL) {
		memcpy(p, before, b);
		memcpy(p + b, json_string_value(content), n);
		memcpy(p + b + n, after, a);
		guarded = json_stringn(p, n + a + b);
		free(p);
	}
	return guarded == NULL || json_object_set_new(message, "content", guarded) != 0 ? NULL :
	    guarded;
}

/* Returns a copy of the messages, with guards; NULL without memory. */
static json_t *
guarded_messages(const struct chat_request *q, struct guards *g)
{
	json_t *all = json_deep_copy(q->messages), *first, *last;

	if (all == NULL)
		return NULL;
	first = json_array_get(all, 0);
	last = json_array_get(all, json_array_size(all) - 1);
	if ((q->flags & CHAT_OPEN) && (g->ends = guard(last, "", GUARD)) == NULL)
		goto fail;
	if ((q->flags & CHAT_CONTINUE) && (g->begins = guard(first, GUARD, "")) == NULL)
		goto fail;
	if ((q->flags & CHAT_CONTINUE) && (q->flags & CHAT_OPEN) && first == last)
		g->ends = g->begins;
	if ((q->flags & CHAT_CONTINUE) &&
	    strcmp(json_string_value(json_object_get(first, "role")), "assistant") == 0 &&
	    json_array_insert_new(all, 0, json_pack("{s:s, s:s}", "role", "user", "content",
		GUARD)) != 0)
		goto fail;
	return all;
fail:
	json_decref(all);
	return NULL;
}

/* Cuts the text at the guards, each of which must appear once. */
static int
cut(struct marked_text *t, const struct guards *g, char *err, size_t errlen)
{
	size_t i, from = 0, to = t->n, begins = 0, ends = 0;

	for (i = 0; i < t->n; i++) {
		if (t->mark[i] == BEGINS) {
			from = i + 1;
			begins++;
		} else if (t->mark[i] == ENDS) {
			to = i;
			ends++;
		}
	}
	if (begins != (g->begins != NULL) || ends != (g->ends != NULL) || from > to) {
		snprintf(err, errlen,
		    "the template does not print the contents of the %s message as they "
		    "are, so its turn cannot %s", begins != (g->begins != NULL) ? "first" : "last",
		    begins != (g->begins != NULL) ? "be continued" : "stay open");
		return CHAT_EUNSUPPORTED;
	}
	memmove(t->text, t->text + from, to - from);
	memmove(t->mark, t->mark + from, to - from);
	t->n = to - from;
	t->text[t->n] = '\0';
	return 0;
}

/* ---- the whole ---- */

/* Returns the variables of the template; steals messages. NULL without memory. */
static json_t *
make_variables(const struct chat *c, const struct chat_request *q, json_t *messages)
{
	json_t *all = json_copy(c->variables), *set = (json_t *)(uintptr_t)q->set;

	if (all == NULL || (set != NULL && json_object_update(all, set) != 0) ||
	    json_object_set_new(all, "add_generation_prompt",
		json_boolean(q->flags & CHAT_PROMPT)) != 0 ||
	    (json_object_get(all, "tools") == NULL &&
		json_object_set_new(all, "tools", json_null()) != 0) ||
	    (json_object_get(all, "documents") == NULL &&
		json_object_set_new(all, "documents", json_null()) != 0)) {
		json_decref(messages);
		json_decref(all);
		return NULL;
	}
	if (json_object_set_new(all, "messages", messages) != 0) {
		json_decref(all);
		return NULL;
	}
	return all;
}

int
chat_render(const struct chat *c, const struct chat_request *q, struct marked_text *out, char *err,
    size_t errlen)
{
	struct guards g = { NULL, NULL };
	struct jinja_context context = { .mark = set_marks, .with = &g, .date = q->date };
	json_t *messages = guarded_messages(q, &g), *variables;
	int rc;

	memset(out, 0, sizeof(*out));
	variables = messages != NULL ? make_variables(c, q, messages) : NULL;
	if (variables == NULL) {
		snprintf(err, errlen, "no memory for the messages");
		return CHAT_ENOMEM;
	}
	context.variables = variables;
	rc = jinja_render(c->template, &context, out, err, errlen);
	json_decref(variables);
	if (rc == 0 && (rc = cut(out, &g, err, errlen)) != 0) {
		free(out->text);
		free(out->mark);
		memset(out, 0, sizeof(*out));
	}
	return rc;
}

int
chat_answer_end(const struct chat *c, const struct chat_request *q, struct marked_text *out,
    char *err, size_t errlen)
{
	json_t *answer = json_pack("[{s:s, s:s}]", "role", "assistant", "content", "");
	const struct chat_request end = { .messages = answer, .set = q->set, .date = q->date,
	    .flags = CHAT_CONTINUE };
	int rc = CHAT_ENOMEM;

	memset(out, 0, sizeof(*out));
	if (answer != NULL)
		rc = chat_render(c, &end, out, err, errlen);
	json_decref(answer);
	return rc;
}
