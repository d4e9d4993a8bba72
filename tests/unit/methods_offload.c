/* methods_offload.c - thresholds of layers on the host, against trying every number of layers
 *
 * In 128 bits, which processors with 32 do not have: there nothing is compared. */
#include <stdint.h>

#include "methods/offload_thresholds.h"
#include "tests/unit/methods_check.h"

#ifdef __SIZEOF_INT128__
__extension__ typedef unsigned __int128 wide;
#else
typedef uint64_t wide;
#endif

static uint64_t state = 88172645463325252u;

/* xorshift64 (Marsaglia 2003); below n */
static uint64_t
draw(uint64_t n)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state % n;
}

/* Do S tokens fit with i layers on the host? Equation 7 term by term, in tenths of bytes. */
static int
fits(const struct offload_plan *p, uint32_t i, wide S)
{
	const wide heads = (wide)10 * p->kv_heads * p->requests;
	const wide full = (wide)2 * p->element * p->width;
	const wide row = full * p->kv_heads * p->requests;
	wide all = 13 * ((wide)p->weights + p->head_weights);
	uint32_t l;

	for (l = 0; l < p->layers; l++)         /* layers on the device, slots of the others */
		all += heads * (p->row_bytes ? p->row_bytes[l] : full) *
		    (l < p->layers - i ? S : p->budget);
	all += 10 * row * S;                            /* the head's */
	all += 10 * row * p->group * S;                 /* rows repeated for each query head */
	return all <= 10 * (wide)p->limit;
}

/* Equation 8 for the token behind S others. */
static uint32_t
fewest(const struct offload_plan *p, uint64_t S)
{
	uint32_t i;

	for (i = 0; i <= p->layers; i++)
		if (fits(p, i, (wide)S + 1))
			return i;
	return OFFLOAD_NONE;
}

static void
check_plan(const struct offload_plan *p)
{
	uint64_t tokens, S;
	uint32_t i;
	int there, k;

	for (i = 0; i <= p->layers; i++) {
		there = offload_threshold(p, i, &tokens);
		check(there == fits(p, i, 0), "layer %u: %d", i, there);
		check(!there || (fits(p, i, tokens) && !fits(p, i, (wide)tokens + 1)),
		    "layer %u: %llu tokens", i, (unsigned long long)tokens);
		for (k = -2; there && k <= 2; k++) {
			if ((S = tokens + (uint64_t)k) > UINT64_MAX - 2)
				continue;
			check(offload_layers(p, S) == fewest(p, S), "%llu tokens: %u, not %u",
			    (unsigned long long)S, offload_layers(p, S), fewest(p, S));
		}
	}
	S = draw((uint64_t)1 << (1 + draw(40)));
	check(offload_layers(p, S) == fewest(p, S), "%llu tokens", (unsigned long long)S);
	/* Algorithm 2 from the layers of an earlier token gives those of this one. */
	check(p->budget > S || offload_layers(p, S) <= offload_layers(p, S + draw(1000)),
	    "%llu tokens: fewer layers later", (unsigned long long)S);
}

static void
check_random(void)
{
	uint32_t bytes[90], l;
	int n;

	for (n = 0; n < 10000; n++) {
		struct offload_plan p = { .limit = draw((uint64_t)1 << (20 + draw(24))),
		    .weights = draw((uint64_t)1 << (10 + draw(28))), .head_weights = draw(1 << 28),
		    .layers = (uint32_t)(1 + draw(90)), .kv_heads = (uint32_t)(1 + draw(64)),
		    .width = (uint32_t)(2 * (1 + draw(128))), .group = (uint32_t)(1 + draw(16)),
		    .requests = (uint32_t)(1 + draw(64)), .budget = (uint32_t)(1 + draw(8192)),
		    .element = draw(2) ? 2 : 4 };

		for (l = 0; l < p.layers; l++)
			bytes[l] = (uint32_t)(1 + draw((uint64_t)4 * p.element * p.width));
		check_plan(&p);
		p.row_bytes = bytes;
		check_plan(&p);
	}
}

/* Where products have more than 64 bits */
static void
check_large(void)
{
	int n;

	for (n = 0; n < 2000; n++) {
		struct offload_plan p = { .limit = UINT64_MAX - draw((uint64_t)1 << (1 + draw(63))),
		    .weights = draw((uint64_t)1 << (1 + draw(59))), .head_weights = draw(1 << 28),
		    .layers = (uint32_t)(1 + draw(20)), .kv_heads = (uint32_t)(1 + draw(64)),
		    .width = (uint32_t)(2 * (1 + draw(128))), .group = (uint32_t)(1 + draw(16)),
		    .requests = (uint32_t)(1 + draw((uint64_t)1 << (1 + draw(31)))),
		    .budget = (uint32_t)(1 + draw((uint64_t)1 << (1 + draw(31)))), .element = 2 };

		check_plan(&p);
	}
}

/* The paper's Llama-3.1-8B with 24 GB, and equation 7; what it prints as Algorithm 1 would give
 * 21158 and 21748 for the second and third. */
static void
check_paper(void)
{
	static const uint64_t want[] = { 20600, 21115, 21660, 22237 };
	const struct offload_plan p = { 24000000000u, 16000000000u, 60000000u, 32, 8, 128, 4, 1,
	    2048, 2, NULL };
	uint64_t tokens;
	uint32_t i;

	for (i = 0; i < 4; i++)
		check(offload_threshold(&p, i, &tokens) && tokens == want[i], "S%u: %llu", i,
		    (unsigned long long)tokens);
	check(offload_layers(&p, 20599) == 0 && offload_layers(&p, 20600) == 1 &&
	    offload_layers(&p, 22236) == 3, "layers");
}

/* The greatest numbers that there may be do not wrap. */
static void
check_greatest(void)
{
	const uint64_t most = (uint64_t)1 << 59;
	struct offload_plan p = { UINT64_MAX, most, most, 4096, 4096, 1024, 4096, UINT32_MAX,
	    UINT32_MAX, 4, NULL };

	check(offload_layers(&p, UINT64_MAX - 1) == OFFLOAD_NONE, "does not fit");
	p = (struct offload_plan){ UINT64_MAX, 1, 0, 1, 1, 1, 1, 1, 1, 1, NULL };
	check(offload_layers(&p, 1000) == 0, "fits");
}

int
main(void)
{
	check_paper();
	if (sizeof(wide) > sizeof(uint64_t)) {
		check_random();
		check_large();
	}
	check_greatest();
	return failures != 0;
}
