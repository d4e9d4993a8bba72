/* gguf_read.c - reads a GGUF file as programs do, and checks what must hold of any file */
#include <sys/mman.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model/family.h"
#include "model/gguf_config.h"
#include "model/gguf.h"
#include "model/gguf_tokenizer.h"
#include "model/model.h"
#include "model/overrides.h"
#include "model/safetensors.h"
#include "tests/fuzz/gguf_read.h"
#include "tokenizer/tokenizer.h"

/* Larger models would only take time. */
#define MOST_WEIGHTS ((uint64_t)1 << 20)

extern const struct ops cpu_ops;

static void
must(int holds, const char *what)
{
	if (!holds) {
		fprintf(stderr, "%s\n", what);
		abort();
	}
}

/* A refusal names the file. */
static int
accepted(int rc, const char *path, const char *err)
{
	must(rc == MODEL_OK || (rc < 0 && strncmp(err, path, strlen(path)) == 0),
	    "a refusal without the name of the file");
	return rc == MODEL_OK;
}

/* Reads all bytes of all tensors. */
static void
read_tensors(const struct tensor_set *st)
{
	const struct tensor *t;
	volatile uint8_t sink = 0;
	size_t i, j;

	for (i = 0; (t = safetensors_at(st, i)) != NULL; i++) {
		must(safetensors_find(st, t->name) == t, "a tensor is not found by its name");
		for (j = 0; j < t->bytes; j++)
			sink = (uint8_t)(sink + ((const uint8_t *)t->data)[j]);
	}
}

static void
read_text(const struct tokenizer *t)
{
	static const char text[] = "Hello, <s> w\xc3\xb6rld 12345\n\n  the end<|im_end|>"
	    "\xe4\xb8\xad";
	struct text_start start = { 0 };
	struct ids ids = { 0 };
	char err[256] = "", *out;
	const char *bytes;
	size_t i, n;
	int rc = tokenizer_encode(t, text, sizeof text - 1, TOK_TEMPLATE, &ids, err, sizeof err);

	must(rc == 0 || err[0] != '\0', "a text is refused without a message");
	for (i = 0; i < ids.n; i++) {
		bytes = tokenizer_bytes(t, ids.ids[i], &n, NULL);
		must(bytes != NULL, "an id without text");
		if ((out = malloc(n + 1)) != NULL)
			tokenizer_begin(t, &start, ids.ids[i], out);
		free(out);
	}
	free(ids.ids);
}

static void
read_tokenizer(const char *path, struct gguf_counts *c)
{
	struct tokenizer *t;
	char err[1024] = "", hex[33];
	json_t *json;

	if (!accepted(gguf_tokenizer(path, &json, err, sizeof err), path, err))
		return;
	if (accepted(tokenizer_open_json(path, json, &t, err, sizeof err), path, err)) {
		c->tokenizers++;
		tokenizer_fingerprint(t, hex);
		read_text(t);
		tokenizer_close(t);
	}
	json_decref(json);
}

static void
read_model(const char *path, uint64_t bytes, struct gguf_counts *c)
{
	char err[1024] = "";
	struct dev *dev;
	struct model *m;

	if (bytes > MOST_WEIGHTS || (dev = cpu_ops.open(0, 1, err, sizeof err)) == NULL)
		return;
	if (accepted(model_load(path, &cpu_ops, dev, &m, err, sizeof err), path, err)) {
		c->models++;
		must(m->embed.data != NULL && (m->layer[0].wq.data != NULL ||
		    m->layer[0].latent.wq.data != NULL),
		    "a model without weights");
		model_free(m);
	}
	cpu_ops.close(dev);
}

static void
read_path(const char *path, struct gguf_counts *c)
{
	struct model *m = calloc(1, sizeof *m);
	struct tensor_set *st;
	char err[1024] = "";
	struct gguf *g;
	json_t *json;
	uint64_t bytes = 0;
	size_t i;

	c->files++;
	if (m != NULL && accepted(gguf_open(path, &g, err, sizeof err), path, err)) {
		c->containers++;
		for (i = 0; i < g->tensors; i++)
			bytes += g->tensor[i].bytes;
		gguf_close(g);
		if (accepted(model_config(path, &no_overrides, m, err, sizeof err), path, err)) {
			c->configurations++;
			must(m->family != NULL && m->id.layers > 0, "a configuration of nothing");
			read_model(path, bytes, c);
		}
		if (accepted(safetensors_open(path, &no_overrides, &st, err, sizeof err), path,
		    err)) {
			c->tensors++;
			read_tensors(st);
			safetensors_close(st);
		}
		read_tokenizer(path, c);
		if (accepted(gguf_chat(path, &json, err, sizeof err), path, err)) {
			c->chats++;
			json_decref(json);
		}
	}
	free(m);
}

void
gguf_read(const uint8_t *data, size_t size, struct gguf_counts *c)
{
	static int fd = -1;
	static char path[64];

	if (fd == -1) {
		must((fd = memfd_create("fuzz.gguf", 0)) != -1, "memfd_create");
		snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	}
	must(ftruncate(fd, 0) == 0 && pwrite(fd, data, size, 0) == (ssize_t)size, "write");
	read_path(path, c);
}

#ifdef FUZZ
int LLVMFuzzerTestOneInput(const uint8_t *, size_t);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct gguf_counts c;

	gguf_read(data, size, &c);
	return 0;
}
#endif
