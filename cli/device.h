/* device.h - the backend that --device and -j name, and memory on it */
#ifndef KVPIPE_DEVICE_H
#define KVPIPE_DEVICE_H

#include "engine/device_memory.h"

/* Opens settings.device: "cpu", "cuda", "cuda:N", or "auto" (CUDA where it works, else the CPU,
 * and -v says which). Dies. */
struct device device_open(void);
/* The same once more, for another thread of the program: with so many threads, 0 = all. Dies. */
struct device device_another(uint32_t threads);
/* Dies when the device has failed. */
void device_check(const struct device *d);
void device_close(struct device *d);
/* Opens it, describes it, closes it: for --version. */
const char *device_description(void);

/* Room for size bytes; what was there is lost. Dies. */
void *device_room(const struct device *d, struct area *a, size_t size);
/* The same, filled. */
void *device_upload(const struct device *d, struct area *a, const void *data, size_t size);
/* The positions of all KV heads, one after another, as their keys lie in a section. */
void *device_positions(const struct device *d, struct area *a, const struct kv_rows *rows);
void device_release(const struct device *d, struct area *a);

#endif
