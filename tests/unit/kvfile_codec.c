/* kvfile_codec.c - codecs of sections: what is written has the bytes that the document wants,
 * what is read back is what was written, and what does not fit is refused
 *
 * The bytes that are expected are put together here, with the offsets of the document. */

#include "kvfile_sample.h"

#include "libkvfile/codec.h"

#include <stdlib.h>
#include <string.h>

/* of the sample head */
#define HEADS 2
#define QUERY_HEADS 4
#define WIDTH 8
#define VOCABULARY 50
#define ROW (WIDTH * 2)         /* bytes, bf16 */
#define NEXT 200000
#define ROWS 40                 /* of both KV heads of layer 0, at the same positions */

/* ---- what is written: arrays of the caller ---- */

static const uint32_t ids[] = { 3, 1, 4, 1, 5 };
static const uint32_t query_pos[] = { 7, 199999, 200000, 200005 };
static const uint32_t counts[HEADS] = { 3, 1 }, ends[HEADS] = { 10, 4 };
static const uint32_t labels[64] = { 0, 1, 2, 0, 1, 2, 2, 0 };          /* 7 and 1 from sink 3 on */
static const uint32_t exact[HEADS][2] = { { 0, 3 }, { 1, 2 } };
static uint8_t data[1 << 16];   /* little floats */
static const uint8_t big[200001 * 4];
/* 4 query heads of 8 sums, 4 moduli and 36 products */
#define STAT_NUMBERS (QUERY_HEADS * (WIDTH + WIDTH / 2 + WIDTH * (WIDTH + 1) / 2))
static double stat_numbers[STAT_NUMBERS];
static float values[QUERY_HEADS * ROWS], logits[VOCABULARY];

static const struct kv_queries queries[] = {
	{ 2, query_pos, data, 0, NULL },
	{ 4, query_pos, data + 1, 2, data + 4000 },
	{ 14, NULL, data, 0, NULL },                    /* a front of exactly 64 bytes */
};
static const struct kv_index indexes[] = {
	{ KV_BITS, { .entries = { 16, 4, data } } },
	{ KV_PAGE, { .entries = { 3, 26, data } } },
	{ KV_CLUS, { .clusters = { 3, counts, ends, labels, data } } },
	{ KV_LOWR, { .low_rank = { 8, 32, 5, 2, exact[0], data, data + 1000, data + 3000 } } },
};

#define HEAD_ID "0123456789abcdef0123456789abcdef"
/* 3 KV heads of width 10, 7 tokens; 5 features */
static const struct kv_head_keys head_keys = { HEAD_ID, 3, 10, 7, 5, values + 9, data + 500 };

static void
fill(void)
{
	size_t i;

	sample_fill(data, sizeof data, 7, 0);
	for (i = 0; i < sizeof values / sizeof *values; i++)
		values[i] = (float)i / 8;
	for (i = 0; i < STAT_NUMBERS; i++)
		stat_numbers[i] = (double)i / 3;
	for (i = 0; i < VOCABULARY; i++)
		logits[i] = (float)i - 20.5F;
}

/* ---- what the document says the bytes are ---- */

static uint8_t *
put_bytes(uint8_t *p, const void *from, size_t n)
{
	if (n > 0)
		memcpy(p, from, n);
	return p + n;
}

static size_t
queries_bytes(uint8_t *p, const struct kv_queries *q, const uint32_t *pos)
{
	const uint32_t front[2] = { q->n_own > 0 ? 2 : 1, q->n };
	size_t at = (8 + 4 * (size_t)q->n + 63) / 64 * 64;

	put_bytes(put_bytes(p, front, 8), pos, 4 * (size_t)q->n);
	p = put_bytes(p + at, q->q, (size_t)QUERY_HEADS * q->n * ROW);
	put_bytes(p, q->own, (size_t)HEADS * q->n_own * ROW);
	return at + ((size_t)QUERY_HEADS * q->n + (size_t)HEADS * q->n_own) * ROW;
}

static size_t
query_stats_bytes(uint8_t *p)
{
	const uint32_t front[2] = { 4, 36 };

	put_bytes(p, front, 8);
	put_bytes(p + 64, stat_numbers, STAT_NUMBERS * 8);
	return 64 + STAT_NUMBERS * 8;
}

static size_t
index_bytes(uint8_t *p, const struct kv_index *x, uint64_t keys)
{
	uint32_t one = 1;

	put_bytes(p + 8, &keys, 8);
	switch (x->kind) {
	case KV_BITS:
		put_bytes(p, &x->entries.rows, 4);
		put_bytes(p + 64, x->entries.data, 4 * WIDTH * (2 + 2 + 2));
		return 64 + 4 * WIDTH * 6;
	case KV_PAGE:
		put_bytes(p, &x->entries.rows, 4);
		put_bytes(p + 64, x->entries.data, 26 * 2 * ROW);
		return 64 + 26 * 2 * ROW;
	case KV_CLUS:
		put_bytes(p, &one, 4);
		put_bytes(p + 16, &x->clusters.sink, 4);
		put_bytes(p + 64, counts, 8);
		put_bytes(p + 72, ends, 8);
		put_bytes(p + 80, labels, 4 * 8);
		put_bytes(p + 128, data, 4 * ROW);
		return 128 + 4 * ROW;
	default:
		put_bytes(p, &x->low_rank.chunk, 4);
		put_bytes(p + 16, &x->low_rank.n, 4);
		put_bytes(p + 20, &x->low_rank.rank, 4);
		put_bytes(p + 24, &x->low_rank.n_exact, 4);
		put_bytes(p + 64, exact, 16);
		p = put_bytes(p + 128, data, 32 * 5 * 2);
		p = put_bytes(p, data + 1000, HEADS * WIDTH * 5 * 2);
		put_bytes(p, data + 3000, HEADS * 4 * ROW);
		return 128 + 32 * 5 * 2 + HEADS * WIDTH * 5 * 2 + HEADS * 4 * ROW;
	}
}

static size_t
head_keys_bytes(uint8_t *p)
{
	const uint32_t numbers[] = { 3, 10, 7, 5 };

	put_bytes(put_bytes(p, HEAD_ID, 32), numbers, sizeof numbers);
	put_bytes(p + 64, values + 9, 5 * 4);
	put_bytes(p + 128, data + 500, 3 * 10 * 7 * 2);
	return 128 + 3 * 10 * 7 * 2;
}

/* ---- writing ---- */

/* The rows of layer l: 40 in both heads, or 3 and 5. */
static void
write_rows(struct kv_writer *w, uint32_t l)
{
	static const uint32_t count[2][HEADS] = { { ROWS, ROWS }, { 3, 5 } };
	uint32_t pos[ROWS], i;
	const uint32_t *const lists[] = { pos, pos };
	const struct kv_rows rows = { HEADS, count[l], lists };

	for (i = 0; i < ROWS; i++)
		pos[i] = 3 * i;
	check(kv_write_rows(w, l, &rows) == KV_OK, "%s", kv_writer_error(w));
}

static void
write_tensor(struct kv_writer *w, const char *type, uint32_t l)
{
	struct kv_span span = { data, (l == 0 ? 2 * ROWS : 8) * ROW };

	check(kv_write(w, type, l, 2, &span, 1) == KV_OK, "%s", kv_writer_error(w));
}

static struct kv_writer *
begin(const char *file, unsigned flags, int sinks)
{
	const struct kv_tokens tokens = { 5, ids };
	struct kv_head head;
	struct kv_writer *w;

	sample_head(&head, &small_sample);
	head.model.attention_sinks = sinks;
	check(kv_create(file, &head, flags, &w) == KV_OK &&
	    kv_write_tokens(w, &tokens) == KV_OK, "%s", kv_writer_error(w));
	return w;
}

#define OK(call) check((call) == KV_OK, "%s: %s", #call, kv_writer_error(w))

static void
write_all(const char *file, unsigned flags)
{
	const struct kv_query_stats stats = { 4, 36, stat_numbers, NULL, NULL };
	const struct kv_values mass = { NULL, QUERY_HEADS * ROWS, values };
	const struct kv_values paid = { "tokens over=max", QUERY_HEADS * ROWS, values };
	const struct kv_values score = { "", HEADS * ROWS, values + 3 };
	struct kv_writer *w = begin(file, flags, 1);
	size_t i;

	write_rows(w, 0);
	OK(kv_write_sinks(w, 0, logits));
	OK(kv_write_queries(w, 0, &queries[0]));
	OK(kv_write_query_stats(w, 0, &stats));
	OK(kv_write_values(w, KV_MASS, 0, &mass));
	OK(kv_write_values(w, KV_PAID, 0, &paid));
	OK(kv_write_values(w, KV_SCOR, 0, &score));
	write_tensor(w, "KEYS", 0);
	for (i = 0; i < sizeof indexes / sizeof *indexes; i++)
		OK(kv_write_index(w, 0, &indexes[i]));
	write_tensor(w, "VALS", 0);
	write_rows(w, 1);
	OK(kv_write_sinks(w, 1, logits + 1));
	OK(kv_write_queries(w, 1, &queries[1]));
	write_tensor(w, "KEYS", 1);
	write_tensor(w, "VALS", 1);
	OK(kv_write_logits(w, logits));
	OK(kv_write_head_keys(w, &head_keys));
	OK(kv_commit(w));
	kv_writer_free(w);
}

/* ---- reading ---- */

#define SAME(a, b, n) check(memcmp(a, b, n) == 0, "%s: other %s", sec->type, #a)

static void
check_queries(struct kv_reader *r, const struct kv_section *sec, const struct kv_queries *want)
{
	struct kv_queries q;

	check(kv_load_queries(r, &q) == KV_OK, "%s", kv_reader_error(r));
	check(q.n == want->n && q.n_own == want->n_own, "%u queries, %u own", q.n, q.n_own);
	SAME(q.pos, query_pos, 4 * q.n);
	SAME(q.q, want->q, (size_t)QUERY_HEADS * q.n * ROW);
	if (q.n_own > 0)
		SAME(q.own, want->own, (size_t)HEADS * q.n_own * ROW);
}

static void
check_query_stats(struct kv_reader *r, const struct kv_section *sec)
{
	struct kv_query_stats s;

	check(kv_load_query_stats(r, &s) == KV_OK, "%s", kv_reader_error(r));
	check(s.first == 4 && s.n == 36, "%u queries from %u on", s.n, s.first);
	SAME(s.sum, stat_numbers, 32 * 8);
	SAME(s.modulus, stat_numbers + 32, 16 * 8);
	SAME(s.product, stat_numbers + 48, 144 * 8);
}

static void
check_values(struct kv_reader *r, const struct kv_section *sec, uint64_t n, const char *label,
    const float *want)
{
	struct kv_values v;

	check(kv_load_values(r, &v) == KV_OK, "%s", kv_reader_error(r));
	check((v.label == NULL) == (label == NULL) &&
	    (label == NULL || strcmp(v.label, label) == 0), "%s: other label", sec->type);
	check(v.n == n, "%s: %llu values", sec->type, (unsigned long long)v.n);
	SAME(v.value, want, n * sizeof *want);
}

static void
check_index(struct kv_reader *r, const struct kv_section *sec, const struct kv_index *want)
{
	const struct kv_low_rank *a = &want->low_rank;
	struct kv_index x;

	check(kv_load_index(r, &x) == KV_OK, "%s", kv_reader_error(r));
	check(x.kind == want->kind, "kind %d", x.kind);
	if (x.kind == KV_CLUS) {
		check(x.clusters.sink == want->clusters.sink, "sink %u", x.clusters.sink);
		SAME(x.clusters.count, counts, sizeof counts);
		SAME(x.clusters.end, ends, sizeof ends);
		SAME(x.clusters.label, labels, 4 * 8);
		SAME(x.clusters.mean, data, 4 * ROW);
	} else if (x.kind == KV_LOWR) {
		check(x.low_rank.chunk == a->chunk && x.low_rank.n == a->n && x.low_rank.rank ==
		    a->rank && x.low_rank.n_exact == a->n_exact, "low rank: other numbers");
		SAME(x.low_rank.exact, exact, sizeof exact);
		SAME(x.low_rank.left, data, 32 * 5 * 2);
		SAME(x.low_rank.right, data + 1000, HEADS * WIDTH * 5 * 2);
		SAME(x.low_rank.landmark, data + 3000, HEADS * 4 * ROW);
	} else {
		check(x.entries.rows == want->entries.rows && x.entries.n == want->entries.n,
		    "%s: %u rows, %llu entries", sec->type, x.entries.rows,
		    (unsigned long long)x.entries.n);
		SAME(x.entries.data, data, x.entries.n *
		    kv_entry_size(x.kind, x.entries.rows, WIDTH, KV_BF16));
	}
}

static void
check_head_keys(struct kv_reader *r, const struct kv_section *sec)
{
	struct kv_head_keys k;

	check(kv_load_head_keys(r, &k) == KV_OK, "%s", kv_reader_error(r));
	check(strcmp(k.id, HEAD_ID) == 0 && k.heads == 3 && k.width == 10 && k.n == 7 &&
	    k.n_feature == 5, "%s %u %u %u %u", k.id, k.heads, k.width, k.n, k.n_feature);
	SAME(k.feature, values + 9, 5 * 4);
	SAME(k.key, data + 500, 3 * 10 * 7 * 2);
}

/* The content, byte by byte. */
static void
check_bytes(struct kv_reader *r, const struct kv_section *sec)
{
	static uint8_t want[1 << 16];
	const void *content;
	size_t n = 0;

	memset(want, 0, sizeof want);
	if (kv_kind_is(sec->kind, KV_INDEX))
		n = index_bytes(want, &indexes[sec->kind - KV_BITS], kv_reader_keys(r));
	else if (sec->kind == KV_SINK)
		n = (size_t)(put_bytes(want, logits + sec->layer, 4 * QUERY_HEADS) - want);
	else if (sec->kind == KV_OBSQ)
		n = queries_bytes(want, &queries[sec->layer], query_pos);
	else if (sec->kind == KV_QSTA)
		n = query_stats_bytes(want);
	else if (sec->kind == KV_TOKS)
		n = (size_t)(put_bytes(want, ids, sizeof ids) - want);
	else if (sec->kind == KV_LGTS)
		n = (size_t)(put_bytes(want, logits, sizeof logits) - want);
	else if (sec->kind == KV_RHDK)
		n = head_keys_bytes(want);
	else if (sec->kind == KV_MASS)
		n = (size_t)(put_bytes(want, values, sizeof values) - want);
	else if (sec->kind == KV_PAID) {
		put_bytes(want, "tokens over=max", 15);
		n = (size_t)(put_bytes(want + 192, values, sizeof values) - want);
	} else if (sec->kind == KV_SCOR)
		n = (size_t)(put_bytes(want + 192, values + 3, 4 * HEADS * ROWS) - want);
	else
		return;
	check(kv_load(r, &content) == KV_OK, "%s", kv_reader_error(r));
	check(sec->raw_size == n && memcmp(content, want, n) == 0, "%s layer %u: other bytes",
	    sec->type, sec->layer);
}

static void
check_section(struct kv_reader *r, const struct kv_section *sec)
{
	struct kv_tokens tokens;
	const float *l;

	if (kv_kind_is(sec->kind, KV_INDEX))
		check_index(r, sec, &indexes[sec->kind - KV_BITS]);
	else if (sec->kind == KV_SINK) {
		check(kv_load_sinks(r, &l) == KV_OK, "%s", kv_reader_error(r));
		SAME(l, logits + sec->layer, 4 * QUERY_HEADS);
	} else if (sec->kind == KV_OBSQ)
		check_queries(r, sec, &queries[sec->layer]);
	else if (sec->kind == KV_QSTA)
		check_query_stats(r, sec);
	else if (sec->kind == KV_MASS)
		check_values(r, sec, QUERY_HEADS * ROWS, NULL, values);
	else if (sec->kind == KV_PAID)
		check_values(r, sec, QUERY_HEADS * ROWS, "tokens over=max", values);
	else if (sec->kind == KV_SCOR)
		check_values(r, sec, HEADS * ROWS, "", values + 3);
	else if (sec->kind == KV_TOKS) {
		check(kv_token_count(sec) == 5, "count of tokens");
		check(kv_load_tokens(r, &tokens) == KV_OK && tokens.n == 5, "tokens");
		SAME(tokens.id, ids, sizeof ids);
	} else if (sec->kind == KV_RHDK)
		check_head_keys(r, sec);
	else if (sec->kind == KV_LGTS) {
		check(kv_load_logits(r, &l) == KV_OK, "logits");
		SAME(l, logits, sizeof logits);
	}
	check_bytes(r, sec);
}

static void
check_round_trip(unsigned flags)
{
	const char *file = path("codec.kv");
	struct kv_section sec;
	struct kv_reader *r;
	struct bytes b;
	int way, code, n;

	write_all(file, flags);
	b = slurp(file);
	for (way = 0; way < 2; way++) {
		check(kv_open_fd(in_memory(b, way), "codec", &r) == KV_OK, "not opened");
		for (n = 0; (code = kv_next(r, &sec)) == 1; n++) {
			check(sec.kind == kv_kind_of(sec.type) &&
			    strcmp(kv_kind_type(sec.kind), sec.type) == 0, "%s: kind", sec.type);
			check_section(r, &sec);
		}
		check(code == 0 && n == 21, "%d sections, %s", n, kv_reader_error(r));
		kv_close(r);
	}
	free(b.data);
}

/* ---- what is refused ---- */

/* A writer behind the rows of layer 0, or behind its keys. */
static struct kv_writer *
stand(int keys)
{
	struct kv_writer *w = begin("/dev/null", 0, 0);

	write_rows(w, 0);
	if (keys)
		write_tensor(w, "KEYS", 0);
	return w;
}

static void
refused(struct kv_writer *w, int code, const char *message)
{
	check(code == KV_EINVAL && strstr(kv_writer_error(w), message) != NULL, "%d %s, not %s",
	    code, kv_writer_error(w), message);
	kv_writer_free(w);
}

static void
refuse_queries(uint32_t n, const uint32_t *pos, uint32_t n_own, const char *message)
{
	const struct kv_queries q = { n, pos, data, n_own, n_own > 0 ? data : NULL };
	struct kv_writer *w = stand(0);

	refused(w, kv_write_queries(w, 0, &q), message);
}

static void
refuse_values(enum kv_kind kind, const char *label, uint64_t n, const char *message)
{
	const struct kv_values v = { label, n, values };
	struct kv_writer *w = stand(0);

	refused(w, kv_write_values(w, kind, 0, &v), message);
}

static void
refuse_index(struct kv_index x, const char *message)
{
	struct kv_writer *w = stand(1);

	refused(w, kv_write_index(w, 0, &x), message);
}

#define INDEX(kind, which, ...) ((struct kv_index){ kind, { .which = { __VA_ARGS__ } } })

static void
check_refused(void)
{
	static const uint32_t far[HEADS] = { 41, 4 }, many[HEADS] = { 8, 1 },
	    bad[4] = { 0, 4, 1, 2 };
	char long_label[193];

	memset(long_label, 'x', 192);
	long_label[192] = '\0';
	refuse_queries(0, query_pos, 0, "no observation queries");
	refuse_queries(2, query_pos + 2, 1, "content, must be");
	refuse_queries(2, query_pos, 1, "no query has own keys");
	refuse_queries(4, query_pos, 0, "position 200000, next_position is 200000");
	refuse_queries(2, NULL, 0, "a span without data");
	refuse_values(KV_MASS, "x", QUERY_HEADS * ROWS, "label");
	refuse_values(KV_SCOR, NULL, HEADS * ROWS, "label");
	refuse_values(KV_SCOR, long_label, HEADS * ROWS, "the label is too long");
	refuse_values(KV_SCOR, long_label + 1, HEADS * ROWS - 1, "bytes of content, must be");
	refuse_values(KV_MASS, NULL, HEADS * ROWS, "bytes of content, must be");
	refuse_values(KV_KEYS, NULL, HEADS * ROWS, "KEYS layer 0: has no values of rows");
	refuse_values(KV_UNKNOWN, NULL, 1, "no kind of section");
	refuse_index(INDEX(KV_BITS, entries, 17, 4, data), "groups of 17 rows");
	refuse_index(INDEX(KV_BITS, entries, 16, 5, data), "4 groups of 16 rows need");
	refuse_index(INDEX(KV_PAGE, entries, 0, 26, data), "pages of 0 rows");
	refuse_index(INDEX(KV_PAGE, entries, 3, 25, data), "26 pages of 3 rows need");
	refuse_index(INDEX(KV_CLUS, clusters, 3, counts, far, labels, data), "clusters up to row "
	    "41");
	refuse_index(INDEX(KV_CLUS, clusters, 3, many, ends, labels, data), "8 clusters of 7 rows");
	refuse_index(INDEX(KV_LOWR, low_rank, 0, 32, 5, 2, exact[0], data, data, data), "chunk");
	refuse_index(INDEX(KV_LOWR, low_rank, 8, 32, 17, 2, exact[0], data, data, data), "rank");
	refuse_index(INDEX(KV_LOWR, low_rank, 8, 48, 5, 2, exact[0], data, data, data),
	    "made from 48 rows, there are 40");
	refuse_index(INDEX(KV_LOWR, low_rank, 8, 32, 5, 2, bad, data, data, data), "exact chunk 4");
	refuse_index(INDEX(KV_KEYS, entries, 16, 4, data), "KEYS layer 0: is no index");
}

/* Head keys that no reader takes, behind the layers of a snapshot */
static void
refuse_head_keys(struct kv_head_keys k, const char *message)
{
	struct kv_writer *w = begin("/dev/null", 0, 0);

	write_rows(w, 0);
	write_tensor(w, "KEYS", 0);
	write_tensor(w, "VALS", 0);
	write_rows(w, 1);
	write_tensor(w, "KEYS", 1);
	write_tensor(w, "VALS", 1);
	refused(w, kv_write_head_keys(w, &k), message);
}

#define HEAD_KEYS(...) ((struct kv_head_keys){ __VA_ARGS__ })

static void
check_refused_heads(void)
{
	static float endless[5];

	endless[3] = strtof("inf", NULL);
	refuse_head_keys(HEAD_KEYS("xyz", 3, 10, 7, 0, NULL, data), "no name");
	refuse_head_keys(HEAD_KEYS("0123456789abcdef0123456789abcdeF", 3, 10, 7, 0, NULL, data),
	    "hexadecimal");
	refuse_head_keys(HEAD_KEYS(HEAD_ID, 0, 10, 7, 0, NULL, data), "0 KV heads of width 10");
	refuse_head_keys(HEAD_KEYS(HEAD_ID, 3, 9, 7, 0, NULL, data), "3 KV heads of width 9");
	refuse_head_keys(HEAD_KEYS(HEAD_ID, 3, 10, 0, 0, NULL, data), "keys of 0 tokens");
	refuse_head_keys(HEAD_KEYS(HEAD_ID, 1, 2, 200001, 0, NULL, big), "keys of 200001 tokens");
	refuse_head_keys(HEAD_KEYS(HEAD_ID, 3, 10, 7, 5, endless, data), "feature 3 is not finite");
}

/* An index without its keys, a section of another kind than the loader's. */
static void
check_places(void)
{
	struct kv_writer *w = stand(0);
	struct kv_section sec;
	struct kv_queries q;
	struct kv_reader *r;

	refused(w, kv_write_index(w, 0, &indexes[0]), "KEYS layer 0 is missing");
	check(kv_open(path("codec.kv"), &r) == KV_OK && kv_next(r, &sec) == 1, "not opened");
	check(kv_load_queries(r, &q) == KV_EINVAL && q.n == 0 && q.q == NULL && strstr(
	    kv_reader_error(r), "TOKS: kv_load_queries() wants oBSq") != NULL, "%s",
	    kv_reader_error(r));
	kv_close(r);
}

/* 14 positions and the two numbers before them fill 64 bytes: no gap. */
static void
check_no_gap(void)
{
	struct kv_writer *w = stand(0);
	struct kv_queries q = queries[2];
	uint32_t pos[14], i;

	for (i = 0; i < 14; i++)
		pos[i] = i;
	q.pos = pos;
	OK(kv_write_queries(w, 0, &q));
	kv_writer_free(w);
}

int
main(void)
{
	fill();
	check_round_trip(0);
	check_round_trip(KV_LZ4);
	check_refused();
	check_refused_heads();
	check_places();
	check_no_gap();
	return check_done();
}
