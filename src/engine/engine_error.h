/* engine_error.h - how functions of engine/ fail: with a code, and a message that names the place
 *
 * engine/ neither prints nor exits. A function that can fail returns ENGINE_OK or a code, or a
 * pointer or NULL, and has filled the struct engine_error that it was given, as its last argument,
 * when it failed. */
#ifndef KVPIPE_ENGINE_ERROR_H
#define KVPIPE_ENGINE_ERROR_H

#include <stddef.h>

#include "model/notice.h"

struct kv_reader;
struct kv_writer;

enum {
	ENGINE_OK = 0,
	ENGINE_ERUN = -1,               /* the device, a file, or memory of the host */
	ENGINE_ENOROOM = -2,            /* memory of the device */
	ENGINE_EOPTION = -3,            /* options not for this model, prompt or snapshot */
	ENGINE_EDAMAGED = -4,           /* input that is truncated or contradicts itself */
	ENGINE_EMODEL = -5,             /* a snapshot, or an adapter, of another model */
	ENGINE_EUNSUPPORTED = -6,       /* a version or feature that is not known, or a text
	                                 * that is too long for this model */
	ENGINE_EOUTPUT = -7             /* the snapshot, or another file, that is written */
};

struct engine_error {
	int code;
	char text[1024];
};

/* Fills *e and returns code, for return statements. */
int engine_fail(struct engine_error *e, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* The same from a function that returns MODEL_* codes; its message, when it has none "out of
 * memory". */
int engine_fail_model(struct engine_error *e, int model_code, const char *text);
/* The same after a function that was given e->text for its message, where ENGINE_OK is for 0. One
 * that does not write messages ran out of memory: then e->text is what it was before, empty. */
int engine_ran(struct engine_error *e, int model_code);
/* The same after a function of libkvfile that returns KV_* codes; the message is the reader's. */
int engine_fail_reader(struct engine_error *e, const struct kv_reader *r, int kv_code);
/* The same where there is a failure only below 0; else ENGINE_OK. */
int engine_read(struct engine_error *e, const struct kv_reader *r, int kv_code);
/* The same after a function of libkvfile that writes; the message is the writer's. */
int engine_fail_writer(struct engine_error *e, const struct kv_writer *w);
/* n * size bytes, zeroed, to be freed; NULL and ENGINE_ERUN without memory. */
void *engine_alloc(size_t n, size_t size, struct engine_error *e);

#endif
