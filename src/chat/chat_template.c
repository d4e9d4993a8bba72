/* chat_template.c - finds the template of a model folder, and the names of its special tokens */
#include <sys/stat.h>

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "chat/chat_internal.h"

#define FILE_MOST ((size_t)64 << 20)
#define NAMES_MOST 40
#define DEFAULT "default"               /* transformers' name for a template without one */
#define ADDITIONAL "additional_chat_templates"

#define TEMPLATE(name, tokens, text) { name, tokens, text },
static const struct {
	const char *name, *tokens, *text;
} builtin[] = {
#include "chat/builtin.h"
};
#undef TEMPLATE
#define BUILTINS (sizeof(builtin) / sizeof(builtin[0]))

const char *
chat_builtin(size_t i, const char **tokens)
{
	if (i >= BUILTINS)
		return NULL;
	if (tokens != NULL)
		*tokens = builtin[i].tokens;
	return builtin[i].name;
}

const char *
chat_tokens(const struct chat *c)
{
	return c->tokens;
}

void
chat_close(struct chat *c)
{
	if (c == NULL)
		return;
	jinja_free(c->template);
	json_decref(c->variables);
	free(c);
}

/* ---- files ---- */

/* *text <- the whole file; if it does not exist, NULL, and returns 0. */
static int
read_file(const char *path, char **text, size_t *len, char *err, size_t errlen)
{
	FILE *f = fopen(path, "rb");
	struct stat st;
	size_t n, cap = 1 << 16;
	char *p = NULL;
	int failed;

	*text = NULL;
	*len = 0;
	if (f == NULL && errno == ENOENT) {
		if (lstat(path, &st) != 0)
			return 0;
		errno = ENOENT;                /* a link to nothing is there */
	}
	for (failed = f == NULL; !failed; cap *= 2) {
		char *grown = realloc(p, cap);

		if ((failed = grown == NULL || *len > FILE_MOST))
			break;
		p = grown;
		n = fread(p + *len, 1, cap - *len - 1, f);
		*len += n;
		failed = ferror(f) != 0;
		if (n == 0)
			break;
	}
	if (failed) {
		snprintf(err, errlen, "%s: %s", path, *len > FILE_MOST ? "it is too long" :
		    strerror(errno));
		free(p);
	} else {
		p[*len] = '\0';
		*text = p;
	}
	if (f != NULL)
		fclose(f);
	return failed ? CHAT_EIO : 0;
}

/* jansson's message, except those that only programmers understand */
static const char *
words_of(const json_error_t *e)
{
	const enum json_error_code code = json_error_code(e);

	if (code == json_error_null_character || code == json_error_null_byte_in_key)
		return "a zero character (\\u0000), which is not supported";
	return e->text;
}

/* *o <- a JSON object; if the file does not exist, NULL, and returns 0. */
static int
read_json(const char *path, json_t **o, char *err, size_t errlen)
{
	json_error_t e;
	char *text;
	size_t len;
	int rc = read_file(path, &text, &len, err, errlen);

	*o = NULL;
	if (rc != 0 || text == NULL)
		return rc;
	/* numbers do not matter here, and one is as large as Python's "no limit" */
	*o = json_loadb(text, len, JSON_DECODE_INT_AS_REAL, &e);
	free(text);
	if (!json_is_object(*o)) {
		if (*o == NULL)
			snprintf(err, errlen, "%s: line %d, column %d: %s", path, e.line, e.column,
			    words_of(&e));
		else
			snprintf(err, errlen, "%s: it is not an object", path);
		json_decref(*o);
		*o = NULL;
		return CHAT_EINVALID;
	}
	return 0;
}

static char *
join_path(const char *dir, const char *name)
{
	char *path;

	return asprintf(&path, "%s/%s", dir, name) < 0 ? NULL : path;
}

/* ---- variables: bos_token and so on ---- */

static void
take_token(struct chat *c, const json_t *config, const char *key)
{
	json_t *v = json_object_get(config, key);

	if (json_is_object(v))
		v = json_object_get(v, "content");
	if (json_is_string(v) && json_object_get(c->variables, key) == NULL)
		json_object_set(c->variables, key, v);
}

static const char *const tokens[] = { "bos_token", "eos_token", "unk_token", "sep_token",
	"pad_token", "cls_token", "mask_token" };
#define TOKENS (sizeof(tokens) / sizeof(tokens[0]))

static void
take_tokens(struct chat *c, const json_t *config)
{
	size_t i;

	for (i = 0; config != NULL && i < TOKENS; i++)
		take_token(c, config, tokens[i]);
}

int
chat_is_token(const char *variable)
{
	size_t i;

	for (i = 0; i < TOKENS; i++)
		if (strcmp(tokens[i], variable) == 0)
			return 1;
	return 0;
}

/* ---- choosing ---- */

/* The template to open */
struct opening {
	struct chat *chat;
	const char *dir;
	const json_t *config;           /* in place of the folder's files; NULL: these */
	const char *name;               /* NULL: no name was given */
	const char *want;               /* name, or DEFAULT */
	char *err;
	size_t errlen;
};

static int
take_text(struct opening *o, const char *path, const char *text, size_t len)
{
	return jinja_read(path, text, len, &o->chat->template, o->err, o->errlen);
}

static int
take_file(struct opening *o, const char *path)
{
	char *text;
	size_t len;
	int rc = read_file(path, &text, &len, o->err, o->errlen);

	if (rc == 0 && text != NULL)
		rc = take_text(o, path, text, len);
	free(text);
	return rc;
}

/* Reads chat_template of a file: a text, or a list of named ones. */
static int
take_member(struct opening *o, const char *path, const json_t *config)
{
	const json_t *v = json_object_get(config, "chat_template"), *one, *text;
	const char *name;
	char place[4200];
	size_t i;

	snprintf(place, sizeof(place), "%s: chat_template", path);
	if (json_is_string(v) && strcmp(o->want, DEFAULT) == 0)
		return take_text(o, place, json_string_value(v), json_string_length(v));
	for (i = 0; i < json_array_size(v); i++) {
		one = json_array_get(v, i);
		name = json_string_value(json_object_get(one, "name"));
		text = json_object_get(one, "template");
		if (name != NULL && json_is_string(text) && strcmp(name, o->want) == 0)
			return take_text(o, place, json_string_value(text),
			    json_string_length(text));
	}
	return 0;
}

/* Returns the file of the folder that contains only a template, for free(). NULL without
 * memory. */
static char *
template_path(const char *dir, const char *name)
{
	char *path;

	if (strcmp(name, DEFAULT) == 0)
		return join_path(dir, "chat_template.jinja");
	return asprintf(&path, "%s/" ADDITIONAL "/%s.jinja", dir, name) < 0 ? NULL : path;
}

/* Opens a template of the folder, by name if given. chat->template stays NULL if there is none. */
static int
take_from_folder(struct opening *o)
{
	static const char *const files[] = { "tokenizer_config.json", "chat_template.json",
		"special_tokens_map.json" };
	char *path = template_path(o->dir, o->want);
	json_t *config;
	size_t i;
	int rc = CHAT_ENOMEM;

	if (o->config != NULL) {
		free(path);
		take_tokens(o->chat, o->config);
		return take_member(o, o->dir, o->config);
	}
	if (path != NULL)
		rc = strchr(o->want, '/') == NULL ? take_file(o, path) : 0;
	for (i = 0; rc == 0 && i < sizeof(files) / sizeof(files[0]); i++) {
		free(path);
		if ((path = join_path(o->dir, files[i])) == NULL)
			return CHAT_ENOMEM;
		if ((rc = read_json(path, &config, o->err, o->errlen)) != 0)
			break;
		take_tokens(o->chat, config);
		if (o->chat->template == NULL)
			rc = take_member(o, path, config);
		json_decref(config);
	}
	free(path);
	return rc;
}

static int
take_builtin(struct opening *o)
{
	size_t i;

	for (i = 0; i < BUILTINS; i++)
		if (strcmp(builtin[i].name, o->name) == 0) {
			o->chat->tokens = builtin[i].tokens;
			return take_text(o, o->name, builtin[i].text, strlen(builtin[i].text));
		}
	return 0;
}

/* ---- names ---- */

static void
add_name(json_t *names, const char *name, size_t n)
{
	size_t i;

	for (i = 0; i < json_array_size(names); i++)
		if (json_string_length(json_array_get(names, i)) == n &&
		    memcmp(json_string_value(json_array_get(names, i)), name, n) == 0)
			return;
	if (i < NAMES_MOST)
		json_array_append_new(names, json_stringn(name, n));
}

/* Adds the names in chat_template of a parsed file. */
static void
add_members(json_t *names, const json_t *config)
{
	const json_t *v = json_object_get(config, "chat_template"), *name;
	size_t i;

	if (json_is_string(v))
		add_name(names, DEFAULT, strlen(DEFAULT));
	for (i = 0; i < json_array_size(v); i++) {
		name = json_object_get(json_array_get(v, i), "name");
		if (json_is_string(name))
			add_name(names, json_string_value(name), json_string_length(name));
	}
}

static void
add_members_of_file(json_t *names, const char *dir, const char *file)
{
	char *path = join_path(dir, file), err[512];
	json_t *config = NULL;

	if (path != NULL && read_json(path, &config, err, sizeof(err)) == 0)
		add_members(names, config);
	json_decref(config);
	free(path);
}

static int
is_template_file(const struct dirent *e)
{
	const char *end = strrchr(e->d_name, '.');

	return e->d_name[0] != '.' && end != NULL && strcmp(end, ".jinja") == 0;
}

void
chat_folder_names(const char *dir, const json_t *config, json_t *names)
{
	struct dirent **files;
	char *path;
	int i, n;

	if (config != NULL) {
		add_members(names, config);
		return;
	}
	path = template_path(dir, DEFAULT);
	if (path != NULL && access(path, F_OK) == 0)
		add_name(names, DEFAULT, strlen(DEFAULT));
	free(path);
	if ((path = join_path(dir, ADDITIONAL)) != NULL &&
	    (n = scandir(path, &files, is_template_file, alphasort)) >= 0) {
		for (i = 0; i < n; i++) {
			add_name(names, files[i]->d_name,
			    strlen(files[i]->d_name) - strlen(".jinja"));
			free(files[i]);
		}
		free(files);
	}
	free(path);
	add_members_of_file(names, dir, "tokenizer_config.json");
	add_members_of_file(names, dir, "chat_template.json");
}

/* out <- "llama3, chatml", the folder's templates or the built-in ones. */
static void
list_names(char *out, size_t n, const json_t *names)
{
	const size_t all = names != NULL ? json_array_size(names) : BUILTINS;
	size_t i, at = 0;
	int k;

	out[0] = '\0';
	for (i = 0; i < all && at < n; i++) {
		k = snprintf(out + at, n - at, "%s%.60s", i > 0 ? ", " : "", names == NULL ?
		    builtin[i].name : json_string_value(json_array_get(names, i)));
		at += k > 0 ? (size_t)k : 0;
	}
}

/* Writes the message that lists the templates, and how to choose one. */
static void
no_template(struct opening *o)
{
	char known[256], there[512];
	json_t *names = json_array();

	chat_folder_names(o->dir, o->config, names);
	list_names(known, sizeof(known), NULL);
	list_names(there, sizeof(there), names);
	if (o->name != NULL)
		snprintf(o->err, o->errlen,
		    "there is no template \"%s\": %s%s%s%s%s are built in, and a name "
		    "with a slash is that of a file", o->name, there,
		    there[0] != '\0' ? " in " : "", there[0] != '\0' ? o->dir : "",
		    there[0] != '\0' ? "; " : "", known);
	else if (there[0] != '\0')
		snprintf(o->err, o->errlen, "%s has no default template: --template NAME chooses "
		    "one of its %s", o->dir, there);
	else
		snprintf(o->err, o->errlen, "%s has no chat_template%s: --template NAME chooses "
		    "one of %s", o->dir, o->config != NULL ? "" : ", in chat_template.jinja or "
		    "tokenizer_config.json", known);
	json_decref(names);
}

static int
open_template(struct opening *o)
{
	const char *name = o->name, *end = name != NULL ? strrchr(name, '.') : NULL;
	const int is_file = name != NULL && (strchr(name, '/') != NULL ||
	    (end != NULL && strcmp(end, ".jinja") == 0));
	int rc = take_from_folder(o);

	if (rc == 0 && is_file && o->chat->template == NULL)
		rc = take_file(o, name);
	else if (rc == 0 && name != NULL && o->chat->template == NULL)
		rc = take_builtin(o);
	if (rc != 0 || o->chat->template != NULL)
		return rc;
	if (!is_file) {
		no_template(o);
		return CHAT_EUNSUPPORTED;
	}
	snprintf(o->err, o->errlen, "%s: %s", name, strerror(ENOENT));
	return CHAT_EIO;
}

int
chat_open(const char *dir, const json_t *config, const char *name, struct chat **out, char *err,
    size_t errlen)
{
	struct opening o = { .chat = calloc(1, sizeof(*o.chat)), .dir = dir, .config = config,
	    .name = name, .want = name != NULL ? name : DEFAULT, .err = err, .errlen = errlen };
	int rc = CHAT_ENOMEM;

	*out = NULL;
	if (errlen > 0)
		err[0] = '\0';
	if (o.chat != NULL && (o.chat->variables = json_object()) != NULL)
		rc = open_template(&o);
	if (rc == CHAT_ENOMEM && errlen > 0 && err[0] == '\0')
		snprintf(err, errlen, "%s: no memory", dir);
	if (rc != 0) {
		chat_close(o.chat);
		return rc;
	}
	*out = o.chat;
	return 0;
}
