/* head_fields.h - the table of an identity's fields, for reading, writing and comparing it
 *
 * Internal to libkvfile. */
#ifndef KVFILE_HEAD_FIELDS_H
#define KVFILE_HEAD_FIELDS_H

#include "head.h"

#include <jansson.h>
#include <stddef.h>

#pragma GCC visibility push(hidden)

enum field_kind { TEXT, HASH, FLAG, COUNT, REAL, FACTORS, LAYERS, DTYPE, ROPE, ROPE_TYPE };

struct head_field {
	const char *key;
	enum field_kind kind;
	size_t at;              /* offset in struct kv_model */
	uint32_t min, max;      /* of a COUNT */
	unsigned ropes;         /* rope types that have the field, a bit each; 0: all */
	int spare;              /* left out where it is 0 */
};

/* The fields of model and of model.rope, sorted by key; the last entry has none. */
extern const struct head_field kv_model_fields[], kv_rope_fields[];

/* Fails with KV_EVERSION if a HEAD has a key of model, rope or row_types, or a text, that is in no
 * table. What else is wrong with it is not looked at. */
int kv_head_known(const json_t *, struct kv_message *why);
/* Returns whether the type of rotary embedding has this field. */
int kv_head_belongs(const struct kv_model *m, const struct head_field *f);
/* Returns whether the value is the default that is left out. */
int kv_head_is_left_out(const struct kv_model *m, const struct head_field *f);
/* Returns whether a query sees all positions in this layer, whatever the window. */
int kv_head_is_whole(const struct kv_model *m, uint32_t layer);

#pragma GCC visibility pop
#endif
