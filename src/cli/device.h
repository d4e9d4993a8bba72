/* device.h - the backend that --device and -j name, and memory on it */
#ifndef KVPIPE_DEVICE_H
#define KVPIPE_DEVICE_H

#include "engine/device_memory.h"

/* Opens settings.device: "cpu", "cuda", "cuda:N", or "auto" (CUDA if available, else the CPU;
 * -v says which). Dies. */
struct device device_open(void);
/* As device_open(), but a second instance for another thread, with this many CPU threads; 0 =
 * all. Dies. */
struct device device_another(uint32_t threads);
void device_close(struct device *d);
/* Returns the description of the device, opened and closed for it: for --version. */
const char *device_description(void);

#endif
