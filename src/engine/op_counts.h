/* op_counts.h - counts what an open device is asked to do: multiplications and additions, bytes of
 * weights and rows
 *
 * A table of ops that counts stands in front of the device's own, so that whatever runs is counted,
 * and nothing that does not. The counts follow from the shapes of each op, and, where positions can
 * be read, from which rows a query sees; kvpipe(7), REPORTS, has the formulas. */
#ifndef KVPIPE_OP_COUNTS_H
#define KVPIPE_OP_COUNTS_H

#include "engine/device_memory.h"

/* Floating-point operations (a multiplication and an addition are two), and bytes that are read or
 * written at least once. Elementwise work, norms, rotary embedding, softmax and activations are
 * left out. */
struct op_counts {
	/* matrix products with weights; attention and attention mass; what retrieval ranks and
	 * rebuilds by */
	uint64_t products, attention, retrieval;
	uint64_t weights, rows_read, rows_written, indexes;
	uint64_t device_peak;           /* bytes of a device with memory of its own */
};

/* From now on what d is asked to do is added to *work, which outlives it; d->ops->close() closes it
 * as before. */
int op_counts_start(struct device *d, struct op_counts *work, struct engine_error *e);

/* All of them, and for what is true of this moment only the greatest */
void op_counts_add(struct op_counts *sum, const struct op_counts *more);

#endif
