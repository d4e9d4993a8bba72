/* speculate.c - speculative decoding with a smaller cache of the same text */
#include <stdlib.h>
#include <string.h>

#include "engine/speculate.h"

#define FIRST_LENGTH 4           /* tokens of the first proposal */

/* ---- states of the draft ---- */

static int
add_point(struct speculation *s, struct engine_error *e)
{
	struct sequence *draft = s->draft.sequence;

	memset(&s->point[s->n_points], 0, sizeof *s->point);
	if (sequence_point_take(draft, &s->point[s->n_points++]) != 0)
		return engine_fail(e, ENGINE_ERUN, "no memory for a state of the draft");
	return ENGINE_OK;
}

/* Drops the states from `from` on. */
static void
drop_points(struct speculation *s, uint32_t from)
{
	while (s->n_points > from)
		sequence_point_free(&s->point[--s->n_points], s->draft.sequence);
}

/* Returns how many tokens the draft and the text have in common. */
static size_t
in_common(const struct cache *draft, const struct cache *full)
{
	size_t n = 0;

	while (n < draft->n_tokens && n < full->n_tokens && draft->tokens[n] == full->tokens[n])
		n++;
	return n;
}

/* Has the draft go back to where it had only tokens of the text. */
static int
go_back(struct speculation *s, const struct cache *full, struct engine_error *e)
{
	struct cache *draft = s->draft.sequence->cache;
	const size_t same = in_common(draft, full);
	uint32_t i = s->n_points;

	if (draft->n_tokens == same)
		return ENGINE_OK;
	while (i > 0 && s->point[i - 1].cache.n_tokens > same)
		i--;
	if (i == 0 || sequence_cut(s->draft.sequence, &s->point[i - 1]) != 0)
		return engine_fail(e, ENGINE_ERUN, "no memory for the draft to go back");
	return ENGINE_OK;
}

/* ---- proposals ---- */

/* Returns the next token by the draft's logits. */
static uint32_t
choose(const struct speculation *s, struct sampler *sampler)
{
	const struct cache *c = s->draft.sequence->cache;
	struct sampler greedy = { .temperature = 0 };

	return sample(s->sampler != NULL ? sampler : &greedy, c->logits, c->model->id.vocabulary);
}

static void
count_step(struct speculation *s)
{
	s->counts.draft_steps++;
	s->counts.draft_bytes += cache_bytes(s->draft.sequence->cache);
}

/* Runs a token of the draft; *next <- what it proposes. sampler NULL: nothing is proposed. */
static int
step(struct speculation *s, uint32_t id, struct sampler *sampler, uint32_t *next,
    struct engine_error *e)
{
	const int rc = decode_step(&s->draft, id, next, e);

	count_step(s);
	if (rc == ENGINE_OK && !s->draft.greedy && sampler != NULL)
		*next = choose(s, sampler);
	return rc;
}

/* Runs ids[n], which the text has and the draft lacks, at once, or one by one where the draft
 * retrieves: its rows may be in a file. *next <- what it proposes. */
static int
follow(struct speculation *s, const struct decode *full, const uint32_t *ids, size_t n,
    struct sampler *sampler, uint32_t *next, struct engine_error *e)
{
	struct decode several = s->draft;
	size_t i;
	int rc = ENGINE_OK;

	if (n == 1)
		return step(s, ids[0], sampler, next, e);
	if (s->draft.sequence->retrieval != NULL) {
		for (i = 0; rc == ENGINE_OK && i < n; i++)
			rc = step(s, ids[i], i + 1 == n ? sampler : NULL, next, e);
		return rc;
	}
	several.ws = full->ws;
	rc = decode_ask(&several, ids, n, e);
	count_step(s);
	if (rc == ENGINE_OK)
		*next = choose(s, sampler);
	return rc;
}

/* Runs the tokens of the text that the draft lacks, and id; *next <- what it proposes. */
static int
catch_up(struct speculation *s, const struct decode *full, uint32_t id, struct sampler *sampler,
    uint32_t *next, struct engine_error *e)
{
	const struct cache *draft = s->draft.sequence->cache, *text = full->sequence->cache;
	const size_t n = text->n_tokens - draft->n_tokens;
	uint32_t *ids = engine_alloc(n + 1, sizeof *ids, e);
	int rc;

	if (ids == NULL)
		return e->code;
	memcpy(ids, text->tokens + draft->n_tokens, n * sizeof *ids);
	ids[n] = id;
	rc = follow(s, full, ids, n + 1, sampler, next, e);
	free(ids);
	return rc;
}

/* ids[1 .. n] <- what the draft proposes after ids[0]; fewer where it has no finite logit or no
 * room. Returns how many, or an error. */
static int
propose(struct speculation *s, const struct decode *full, uint32_t *ids, uint32_t n,
    struct engine_error *e)
{
	struct sampler sampler = s->sampler != NULL ? *s->sampler : (struct sampler){ 0 };
	struct cache *draft = s->draft.sequence->cache;
	uint32_t i;
	int rc = go_back(s, full->sequence->cache, e);

	drop_points(s, s->returns ? 1 : 0);
	draft->cut_from = s->returns ? s->point[0].cache.position : draft->next_position;
	if (rc == ENGINE_OK)
		rc = catch_up(s, full, ids[0], &sampler, &ids[1], e);
	for (i = 1; rc == ENGINE_OK && i < n && ids[i] != UINT32_MAX; i++)
		if ((rc = add_point(s, e)) == ENGINE_OK)
			rc = step(s, ids[i], &sampler, &ids[i + 1], e);
	if (rc != ENGINE_OK)
		return rc;
	i -= ids[i] == UINT32_MAX;
	s->counts.drafted += i;
	return (int)i;
}

/* Longer proposals after one that was right to its end, shorter ones after a wrong token, as
 * assisted generation of transformers has it. */
static void
adapt(struct speculation *s, int right)
{
	if (s->fixed)
		return;
	if (right)
		s->length = s->length + 2 < s->most ? s->length + 2 : s->most;
	else if (s->length > 1)
		s->length--;
}

/* Returns whether the token has run ahead, and counts whether it was proposed. */
static int
judge(struct speculation *s, uint32_t id)
{
	const uint32_t left = ahead_left(s->ahead), place = ahead_taken(s->ahead);
	const int right = ahead_is_next(s->ahead, id);

	if (left > 0) {
		s->counts.judged[place - 1]++;
		s->counts.accepted[place - 1] += (uint64_t)right;
	}
	if (left > 0 ? !right : place > 0)
		adapt(s, left == 0);
	return right;
}

/* ---- the text ---- */

int
speculation_open(struct speculation *s, struct engine_error *e)
{
	const struct model *m = s->draft.sequence->cache->model;

	s->length = s->fixed || s->most < FIRST_LENGTH ? s->most : FIRST_LENGTH;
	s->draft.sequence->cache->logged = 0;
	s->ahead = ahead_new(m);
	s->point = engine_alloc(DRAFT_MOST + 1, sizeof *s->point, e);
	if (s->ahead == NULL || s->point == NULL)
		return engine_fail(e, ENGINE_ERUN, "no memory to run the model");
	if (s->returns)
		return add_point(s, e);
	return ENGINE_OK;
}

void
speculation_close(struct speculation *s)
{
	if (s->point != NULL)
		drop_points(s, 0);
	free(s->point);
	ahead_free(s->ahead);
	decode_free(&s->draft);
	s->point = NULL;
	s->ahead = NULL;
}

int
speculation_start(struct speculation *s, struct engine_error *e)
{
	ahead_forget(s->ahead);
	decode_free(&s->draft);
	return decode_init(&s->draft, e);
}

/* Runs id and what the draft proposes after it. */
static int
pass(struct decode *full, uint32_t id, struct engine_error *e)
{
	struct speculation *s = full->speculation;
	struct sequence *text = full->sequence;
	const uint32_t most = s->left < s->length ? s->left : s->length;
	const uint32_t room = ahead_positions(text->cache, most + 1);
	uint32_t ids[AHEAD_MOST] = { id };
	const int proposed = room > 1 ? propose(s, full, ids, room - 1, e) : 0;

	if (proposed < 0)
		return proposed;
	e->text[0] = '\0';
	s->counts.passes++;
	s->counts.full_bytes += cache_bytes(text->cache);
	return engine_ran(e, ahead_run(s->ahead, text, ids, (uint32_t)proposed + 1, e->text,
	    sizeof e->text));
}

int
speculation_step(struct decode *full, uint32_t id, uint32_t *next, struct engine_error *e)
{
	struct speculation *s = full->speculation;
	int rc;

	if (ahead_slide(s->ahead, full->sequence->cache) != 0)
		return engine_fail(e, ENGINE_ERUN, "no memory to drop rows");
	if (!judge(s, id) && (rc = pass(full, id, e)) != ENGINE_OK)
		return rc;
	e->text[0] = '\0';
	if ((rc = engine_ran(e, ahead_take(s->ahead, full->sequence, next))) != ENGINE_OK)
		return rc;
	s->counts.tokens++;
	return ENGINE_OK;
}

int
speculation_logits(struct speculation *s, struct cache *full)
{
	return ahead_logits(s->ahead, full);
}
