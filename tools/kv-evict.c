/* kv-evict - drop the rows of a snapshot that matter least */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/opt_evict.h"
#include "engine/kept_rows.h"
#include "engine/reposition.h"
#include "cli/tool.h"
#include "cli/reread.h"
#include "libkvfile/codec.h"
#include "model/index.h"

static int keep_queries;
static const char *positions = "original";

static const struct opt opts[] = {
	{ 0, "keep-queries", OPT_FLAG, &keep_queries, 1, NULL,
	    "keep the observation queries, to score again" },
	{ 0, "positions", OPT_STRING, &positions, 0, "WHICH",
	    "original, or compact: number rows anew, turn their keys" },
	{ .name = NULL }
};

static const struct tool tool = {
	.name = "kv-evict",
	.about = "drop the rows of a snapshot that matter least",
	.synopsis = "--budget N | --rate R | --heads FILE [-qvz] [-o FILE] [--alpha A]\n"
	    "[--keep-queries] [--normalize] [--of WHAT] [--policy NAME]\n"
	    "[--positions WHICH] [--progress WHEN] [--recent N] [--select BY] [--since POSITION]\n"
	    "[--sink N] [--skip-layers LIST] [--small WHAT] [--sparsity S] [snapshot]",
	.opts = opts,
	.more = evict_opts,
	.takes = TAKES_OUTPUT | TAKES_PROGRESS,
	.max_operands = 1
};

/* A section that stands between POSN and sCOR has to wait: which rows stay, and so the new
 * POSN, is known only after sCOR. */
struct waiting {
	struct kv_section sec;
	void *content;
	size_t values;          /* where they begin in it; KV_PER_ROW */
	struct waiting *next;
};

/* What is known of the layer at hand. */
struct layer {
	int chosen;             /* kept is valid, POSN is written */
	int whole;              /* every row stays */
	struct kept kept;
	struct waiting *waiting, **tail;
};

static struct evictor evictor;
static int compact;                     /* --positions compact */
static struct reposition reposition;
static uint32_t tokens;                 /* token ids seen */
static uint64_t rows_before, rows_after;
static uint32_t *before, *after;        /* [L][G] rows, for the event log */

/* Indexes are made from the keys of their layer (kv-snapshot(5), 4.14): they stay as long as
 * these do. 1 << enum kv_kind for each that went. */
static unsigned dropped;

/* ---- sections that wait ---- */

static void
wait_for_choice(struct layer *l, struct kv_reader *r, const struct kv_section *sec)
{
	struct waiting *x = must_alloc(1, sizeof *x);
	const void *content = input_load(r);
	struct kv_values v;

	x->sec = *sec;
	x->content = must_alloc(sec->raw_size, 1);
	if (sec->raw_size > 0)
		memcpy(x->content, content, sec->raw_size);
	if (kv_kind_is(sec->kind, KV_PER_ROW)) {
		input_check(r, kv_load_values(r, &v));
		x->values = sec->raw_size - v.n * sizeof *v.value;
	}
	*l->tail = x;
	l->tail = &x->next;
}

/* Of a single layer we know whether its rows have changed. Of the whole snapshot that is
 * certain in advance only with a rate of 1. */
static int
rows_changed(const struct layer *l, const struct kv_section *sec)
{
	return sec->layer != KV_NO_LAYER ? !l->whole : !evictor_keeps_all(&evictor);
}

static void
release_waiting(struct layer *l, struct kv_reader *r, struct kv_writer *w)
{
	const struct kv_model *m = &kv_reader_head(r)->model;
	struct waiting *x;
	struct kv_span span;
	int per_row;

	while ((x = l->waiting) != NULL) {
		span.data = x->content;
		span.size = x->sec.raw_size;
		per_row = kv_kind_is(x->sec.kind, KV_PER_ROW);
		if (per_row)            /* the values end the content */
			span.size = x->values + sizeof(float) *
			    kept_values((void *)((char *)x->content + x->values),
			    kv_current_rows(r), &l->kept, m->query_heads / m->kv_heads);
		if (per_row || !rows_changed(l, &x->sec) || kv_is_safe(x->sec.type))
			output_check(w, kv_write(w, x->sec.type, x->sec.layer,
			    x->sec.element_size, &span, 1));
		else
			warning("section %s depends on the rows, which have changed, and is not "
			    "known: dropped", x->sec.type);
		l->waiting = x->next;
		free(x->content);
		free(x);
	}
	l->tail = &l->waiting;
}

/* ---- choosing ---- */

/* Writes which rows stay. */
static void
write_kept_rows(struct kv_writer *w, uint32_t layer, const struct kv_rows *old,
    const struct kept *kept)
{
	struct engine_error e;
	struct kv_rows rows;

	must(kept_positions(&rows, old, kept, compact ? &reposition : NULL, &e), &e);
	output_check(w, kv_write_rows(w, layer, &rows));
	kept_positions_free(&rows);
}

/* What the layer is chosen by. Standing at its sCOR, or at POSN where scores are not needed. */
static struct evict_input
layer_input(struct kv_reader *r, const struct kv_section *sec)
{
	const struct kv_head *head = kv_reader_head(r);
	struct evict_input in = { .layer = sec->layer, .layers = head->model.layers,
	    .next_position = head->next_position, .tokens = tokens };
	struct kv_values scores;

	if (sec->kind == KV_SCOR) {
		input_check(r, kv_load_values(r, &scores));
		in.score = scores.value;
	}
	in.rows = sec->kind == KV_POSN ? input_rows(r) : kv_current_rows(r);
	return in;
}

static void
choose(struct layer *l, struct kv_reader *r, struct kv_writer *w, const struct kv_section *sec)
{
	struct evict_input in = layer_input(r, sec);
	const struct kv_rows *rows = in.rows;
	struct engine_error e;
	uint64_t stay = 0;
	size_t at;
	uint32_t g;

	must(evictor_choose(&evictor, &in, &l->kept, &e), &e);
	for (g = 0; g < l->kept.heads; g++) {
		at = (size_t)sec->layer * rows->heads + g;
		before[at] = rows->count[g];
		after[at] = l->kept.count[g];
		stay += l->kept.count[g];
	}
	rows_before += kv_rows_total(rows);
	rows_after += stay;
	l->whole = stay == kv_rows_total(rows);
	l->chosen = 1;
	write_kept_rows(w, sec->layer, rows, &l->kept);
	release_waiting(l, r, w);
}

/* ---- dropping ---- */

/* Standing at KEYS or VALS: writes the rows that stay. */
static void
write_kept_content(struct kv_reader *r, struct kv_writer *w, const struct kv_section *sec,
    const struct kept *kept)
{
	const struct kv_head *head = kv_reader_head(r);
	const size_t size = head->model.head_width * kv_dtype_size(head->dtype);
	struct engine_error e;
	struct kv_span *spans;
	size_t n;

	must(kept_spans(&spans, &n, input_load(r), size, kv_current_rows(r), kept, &e), &e);
	output_check(w, kv_write(w, sec->type, sec->layer, sec->element_size, spans, n));
	free(spans);
}

/* Standing at eVNt, behind all layers: the log with this eviction at its end. */
static void
write_log(struct kv_reader *r, struct kv_writer *w, const struct kv_section *sec)
{
	const struct kv_head *head = kv_reader_head(r);
	const struct kv_model *m = &head->model;
	struct kv_event e = { KV_EVENT_EVICT, compact ? reposition.next : head->next_position, 0, 0,
	    m->layers, before, after };
	struct kv_log_content log = { .data = NULL };
	struct kv_span span;

	if (kv_log_copy(&log, input_load(r), sec->raw_size, m->kv_heads) != KV_OK ||
	    kv_log_append(&log, &e, m->kv_heads) != KV_OK)
		die(EXIT_RUN, "no memory for the event log");
	span = (struct kv_span){ log.data, log.size };
	output_check(w, kv_write(w, sec->type, sec->layer, sec->element_size, &span, 1));
	free(log.data);
}

/* Standing at KEYS. */
static void
write_turned_keys(struct kv_reader *r, struct kv_writer *w, const struct kv_section *sec,
    const struct kept *kept)
{
	const struct kv_head *head = kv_reader_head(r);
	struct kv_span span = { NULL, 0 };
	struct engine_error e;
	uint32_t g, E = head->model.head_width;
	void *keys;

	for (g = 0; g < kept->heads; g++)
		span.size += kept->count[g] * E * kv_dtype_size(head->dtype);
	span.data = keys = must_alloc(span.size, 1);
	must(reposition_keys(&reposition, keys, input_load(r), head->dtype, E, kv_current_rows(r),
	    kept, &e), &e);
	output_check(w, kv_write(w, sec->type, sec->layer, sec->element_size, &span, 1));
	free(keys);
}

/* Once for all layers. */
static void
report_indexes(void)
{
	char commands[INDEX_COMMANDS];

	if (dropped != 0)
		warning("indexes of layers whose keys have changed are dropped; what makes them "
		    "anew: %s", index_commands(commands, dropped));
}

static void
no_scores(const struct kv_reader *r, uint32_t layer)
{
	die(EXIT_RUN, "%s: layer %u has no scores: run kv-score first", kv_reader_name(r), layer);
}

/* Standing at KEYS or VALS. */
static void
pass_tensor(struct kv_reader *r, struct kv_writer *w, const struct kv_section *sec,
    const struct layer *l)
{
	if (!l->chosen)
		no_scores(r, sec->layer);
	if (compact && sec->kind == KV_KEYS)
		write_turned_keys(r, w, sec, &l->kept);
	else if (l->whole)
		output_copy(r, w);
	else
		write_kept_content(r, w, sec, &l->kept);
}

/* An index, mASS, pAID, or a section that is not known. An index that goes is passed over. */
static void
pass_other(struct kv_reader *r, struct kv_writer *w, const struct kv_section *sec, struct layer *l)
{
	if (kv_kind_is(sec->kind, KV_INDEX)) {
		if (l->whole && !compact)
			output_copy(r, w);
		else
			dropped |= 1u << sec->kind;
	} else if (compact && !kv_kind_is(sec->kind, KV_PER_ROW)) {
		warning("section %s may depend on the positions, which have changed, and is not "
		    "known: dropped", sec->type);
	} else if (kv_kind_is(sec->kind, KV_PER_ROW) || (l->tail != NULL && !l->chosen)) {
		wait_for_choice(l, r, sec);
		if (l->chosen)
			release_waiting(l, r, w);
	} else {
		output_copy_unknown(r, w, rows_changed(l, sec));
	}
}

/* One section of a layer, or one outside of them (NULL before the first layer). */
static void
pass(struct kv_reader *r, struct kv_writer *w, const struct kv_section *sec, struct layer *l)
{
	switch (sec->kind) {
	case KV_TOKS:
		tokens = (uint32_t)(sec->raw_size / sizeof(uint32_t));
		output_copy(r, w);
		break;
	case KV_POSN:
		kept_free(&l->kept);
		*l = (struct layer){ .tail = &l->waiting };
		if (!evictor_needs_scores(&evictor, sec->layer))
			choose(l, r, w, sec);
		break;
	case KV_OBSQ:
		if (keep_queries && l->chosen)
			output_copy(r, w);
		else if (keep_queries)
			wait_for_choice(l, r, sec);
		break;
	case KV_SCOR:
		if (!l->chosen)
			choose(l, r, w, sec);
		break;
	case KV_KEYS:
	case KV_VALS:
		pass_tensor(r, w, sec, l);
		break;
	case KV_LGTS:
		output_copy(r, w);
		break;
	case KV_EVNT:
		write_log(r, w, sec);
		break;
	case KV_PROV:
		break;                          /* inherited */
	default:
		pass_other(r, w, sec, l);
	}
}

static void
evict_snapshot(struct kv_reader *r, struct kv_writer *w)
{
	const struct kv_model *m = &kv_reader_head(r)->model;
	struct layer layer = { 0 };
	struct kv_section sec;

	before = must_alloc((size_t)m->layers * m->kv_heads, sizeof *before);
	after = must_alloc((size_t)m->layers * m->kv_heads, sizeof *after);
	progress_start("evict", kv_reader_head(r)->model.layers, "layers");
	while (input_next(r, &sec)) {
		pass(r, w, &sec, &layer);
		if (sec.kind == KV_VALS)
			progress(sec.layer + 1);
	}
	progress_end();
	kept_free(&layer.kept);
	free(before);
	free(after);
}

/* ---- reading ahead ---- */

static uint32_t longest;                /* rows of the KV head that keeps most */

static void
count_longest(const struct evict_input *in)
{
	struct engine_error e;
	struct kept kept;
	uint32_t g;

	must(evictor_choose(&evictor, in, &kept, &e), &e);
	for (g = 0; g < kept.heads; g++)
		longest = kept.count[g] > longest ? kept.count[g] : longest;
	kept_free(&kept);
}

static void
look(const struct evict_input *in)
{
	struct engine_error e;

	must(evictor_look(&evictor, in, &e), &e);
}

/* A reading before the one that writes: shows every layer. Leaves out keys and values. */
static void
read_ahead(struct kv_reader *r, void (*show)(const struct evict_input *))
{
	struct evict_input in;
	struct kv_section sec;
	int shown = 0, code = KV_OK, is_posn;

	while (input_next(r, &sec)) {
		is_posn = sec.kind == KV_POSN;
		if (sec.kind == KV_TOKS)
			tokens = (uint32_t)(sec.raw_size / sizeof(uint32_t));
		if (is_posn)
			shown = 0;
		if ((is_posn && !evictor_needs_scores(&evictor, sec.layer)) ||
		    (sec.kind == KV_SCOR && !shown)) {
			in = layer_input(r, &sec);
			show(&in);
			shown = 1;
		} else if (sec.kind == KV_KEYS || sec.kind == KV_VALS) {
			if (!shown)
				no_scores(r, sec.layer);
			code = kv_skip(r);
		}
		if (code < 0)
			input_failed(r, code);
	}
}

/* Opens the input where something at its front depends on what stands behind: the rows that a
 * global policy leaves to the first layer, or (a snapshot begins with it) the next position of
 * compact ones. *head <- that of the output. */
static struct kv_reader *
open_ahead(const char *path, struct kv_head *head)
{
	struct engine_error e;
	struct kv_reader *r;
	struct reread input;

	reread_start(&input, path);
	r = reread_open(&input);
	*head = *kv_reader_head(r);
	if (evictor_looks_ahead(&evictor)) {
		read_ahead(r, look);
		kv_close(r);
		r = reread_open(&input);
	}
	if (compact) {
		read_ahead(r, count_longest);
		kv_close(r);
		must(reposition_init(&reposition, &head->model, longest, &e), &e);
		head->next_position = reposition.next;
		r = reread_open(&input);
	}
	reread_end(&input);
	return r;
}

static void
check_options(void)
{
	opt_evict(&evictor, 1);
	opt_evict_sign(&evictor);
	compact = strcmp(positions, "compact") == 0;
	if (!compact && strcmp(positions, "original") != 0)
		die(EXIT_USAGE, "--positions: '%s' is neither original nor compact", positions);
	if (compact && keep_queries)
		die(EXIT_USAGE, "--keep-queries: the queries would stand at positions that are no "
		    "more: not with --positions compact");
	if (compact)
		sign_text("positions", positions);
}

static void
report(const struct kv_reader *r)
{
	const struct kv_head *head = kv_reader_head(r);
	uint64_t row = 2 * (uint64_t)head->model.head_width * kv_dtype_size(head->dtype);

	if (rows_before == rows_after && !evictor_keeps_all(&evictor))
		warning("nothing was dropped: no KV head has more rows than its budget");
	opt_evict_tell(&evictor, 0);
	report_indexes();
	note("%" PRIu64 " of %" PRIu64 " rows kept, %" PRIu64 " of %" PRIu64
	    " bytes of keys and values", rows_after, rows_before, rows_after * row,
	    rows_before * row);
}

int
main(int argc, char **argv)
{
	int first = tool_start(&tool, argc, argv);
	const char *path = operand(argc, argv, first);
	struct kv_reader *r;
	struct kv_writer *w;
	struct kv_head head;

	check_options();
	output_refuse_terminal();
	if (compact || evictor_looks_ahead(&evictor)) {
		r = open_ahead(path, &head);
	} else {
		r = input_open(path);
		head = *kv_reader_head(r);
	}
	w = output_create(&head);
	evict_snapshot(r, w);
	output_commit(w, r);
	report(r);
	kv_close(r);
	reposition_free(&reposition);
	evictor_free(&evictor);
	return finish();
}
