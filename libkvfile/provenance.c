/* provenance.c - a line of the provenance (kv-snapshot(5), 4.8) */
#include "jsontext.h"
#include "provenance.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *
quote(const char *s)
{
	json_t *v = json_string(s);
	char *text = v != NULL ? json_dumps(v, JSON_ENCODE_ANY) : NULL;

	json_decref(v);
	return text;
}

int
kv_provenance_line(char **line, const char *tool, const char *version, const char *options,
    struct kv_message *why)
{
	json_t *o = kv_json_object(options, strlen(options), why);
	int is_line = o != NULL && strpbrk(options, "\n\r") == NULL, code = KV_OK;
	char *t, *v;

	*line = NULL;
	json_decref(o);
	if (!is_line)
		return kv_say(why, KV_EINVAL, "options: not one JSON object");
	t = quote(tool);
	v = quote(version);
	if (t == NULL || v == NULL)
		code = kv_say(why, KV_EINVAL, "tool and version must be UTF-8");
	else if (asprintf(line, "{\"options\":%s,\"tool\":%s,\"version\":%s}\n", options, t,
	    v) < 0) {
		*line = NULL;
		code = kv_say(why, KV_ENOMEM, "no memory");
	}
	free(t);
	free(v);
	return code;
}
