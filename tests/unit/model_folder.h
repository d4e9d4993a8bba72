/* model_folder.h - what the model_*.c tests share: checks, a scratch folder, synthetic models
 *
 * Written without the code under test. A test program includes it once. */
#ifndef MODEL_FOLDER_H
#define MODEL_FOLDER_H

#include <sys/stat.h>

#include <ftw.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model/model.h"
#include "model/overrides.h"

#define UNUSED __attribute__((unused))

/* ---- checks ---- */

static int failures;

#define CHECK(cond, ...)                                                        \
	do {                                                                    \
		if (!(cond)) {                                                  \
			failures++;                                             \
			fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, #cond); \
			fprintf(stderr, __VA_ARGS__);                           \
			fputc('\n', stderr);                                    \
		}                                                               \
	} while (0)

/* A refusal: the code, and a part of the message. */
static UNUSED void
check_refused(const char *what, int rc, int want, const char *err, const char *part)
{
	CHECK(rc == want, "%s: code %d, want %d (%s)", what, rc, want, err);
	CHECK(rc == 0 || strstr(err, part) != NULL, "%s: message \"%s\" lacks \"%s\"", what,
	    err, part);
}

/* ---- files ---- */

static char scratch[64];

static int
remove_one(const char *path, const struct stat *st, int type, struct FTW *f)
{
	(void)st, (void)type, (void)f;
	return remove(path);
}

static void
remove_scratch(void)
{
	nftw(scratch, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static UNUSED void
make_scratch(void)
{
	strcpy(scratch, "/tmp/kvpipe-model.XXXXXX");
	if (mkdtemp(scratch) == NULL) {
		perror(scratch);
		exit(1);
	}
	atexit(remove_scratch);
}

/* An empty folder in the scratch folder, to be freed. */
static UNUSED char *
make_dir(void)
{
	static int n;
	char *dir;

	if (asprintf(&dir, "%s/%d", scratch, n++) == -1 || mkdir(dir, 0777) == -1)
		abort();
	return dir;
}

static void
write_file(const char *dir, const char *name, const void *data, size_t n)
{
	char path[256];
	FILE *f;

	snprintf(path, sizeof path, "%s/%s", dir, name);
	if ((f = fopen(path, "wb")) == NULL || fwrite(data, 1, n, f) != n || fclose(f) != 0) {
		perror(path);
		exit(1);
	}
}

static UNUSED void
write_text(const char *dir, const char *name, const char *text)
{
	write_file(dir, name, text, strlen(text));
}

/* A safetensors file of this header and n bytes of data (made up when data is NULL); the header is
 * padded to a multiple of 8 when pad is set. */
static UNUSED void
write_safetensors(const char *dir, const char *name, const char *header, int pad,
    const uint8_t *data, size_t n)
{
	size_t len = strlen(header), room = pad ? (len + 7) / 8 * 8 : len, i;
	uint8_t *file = malloc(8 + room + n);

	for (i = 0; i < 8; i++)
		file[i] = (uint8_t)((uint64_t)room >> 8 * i);
	memset(file + 8, ' ', room);
	memcpy(file + 8, header, len);
	for (i = 0; i < n; i++)
		file[8 + room + i] = data == NULL ? (uint8_t)(i * 7) : data[i];
	write_file(dir, name, file, 8 + room + n);
	free(file);
}

/* ---- synthetic models ---- */

struct spec {
	char name[80];
	const char *type;       /* "BF16", "F16", "F32", or a name of one byte a element */
	unsigned ndim;
	uint64_t dim[2];
};

struct synth {
	uint32_t L, D, F, H, G, E, V;
	int tied, bias;
	const char *type;
	const char *more;       /* JSON to put at the end of config.json, with a leading comma;
	    "" */
	struct spec spec[128];  /* filled by synth_specs(); tests change it before synth_write() */
	size_t n;
};

static UNUSED struct synth
synth_small(void)
{
	return (struct synth){ .L = 2, .D = 32, .F = 48, .H = 4, .G = 2, .E = 8, .V = 1280,
	    .tied = 1,
	    .type = "F32", .more = "" };
}

static UNUSED void __attribute__((format(printf, 4, 5)))
add_spec(struct synth *s, uint64_t rows, uint64_t cols, const char *fmt, ...)
{
	struct spec *p = &s->spec[s->n++];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(p->name, sizeof p->name, fmt, ap);
	va_end(ap);
	p->type = s->type;
	p->ndim = cols == 0 ? 1 : 2;
	p->dim[0] = rows;
	p->dim[1] = cols;
}

static UNUSED void
synth_specs(struct synth *s)
{
	uint64_t D = s->D, F = s->F, q = s->H * s->E, kv = s->G * s->E, l, i;
	static const char *const att[] = { "q_proj", "k_proj", "v_proj", "o_proj" };
	const uint64_t out[] = { q, kv, kv, D }, in[] = { D, D, D, q };

	s->n = 0;
	add_spec(s, s->V, D, "model.embed_tokens.weight");
	for (l = 0; l < s->L; l++) {
		add_spec(s, D, 0, "model.layers.%" PRIu64 ".input_layernorm.weight", l);
		for (i = 0; i < 4; i++) {
			add_spec(s, out[i], in[i], "model.layers.%" PRIu64
			    ".self_attn.%s.weight", l, att[i]);
			if (s->bias)
				add_spec(s, out[i], 0, "model.layers.%" PRIu64
				    ".self_attn.%s.bias", l, att[i]);
		}
		add_spec(s, D, 0, "model.layers.%" PRIu64 ".post_attention_layernorm.weight", l);
		add_spec(s, F, D, "model.layers.%" PRIu64 ".mlp.gate_proj.weight", l);
		add_spec(s, F, D, "model.layers.%" PRIu64 ".mlp.up_proj.weight", l);
		add_spec(s, D, F, "model.layers.%" PRIu64 ".mlp.down_proj.weight", l);
	}
	add_spec(s, D, 0, "model.norm.weight");
	if (!s->tied)
		add_spec(s, s->V, D, "lm_head.weight");
}

static UNUSED struct spec *
synth_find(struct synth *s, const char *name)
{
	size_t i;

	for (i = 0; i < s->n; i++)
		if (strcmp(s->spec[i].name, name) == 0)
			return &s->spec[i];
	abort();
}

/* Element i of a tensor: a multiple of 1/64 in [0, 1), exact in every type. */
static float
synth_value(const char *name, uint64_t i)
{
	uint32_t h = 7;

	while (*name != '\0')
		h = h * 31 + (uint8_t)*name++;
	return (float)((h + i * 5) % 64) / 64;
}

static size_t
spec_width(const struct spec *p)
{
	return strcmp(p->type, "F32") == 0 ? 4 : strcmp(p->type, "BF16") == 0 || strcmp(p->type,
	    "F16") == 0 ? 2 : 1;
}

static uint64_t
spec_elements(const struct spec *p)
{
	return p->dim[0] * (p->ndim == 2 ? p->dim[1] : 1);
}

/* Writes specs first, first + step, ... to one file. */
static UNUSED void
synth_file(const struct synth *s, const char *dir, const char *name, size_t first, size_t step)
{
	size_t size = 0, at = 0, i, n, room = 0;
	enum kv_dtype type;
	uint8_t *data = NULL;
	char *header = malloc(300 * (s->n + 1));
	const struct spec *p;
	uint64_t e;
	float v;

	at += (size_t)sprintf(header, "{\"__metadata__\":{\"format\":\"pt\"}");
	for (i = first; i < s->n; i += step) {
		p = &s->spec[i];
		n = spec_elements(p) * spec_width(p);
		at += (size_t)sprintf(header + at,
		    ",\"%s\":{\"dtype\":\"%s\",\"shape\":[%" PRIu64, p->name, p->type,
		    p->dim[0]);
		if (p->ndim == 2)
			at += (size_t)sprintf(header + at, ",%" PRIu64, p->dim[1]);
		at += (size_t)sprintf(header + at, "],\"data_offsets\":[%zu,%zu]}", size, size + n);
		if (size + n > room)
			data = realloc(data, room = 2 * (size + n));
		type = strcmp(p->type, "F16") == 0 ? KV_F16 : strcmp(p->type,
		    "BF16") == 0 ? KV_BF16 : KV_F32;
		for (e = 0; e < spec_elements(p); e++) {
			v = synth_value(p->name, e);
			if (spec_width(p) == 1)
				data[size + e] = (uint8_t)e;
			else
				kv_from_f32(data + size + e * spec_width(p), &v, type, 1);
		}
		size += n;
	}
	strcpy(header + at, "}");
	write_safetensors(dir, name, header, 1, data, size);
	free(data);
	free(header);
}

/* config.json, and the tensors in one file or, dealt out in turn, in several with an index. */
static UNUSED void
synth_write(const struct synth *s, const char *dir, unsigned shards)
{
	char text[1024], name[32], *index = malloc(160 * (s->n + 2));
	size_t at, i;

	snprintf(text, sizeof text, "{\"model_type\":\"llama\",\"num_hidden_layers\":%u,"
	    "\"hidden_size\":%u,\"intermediate_size\":%u,\"num_attention_heads\":%u,"
	    "\"num_key_value_heads\":%u,\"head_dim\":%u,\"vocab_size\":%u,"
	    "\"tie_word_embeddings\":%s,\"attention_bias\":%s,\"rms_norm_eps\":1e-5,"
	    "\"rope_theta\":10000.0%s}", s->L, s->D, s->F, s->H, s->G, s->E, s->V,
	    s->tied ? "true" : "false", s->bias ? "true" : "false", s->more);
	write_text(dir, "config.json", text);
	if (shards == 1)
		synth_file(s, dir, "model.safetensors", 0, 1);
	else {
		at = (size_t)sprintf(index, "{\"weight_map\":{");
		for (i = 0; i < s->n; i++)
			at += (size_t)sprintf(index + at, "%s\"%s\":\"model-%zu.safetensors\"",
			    i == 0 ? "" : ",",
			    s->spec[i].name, i % shards);
		strcpy(index + at, "}}");
		write_text(dir, "model.safetensors.index.json", index);
		for (i = 0; i < shards; i++) {
			snprintf(name, sizeof name, "model-%zu.safetensors", i);
			synth_file(s, dir, name, i, shards);
		}
	}
	free(index);
}

#endif
