/* notice.h - what is called when there is something to say and the work goes on */
#ifndef KVPIPE_NOTICE_H
#define KVPIPE_NOTICE_H

struct notice_hook {
	void (*call)(void *with, const char *text);     /* NULL: nobody listens */
	void *with;                                     /* the caller's, passed on */
};

/* Calls it with the text, up to 1023 bytes of it. */
void notice(const struct notice_hook *, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

#endif
