/* notice.c - says something, and the work goes on */
#include <stdarg.h>
#include <stdio.h>

#include "model/notice.h"

void
notice(const struct notice_hook *hook, const char *fmt, ...)
{
	char text[1024];
	va_list ap;

	if (hook->call == NULL)
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	hook->call(hook->with, text);
}
