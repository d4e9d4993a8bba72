/* retrieval_lists - the bytes of retrieval's lists that a memory plan counts are those that are
 * allocated */
#include <stdlib.h>

#include "retrieval/head_keys.h"
#include "retrieval/retrieval.h"
#include "tests/unit/methods_check.h"

#define E 8

static size_t allocated;

static void *
counted_alloc(struct dev *dev, size_t bytes)
{
	allocated += bytes;
	return cpu_ops.alloc(dev, bytes);
}

/* One KV head, or two, of so many rows, and a text of so many tokens */
static void
check_lists(const struct ops *ops, struct dev *dev, const struct retrieval_options *o,
    uint32_t query_heads, uint32_t heads, uint32_t n, uint32_t tokens)
{
	struct retrieval *t = retrieval_new(ops, dev, o, 1, query_heads, heads, E, KV_F32, NULL);
	struct retrieval_head head = { .H = 2 * query_heads };
	uint32_t capacity[2] = { n, n / 3 };
	struct layer_rows rows = { .heads = heads, .width = E, .dtype = KV_F32,
	    .capacity = capacity };
	struct head_keys text = { .head = &head, .keys = { .capacity = &tokens } };
	struct layer_index none = { .present = 0 };
	uint64_t want;

	check(t != NULL, "memory");
	if (o->offload)                 /* of which only the pointer is looked at */
		check(retrieval_use_offload(t, (struct offload *)&text) == 0, "memory");
	want = retrieval_list_bytes(o, query_heads, heads, head.H, retrieval_most(&rows), tokens);
	allocated = 0;
	check(retrieval_reserve(t, &rows, &none) == 0 && specontext_reserve(t, &text) == 0,
	    "%s: memory", retrieve_name(o->method));
	check(allocated == want, "%s per %d, audit %d, offload %d, %u query heads, %u rows: "
	    "%zu bytes, %llu counted", retrieve_name(o->method), o->per, o->audit, o->offload,
	    query_heads, n, allocated, (unsigned long long)want);
	retrieval_free(t);
}

/* The choices of KV heads, and of query heads. */
static void
check_method(const struct ops *ops, struct dev *dev, struct retrieval_options *o)
{
	static const uint32_t rows[] = { 1, 31, 32, 100, 1000 };
	size_t i;

	for (i = 0; i < sizeof rows / sizeof *rows; i++) {
		o->per = PER_KV_HEAD;
		check_lists(ops, dev, o, 6, 2, rows[i], rows[i] + 7);
		o->per = PER_QUERY_HEAD;
		if (o->method == RETRIEVE_SPECONTEXT)
			check_lists(ops, dev, o, 128, 1, rows[i], 2 * rows[i]);
	}
}

int
main(void)
{
	struct retrieval_options o = { .budget = 8 };
	struct ops ops = cpu_ops;
	char err[256];
	struct dev *dev = cpu_ops.open(0, 1, err, sizeof err);
	int method;

	check(dev != NULL, "%s", err);
	ops.alloc = counted_alloc;
	for (method = 0; method < RETRIEVE_METHODS; method++)
		for (o.audit = 0; o.audit < 2; o.audit++) {
			o.method = (enum retrieve_method)method;
			o.offload = 0;
			check_method(&ops, dev, &o);
			o.offload = 1;
			if (!o.audit)
				check_method(&ops, dev, &o);
		}
	cpu_ops.close(dev);
	return failures > 0;
}
