/* bind_layer.h - the tensors of a layer of a model folder, where forward() looks for them
 *
 * Included by model.c, bind_layer.c and bind_latent.c only. */
#ifndef KVPIPE_BIND_LAYER_H
#define KVPIPE_BIND_LAYER_H

#include "model/checkpoint.h"
#include "model/model.h"
#include "model/model_files.h"
#include "model/overrides.h"
#include "ops/device_block.h"

enum { TENSOR_NAME = 160 };     /* bytes of a name, at most */

struct loader {
	struct model *m;
	const struct overrides *overrides;      /* no_overrides while binding to the device */
	uint8_t *needed;        /* [tensors in the folder] 1: some part of the model asked for it */
	struct device_block constants;
	size_t matrices;        /* and of matrices, each a multiple of 256 */
	size_t copied;          /* of those that are copied on a device without memory of its own */
	/* of those, what is quantised in the folder, and how many matrices that is */
	size_t quantised_bytes, n_quantised;
	struct checkpoint_matrix quantised;     /* the matrix that was looked up last, if it is */
	char *err;
	size_t errlen;
};

#define FAIL(ld, code, file, ...) model_file_fail((ld)->err, (ld)->errlen, code, file, __VA_ARGS__)

/* full <- the name in the files of a tensor that the family calls name, with what behind it.
 * Returns full */
const char *tensor_name(const struct model *, const char *name, const char *what,
    char full[TENSOR_NAME]);

/* full <- the name of a part of layer l, with what behind it. Returns full */
const char *part_name(const struct loader *, uint32_t l, const char *part, const char *what,
    char full[TENSOR_NAME]);

/* The tensor of that name; NULL: there is none */
const struct tensor *find_part(const struct loader *, uint32_t l, const char *part,
    const char *what, char full[TENSOR_NAME]);

/* A part of a layer that is a matrix, or one of several on top of each other in one tensor */
struct part {
	const char *name;       /* NULL: the tensor of the part before it, behind its rows */
	uint32_t out, in;
	struct mat *w;
	const float **bias;     /* NULL: none */
};

/* Each looks a tensor up, which must be there in this shape, and binds it where the constants have
 * memory. Returns MODEL_*. */
int bind_matrix(struct loader *, const char *name, uint32_t out, uint32_t in, struct mat *);
int bind_vector(struct loader *, const char *name, uint32_t n, const float **);
/* As bind_vector(), of a vector or of a matrix of one row */
int bind_row(struct loader *, const char *name, uint32_t n, const float **);
/* n parts of layer l, in order */
int bind_parts(struct loader *, uint32_t l, const struct part *, size_t n);
/* A tensor [n][out][in], as one matrix [n out][in] */
int bind_tensor_of_all(struct loader *, const struct tensor *, uint32_t n, uint32_t out,
    uint32_t in, struct mat *);
/* *data <- rows of tensor t that have been put into another form, malloc()ed, NULL before the
 * constants have memory; they are the model's, or freed */
int bind_copy(struct loader *, const struct tensor *t, enum weight_type, void *copy, size_t bytes,
    const void **data);
/* NAME.weight, and NAME.bias where norms have biases */
int bind_norm(struct loader *, const char *name, uint32_t width, struct norm *);
/* Matrices, biases and norms of layer l */
int bind_layer(struct loader *, uint32_t l);
/* The mixture of experts of layer l, without its norm */
int bind_experts(struct loader *, uint32_t l);
/* w->at <- a table of n pointers. Returns it on the host, or NULL before the constants have
 * memory */
const void **bind_table(struct loader *, uint32_t n, struct expert_mats *w);
/* w->bias, and in turns with it that of more (NULL: nothing), <- a tensor of M experts, PART with
 * what behind it */
int bind_expert_biases(struct loader *, uint32_t l, const char *part, const char *what, uint32_t M,
    struct expert_mats *w, struct expert_mats *more);
/* Matrices and biases of experts with gate and up in turns */
int bind_experts_in_turns(struct loader *, uint32_t l, struct experts *);
/* The attention of layer l, of a family with latent attention */
int bind_latent(struct loader *, uint32_t l);

#endif
