/* error.c - names of error codes, composition of messages */

#include "error.h"

#include <stdarg.h>
#include <stdio.h>

const char *
kv_error_name(int code)
{
	switch (code) {
	case KV_OK:
		return "no error";
	case KV_EIO:
		return "input/output error";
	case KV_ETRUNCATED:
		return "truncated input";
	case KV_ECORRUPT:
		return "corrupt input";
	case KV_EVERSION:
		return "unsupported input";
	case KV_EINVAL:
		return "wrong call";
	case KV_ENOMEM:
		return "out of memory";
	}
	return "unknown error";
}

int
kv_say(struct kv_message *m, int code, const char *fmt, ...)
{
	va_list ap;

	m->code = code;
	va_start(ap, fmt);
	if (vsnprintf(m->text, sizeof m->text, fmt, ap) < 0)
		m->text[0] = '\0';
	va_end(ap);
	return code;
}

const char *
kv_label(char text[KV_LABEL], const char *type, uint32_t layer)
{
	size_t i, n = 0;

	for (i = 0; i < 4; i++) {
		unsigned char c = (unsigned char)type[i];

		if ((c | 0x20) >= 'a' && (c | 0x20) <= 'z')
			text[n++] = (char)c;
		else
			n += (size_t)snprintf(text + n, 5, "\\x%02x", c);
	}
	text[n] = '\0';
	if (layer != KV_NO_LAYER)
		snprintf(text + n, KV_LABEL - n, " layer %u", layer);
	return text;
}
