/* sequence_sections.c - a sequence from and to a snapshot: sections of offloaded layers and of the
 * retrieval head; all others are the cache's */
#include "forward/sequence_sections.h"
#include "libkvfile/codec.h"

/* ---- loading ---- */

/* Marks the layer as offloaded, if it is to be, before the cache gets its positions. */
static int
take_positions(struct kv_reader *r, const struct kv_section *sec, struct sequence *s)
{
	const uint32_t l = sec->layer;

	if (s->offload != NULL && l >= s->offload_from &&
	    s->cache->model->layer[l].window == 0 &&
	    (offload_mark(s->offload, l) != KV_OK || cache_positions_only(s->cache, l) != 0))
		return KV_ENOMEM;
	return snapshot_take(r, sec, s->cache, NULL);
}

/* Gives keys and values of offloaded layers to the store. Has it locate those of other layers in
 * the file, for layers that are offloaded later. */
static int
take_tensor(struct kv_reader *r, const struct kv_section *sec, struct sequence *s)
{
	int rc = KV_OK;

	if (offload_has(s->offload, sec->layer))
		return offload_store_take_section(s->offload->store, r, sec);
	if (s->offload != NULL)
		rc = offload_store_locate(s->offload->store, r, sec);
	return rc == KV_OK ? snapshot_take(r, sec, s->cache, NULL) : rc;
}

static int
take_head_keys(struct kv_reader *r, struct sequence *s)
{
	struct kv_head_keys keys;
	int rc = kv_load_head_keys(r, &keys);

	if (rc != KV_OK)
		return rc;
	s->head_other = (rc = head_keys_load(s->head, &keys)) == KV_EINVAL;
	return s->head_other ? KV_OK : rc;
}

static int
take(struct kv_reader *r, const struct kv_section *sec, struct sequence *s,
    struct observation *obs)
{
	switch (sec->kind) {
	case KV_POSN:
		return take_positions(r, sec, s);
	case KV_KEYS:
	case KV_VALS:
		return take_tensor(r, sec, s);
	case KV_RHDK:
		return s->head != NULL ? take_head_keys(r, s) :
		    snapshot_take(r, sec, s->cache, NULL);
	default:
		return snapshot_take(r, sec, s->cache, obs);
	}
}

int
sequence_load(struct kv_reader *r, struct sequence *s, struct observation *obs,
    const struct section_hook *hook)
{
	struct cache *c = s->cache;
	struct kv_section sec;
	int rc;

	c->logged = 0;                          /* until the log is loaded */
	while ((rc = kv_next(r, &sec)) == 1) {
		if ((rc = take(r, &sec, s, obs)) < 0)
			return rc;
		if (hook != NULL && (rc = hook->call(hook->with, r, &sec)) < 0)
			return rc;
	}
	if (obs != NULL && obs->loaded != c->model->id.layers)
		obs->have = 0;
	if (rc == 0) {
		c->next_position = kv_reader_head(r)->next_position;
		c->documents = kv_reader_head(r)->documents;
	}
	return rc;
}

/* ---- saving ---- */

static int
get_offloaded(void *with, uint32_t l, uint32_t g, enum kv_kind kind, void *to)
{
	return offload_get(with, l, g, kind, to);
}

int
sequence_save(struct kv_writer *w, const struct sequence *s, const struct observation *obs)
{
	const struct rows_elsewhere offloaded = { get_offloaded, s->offload };
	const struct cache *c = s->cache;
	uint32_t l;
	int rc = snapshot_put(w, c, NULL, KV_TOKS, 0);

	for (l = 0; rc == KV_OK && l < c->model->id.layers; l++)
		rc = snapshot_put_layer(w, c, obs, &offloaded, l);
	if (rc == KV_OK && c->logits != NULL)
		rc = kv_write_logits(w, c->logits);
	sequence_head_end(s);
	if (rc == KV_OK && s->head != NULL)
		rc = head_keys_save(s->head, w);
	return rc == KV_OK ? snapshot_put(w, c, NULL, KV_EVNT, 0) : rc;
}
