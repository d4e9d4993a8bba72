/* reduce.h - how several scores of one row are reduced to one
 *
 * One definition for the options of a method, the arguments of an op and of retrieval: the only
 * header of methods/ that model/ and the backends include. It includes nothing. */
#ifndef KVPIPE_REDUCE_H
#define KVPIPE_REDUCE_H

/* over the R query heads that share a KV head */
enum reduce { REDUCE_MEAN, REDUCE_MAX, REDUCE_SUM };

/* over the queries of an observation window, or of a call */
enum over_queries { QUERIES_SUM, QUERIES_MAX };

/* along the rows */
enum pool { POOL_AVG, POOL_MAX };
/* the two differ for max pooling, methods.md 0 */
enum order { POOL_FIRST, REDUCE_FIRST };

/* How the R query heads' lists of a KV head, a number for each row, become the scores of its
 * rows: pooled along the rows, reduced over the query heads, and divided. Exactly, in f32 and
 * in the order of methods/pool.c and reduce.c, so that device and host give the same bytes. */
struct list_rule {
	unsigned kernel;                /* pooling width, odd; 1 = none */
	enum pool pool;
	enum reduce reduce;
	enum order order;
	unsigned divisor;               /* 0: none */
	/* with next_position > 0: divided by the number of queries that could see the row at
	 * position p, next_position - p, at most `sees` if that is not 0 */
	unsigned next_position, sees;
	/* 1: all KV heads have the same rows and share one score, the mean over all query
	 * heads, added in double precision; the other fields are ignored */
	int whole_layer;
};

#endif
