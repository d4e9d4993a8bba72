/* kv-quantize - store the rows of a snapshot in another type
 *
 * Memory holds the keys, or the values, of one layer in both types. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cache/index.h"
#include "cli/opt_rows.h"
#include "cli/progress.h"
#include "cli/snapshot_io.h"
#include "cli/tool.h"
#include "engine/convert_rows.h"

static const struct opt opts[] = {
	{ 0, "keys", OPT_STRING, &rows_options.keys, 0, "TYPE",
	    "q8_0, q4_0, q4_1, q5_0, int8, fp8, kivi2, kivi4, or back to bf16, f16, f32",
	    OPT_HOW },
	{ 0, "values", OPT_STRING, &rows_options.values, 0, "TYPE", "as --keys", OPT_HOW },
	{ 0, "rotate", OPT_FLAG, &rows_options.rotate, 1, NULL,
	    "quantise the Hadamard transform of rows", OPT_HOW },
	{ 0, "residual", OPT_COUNT, &rows_options.residual, 0, "N",
	    "leave the last N rows of a KV head full; kivi2, kivi4: 32, 64, ... (128)", OPT_HOW },
	{ 0, "skip-layers", OPT_STRING, &rows_options.skip_layers, 0, "LIST",
	    "leave these layers as they are: 0,1,30-31", OPT_HOW },
	{ 'j', "threads", OPT_COUNT, &settings.threads, 0, "N",
	    "threads, 0 = all processors", OPT_COMMON },
	{ .name = NULL }
};

static const struct tool tool = {
	.name = "kv-quantize",
	.synopsis = "[-qvz] [-j N] [-o FILE] [--keys TYPE] [--progress WHEN] [--report FILE]\n"
	    "[--residual N] [--rotate] [--skip-layers LIST] [--values TYPE] [snapshot]",
	.example = "kv-quantize --keys q8_0 --values q4_0 -o small.kv full.kv",
	.opts = opts,
	.takes = TAKES_OUTPUT | TAKES_PROGRESS,
	.max_operands = 1
};

/* Of keys, and of values: bytes before and after, and the error */
struct sums {
	uint64_t before, after;
	struct rows_error error;
};

/* Writes the current section, KEYS or VALS, in the type that the output's head has for it. */
static void
write_rows(struct kv_reader *r, struct kv_writer *w, const struct kv_section *sec,
    const struct kv_head *to, struct sums *sums)
{
	const struct kv_rows *rows = kv_current_rows(r);
	char name[32];
	const struct rows_conversion how = { .from = kv_reader_head(r), .to = to,
		.kind = sec->kind, .layer = sec->layer, .rows = rows,
		.threads = (unsigned)processors(), .name = name };
	const size_t size = converted_size(&how);
	const void *from = input_load(r);
	void *made = must_alloc(size, 1);
	struct engine_error e;

	snprintf(name, sizeof name, "%s layer %u", sec->type, sec->layer);
	must(convert_rows(made, from, &how, &sums->error, &e), &e);
	output_check(w, kv_write(w, sec->type, sec->layer, kv_row_element(
	    kv_head_row_type(to, sec->kind, sec->layer)), &(struct kv_span){ made, size }, 1));
	sums->after += size;
	free(made);
}

/* Returns the section whose rows this one is made from, KEYS or VALS, or its own kind. */
static enum kv_kind
made_from(enum kv_kind kind)
{
	if (kind == KV_VNRM)
		return KV_VALS;
	return kv_kind_is(kind, KV_INDEX) ? KV_KEYS : kind;
}

/* Copies the snapshot with the types of `to`. */
static void
quantize(struct kv_reader *r, struct kv_writer *w, const struct kv_head *to, struct sums *keys,
    struct sums *values)
{
	const struct kv_head *from = kv_reader_head(r);
	struct kv_section sec;
	struct sums *sums;
	unsigned dropped = 0;
	char names[INDEX_COMMANDS];

	progress_start("quantize", from->model.layers, "layers");
	while (input_next(r, &sec)) {
		const int is_rows = sec.kind == KV_KEYS || sec.kind == KV_VALS;
		const enum kv_kind rows = made_from(sec.kind);

		if (sec.kind == KV_PROV)
			continue;               /* inherited */
		sums = sec.kind == KV_KEYS ? keys : values;
		if (is_rows)
			sums->before += sec.raw_size;
		if ((!is_rows && rows == sec.kind) || kv_head_row_type(from, rows, sec.layer) ==
		    kv_head_row_type(to, rows, sec.layer)) {
			output_copy(r, w);      /* unknown sections too: the rows stay */
			sums->after += is_rows ? sec.raw_size : 0;
		} else if (sec.kind == KV_VALS && from->model.latent_rank != 0) {
			output_check(w, kv_write(w, sec.type, sec.layer, kv_row_element(
			    kv_head_row_type(to, sec.kind, sec.layer)), NULL, 0));
		} else if (is_rows)
			write_rows(r, w, &sec, to, sums);
		else
			dropped |= 1u << sec.kind;
		if (sec.kind == KV_VALS)
			progress(sec.layer + 1);
	}
	progress_end();
	if (dropped >> KV_VNRM & 1)
		warning("norms of value outputs are dropped: they are of the values before");
	dropped &= KV_ALL_INDEXES;
	if (dropped != 0)
		warning("indexes of the keys before are dropped: make them again with %s",
		    index_commands(names, dropped));
}

static void
tell(const char *what, const struct sums *s)
{
	note("%s %.1f MiB, now %.1f MiB, relative error %.3g", what,
	    (double)s->before / (1 << 20), (double)s->after / (1 << 20),
	    s->error.squares > 0 ? sqrt(s->error.error_squares / s->error.squares) : 0);
}

int
main(int argc, char **argv)
{
	int first = tool_start(&tool, argc, argv);
	struct sums keys = { 0 }, values = { 0 };
	struct kv_head to;
	struct kv_reader *r;
	struct kv_writer *w;

	opt_rows();
	if (rows_options.keys == NULL && rows_options.values == NULL)
		die(EXIT_USAGE, "--keys or --values is needed");
	output_refuse_terminal();
	r = input_open(operand(argc, argv, first));
	to = *kv_reader_head(r);
	opt_rows_head(&to);
	w = output_create(&to);
	quantize(r, w, &to, &keys, &values);
	tell("keys", &keys);
	tell("values", &values);
	opt_rows_sign();
	output_commit(w, r);
	kv_close(r);
	return finish();
}
