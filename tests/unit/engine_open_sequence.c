/* engine_open_sequence.c - a snapshot is opened for what a program wants of it, or refused with the
 * reason; what was opened goes on as the sequence that was saved
 *
 * engine_open_sequence DIR, or without DIR the demo model. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/open_sequence.h"
#include "forward/forward.h"
#include "tests/unit/methods_check.h"

enum { TOKENS = 50, TILE = 64, WINDOW = 5 };

static char err[512], folder[] = "/tmp/open_sequence.XXXXXX";
static uint32_t ids[TOKENS];

static void
must(int good, const char *what)
{
	if (!good) {
		fprintf(stderr, "open_sequence: %s: %s\n", what, err);
		exit(1);
	}
}

static void
path_of(char path[64], const char *name)
{
	snprintf(path, 64, "%s/%s", folder, name);
}

/* Saves what has run; plain: without queries, attention mass and logits. */
static void
save(const struct sequence *s, const struct observation *obs, const char *name, int plain)
{
	struct attention_mass *mass = s->cache->mass;
	float *logits = s->cache->logits;
	struct kv_writer *w;
	struct kv_head head;
	char path[64];

	path_of(path, name);
	if (plain) {
		s->cache->mass = NULL;
		s->cache->logits = NULL;
	}
	snapshot_head(s->cache, &head);
	must(kv_create(path, &head, 0, &w) == KV_OK, kv_writer_error(w));
	must(sequence_save(w, s, plain ? NULL : obs) == KV_OK && kv_commit(w) == KV_OK,
	    kv_writer_error(w));
	kv_writer_free(w);
	s->cache->mass = mass;
	s->cache->logits = logits;
}

/* Opens name for what is wanted; returns the code, and e has the message. */
static int
open_named(struct open_sequence *x, const struct model *m, const char *name,
    const struct sequence_options *want, struct engine_error *e)
{
	struct kv_reader *r;
	char path[64];
	int rc;

	path_of(path, name);
	must(kv_open(path, &r) == KV_OK, path);
	e->text[0] = '\0';
	rc = open_sequence(x, m, want, r, NULL, e);
	kv_close(r);
	return rc;
}

static void
check_refused(const struct model *m, const char *name, const struct sequence_options *want,
    const char *says)
{
	struct open_sequence x;
	struct engine_error e;
	const int rc = open_named(&x, m, name, want, &e);

	check(rc == ENGINE_ERUN && strstr(e.text, says) != NULL, "%s: code %d, \"%s\", not \"%s\"",
	    name, rc, e.text, says);
	check(x.model == NULL && x.sequence.cache == NULL, "%s: something is left to free", name);
}

/* The logits after one more token, of the sequence that was saved and of the one that was opened */
static void
check_goes_on(const struct model *m, struct sequence *saved, const struct sequence_options *want)
{
	struct workspace *ws = workspace_new(m, TILE);
	const uint32_t id = 7;
	struct open_sequence x;
	struct engine_error e;

	must(open_named(&x, m, "all", want, &e) == ENGINE_OK, e.text);
	check(x.obs.have == WINDOW && x.obs.window == WINDOW, "%u queries of %u", x.obs.have,
	    x.obs.window);
	check(x.sequence.cache->mass != NULL && x.sequence.cache->mass[0].whole, "no mass");
	check(sequence_plan(&x) == NULL && sequence_offloaded_to(&x) == NULL, "it is offloaded");
	must(run_tokens(m, saved, ws, &id, 1, NULL, NULL, err, sizeof err) == 0 &&
	    run_tokens(m, &x.sequence, ws, &id, 1, NULL, NULL, err, sizeof err) == 0, "token");
	check(memcmp(saved->cache->logits, x.sequence.cache->logits,
	    m->id.vocabulary * sizeof(float)) == 0, "other logits");
	close_sequence(&x);
	close_sequence(&x);             /* nothing is left */
	workspace_free(ws, m);
}

/* ---- sections pass by the hook ---- */

struct seen {
	unsigned kinds;
	uint32_t n;
	int code;                       /* what the hook returns at the third section */
};

static int
see(void *with, struct kv_reader *r, const struct kv_section *sec)
{
	struct seen *s = with;

	(void)r;
	s->kinds |= 1u << sec->kind;
	return ++s->n == 3 ? s->code : KV_OK;
}

static void
check_hook(const struct model *m)
{
	struct seen seen = { .code = KV_OK };
	const struct section_hook hook = { see, &seen };
	const struct sequence_options want = { .section = &hook };
	struct open_sequence x;
	struct engine_error e;

	must(open_named(&x, m, "all", &want, &e) == ENGINE_OK, e.text);
	check((seen.kinds & (1u << KV_TOKS | 1u << KV_MASS | 1u << KV_OBSQ | 1u << KV_LGTS)) ==
	    (1u << KV_TOKS | 1u << KV_MASS | 1u << KV_OBSQ | 1u << KV_LGTS),
	    "sections 0x%x", seen.kinds);
	check(x.sequence.cache->mass == NULL, "mass that was not wanted");
	close_sequence(&x);
	seen = (struct seen){ .code = KV_EIO };
	check(open_named(&x, m, "all", &want, &e) != ENGINE_OK && seen.n == 3,
	    "goes on after the hook has failed: %u sections", seen.n);
}

/* Without a snapshot: an empty text of the type that was asked for */
static void
check_empty(const struct model *m)
{
	const struct kv_head f32 = { .dtype = KV_F32 };
	const struct sequence_options want = { .stored = &f32, .observe = 3, .spare = 9 };
	struct open_sequence x;
	struct engine_error e;

	must(open_sequence(&x, m, &want, NULL, NULL, &e) == ENGINE_OK, "empty");
	check(x.sequence.cache->dtype == KV_F32 && x.sequence.cache->n_tokens == 0 &&
	    x.sequence.cache->spare == 9 && x.obs.window == 3 && x.obs.have == 0, "not empty");
	close_sequence(&x);
}

static void
test(const struct model *m)
{
	static const struct retrieval_options fier = { .method = RETRIEVE_FIER, .budget = 8 };
	struct workspace *ws = workspace_new(m, TILE);
	struct sequence s = { .cache = cache_new(m, KV_BF16) };
	struct observation obs;

	must(ws != NULL && s.cache != NULL && cache_want_mass(s.cache) == 0 &&
	    observation_init(&obs, m, WINDOW) == 0, "memory");
	must(run_tokens(m, &s, ws, ids, TOKENS, &obs, NULL, err, sizeof err) == 0, "prompt");
	must(cache_log(s.cache, KV_EVENT_PREFILL, TOKENS, 0, m->id.layers) == 0, "log");
	save(&s, &obs, "all", 0);
	save(&s, &obs, "plain", 1);
	check_refused(m, "plain", &(struct sequence_options){ .answers = 1 },
	    "no logits to start from: continue it with kv-prefill --resume");
	check_refused(m, "plain", &(struct sequence_options){ .mass = 1 },
	    "layer 0 has rows without attention mass: make the snapshot with kv-prefill --mass");
	check_refused(m, "all", &(struct sequence_options){ .retrieve = &fier,
	    .indexes = 1u << KV_BITS }, "which --retrieve fier needs: add them with kv-quantize1b");
	check_goes_on(m, &s, &(struct sequence_options){ .answers = 1, .mass = 1,
	    .observe = WINDOW, .spare = 4 });
	check_hook(m);
	check_empty(m);
	workspace_free(ws, m);
	observation_free(&obs, m);
	sequence_free(&s);
}

int
main(int argc, char **argv)
{
	struct model *m;
	struct dev *dev;
	uint32_t i;

	for (i = 0; i < TOKENS; i++)
		ids[i] = (i * 37 + 5) % 100;
	dev = cpu_ops.open(0, 2, err, sizeof err);
	must(dev != NULL, "device");
	must(model_load(argc > 1 ? argv[1] : DEMO_MODEL, &cpu_ops, dev, &m, err, sizeof err) == 0,
	    "model");
	memset(m->id.tokenizer, '0', sizeof m->id.tokenizer - 1);
	must(mkdtemp(folder) != NULL, folder);
	test(m);
	for (i = 0; i < 2; i++) {
		char path[64];

		path_of(path, i == 0 ? "all" : "plain");
		unlink(path);
	}
	rmdir(folder);
	model_free(m);
	cpu_ops.close(dev);
	return failures != 0;
}
