/* kvfile_output.c - the writer: names, modes, pipes, full disks, and what it refuses */

#include "kvfile_sample.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void
check_full(void)
{
	struct sample s = large_sample;
	struct kv_head head;
	struct kv_writer *w;

	check(sample_write("/dev/full", &small_sample) == KV_EIO,
	    "a small snapshot fits on a full disk");
	check(sample_write("/dev/full", &s) == KV_EIO, "a large snapshot fits on a full disk");
	sample_head(&head, &s);
	check(kv_create("/dev/full", &head, 0, &w) == KV_EIO &&
	    strcmp(kv_writer_error(w),
	    "/dev/full: write from byte 0 on: No space left on device") == 0,
	    "%s", kv_writer_error(w));
	check(kv_commit(w) == KV_EIO, "a failure does not stay");
	kv_writer_free(w);
	kv_writer_free(NULL);
	check(kv_create("/nowhere/x.kv", &head, 0, &w) == KV_EIO, "a folder that is not there");
	kv_writer_free(w);
	check(kv_create("/tmp", &head, 0, &w) == KV_EIO, "a folder as output");
	kv_writer_free(w);
}

static mode_t
mode_of(const char *file)
{
	struct stat st;

	return stat(file, &st) == 0 ? st.st_mode & 07777 : 0;
}

static void
check_names(void)
{
	struct kv_head head;
	struct kv_writer *w;
	char temporary[200];
	struct stat st;

	umask(027);
	check(sample_write(path("new.kv"), &small_sample) == KV_OK &&
	    mode_of(path("new.kv")) == 0640,
	    "mode of a new file: %o", mode_of(path("new.kv")));
	chmod(path("new.kv"), 0604);
	check(sample_write(path("new.kv"), &small_sample) == KV_OK &&
	    mode_of(path("new.kv")) == 0604,
	    "mode of a replaced file: %o", mode_of(path("new.kv")));
	(void)symlink("new.kv", path("link.kv"));
	check(sample_write(path("link.kv"), &large_sample) == KV_OK &&
	    lstat(path("link.kv"), &st) == 0 && S_ISLNK(st.st_mode) &&
	    stat(path("new.kv"), &st) == 0 && st.st_size > 1000000, "a symbolic link was replaced");

	sample_head(&head, &small_sample);
	check(kv_create(path("gone.kv"), &head, 0, &w) == KV_OK, "%s", kv_writer_error(w));
	snprintf(temporary, sizeof temporary, "%s", kv_writer_temporary(w));
	check(strncmp(temporary, path("gone.kv.tmp."), strlen(path("gone.kv.tmp."))) == 0 &&
	    access(temporary, F_OK) == 0, "temporary name %s", temporary);
	check(access(path("gone.kv"), F_OK) != 0, "the name is there before the file is whole");
	check(kv_commit(w) == KV_EINVAL && strstr(kv_writer_error(w), "TOKS is missing"), "%s",
	    kv_writer_error(w));
	kv_writer_free(w);
	check(access(temporary, F_OK) != 0 && access(path("gone.kv"), F_OK) != 0, "files are left");

	/* The temporary name of a process that was killed. */
	spill(temporary, "x", 1);
	check(sample_write(path("gone.kv"), &small_sample) == KV_OK &&
	    access(path("gone.kv"), F_OK) == 0,
	    "a stale temporary file is in the way");

	check(kv_create("", &head, 0, &w) == KV_EIO &&
	    strstr(kv_writer_error(w), "name of the output is empty") != NULL, "an empty name");
	kv_writer_free(w);
	(void)symlink("far.kv", path("dangling.kv"));
	check(sample_write(path("dangling.kv"), &small_sample) == KV_OK &&
	    lstat(path("dangling.kv"), &st) == 0 && S_ISLNK(st.st_mode) &&
	    access(path("far.kv"), F_OK) == 0, "a link that leads nowhere is followed");
	(void)symlink("loop.kv", path("loop.kv"));
	check(kv_create(path("loop.kv"), &head, 0, &w) == KV_EIO, "a link to itself");
	kv_writer_free(w);
}

/* What a killed writer left goes with the next one; what a living one writes, and what only looks
 * alike, stays. */
static void
check_stale(void)
{
	static const char *const others[] = { "old.kv.tmp.", "old.kv.tmp.12x", "old.kv.tmp.1.2.3",
	    "other.kv.tmp.12", "old.kv.tmp.x" };
	struct kv_head head;
	struct kv_writer *w;
	char living[200];
	size_t i;
	int status;

	for (i = 0; i < sizeof others / sizeof *others; i++)
		spill(path(others[i]), "x", 1);
	spill(path("old.kv.tmp.12"), "x", 1);
	spill(path("old.kv.tmp.12.3"), "x", 1);
	sample_head(&head, &small_sample);
	check(kv_create(path("old.kv"), &head, 0, &w) == KV_OK, "%s", kv_writer_error(w));
	snprintf(living, sizeof living, "%s", kv_writer_temporary(w));
	check(access(path("old.kv.tmp.12"), F_OK) != 0 && access(path("old.kv.tmp.12.3"),
	    F_OK) != 0, "files of dead writers stay");
	fflush(stdout);
	if (fork() == 0)
		_exit(sample_write(path("old.kv"), &small_sample) != KV_OK);
	check(wait(&status) > 0 && status == 0 && access(living, F_OK) == 0,
	    "the file of a living writer was removed");
	kv_writer_free(w);
	for (i = 0; i < sizeof others / sizeof *others; i++)
		check(access(path(others[i]), F_OK) == 0, "%s was removed", others[i]);
}

static void
check_pipe(void)
{
	struct bytes file, piped;
	int status;

	check(sample_write(path("file.kv"), &large_sample) == KV_OK, "not written");
	check(mkfifo(path("fifo"), 0600) == 0, "mkfifo");
	fflush(stdout);
	if (fork() == 0)
		_exit(sample_write(path("fifo"), &large_sample) != KV_OK);
	piped = slurp(path("fifo"));
	file = slurp(path("file.kv"));
	check(wait(&status) > 0 && status == 0, "writing to a FIFO: status %d", status);
	check(same(file, piped), "a FIFO gets other bytes than a file");
	free(file.data);
	free(piped.data);
}

/* A writer that stands in layer 0 after its positions: heads with 1 and 2 rows. */
static struct kv_writer *
begin(void)
{
	static const uint32_t pos[] = { 5, 6 }, count[] = { 1, 2 };
	static const uint32_t *const lists[] = { pos, pos };
	struct kv_rows rows = { 2, count, lists };
	struct kv_span token = { "\1\0\0", 4 };
	struct kv_head head;
	struct kv_writer *w;

	sample_head(&head, &small_sample);
	check(kv_create("/dev/null", &head, 0, &w) == KV_OK &&
	    kv_write(w, "TOKS", KV_NO_LAYER, 1, &token, 1) == KV_OK &&
	    kv_write_rows(w, 0, &rows) == KV_OK, "%s", kv_writer_error(w));
	return w;
}

static void
refused(const char *type, uint32_t layer, unsigned element, const void *data, size_t size,
    const char *message)
{
	struct kv_span span = { data, size };
	struct kv_writer *w = begin();
	int code = kv_write(w, type, layer, element, &span, 1);

	check(code == KV_EINVAL && strstr(kv_writer_error(w), message) != NULL,
	    "%s: %d %s, not %s", type,
	    code, kv_writer_error(w), message);
	kv_writer_free(w);
}

static void
check_refusals(void)
{
	uint8_t data[400] = { 0 };
	uint32_t none = KV_NO_LAYER;
	struct kv_writer *w;

	refused("VALS", 0, 2, data, 48, "KEYS layer 0 is missing");
	refused("POSN", 0, 1, data, 12, "");
	refused("POSN", 1, 1, "\1\0\0\0\1\0\0\0\1\0\0", 12, "KEYS layer 0 is missing");
	refused("KEYS", 1, 2, data, 48, "KEYS layer 0 is missing");
	refused("KEYS", 0, 2, data, 47, "must be 48");
	refused("KEYS", 0, 4, data, 48, "element size");
	refused("KEYS", none, 2, data, 48, "layer number");
	refused("TOKS", none, 1, data, 4, "repeated");
	refused("LGTS", none, 4, data, 200, "is missing");
	refused("XYZW", 0, 1, data, 4, "not one that");
	refused("HEAD", none, 1, data, 4, "not one that");
	refused("xyZ", none, 1, data, 4, "not a section type");
	refused("xyzw", none, 1, data, 4, "not a section type");
	refused("xVTs", 1, 1, data, 4, "outside its layer");
	refused("xVTs", 0, 3, data, 4, "element size");
	refused("oBSq", 0, 2, data, 128, "source 0");
	data[7] = 0x80;
	refused("mASS", 0, 4, data, 24, "head 0 query head 1 row 0: the value is negative");
	refused("mASS", 0, 4, data, 12, "must be 24");
	data[7] = 0;
	refused("pAID", 0, 4, data, 24, "must be 216");
	data[192 + 7] = 0x80;
	refused("pAID", 0, 4, data, 216, "head 0 query head 1 row 0: the value is negative");
	data[192 + 7] = 0;
	data[0] = 2;
	data[4] = 1;
	refused("oBSq", 0, 2, data, 128, "no query has own keys");
	data[0] = data[4] = 0;
	memset(data + 192 + 8, 0xff, 4);
	refused("sCOR", 0, 4, data, 192 + 12, "head 1 row 1: the score is not a number");
	memset(data, 'x', 192);
	memset(data + 192, 0, 12);
	refused("sCOR", 0, 4, data, 192 + 12, "label");

	w = begin();
	check(kv_sign(w, "t", "1", "[]") == KV_EINVAL, "options that are no object");
	kv_writer_free(w);
	w = begin();
	check(kv_commit(w) == KV_EINVAL && strstr(kv_writer_error(w), "KEYS layer 0 is missing"),
	    "%s",
	    kv_writer_error(w));
	kv_writer_free(w);
}

static void
check_heads(void)
{
	struct kv_head good, head;
	struct kv_writer *w;
	int i;

	sample_head(&good, &small_sample);
	for (i = 0; i < 8; i++) {
		head = good;
		switch (i) {
		case 0: head.model.kv_heads = 3; break;
		case 1: head.model.layers = 0; break;
		case 2: head.model.head_width = 1025; break;
		case 3: head.model.norm_eps = strtod("nan", NULL); break;
		case 4: head.model.weights[5] = 'X'; break;
		case 5: memset(head.model.architecture, 'a', 32); break;
		case 6: head.dtype = (enum kv_dtype)7; break;
		case 7: strcpy(head.model.architecture, "\xff"); break;
		}
		check(kv_create("/dev/null", &head, 0, &w) == KV_EINVAL, "head %d is written", i);
		kv_writer_free(w);
	}
	check(kv_create("/dev/null", &good, 4, &w) == KV_EINVAL, "a flag that is none");
	kv_writer_free(w);
}

int
main(void)
{
	check_full();
	check_names();
	check_stale();
	check_pipe();
	check_refusals();
	check_heads();
	return check_done();
}
