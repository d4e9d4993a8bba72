/* layer_by_layer.h - a whole prompt that runs layer by layer
 *
 * run_tokens() runs one chunk through all layers and drops its residual stream. Here the residual
 * stream of the whole prompt stays on the device: all rows run through one range of layers before
 * the next range begins. In between the caller may read what a layer has computed and drop rows,
 * for token selection (kv-prefill(1)) or eviction of a layer before the next one fills.
 *
 * The same tokens give the same bytes as run_tokens() with chunks of the workspace's rows. Memory:
 * N * D * 4 bytes of the device, besides the workspace and the cache; prompt_keep() holds both the
 * old and the new rows for a moment. */
#ifndef KVPIPE_LAYER_BY_LAYER_H
#define KVPIPE_LAYER_BY_LAYER_H

#include "forward/forward.h"

/* The most tiles in flight: enough that the device always has work, and few enough that progress is
 * not shown late. */
enum { STREAM_AHEAD = 32 };

struct prompt_stream {
	struct sequence *sequence;
	struct observation *obs;       /* NULL = none */
	struct observation watched;    /* prompt_watch(): queries of one layer, on the device */
	uint32_t watched_layer, watched_capacity;      /* rows of its q */
	float *x;                      /* device [N][D]: input of the next layer */
	uint32_t *pos;                 /* host [N] positions, ascending */
	uint32_t N;
	uint64_t done;                 /* rows submitted to the device, times layers */
	struct step_hook step;         /* prompt_run()'s; call NULL = none */
	/* tiles in flight, a ring: the event after each, and `done` after it */
	struct {
		uint64_t event, done;
	} tile[STREAM_AHEAD + 1];
	uint32_t oldest, running;
};

/* Embeds n > 0 tokens after those of the cache: appends them to its tokens, advances its
 * next_position by n, and has obs (NULL = none; outlives the stream) expect the queries of the last
 * ones. prompt_run() makes their keys and values. Returns 0, MODEL_ENOMEM, or MODEL_EINVALID when
 * positions would pass 2^32 (err says so); then s need not be closed. */
int prompt_open(struct prompt_stream *s, struct sequence *q, struct observation *obs,
    const uint32_t *ids, size_t n, char *err, size_t errlen);
/* As prompt_open(), for the tokens of the cache from position `from` on, which run again
 * (rewrite_rows.h): changes nothing of the cache, in which position and token number are equal. */
int prompt_reopen(struct prompt_stream *s, struct sequence *q, uint32_t from, char *err,
    size_t errlen);
void prompt_close(struct prompt_stream *s);

/* Runs all rows through layers l0 .. l1-1, a tile of the workspace's rows at a time; makes room in
 * these layers of the cache and appends to them. Logs each tile as an event. If ops run ahead, the
 * last tiles may be in flight when it returns. Calls step (NULL = none) for each tile that has
 * ended, in this call or a later one, with the rows run so far, times layers. Returns 0,
 * MODEL_ENOMEM, or MODEL_EIO when the device failed or, where ops do not run ahead, the last row is
 * not finite (err says how, and in which layer). */
int prompt_run(struct prompt_stream *s, struct workspace *ws, uint32_t l0, uint32_t l1,
    const struct step_hook *step, char *err, size_t errlen);

/* Drops all rows but these n > 0, ascending; they keep their positions. Rows whose queries obs
 * expects must stay. Returns 0 or MODEL_ENOMEM, and then nothing has changed. */
int prompt_keep(struct prompt_stream *s, const uint32_t *rows, uint32_t n);
/* out <- a stream of these rows of s, with the same sequence and no observation; s does not change.
 * Close out with prompt_close(). Returns 0 or MODEL_ENOMEM. */
int prompt_branch(const struct prompt_stream *s, struct prompt_stream *out, const uint32_t *rows,
    uint32_t n);

/* The cache's logits <- the logits after the last row, which has run through all layers. Waits for
 * all tiles. Returns 0, MODEL_ENOMEM or MODEL_EIO, also when that row is not finite (err says
 * how). */
int prompt_logits(struct prompt_stream *s, struct workspace *ws, char *err, size_t errlen);

/* ---- the attention of a layer, for token selection (watched_queries.c) ---- */

/* Has layer l, when it runs, keep the queries of the last W rows (1 <= W <= N) in s->watched, q[l]
 * on the device, in place of those of the layer watched before. Returns 0 or MODEL_ENOMEM. */
int prompt_watch(struct prompt_stream *s, uint32_t l, uint32_t W);

/* Stops keeping queries. */
void prompt_unwatch(struct prompt_stream *s);

/* mass[H][N] (host) <- the attention mass that the rows of the stream get from the watched queries.
 * The softmax is over all rows of the layer that a query sees, rows of earlier text included. The
 * weight of the last query is `last`, that of the first 1, linear in between. Call it after the
 * watched layer has run and before prompt_keep(). Memory is linear in N. Returns 0, MODEL_ENOMEM or
 * MODEL_EIO (err says how). */
int prompt_mass(struct prompt_stream *s, double last, float *mass, char *err, size_t errlen);

/* score[N] (host) <- q.k of the last watched query, neither scaled nor normalised, summed over the
 * query heads in double precision; where ops run ahead, the product of each head is in f32. Call it
 * when prompt_mass() may be called; returns the same. */
int prompt_products(struct prompt_stream *s, float *score, char *err, size_t errlen);

#endif
