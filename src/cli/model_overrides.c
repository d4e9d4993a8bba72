/* model_overrides.c - unknown configuration keys and tensors to ignore: from options, the
 * environment and the model folder
 *
 * A folder may come from anybody. Its lines affect only its own keys and tensors, which its
 * author could have left out as well; the user is told of them. */
#include <sys/stat.h>

#include <ctype.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/model_overrides.h"
#include "cli/snapshot_io.h"
#include "cli/tool.h"

#define CONF "kvpipe-methods.conf"

enum {
	CONF_MAX = 65536,       /* most bytes of the file that are read */
	LINES_MAX = 64,         /* names of one kind */
	NAME_MAX_BYTES = 200
};

/* The names of one kind: those of options and environment, then the folder's. */
struct names {
	const char *option;
	const struct strings *given;
	const char **at;
	unsigned char *there;
	size_t n;
};

static struct names keys = { .option = "allow-config", .given = &settings.allow_config };
static struct names tensors = { .option = "allow-tensor", .given = &settings.allow_tensor };
static struct overrides of_model, given;
static const char *folder;

static void
begin_names(struct names *x)
{
	x->at = must_alloc(x->given->n + LINES_MAX, sizeof *x->at);
	x->there = must_alloc(x->given->n + LINES_MAX, 1);
	for (x->n = 0; x->n < x->given->n; x->n++)
		x->at[x->n] = x->given->at[x->n];
}

/* Adds the name of a line "OPTION=NAME", of printable characters. */
static void
take_line(struct names *x, const char *line)
{
	const size_t n = strlen(x->option);
	const char *name, *p;

	if (strncmp(line, x->option, n) != 0 || line[n] != '=')
		return;
	name = line + n + 1;
	for (p = name; isgraph((unsigned char)*p); p++)
		;
	if (*name == '\0' || *p != '\0' || p - name > NAME_MAX_BYTES ||
	    x->n == x->given->n + LINES_MAX) {
		warning("%s/" CONF ": a line %s= is not used: %s", folder, x->option,
		    x->n == x->given->n + LINES_MAX ? "too many of them" : "not a name");
		return;
	}
	if ((x->at[x->n++] = strdup(name)) == NULL)
		die(EXIT_RUN, "out of memory");
}

/* Returns the beginning of the file, to be freed; NULL if there is none. */
static char *
read_conf(const char *dir)
{
	char *path, *text = must_alloc(CONF_MAX + 1, 1);
	struct stat st;
	ssize_t got;
	size_t n = 0;
	int fd;

	if (asprintf(&path, "%s/" CONF, dir) == -1)
		die(EXIT_RUN, "out of memory");
	/* O_NONBLOCK: does not wait for a FIFO in place of the file */
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	free(path);
	if (fd == -1)
		return text;
	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
		while (n < CONF_MAX && (got = read(fd, text + n, CONF_MAX - n)) > 0)
			n += (size_t)got;
	close(fd);
	if (n == CONF_MAX)
		warning("%s/" CONF ": only its first %d bytes are looked at", dir, CONF_MAX);
	return text;
}

static void
read_lines(const char *dir)
{
	char *text = read_conf(dir), *line, *rest = text;

	while ((line = strsep(&rest, "\n")) != NULL) {
		line[strcspn(line, "\r")] = '\0';
		take_line(&keys, line);
		take_line(&tensors, line);
	}
	free(text);
}

static struct name_list
list_of(const struct names *x, size_t n)
{
	return (struct name_list){ x->at, n, x->there };
}

const struct overrides *
overrides_of_model(const char *dir)
{
	folder = dir;
	begin_names(&keys);
	begin_names(&tensors);
	read_lines(dir);
	given.notice.call = of_model.notice.call = warn_notice;
	given.keys = list_of(&keys, keys.given->n);
	given.tensors = list_of(&tensors, tensors.given->n);
	of_model.keys = list_of(&keys, keys.n);
	of_model.tensors = list_of(&tensors, tensors.n);
	return &of_model;
}

const struct overrides *
overrides_given(void)
{
	return &given;
}

static int
compare_texts(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* A snapshot names what was ignored, and only if it was there, each name once and in a fixed
 * order, so that the same rows give the same bytes. */
static void
sign_names(const struct names *x)
{
	const char **name = must_alloc(x->n, sizeof *name);
	size_t i, n = 0, size = 1;
	char *text;

	for (i = 0; i < x->n; i++)
		if (x->there[i]) {
			name[n++] = x->at[i];
			size += strlen(x->at[i]) + 1;
		}
	qsort(name, n, sizeof *name, compare_texts);
	text = must_alloc(size, 1);
	for (i = 0; i < n; i++)
		if (i == 0 || strcmp(name[i], name[i - 1]) != 0) {
			strcat(text, i > 0 ? " " : "");
			strcat(text, name[i]);
		}
	if (n > 0)
		sign_text(x->option, text);
	free(text);
	free(name);
}

static void
warn_lines(struct names *x)
{
	size_t i;

	for (i = x->given->n; i < x->n; i++)
		if (x->there[i])
			warning("%s/" CONF ": %s=%s: ignored, as the folder says", folder,
			    x->option, x->at[i]);
}

void
overrides_sign(void)
{
	static int warned;

	sign_names(&keys);
	sign_names(&tensors);
	if (!warned++) {
		warn_lines(&keys);
		warn_lines(&tensors);
	}
}
