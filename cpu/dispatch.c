/* dispatch.c - which of the compiled instruction sets runs here */
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "cpu/cpu_internal.h"

extern const struct simd simd_base;

#if defined(__x86_64__)
extern const struct simd simd_avx2, simd_avx512;
extern const struct bf16_products bf16_avx512;
extern const struct vnni_products vnni_avx512;
extern cpu_block_dots block_dots_vnni;

/* The flags that the Makefile compiles for. Half-precision conversion has no name in
 * __builtin_cpu_supports of clang 14. */
static int
runs_avx2(void)
{
	unsigned a, b, c, d;

	return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
	    __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C) != 0;
}

static int
runs_avx512(void)
{
	return runs_avx2() && __builtin_cpu_supports("avx512f") &&
	    __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
	    __builtin_cpu_supports("avx512vl");
}

static int
runs_bf16(void)
{
	return runs_avx512() && __builtin_cpu_supports("avx512bf16");
}

static int
runs_vnni(void)
{
	return runs_avx512() && __builtin_cpu_supports("avx512vnni") &&
	    __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("bmi2");
}
#endif

static int
runs_base(void)
{
	return 1;
}

/* Best first. */
static const struct {
	const struct simd *simd;
	int (*runs)(void);
} sets[] = {
#if defined(__x86_64__)
	{ &simd_avx512, runs_avx512 },
	{ &simd_avx2, runs_avx2 },
#endif
	{ &simd_base, runs_base },
};

static const struct simd *forced;

const struct simd *
cpu_simd(void)
{
	size_t i;

	if (forced != NULL)
		return forced;
	for (i = 0; !sets[i].runs(); i++)
		;
	return sets[i].simd;
}

int
cpu_force_isa(const char *name)
{
	size_t i;

	forced = NULL;
	if (name == NULL)
		return 1;
	for (i = 0; i < sizeof sets / sizeof sets[0]; i++)
		if (strcmp(sets[i].simd->name, name) == 0 && sets[i].runs())
			forced = sets[i].simd;
	return forced != NULL;
}

const struct bf16_products *
cpu_bf16(void)
{
#if defined(__x86_64__)
	if (cpu_simd() == &simd_avx512 && runs_bf16())
		return &bf16_avx512;
#endif
	return NULL;
}

cpu_block_dots *
cpu_blocks(void)
{
#if defined(__x86_64__)
	if (cpu_vnni() != NULL)
		return block_dots_vnni;
#endif
	return cpu_simd()->block_dots;
}

const struct vnni_products *
cpu_vnni(void)
{
#if defined(__x86_64__)
	if (forced == NULL && cpu_simd() == &simd_avx512 && runs_vnni())
		return &vnni_avx512;
#endif
	return NULL;
}
