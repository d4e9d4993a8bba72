/* kv-score - judge the rows of a snapshot: write it again with a score for each row */
#include <stdlib.h>
#include <string.h>

#include "engine/queries.h"
#include "engine/score.h"

static const char *method_name;
static int list;
static const struct method *method;
static struct device device;            /* open with NEED_WINDOW */

static const struct opt opts[] = {
	{ 0, "method", OPT_STRING, &method_name, 0, "NAME",
	    "how to judge; --list names the methods" },
	{ 0, "list", OPT_FLAG, &list, 1, NULL, "list the methods and the options they use" },
	{ .name = NULL }
};

static const struct tool tool = {
	.name = "kv-score",
	.about = "judge the rows of a snapshot: write it again with a score for each row",
	.synopsis = "--method NAME | --list [-qvz] [-j N] [-o FILE] [-s N] [--device DEVICE]\n"
	    "[--keep-last] [--kernel K] [--order WHICH] [--over-queries HOW] [--pool HOW]\n"
	    "[--progress WHEN] [--reduce HOW] [--since POSITION] [--sink N] [--window W]\n"
	    "[snapshot]",
	.opts = opts,
	.more = scoring_opts,
	.takes = TAKES_OUTPUT | TAKES_THREADS | TAKES_PROGRESS,
	.max_operands = 1
};

/* ---- the attention that the rows of a layer have received ---- */

static float *received, *paid;  /* NULL = not there */

static void
forget_mass(void)
{
	free(received);
	free(paid);
	received = paid = NULL;
}

/* From a mASS section, or behind the label of a pAID section, which the reader has checked
 * (kv-snapshot(5), 4.11, 4.13). */
static float *
take_mass(const void *content, uint64_t size)
{
	float *mass = must_alloc(size, 1);

	if (size > 0)
		memcpy(mass, content, size);
	return mass;
}

/* ---- a layer ---- */

/* Standing at KEYS: judges the layer's rows and writes their scores. */
static void
score_layer(struct kv_reader *r, struct kv_writer *w, uint32_t layer, const struct queries *q)
{
	const struct kv_head *head = kv_reader_head(r);
	struct scoring_layer l = { .in = { .layer = layer, .query_heads = head->model.query_heads,
	    .width = head->model.head_width, .rows = kv_current_rows(r), .dtype = head->dtype,
	    .window = q->n, .window_pos = q->pos, .next_position = head->next_position },
	    .queries = q->q, .own_keys = q->own, .own_pos = q->own_pos, .n_own = q->n_own };
	char label[KV_SCORE_LABEL] = "";
	uint64_t total = kv_rows_total(l.in.rows);
	float *score = must_alloc(total, sizeof *score);
	struct kv_span content[2] = { { label, sizeof label }, { score, total * sizeof *score } };

	if ((method->needs & NEED_WINDOW) && q->n == 0)
		die(EXIT_RUN, "%s: layer %u has no observation queries, which method %s needs: "
		    "make the snapshot with kv-prefill --observe", kv_reader_name(r), layer,
		    method->name);
	if ((method->needs & NEED_MASS) && (l.in.mass = received) == NULL)
		die(EXIT_RUN, "%s: layer %u has no attention mass, which method %s needs: make "
		    "the snapshot with kv-prefill --mass", kv_reader_name(r), layer, method->name);
	if ((method->needs & NEED_PROBE_MASS) && (l.in.probe_mass = paid) == NULL)
		die(EXIT_RUN, "%s: layer %u has no attention paid, which method %s needs: add it "
		    "with kv-observe --repeat-context or --accumulate", kv_reader_name(r), layer,
		    method->name);
	if (method->needs & (NEED_KEYS | NEED_WINDOW))
		l.in.keys = input_load(r);
	scoring_judge(&device, &l, score);
	scoring_label(label, sizeof label, q->n);
	output_check(w, kv_write(w, "sCOR", layer, sizeof *score, content, 2));
	free(score);
}

static void
take_queries(struct queries *q, struct kv_reader *r, uint32_t layer)
{
	const void *content = input_load(r);

	queries_take(q, content, kv_reader_head(r), scoring_window(queries_stored(content), layer));
}

static void
score_snapshot(struct kv_reader *r, struct kv_writer *w)
{
	struct queries q = { 0 };
	struct kv_section sec;
	uint32_t used = 0;

	progress_start("score", kv_reader_head(r)->model.layers, "layers");
	while (input_next(r, &sec)) {
		if (strcmp(sec.type, "sCOR") == 0 || strcmp(sec.type, "pROv") == 0)
			continue;               /* replaced; inherited */
		if (strcmp(sec.type, "POSN") == 0) {
			queries_forget(&q);
			forget_mass();
		} else if (strcmp(sec.type, "oBSq") == 0 && (method->needs & NEED_WINDOW))
			take_queries(&q, r, sec.layer);
		else if (strcmp(sec.type, "mASS") == 0 && (method->needs & NEED_MASS))
			received = take_mass(input_load(r), sec.raw_size);
		else if (strcmp(sec.type, "pAID") == 0 && (method->needs & NEED_PROBE_MASS))
			paid = take_mass((const char *)input_load(r) + KV_SCORE_LABEL,
			    sec.raw_size - KV_SCORE_LABEL);
		else if (strcmp(sec.type, "KEYS") == 0) {
			score_layer(r, w, sec.layer, &q);
			used = q.n;
			progress(sec.layer + 1);
		}
		output_copy(r, w);              /* also what is not known: the rows stay */
	}
	progress_end();
	queries_forget(&q);
	forget_mass();
	scoring_sign(used);
}

int
main(int argc, char **argv)
{
	int first = tool_start(&tool, argc, argv);
	struct kv_reader *r;
	struct kv_writer *w;

	if (list) {
		scoring_list();
		return finish();
	}
	method = scoring_check(method_name);
	output_refuse_terminal();
	r = input_open(operand(argc, argv, first));
	if (method->needs & NEED_WINDOW)
		device = device_open();
	w = output_create(kv_reader_head(r));
	score_snapshot(r, w);
	output_commit(w, r);
	kv_close(r);
	scoring_end(device.ops != NULL ? &device : NULL);
	if (device.ops != NULL)
		device_close(&device);
	return finish();
}
