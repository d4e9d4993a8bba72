/* kv-footprint - KV footprint, memory and peak of snapshots, measured from their event logs */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/json.h"
#include "cli/snapshot_io.h"
#include "cli/terminal_escape.h"
#include "cli/tool.h"
#include "methods/footprint.h"

static const char *by;
static int stored_only;

static const struct opt opts[] = {
	{ 0, "stored-only", OPT_FLAG, &stored_only, 1, NULL,
	    "leave out probe tokens: drafts, repetitions, patches",
	    OPT_HOW },
	{ 0, "by", OPT_STRING, &by, 0, "WHAT", "a line for each layer, or each KV head (head)",
	    OPT_WRITES },
	{ .name = NULL }
};

static const struct tool tool = {
	.name = "kv-footprint",
	.synopsis = "[-qv] [--by WHAT] [--json] [--report FILE] [--stored-only] [snapshot ...]",
	.example = "kv-footprint full.kv small.kv",
	.opts = opts,
	.takes = TAKES_JSON,
	.max_operands = -1u
};

/* Reads a snapshot to its end, skipping keys and values if the input can seek. */
static void
measure(struct footprint *f, struct kv_reader *r)
{
	const struct kv_head *head = kv_reader_head(r);
	struct kv_log *log = kv_log_new(head);
	struct kv_section sec;
	struct kv_event e;
	int code = KV_OK;

	if (log == NULL)
		die(EXIT_RUN, "out of memory");
	while (input_next(r, &sec)) {
		if (sec.kind == KV_KEYS || sec.kind == KV_VALS)
			code = kv_skip(r);
		else
			code = kv_log_see(log, r, &sec);
		if (code < 0)
			input_failed(r, code);
	}
	if (kv_log_count(log, 0) == 0)
		die(EXIT_RUN, "%s has no event log, so its footprint is unknown: make it with "
		    "kv-prefill from the start (kv-info shows what it holds now)",
		    kv_reader_name(r));
	if (footprint_init(f, head->model.layers, head->model.kv_heads, kv_log_tokens(log)) != 0)
		die(EXIT_RUN, "out of memory");
	f->stored_only = stored_only;
	while ((code = kv_log_next(log, &e)) == 1)
		footprint_add(f, &e);
	if (code < 0)
		die(EXIT_DAMAGED, "%s", kv_log_error(log));
	kv_log_free(log);
}

/* Some KV heads: those from g0 on, before g1, of layers from l0 on, before l1 */
struct part {
	uint32_t l0, l1, g0, g1;
};

/* The bytes of their rows as they are stored */
static uint64_t
bytes_of(const struct kv_head *head, const struct footprint *f, const struct part *p)
{
	uint64_t bytes = 0;
	uint32_t l, g, rows;

	for (l = p->l0; l < p->l1; l++)
		for (g = p->g0; g < p->g1; g++) {
			rows = (uint32_t)footprint_head(f, l, g).rows;
			bytes += kv_head_bytes(head, KV_KEYS, l, rows) +
			    kv_head_bytes(head, KV_VALS, l, rows);
		}
	return bytes;
}

static void
print_titles(void)
{
	printf("%9s %9s %9s %9s %13s  ", "footprint", "memory", "peak", "kept", "bytes");
	if (by != NULL)
		printf("%5s  ", "layer");
	if (by != NULL && strcmp(by, "head") == 0)
		printf("%4s  ", "head");
	puts("snapshot");
}

/* layer, head: NULL: no such column */
static void
print_line(const struct kv_reader *r, const struct footprint *f, const struct share *s,
    const struct part *p, const char *layer, const char *head)
{
	printf("%8.2f%% %8.2f%% %8.2f%% %8.2f%% %13" PRIu64 "  ", 100 * s->footprint,
	    100 * s->memory, 100 * s->peak, 100 * s->kept,
	    bytes_of(kv_reader_head(r), f, p));
	if (layer != NULL)
		printf("%5s  ", layer);
	if (head != NULL)
		printf("%4s  ", head);
	puts(shown(kv_reader_name(r)));
}

static void
print_text(const struct footprint *f, const struct kv_reader *r)
{
	struct share s = footprint_all(f);
	int heads = by != NULL && strcmp(by, "head") == 0;
	char layer[16], head[16];
	uint32_t l, g;

	print_line(r, f, &s, &(struct part){ 0, f->layers, 0, f->heads },
	    by != NULL ? "all" : NULL, heads ? "all" : NULL);
	for (l = 0; by != NULL && l < f->layers; l++) {
		snprintf(layer, sizeof layer, "%u", l);
		if (!heads) {
			s = footprint_layer(f, l);
			print_line(r, f, &s, &(struct part){ l, l + 1, 0, f->heads }, layer,
			    NULL);
		}
		for (g = 0; heads && g < f->heads; g++) {
			snprintf(head, sizeof head, "%u", g);
			s = footprint_head(f, l, g);
			print_line(r, f, &s, &(struct part){ l, l + 1, g, g + 1 }, layer, head);
		}
	}
}

static json_t *
share_json(const struct share *s)
{
	json_t *o = json_object();

	put_value(o, "footprint", json_real(s->footprint));
	put_value(o, "memory", json_real(s->memory));
	put_value(o, "peak", json_real(s->peak));
	put_value(o, "kept", json_real(s->kept));
	put_count(o, "rows", s->rows);
	return o;
}

static json_t *
layer_json(const struct footprint *f, uint32_t l)
{
	struct share s = footprint_layer(f, l);
	json_t *o = share_json(&s), *heads;
	uint32_t g;

	if (strcmp(by, "layer") == 0)
		return o;
	heads = json_array();
	for (g = 0; g < f->heads; g++) {
		s = footprint_head(f, l, g);
		json_array_append_new(heads, share_json(&s));
	}
	put_value(o, "heads", heads);
	return o;
}

static void
print_snapshot_json(const struct footprint *f, const struct kv_reader *r)
{
	struct share s = footprint_all(f);
	json_t *o = share_json(&s);
	uint32_t l;

	put_text(o, "snapshot", kv_reader_name(r));
	put_count(o, "tokens", f->tokens);
	put_count(o, "kv_bytes", bytes_of(kv_reader_head(r), f,
	    &(struct part){ 0, f->layers, 0, f->heads }));
	if (by == NULL) {
		print_json(o);
		return;
	}
	print_json_begin(o, "layers");
	for (l = 0; l < f->layers; l++)
		print_json_element(layer_json(f, l));
	print_json_end();
}

static void
do_snapshot(const char *path)
{
	struct kv_reader *r = input_open(path);
	static int titles;
	struct footprint f;

	measure(&f, r);
	if (settings.json)
		print_snapshot_json(&f, r);
	else {
		if (!titles++)
			print_titles();
		print_text(&f, r);
	}
	footprint_free(&f);
	kv_close(r);
}

int
main(int argc, char **argv)
{
	int first = tool_start(&tool, argc, argv), i;

	if (by != NULL && strcmp(by, "layer") != 0 && strcmp(by, "head") != 0)
		die(EXIT_USAGE, "--by %s: want layer or head", by);
	if (first == argc)
		do_snapshot("-");
	for (i = first; i < argc; i++)
		do_snapshot(argv[i]);
	return finish();
}
