/* overrides.c - lists of names that are passed over */
#include <string.h>

#include "model/overrides.h"

const struct overrides no_overrides;

/* Is there text[n] in name? Returns what follows its first place, or NULL. */
static const char *
after(const char *name, const char *text, size_t n)
{
	const char *found = memmem(name, strlen(name), text, n);

	return found != NULL ? found + n : NULL;
}

/* The parts between stars are found from left to right, each at its first place: no way back, so
 * that the time is that of reading the name once for each. */
static int
matches(const char *pattern, const char *name)
{
	const char *star = strchr(pattern, '*');
	size_t n;

	if (star == NULL)
		return strcmp(pattern, name) == 0;
	n = (size_t)(star - pattern);
	if (strncmp(pattern, name, n) != 0)
		return 0;
	for (name += n; (star = strchr(pattern = star + 1, '*')) != NULL;)
		if ((name = after(name, pattern, (size_t)(star - pattern))) == NULL)
			return 0;
	n = strlen(pattern);
	return strlen(name) >= n && strcmp(name + strlen(name) - n, pattern) == 0;
}

int
name_list_matches(const struct name_list *list, const char *name)
{
	size_t i;
	int any = 0;

	for (i = 0; i < list->n; i++) {
		if (!matches(list->at[i], name))
			continue;
		any = 1;
		if (list->there != NULL)
			list->there[i] = 1;
	}
	return any;
}
