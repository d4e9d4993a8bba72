/* codec_index.c - indexes made from keys: bITS, pAGE, cLUS, lOWR (4.14 to 4.18) */

#include "codec.h"
#include "layout.h"
#include "reader.h"
#include "writer.h"

size_t
kv_entry_size(enum kv_kind kind, uint32_t rows, uint32_t width, enum kv_dtype dtype)
{
	return kind == KV_BITS ? (size_t)width * (4 + rows / 8) : 2 * width * kv_dtype_size(dtype);
}

/* ---- from a section ---- */

static void
get_entries(struct kv_entries *x, const struct kv_reader *r, const uint8_t *p)
{
	x->rows = get32(p + INDEX_ROWS);
	x->n = (r->h.raw_size - INDEX_HEAD) /
	    kv_entry_size(r->h.kind, x->rows, r->head.model.head_width, r->head.dtype);
	x->data = p + INDEX_HEAD;
}

static void
get_clusters(struct kv_clusters *x, uint32_t heads, const uint8_t *p)
{
	const uint8_t *ends = p + clusters_end(heads);
	uint64_t at = clusters_label(heads);
	uint32_t g;

	x->sink = get32(p + CLUSTERS_SINK);
	x->count = (const void *)(p + CLUSTERS_COUNT);
	x->end = (const void *)ends;
	x->label = (const void *)(p + at);
	for (g = 0; g < heads; g++)
		at += 4 * (uint64_t)clusters_labels(get32(ends + 4 * (size_t)g), x->sink);
	x->mean = p + round64(at);
}

static void
get_low_rank(struct kv_low_rank *x, const struct kv_head *head, const uint8_t *p)
{
	const uint32_t heads = head->model.kv_heads, width = head->model.head_width;
	const size_t element = kv_dtype_size(head->dtype);
	struct low_rank_elements n;

	x->chunk = get32(p + INDEX_ROWS);
	x->n = get32(p + LOW_RANK_ROWS);
	x->rank = get32(p + LOW_RANK_RANK);
	x->n_exact = get32(p + LOW_RANK_CHUNKS);
	n = low_rank_elements(heads, width, x->n, x->rank, x->chunk);
	x->exact = (const void *)(p + LOW_RANK_EXACT);
	p += round64(low_rank_exact_end(heads, x->n_exact));
	x->left = p;
	x->right = p + n.left * element;
	x->landmark = p + (n.left + n.right) * element;
}

int
kv_load_index(struct kv_reader *r, struct kv_index *x)
{
	const void *data;
	int code;

	memset(x, 0, sizeof *x);
	x->kind = kv_kind_is(r->h.kind, KV_INDEX) ? r->h.kind : KV_BITS;
	code = kv_load_kind(r, x->kind, "kv_load_index", &data);
	if (code != KV_OK)
		return code;
	if (x->kind == KV_CLUS)
		get_clusters(&x->clusters, r->head.model.kv_heads, data);
	else if (x->kind == KV_LOWR)
		get_low_rank(&x->low_rank, &r->head, data);
	else
		get_entries(&x->entries, r, data);
	return KV_OK;
}

/* ---- to a section ---- */

/* The common beginning of all of them, and zeros for any fill. */
struct front {
	uint8_t head[INDEX_HEAD];
	uint8_t fill[64];
};

static void
begin(struct front *f, uint32_t rows, const struct kv_writer *w)
{
	memset(f, 0, sizeof *f);
	put32(f->head + INDEX_ROWS, rows);
	put64(f->head + INDEX_KEYS, kv_writer_keys(w));
}

static int
write_entries(struct kv_writer *w, uint32_t layer, enum kv_kind kind, const struct kv_entries *x)
{
	const struct kv_head *head = kv_writer_head(w);
	const size_t size = kv_entry_size(kind, x->rows, head->model.head_width, head->dtype);
	struct front f;
	const struct kv_span spans[] = { { f.head, INDEX_HEAD },
	    { x->data, (size_t)x->n * size } };

	begin(&f, x->rows, w);
	return kv_write(w, kv_kind_type(kind), layer,
	    kind == KV_BITS ? 2 : (unsigned)kv_dtype_size(head->dtype), spans, 2);
}

static uint32_t
at(const uint32_t *list, uint32_t i)
{
	return get32((const uint8_t *)(list + i));
}

static int
write_clusters(struct kv_writer *w, uint32_t layer, const struct kv_clusters *x)
{
	const struct kv_head *head = kv_writer_head(w);
	const size_t element = kv_dtype_size(head->dtype), row = head->model.head_width * element;
	const uint32_t heads = head->model.kv_heads;
	uint64_t labels = 0, means = 0, end;
	struct front f;
	uint32_t g;

	for (g = 0; g < heads; g++) {
		labels += clusters_labels(at(x->end, g), x->sink);
		means += at(x->count, g);
	}
	begin(&f, 1, w);
	put32(f.head + CLUSTERS_SINK, x->sink);
	end = clusters_label(heads) + 4 * labels;
	return kv_write(w, kv_kind_type(KV_CLUS), layer, (unsigned)element,
	    (const struct kv_span[]){
	    { f.head, INDEX_HEAD }, { x->count, heads * sizeof *x->count },
	    { x->end, heads * sizeof *x->end }, { x->label, (size_t)labels * sizeof *x->label },
	    { f.fill, (size_t)(round64(end) - end) }, { x->mean, (size_t)means * row } }, 6);
}

static int
write_low_rank(struct kv_writer *w, uint32_t layer, const struct kv_low_rank *x)
{
	const struct kv_head *head = kv_writer_head(w);
	const uint32_t heads = head->model.kv_heads, width = head->model.head_width;
	const size_t element = kv_dtype_size(head->dtype);
	const uint64_t end = low_rank_exact_end(heads, x->n_exact);
	struct low_rank_elements n;
	struct front f;

	if (x->chunk == 0 || x->rank > heads * width)
		return kv_writer_refuse(w, KV_LOWR, layer, "no such chunk or rank");
	n = low_rank_elements(heads, width, x->n, x->rank, x->chunk);
	begin(&f, x->chunk, w);
	put32(f.head + LOW_RANK_ROWS, x->n);
	put32(f.head + LOW_RANK_RANK, x->rank);
	put32(f.head + LOW_RANK_CHUNKS, x->n_exact);
	return kv_write(w, kv_kind_type(KV_LOWR), layer, (unsigned)element,
	    (const struct kv_span[]){
	    { f.head, INDEX_HEAD }, { x->exact, (size_t)heads * x->n_exact * sizeof *x->exact },
	    { f.fill, (size_t)(round64(end) - end) }, { x->left, (size_t)n.left * element },
	    { x->right, (size_t)n.right * element },
	    { x->landmark, (size_t)n.landmark * element } }, 6);
}

int
kv_write_index(struct kv_writer *w, uint32_t layer, const struct kv_index *x)
{
	switch (x->kind) {
	case KV_BITS:
	case KV_PAGE:
		return write_entries(w, layer, x->kind, &x->entries);
	case KV_CLUS:
		return write_clusters(w, layer, &x->clusters);
	case KV_LOWR:
		return write_low_rank(w, layer, &x->low_rank);
	default:
		return kv_writer_refuse(w, x->kind, layer, "is no index");
	}
}
