/* session_tokenizer.c - the tokenizer of a model folder, for programs with a device and without
 * one */
#include <stdlib.h>
#include <string.h>

#include "cli/explain.h"
#include "cli/report.h"
#include "cli/session.h"
#include "cli/tool.h"
#include "model/folder.h"
#include "model/gguf.h"
#include "model/gguf_tokenizer.h"
#include "model/model.h"

static int
status_of_tokenizer(int code)
{
	switch (code) {
	case TOKENIZER_EINVALID:     return EXIT_DAMAGED;
	case TOKENIZER_EUNSUPPORTED: return EXIT_UNSUPPORTED;
	default:                     return EXIT_RUN;
	}
}

static int
code_of_model(int code)
{
	switch (code) {
	case MODEL_EINVALID:     return TOKENIZER_EINVALID;
	case MODEL_EUNSUPPORTED: return TOKENIZER_EUNSUPPORTED;
	case MODEL_ENOMEM:       return TOKENIZER_ENOMEM;
	default:                 return TOKENIZER_EIO;
	}
}

/* Of a folder, or of a GGUF file in its place */
static int
open_tokenizer(const char *dir, struct tokenizer **t, char *err, size_t errlen)
{
	json_t *json;
	int rc;

	if (!gguf_is(dir))
		return tokenizer_open(dir, t, err, errlen);
	*t = NULL;
	if ((rc = gguf_tokenizer(dir, &json, err, errlen)) != MODEL_OK)
		return code_of_model(rc);
	rc = tokenizer_open_json(dir, json, t, err, errlen);
	json_decref(json);
	return rc;
}

void
session_find_folder(void)
{
	static char *folder;
	char err[1024];

	if (folder != NULL)
		return;
	must_model(model_folder(settings.model, &folder, err, sizeof err), err);
	settings.model = folder;
}

struct tokenizer *
session_tokenizer(void)
{
	struct tokenizer *t;
	char err[1024];
	int rc;

	session_find_folder();
	report_enter(REPORT_LOAD);
	rc = open_tokenizer(settings.model, &t, err, sizeof err);
	report_leave();
	if (rc != 0) {
		explain_file(settings.model, err, sizeof err);
		die(status_of_tokenizer(rc), "%s", err);
	}
	return t;
}

struct tokenizer *
session_tokenizer_if_there(const char *dir, const char *why)
{
	struct tokenizer *t;
	char err[1024];
	int rc = open_tokenizer(dir, &t, err, sizeof err);

	if (rc != 0)
		explain_file(dir, err, sizeof err);
	if (rc == TOKENIZER_EIO || rc == TOKENIZER_EUNSUPPORTED)
		note("%s: %s", err, why);
	else if (rc != 0)
		die(status_of_tokenizer(rc), "%s", err);
	return t;
}

struct tokenizer *
session_tokenizer_of(const struct kv_reader *snapshot)
{
	const char *theirs = kv_reader_head(snapshot)->model.tokenizer;
	struct tokenizer *t = session_tokenizer();
	char ours[sizeof NO_TOKENIZER];

	tokenizer_fingerprint(t, ours);
	if (strcmp(theirs, NO_TOKENIZER) != 0 && strcmp(ours, theirs) != 0)
		die(EXIT_MODEL, "%s: its tokens are of tokenizer %s, and that of %s is %s",
		    kv_reader_name(snapshot), theirs, settings.model, ours);
	return t;
}
