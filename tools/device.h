/* device.h - the backend that --device and -j name */
#ifndef KVPIPE_DEVICE_H
#define KVPIPE_DEVICE_H

#include "model/ops.h"

struct device {
	const struct ops *ops;
	struct dev *dev;
};

/* Opens settings.device: "cpu", "cuda", "cuda:N", or "auto" (CUDA where it works, else the CPU,
 * and -v says which). Dies. */
struct device device_open(void);
/* Dies when the device has failed. */
void device_check(const struct device *d);
void device_close(struct device *d);
/* 1 when a device pointer is ordinary memory, so that nothing needs to be copied there. */
int device_shares_memory(const struct device *d);
/* Opens it, describes it, closes it: for --version. */
const char *device_description(void);

#endif
