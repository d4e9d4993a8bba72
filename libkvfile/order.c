/* order.c - which section may follow which */

#include "order.h"

/* In kinds.h the kinds of a layer are consecutive, and pADD, which may be anywhere, is last. */
static const enum kv_kind in_order[] = {
#define KIND(number, name, type, flags) KV_##name,
	KV_KINDS(KIND)
#undef KIND
};

_Static_assert(sizeof in_order / sizeof *in_order == KV_KIND_END - 1, "a number for each kind");

/* The places of a text's first layer, and how many each layer has */
#define FIRST ((uint64_t)kv_kind_place(KV_POSN))
#define LAYER_KINDS ((uint64_t)kv_kind_place(KV_VALS) - FIRST + 1)

static uint64_t
place_of(const struct kv_order *o, enum kv_kind kind, uint32_t layer)
{
	uint64_t place = (uint64_t)kv_kind_place(kind);

	if (place < FIRST)
		return place;
	if (kv_kind_is(kind, KV_IN_LAYER))
		return place + LAYER_KINDS * layer;
	return place - LAYER_KINDS + LAYER_KINDS * o->layers;
}

static enum kv_kind
kind_at(const struct kv_order *o, uint64_t place, uint32_t *layer)
{
	uint64_t end = FIRST + LAYER_KINDS * o->layers;

	*layer = KV_NO_LAYER;
	if (place < FIRST)
		return in_order[place];
	if (place >= end)
		return in_order[FIRST + LAYER_KINDS + (place - end)];
	*layer = (uint32_t)((place - FIRST) / LAYER_KINDS);
	return in_order[FIRST + (place - FIRST) % LAYER_KINDS];
}

static const char *
label_at(const struct kv_order *o, uint64_t place, char text[KV_LABEL])
{
	uint32_t layer;
	enum kv_kind kind = kind_at(o, place, &layer);

	return kv_label(text, kv_kind_type(kind), layer);
}

/* Refuses a step that leaves out a required section between o->next and place. */
static int
check_left_out(const struct kv_order *o, uint64_t place, struct kv_message *why)
{
	char missing[KV_LABEL];
	uint32_t layer;
	uint64_t p;

	for (p = o->next; p < place; p++)
		if (kv_kind_is(kind_at(o, p, &layer), KV_REQUIRED))
			return kv_bad(why, "wrong order: %s is missing before it",
			    label_at(o, p, missing));
	return KV_OK;
}

/* Checks a section that this version does not know: between TOKS and iNDX, and if it has a
 * layer, there. */
static int
step_other(const struct kv_order *o, const struct kv_header *h, struct kv_message *why)
{
	char last[KV_LABEL];

	if (o->next <= place_of(o, KV_TOKS, KV_NO_LAYER) ||
	    o->next > place_of(o, KV_INDX, KV_NO_LAYER))
		return kv_bad(why, "wrong order: must stand after TOKS and before iNDX");
	if (h->layer == KV_NO_LAYER)
		return KV_OK;
	if (h->layer >= o->layers)
		return kv_bad(why, "wrong order: the model has only %u layers", o->layers);
	if (o->next <= place_of(o, KV_POSN, h->layer) ||
	    (h->layer + 1 < o->layers && o->next > place_of(o, KV_POSN, h->layer + 1)))
		return kv_bad(why, "wrong order: outside its layer, after %s",
		    label_at(o, o->next - 1, last));
	return KV_OK;
}

/* Learned sinks are known where queries are, so that their attention can be computed. */
static int
check_sinks(const struct kv_order *o, const struct kv_header *h, uint64_t place,
    struct kv_message *why)
{
	if (h->kind == KV_SINK && !o->sinks)
		return kv_bad(why, "HEAD has no attention_sinks");
	if (h->kind == KV_OBSQ && o->sinks && o->next != place)
		return kv_bad(why, "wrong order: SINk of layer %u is missing before it", h->layer);
	return KV_OK;
}

int
kv_order_step(struct kv_order *o, const struct kv_header *h, struct kv_message *why)
{
	char last[KV_LABEL];
	uint64_t place;

	if (o->next == 0 && h->kind != KV_HEAD)
		return kv_bad(why, "wrong order: HEAD is missing before it");
	if (h->kind == KV_UNKNOWN)
		return step_other(o, h, why);
	if (kv_kind_is(h->kind, KV_IN_LAYER) != (h->layer != KV_NO_LAYER))
		return kv_bad(why, "wrong order: must have %s layer number",
		    kv_kind_is(h->kind, KV_IN_LAYER) ? "a" : "no");
	if (h->kind == KV_PADD)
		return KV_OK;
	if (kv_kind_is(h->kind, KV_IN_LAYER) && h->layer >= o->layers)
		return kv_bad(why, "wrong order: the model has only %u layers", o->layers);
	place = place_of(o, h->kind, h->layer);
	if (place < o->next) {
		if (place + 1 == o->next || kv_kind_is(h->kind, KV_REQUIRED))
			return kv_bad(why, "wrong order: repeated");
		return kv_bad(why, "wrong order: must not stand after %s",
		    label_at(o, o->next - 1, last));
	}
	if (check_left_out(o, place, why) != KV_OK || check_sinks(o, h, place, why) != KV_OK)
		return why->code;
	o->next = place + 1;
	return KV_OK;
}

int
kv_order_whole(const struct kv_order *o, struct kv_message *why)
{
	return check_left_out(o, place_of(o, KV_LGTS, KV_NO_LAYER), why);
}
