/* ops_check.h - devices, random data and comparison for the tests of the op table
 *
 * Each case runs on every device there is: the CPU with each instruction set it runs, and with
 * products in bf16 and what else no set has (AVX512-VNNI), with 1, 2 and 3 threads, and GPUs, with
 * their naive kernels only ("cuda naive")
 * and with all. In ops_emulated, which is this test linked with tests/cuda, there is one GPU
 * instead, which runs threads and blocks in random order, or with -a three, one for each order, and
 * no CPU. With -s the parts that have many cases run a sample of them.
 *
 * A case checks three things: the error is within the tolerance of its op; every number of
 * threads, or order of them, gives the same bytes; and, where the case asks with again(), so does a
 * second run. */
#ifndef OPS_CHECK_H
#define OPS_CHECK_H

#include <math.h>
#include <stdlib.h>

#include "tests/unit/ops_reference.h"

/* Rows of the table of tolerances */
enum op { EMBED, RMSNORM, MATMUL, ROPE, APPEND, SWIGLU, MIX, TEMPER, LAYERNORM, PROJECT,
	ROPE_APPEND, ROPE_APPEND_F16, ROPE_APPEND_BF16, FFN, ATTEND, ATTEND_LARGE,
	ATTEND_DECODE, LSE, LSE_DECODE, MASS, MASS_LARGE, SCORES_BY_LABEL, ATTEND_CHOSEN,
	ATTEND_CHOSEN_LARGE, GATHER, REBUILD, REBUILD_F16, REBUILD_BF16, BITS_SCORES,
	PAGE_SCORES, KEY_SCORES, KNORM, KEYDIFF, VALUE_NORMS, ACTIVATE, GATE_SCORES,
	ATTEND_RECENT, ATTEND_ROWS, LSE_ROWS, MASS_ROWS, SCORES_ROWS, OPS };

struct device {
	const struct ops *ops;
	struct dev *dev;
	/* "base", "avx2", "avx512", "avx512 bf16", "cuda naive", "cuda" */
	char name[16];
	int threads;                 /* of a GPU: its number */
	int rounds;                  /* products may be of numbers rounded to 16 bits */
	uint64_t digest;             /* of the result of the current case; 0 = none yet */
};
/* The emulator's device that runs threads and blocks in random order; 0 and 1: forwards,
 * backwards */
enum { RANDOM_ORDER = 2 };
extern struct device device[16];
extern int devices, passed, failed;

/* only_gpu: a GPU that is not there is a failure; all_orders: all three of the emulator */
void open_devices(int only_gpu, int all_orders);
int emulated(void);                                         /* are the devices the emulator's? */
void close_devices(void);

void print_errors(void);
void verdict(int ok, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void new_case(void);
/* Does this case run? Asked once for each of the many cases of a part; without -s all do. */
int in_sample(void);
extern int only_sample;
/* got[n] against want[n], and against the bytes of the same processor with other numbers of
 * threads */
void compare(
    struct device *, enum op, const char *what, const float *got, const double *want, size_t n);
/* The same with a bound for each error, of ops_bounds.c */
void compare_each(struct device *, enum op, const char *what, const float *got, const double *want,
    const double *bound, size_t n);
/* ops_bounds.c */
double score_bound(double n, double magnitude, double loss, int tensor_cores);
void matmul_bound(double *bound, const double *magnitude, size_t ny, size_t in, enum kv_dtype,
    int rounds);
void rope_bound(double *bound, const float *x, const uint32_t *pos, const double *freq, size_t N,
    size_t heads, size_t E);
double rounded_bound(double bound, double want, enum kv_dtype);
/* got[bytes] against that of the same processor with other numbers of threads */
void same_bytes(struct device *, const char *what, const void *got, size_t bytes);
/* got[n] against the bytes of the last compare() */
void again(struct device *, const char *what, const float *got, size_t n);

/* Pseudo-random, the same in every run; of each part the same, whichever ran before */
void restart_draws(void);
uint32_t draw(uint32_t below);
unsigned char *draw_bytes(size_t n);                        /* n, and room for one more */
float *floats(size_t n, float scale);                       /* in [-scale, scale] */
double *doubles(const float *x, size_t n);
void round_to(float *x, enum kv_dtype type, size_t n);      /* to type and back */

/* Copies; the device ones belong to ops->free, the others to free. */
void *to_device(struct device *, const void *x, size_t bytes);
void *to_device_as(struct device *, const float *x, enum kv_dtype type, size_t n);
void *cleared(struct device *, size_t bytes);               /* device memory, 0 */
/* The copy begins `by` bytes behind where it would be aligned. */
void *put_askew(struct device *, const void *x, size_t bytes, size_t by);
void free_askew(struct device *, const void *p, size_t by);
float *from_device(struct device *, const void *p, size_t n);

void test_memory_ops(void);                                 /* ops_memory.c */
void test_compact(void);                                    /* ops_compact.c */
void test_keep(void);                                       /* ops_keep.c */
void test_keys(void);                                       /* ops_keys.c */
void test_matmuls(void);                                    /* ops_matmul.c */
void test_bf16(void);                                       /* ops_bf16.c */
void test_blocks(void);                                     /* ops_blocks.c */
void test_layer(void);                                      /* ops_layer.c */
void test_between(void);                                    /* ops_between.c */
void test_rope_appends(void);                               /* ops_rope_append.c */
void test_step(void);                                       /* ops_step.c */
void test_attention(void);                                  /* ops_attend.c */
void test_each(void);                                       /* ops_each.c */
void test_apart(void);                                      /* ops_apart.c */
void test_mass(void);                                       /* ops_mass.c */
void test_families(void);                                   /* ops_families.c */
void test_experts(void);                                    /* ops_experts.c */
void test_latent(void);                                     /* ops_latent.c */
void test_gates(void);                                      /* ops_gate.c */
void test_value_norms(void);                                /* ops_valuenorms.c */
void test_query_stats(void);                                /* ops_querystats.c */
void test_sinks(void);                                      /* ops_sinks.c */
void test_windows(void);                                    /* ops_windows.c */
void test_growing(void);                                    /* ops_growth.c */
void test_choose(void);                                     /* ops_choose.c */
void test_chosen(void);                                     /* ops_chosen.c */
void test_fetch(void);                                      /* ops_fetch.c */
void test_indexes(void);                                    /* ops_index.c */
void test_quantised(void);                                  /* ops_quantised.c */
void test_recent(void);                                     /* ops_recent.c */

#endif
