/* snapshot_info.c - lists the contents of a snapshot */
#include <stdlib.h>
#include <string.h>

#include "engine/snapshot_info.h"
#include "libkvfile/codec.h"

/* ---- sections of a layer; all return KV_OK or a KV_E* ---- */

static int
see_rows(struct layer_info *l, struct kv_reader *r)
{
	const struct kv_rows *rows;
	uint32_t g;
	int code;

	if ((code = kv_load_rows(r, &rows)) < 0)
		return code;
	l->least = UINT32_MAX;
	for (g = 0; g < rows->heads; g++) {
		l->least = rows->count[g] < l->least ? rows->count[g] : l->least;
		l->most = rows->count[g] > l->most ? rows->count[g] : l->most;
	}
	l->rows = kv_rows_total(rows);
	return KV_OK;
}

static int
see_queries(struct layer_info *l, struct kv_reader *r)
{
	struct kv_queries q;
	const int code = kv_load_queries(r, &q);

	if (code < 0)
		return code;
	l->queries = q.n;
	l->own_keys = q.n_own;
	return KV_OK;
}

static int
see_query_stats(struct layer_info *l, struct kv_reader *r)
{
	struct kv_query_stats s;
	const int code = kv_load_query_stats(r, &s);

	l->has_query_stats = 1;
	l->stats_first = s.first;
	l->stats_queries = s.n;
	return code;
}

/* label <- the label of this section, if it is the first of its kind. */
static int
see_label(char label[KV_SCORE_LABEL], struct kv_reader *r)
{
	struct kv_values v;
	int code;

	if (label[0] != '\0')
		return KV_OK;
	if ((code = kv_load_values(r, &v)) >= 0)
		strcpy(label, v.label);
	return code;
}

static void
see_clusters(struct index_info *info, const struct kv_clusters *c, uint32_t kv_heads)
{
	uint32_t g;

	info->sink = c->sink;
	info->least = UINT32_MAX;
	for (g = 0; g < kv_heads; g++) {
		info->least = c->count[g] < info->least ? c->count[g] : info->least;
		info->most = c->count[g] > info->most ? c->count[g] : info->most;
	}
}

static int
see_index(struct index_info *info, struct kv_reader *r, const struct kv_section *sec)
{
	struct kv_index x;
	const int code = kv_load_index(r, &x);

	if (code < 0)
		return code;
	info->bytes[sec->kind] = sec->raw_size;
	if (sec->kind == KV_BITS)
		info->group = x.entries.rows;
	else if (sec->kind == KV_PAGE)
		info->page = x.entries.rows;
	else if (sec->kind == KV_CLUS)
		see_clusters(info, &x.clusters, kv_reader_head(r)->model.kv_heads);
	else {
		info->chunk = x.low_rank.chunk;
		info->rows = x.low_rank.n;
		info->rank = x.low_rank.rank;
		info->exact = x.low_rank.n_exact;
	}
	return KV_OK;
}

/* ---- all of them ---- */

static int
see_tensor(struct snapshot_info *info, struct kv_reader *r, const struct kv_section *sec, int list)
{
	info->tensor_bytes += sec->raw_size;
	info->tensor_stored += sec->stored_size;
	return list ? KV_OK : kv_skip(r);
}

static int
see_section(struct snapshot_info *info, struct kv_reader *r, const struct kv_section *sec, int list)
{
	struct layer_info *l = sec->layer != KV_NO_LAYER ? &info->layer[sec->layer] : NULL;
	int code = KV_OK;

	switch (sec->kind) {
	case KV_TOKS:
		info->tokens = kv_token_count(sec);
		break;
	case KV_POSN:
		code = see_rows(l, r);
		info->rows += l->rows;
		break;
	case KV_OBSQ:
		code = see_queries(l, r);
		break;
	case KV_QSTA:
		code = see_query_stats(l, r);
		break;
	case KV_MASS:
		l->mass = 1;
		break;
	case KV_PAID:
		l->probe_mass = 1;
		code = see_label(info->probe_mass, r);
		break;
	case KV_VNRM:
		l->value_norms = 1;
		code = see_label(info->value_norms, r);
		break;
	case KV_GATE:
		l->gate_scores = 1;
		code = see_label(info->gate_scores, r);
		break;
	case KV_NCAU:
		l->noncausal = 1;
		code = see_label(info->noncausal, r);
		break;
	case KV_SCOR:
		code = see_label(info->scores, r);
		break;
	case KV_KEYS:
	case KV_VALS:
		code = see_tensor(info, r, sec, list);
		break;
	case KV_LGTS:
		info->logits = 1;
		break;
	case KV_RHDK:
		code = kv_load_head_keys(r, &info->head_keys);
		info->head_keys.feature = info->head_keys.key = NULL;
		break;
	default:
		if (kv_kind_is(sec->kind, KV_INDEX))
			code = see_index(&info->index[sec->layer], r, sec);
	}
	return code;
}

static int
list_section(struct snapshot_info *info, const struct kv_section *sec)
{
	const size_t room = info->n < info->room ? info->room : info->room * 2 + 64;
	struct kv_section *list = info->section;

	if (room != info->room && (list = realloc(list, room * sizeof *list)) == NULL)
		return KV_ENOMEM;
	info->section = list;
	info->room = room;
	info->section[info->n++] = *sec;
	return KV_OK;
}

int
snapshot_info_read(struct snapshot_info *info, struct kv_reader *r, int list,
    struct engine_error *e)
{
	const uint32_t layers = kv_reader_head(r)->model.layers;
	struct kv_section sec;
	int code, rc = KV_OK;

	*info = (struct snapshot_info){ .n = 0 };
	if ((info->layer = engine_alloc(layers, sizeof *info->layer, e)) == NULL ||
	    (info->index = engine_alloc(layers, sizeof *info->index, e)) == NULL)
		return e->code;
	if ((info->log = kv_log_new(kv_reader_head(r))) == NULL)
		return engine_fail(e, ENGINE_ERUN, "out of memory");
	while ((code = kv_next(r, &sec)) > 0) {
		if ((code = kv_log_see(info->log, r, &sec)) < 0 ||
		    (code = see_section(info, r, &sec, list)) < 0)
			return engine_fail_reader(e, r, code);
		if (list && (rc = list_section(info, &sec)) != KV_OK)
			return engine_fail(e, ENGINE_ERUN, "%s", kv_error_name(rc));
	}
	if (code < 0)
		return engine_fail_reader(e, r, code);
	kv_reader_digests(r, &info->digests);
	return ENGINE_OK;
}

void
snapshot_info_free(struct snapshot_info *info)
{
	free(info->layer);
	free(info->index);
	free(info->section);
	kv_log_free(info->log);
	*info = (struct snapshot_info){ .n = 0 };
}

double
snapshot_share_kept(const struct snapshot_info *info, const struct kv_model *m)
{
	return (double)info->rows / ((double)info->tokens * m->layers * m->kv_heads);
}

double
snapshot_share_bytes(const struct snapshot_info *info, const struct kv_head *head)
{
	const struct kv_model *m = &head->model;

	return (double)info->tensor_bytes / ((double)info->tokens * m->layers * m->kv_heads *
	    2 * m->head_width * (double)kv_dtype_size(head->dtype));
}
