/* opt_draft.c - speculative decoding with a smaller snapshot of the same text */
#include <inttypes.h>
#include <string.h>

#include "cli/json.h"
#include "cli/opt_draft.h"
#include "cli/report.h"
#include "cli/retrieval_report.h"
#include "cli/snapshot_io.h"
#include "cli/tool.h"

const char *draft_file;
uint32_t draft_tokens;

void
opt_draft(const char *other, const char *snapshot)
{
	if (draft_tokens > 0 && draft_file == NULL)
		die(EXIT_USAGE, "--draft-tokens: which snapshot proposes them? Give --draft, too");
	if (draft_tokens > DRAFT_MOST)
		die(EXIT_USAGE, "--draft-tokens %u: want 1 to %d", draft_tokens, DRAFT_MOST);
	if (draft_file == NULL)
		return;
	if (strcmp(draft_file, "-") == 0 && strcmp(snapshot, "-") == 0)
		die(EXIT_USAGE, "the snapshot and its draft cannot both come from standard input");
	if (other == NULL)
		return;
	if (strcmp(other, "evict") == 0)
		die(EXIT_USAGE, "--evict does not go with --draft: the text is that of all rows; "
		    "evict SMALL with kv-evict");
	die(EXIT_USAGE, "--%s does not go with --draft: tokens that are not of the text run, too; "
	    "decode without it", other);
}

static void
check_tokens(struct kv_reader *draft, struct kv_reader *full)
{
	const struct kv_tokens ours = input_tokens(draft), theirs = input_tokens(full);
	const char *name = kv_reader_name(draft), *of = kv_reader_name(full);
	uint64_t i, n = ours.n < theirs.n ? ours.n : theirs.n;

	for (i = 0; i < n; i++)
		if (ours.id[i] != theirs.id[i])
			die(EXIT_MODEL, "%s: its token %" PRIu64 " is %u, and that of %s is %u: a "
			    "draft must be of the same text", name, i, ours.id[i], of,
			    theirs.id[i]);
	if (ours.n != theirs.n)
		die(EXIT_MODEL, "%s has %" PRIu64 " tokens, and %s has %" PRIu64 ": a draft must "
		    "be of the same text", name, ours.n, of, theirs.n);
}

void
draft_open_file(struct draft *d, struct session *s, struct kv_reader *full)
{
	struct engine_error e;

	input_refuse_residual(full, "its tokens are appended one by one: use it as the draft");
	d->reader = input_open(draft_file);
	must(session_fit(s, d->reader, &e), &e);
	check_tokens(d->reader, full);
	must(session_fit(s, full, &e), &e);
}

void
draft_take_options(struct draft *d, struct sequence_options *want, int keep)
{
	d->want = (struct sequence_options){ .spare = want->spare, .mapper = want->mapper,
	    .indexes = want->indexes, .retrieve = want->retrieve, .head = want->head,
	    .device_memory = want->device_memory, .requests = want->requests,
	    .notice = want->notice };
	want->retrieve = NULL;
	want->head = NULL;
	want->indexes = keep ? KV_ALL_INDEXES : 0;
}

void
draft_load(struct draft *d, const struct session *s)
{
	struct engine_error e;

	must(open_sequence(&d->open, s->model, &d->want, d->reader, &s->plan, &e), &e);
	if ((d->ws = workspace_new(s->model, 1)) == NULL)
		die(EXIT_RUN, "no memory to run the model");
}

void
draft_start(struct draft *d, struct decode *full, int returns)
{
	struct speculation *s = &d->speculation;
	struct engine_error e;

	*s = (struct speculation){ .most = draft_tokens > 0 ? draft_tokens : DRAFT_MOST,
	    .fixed = draft_tokens > 0, .returns = returns,
	    .draft = { .sequence = &d->open.sequence, .ws = d->ws, .greedy = full->greedy,
		.offload = sequence_plan(&d->open) } };
	must(speculation_open(s, &e), &e);
	full->speculation = s;
}

static uint64_t
accepted(const struct speculation_counts *c)
{
	uint64_t sum = 0;
	uint32_t i;

	for (i = 0; i < DRAFT_MOST; i++)
		sum += c->accepted[i];
	return sum;
}

/* Prints, with -v, what it was good for, and counts it for --report. */
static void
draft_note(const struct draft *d)
{
	const struct speculation_counts *c = &d->speculation.counts;

	report_count("draft_steps", c->draft_steps);
	report_count("drafted", c->drafted);
	report_count("accepted", accepted(c));
	report_count("passes", c->passes);
	if (c->passes > 0)
		note("draft: %" PRIu64 " of %" PRIu64 " tokens accepted, %.2f tokens a pass",
		    accepted(c), c->drafted, (double)c->tokens / (double)c->passes);
}

json_t *
draft_json(const struct draft *d)
{
	const struct speculation_counts *c = &d->speculation.counts;
	json_t *o = json_object(), *by_place = json_array(), *place;
	uint32_t i;

	put_text(o, "draft", kv_reader_name(d->reader));
	put_count(o, "passes", c->passes);
	put_count(o, "tokens", c->tokens);
	put_real(o, "tokens_per_pass", (double)c->tokens / (double)c->passes);
	put_count(o, "draft_steps", c->draft_steps);
	put_count(o, "drafted", c->drafted);
	put_count(o, "accepted", accepted(c));
	for (i = 0; i < DRAFT_MOST && c->judged[i] > 0; i++) {
		place = json_object();
		put_count(place, "judged", c->judged[i]);
		put_count(place, "accepted", c->accepted[i]);
		json_array_append_new(by_place, place);
	}
	put_value(o, "by_place", by_place);
	put_count(o, "full_bytes", c->full_bytes);
	put_count(o, "draft_bytes", c->draft_bytes);
	return o;
}

/* Writes the report, for --stats, with that of the draft's retrieval. */
static void
write_stats(const struct draft *d, const struct model *m, const char *path)
{
	const struct retrieval *t = d->open.sequence.retrieval;
	json_t *o = draft_json(d);

	if (t != NULL)
		put_value(o, "retrieval", retrieval_json(t, m->id.layers, m->id.kv_heads));
	write_json(path, o);
}

void
draft_end(struct draft *d, const struct session *s, const char *stats)
{
	draft_note(d);
	if (stats != NULL)
		write_stats(d, s->model, stats);
	speculation_close(&d->speculation);
	workspace_free(d->ws, s->model);
	close_sequence(&d->open);
	kv_close(d->reader);
}
