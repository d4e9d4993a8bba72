/* file_kind.c - what a file is, by its first bytes */
#include <sys/stat.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "model/file_kind.h"

#define AGAIN "download it again"

enum { HEAD_BYTES = 512 };

/* What begins so */
static const struct { const char *bytes; size_t n; const char *what; } kinds[] = {
	{ "version https://git-lfs.github.com/", 35,
	    "a Git LFS pointer, not the file: run `git lfs pull` in its folder" },
	{ "version https://hawser", 22, "a Git LFS pointer, not the file: run `git lfs pull`" },
	{ "\x1f\x8b", 2, "compressed with gzip: unpack it first (gunzip)" },
	{ "\x28\xb5\x2f\xfd", 4, "compressed with zstd: unpack it first (unzstd)" },
	{ "\xfd" "7zXZ", 5, "compressed with xz: unpack it first (unxz)" },
	{ "BZh", 3, "compressed with bzip2: unpack it first (bunzip2)" },
	{ "GGUF", 4, "a GGUF file of llama.cpp: name it in place of the folder (-m)" },
	{ "PK\3\4", 4, "a zip archive (PyTorch weights): save the model again with "
	    "save_pretrained() of transformers" },
	{ "\x80\2", 2, "a Python pickle (PyTorch weights): save the model again with "
	    "save_pretrained() of transformers" },
	{ "\xff\xfe", 2, "text in UTF-16: save it as UTF-8" },
	{ "\xfe\xff", 2, "text in UTF-16: save it as UTF-8" },
	{ "\x93NUMPY", 6, "a NumPy array" },
	{ "\x89HDF\r\n", 6, "an HDF5 file" },
};

static int
is_html(const char *head)
{
	if (strncmp(head, "\xef\xbb\xbf", 3) == 0)
		head += 3;
	head += strspn(head, " \t\r\n");
	return strncasecmp(head, "<!doctype html", 14) == 0 || strncasecmp(head, "<html", 5) == 0 ||
	    strncasecmp(head, "<?xml", 5) == 0;
}

/* A length below 2^32, and a JSON object */
static int
is_safetensors(const char *head, size_t n)
{
	return n > 9 && memcmp(head + 4, "\0\0\0", 4) == 0 && head[8] == '{';
}

static int
is_zero(const char *head, size_t n)
{
	return n == HEAD_BYTES && head[0] == 0 && memcmp(head, head + 1, n - 1) == 0;
}

/* NULL: it does not tell */
static const char *
what_is(const char *head, size_t n, enum file_wanted want)
{
	size_t i;

	if (n == 0)
		return "it is empty: " AGAIN;
	if (is_zero(head, n))
		return "it begins with zero bytes only, as half a download: " AGAIN;
	if (is_html(head))
		return "a web page (HTML), as a login or a proxy sends instead of a file: " AGAIN;
	/* before the others: its length can look like their magic */
	if (is_safetensors(head, n))
		return want == WANT_SAFETENSORS ? NULL : want != WANT_SNAPSHOT ?
		    "a safetensors file" :
		    "a safetensors file: if it holds a cache, convert it with kv-convert";
	if (want != WANT_SNAPSHOT && n >= 6 && memcmp(head, "\x8bKVS\r\n", 6) == 0)
		return "a snapshot of a KV cache";
	for (i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
		if (n >= kinds[i].n && memcmp(head, kinds[i].bytes, kinds[i].n) == 0)
			return kinds[i].what;
	if (want != WANT_TEXT && head[strspn(head, " \t\r\n")] == '{')
		return want == WANT_SNAPSHOT ? "a JSON text" : "a JSON text, not weights";
	return NULL;
}

int
file_kind_open(int fd, enum file_wanted want, char *text, size_t size)
{
	char head[HEAD_BYTES + 1];
	const char *what;
	struct stat st;
	ssize_t n;

	if (fstat(fd, &st) == -1 || !S_ISREG(st.st_mode) ||
	    (n = pread(fd, head, HEAD_BYTES, 0)) < 0)
		return 0;
	head[n] = '\0';
	if ((what = what_is(head, (size_t)n, want)) == NULL)
		return 0;
	snprintf(text, size, "%s", what);
	return 1;
}

int
file_kind(const char *path, enum file_wanted want, char *text, size_t size)
{
	/* O_NONBLOCK: a FIFO is not waited for */
	const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	const int why = errno;
	char to[256];
	ssize_t n;
	int known;

	if (fd == -1 && why == ENOENT && (n = readlink(path, to, sizeof to - 1)) > 0) {
		to[n] = '\0';
		snprintf(text, size, "a link to %s, which does not exist, as in an incomplete hub "
		    "cache: " AGAIN, to);
		return 1;
	}
	if (fd == -1)
		return 0;
	known = file_kind_open(fd, want, text, size);
	close(fd);
	return known;
}

int
file_is_there(const char *path)
{
	struct stat st;

	return lstat(path, &st) == 0 || errno != ENOENT;
}

const char *
json_words(const json_error_t *e)
{
	const enum json_error_code code = json_error_code(e);

	if (code == json_error_null_character || code == json_error_null_byte_in_key)
		return "a zero character (\\u0000), which is not supported";
	return e->text;
}
