/* kv-convert - converts a snapshot to a safetensors file, and back, or to one with rows for each
 * query head
 *
 * The first bytes of the input tell its format. A pipe is first copied into a temporary file:
 * the header of one format needs data from everywhere in the other. */
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/input_twice.h"
#include "cli/progress.h"
#include "cli/snapshot_io.h"
#include "cli/tool.h"
#include "engine/per_query_head.h"
#include "engine/safetensors_convert.h"
#include "model/model.h"

static const char *like;
static int as_stored, for_query_heads;

static const struct opt opts[] = {
	{ 0, "like", OPT_STRING, &like, 0, "SNAPSHOT",
	    "use the model of this snapshot if the file does not name it", OPT_READS },
	{ 0, "as-stored", OPT_FLAG, &as_stored, 1, NULL,
	    "leave quantised rows as they are: tensors of bytes", OPT_WRITES },
	{ 0, "per-query-head", OPT_FLAG, &for_query_heads, 1, NULL,
	    "make a snapshot with rows for each query head, to choose from by itself", OPT_WRITES },
	{ .name = NULL }
};

static const struct tool tool = {
	.name = "kv-convert",
	.synopsis = "[-qvz] [-o FILE] [--as-stored] [--like SNAPSHOT] [--per-query-head]\n"
	    "[--progress WHEN] [--report FILE] [file]",
	.example = "kv-convert -o full.safetensors full.kv",
	.opts = opts,
	.takes = TAKES_OUTPUT | TAKES_PROGRESS,
	.max_operands = 1
};

/* A safetensors file begins with its header's length, 64 bits with zeros in the upper ones, and
 * '{'. */
static int
is_safetensors(const struct input_twice *in)
{
	static const char zero[4];
	char first[9];

	return pread(in->fd, first, sizeof first, 0) == (ssize_t)sizeof first &&
	    memcmp(first + 4, zero, sizeof zero) == 0 && first[8] == '{';
}

static void
to_safetensors(const struct input_twice *in)
{
	const int standard = strcmp(settings.output, "-") == 0;
	struct export x = { .as_stored = as_stored, .step = { progress_step, NULL } };
	struct engine_error e;
	struct kv_reader *r;

	if (like != NULL)
		die(EXIT_USAGE, "--like: %s is a snapshot, and names its model itself",
		    in->name);
	if (settings.write_flags & KV_LZ4)
		die(EXIT_USAGE, "--lz4: tensors of a safetensors file are stored as they are");
	r = input_twice_open(in);
	must(export_measure(&x, r, &e), &e);
	kv_close(r);
	warn_left_behind(x.left);
	x.to = standard ? stdout : text_create(settings.output);
	x.name = standard ? "stdout" : settings.output;
	progress_start("convert", x.head.model.layers, "layers");
	r = input_twice_open(in);
	must(export_begin(&x, r, &e), &e);
	kv_close(r);
	r = input_twice_open(in);
	must(export_rows(&x, r, &e), &e);
	kv_close(r);
	progress_end();
	if (!standard)
		text_commit(x.to);
	export_free(&x);
}

/* Maps the file; a copied pipe has only its descriptor as a name. */
static struct tensor_set *
open_file(const struct input_twice *in, const char *path)
{
	const int piped = strcmp(path, "-") == 0;
	char descriptor[32], err[1024], *one, *two;
	const struct overrides o = { .notice = { warn_notice, NULL } };
	struct tensor_set *st = NULL;
	int rc;

	snprintf(descriptor, sizeof descriptor, "/proc/self/fd/%d", in->fd);
	one = strdup(piped ? descriptor : path);
	two = strdup(piped ? descriptor : path);
	if (one == NULL || two == NULL)
		die(EXIT_RUN, "out of memory");
	rc = safetensors_open_file(dirname(one), basename(two), &o, &st, err, sizeof err);
	must_model(rc, err);
	free(one);
	free(two);
	return st;
}

/* Returns the head of --like. */
static const struct kv_head *
read_like(struct kv_head *head)
{
	struct kv_reader *r;

	if (like == NULL)
		return NULL;
	r = input_open(like);
	*head = *kv_reader_head(r);
	kv_close(r);
	return head;
}

static void
to_snapshot(const struct input_twice *in, const char *path)
{
	struct import x = { .name = in->name, .step = { progress_step, NULL } };
	struct tensor_set *st = open_file(in, path);
	struct kv_head model;
	struct engine_error e;
	struct kv_writer *w;

	if (as_stored)
		die(EXIT_USAGE, "--as-stored: %s is a safetensors file, which says itself how its "
		    "rows are stored", in->name);
	x.from = st;
	must(import_head(&x, read_like(&model), &e), &e);
	w = output_create(&x.head);
	progress_start("convert", x.head.model.layers, "layers");
	must(import_write(&x, w, &e), &e);
	progress_end();
	output_commit(w, NULL);
	safetensors_close(st);
}

/* Makes a snapshot with rows for each query head. */
static void
to_query_heads(const char *path)
{
	struct per_query_head job = { .step = { progress_step, NULL },
	    .notice = { warn_notice, NULL } };
	struct engine_error e;
	struct kv_reader *r;
	struct kv_writer *w;
	struct kv_head head;

	if (like != NULL || as_stored)
		die(EXIT_USAGE, "--per-query-head: not with --%s, which concerns safetensors files",
		    like != NULL ? "like" : "as-stored");
	r = input_open(path);
	if (kv_reader_head(r)->model.latent_rank != 0)
		die(EXIT_UNSUPPORTED, "%s: --per-query-head: with latent attention a row is that "
		    "of all query heads", kv_reader_name(r));
	head = per_query_head_of(kv_reader_head(r));
	if (head.model.kv_heads == kv_reader_head(r)->model.kv_heads)
		warning("%s: each query head has rows of its own already", kv_reader_name(r));
	w = output_create(&head);
	progress_start("convert", head.model.layers, "layers");
	must(per_query_head(&job, r, w, &e), &e);
	progress_end();
	warn_left_behind(job.left);
	output_commit(w, r);
	kv_close(r);
}

int
main(int argc, char **argv)
{
	int first = tool_start(&tool, argc, argv);
	const char *path = operand(argc, argv, first);
	struct input_twice in;

	output_refuse_terminal();
	if (for_query_heads) {
		to_query_heads(path);
		return finish();
	}
	input_twice_start(&in, path);
	if (is_safetensors(&in))
		to_snapshot(&in, path);
	else
		to_safetensors(&in);
	input_twice_end(&in);
	return finish();
}
