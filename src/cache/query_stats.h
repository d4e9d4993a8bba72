/* query_stats.h - sums over the queries of a text before rotary embedding, layer by layer
 * (kv-snapshot(5), 4.22)
 *
 * While tokens run the sums are on the device, in the order of the section. Letters as in ops.h. */
#ifndef KVPIPE_QUERY_STATS_H
#define KVPIPE_QUERY_STATS_H

#include "libkvfile/codec.h"
#include "model/model.h"

/* Positions of attention sinks, whose queries are not counted: kvpress's ExpectedAttention */
enum { QUERY_STATS_SINK = 4 };

struct query_stats {
	uint32_t first;                /* queries at lower positions are not counted */
	uint32_t *n;                   /* host [L] queries counted */
	double **sums;                 /* [L] -> device, kv_query_stats_numbers() */
	/* [L] 1: the sums are over all queries from first on; 0: rows were loaded without them */
	unsigned char *whole;
};

/* Returns the bytes on the device. */
uint64_t query_stats_bytes(const struct kv_model *);
/* Returns sums over no queries; NULL without memory. */
struct query_stats *query_stats_new(const struct model *);
void query_stats_free(struct query_stats *, const struct model *);      /* NULL is allowed */
/* Sets the sums of layer l to zero, over no queries. */
void query_stats_clear(struct query_stats *, const struct model *, uint32_t l);
/* Adds q[N][H][E] (device), the queries at pos[N] (host), ascending. */
void query_stats_add(struct query_stats *, const struct model *, uint32_t l, const float *q,
    const uint32_t *pos, uint32_t N);

/* numbers (host) <- the sums of layer l, or the reverse. Without errors: those of the device. */
void query_stats_get(const struct query_stats *, const struct model *, uint32_t l, double *numbers);
void query_stats_put(struct query_stats *, const struct model *, uint32_t l,
    const double *numbers);

/* To and from the section of layer l. Return KV_* codes. */
int query_stats_load(struct query_stats *, const struct model *, uint32_t l, struct kv_reader *);
int query_stats_save(const struct query_stats *, const struct model *, uint32_t l,
    struct kv_writer *);

#endif
