/* engine_error.c - codes, messages and memory of functions that fail */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "engine/engine_error.h"
#include "libkvfile/kvfile.h"
#include "model/model.h"

int
engine_fail(struct engine_error *e, int code, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(e->text, sizeof e->text, fmt, ap);
	va_end(ap);
	e->code = code;
	return code;
}

static int
code_of_model(int model_code)
{
	return model_code == MODEL_EINVALID ? ENGINE_EDAMAGED :
	    model_code == MODEL_EUNSUPPORTED ? ENGINE_EUNSUPPORTED :
	    model_code == MODEL_EMISMATCH ? ENGINE_EMODEL : ENGINE_ERUN;
}

int
engine_fail_model(struct engine_error *e, int model_code, const char *text)
{
	return engine_fail(e, code_of_model(model_code), "%s",
	    text != NULL && *text != '\0' ? text : "out of memory");
}

int
engine_ran(struct engine_error *e, int model_code)
{
	if (model_code == 0)
		return ENGINE_OK;
	if (e->text[0] == '\0')
		return engine_fail_model(e, model_code, NULL);
	return e->code = code_of_model(model_code);
}

int
engine_fail_reader(struct engine_error *e, const struct kv_reader *r, int kv_code)
{
	const int code = kv_code == KV_ETRUNCATED || kv_code == KV_ECORRUPT ? ENGINE_EDAMAGED :
	    kv_code == KV_EVERSION ? ENGINE_EUNSUPPORTED : ENGINE_ERUN;
	const char *text = kv_reader_error(r);

	return engine_fail(e, code, "%s", *text != '\0' ? text : kv_error_name(kv_code));
}

int
engine_read(struct engine_error *e, const struct kv_reader *r, int kv_code)
{
	return kv_code < 0 ? engine_fail_reader(e, r, kv_code) : ENGINE_OK;
}

int
engine_fail_writer(struct engine_error *e, const struct kv_writer *w)
{
	return engine_fail(e, ENGINE_EOUTPUT, "%s", kv_writer_error(w));
}

int
engine_wrote(struct engine_error *e, const struct kv_writer *w, int kv_code)
{
	return kv_code < 0 ? engine_fail_writer(e, w) : ENGINE_OK;
}

void *
engine_alloc(size_t n, size_t size, struct engine_error *e)
{
	void *p = calloc(n != 0 ? n : 1, size != 0 ? size : 1);

	if (p == NULL)
		engine_fail(e, ENGINE_ERUN, "out of memory (%zu x %zu bytes)", n, size);
	return p;
}
