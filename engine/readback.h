/* readback.h - numbers that a device makes for one layer after another, on their way to the host
 *
 * The host asks for them as soon as the device has been told to make them, and goes on; when it
 * needs them, they have usually come. So it waits once for many layers instead of once for each. */
#ifndef KVPIPE_READBACK_H
#define KVPIPE_READBACK_H

#include "cli/device.h"

/* So many may be under way at once. */
enum { FETCHES = 8 };

/* A place for n numbers on the device: *at; to be given to fetching_begin(). Dies. */
int fetching_place(const struct device *d, size_t n, float **at);
/* Asks for n numbers that are at `from` after all work so far: the place, or other memory of the
 * device. */
void fetching_begin(const struct device *d, int place, const float *from, size_t n);
/* Waits for them; they are the caller's until the next fetching_place(). Dies. */
const float *fetching_end(const struct device *d, int place);
/* Gives all memory back. */
void fetching_release(const struct device *d);

#endif
