/* model_load - binding a folder's tensors, with a device that is ordinary memory
 *
 * model_load              runs the tests
 * model_load write DIR    writes the folder whose fingerprint is below, for the oracle
 * model_load show DIR     loads a folder and prints its fingerprint */

#include <math.h>

#include "model/safetensors.h"
#include "tests/unit/model_folder.h"

/* tests/oracle/fingerprint.py of what "write" writes */
#define FINGERPRINT "f4cb8d1185b598567281132c10e3484f"

/* ---- the device ---- */

static int blocks;              /* allocated and not freed */
static int registered;          /* weights */
static int fail_alloc, fail_weights;
static const char *fail_sync;

static void *
stub_alloc(struct dev *d, size_t bytes)
{
	(void)d;
	if (fail_alloc)
		return NULL;
	blocks++;
	return aligned_alloc(64, (bytes + 63) / 64 * 64);
}

static void
stub_free(struct dev *d, void *p)
{
	(void)d;
	blocks -= p != NULL;
	free(p);
}

static void
stub_put(struct dev *d, void *dst, const void *src, size_t bytes)
{
	(void)d;
	memcpy(dst, src, bytes);
}

static size_t expected, brought;

static void
stub_expect(struct dev *d, size_t bytes)
{
	(void)d;
	expected = bytes;
}

static const void *
stub_weights(struct dev *d, const void *host, size_t bytes)
{
	(void)d;
	brought += (bytes + 255) / 256 * 256;
	if (fail_weights > 0 && registered + 1 >= fail_weights)
		return NULL;
	registered++;
	return host;
}

static const char *
stub_sync(struct dev *d)
{
	(void)d;
	return fail_sync;
}

static const struct ops stub = {
	.name = "stub",
	.alloc = stub_alloc,
	.free = stub_free,
	.put = stub_put,
	.expect = stub_expect,
	.weights = stub_weights,
	.sync = stub_sync
};

static int
load(const char *dir, struct model **m, char *err, size_t errlen)
{
	int rc;

	registered = 0;
	brought = 0;
	rc = model_load(dir, &stub, NULL, m, err, errlen);
	CHECK(rc != MODEL_OK || expected == brought, "%zu bytes of weights were expected, %zu came",
	    expected, brought);
	return rc;
}

static void
refuse(const char *what, const struct synth *s, int code, const char *message)
{
	struct model *m;
	char err[512] = "", *dir = make_dir();
	int rc;

	synth_write(s, dir, 1);
	rc = load(dir, &m, err, sizeof err);
	check_refused(what, rc, code, err, message);
	CHECK(rc == MODEL_OK || m == NULL, "%s: out is not NULL", what);
	CHECK(code != MODEL_EINVALID || registered == 0, "%s: refused after %d uploads", what,
	    registered);
	if (rc == MODEL_OK)
		model_free(m);
	CHECK(blocks == 0, "%s: %d blocks left", what, blocks);
	free(dir);
}

static struct model *
accept(const struct synth *s, unsigned shards)
{
	struct model *m;
	char err[512] = "", *dir = make_dir();
	int rc;

	synth_write(s, dir, shards);
	rc = load(dir, &m, err, sizeof err);
	CHECK(rc == MODEL_OK, "code %d: %s", rc, err);
	if (rc != MODEL_OK)
		exit(1);
	CHECK(strcmp(m->dir, dir) == 0, "%s", m->dir);
	free(dir);
	return m;
}

/* ---- what is bound ---- */

static void
check_matrix(const struct model *m, const struct mat *w, const char *name, uint64_t out,
    uint64_t in)
{
	const struct tensor *t = safetensors_find(m->files, name);

	CHECK(t != NULL && w->data == t->data && mat_elements(w) == t->dtype, "%s", name);
	CHECK(w->out == out && w->in == in, "%s: [%u][%u]", name, w->out, w->in);
}

static void
check_vector(const float *v, const char *name, uint64_t n)
{
	uint64_t i;

	CHECK(v != NULL && (uintptr_t)v % 64 == 0, "%s", name);
	for (i = 0; v != NULL && i < n; i++)
		if (v[i] != synth_value(name, i)) {
			CHECK(0, "%s[%" PRIu64 "] is %g", name, i, v[i]);
			break;
		}
}

static void
check_layer(const struct model *m, const struct synth *s, uint32_t l)
{
	const struct model_layer *y = &m->layer[l];
	uint64_t D = s->D, F = s->F, q = s->H * s->E, kv = s->G * s->E;
	const struct { const char *name; const struct mat *w; const float *b; uint64_t out, in;
	    } part[] = {
		{ "self_attn.q_proj", &y->wq, y->bq, q, D }, { "self_attn.k_proj", &y->wk,
		    y->bk, kv, D },
		{ "self_attn.v_proj", &y->wv, y->bv, kv, D }, { "self_attn.o_proj", &y->wo,
		    y->bo, D, q },
		{ "mlp.gate_proj", &y->ffn.gate, NULL, F, D }, { "mlp.up_proj", &y->ffn.up, NULL, F,
		    D },
		{ "mlp.down_proj", &y->ffn.down, NULL, D, F },
	};
	char name[96];
	size_t i;

	for (i = 0; i < sizeof part / sizeof part[0]; i++) {
		snprintf(name, sizeof name, "model.layers.%u.%s.weight", l, part[i].name);
		check_matrix(m, part[i].w, name, part[i].out, part[i].in);
		snprintf(name, sizeof name, "model.layers.%u.%s.bias", l, part[i].name);
		if (s->bias && i < 4)
			check_vector(part[i].b, name, part[i].out);
		else
			CHECK(part[i].b == NULL, "%s", name);
	}
	snprintf(name, sizeof name, "model.layers.%u.input_layernorm.weight", l);
	check_vector(y->norm.w, name, D);
	snprintf(name, sizeof name, "model.layers.%u.post_attention_layernorm.weight", l);
	check_vector(y->ffn.norm.w, name, D);
}

static void
check_model(const struct model *m, const struct synth *s)
{
	double freq[64];
	uint32_t l;

	for (l = 0; l < s->L; l++)
		check_layer(m, s, l);
	check_matrix(m, &m->embed, "model.embed_tokens.weight", s->V, s->D);
	check_matrix(m, &m->head, s->tied ? "model.embed_tokens.weight" : "lm_head.weight",
	    s->V, s->D);
	check_vector(m->norm.w, "model.norm.weight", s->D);
	model_rope_frequencies(&m->id, freq);
	CHECK(memcmp(freq, m->rope.freq, s->E / 2 * sizeof *freq) == 0, "freq");
	CHECK(m->id.weights_dtype == mat_elements(&m->embed) && strlen(m->id.weights) == 32,
	    "identity");
	CHECK(m->id.tied_embeddings == s->tied && m->id.attention_bias == s->bias, "identity");
	CHECK(registered == (int)(7 * s->L + 1 + !s->tied), "%d matrices", registered);
	CHECK(blocks == 1, "%d blocks", blocks);
}

static void
test_shapes(void)
{
	static const uint32_t kv_heads[] = { 1, 2, 4 };        /* MQA, GQA, MHA */
	static const char *const types[] = { "F32", "BF16", "F16" };
	struct synth s = synth_small();
	struct model *m;
	unsigned i, j;

	for (i = 0; i < 3; i++)
		for (j = 0; j < 4; j++) {
			s = synth_small();
			s.G = kv_heads[i];
			s.tied = j & 1;
			s.bias = j >> 1;
			s.E = j == 0 ? 6 : 8;          /* 6: H * E is not D */
			s.type = types[(i + j) % 3];
			synth_specs(&s);
			m = accept(&s, 1);
			check_model(m, &s);
			model_free(m);
			CHECK(blocks == 0, "%d blocks left", blocks);
		}
	model_free(NULL);
}

/* Each tensor has its own type; the identity names that of the embedding. */
static void
test_mixed(void)
{
	struct synth s = synth_small();
	struct model *m;

	synth_specs(&s);
	synth_find(&s, "model.embed_tokens.weight")->type = "F16";
	synth_find(&s, "model.layers.1.mlp.up_proj.weight")->type = "BF16";
	synth_find(&s, "model.norm.weight")->type = "BF16";
	m = accept(&s, 1);
	check_model(m, &s);
	CHECK(m->id.weights_dtype == KV_F16 && m->layer[1].ffn.up.type == WEIGHT_BF16, "types");
	CHECK(m->layer[0].ffn.up.type == WEIGHT_F32, "types");
	model_free(m);
}

/* An order of tensors, and a number of files, that do not matter. */
static void
test_fingerprint(void)
{
	struct synth s = synth_small();
	struct spec swap;
	struct model *m;

	synth_specs(&s);
	m = accept(&s, 1);
	CHECK(strcmp(m->id.weights, FINGERPRINT) == 0, "%s", m->id.weights);
	model_free(m);
	m = accept(&s, 3);
	check_model(m, &s);
	CHECK(strcmp(m->id.weights, FINGERPRINT) == 0, "sharded: %s", m->id.weights);
	model_free(m);
	swap = s.spec[0];
	s.spec[0] = s.spec[5];
	s.spec[5] = swap;
	m = accept(&s, 1);
	CHECK(strcmp(m->id.weights, FINGERPRINT) == 0, "reordered: %s", m->id.weights);
	model_free(m);
	s.spec[0].type = s.spec[0].type[0] == 'F' ? "BF16" : "F32";
	m = accept(&s, 1);
	CHECK(strcmp(m->id.weights, FINGERPRINT) != 0, "another dtype");
	model_free(m);
}

/* ---- what is refused ---- */

static void
test_tensors(void)
{
	struct synth s = synth_small(), good;
	struct spec *p;

	synth_specs(&s);
	good = s;
	synth_find(&s, "model.layers.1.self_attn.k_proj.weight")->dim[0] = 8;
	refuse("shape", &s, MODEL_EINVALID,
	    "/model.safetensors: model.layers.1.self_attn.k_proj.weight: "
	    "want [16][32], file has [8][32]");
	s = good;
	synth_find(&s, "model.layers.0.mlp.down_proj.weight")->dim[1] = 47;
	refuse("shape", &s, MODEL_EINVALID, "want [32][48], file has [32][47]");
	s = good;
	p = synth_find(&s, "model.norm.weight");
	p->ndim = 2;
	p->dim[1] = 1;
	refuse("vector", &s, MODEL_EINVALID, "model.norm.weight: want [32], file has [32][1]");
	s = good;
	strcpy(synth_find(&s, "model.norm.weight")->name, "model.norm.bias");
	refuse("missing", &s, MODEL_EINVALID, ": no tensor model.norm.weight");
	s = good;
	s.L = 3;
	refuse("layer", &s, MODEL_EINVALID, ": no tensor model.layers.2.self_attn.q_proj.weight");
	s = good;
	s.L = 1;
	refuse("layer", &s, MODEL_EUNSUPPORTED,
	    "model.layers.1.input_layernorm.weight: not a tensor of this");
	s = good;
	synth_find(&s, "model.layers.1.mlp.up_proj.weight")->type = "F8_E4M3";
	refuse("type", &s, MODEL_EUNSUPPORTED,
	    "model.layers.1.mlp.up_proj.weight: dtype F8_E4M3 is not supported");
	s = good;
	add_spec(&s, 32, 0, "model.layers.0.self_attn.q_norm.weight");
	refuse("leftover", &s, MODEL_EUNSUPPORTED,
	    "model.layers.0.self_attn.q_norm.weight: not a tensor of this architecture (a norm of "
	    "queries): it may change the arithmetic (--allow-tensor "
	    "'model.layers.*.self_attn.q_norm.weight' ignores");
	s = good;
	s.bias = 1;
	refuse("no biases", &s, MODEL_EINVALID, "no tensor model.layers.0.self_attn.q_proj.bias");
	synth_specs(&s);
	s.bias = 0;
	refuse("biases", &s, MODEL_EUNSUPPORTED,
	    "model.layers.0.self_attn.k_proj.bias: not a tensor of this");
	s = good;
	s.tied = 0;
	refuse("head", &s, MODEL_EINVALID, ": no tensor lm_head.weight: if it is the embedding");
	s = good;
	s.more = ",\"pruned_heads\":4096";
	refuse("config", &s, MODEL_EUNSUPPORTED,
	    "config.json: pruned_heads 4096 is not supported");
}

/* What was said while a model was loaded */
static char said[1024];
static unsigned times;

static void
listen(void *with, const char *text)
{
	(void)with;
	snprintf(said, sizeof said, "%s", text);
	times++;
}

/* Opens a model with overrides; NULL where it is refused with this message. */
static struct model *
open_with(const struct synth *s, const struct overrides *o, const char *refused)
{
	char err[512] = "", *dir = make_dir();
	struct model *m;
	int rc;

	said[0] = '\0';
	times = 0;
	synth_write(s, dir, 1);
	rc = model_open(dir, o, &(struct weights_reading){ .threads = 1 }, &stub, NULL, &m, err,
	    sizeof err);
	free(dir);
	if (refused == NULL)
		CHECK(rc == MODEL_OK, "%s", err);
	else
		check_refused(refused, rc, MODEL_EUNSUPPORTED, err, refused);
	return m;
}

/* One tensor beside those of a model: what has no part in its arithmetic is told in one line. */
static void
test_harmless(void)
{
	static const char *const names[] = { "model.layers.0.self_attn.rotary_emb.inv_freq",
		"model.rotary_emb.inv_freq", "model.layers.1.self_attn.rotary_emb.cos_cached",
		"model.layers.1.self_attn.masked_bias", "v_head.summary.weight", "score.weight",
		"optimizer.state.exp_avg", "model.embed_positions.position_ids" };
	const struct overrides o = { .notice = { listen, NULL } };
	struct synth s = synth_small();
	struct model *m;
	size_t i;

	synth_specs(&s);
	for (i = 0; i < sizeof names / sizeof names[0]; i++) {
		add_spec(&s, 4, 0, "%s", names[i]);
		s.spec[s.n - 1].type = i % 2 == 0 ? "F32" : "F8_E4M3";
	}
	add_spec(&s, 0, 32, "model.layers.0.self_attn.unheard_of");
	m = open_with(&s, &o, NULL);
	CHECK(times == 1 && strstr(said, "ignored tensors that are not the model's: 9 "
	    "(model.embed_positions") != NULL, "%u: %s", times, said);
	model_free(m);
	m = accept(&s, 1);
	check_model(m, &s);
	model_free(m);
	synth_specs(&s);
	model_free(open_with(&s, &o, NULL));
	CHECK(times == 0, "nothing to say: %s", said);
}

/* One that may have a part is refused, by a name that stands for all layers, unless it is
 * allowed. */
static void
test_allowed(void)
{
	static const struct { const char *name, *refused; } list[] = {
		{ "self_attn.k_scale", "a scale of a cache in eight bits" },
		{ "mlp.up_proj.weight_scale", "a scale of quantised weights" },
		{ "self_attn.o_proj.bias", "a bias that the configuration does not name" },
		{ "self_attn.q_norm.weight", "a norm of queries" },
		{ "self_attn.q_proj.lora_A.weight", "a LoRA that is not merged" },
		{ "self_attn.unheard_of", "not a tensor of this architecture, and 1 more: it may" },
	};
	char pattern[96];
	const char *const at[] = { "model.norm.weight", pattern };
	unsigned char there[2];
	struct overrides o = { .notice = { listen, NULL } };
	struct synth s = synth_small();
	struct model *m;
	size_t i;

	for (i = 0; i < sizeof list / sizeof list[0]; i++) {
		synth_specs(&s);
		add_spec(&s, 4, 0, "model.layers.0.%s", list[i].name);
		add_spec(&s, 4, 0, "model.layers.1.%s", list[i].name);
		snprintf(pattern, sizeof pattern, "model.layers.*.%s", list[i].name);
		o.tensors = (struct name_list){ 0 };
		model_free(open_with(&s, &o, list[i].refused));
		model_free(open_with(&s, &o, pattern));
		memset(there, 0, sizeof there);
		o.tensors = (struct name_list){ at, 2, there };
		m = open_with(&s, &o, NULL);
		CHECK(m != NULL && there[1] == 1 && there[0] == 0 && times == 0, "%s: %s", pattern,
		    said);
		model_free(m);
	}
}

/* The file of a tied model may hold the head as well, as long as it is the embedding. */
static void
test_tied_head(void)
{
	struct synth s = synth_small();
	char *dir = make_dir(), err[512] = "";
	const struct tensor *t;
	struct model *m;
	FILE *f;
	long head, embed;
	char path[256];
	void *data;
	int rc;

	s.tied = 0;
	synth_specs(&s);
	s.tied = 1;
	refuse("another head", &s, MODEL_EINVALID,
	    "lm_head.weight differs from model.embed_tokens.weight");
	synth_find(&s, "lm_head.weight")->dim[0] = 8;
	refuse("a small head", &s, MODEL_EINVALID,
	    "(--allow-tensor lm_head.weight ignores it, --allow-config tie_word_embeddings uses "
	    "it)");
	synth_find(&s, "lm_head.weight")->dim[0] = s.V;

	/* head <- embedding, within the file: the first and the last tensor */
	synth_write(&s, dir, 1);
	snprintf(path, sizeof path, "%s/model.safetensors", dir);
	f = fopen(path, "r+b");
	data = malloc(4 * s.V * s.D);
	fseek(f, 0, SEEK_END);
	head = ftell(f) - (long)(4 * s.V * s.D);
	fseek(f, 0, SEEK_SET);
	embed = 8 + fgetc(f) + 256L * fgetc(f);
	fseek(f, embed, SEEK_SET);
	CHECK(fread(data, 4, s.V * s.D, f) == s.V * s.D, "read");
	fseek(f, head, SEEK_SET);
	CHECK(fwrite(data, 4, s.V * s.D, f) == s.V * s.D && fclose(f) == 0, "write");
	free(data);
	rc = load(dir, &m, err, sizeof err);
	CHECK(rc == MODEL_OK, "code %d: %s", rc, err);
	if (rc == MODEL_OK) {
		t = safetensors_find(m->files, "model.embed_tokens.weight");
		CHECK(m->head.data == t->data && registered == 15, "%d", registered);
		model_free(m);
	}
	free(dir);
}

/* A head that is another one is passed over, or used, as one says; a tied model may have its
 * embedding under the name of the head alone. */
static void
test_tied_names(void)
{
	static const char *const head[] = { "lm_head.weight" },
	    *const tied[] = { "tie_word_embeddings" };
	const struct overrides without = { .tensors = { head, 1, NULL } },
	    with = { .keys = { tied, 1, NULL } };
	struct synth s = synth_small();
	struct model *m;

	s.tied = 0;
	synth_specs(&s);
	s.tied = 1;
	m = open_with(&s, &without, NULL);
	CHECK(m != NULL && m->id.tied_embeddings == 1, "passed over");
	model_free(m);
	m = open_with(&s, &with, NULL);
	CHECK(m != NULL && m->id.tied_embeddings == 0, "used");
	model_free(m);
	synth_specs(&s);
	strcpy(synth_find(&s, "model.embed_tokens.weight")->name, "lm_head.weight");
	m = accept(&s, 1);
	check_matrix(m, &m->head, "lm_head.weight", s.V, s.D);
	check_matrix(m, &m->embed, "lm_head.weight", s.V, s.D);
	model_free(m);
	s.tied = 0;
	refuse("no embedding", &s, MODEL_EINVALID, "no tensor model.embed_tokens.weight");
}

static void
test_device(void)
{
	struct synth s = synth_small();

	synth_specs(&s);
	fail_alloc = 1;
	refuse("alloc", &s, MODEL_ENOMEM, "no room for");
	fail_alloc = 0;
	for (fail_weights = 1; fail_weights <= 15; fail_weights += 7)
		refuse("weights", &s, MODEL_ENOMEM, "weight: no room for it on the device");
	fail_weights = 0;
	fail_sync = "the device is on fire";
	refuse("sync", &s, MODEL_EIO, "the device is on fire");
	fail_sync = NULL;
}

/* ---- by hand ---- */

static int
show(const char *dir)
{
	struct model *m;
	char err[512] = "";

	if (load(dir, &m, err, sizeof err) != MODEL_OK) {
		fprintf(stderr, "%s\n", err);
		return 1;
	}
	puts(m->id.weights);
	model_free(m);
	return 0;
}

int
main(int argc, char *argv[])
{
	struct synth s = synth_small();

	if (argc == 3 && strcmp(argv[1], "show") == 0)
		return show(argv[2]);
	if (argc == 3 && strcmp(argv[1], "write") == 0) {
		synth_specs(&s);
		synth_write(&s, argv[2], 1);
		return 0;
	}
	make_scratch();
	test_shapes();
	test_mixed();
	test_fingerprint();
	test_tensors();
	test_harmless();
	test_allowed();
	test_tied_head();
	test_tied_names();
	test_device();
	return failures != 0;
}
