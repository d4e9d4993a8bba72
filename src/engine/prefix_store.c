/* prefix_store.c - a folder that keeps the rows of prompts, block by block */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <xxhash.h>

#include "engine/prefix_store.h"
#include "engine/reuse.h"
#include "libkvfile/codec.h"

/* ---- names ---- */

/* *hash <- the hash of all that rows depend on besides tokens: the number of this rule, the
 * identity of the model in a snapshot without the tokenizer (two with the same ids may share rows),
 * and the device, since products are rounded differently on a GPU and by --products. */
static int
identity(const struct prefix_store *s, XXH128_hash_t *hash, struct engine_error *e)
{
	struct kv_head head = s->head;
	char *json, *text;
	int n;

	memset(head.model.tokenizer, '0', sizeof head.model.tokenizer - 1);
	if (kv_head_to_json(&head, &json) != KV_OK)
		return engine_fail(e, ENGINE_ERUN, "the model has no identity");
	n = asprintf(&text, "prefix 1 %d %s%s%s %s%s%s", KV_VERSION, s->model->ops->name,
	    s->products != NULL ? " " : "", s->products != NULL ? s->products : "", json,
	    s->evicted != NULL ? " evicted " : "", s->evicted != NULL ? s->evicted : "");
	free(json);
	if (n < 0)
		return engine_fail(e, ENGINE_ERUN, "out of memory");
	*hash = XXH3_128bits(text, (size_t)n);
	free(text);
	return ENGINE_OK;
}

/* Names the blocks: each name is the hash of the name before it and the tokens of the block. */
static int
name_blocks(struct prefix_store *s, struct engine_error *e)
{
	const size_t size = s->block * sizeof *s->ids;
	XXH128_canonical_t before;
	XXH128_hash_t hash;
	char *link = engine_alloc(sizeof before + size, 1, e);
	uint32_t i, j;

	if (link == NULL || identity(s, &hash, e) != ENGINE_OK) {
		free(link);
		return e->code;
	}
	for (i = 0; i < s->blocks; i++) {
		XXH128_canonicalFromHash(&before, hash);
		memcpy(link, &before, sizeof before);
		memcpy(link + sizeof before, s->ids + (size_t)i * s->block, size);
		hash = XXH3_128bits(link, sizeof before + size);
		XXH128_canonicalFromHash(&before, hash);
		for (j = 0; j < sizeof before; j++)
			snprintf(s->name[i] + 2 * j, 3, "%02x", before.digest[j]);
	}
	free(link);
	return ENGINE_OK;
}

int
prefix_store_open(struct prefix_store *s, const struct model *m, const struct kv_head *stored,
    const uint32_t *ids, size_t n, struct engine_error *e)
{
	struct stat st;

	s->model = m;
	s->head = *stored;
	s->head.model = m->id;
	s->block = s->evicted != NULL && s->chunk > STORE_BLOCK ? s->chunk : STORE_BLOCK;
	s->head.next_position = s->block;
	s->ids = ids;
	s->blocks = n < UINT32_MAX ? (uint32_t)n / s->block : 0;
	if (stat(s->dir, &st) == 0 && !S_ISDIR(st.st_mode))
		return engine_fail(e, ENGINE_ERUN, "%s: %s", s->dir, strerror(ENOTDIR));
	if (mkdir(s->dir, 0700) != 0 && errno != EEXIST) {
		if (errno == ENOENT || errno == ENOTDIR)
			return engine_fail(e, ENGINE_ERUN, "%s: %s", s->dir, strerror(errno));
		notice(&s->notice, "%s: %s: nothing is stored", s->dir, strerror(errno));
		s->off = 1;
		s->blocks = 0;
	}
	if ((s->name = engine_alloc(s->blocks, sizeof *s->name, e)) == NULL)
		return e->code;
	return name_blocks(s, e);
}

void
prefix_store_close(struct prefix_store *s)
{
	free(s->name);
	s->name = NULL;
	s->blocks = 0;
}

uint32_t
prefix_store_tokens(const struct prefix_store *s, uint32_t most, uint64_t *bytes)
{
	int64_t size;
	uint32_t i;

	if (bytes != NULL)
		*bytes = 0;
	for (i = 0; i < s->blocks && (i + 1) * s->block <= most; i++) {
		char *path = store_path(s->dir, s->name[i]);
		const int there = path != NULL && (size = store_has(path)) >= 0 &&
		    access(path, R_OK) == 0;

		free(path);
		if (!there)
			break;
		if (bytes != NULL)
			*bytes += (uint64_t)size;
	}
	return i * s->block;
}

/* ---- from the folder ---- */

/* A block that is read; *e says why it cannot be used */
struct block {
	const struct prefix_store *s;
	struct kv_reader *r;
	struct cache *c;
	uint32_t first;                 /* position of its first token */
	/* rows of each KV head, [L][G], and their positions, [L][G][s->block] */
	uint32_t *count, *pos;
	struct engine_error *e;
};

static int
check_head(const struct block *b)
{
	const struct kv_head *head = kv_reader_head(b->r);
	struct kv_model model = head->model;
	char differ[400];

	memcpy(model.tokenizer, b->s->model->id.tokenizer, sizeof model.tokenizer);
	if (kv_model_diff(&model, &b->s->model->id, "file", "model", differ, sizeof differ) != 0)
		return engine_fail(b->e, ENGINE_EDAMAGED, "%s: its name does not match its "
		    "content: %s",
		    kv_reader_name(b->r), differ);
	if (head->dtype != b->s->head.dtype || head->next_position != b->first + b->s->block ||
	    !kv_head_same_rows(head, &b->s->head))
		return engine_fail(b->e, ENGINE_EDAMAGED, "%s: its name does not match its content",
		    kv_reader_name(b->r));
	return ENGINE_OK;
}

static int
check_tokens(const struct block *b)
{
	const size_t n = (size_t)b->first + b->s->block;
	struct kv_tokens tokens;
	int rc = kv_load_tokens(b->r, &tokens);

	if (rc != KV_OK)
		return engine_fail_reader(b->e, b->r, rc);
	if (tokens.n != n || memcmp(tokens.id, b->s->ids, n * sizeof *tokens.id) != 0)
		return engine_fail(b->e, ENGINE_EDAMAGED, "%s: its name does not match its "
		    "content: it has other tokens", kv_reader_name(b->r));
	return ENGINE_OK;
}

/* Returns the index of the counts of a layer. */
static size_t
counts_of(const struct block *b, uint32_t l)
{
	return (size_t)l * b->s->model->id.kv_heads;
}

/* Checks and copies the rows of a layer: all of the block, or, where rows were evicted, some. */
static int
take_rows(const struct block *b, const struct kv_rows *rows, uint32_t l)
{
	const uint32_t end = b->first + b->s->block;
	uint32_t g, n;

	if (b->s->evicted == NULL && reuse_check_rows(rows, kv_reader_name(b->r), l, b->first,
	    b->s->block, b->e) != ENGINE_OK)
		return b->e->code = ENGINE_EDAMAGED;
	for (g = 0; g < rows->heads; g++) {             /* positions ascend */
		n = rows->count[g];
		if (n > 0 && (rows->pos[g][0] < b->first || rows->pos[g][n - 1] >= end))
			return engine_fail(b->e, ENGINE_EDAMAGED, "%s: layer %u, KV head %u has "
			    "rows of other tokens than those from %u to %u",
			    kv_reader_name(b->r), l, g, b->first, end - 1);
		b->count[counts_of(b, l) + g] = n;
		if (n > 0)
			memcpy(b->pos + (counts_of(b, l) + g) * b->s->block, rows->pos[g],
			    n * sizeof *b->pos);
	}
	return ENGINE_OK;
}

/* Copies KEYS or VALS after the cache's rows, without adding to their number. */
static int
put_tensor(const struct block *b, const struct kv_section *sec)
{
	const struct model *m = b->s->model;
	const struct layer_rows *rows = &b->c->layer[sec->layer];
	const size_t row = sec->kind == KV_KEYS ? rows_k_bytes(rows) : rows_v_bytes(rows);
	const uint32_t *count = b->count + counts_of(b, sec->layer);
	char *to = sec->kind == KV_KEYS ? rows->k : rows->v;
	const void *data;
	const char *from;
	uint32_t g;
	int rc = kv_load(b->r, &data);

	if (rc != KV_OK)
		return engine_fail_reader(b->e, b->r, rc);
	if (sec->kind == KV_VALS && rows->v_in_k)
		return ENGINE_OK;
	for (g = 0, from = data; g < rows->heads; from += count[g++] * row)
		if (count[g] > 0)
			m->ops->put(m->dev, to + (rows->start[g] + rows->len[g]) * row, from,
			    count[g] * row);
	return ENGINE_OK;
}

static int
take_section(const struct block *b, const struct kv_section *sec)
{
	const struct kv_rows *rows;
	int rc;

	switch (sec->kind) {
	case KV_TOKS:
		return check_tokens(b);
	case KV_POSN:
		if ((rc = kv_load_rows(b->r, &rows)) != KV_OK)
			return engine_fail_reader(b->e, b->r, rc);
		return take_rows(b, rows, sec->layer);
	case KV_KEYS:
	case KV_VALS:
		return put_tensor(b, sec);
	default:
		return ENGINE_OK;
	}
}

static int
read_block(const struct block *b)
{
	struct kv_section sec;
	int rc = check_head(b);

	if (rc != ENGINE_OK)
		return rc;
	while ((rc = kv_next(b->r, &sec)) == 1)
		if (take_section(b, &sec) != ENGINE_OK)
			return b->e->code;
	return rc == 0 ? ENGINE_OK : engine_fail_reader(b->e, b->r, rc);
}

/* Adds the rows of the block at positions from .. to-1, which read_block() has copied, to the
 * number of the cache's rows. */
static void
count_rows(const struct block *b, uint32_t from, uint32_t to)
{
	const struct model *m = b->s->model;
	struct cache *c = b->c;
	uint32_t l, g, k, n;

	for (l = 0; l < m->id.layers; l++)
		for (g = 0; g < m->id.kv_heads; g++) {
			struct layer_rows *rows = &c->layer[l];
			const size_t at = counts_of(b, l) + g;
			const uint32_t *pos = b->pos + at * b->s->block;

			k = kv_rows_before(pos, b->count[at], from);
			if ((n = kv_rows_before(pos, b->count[at], to) - k) == 0)
				continue;
			memcpy(c->pos[l][g] + rows->len[g], pos + k, n * sizeof *pos);
			m->ops->put(m->dev, rows->pos + rows->start[g] + rows->len[g], pos + k,
			    n * sizeof *pos);
			rows->len[g] += n;
		}
	c->next_position = to;
}

/* Logs a chunk as prefill_by_chunks() does: its tiles, the learned tokens, the eviction. */
static int
log_chunk(const struct prefix_store *s, struct cache *c, uint32_t tile)
{
	const uint32_t end = c->next_position;

	if (cache_log_tiles_before(c, s->chunk, end - s->chunk, tile) != 0 ||
	    cache_log_before(c, KV_EVENT_RUN, s->probes, end) != 0)
		return MODEL_ENOMEM;
	return cache_log(c, KV_EVENT_EVICT, 0, 0, c->model->id.layers);
}

/* Adds tokens and rows of the block to the cache; logs its chunks, if they were evicted. */
static int
count_block(const struct block *b, uint32_t tile)
{
	const struct prefix_store *s = b->s;
	const uint32_t end = b->first + s->block;
	const uint32_t chunk = s->evicted != NULL ? s->chunk : s->block;
	uint32_t at;

	if (cache_add_tokens(b->c, s->ids + b->first, s->block) != 0)
		return engine_fail(b->e, ENGINE_ERUN, "no memory for %u tokens", s->block);
	for (at = b->first; at < end; at += chunk) {
		count_rows(b, at, at + chunk);
		if (s->evicted != NULL && log_chunk(s, b->c, tile) != 0)
			return engine_fail(b->e, ENGINE_ERUN, "no memory for the event log");
	}
	return ENGINE_OK;
}

/* Returns 1 when block i has been loaded, 0 when there is none, else a code; ENGINE_EDAMAGED: no
 * process can use it. */
static int
load_block(const struct prefix_store *s, struct cache *c, uint32_t i, uint32_t tile,
    const char *path, struct engine_error *e)
{
	struct block b = { .s = s, .c = c, .first = i * s->block, .e = e };
	const size_t heads = (size_t)s->model->id.layers * s->model->id.kv_heads;
	const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
	struct stat st;
	int rc;

	if (fd < 0 && errno == ENOENT)
		return 0;
	if (fd < 0)
		return engine_fail(e, ENGINE_ERUN, "%s: %s", path, strerror(errno));
	if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
		close(fd);
		return engine_fail(e, ENGINE_ERUN, "%s: not a regular file", path);
	}
	b.count = engine_alloc(heads, sizeof *b.count, e);
	b.pos = engine_alloc(heads * s->block, sizeof *b.pos, e);
	if ((rc = kv_open_fd(fd, path, &b.r)) == KV_OK)
		rc = b.count != NULL && b.pos != NULL ? read_block(&b) : e->code;
	else
		rc = b.r != NULL ? engine_fail_reader(e, b.r, rc) :
		    engine_fail(e, ENGINE_ERUN, "%s: %s", path, kv_error_name(rc));
	if (rc == ENGINE_OK)
		rc = count_block(&b, tile);
	free(b.count);
	free(b.pos);
	kv_close(b.r);
	return rc == ENGINE_OK ? 1 : rc;
}

/* Makes room for the rows of so many tokens. A block has its rows in all layers. */
static int
make_room(struct cache *c, uint32_t tokens)
{
	const int keeps = c->keeps_unseen;
	int rc;

	c->keeps_unseen = 1;
	rc = cache_reserve(c, tokens);
	c->keeps_unseen = keeps;
	return rc;
}

/* Where rows were evicted, room is made block by block: `tokens` rows are far too many. */
int
prefix_store_load(struct prefix_store *s, struct cache *c, uint32_t tokens, uint32_t tile,
    struct engine_error *e)
{
	const uint32_t at_once = s->evicted == NULL ? tokens : s->block;
	int rc = 1;

	if (tokens == 0)
		return ENGINE_OK;
	for (s->there = 0; rc == 1 && (s->there + 1) * s->block <= tokens; s->there += rc == 1) {
		char *path = store_path(s->dir, s->name[s->there]);

		if ((s->evicted != NULL || s->there == 0) &&
		    make_room(c, at_once + c->spare) != 0) {
			free(path);
			return engine_fail(e, ENGINE_ENOROOM, "no memory for %u rows of %s",
			    at_once, s->dir);
		}
		rc = path != NULL ? load_block(s, c, s->there, tile, path, e) : 0;
		if (rc == ENGINE_EDAMAGED && unlink(path) != 0)
			notice(&s->notice, "%s: cannot be removed (%s); its tokens are run",
			    e->text, strerror(errno));
		else if (rc < 0)
			notice(&s->notice, rc == ENGINE_EDAMAGED ?
			    "%s: removed; its tokens are run" : "%s: its tokens are run", e->text);
		free(path);
	}
	return s->evicted == NULL ? reuse_log(c, tile, e) : ENGINE_OK;
}

/* ---- into the folder ---- */

/* rows <- those of block i in layer l; first[g]: the first of them in the cache's KV head g. */
static void
rows_of_block(const struct prefix_store *s, const struct cache *c, uint32_t l, uint32_t i,
    uint32_t *count, const uint32_t **pos, uint32_t *first)
{
	const struct kv_rows rows = cache_rows(c, l);
	const uint64_t end = (uint64_t)(i + 1) * s->block;
	uint32_t g;

	for (g = 0; g < rows.heads; g++) {
		first[g] = kv_rows_before(rows.pos[g], rows.count[g], end - s->block);
		count[g] = kv_rows_before(rows.pos[g], rows.count[g], end) - first[g];
		pos[g] = rows.pos[g] + first[g];
	}
}

/* Writes KEYS or VALS of a block; buf has room for them. */
static int
write_tensor(const struct prefix_store *s, const struct cache *c, struct kv_writer *w, uint32_t l,
    const uint32_t *count, const uint32_t *first, enum kv_kind kind, char *buf)
{
	const struct layer_rows *rows = &c->layer[l];
	const enum kv_row_type type = kind == KV_KEYS ? rows_k_type(rows) : rows_v_type(rows);
	const size_t row = kv_row_bytes(type, rows->width);
	const char *from = kind == KV_KEYS ? rows->k : rows->v;
	struct kv_span span = { buf, 0 };
	uint32_t g;

	for (g = 0; g < rows->heads && !(kind == KV_VALS && rows->v_in_k);
	    span.size += count[g++] * row)
		if (count[g] > 0)
			s->model->ops->get(s->model->dev, buf + span.size,
			    from + (rows->start[g] + first[g]) * row, count[g] * row);
	return kv_write(w, kv_kind_type(kind), l, kv_row_element(type), &span, 1);
}

static int
write_block(const struct prefix_store *s, const struct cache *c, struct kv_writer *w, uint32_t i,
    char *buf)
{
	const struct kv_tokens tokens = { (uint64_t)(i + 1) * s->block, s->ids };
	const uint32_t G = s->model->id.kv_heads;
	uint32_t l, *count = malloc(G * sizeof *count), *first = malloc(G * sizeof *first);
	const uint32_t **pos = malloc(G * sizeof *pos);
	int rc = count != NULL && first != NULL && pos != NULL ? kv_write_tokens(w, &tokens) :
	    KV_ENOMEM;

	for (l = 0; rc == KV_OK && l < s->model->id.layers; l++) {
		rows_of_block(s, c, l, i, count, pos, first);
		rc = kv_write_rows(w, l, &(struct kv_rows){ G, count, pos });
		if (rc == KV_OK)
			rc = write_tensor(s, c, w, l, count, first, KV_KEYS, buf);
		if (rc == KV_OK)
			rc = write_tensor(s, c, w, l, count, first, KV_VALS, buf);
	}
	free(count);
	free(first);
	free(pos);
	return rc;
}

/* Writes block i, unless its file exists; replaces what is no regular file. Returns 1 if the next
 * block should be tried. */
static int
add_block(const struct prefix_store *s, const struct cache *c, uint32_t i, char *buf)
{
	struct kv_head head = s->head;
	char *path = store_path(s->dir, s->name[i]);
	struct kv_writer *w = NULL;
	int rc = KV_ENOMEM;

	head.next_position = (i + 1) * s->block;
	if (path != NULL && store_has(path) >= 0) {
		free(path);
		return 1;
	}
	if (path != NULL)
		rc = kv_create(path, &head, s->flags | KV_PRIVATE, &w);
	if (rc == KV_OK)
		rc = write_block(s, c, w, i, buf);
	if (rc == KV_OK)
		rc = kv_commit(w);
	if (rc != KV_OK)
		notice(&s->notice, "%s: this prompt is not stored, or not to its end", w != NULL &&
		    *kv_writer_error(w) != '\0' ? kv_writer_error(w) : kv_error_name(rc));
	kv_writer_free(w);
	free(path);
	return rc == KV_OK;
}

/* Has the store no room for the first block? Then every block that is written would be removed
 * again. */
static int
is_too_small(const struct prefix_store *s)
{
	char *path = s->most != 0 && s->blocks > 0 ? store_path(s->dir, s->name[0]) : NULL;
	const int64_t bytes = path != NULL ? store_has(path) : -1;

	free(path);
	if (bytes < 0 || (uint64_t)bytes <= s->most)
		return 0;
	notice(&s->notice, "%s: a block has %" PRId64 " bytes, and all of them may have %" PRIu64
	    ": nothing stays", s->dir, bytes, s->most);
	return 1;
}

static void
add_blocks(struct prefix_store *s, const struct cache *c)
{
	const struct kv_model *m = &s->model->id;
	/* no type has larger rows */
	char *buf = malloc((size_t)m->kv_heads * s->block * (m->head_width + 1) *
	    sizeof(float));
	uint32_t i;

	if (buf == NULL)
		notice(&s->notice, "no memory to store this prompt");
	for (i = s->there; buf != NULL && i < s->blocks && add_block(s, c, i, buf); i++)
		if (i == 0 && is_too_small(s))
			break;
	free(buf);
}

void
prefix_store_keep(struct prefix_store *s, const struct cache *c)
{
	if (s->off)
		return;
	if (c != NULL && !(s->there > 0 && is_too_small(s)))
		add_blocks(s, c);
	store_used(s->dir, s->name, c != NULL ? s->blocks : s->there);
	if (c != NULL)
		store_make_room(s->dir, s->most, &s->notice);
}
