/* nogpu.c - linked where there is no CUDA toolkit: a backend that is not there */
#include "ops/ops.h"

const struct ops gpu_ops = { .name = "cuda" };
