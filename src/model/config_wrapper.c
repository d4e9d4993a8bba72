/* config_wrapper.c - the text part of a model that also sees images
 *
 * Such a configuration has the language model's in text_config. Its keys take the place of those
 * around it; what only the other parts read goes, and every other key is judged as always. */
#include <string.h>

#include "model/config_internal.h"

static const struct wrapper {
	const char *type, *architecture;
	const char *text[2];            /* what model_type of text_config may be */
	const char *defaults;           /* JSON: keys that published files leave out */
} wrappers[] = {
	{ "gemma3", "Gemma3ForConditionalGeneration", { "gemma3_text", NULL },
	    "{\"num_attention_heads\": 8, \"num_key_value_heads\": 4, \"vocab_size\": 262208,"
	    "\"max_position_embeddings\": 131072}" },
	{ "mistral3", "Mistral3ForConditionalGeneration", { "mistral", "ministral3" }, "{}" },
};

/* Of the model around it and its other parts */
static const char *const outside[] = { "model_type", "architectures", "text_config",
	"vision_config", "boi_token_index", "eoi_token_index", "mm_tokens_per_image",
	"multimodal_projector_bias", "projector_hidden_act", "spatial_merge_size",
	"vision_feature_layer" };

static const struct wrapper *
find_wrapper(const json_t *type)
{
	size_t i;

	for (i = 0; json_is_string(type) && i < sizeof wrappers / sizeof wrappers[0]; i++)
		if (strcmp(wrappers[i].type, json_string_value(type)) == 0)
			return &wrappers[i];
	return NULL;
}

static int
is_listed(const json_t *list, const char *name)
{
	size_t i;

	for (i = 0; i < json_array_size(list); i++)
		if (json_is_string(json_array_get(list, i)) &&
		    strcmp(json_string_value(json_array_get(list, i)), name) == 0)
			return 1;
	return list == NULL;
}

static int
check_text(struct config *c, const struct wrapper *w, const json_t *text)
{
	const char *type = json_string_value(config_get(text, "model_type"));
	const json_t *classes = config_get(c->json, "architectures");
	char shown[96];

	if (!is_listed(classes, w->architecture))
		return config_hint(c, "architectures", UNSUPPORTED(c, "architectures %s is not "
		    "supported: want %s", config_show(classes, shown, sizeof shown),
		    w->architecture));
	if (type == NULL || (strcmp(type, w->text[0]) != 0 &&
	    (w->text[1] == NULL || strcmp(type, w->text[1]) != 0)))
		return UNSUPPORTED(c, "text_config: model_type \"%s\" is not supported in a model "
		    "of type %s", type != NULL ? type : "", w->type);
	return MODEL_OK;
}

int
config_unwrap(struct config *c, int *wrapped)
{
	const struct wrapper *w = find_wrapper(config_get(c->json, "model_type"));
	json_t *text = config_get(c->json, "text_config"), *defaults;
	size_t i;
	int rc;

	*wrapped = 0;
	if (w == NULL || !json_is_object(text))
		return MODEL_OK;
	if ((rc = check_text(c, w, text)) != MODEL_OK)
		return rc;
	json_incref(text);
	for (i = 0; i < sizeof outside / sizeof outside[0]; i++)
		json_object_del(c->json, outside[i]);
	json_object_del(text, "architectures");
	defaults = json_loads(w->defaults, 0, NULL);
	json_object_update_missing(text, c->json);
	json_object_update_missing(text, defaults);
	json_decref(defaults);
	json_decref(c->json);
	c->json = text;
	config_pass_over(c);
	*wrapped = 1;
	return MODEL_OK;
}
