/* weights_hash.c - a hash of all bytes of all tensors, by any number of threads
 *
 * Tensors are cut into pieces of 1 MiB, and each piece is hashed by itself, by whichever thread
 * comes to it first: in the order of the files, so that a disk reads forward. What describes the
 * tensors, and the hashes of their pieces in order, are hashed at the end: neither threads nor
 * shards show. */
#include <endian.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <xxhash.h>

#include "model/model.h"
#include "model/model_files.h"
#include "model/weights_hash.h"
#include "model/weights_known.h"

enum { PIECE = 1 << 20, AHEAD = 8 * PIECE, MOST_THREADS = 64 };

struct piece {
	const uint8_t *data;
	size_t bytes;
	XXH128_canonical_t digest;
};

struct hashing {
	struct piece *piece;            /* [n] tensors in order of their names */
	struct piece **forward;         /* [n] the same, in order of their places */
	size_t n;
	atomic_size_t next, done;
	struct weights_reading *how;
	uint64_t total;
};

/* ---- pieces ---- */

static size_t
pieces_of(const struct tensor *t)
{
	return t->bytes / PIECE + (t->bytes % PIECE != 0);
}

static int
by_place(const void *a, const void *b)
{
	const uintptr_t x = (uintptr_t)(*(struct piece *const *)a)->data;
	const uintptr_t y = (uintptr_t)(*(struct piece *const *)b)->data;

	return x < y ? -1 : x > y;
}

static int
cut(struct hashing *w, const struct tensor_set *st)
{
	const struct tensor *t;
	size_t i, n = 0;
	uint64_t at;

	for (i = 0; (t = safetensors_at(st, i)) != NULL; i++)
		w->n += pieces_of(t);
	w->piece = malloc((w->n + 1) * sizeof *w->piece);
	w->forward = malloc((w->n + 1) * sizeof *w->forward);
	if (w->piece == NULL || w->forward == NULL)
		return MODEL_ENOMEM;
	for (i = 0; (t = safetensors_at(st, i)) != NULL; i++)
		for (at = 0; at < t->bytes; at += PIECE, n++) {
			w->piece[n].data = (const uint8_t *)t->data + at;
			w->piece[n].bytes = t->bytes - at < PIECE ? t->bytes - at : PIECE;
			w->forward[n] = &w->piece[n];
			w->total += w->piece[n].bytes;
		}
	qsort(w->forward, w->n, sizeof *w->forward, by_place);
	return MODEL_OK;
}

/* ---- threads ---- */

/* What the threads will come to next is asked for while they hash: advice, which may fail. */
static void
read_ahead(const uint8_t *data, size_t bytes)
{
	const uintptr_t page = 4096, from = ((uintptr_t)data + AHEAD) & ~(page - 1);

	(void)madvise((void *)from, bytes, MADV_WILLNEED);
}

/* Hashes the next piece. Returns 0 when there is none; *done <- how many bytes have been hashed. */
static int
hash_next(struct hashing *w, uint64_t *done)
{
	const size_t i = atomic_fetch_add(&w->next, 1);
	struct piece *p;

	if (i >= w->n)
		return 0;
	p = w->forward[i];
	read_ahead(p->data, p->bytes);
	XXH128_canonicalFromHash(&p->digest, XXH3_128bits(p->data, p->bytes));
	*done = atomic_fetch_add(&w->done, p->bytes) + p->bytes;
	return 1;
}

static void *
hash_beside(void *with)
{
	uint64_t done;

	while (hash_next(with, &done))
		;
	return NULL;
}

/* The caller's thread, which is one of them, tells how far they all are. A thread that cannot be
 * had is done without. */
static void
hash_all(struct hashing *w)
{
	const struct weights_reading *how = w->how;
	const unsigned most = how->threads < MOST_THREADS ? how->threads : MOST_THREADS;
	pthread_t other[MOST_THREADS];
	uint64_t done;
	unsigned i, n = 0;

	while (n + 1 < most && n + 1 < w->n &&
	    pthread_create(&other[n], NULL, hash_beside, w) == 0)
		n++;
	while (hash_next(w, &done))
		if (how->call != NULL)
			how->call(how->with, done, w->total);
	for (i = 0; i < n; i++)
		pthread_join(other[i], NULL);
}

/* ---- the hash ---- */

/* What both rules have of a tensor besides its bytes. */
static void
hash_description(XXH3_state_t *x, const struct tensor *t)
{
	uint32_t dims = htole32(t->ndim);
	uint64_t dim;
	unsigned i;

	XXH3_128bits_update(x, t->name, strlen(t->name) + 1);
	XXH3_128bits_update(x, t->type, strlen(t->type) + 1);
	XXH3_128bits_update(x, &dims, sizeof dims);
	for (i = 0; i < t->ndim; i++) {
		dim = htole64(t->dim[i]);
		XXH3_128bits_update(x, &dim, sizeof dim);
	}
}

static void
put_together(const struct hashing *w, const struct tensor_set *st, XXH3_state_t *x, char *hex)
{
	const struct piece *p = w->piece, *end;
	const struct tensor *t;
	uint64_t bytes;
	size_t i;

	XXH3_128bits_reset(x);
	for (i = 0; (t = safetensors_at(st, i)) != NULL; i++) {
		bytes = htole64(t->bytes);
		hash_description(x, t);
		XXH3_128bits_update(x, &bytes, sizeof bytes);
		for (end = p + pieces_of(t); p < end; p++)
			XXH3_128bits_update(x, &p->digest, sizeof p->digest);
	}
	model_hash_text(XXH3_128bits_digest(x), hex);
}

int
weights_hash(const struct tensor_set *st, struct weights_reading *how, char *hex, char *err,
    size_t errlen)
{
	struct hashing w = { .how = how };
	struct weights_known known;
	XXH3_state_t *x = XXH3_createState();
	int rc = x != NULL ? MODEL_OK : MODEL_ENOMEM;

	how->bytes = 0;
	if (rc == MODEL_OK && weights_known_find(&known, how->known, st, x, hex)) {
		XXH3_freeState(x);
		return MODEL_OK;
	}
	if (rc == MODEL_OK)
		rc = cut(&w, st);
	if (rc == MODEL_OK) {
		hash_all(&w);
		put_together(&w, st, x, hex);
		how->bytes = w.total;
		weights_known_add(&known, st, hex);
	} else
		model_file_fail(err, errlen, rc, safetensors_file(st, 0, NULL), "out of memory");
	free(w.piece);
	free(w.forward);
	XXH3_freeState(x);
	return rc;
}

/* ---- samples ---- */

static void
add_samples(XXH3_state_t *x, const struct tensor *t)
{
	enum { ALL = 65536, SAMPLE = 4096, SAMPLES = 16 };
	const uint8_t *data = t->data;
	unsigned i;

	hash_description(x, t);
	if (t->bytes <= ALL)
		XXH3_128bits_update(x, data, t->bytes);
	else
		for (i = 0; i < SAMPLES; i++)
			XXH3_128bits_update(x, data + i * (t->bytes - SAMPLE) / (SAMPLES - 1),
			    SAMPLE);
}

int
weights_hash_sampled(const struct tensor_set *st, char *hex, char *err, size_t errlen)
{
	XXH3_state_t *x = XXH3_createState();
	const struct tensor *t;
	size_t i;

	if (x == NULL)
		return model_file_fail(err, errlen, MODEL_ENOMEM, safetensors_file(st, 0, NULL),
		    "out of memory");
	XXH3_128bits_reset(x);
	for (i = 0; (t = safetensors_at(st, i)) != NULL; i++)
		add_samples(x, t);
	model_hash_text(XXH3_128bits_digest(x), hex);
	XXH3_freeState(x);
	return MODEL_OK;
}
