/* head_fields.h - the fields of an identity, for those who read, write and compare it
 *
 * Internal to libkvfile. */
#ifndef KVFILE_HEAD_FIELDS_H
#define KVFILE_HEAD_FIELDS_H

#include "head.h"

#include <stddef.h>

#pragma GCC visibility push(hidden)

enum field_kind { TEXT, HASH, FLAG, COUNT, REAL, FACTORS, LAYERS, DTYPE, ROPE, ROPE_TYPE };

struct head_field {
	const char *key;
	enum field_kind kind;
	size_t at;              /* offset in struct kv_model */
	uint32_t min, max;      /* of a COUNT */
	unsigned ropes;         /* only with these types of rope, a bit for each; 0: with any */
	int spare;              /* left out where it is 0 */
};

/* Those of model, and of model.rope, sorted by key; the last one has none. */
extern const struct head_field kv_model_fields[], kv_rope_fields[];

/* Does the type of rotary embedding have this field? */
int kv_head_belongs(const struct kv_model *m, const struct head_field *f);
/* Is its value that which leaves it out? */
int kv_head_is_left_out(const struct kv_model *m, const struct head_field *f);
/* Does a query see all positions in this layer, whatever the window? */
int kv_head_is_whole(const struct kv_model *m, uint32_t layer);

#pragma GCC visibility pop
#endif
