/* model_files.c - the files of a model folder: opening, JSON, messages */

#include <sys/stat.h>

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model/file_kind.h"
#include "model/model_files.h"
#include "model/model.h"

int
model_file_fail(char *err, size_t errlen, int code, const char *file, const char *fmt, ...)
{
	va_list ap;
	int n = snprintf(err, errlen, "%s: ", file);

	if (n >= 0 && (size_t)n < errlen) {
		va_start(ap, fmt);
		vsnprintf(err + n, errlen - (size_t)n, fmt, ap);
		va_end(ap);
	}
	return code;
}

char *
model_file_path(const char *dir, const char *name)
{
	char *path;

	if (asprintf(&path, "%s/%s", dir, name) == -1)
		return NULL;
	return path;
}

int
model_file_open(const char *path, uint64_t *size, char *err, size_t errlen)
{
	char kind[512];
	struct stat st;
	int fd, why;

	/* O_NONBLOCK: a FIFO in place of the file is refused below instead of waited for */
	if ((fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)) == -1) {
		why = errno;
		return model_file_fail(err, errlen, MODEL_EIO, path, "%s",
		    file_kind(path, WANT_TEXT, kind, sizeof kind) ? kind : strerror(why));
	}
	if (fstat(fd, &st) == -1) {
		model_file_fail(err, errlen, MODEL_EIO, path, "%s", strerror(errno));
		close(fd);
		return MODEL_EIO;
	}
	if (!S_ISREG(st.st_mode)) {
		close(fd);
		return model_file_fail(err, errlen, MODEL_EIO, path, "not a regular file");
	}
	*size = (uint64_t)st.st_size;
	return fd;
}

int
model_file_json(const char *path, json_t **out, char *err, size_t errlen)
{
	json_error_t e;
	char kind[512];
	json_t *json;
	uint64_t size;
	int fd;

	*out = NULL;
	if ((fd = model_file_open(path, &size, err, errlen)) < 0)
		return fd;
	json = json_loadfd(fd, JSON_REJECT_DUPLICATES, &e);
	close(fd);
	if (json == NULL && json_error_code(&e) == json_error_out_of_memory)
		return model_file_fail(err, errlen, MODEL_ENOMEM, path, "out of memory");
	if (json == NULL && file_kind(path, WANT_TEXT, kind, sizeof kind))
		return model_file_fail(err, errlen, MODEL_EINVALID, path, "%s", kind);
	if (json == NULL)
		return model_file_fail(err, errlen, MODEL_EINVALID, path, "line %d, column %d: %s",
		    e.line, e.column, json_words(&e));
	if (!json_is_object(json)) {
		json_decref(json);
		return model_file_fail(err, errlen, MODEL_EINVALID, path, "not a JSON object");
	}
	*out = json;
	return MODEL_OK;
}

void
model_hash_text(XXH128_hash_t hash, char hex[33])
{
	static const char digit[] = "0123456789abcdef";
	XXH128_canonical_t c;
	size_t i;

	XXH128_canonicalFromHash(&c, hash);
	for (i = 0; i < sizeof c.digest; i++) {
		hex[2 * i] = digit[c.digest[i] >> 4];
		hex[2 * i + 1] = digit[c.digest[i] & 15];
	}
	hex[32] = '\0';
}
