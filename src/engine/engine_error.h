/* engine_error.h - how functions of engine/ fail: with a code, and a message that names the place
 *
 * engine/ neither prints nor exits. A function that can fail returns ENGINE_OK or a code, or a
 * pointer or NULL. When it fails, it has filled the struct engine_error, its last argument. */
#ifndef KVPIPE_ENGINE_ERROR_H
#define KVPIPE_ENGINE_ERROR_H

#include <stddef.h>

#include "model/notice.h"

struct kv_reader;
struct kv_writer;

enum {
	ENGINE_OK = 0,
	ENGINE_ERUN = -1,               /* a failure of the device, a file, or memory of the host */
	ENGINE_ENOROOM = -2,            /* not enough memory of the device */
	ENGINE_EOPTION = -3,            /* options that do not suit the model, prompt or snapshot */
	ENGINE_EDAMAGED = -4,           /* input that is truncated or contradicts itself */
	ENGINE_EMODEL = -5,             /* a snapshot, or an adapter, of another model */
	/* an unknown version or feature, or a text that is too long for the model */
	ENGINE_EUNSUPPORTED = -6,
	ENGINE_EOUTPUT = -7             /* a failure of writing the snapshot or another file */
};

struct engine_error {
	int code;
	char text[1024];
};

/* Fills *e and returns code, for return statements. */
int engine_fail(struct engine_error *e, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* As engine_fail(), from a MODEL_* code and its message; "out of memory" if the message is
 * empty. */
int engine_fail_model(struct engine_error *e, int model_code, const char *text);
/* As engine_fail_model(), after a function that wrote its message to e->text; ENGINE_OK for 0.
 * e->text must be empty before a function that writes no message: then it ran out of memory. */
int engine_ran(struct engine_error *e, int model_code);
/* As engine_fail(), from a KV_* code of libkvfile; the message is the reader's. */
int engine_fail_reader(struct engine_error *e, const struct kv_reader *r, int kv_code);
/* As engine_fail_reader() if kv_code is below 0; else ENGINE_OK. */
int engine_read(struct engine_error *e, const struct kv_reader *r, int kv_code);
/* As engine_fail(), after a failure of the writer; the message is the writer's. */
int engine_fail_writer(struct engine_error *e, const struct kv_writer *w);
/* As engine_fail_writer() if kv_code is below 0; else ENGINE_OK. */
int engine_wrote(struct engine_error *e, const struct kv_writer *w, int kv_code);
/* Returns n * size bytes, zeroed, to be freed; NULL and ENGINE_ERUN without memory. */
void *engine_alloc(size_t n, size_t size, struct engine_error *e);

#endif
