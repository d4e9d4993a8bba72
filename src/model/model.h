/* model.h - a model folder: Hugging Face config.json and safetensors, mapped; or a GGUF file of
 * llama.cpp in place of the folder
 *
 * Llama architecture: RMSNorm, rotary embedding with rotate-half pairing, grouped-query attention,
 * SwiGLU, and what families of models do otherwise (family.h). Whatever the configuration says that
 * changes the arithmetic and is not supported is refused by name (MODEL_EUNSUPPORTED), never
 * ignored.
 *
 * Weights stay mapped in their own type; only norm weights and biases (a few KB) are converted to
 * f32, and quantised matrices of a folder to bf16 (checkpoint.h). */
#ifndef KVPIPE_MODEL_H
#define KVPIPE_MODEL_H

#include "libkvfile/kvfile.h"
#include "model/checkpoint.h"
#include "model/weights_hash.h"
#include "ops/compose.h"

struct family;
struct overrides;
struct tensor_set;

enum {
	MODEL_OK = 0,
	MODEL_EIO = -1,            /* a file is missing or cannot be read */
	/* damaged or contradictory: bad JSON, wrong shape, missing tensor, overlapping data
	 * ... */
	MODEL_EINVALID = -2,
	MODEL_EUNSUPPORTED = -3,   /* valid, but not an architecture we compute */
	MODEL_ENOMEM = -4,
	MODEL_EMISMATCH = -5       /* made for another model */
};

enum { MODEL_EOS_MAX = 64 };    /* tokens that end a text */

/* Multi-head latent attention (DeepSeek-V2, 2024, section 2.1). rank, rope, nope and value are
 * latent_rank, rope_width, latent_nope and latent_value of the identity */
struct latent_attention {
	struct mat wq_a, wq;    /* [Q][D], out 0 without it; [H (nope + rope)][Q], or [D] */
	struct mat wc, wr;      /* [rank][D] the latent vector, [rope][D] the rotated key */
	/* [H (nope + value)][rank]: of each head W_UK, then W_UV; or, as GGUF files have it, W_UK
	 * with rows and columns exchanged, [H rank][nope], and W_UV in wv, [H value][rank] */
	struct mat wkv, wv;
	struct head_matrices uk, uv;    /* W_UK and W_UV */
	int uk_exchanged;
	struct norm q_norm, c_norm;
	const float *bq_a, *bc, *br;
};

/* NULL, or 1: Llama has no such part. */
struct model_layer {
	struct norm norm;                       /* before attention */
	struct norm q_norm, k_norm;             /* before rotary embedding */
	/* norm and scale of what attention and the network add; NULL: added as it is */
	const struct residual *attention_adds, *ffn_adds;
	struct residual residuals[2];           /* these two */
	const struct rotary *rope;
	uint32_t window;                        /* positions that a query sees; 0: all */
	struct mat wq, wk, wv, wo;              /* [H*E][D], [G*E][D], [G*E][D], [D][H*E] */
	/* in place of wq, wk, wv: [G][(R + 2)*E][D], of each KV head its queries, key and value;
	 * out 0: none */
	struct mat wqkv;
	struct latent_attention latent;         /* in place of wq, wk, wv; wo is [D][H value] */
	const float *bq, *bk, *bv, *bo;         /* device f32, NULL without attention_bias */
	const float *bqkv;                      /* of wqkv */
	const float *sinks;                     /* device f32 [H] of attention; NULL: none */
	struct ffn ffn;                         /* with experts: what all rows take beside them */
	struct ffn_bias ffn_bias;
	struct experts experts;                 /* router.experts 0: none */
	struct mat shared_score;                /* [1][D] how much ffn counts; out 0: fully */
};

/* The mixture of experts of a configuration; router.experts 0: there is none */
struct mixture {
	struct router router;                   /* without weights */
	int corrected;                          /* 1: scores are corrected for the choice */
	uint32_t width;                         /* F of an expert */
	/* of the network that all rows take beside them; 0: there is none */
	uint32_t shared;
	uint8_t layers[KV_LAYERS_MOST / 8];     /* a bit for each layer that has experts */
	float limit;                            /* of the activation of experts; 0: none */
	int everywhere;                         /* 1: all have */
	int predicts;                           /* 1: files have layers behind the last one */
};

struct model {
	const struct family *family;
	int wrapped;                            /* 1: the text part of a model that sees images */
	/* 1 where there is none: of embeddings, queries (after rotary embedding, so that logits are
	 * q.k/sqrt(E)), what layers add, logits */
	float embedding_scale, query_scale, residual_scale, logits_scale;
	float clip;                             /* bound of queries, keys and values; 0: none */
	uint32_t latent_query_rank;             /* Q; 0: queries come from the stream itself */
	int latent_adjacent;                    /* rotated channels stand side by side */
	/* more than 1: so many KV heads of a cache, id.kv_heads in all, for each of the weights',
	 * because a snapshot has rows for each query head (kv-convert --per-query-head) */
	uint32_t kv_copies;
	/* the identity that goes into snapshots; id.tokenizer is filled by the caller;
	 * id.weights_dtype is that of the embedding, other tensors may differ */
	struct kv_model id;
	/* the hash of all its weights; that of id is another while it names a snapshot that has the
	 * samples of older programs: model_name_weights() */
	char weights[33];
	struct weights_reading reading;         /* how they were read, and what is beside them is */
	char *dir;
	/* generation_config.json, else config.json; bos UINT32_MAX = none */
	uint32_t bos, eos[MODEL_EOS_MAX], n_eos;
	struct mixture mixture;
	uint32_t max_position;                  /* as the configuration claims; informative */
	/* rows must have lower positions, and why */
	uint32_t position_end;                  /* UINT32_MAX: all may */
	const char *position_why;
	/* longrope: the factors of a text of more tokens than rope_switch, which is 0 for others;
	 * those of a shorter one are in id until model_expect_text() */
	double long_factors[KV_ROPE_PAIRS];
	uint32_t rope_switch;
	/* of layers: usual ones; those without rotation; those with a window and a theta of their
	 * own */
	struct rotary rope, no_rope, window_rope;
	struct mat embed, head;                 /* [V][D]; head is embed when tied */
	struct checkpoint_config quantised;     /* how matrices are in the folder */
	int has_blocks;                         /* 1: some matrix is in blocks (weight_type.h) */
	const float *head_bias;                 /* device f32 [V]; NULL: none */
	struct norm norm;                       /* before the head */
	struct model_layer *layer;              /* [L] */

	/* the one device block that freq, norms and biases lie in */
	void *constants;
	size_t constant_bytes;                  /* of that block */
	/* of the matrices on the device, where they do not stay in the mapping */
	size_t matrix_bytes;
	/* matrices whose rows the files have in another order, or that are quantised:
	 * copies on the host, where the device uses mapped ones; their bytes, also before they are
	 * made */
	void **copies;                          /* [n_copies] */
	size_t n_copies, copy_bytes;
	const struct ops *ops;                  /* the backend and device it was loaded for */
	struct dev *dev;
	/* 1: products of a prompt may round activations to bf16 (ops.h, products_in_bf16); the
	 * caller's to set */
	int products_in_bf16;
	struct tensor_set *files;
	unsigned char *needed;                  /* [tensors of files] 1: a part of the model */
};

/* Reads config.json (and generation_config.json where there is one) into id and the scalar
 * fields; no weights. */
int model_config(const char *dir, const struct overrides *, struct model *m, char *err,
    size_t errlen);
/* Only the ids that end a text, those of generation_config.json before those of config.json; *n is
 * 0 where neither says one. eos[MODEL_EOS_MAX]. The same codes. */
int model_end_tokens(const char *dir, uint32_t *eos, uint32_t *n, char *err, size_t errlen);
/* Ends texts at this position, unless they end earlier already: rows must have lower ones. */
void model_end_at(struct model *m, uint32_t position, const char *why);

/* Sets how many tokens the next text has: longrope rotates all keys of a long one by other angles.
 * Call before model_bind(). */
void model_expect_text(struct model *, uint64_t tokens);
/* As model_expect_text(), for the continuation of a snapshot; sets kv_copies, too. */
void model_expect_snapshot(struct model *, const struct kv_model *snapshot);
/* Returns the KV heads that the weights have. */
static inline uint32_t
model_weight_heads(const struct model *m)
{
	return m->kv_copies > 1 ? m->id.kv_heads / m->kv_copies : m->id.kv_heads;
}
/* Are the keys of a text of so many tokens rotated as those of the text that was expected last?
 * Only then can one have rows of the other. */
int model_turns_alike(const struct model *, uint64_t tokens);

static inline int
model_layer_has_experts(const struct model *m, uint32_t l)
{
	return m->mixture.layers[l / 8] >> l % 8 & 1;
}
/* Returns the width of the widest network that all rows take. */
static inline uint64_t
model_network_width(const struct model *m)
{
	const uint32_t alone = m->mixture.everywhere ? 1 : m->id.ffn;

	return alone > m->mixture.shared ? alone : m->mixture.shared;
}

/* Opens a folder for a device. Every tensor the architecture needs must be there with the right
 * shape; the message has both shapes. Tensors that it does not need are an error unless the
 * overrides name them, or they are known to be harmless (leftovers.h; with tied embeddings an
 * lm_head.weight that is the same, byte for byte). The model is described completely then, but not
 * yet on the device. */
int model_open(const char *dir, const struct overrides *, const struct weights_reading *,
    const struct ops *ops, struct dev *dev, struct model **out, char *err, size_t errlen);
/* Copies the weights to the device: once, before anything is run. */
int model_bind(struct model *, char *err, size_t errlen);
/* model_open() without overrides, weights read by one thread, and model_bind() */
int model_load(const char *dir, const struct ops *ops, struct dev *dev, struct model **out,
    char *err, size_t errlen);
/* Compares a fingerprint with the model's weights. Returns one of these, or MODEL_ENOMEM. */
enum { WEIGHTS_OTHER, WEIGHTS_SAME, WEIGHTS_ALIKE };    /* alike: as far as samples tell */
int model_has_weights(const struct model *, const char *digits, char *err, size_t errlen);
/* id.weights <- the fingerprint by the rule of this snapshot (NULL: the current rule), so that both
 * can be compared. Returns MODEL_*. */
int model_name_weights(struct model *, const struct kv_model *snapshot, char *err, size_t errlen);
void model_free(struct model *);               /* NULL allowed; before the device is closed */

/* freq[W/2] <- rotary frequencies, host, of the W channels that are rotated (kv-snapshot(5), 4.1):
 * theta^(-2i/W), with the scaling that the identity names (Hugging Face modeling_rope_utils). */
void model_rope_frequencies(const struct kv_model *id, double *freq);
/* As model_rope_frequencies(), for layers with a window and a theta of their own: no scaling. */
void model_window_frequencies(const struct kv_model *id, double *freq);
/* Returns whether layer l has the second of these; freq <- the frequencies of layer l. */
int model_layer_frequencies(const struct kv_model *id, uint32_t l, double *freq);
/* Returns yarn's attention factor where none is given (YaRN, Peng et al. 2023, section 3.4): 0.1 m
 * ln(factor) + 1, divided by that of the second mscale if both are given. */
double model_yarn_attention_factor(double factor, double mscale, double mscale_all_dim);

#endif
