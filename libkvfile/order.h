/* order.h - which section may follow which (3.5), for reader and writer alike
 *
 * Internal to libkvfile. */
#ifndef KVFILE_ORDER_H
#define KVFILE_ORDER_H

#include "section.h"

#pragma GCC visibility push(hidden)

/* Sections that this version knows have a fixed place each: HEAD 0, TOKS 1, as many for
 * each layer as it has kinds, LGTS and so on. */
struct kv_order {
	uint32_t layers;        /* L; 0 until HEAD was read */
	int sinks;              /* 1: attention_sinks, SINk must stand before oBSq */
	uint64_t next;          /* the first place that is still allowed; 0 at the start */
};

/* Accepts h after the sections before it, or says why it may not follow: KV_ECORRUPT. The type
 * of h is known to be legal. */
int kv_order_step(struct kv_order *o, const struct kv_header *h, struct kv_message *why);

/* Returns KV_OK if the end may follow; LGTS and the sections after it are optional. Otherwise
 * names what is missing: KV_ECORRUPT. */
int kv_order_whole(const struct kv_order *o, struct kv_message *why);

#pragma GCC visibility pop
#endif
