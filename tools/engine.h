/* engine.h - the model folder that -m names, on the device that --device names */
#ifndef KVPIPE_ENGINE_H
#define KVPIPE_ENGINE_H

#include "model/model.h"
#include "model/tokenizer.h"
#include "tools/device.h"

struct engine {
	struct device device;
	struct model *model;
	struct tokenizer *tokenizer;
};

/* Opens the device, the tokenizer and the model. When a snapshot is given, its identity must be
 * that of the model: exit 4 naming each field with both values. Dies. */
void engine_open(struct engine *e, const struct kv_reader *snapshot);
void engine_close(struct engine *e);

/* Only the tokenizer of settings.model. Dies. */
struct tokenizer *engine_tokenizer(void);

/* Appends the ids in text[len], decimal numbers between white space, each below `vocabulary`.
 * Dies and names line and word. */
void parse_ids(const char *name, const char *text, size_t len, uint32_t vocabulary,
    struct ids *out);

/* Seconds of a clock that only goes forward. */
double seconds(void);

#endif
