/* kvfile_vectors.c - the library against formats/vectors, which were made without it
 *
 * passed/X.kv must be read to its end; failed/X.kv refused with the exit code and the word of
 * X.why. Copies of the passed ones must keep the logical digest. */

#include "kvfile_sample.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#ifndef VECTORS
#define VECTORS "formats/vectors"
#endif

static int
exit_code(int code)
{
	switch (code) {
	case KV_OK:
		return 0;
	case KV_ETRUNCATED:
	case KV_ECORRUPT:
		return 3;
	case KV_EVERSION:
		return 5;
	}
	return 1;
}

static void
check_failed_one(const char *name, struct bytes b, const char *why_file)
{
	struct bytes why = slurp(why_file);
	char text[1024], word[200] = "";
	int want = -1, code, way;

	if (why.data != NULL) {
		why.data = realloc(why.data, why.size + 1);
		why.data[why.size] = '\0';
		sscanf((char *)why.data, "%d\n%199[^\n]", &want, word);
	}
	free(why.data);
	for (way = 0; way < 2; way++) {
		code = walk(in_memory(b, way), "-", text);
		check(exit_code(code) == want && strcasestr(text, word) != NULL,
		    "%s: exit code %d with \"%s\", not %d with \"%s\"", name, exit_code(code),
		    text, want,
		    word);
	}
}

static void
logical(const char *file, char digest[33])
{
	struct kv_digests d = { .logical = "" };
	struct kv_section sec;
	struct kv_reader *r;

	if (kv_open(file, &r) == KV_OK)
		while (kv_next(r, &sec) == 1)
			continue;
	kv_reader_digests(r, &d);
	strcpy(digest, d.logical);
	kv_close(r);
}

static void
check_passed_one(const char *name, struct bytes b, const char *file)
{
	char text[1024], before[33], after[33];
	int way;

	logical(file, before);
	for (way = 0; way < 2; way++) {
		check(walk(in_memory(b, way), name, text) == KV_OK, "%s", text);
		check(copy_sections(in_memory(b, way), path("copy.kv"), way ? KV_LZ4 : 0,
		    way) == KV_OK, "%s is not copied", name);
		logical(path("copy.kv"), after);
		/* A copy writes the keys of HEAD that it knows. */
		check(strcmp(before, after) == 0 || strstr(name, "unknown-head-key") != NULL,
		    "%s: the copy has another logical digest", name);
	}
}

/* All vectors in a folder; returns their number. */
static int
each(const char *folder, void (*f)(const char *, struct bytes, const char *), const char *suffix)
{
	const struct dirent *e;
	char file[600];
	struct bytes b;
	size_t length;
	int n = 0;
	DIR *d;

	snprintf(file, sizeof file, "%s/%s", VECTORS, folder);
	d = opendir(file);
	while (d != NULL && (e = readdir(d)) != NULL) {
		length = strlen(e->d_name);
		if (length < 4 || strcmp(e->d_name + length - 3, ".kv") != 0)
			continue;
		snprintf(file, sizeof file, "%s/%s/%s", VECTORS, folder, e->d_name);
		b = slurp(file);
		strcpy(file + strlen(file) - 3, suffix);
		f(e->d_name, b, file);
		free(b.data);
		n++;
	}
	if (d != NULL)
		closedir(d);
	return n;
}

int
main(void)
{
	check(each("passed", check_passed_one, ".kv") > 10, "few passed vectors in %s", VECTORS);
	check(each("failed", check_failed_one, ".why") > 100, "few failed vectors in %s", VECTORS);
	return check_done();
}
