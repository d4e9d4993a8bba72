/* engine.c - the model folder that -m names, on the device that --device names */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tools/engine.h"
#include "tools/tool.h"

static int
status_of(int code)
{
	switch (code) {
	case MODEL_EINVALID:     return EXIT_DAMAGED;
	case MODEL_EUNSUPPORTED: return EXIT_UNSUPPORTED;
	default:                 return EXIT_RUN;
	}
}

struct tokenizer *
engine_tokenizer(void)
{
	struct tokenizer *t;
	char err[512];
	int rc = tokenizer_open(settings.model, &t, err, sizeof err);

	if (rc != 0)
		die(status_of(rc), "%s", err);
	return t;
}

void
engine_open(struct engine *e, const struct kv_reader *snapshot)
{
	char err[1024];
	int rc;

	e->tokenizer = engine_tokenizer();
	e->device = device_open();
	rc = model_load(settings.model, e->device.ops, e->device.dev, &e->model, err, sizeof err);
	if (rc != 0)
		die(status_of(rc), "%s", err);
	tokenizer_fingerprint(e->tokenizer, e->model->id.tokenizer);
	if (tokenizer_size(e->tokenizer) > e->model->id.vocabulary)
		die(EXIT_DAMAGED, "%s: the tokenizer has %u ids, the model %u", settings.model,
		    tokenizer_size(e->tokenizer), e->model->id.vocabulary);
	if (snapshot != NULL && kv_model_diff(&kv_reader_head(snapshot)->model, &e->model->id,
	    "snapshot", "model", err, sizeof err) != 0)
		die(EXIT_MODEL, "%s is not of the model %s: %s", kv_reader_name(snapshot),
		    settings.model, err);
}

void
engine_close(struct engine *e)
{
	model_free(e->model);
	tokenizer_close(e->tokenizer);
	device_close(&e->device);
}

void
parse_ids(const char *name, const char *text, size_t len, uint32_t vocabulary, struct ids *out)
{
	const char *p = text, *end = text + len;
	size_t line = 1;

	for (;;) {
		uint64_t id = 0;
		const char *word;

		for (; p < end && isspace((unsigned char)*p); p++)
			line += *p == '\n';
		if (p == end)
			return;
		for (word = p; p < end && isdigit((unsigned char)*p) && id < vocabulary; p++)
			id = id * 10 + (uint64_t)(*p - '0');
		if (p == word || (p < end && !isspace((unsigned char)*p)) || id >= vocabulary)
			die(EXIT_DAMAGED, "%s: line %zu: \"%.*s\" is not a token id below %u",
			    name, line, (int)strcspn(word, " \t\r\n\f\v"), word, vocabulary);
		if (out->n == out->cap) {
			out->cap = out->cap * 2 + 1024;
			out->ids = realloc(out->ids, out->cap * sizeof *out->ids);
			if (out->ids == NULL)
				die(EXIT_RUN, "no memory for %zu ids", out->cap);
		}
		out->ids[out->n++] = (uint32_t)id;
	}
}

double
seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}
