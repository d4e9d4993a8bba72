/* rotate.c - rotates keys to other positions
 *
 * A key is stored after rotary embedding: of W of its channels, the first ones or, with latent
 * attention, the last ones, the pair (k[i], k[i + W/2]) has been rotated by p * freq[i]. Rotations
 * add up, so the same key at position q is the stored one rotated by (q - p) * freq[i]; the key
 * before rotary embedding is not needed. StreamingLLM (Xiao et al. 2023, section 3.2) gets the same
 * by keeping keys un-rotated, and numbering them by their place in the cache when they are read.
 *
 * Adjacent rows usually move by the same distance, so sines and cosines are reused from one row to
 * the next. The error is the rounding of the stored key and that of the result: a key that moves
 * many times is rounded, or quantised, as often.
 *
 * A factor on the keys (YaRN) does not change. Limits: the frequencies must not depend on the
 * length of the text. Those of plain, linear, llama3 and yarn scaling do not; those of
 * "dynamic" scaling would. */
#include <math.h>
#include <stdlib.h>

#include "methods/methods.h"

struct rotation {
	int64_t distance;
	double *cos, *sin;              /* [E/2] */
};

static void
set_rotation(struct rotation *t, int64_t distance, const double *freq, uint32_t pairs)
{
	uint32_t i;

	for (i = 0; i < pairs; i++) {
		t->cos[i] = cos((double)distance * freq[i]);
		t->sin[i] = sin((double)distance * freq[i]);
	}
	t->distance = distance;
}

static void
rotate_row(float *k, const struct rotation *t, uint32_t pairs)
{
	double x, y;
	uint32_t i;

	for (i = 0; i < pairs; i++) {
		x = k[i];
		y = k[i + pairs];
		k[i] = (float)(x * t->cos[i] - y * t->sin[i]);
		k[i + pairs] = (float)(x * t->sin[i] + y * t->cos[i]);
	}
}

int
rotate_keys(void *keys, const uint32_t *from, const uint32_t *to, const double *freq,
    uint32_t first, uint32_t dims, uint32_t n, uint32_t E, enum kv_row_type type)
{
	const size_t size = kv_row_bytes(type, E);
	double *room = malloc(E * (sizeof *room + sizeof(float)));
	float *k;
	char *row = keys;
	struct rotation t = { 0 };
	int64_t distance;
	uint32_t i;

	if (dims == 0) {                /* a layer without rotary embedding */
		free(room);
		return 0;
	}
	if (room == NULL)
		return ROTATE_ENOMEM;
	t.cos = room;
	t.sin = room + E / 2;
	k = (float *)(room + E);
	for (i = 0; i < n; i++, row += size) {
		if ((distance = (int64_t)to[i] - from[i]) == 0)
			continue;
		if (distance != t.distance)
			set_rotation(&t, distance, freq, dims / 2);
		kv_rows_to_f32(k, row, type, E, 1);
		rotate_row(k + first, &t, dims / 2);
		if (kv_rows_from_f32(row, k, type, E, 1) == 0)
			break;
	}
	free(room);
	return i < n ? ROTATE_ERANGE : 0;
}
