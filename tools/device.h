/* device.h - the backend that --device and -j name */
#ifndef KVPIPE_DEVICE_H
#define KVPIPE_DEVICE_H

#include "model/ops.h"

struct device {
	const struct ops *ops;
	struct dev *dev;
};

/* Opens settings.device: "cpu", "cuda", "cuda:N", or "auto" (CUDA where it works, else the CPU, and -v says which). Dies. */
struct device device_open(void);
/* Dies when the device has failed. */
void device_check(const struct device *d);
void device_close(struct device *d);

#endif
