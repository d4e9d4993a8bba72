/* gguf_rope.c - rotary embedding of a GGUF file, as rope_scaling of config.json has it
 *
 * The scalings of Llama 3 and of Phi-3 are tensors there: of factors by which frequencies are
 * divided. Those of Llama 3 follow from four numbers (transformers, _compute_llama3_parameters),
 * which are found again from the factors: so that the same model has the same identity, however
 * it is stored. */
#include <endian.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "model/family.h"
#include "model/gguf_config_internal.h"

enum { MOST_PAIRS = 512 };

/* The factors of a tensor of f32, one for each pair that is rotated */
struct factors {
	double f[MOST_PAIRS], turns[MOST_PAIRS];        /* turns of a pair at one token */
	uint64_t n;
};

struct llama3 {
	double factor, low, high, original;
};

/* f->n <- 0 where there is no such tensor */
static int
read_factors(struct gguf_reading *c, const char *name, uint64_t pairs, struct factors *f)
{
	const struct gguf_tensor *t = NULL;
	uint32_t bits;
	float x;
	size_t i;

	f->n = 0;
	for (i = 0; i < c->g->tensors; i++)
		if (strcmp(c->g->tensor[i].name, name) == 0)
			t = &c->g->tensor[i];
	if (t == NULL)
		return MODEL_OK;
	if (t->type->weight != WEIGHT_F32 || t->ndim != 1 || t->dim[0] != pairs ||
	    pairs > MOST_PAIRS)
		return BAD(c, "tensor %s: want %" PRIu64 " factors of type F32", name, pairs);
	for (i = 0; i < pairs; i++) {
		memcpy(&bits, t->data + i * sizeof bits, sizeof bits);
		bits = le32toh(bits);
		memcpy(&x, &bits, sizeof x);
		if (!(x > 0) || !isfinite(x))
			return BAD(c, "tensor %s: factor %zu is not a number above 0", name, i);
		f->f[i] = gguf_shortest(x);
	}
	f->n = pairs;
	return MODEL_OK;
}

/* ---- Llama 3 ---- */

/* The factor of a pair: 1 for short waves, the whole one for long ones, between them smooth */
static double
llama3_factor(const struct llama3 *p, double turns)
{
	const double all = p->original * turns, smooth = (all - p->low) / (p->high - p->low);

	if (all > p->high)
		return 1;
	if (all < p->low)
		return p->factor;
	return 1 / ((1 - smooth) / p->factor + smooth);
}

static int
explains(const struct llama3 *p, const struct factors *f)
{
	uint64_t i;

	if (!(p->original >= 1) || p->original >= UINT32_MAX || !(p->low < p->high))
		return 0;
	for (i = 0; i < f->n; i++)
		if (fabs(llama3_factor(p, f->turns[i]) - f->f[i]) > 2e-6 * f->f[i])
			return 0;
	return 1;
}

/* Where pair i is between long waves (0) and short ones (1) */
static double
smoothness(const struct llama3 *p, const struct factors *f, uint64_t i)
{
	return (1 / f->f[i] - 1 / p->factor) / (1 - 1 / p->factor);
}

/* Low 1 and high 4, as all published models have them, and the context that follows from the first
 * pair that is between them; where none is, that of the published models, or what the last short
 * wave allows. */
static int
usual_llama3(struct llama3 *p, const struct factors *f)
{
	uint64_t i = 0, shorts;

	p->low = 1;
	p->high = 4;
	while (i < f->n && f->f[i] == 1)
		i++;
	shorts = i;
	if (i < f->n && f->f[i] < p->factor) {
		p->original = round((p->low + smoothness(p, f, i) * (p->high - p->low)) /
		    f->turns[i]);
		return explains(p, f);
	}
	p->original = 8192;
	if (explains(p, f))
		return 1;
	p->original = shorts > 0 ? ceil(p->high / f->turns[shorts - 1]) : 1;
	return explains(p, f);
}

/* Only ratios of the other three show: low is 1, and two pairs between long and short say the
 * rest. */
static int
other_llama3(struct llama3 *p, const struct factors *f)
{
	double slope, below;
	uint64_t i = 0;

	while (i < f->n && f->f[i] == 1)
		i++;
	if (i + 1 >= f->n || !(f->f[i + 1] < p->factor))
		return 0;
	slope = (smoothness(p, f, i) - smoothness(p, f, i + 1)) / (f->turns[i] - f->turns[i + 1]);
	below = slope * f->turns[i] - smoothness(p, f, i);
	p->low = 1;
	p->high = 1 + round(1e4 / below) / 1e4;
	p->original = round(slope * (p->high - p->low));
	return explains(p, f);
}

static int
set_llama3(struct gguf_reading *c, json_t *rope, struct factors *f, double theta)
{
	struct llama3 p = { .factor = f->f[f->n - 1] };
	uint64_t i;
	int rc;

	for (i = 0; i < f->n; i++)
		f->turns[i] = pow(theta, -(double)i / (double)f->n) / (2 * M_PI);
	for (i = 0; i < f->n && f->f[i] == 1; i++)
		;
	if (i == f->n)
		return MODEL_OK;                /* no scaling */
	if (!(p.factor > 1) || (!usual_llama3(&p, f) && !other_llama3(&p, f)))
		return UNSUPPORTED(c, "tensor rope_freqs.weight: its factors are not those of "
		    "Llama 3, and others are not supported");
	if ((rc = gguf_set(c, rope, "rope_type", json_string("llama3"))) != MODEL_OK ||
	    (rc = gguf_set(c, rope, "factor", json_real(p.factor))) != MODEL_OK ||
	    (rc = gguf_set(c, rope, "low_freq_factor", json_real(p.low))) != MODEL_OK ||
	    (rc = gguf_set(c, rope, "high_freq_factor", json_real(p.high))) != MODEL_OK)
		return rc;
	return gguf_set(c, rope, "original_max_position_embeddings",
	    json_integer((json_int_t)p.original));
}

/* ---- Phi-3 ---- */

static int
set_list(struct gguf_reading *c, json_t *rope, const char *key, const struct factors *f)
{
	json_t *list = json_array();
	uint64_t i;
	int rc = gguf_set(c, rope, key, list);

	for (i = 0; rc == MODEL_OK && i < f->n; i++)
		if (json_array_append_new(list, json_real(f->f[i])) != 0)
			rc = FAIL(c, MODEL_ENOMEM, "out of memory");
	return rc;
}

/* The attention factor is left out where it is the usual one, whose digits a float cuts. */
static int
set_longrope(struct gguf_reading *c, json_t *rope, const struct factors *shorts,
    const struct factors *longs, uint64_t context)
{
	uint64_t original = 0;
	double factor = 0, usual;
	int rc;

	if ((rc = gguf_arch_whole(c, "rope.scaling.original_context_length", &original)) !=
	    MODEL_OK || (rc = gguf_arch_real(c, "rope.scaling.attn_factor", &factor)) != MODEL_OK)
		return rc;
	if (shorts->n == 0 || longs->n == 0 || original < 2)
		return BAD(c, "longrope needs the tensors rope_factors_short.weight and "
		    "rope_factors_long.weight, and key %s",
		    gguf_key(c, "rope.scaling.original_context_length"));
	usual = context <= original ? 1 :
	    sqrt(1 + log((double)context / (double)original) / log((double)original));
	if ((rc = gguf_set(c, rope, "rope_type", json_string("longrope"))) != MODEL_OK ||
	    (rc = set_list(c, rope, "short_factor", shorts)) != MODEL_OK ||
	    (rc = set_list(c, rope, "long_factor", longs)) != MODEL_OK)
		return rc;
	if (factor == 0 || (float)factor == (float)usual)
		return MODEL_OK;
	return gguf_set(c, rope, "attention_factor", json_real(factor));
}

/* ---- linear, yarn ---- */

/* mscale_all_dim of DeepSeek, a tenth of which is in the file, and to which mscale is equal in all
 * published models. Without it llama.cpp's scale of attention is none of transformers'. */
static int
set_latent(struct gguf_reading *c, json_t *rope)
{
	double tenth = 0, all;
	int rc = gguf_arch_real(c, "rope.scaling.yarn_log_multiplier", &tenth);

	if (rc != MODEL_OK)
		return rc;
	if (!(tenth > 0))
		return UNSUPPORTED(c, "yarn without key %s above 0 is not supported",
		    gguf_key(c, "rope.scaling.yarn_log_multiplier"));
	all = gguf_shortest((float)(10 * tenth));
	if ((rc = gguf_set(c, rope, "mscale", json_real(all))) != MODEL_OK)
		return rc;
	return gguf_set(c, rope, "mscale_all_dim", json_real(all));
}

/* Two numbers that only Ministral's yarn has: mscale_all_dim (*all, 0: none; llama.cpp takes mscale
 * for 1 then) and the scale of queries. */
static int
set_ministral(struct gguf_reading *c, json_t *rope, double *all)
{
	double beta = 0;
	int rc;

	*all = 0;
	if (!(c->arch->flags & GGUF_TEMPERATURE))
		return MODEL_OK;
	if ((rc = gguf_arch_real(c, "rope.scaling.yarn_log_multiplier", all)) != MODEL_OK ||
	    (rc = gguf_arch_real(c, "attention.temperature_scale", &beta)) != MODEL_OK ||
	    (*all > 0 && (rc = gguf_set(c, rope, "mscale", json_real(1))) != MODEL_OK) ||
	    (*all > 0 && (rc = gguf_set(c, rope, "mscale_all_dim", json_real(*all))) != MODEL_OK))
		return rc;
	return beta > 0 ? gguf_set(c, rope, "llama_4_scaling_beta", json_real(beta)) : MODEL_OK;
}

/* Where rotary embedding is not scaled, llama.cpp has no context for it. */
static int
check_temperature(struct gguf_reading *c, const json_t *rope)
{
	double beta = 0;
	int rc = gguf_arch_real(c, "attention.temperature_scale", &beta);

	if (rc != MODEL_OK || !(c->arch->flags & GGUF_TEMPERATURE) || beta == 0 ||
	    json_object_get(rope, "llama_4_scaling_beta") != NULL)
		return rc;
	return UNSUPPORTED(c, "key %s is supported with yarn only",
	    gguf_key(c, "attention.temperature_scale"));
}

static int
set_yarn(struct gguf_reading *c, json_t *rope, double factor)
{
	static const struct { const char *key, *config; } betas[] = {
		{ "rope.scaling.yarn_beta_fast", "beta_fast" },
		{ "rope.scaling.yarn_beta_slow", "beta_slow" } };
	uint64_t original = 0;
	double attention = 1, extrapolation = 1, more = 1, all, beta;
	size_t i;
	int rc;

	if ((rc = gguf_set(c, rope, "rope_type", json_string("yarn"))) != MODEL_OK ||
	    (rc = gguf_set(c, rope, "factor", json_real(factor))) != MODEL_OK ||
	    (rc = gguf_arch_whole(c, "rope.scaling.original_context_length", &original)) !=
	    MODEL_OK || (rc = gguf_arch_real(c, "rope.scaling.attn_factor", &attention)) !=
	    MODEL_OK || (rc = gguf_arch_real(c, "rope.scaling.yarn_attn_factor", &more)) !=
	    MODEL_OK || (rc = gguf_arch_real(c, "rope.scaling.yarn_ext_factor", &extrapolation)) !=
	    MODEL_OK)
		return rc;
	/* llama.cpp computes the usual one anew, whatever the file says */
	if (extrapolation != 1 || (more != 1 &&
	    fabs(more - model_yarn_attention_factor(factor, 0, 0)) > 1e-6))
		return UNSUPPORTED(c, "keys rope.scaling.yarn_ext_factor and yarn_attn_factor "
		    "other than 1 are not supported");
	if (original > 0 && (rc = gguf_set(c, rope, "original_max_position_embeddings",
	    json_integer((json_int_t)original))) != MODEL_OK)
		return rc;
	for (i = 0; i < sizeof betas / sizeof betas[0]; i++) {
		beta = 0;
		if ((rc = gguf_arch_real(c, betas[i].key, &beta)) != MODEL_OK || (beta > 0 &&
		    (rc = gguf_set(c, rope, betas[i].config, json_real(beta))) != MODEL_OK))
			return rc;
	}
	if ((c->arch->flags & GGUF_YARN_EXACT) &&
	    (rc = gguf_set(c, rope, "truncate", json_false())) != MODEL_OK)
		return rc;
	if (c->arch->flags & GGUF_LATENT)
		return attention == 1 ? set_latent(c, rope) : UNSUPPORTED(c, "key %s is not "
		    "supported in this architecture", gguf_key(c, "rope.scaling.attn_factor"));
	if ((rc = set_ministral(c, rope, &all)) != MODEL_OK)
		return rc;
	/* llama.cpp multiplies it with the usual one */
	return attention == 1 ? MODEL_OK : gguf_set(c, rope, "attention_factor",
	    json_real(attention * model_yarn_attention_factor(factor, all > 0, all)));
}

/* By rope.scaling.type, "linear" where it is absent */
static int
set_named(struct gguf_reading *c, json_t *rope)
{
	const char *type = "linear";
	size_t len = strlen(type);
	double factor = 0, attention = 1;
	int rc = MODEL_OK;

	if (!gguf_passed_over(c, "rope.scaling.type"))
		rc = gguf_text(c->g, gguf_key(c, "rope.scaling.type"), &type, &len, c->err,
		    c->errlen);
	if (rc != MODEL_OK ||
	    (rc = gguf_arch_real(c, "rope.scale_linear", &factor)) != MODEL_OK ||
	    (rc = gguf_arch_real(c, "rope.scaling.factor", &factor)) != MODEL_OK)
		return rc;
	if (len == 4 && memcmp(type, "yarn", len) == 0)
		return set_yarn(c, rope, factor == 0 ? 1 : factor);
	if ((rc = gguf_arch_real(c, "rope.scaling.attn_factor", &attention)) != MODEL_OK)
		return rc;
	if (attention != 1)
		return UNSUPPORTED(c, "key %s is supported with yarn and longrope only",
		    gguf_key(c, "rope.scaling.attn_factor"));
	if (len == 4 && memcmp(type, "none", len) == 0)
		return MODEL_OK;
	if (len != 6 || memcmp(type, "linear", len) != 0)
		return UNSUPPORTED(c, "key %s \"%.*s\" is not supported here",
		    gguf_key(c, "rope.scaling.type"), len < 64 ? (int)len : 64, type);
	if (factor == 0 || factor == 1)
		return MODEL_OK;
	if ((rc = gguf_set(c, rope, "rope_type", json_string("linear"))) != MODEL_OK)
		return rc;
	return gguf_set(c, rope, "factor", json_real(factor));
}

/* ---- all ---- */

static int
set_scaling(struct gguf_reading *c, json_t *rope, uint64_t dims, double theta, uint64_t context)
{
	static const char *const names[] = { "rope_freqs.weight", "rope_factors_short.weight",
		"rope_factors_long.weight" };
	struct factors f[3];
	size_t i;
	int rc;

	for (i = 0; i < 3; i++)
		if ((rc = read_factors(c, names[i], dims / 2, &f[i])) != MODEL_OK)
			return rc;
	if (f[1].n > 0 || f[2].n > 0)
		return set_longrope(c, rope, &f[1], &f[2], context);
	if ((rc = set_named(c, rope)) != MODEL_OK || f[0].n == 0)
		return rc;
	if (json_object_size(rope) > 0)
		return UNSUPPORTED(c, "tensor rope_freqs.weight and another scaling of rotary "
		    "embedding are not supported together");
	return set_llama3(c, rope, &f[0], theta);
}

/* *dims <- how many channels of a head are rotated */
static int
set_width(struct gguf_reading *c, uint64_t width, uint64_t *dims)
{
	int rc;

	*dims = width;
	if ((rc = gguf_arch_whole(c, "rope.dimension_count", dims)) != MODEL_OK)
		return rc;
	/* a family that knows the key may have another default than all channels */
	if (*dims == width)
		return family_find(c->arch->model_type)->flags & FAMILY_ROPE_WIDTH ? gguf_set(c,
		    c->json, "partial_rotary_factor", json_real(1)) : MODEL_OK;
	if (*dims > width || *dims == 0)
		return BAD(c, "key %s is %" PRIu64 ", a head has %" PRIu64 " channels",
		    gguf_key(c, "rope.dimension_count"), *dims, width);
	/* the reader cuts width * factor to a whole number */
	return gguf_set(c, c->json, "partial_rotary_factor",
	    json_real(((double)*dims + 0.5) / (double)width));
}

int
gguf_rope(struct gguf_reading *c, uint64_t width, uint64_t context)
{
	double theta = 10000, local = 0;
	uint64_t dims, original = 0;
	int finetuned = 1, rc;
	json_t *rope;

	if ((rc = gguf_arch_real(c, "rope.freq_base", &theta)) != MODEL_OK ||
	    (rc = gguf_set(c, c->json, "rope_theta", json_real(theta))) != MODEL_OK ||
	    (rc = gguf_arch_real(c, "rope.freq_base_swa", &local)) != MODEL_OK ||
	    (rc = set_width(c, width, &dims)) != MODEL_OK || (rc = gguf_flag(c->g,
	    gguf_key(c, "rope.scaling.finetuned"), &finetuned, c->err, c->errlen)) != MODEL_OK)
		return rc;
	/* llama.cpp leaves rotation out then */
	if (!finetuned && (c->arch->flags & GGUF_SCALES) &&
	    !gguf_passed_over(c, "rope.scaling.finetuned"))
		return UNSUPPORTED(c, "key %s is false, which is not supported",
		    gguf_key(c, "rope.scaling.finetuned"));
	if (local > 0 && (rc = gguf_set(c, c->json, "rope_local_base_freq", json_real(local))) !=
	    MODEL_OK)
		return rc;
	/* Phi-3 has it beside the object, with scaling or without */
	if ((c->arch->flags & GGUF_ORIGINAL_CONTEXT) && ((rc = gguf_arch_whole(c,
	    "rope.scaling.original_context_length", &original)) != MODEL_OK || (original > 0 &&
	    (rc = gguf_set(c, c->json, "original_max_position_embeddings",
	    json_integer((json_int_t)original))) != MODEL_OK)))
		return rc;
	if ((rope = json_object()) == NULL)
		return FAIL(c, MODEL_ENOMEM, "out of memory");
	if ((rc = set_scaling(c, rope, dims, theta, context)) == MODEL_OK)
		rc = check_temperature(c, rope);
	if (rc == MODEL_OK && json_object_size(rope) > 0)
		return gguf_set(c, c->json, "rope_scaling", rope);
	json_decref(rope);
	return rc;
}
