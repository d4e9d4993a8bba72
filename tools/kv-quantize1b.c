/* kv-quantize1b - quantize keys to one bit: add FIER's index to a snapshot
 *
 * Memory holds one layer's keys, and their bits twice: on the device and for the output. */
#include <stdlib.h>
#include <string.h>

#include "cache/index.h"
#include "cli/device.h"
#include "cli/progress.h"
#include "cli/snapshot_io.h"
#include "cli/tool.h"
#include "engine/retrieval_check.h"

static uint32_t group = 32;

static const struct opt opts[] = {
	{ 'g', "group", OPT_COUNT, &group, 0, "N",
	    "rows that share zero point and scale: 16, 32, 64, 128 (32)", OPT_HOW },
	{ .name = NULL }
};

static const struct tool tool = {
	.name = "kv-quantize1b",
	.synopsis = "[-qvz] [-g N] [-j N] [-o FILE] [--device DEVICE] [--progress WHEN]\n"
	    "[--report FILE] [snapshot]",
	.example = "kv-quantize1b -o bits.kv full.kv",
	.opts = opts,
	.takes = TAKES_OUTPUT | TAKES_THREADS | TAKES_PROGRESS,
	.max_operands = 1
};

/* Loads the keys of the current layer on the device; room NULL. */
static void
take_keys(struct layer_rows *rows, const struct device *d, struct area *area, struct kv_reader *r,
    size_t size)
{
	const struct kv_rows *there = kv_current_rows(r);
	struct engine_error e;
	uint64_t at = 0;
	uint32_t g;

	must(area_share(d, area, &rows->k, input_load(r), size, &e), &e);
	for (g = 0; g < rows->heads; at += there->count[g++]) {
		rows->start[g] = at;
		rows->len[g] = there->count[g];
	}
}

/* After KEYS was written: writes their bits. Returns their bytes. */
static uint64_t
write_bits(const struct device *d, struct kv_writer *w, struct layer_index *x,
    const struct layer_rows *rows, uint32_t layer)
{
	uint64_t before = kv_writer_size(w);
	struct engine_error e;

	index_start(x, KV_BITS, group);
	if (index_reserve(x, rows) != 0)
		die(EXIT_RUN, "layer %u: no memory for its keys in one bit", layer);
	index_extend(x, rows);
	must(device_synced(d, &e), &e);
	output_check(w, index_write(x, KV_BITS, w, layer));
	index_drop(x, KV_BITS);
	return kv_writer_size(w) - before;
}

static void
quantize(const struct device *d, struct kv_reader *r, struct kv_writer *w)
{
	const struct kv_head *head = kv_reader_head(r);
	struct layer_rows rows = { .heads = head->model.kv_heads,
	    .width = head->model.head_width, .dtype = head->dtype };
	uint64_t keys = 0, bits = 0;
	struct area keys_there = { 0 };
	struct layer_index x;
	struct kv_section sec;
	struct engine_error e;

	must(retrieval_fit(&head->model, kv_reader_name(r), 0, &e), &e);
	rows.start = must_alloc(rows.heads, sizeof *rows.start);
	rows.len = must_alloc(rows.heads, sizeof *rows.len);
	if (index_init(&x, d->ops, d->dev, rows.heads, rows.width, rows.dtype) != 0)
		die(EXIT_RUN, "no memory for an index");
	progress_start("quantize", head->model.layers, "layers");
	while (input_next(r, &sec)) {
		if (sec.kind == KV_BITS || sec.kind == KV_PROV)
			continue;               /* replaced; inherited */
		if (sec.kind != KV_KEYS) {
			output_copy(r, w);      /* unknown sections too: the rows stay */
			continue;
		}
		if (kv_layer_window(&head->model, sec.layer) != 0) {
			output_copy(r, w);
			continue;
		}
		rows.k_type = kv_head_row_type(head, KV_KEYS, sec.layer);
		take_keys(&rows, d, &keys_there, r, sec.raw_size);
		output_copy(r, w);
		keys += sec.raw_size;
		bits += write_bits(d, w, &x, &rows, sec.layer);
		progress(sec.layer + 1);
	}
	progress_end();
	note("keys %.1f MiB, in one bit %.1f MiB", (double)keys / (1 << 20),
	    (double)bits / (1 << 20));
	index_free(&x);
	area_release(d, &keys_there);
	free(rows.start);
	free(rows.len);
}

int
main(int argc, char **argv)
{
	int first = tool_start(&tool, argc, argv);
	struct kv_reader *r;
	struct kv_writer *w;
	struct device d;

	if (group != 16 && group != 32 && group != 64 && group != 128)
		die(EXIT_USAGE, "--group %u: want 16, 32, 64 or 128", group);
	output_refuse_terminal();
	r = input_open(operand(argc, argv, first));
	input_refuse_residual(r, "no index finds single rows: retrieve from q4_0, q5_0 or q8_0 "
	    "rows without residual");
	d = device_open();
	w = output_create(kv_reader_head(r));
	quantize(&d, r, w);
	sign_count("group", group);
	output_commit(w, r);
	kv_close(r);
	device_close(&d);
	return finish();
}
