/* evictor.c - chooses the rows of a cache to keep, layer by layer */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/evictor.h"

void
evictor_init(struct evictor *v, const struct evict_options *options)
{
	*v = (struct evictor){ .options = *options };
}

void
evictor_free(struct evictor *v)
{
	head_mask_free(&v->mask);
	head_budgets_free(&v->budgets_of);
	row_list_free(&v->rows);
	free(v->streaming);
	global_free(v->all_layers);
	v->streaming = NULL;
	v->all_layers = NULL;
	v->all_counts = NULL;
}

void
evictor_skip(struct evictor *v, uint32_t first, uint32_t last)
{
	memset(v->skip + first, 1, last - first + 1);
	v->skip_end = last + 1 > v->skip_end ? last + 1 : v->skip_end;
}

/* Fails with the code for a code of methods.h. */
static int
failed(int code, const char *why, struct engine_error *e)
{
	if (code == EVICT_OK)
		return ENGINE_OK;
	if (code == EVICT_ENOMEM)
		return engine_fail(e, ENGINE_ERUN, "out of memory");
	return engine_fail(e, ENGINE_EOPTION, "%s", why);
}

/* As failed(), for a list, whose text is at fault. */
static int
failed_list(int code, const struct evictor *v, const char *why, struct engine_error *e)
{
	if (code == EVICT_EINPUT)
		return engine_fail(e, ENGINE_EDAMAGED, "%s: %s", v->rows_name, why);
	return failed(code, why, e);
}

/* As failed(), for a code of a table of KV heads. */
static int
failed_table(int code, const char *name, const char *why, struct engine_error *e)
{
	if (code == TABLE_ETEXT)
		return engine_fail(e, ENGINE_EDAMAGED, "%s: %s", name, why);
	return failed(code == TABLE_ENOMEM ? EVICT_ENOMEM : EVICT_OK, why, e);
}

int
evictor_mask(struct evictor *v, const char *name, const char *text, size_t len, double sparsity,
    struct engine_error *e)
{
	char why[256] = "";

	v->mask_name = name;
	if (failed_table(head_mask_parse(&v->mask, text, len, why, sizeof why), name, why, e) !=
	    ENGINE_OK)
		return e->code;
	v->streaming = engine_alloc((size_t)v->mask.layers * v->mask.heads, 1, e);
	if (v->streaming == NULL)
		return e->code;
	if (head_mask_cut(&v->mask, sparsity, v->streaming) != 0)
		return engine_fail(e, ENGINE_ERUN, "out of memory");
	return ENGINE_OK;
}

int
evictor_budgets(struct evictor *v, const char *name, const char *text, size_t len,
    struct engine_error *e)
{
	char why[256] = "";

	v->budgets_name = name;
	return failed_table(head_budgets_parse(&v->budgets_of, text, len, why, sizeof why), name,
	    why, e);
}

int
evictor_list(struct evictor *v, const char *name, const char *text, size_t len,
    struct engine_error *e)
{
	char why[256] = "";

	v->rows_name = name;
	return failed_list(row_list_parse(&v->rows, text, len, why, sizeof why), v, why, e);
}

int
evictor_keeps_all(const struct evictor *v)
{
	return v->options.rate == 1 && v->streaming == NULL;
}

int
evictor_needs_scores(const struct evictor *v, uint32_t layer)
{
	return !v->skip[layer] && !v->mask_alone && v->rows.line == NULL;
}

int
evictor_looks_ahead(const struct evictor *v)
{
	return v->options.policy != NULL && v->options.policy->global;
}

/* Checks that a table has a line for each layer and a number for each KV head. */
static int
check_shape(const char *name, uint32_t layers, uint32_t heads, const struct evict_input *in,
    struct engine_error *e)
{
	if (layers == in->layers && heads == in->rows->heads)
		return ENGINE_OK;
	return engine_fail(e, ENGINE_EDAMAGED, "%s: %u lines of %u numbers, but the model has %u "
	    "layers of %u KV heads", name, layers, heads, in->layers, in->rows->heads);
}

/* Changes *in and *opt to what applies to this layer. */
static int
adapt(const struct evictor *v, struct evict_input *in, struct evict_options *opt,
    struct engine_error *e)
{
	const uint32_t since = v->options.since;
	uint32_t l;

	if (v->skip_end > in->layers)
		return engine_fail(e, ENGINE_EOPTION, "--skip-layers: there is no layer %u, only "
		    "%u layers", v->skip_end - 1, in->layers);
	if ((v->streaming != NULL && check_shape(v->mask_name, v->mask.layers, v->mask.heads, in,
	    e) != ENGINE_OK) || (v->budgets_of.budget != NULL && check_shape(v->budgets_name,
	    v->budgets_of.layers, v->budgets_of.heads, in, e) != ENGINE_OK))
		return e->code;
	for (l = 0; l < v->skip_end; l++) {
		in->skipped_before += v->skip[l] && l < in->layer;
		in->skipped += v->skip[l];
	}
	*opt = v->options;
	if (!v->of_tokens)
		in->tokens = 0;
	else if (since > 0)
		in->tokens = since < in->next_position ? in->next_position - since : 0;
	if (v->streaming != NULL)
		in->streaming = v->streaming + (size_t)in->layer * v->mask.heads;
	if (v->budgets_of.budget != NULL)
		in->head_budget = v->budgets_of.budget + (size_t)in->layer * v->budgets_of.heads;
	if (v->skip[in->layer]) {
		memset(opt, 0, sizeof *opt);
		opt->rate = 1;
		opt->since = UINT32_MAX;        /* no row is ranked */
		in->tokens = 0;
		in->streaming = NULL;
		in->head_budget = NULL;
	}
	return ENGINE_OK;
}

static int
failed_in_layer(int code, uint32_t layer, const char *why, struct engine_error *e)
{
	char text[288];

	snprintf(text, sizeof text, "layer %u %s", layer, why);
	return failed(code, text, e);
}

static void
add_choice(struct evictor *v, const struct kept *kept)
{
	v->beyond = kept->beyond > v->beyond ? kept->beyond : v->beyond;
	v->given += kept->given;
	v->budget += kept->budget;
	v->budgets += kept->budgets;
}

int
evictor_choose(struct evictor *v, const struct evict_input *given, struct kept *out,
    struct engine_error *e)
{
	struct evict_input in = *given;
	struct evict_options opt;
	char why[256] = "";
	int rc;

	if (v->rows.line != NULL)
		return failed_list(row_list_choose(&v->rows, given, out, why, sizeof why), v, why,
		    e);
	rc = adapt(v, &in, &opt, e);
	if (rc == ENGINE_OK && evictor_looks_ahead(v) && v->all_counts == NULL)
		rc = failed(global_counts(v->all_layers, &v->options, &v->all_counts, &v->beyond,
		    why, sizeof why), why, e);
	if (rc != ENGINE_OK)
		return rc;
	if (v->all_counts != NULL)
		in.count = v->all_counts + (size_t)in.layer * in.rows->heads;
	rc = failed_in_layer(evict_choose(&in, &opt, out, why, sizeof why), in.layer, why, e);
	if (rc != ENGINE_OK)
		return rc;
	add_choice(v, out);
	return ENGINE_OK;
}

int
evictor_plans(const struct evictor *v, const struct evict_input *given)
{
	struct engine_error e = { .code = ENGINE_OK };
	struct evict_input in = *given;
	struct evict_options opt;

	return v->rows.line == NULL && adapt(v, &in, &opt, &e) == ENGINE_OK &&
	    evict_plans(&in, &opt);
}

int
evictor_plan(struct evictor *v, const struct evict_input *given, const uint32_t *scored,
    struct evict_plan *out, struct engine_error *e)
{
	struct evict_input in = *given;
	struct evict_options opt;
	char why[256] = "";
	int rc = adapt(v, &in, &opt, e);

	if (rc == ENGINE_OK)
		rc = failed_in_layer(evict_plan(&in, &opt, scored, out, why, sizeof why), in.layer,
		    why, e);
	if (rc == ENGINE_OK)
		add_choice(v, &out->kept);
	return rc;
}

int
evictor_look(struct evictor *v, const struct evict_input *given, struct engine_error *e)
{
	struct evict_input in = *given;
	struct evict_options opt;
	char why[256] = "";
	int rc = adapt(v, &in, &opt, e);

	if (rc != ENGINE_OK)
		return rc;
	if (v->all_layers == NULL)
		v->all_layers = global_new(v->options.policy->global);
	if (v->all_layers == NULL)
		return engine_fail(e, ENGINE_ERUN, "out of memory");
	return failed_in_layer(global_add(v->all_layers, &in, &opt, why, sizeof why), in.layer, why,
	    e);
}
