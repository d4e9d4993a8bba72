/* explain.c - names the type of a file that could not be read
 *
 * In cli/, because tokenizer/ and chat/ must not include model/, which recognises file types. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/explain.h"
#include "model/file_kind.h"

void
explain_file(const char *dir, char *err, size_t errlen)
{
	static const char *const names[] = { "tokenizer.json", "tokenizer_config.json",
		"chat_template.jinja", "chat_template.json", "special_tokens_map.json" };
	char kind[512], *path;
	size_t i, n;

	for (i = 0; i < sizeof names / sizeof names[0]; i++) {
		if (asprintf(&path, "%s/%s", dir, names[i]) == -1)
			return;
		n = strlen(path);
		if (strncmp(err, path, n) == 0 && err[n] == ':' &&
		    file_kind(path, WANT_TEXT, kind, sizeof kind))
			snprintf(err, errlen, "%s: %s", path, kind);
		free(path);
	}
}

static void
say_kind(const char *name, const char *kind, char *err, size_t errlen)
{
	if (strstr(err, "empty file") == NULL)
		snprintf(err, errlen, "%s: not a KV snapshot: %s", name, kind);
}

void
explain_snapshot_open(int fd, const char *name, char *err, size_t errlen)
{
	char kind[512];

	if (file_kind_open(fd, WANT_SNAPSHOT, kind, sizeof kind))
		say_kind(name, kind, err, errlen);
}

void
explain_snapshot(const char *path, char *err, size_t errlen)
{
	char kind[512];

	if (strcmp(path, "-") == 0)
		explain_snapshot_open(STDIN_FILENO, "stdin", err, errlen);
	else if (file_kind(path, WANT_SNAPSHOT, kind, sizeof kind))
		say_kind(path, kind, err, errlen);
}
