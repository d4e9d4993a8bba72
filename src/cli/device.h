/* device.h - the backend that --device and -j name, and memory on it */
#ifndef KVPIPE_DEVICE_H
#define KVPIPE_DEVICE_H

#include "engine/device_memory.h"

/* Opens settings.device: "cpu", "cuda", "cuda:N", or "auto" (CUDA where it works, else the CPU,
 * and -v says which). Dies. */
struct device device_open(void);
/* The same once more, for another thread of the program: with so many threads, 0 = all. Dies. */
struct device device_another(uint32_t threads);
void device_close(struct device *d);
/* Opens it, describes it, closes it: for --version. */
const char *device_description(void);

#endif
