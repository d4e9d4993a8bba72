/* query_calibration.h - query statistics of a model from other texts, from a file
 *
 * As kvpress's ExpectedAttentionStats has them: tensors query_mean [layers][query heads][head
 * width] and query_cov [layers][query heads][head width][head width], f32, f16 or bf16, of a
 * safetensors file: mean and covariance of queries before rotary embedding. A third tensor may be
 * there, query_modulus [layers][query heads][head width / 2]: the mean modulus of the pair (i, i +
 * W/2), where W channels are rotated; numbers behind W/2 are not read. train/query_stats.py makes
 * a file. */
#ifndef KVPIPE_QUERY_CALIBRATION_H
#define KVPIPE_QUERY_CALIBRATION_H

#include "engine/engine_error.h"
#include "libkvfile/codec.h"

struct tensor_set;
struct tensor;

struct query_calibration {
	const char *path;               /* the caller's, for messages; NULL = none */
	uint32_t layers, heads, width;
	struct tensor_set *files;      /* the next two are in it */
	const struct tensor *mean, *covariance;
	const struct tensor *modulus;   /* NULL: the file has none */
	char hash[17];                  /* of the numbers, 16 hexadecimal digits */
};

/* Opens a file, or a folder with model.safetensors. ENGINE_EDAMAGED: the file is not one with such
 * tensors, or a number in it is not finite, or a variance or modulus negative. */
int query_calibration_load(struct query_calibration *out, const char *path, struct engine_error *);
void query_calibration_free(struct query_calibration *);        /* all zero is allowed */

/* *stats <- sums over one query with this mean, covariance, and, if the file has them, moduli (else
 * stats->modulus is NULL); numbers[] has room for kv_query_stats_numbers() and keeps them.
 * ENGINE_EDAMAGED: the file is of another model. */
int query_calibration_layer(const struct query_calibration *, const struct kv_model *,
    uint32_t layer, double *numbers, struct kv_query_stats *stats, struct engine_error *);

#endif
