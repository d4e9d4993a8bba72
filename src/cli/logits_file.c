/* logits_file.c - the file of --logits: a NumPy matrix with a row for each token */
#include <string.h>

#include "cli/logits_file.h"
#include "cli/npy.h"
#include "cli/snapshot_io.h"
#include "cli/tool.h"

void
logits_file_check(const char *path, const char *instead, const char *const *others, size_t n)
{
	size_t i;

	if (path == NULL)
		return;
	if (strcmp(path, "-") == 0)
		die(EXIT_USAGE, "--logits -: standard output is for the %s", instead);
	if (strcmp(path, settings.output) == 0)
		die(EXIT_USAGE, "--logits names a file that is also the output, %s", path);
	for (i = 0; i < n; i++)
		if (others[i] != NULL && strcmp(path, others[i]) == 0)
			die(EXIT_USAGE, "--logits names a file that is also read, %s", path);
	output_refuse("--logits", path);
}

void
logits_file_open(struct logits_file *x, const char *path, uint64_t rows, uint64_t columns)
{
	*x = (struct logits_file){ .path = path, .columns = columns };
	if (path != NULL)
		x->file = npy_create(path, rows, columns);
}

void
logits_file_put(void *with, const float *logits)
{
	struct logits_file *x = with;

	if (x->file != NULL)
		npy_put(x->file, x->path, logits, x->columns);
}

void
logits_file_close(struct logits_file *x)
{
	if (x->file != NULL)
		text_commit(x->file);
	x->file = NULL;
}
