/* op_counts.h - counts the work of an open device: multiplications and additions, bytes of weights
 * and rows
 *
 * A table of ops that count replaces the device's, and calls it, so that exactly the ops that run
 * are counted. The counts follow from the shapes of each op, and, if positions can be read, from
 * which rows a query sees; the formulas are in kvpipe(7), REPORTS. */
#ifndef KVPIPE_OP_COUNTS_H
#define KVPIPE_OP_COUNTS_H

#include "engine/device_memory.h"

/* Floating-point operations (a multiplication and an addition are two), and bytes that are read or
 * written at least once. Without elementwise work, norms, rotary embedding, softmax and
 * activations. */
struct op_counts {
	/* operations: matrix products with weights; attention, attention mass and query
	 * statistics; ranking and rebuilding of retrieval */
	uint64_t products, attention, retrieval;
	uint64_t weights, rows_read, rows_written, indexes;
	uint64_t device_peak;           /* most bytes in use, of a device with memory of its own */
};

/* Replaces d->ops by a table that adds the work of d to *work, which must outlive d;
 * d->ops->close() closes the device as before. */
int op_counts_start(struct device *d, struct op_counts *work, struct engine_error *e);

/* Adds the counts; of device_peak it keeps the maximum. */
void op_counts_add(struct op_counts *sum, const struct op_counts *more);
/* Returns what was counted since `before`, without device_peak. */
struct op_counts op_counts_since(const struct op_counts *now, const struct op_counts *before);

#endif
