/* kvpipe - lists the programs, or runs one of them: kvpipe score ... is kv-score ...
 *
 * The program replaces this one and gets its arguments unchanged: messages, exit status, --help
 * and reports are its own. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/terminal_escape.h"
#include "cli/nearest_name.h"
#include "cli/program.h"
#include "cli/tool.h"

static const struct tool tool = {
	.name = "kvpipe",
	.about = "list the programs for KV snapshots, or run one of them",
	.synopsis = "[-qv] [--report FILE]\n"
	    "kvpipe program [argument ...]\n"
	    "kvpipe help [program]",
	.example = "kvpipe help score"
};

/* Returns the name without kv-, which may be left out. */
static const char *
short_name(const char *name)
{
	return strncmp(name, "kv-", 3) == 0 ? name + 3 : name;
}

static const struct program *
find(const char *word)
{
	const struct program *p;

	for (p = programs; p->about != NULL; p++)
		if (p->name != NULL && strcmp(short_name(p->name), short_name(word)) == 0)
			return p;
	return NULL;
}

static void __attribute__((noreturn))
unknown(const char *word)
{
	const struct program *p;
	struct nearest_name g;

	nearest_name_start(&g, short_name(word));
	for (p = programs; p->about != NULL; p++)
		if (p->name != NULL)
			nearest_name_try(&g, short_name(p->name), "");
	nearest_name_try(&g, "help", "");
	die(EXIT_USAGE, "there is no program '%s'%s", shown(word), nearest_name_text(&g, ""));
}

/* path[size] <- the program of this name in the folder of this executable; 0 if it cannot be
 * run */
static int
beside(const char *name, char *path, size_t size)
{
	const ssize_t n = readlink("/proc/self/exe", path, size - 1);
	char *slash;

	if (n <= 0)
		return 0;
	path[n] = '\0';
	if ((slash = strrchr(path, '/')) == NULL ||
	    (size_t)(slash + 1 - path) + strlen(name) >= size)
		return 0;
	strcpy(slash + 1, name);
	return access(path, X_OK) == 0;
}

/* argv: the name of the program, as given, and its arguments */
static void __attribute__((noreturn))
run(const struct program *p, char **argv)
{
	char path[PATH_MAX], *name = strdup(p->name);

	if (name == NULL)
		die(EXIT_RUN, "out of memory");
	argv[0] = name;
	if (beside(name, path, sizeof path))
		execv(path, argv);
	else
		execvp(name, argv);
	die(EXIT_RUN, "%s cannot be run:", p->name);
}

static void
list(void)
{
	const struct program *p;

	for (p = programs; p->about != NULL; p++)
		if (p->name == NULL)
			printf("%s%s\n", p == programs ? "" : "\n", p->about);
		else
			printf("  %-14s %s\n", p->name, p->about);
	printf("\nkvpipe score ... runs kv-score ..., kvpipe help score prints its options.\n"
	    "Manual pages: man kv-score; man 7 kvpipe is the tutorial.\n");
}

static void __attribute__((noreturn))
help(const char *word)
{
	char *argv[] = { NULL, (char[]){ "--help" }, NULL };
	const struct program *p = find(word);

	if (p == NULL)
		unknown(word);
	run(p, argv);
}

int
main(int argc, char **argv)
{
	const struct program *p;

	if (argc > 2 && strcmp(argv[1], "help") == 0) {
		if (argc > 3)
			die(EXIT_USAGE, "help: one program, not %d", argc - 2);
		help(argv[2]);
	}
	if (argc > 1 && argv[1][0] != '-' && strcmp(argv[1], "help") != 0) {
		if ((p = find(argv[1])) == NULL)
			unknown(argv[1]);
		run(p, argv + 1);
	}
	/* help alone prints the list */
	tool_start(&tool, argc > 1 && argv[1][0] != '-' ? 1 : argc, argv);
	list();
	return finish();
}
