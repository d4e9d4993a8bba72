/* bench.h - what the benchmarks share: the clock, medians, the memory peer, one line of a report */
#ifndef KVPIPE_BENCH_H
#define KVPIPE_BENCH_H

#include <stddef.h>

#define ROUNDS 9
#define BENCH_BIG ((size_t)3 << 29)       /* bytes of the buffer that measures memory: 1.5 GiB */

extern int bench_threads;
extern int bench_cpu_time;                /* count processor time instead of the clock */

double bench_now(void);                   /* seconds */
double bench_median(double t[ROUNDS]);    /* sorts t */

/* Reads every byte once, with all threads. */
void bench_read_all(const char *p, size_t bytes);

void bench_report(const char *what, const char *unit, double ours, double peer);

#endif
