/* bench_gpu.h - what the files of bench_gpu share */
#ifndef BENCH_GPU_H
#define BENCH_GPU_H

#include "model/ops.h"

enum { MOST_COPIES = 16 };

extern const struct ops *const o;
extern struct dev *dev;
extern int tiny;                     /* small shapes, each once */

void sync_or_die(const char *what);
void warm_up(void);                  /* half a second */

/* Memory of the device, for o->free(). */
void *room(size_t bytes);
/* n random elements in [-scale, scale]; a pattern of a prime length repeats */
void *fill(size_t n, enum kv_dtype, float scale);
/* from, from + 1, ... */
uint32_t *count_up(uint32_t n, uint32_t from);

/* Prints one line: what, seconds for a call(arg, number of the call), and what a call reads and
 * writes (bytes) and computes. Returns the seconds. */
double report(const char *what, void (*call)(void *, int), void *arg, double bytes, double flop);

void bench_matmul(void);             /* bench_layer.c */
void bench_layer(void);

#endif
