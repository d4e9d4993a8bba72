/* decode_batch.c - generates after many snapshots, several at a time in one batch
 *
 * When a sequence ends, the next snapshot is opened and takes its slot, so that memory is that
 * of the batch and not that of all operands. A finished answer is held, as text, until the
 * answers before it are printed. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/decode_batch.h"
#include "cli/json.h"
#include "cli/opt_gate.h"
#include "cli/progress.h"
#include "cli/report.h"
#include "cli/retrieval_report.h"
#include "cli/snapshot_io.h"
#include "cli/text_input.h"
#include "engine/decode.h"
#include "engine/retrieval_check.h"

/* A snapshot in the batch */
struct member {
	size_t operand;
	struct kv_reader *reader;
	struct open_sequence text;
	struct decode decode;
	struct decode_text generation;
	uint32_t id;                    /* the token that runs next */
	double began;
};

/* The printable result of an operand */
struct result {
	int done, status;
	char *text;
	size_t size;
	json_t *object;                 /* in place of the text, with --json */
};

struct run {
	const struct decode_batch *b;
	struct batch *batch;
	struct kv_reader *opened;       /* of the next operand; NULL: not open yet */
	/* printers point into them, so they must not move */
	struct member *member[BATCH_MOST];
	uint32_t n, most;               /* members, and their limit */
	size_t next, printed;           /* operands started, and printed */
	struct result *result;          /* [b->n] */
	uint64_t tokens, tokens_run, tokens_kept;
};

/* ---- names ---- */

static const char *
last_part(const char *name)
{
	const char *slash = strrchr(name, '/');

	return slash != NULL ? slash + 1 : name;
}

char *
name_in_folder(const char *folder, const char *name)
{
	const size_t n = strlen(folder) + strlen(last_part(name)) + 2;
	char *path = must_alloc(n, 1);

	snprintf(path, n, "%s/%s", folder, last_part(name));
	return path;
}

static int
by_last_part(const void *a, const void *b)
{
	return strcmp(last_part(*(char *const *)a), last_part(*(char *const *)b));
}

void
decode_batch_check(const struct decode_batch *b)
{
	char **sorted = must_alloc(b->n, sizeof *sorted), *path;
	size_t i;

	for (i = 0; b->folder != NULL && i < b->n; i++) {
		if (strcmp(b->operand[i], "-") == 0)
			die(EXIT_USAGE, "--output %s: a snapshot from standard input has no name "
			    "for a folder", b->folder);
		path = name_in_folder(b->folder, b->operand[i]);
		report_refuse(path);
		output_refuse("--output", path);
		free(path);
		sorted[i] = b->operand[i];
	}
	if (b->folder != NULL)
		qsort(sorted, b->n, sizeof *sorted, by_last_part);
	for (i = 1; b->folder != NULL && i < b->n; i++)
		if (by_last_part(&sorted[i - 1], &sorted[i]) == 0)
			die(EXIT_USAGE, "--output %s: %s and %s would both be %s there", b->folder,
			    sorted[i - 1], sorted[i], last_part(sorted[i]));
	free(sorted);
}

/* ---- what is printed ---- */

/* Prints finished results up to the first unfinished one. */
static void
print_ready(struct run *r)
{
	for (; r->printed < r->b->n && r->result[r->printed].done; r->printed++) {
		struct result *x = &r->result[r->printed];

		report_enter_descriptor(1, REPORT_WRITE);
		if (x->object != NULL)
			print_json_line(x->object);
		else
			print_answer_line(x->text, x->size);
		report_leave();
		free(x->text);
		progress(r->printed + 1);
	}
}

/* Records that the operand has no answer. */
static void
fail(struct run *r, size_t operand, const struct engine_error *e)
{
	struct result *x = &r->result[operand];

	*x = (struct result){ .done = 1, .status = failed(e) };
	if (!settings.json)
		return;
	x->object = json_object();
	put_text(x->object, "snapshot", path_name(r->b->operand[operand]));
	put_text(x->object, "error", e->text);
	put_count(x->object, "status", (uint64_t)x->status);
}

/* ---- members ---- */

static void
close_member(struct run *r, struct member *m)
{
	if (m->text.sequence.cache != NULL)
		r->tokens_run += m->text.sequence.cache->ran;
	close_sequence(&m->text);
	kv_close(m->reader);
	free(m);
}

/* Drops the text of a failed member. */
static void
drop_text(struct decode_text *g, struct decode *d)
{
	size_t size;

	decode_text_end(g, d);
	free(decode_result_text(&g->generated, &size));
}

static int
save(struct run *r, struct member *m, struct engine_error *e)
{
	char *path;
	int rc;

	must(decode_text_cut(&m->generation, &m->decode, kv_reader_name(m->reader), e), e);
	must(decode_finish(&m->decode, e), e);
	must(session_fit(r->b->session, m->reader, e), e);
	path = name_in_folder(r->b->folder, r->b->operand[m->operand]);
	rc = r->b->save(&m->text, m->reader, path, e);
	free(path);
	r->tokens_kept += rc == ENGINE_OK ? m->text.sequence.cache->n_tokens : 0;
	return rc;
}

/* Stores the finished text until it is printed. */
static void
end_member(struct run *r, struct member *m)
{
	struct decode_result *g = &m->generation.generated;
	struct result *x = &r->result[m->operand];
	const struct kv_model *id = &r->b->session->model->id;
	const struct retrieval *t = m->text.sequence.retrieval;
	struct engine_error e;

	g->generate = seconds() - m->began;
	note("%s: %u tokens, next position %u", kv_reader_name(m->reader), g->n,
	    m->text.sequence.cache->next_position);
	r->tokens += g->n;
	if (r->b->folder != NULL && save(r, m, &e) != ENGINE_OK) {
		drop_text(&m->generation, &m->decode);
		fail(r, m->operand, &e);
		close_member(r, m);
		return;
	}
	decode_text_end(&m->generation, &m->decode);
	if (t != NULL)
		retrieval_note(t, id->layers, id->kv_heads);
	x->done = 1;
	if (settings.json) {
		x->object = decode_result_json(g, kv_reader_name(m->reader));
		if (t != NULL)
			put_value(x->object, "retrieval",
			    retrieval_json(t, id->layers, id->kv_heads));
	} else
		x->text = decode_result_text(g, &x->size);
	close_member(r, m);
}

/* Samples and prints the next token of a member, which is to run. Returns 0 if the member has
 * ended. */
static int
advance(struct run *r, struct member *m, uint32_t likeliest)
{
	struct engine_error e;
	int rc;

	m->id = likeliest;
	if ((rc = decode_text_next(&m->generation, &m->decode, &m->id, &e)) == 1)
		return 1;
	if (rc == 0) {
		end_member(r, m);
		return 0;
	}
	drop_text(&m->generation, &m->decode);
	fail(r, m->operand, &e);
	close_member(r, m);
	return 0;
}

/* Returns whether it can be opened again. */
static int
is_file(const char *name)
{
	struct stat st;

	return strcmp(name, "-") != 0 && stat(name, &st) == 0 && S_ISREG(st.st_mode);
}

/* Loads the rows of the operand, and evicts before its first token. Beside other members it fails
 * unless memory for the steps is left. */
static int
open_member(struct run *r, struct member *m, struct engine_error *e)
{
	const struct decode_batch *b = r->b;
	struct memory_plan rest = b->session->plan;
	const double t0 = seconds();
	int rc;

	/* The batch has its activations. A member adds its lists (open_sequence()). */
	rest.activations = rest.lists = 0;
	m->reader = r->opened != NULL ? r->opened : input_try(b->operand[m->operand], e);
	r->opened = NULL;
	if (m->reader == NULL)
		return e->code;
	report_enter(REPORT_LOAD);
	rc = session_fit(b->session, m->reader, e);
	if (rc == ENGINE_OK)
		rc = open_sequence(&m->text, b->session->model, b->want, m->reader,
		    r->n > 0 ? &rest : NULL, e);
	report_leave();
	if (rc != ENGINE_OK)
		return rc;
	m->began = seconds();
	m->decode = (struct decode){ .sequence = &m->text.sequence, .evict = b->want->evict,
	    .obs = m->text.obs.window > 0 ? &m->text.obs : NULL,
	    .greedy = b->generation->temperature == 0,
	    .offload = sequence_plan(&m->text) };
	m->generation = (struct decode_text){ .options = b->generation,
	    .tokenizer = b->session->tokenizer, .keep = b->folder != NULL, .collect = 1,
	    .generated = { .load = m->began - t0 } };
	return b->want->evict != NULL ? decode_evict(&m->decode, e) : ENGINE_OK;
}

/* Lets the next operand join. If memory does not suffice, it waits for a member to end, and the
 * limit of members stays at the present number. */
static void
admit(struct run *r)
{
	struct member *m = must_alloc(1, sizeof *m);
	const size_t operand = r->next++;
	struct engine_error e;

	m->operand = operand;
	if (open_member(r, m, &e) != ENGINE_OK) {
		close_member(r, m);
		if (e.code == ENGINE_ENOROOM && r->n > 0 && is_file(r->b->operand[operand])) {
			note("no room for more than %u at once", r->n);
			r->most = r->n;
			r->next--;
		} else
			fail(r, operand, &e);
		return;
	}
	decode_text_start(&m->generation, m->text.sequence.cache);
	if (advance(r, m, UINT32_MAX))
		r->member[r->n++] = m;
}

/* Runs one token for each member. */
static void
step(struct run *r)
{
	struct decode_turn turn[BATCH_MOST];
	const uint32_t n = r->n;
	struct engine_error e;
	uint32_t i;

	for (i = 0; i < n; i++)
		turn[i] = (struct decode_turn){ .d = &r->member[i]->decode,
		    .id = r->member[i]->id };
	report_step_begin();
	must(decode_together(r->batch, turn, n, &e), &e);
	report_step_end();
	for (r->n = i = 0; i < n; i++) {
		struct member *m = r->member[i];

		if (turn[i].e.code != ENGINE_OK) {
			drop_text(&m->generation, &m->decode);
			fail(r, m->operand, &turn[i].e);
			close_member(r, m);
		} else if (advance(r, m, m->decode.greedy ? turn[i].next : UINT32_MAX))
			r->member[r->n++] = m;
	}
}

/* ---- the batch ---- */

/* Finds the first snapshot that can be opened, so that wrong names are reported before the
 * model is loaded. Returns 0 if there is none. */
static int
find_first(struct run *r)
{
	struct engine_error e;

	for (; r->next < r->b->n; r->next++) {
		if ((r->opened = input_try(r->b->operand[r->next], &e)) != NULL)
			return 1;
		fail(r, r->next, &e);
	}
	return 0;
}

/* Loads the model, with room for the largest batch. */
static void
open_model(struct run *r)
{
	const struct decode_batch *b = r->b;
	const struct session *s = b->session;

	session_open_any(b->session, r->opened, b->need);
	if (b->head != NULL) {
		session_head(b->session, b->head);
		b->want->head = s->head;
	}
	opt_gate_open(b->session, b->want->evict);
	b->want->gate = s->gate;
	session_load(b->session, &(struct memory_demand){
	    .tokens = (uint64_t)r->most * b->want->spare,
	    .rows = r->most * cache_most_rows_of(s->model, b->want->spare), .mass = b->want->mass,
	    .query_stats = b->want->query_stats ? r->most : 0,
	    .stored = kv_reader_head(r->opened), .at_once = r->most, .logits = r->most,
	    .lists = r->most * retrieval_demand(b->want->retrieve, s->model, s->head,
	        b->want->spare, b->want->spare) });
	if ((r->batch = batch_new(s->model, r->most)) == NULL)
		die(EXIT_RUN, "no memory to run the model");
}

static int
first_status(const struct run *r)
{
	size_t i;

	for (i = 0; i < r->b->n; i++)
		if (r->result[i].status != EXIT_OK)
			return r->result[i].status;
	return EXIT_OK;
}

int
decode_batch_run(const struct decode_batch *b)
{
	struct run *r = must_alloc(1, sizeof *r);
	double t0;
	int status;

	*r = (struct run){ .b = b, .most = b->n < b->most ? (uint32_t)b->n : b->most };
	r->result = must_alloc(b->n, sizeof *r->result);
	if (find_first(r))
		open_model(r);
	t0 = seconds();
	if (decode_text_shows_progress())
		progress_start("decode", b->n, "snapshots");
	while (r->n > 0 || r->next < b->n) {
		while (r->n < r->most && r->next < b->n)
			admit(r);
		print_ready(r);
		if (r->n > 0)
			step(r);
	}
	print_ready(r);
	progress_end();
	note("%zu snapshots, %" PRIu64 " tokens in %.2f s (%.1f tokens/s)", b->n, r->tokens,
	    seconds() - t0, (double)r->tokens / (seconds() - t0));
	if (r->batch != NULL)
		session_note_steps(b->session, batch_launches(r->batch),
		    batch_capture_failed(r->batch));
	report_count("tokens_run", r->tokens_run);
	if (b->folder != NULL)
		report_count("tokens", r->tokens_kept);
	status = first_status(r);
	batch_free(r->batch);
	free(r->result);
	free(r);
	return status;
}
