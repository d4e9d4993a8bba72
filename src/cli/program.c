/* program.c - the table that programs.h lists */
#include <string.h>

#include "cli/program.h"

#define GROUP(title) { NULL, title },
#define PROGRAM(name, about) { name, about },
const struct program programs[] = {
#include "cli/programs.h"
	{ NULL, NULL }
};
#undef GROUP
#undef PROGRAM

const char *
program_about(const char *name)
{
	const struct program *p;

	for (p = programs; p->about != NULL; p++)
		if (p->name != NULL && strcmp(p->name, name) == 0)
			return p->about;
	return NULL;
}
