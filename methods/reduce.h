/* reduce.h - how several scores of one row become one
 *
 * One definition for the options of a method, the arguments of an op and of retrieval: the only header
 * of methods/ that model/ and the backends include. It includes nothing. */
#ifndef KVPIPE_REDUCE_H
#define KVPIPE_REDUCE_H

/* over the R query heads that share a KV head */
enum reduce { REDUCE_MEAN, REDUCE_MAX, REDUCE_SUM };

/* over the queries of an observation window, or of a call */
enum over_queries { QUERIES_SUM, QUERIES_MAX };

#endif
