/* row_order.c - rows of queries and keys in the order in which they are rotated */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "model/model.h"
#include "model/model_files.h"
#include "model/row_order.h"

int
rows_in_halves(const struct tensor *t, void **copy, char *err, size_t errlen)
{
	const uint64_t rows = t->dim[0], pairs = rows / t->interleaved / 2;
	const size_t bytes = rows > 0 ? t->bytes / rows : 0;
	const uint8_t *from = t->data;
	uint8_t *to;
	uint64_t head, i;

	if (rows == 0 || rows % (2 * (uint64_t)t->interleaved) != 0)
		return model_file_fail(err, errlen, MODEL_EINVALID, t->file, "%s: %" PRIu64 " rows "
		    "are not pairs of %" PRIu32 " heads", t->name, rows, t->interleaved);
	if ((*copy = to = malloc(t->bytes)) == NULL)
		return model_file_fail(err, errlen, MODEL_ENOMEM, t->file, "%s: no memory for its "
		    "rows in another order, %" PRIu64 " bytes", t->name, t->bytes);
	for (head = 0; head < t->interleaved; head++, to += 2 * pairs * bytes)
		for (i = 0; i < pairs; i++, from += 2 * bytes) {
			memcpy(to + i * bytes, from, bytes);
			memcpy(to + (pairs + i) * bytes, from + bytes, bytes);
		}
	return MODEL_OK;
}
