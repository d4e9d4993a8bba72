/* leftovers.c - what trainers, servers and old classes leave in the files beside the tensors of the
 * model
 *
 * Harmless is what no model of a family here has ever multiplied with anything: tables that follow
 * from the configuration, masks, counters, heads for other tasks on top of the last hidden state,
 * and what has no elements. Everything else is refused by name, as keys of a configuration are: a
 * bias, a norm of queries, a scale of quantised weights or of a cache in eight bits is part of the
 * arithmetic somewhere else, and what nobody has thought of may be. */
#include <stdio.h>
#include <string.h>

#include "model/leftovers.h"
#include "model/model.h"
#include "model/model_files.h"

/* Old classes kept them as buffers. */
static const char *const buffers[] = {
	".rotary_emb.inv_freq", ".rotary_emb.original_inv_freq", ".rotary_emb.cos_cached",
	".rotary_emb.sin_cached", ".masked_bias", ".position_ids", ".causal_mask",
	".num_batches_tracked"
};

/* Beside "model." and "lm_head.": heads of reward models and of reinforcement learning, heads that
 * guess more tokens than one, and what a trainer goes on with. */
static const char *const heads[] = {
	"v_head.", "value_head.", "score.", "classifier.", "reward_head.", "rm_head.",
	"critic_head.",
	"medusa_head.", "mtp.", "optimizer.", "lr_scheduler."
};

/* What is not harmless, and why there is one */
static const struct { const char *ends, *what; } known[] = {
	{ ".k_scale", "a scale of a cache in eight bits" },
	{ ".v_scale", "a scale of a cache in eight bits" },
	{ ".q_scale", "a scale of queries in eight bits" },
	{ "_scale", "a scale of quantised weights" }, { ".scales", "a scale of quantised weights" },
	{ "_scale_inv", "a scale of quantised weights" }, { ".qweight", "quantised weights" },
	{ ".qzeros", "of quantised weights" }, { ".g_idx", "of quantised weights" },
	{ ".absmax", "of quantised weights" }, { ".SCB", "of quantised weights" },
	{ ".q_norm.weight", "a norm of queries" }, { ".k_norm.weight", "a norm of keys" },
	{ "_proj.bias", "a bias that the configuration does not name" },
	{ ".sinks", "an attention sink" },
	{ ".lora_A.weight", "a LoRA that is not merged" },
	{ ".lora_B.weight", "a LoRA that is not merged" },
};

static int
ends_with(const char *text, const char *tail)
{
	const size_t n = strlen(text), m = strlen(tail);

	return n >= m && strcmp(text + n - m, tail) == 0;
}

/* GPT's causal mask is called as a bias would be. */
static int
is_mask(const struct tensor *t)
{
	return (ends_with(t->name, "attn.bias") || ends_with(t->name, ".attention.bias")) &&
	    t->ndim == 4 &&
	    (strcmp(t->type, "BOOL") == 0 || strcmp(t->type, "U8") == 0);
}

static int
is_harmless(const struct tensor *t)
{
	size_t i;

	if (t->bytes == 0 || is_mask(t))
		return 1;
	for (i = 0; i < sizeof buffers / sizeof buffers[0]; i++)
		if (ends_with(t->name, buffers[i]))
			return 1;
	for (i = 0; i < sizeof heads / sizeof heads[0]; i++)
		if (strncmp(t->name, heads[i], strlen(heads[i])) == 0)
			return 1;
	return 0;
}

/* Beside the language model of a model that sees images */
static int
sees_images(const struct tensor *t)
{
	static const char *const parts[] = { "vision_tower.", "multi_modal_projector." };
	const char *name = t->name + (strncmp(t->name, "model.", 6) == 0 ? 6 : 0);
	size_t i;

	for (i = 0; i < sizeof parts / sizeof parts[0]; i++)
		if (strncmp(name, parts[i], strlen(parts[i])) == 0)
			return 1;
	return 0;
}

/* text[size] <- the name, with a star for each number between dots: one word for all layers.
 * Returns text */
static const char *
pattern_of(const char *name, char *text, size_t size)
{
	size_t n = 0, digits;

	while (*name != '\0' && n + 1 < size) {
		digits = strspn(name, "0123456789");
		if (digits > 0 && n > 0 && text[n - 1] == '.' && name[digits] == '.') {
			text[n++] = '*';
			name += digits;
		} else
			text[n++] = *name++;
	}
	text[n] = '\0';
	return text;
}

static int
refuse(const struct tensor *t, size_t n, char *err, size_t errlen)
{
	char pattern[200], more[48] = "";
	const char *what = NULL;
	size_t i;

	for (i = 0; what == NULL && i < sizeof known / sizeof known[0]; i++)
		if (ends_with(t->name, known[i].ends))
			what = known[i].what;
	if (n > 1)
		snprintf(more, sizeof more, ", and %zu more", n - 1);
	return model_file_fail(err, errlen, MODEL_EUNSUPPORTED, t->file,
	    "%s: not a tensor of this architecture%s%s%s%s: it may change the arithmetic "
	    "(--allow-tensor '%s' ignores it)", t->name, what != NULL ? " (" : "",
	    what != NULL ? what : "", what != NULL ? ")" : "", more,
	    pattern_of(t->name, pattern, sizeof pattern));
}

/* A layer behind the last one, which guesses further tokens (DeepSeek V3's multi-token
 * prediction), or a list of such layers (MiMo) */
static int
is_behind(const struct tensor *t, uint32_t layers)
{
	unsigned l;

	if (layers != UINT32_MAX && strncmp(t->name, "model.mtp_layers.", 17) == 0)
		return 1;
	return sscanf(t->name, "model.layers.%u.", &l) == 1 && l >= layers;
}

int
leftovers_check(const struct tensor_set *files, const uint8_t *needed, int wrapped,
    uint32_t layers, const struct checkpoint_config *quantised, const struct overrides *o,
    char *err, size_t errlen)
{
	const struct tensor *t, *harmless = NULL, *refused = NULL;
	size_t i, passed = 0, n = 0;

	for (i = 0; (t = safetensors_at(files, i)) != NULL; i++) {
		if (needed[i] || name_list_matches(&o->tensors, t->name) ||
		    checkpoint_passes_over(quantised, t))
			continue;
		if (is_harmless(t) || (wrapped && sees_images(t)) || is_behind(t, layers)) {
			passed++;
			harmless = harmless == NULL ? t : harmless;
		} else {
			n++;
			refused = refused == NULL ? t : refused;
		}
	}
	if (refused != NULL)
		return refuse(refused, n, err, errlen);
	if (passed > 0)
		notice(&o->notice, "%s: ignored tensors that are not the model's: %zu (%s%s)",
		    harmless->file, passed, harmless->name, passed > 1 ? ", ..." : "");
	return MODEL_OK;
}
