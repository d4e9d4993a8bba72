/* future_queries.h - mean and covariance of the queries of later tokens, estimated from those of
 * the text (ExpectedAttention, Devoto et al. 2025, section 3.1); private to methods/
 *
 * A query before rotary embedding is taken as a draw from a normal distribution with the mean and
 * the covariance of the text's queries. At the next `future` positions it is turned by the mean
 * rotation of these positions. As kvpress has it, that is M, the mean of the rotations R, on both
 * sides of the covariance, M C M', and not the mean of R C R'. */
#ifndef KVPIPE_FUTURE_QUERIES_H
#define KVPIPE_FUTURE_QUERIES_H

#include "methods/cholesky.h"
#include "methods/methods.h"

/* The mean rotation of the positions next_position .. next_position + future - 1: pair i of the
 * rotated channels, (i, i + pairs), is multiplied by cos[i] + sin[i] * sqrt(-1). */
struct mean_rotation {
	uint32_t pairs, first;          /* first: the channel where they begin */
	double *cos, *sin;              /* [pairs] */
};

/* Returns 0, or -1 when out of memory. */
int mean_rotation_init(struct mean_rotation *, const struct score_input *, uint32_t future);
/* As mean_rotation_init(), of the positions at[n]. */
int mean_rotation_of(struct mean_rotation *, const struct score_input *, const uint64_t *at,
    uint32_t n);
void mean_rotation_free(struct mean_rotation *);

/* rows that are computed with at once, as many as cholesky_forms() takes */
enum { FUTURE_COLUMNS = CHOLESKY_COLUMNS };

/* Scratch for the scores of one KV head, whose query heads take turns */
struct future_room {
	struct mean_rotation rotation;
	double *mean;                   /* [E] of the queries of a query head */
	double *matrix;                 /* [E][E] */
	double *columns;                /* [E][FUTURE_COLUMNS] keys or values of some rows */
	double *vector;                 /* [E] one of them */
	float *row;                     /* [E] the same in f32 */
	double *one, *all;              /* [rows] of a query head; the sum over all, which is 0 */
};

/* Allocates room for the one KV head of in. Returns 0, or -1 when out of memory. */
int future_room_init(struct future_room *, const struct score_input *in, uint32_t future);
void future_room_free(struct future_room *);

/* mean[E] <- the mean of the later queries of query head h of the layer. */
void future_mean(double *mean, const struct mean_rotation *, const struct score_input *,
    uint32_t h);
/* cov[E][E] <- their covariance. */
void future_covariance(double *cov, const struct mean_rotation *, const struct score_input *,
    uint32_t h);

#endif
