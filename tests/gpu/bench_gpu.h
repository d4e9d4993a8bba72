/* bench_gpu.h - what the files of bench_gpu share */
#ifndef BENCH_GPU_H
#define BENCH_GPU_H

#include "ops/ops.h"

enum { MOST_COPIES = 16 };

extern const struct ops *const o;
extern struct dev *dev;
extern int tiny;                     /* small shapes, one call each */
extern int one_each;                 /* one call each, no measurement */
extern int turns;                    /* another program measures between the rounds */
extern int not_replayed;             /* measurements that no graph was replayed for */

void sync_or_die(const char *what);
void warm_up(void);                  /* keeps the GPU busy for half a second */

/* Device memory, released by o->free(). */
void *device_alloc(size_t bytes);
/* n random elements in [-scale, scale] on the device; the pattern repeats after a prime
 * number of elements. */
void *fill(size_t n, enum kv_dtype, float scale);
/* from, from + 1, ..., on the device */
uint32_t *count_up(uint32_t n, uint32_t from);

/* Times call(arg, number of the call), replayed from a CUDA graph, and prints one line; bytes is
 * what a call reads and writes, flop what it computes. Returns the seconds of a call. Where
 * nothing could be captured, calls are launched one by one, and not_replayed counts. */
double report(const char *what, void (*call)(void *, int), void *arg, double bytes, double flop);
/* The same launched one by one: ops that cannot be captured */
double report_launched(const char *what, void (*call)(void *, int), void *arg, double bytes,
    double flop);

void bench_matmul(void);             /* bench_layer.c */
void bench_layer(void);
void bench_fetch(void);              /* bench_fetch.c */
void bench_rows(void);               /* bench_quantised.c */

#endif
