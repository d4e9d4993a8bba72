/* kernels.h - the choice of kernels on a GPU, and the calls that a backend makes to its program */
#ifndef KVPIPE_KERNELS_H
#define KVPIPE_KERNELS_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Which kernels a GPU uses */
enum kernels {
	KERNELS_UNCHECKED,           /* the fastest that take a call */
	/* the same, once they have given what the plain ones give in a small problem of the call's
	 * kind */
	KERNELS_CHECKED,
	KERNELS_PLAIN                /* without tensor cores, fused ops and such: slow */
};

/* Calls of a backend to its program: it remembers results about the device for later processes, and
 * warns. Keys have no blank. */
struct findings {
	void *with;
	/* value[size] <- what is remembered for the key; returns 0 when that is nothing. */
	int (*find)(void *with, const char *key, char *value, size_t size);
	void (*keep)(void *with, const char *key, const char *value);
	void (*warn)(void *with, const char *text);
};

#ifdef __cplusplus
}
#endif
#endif
