/* row_order.h - rows of queries and keys in the order in which they are rotated
 *
 * Internal to model/. Rotary embedding here pairs channel i of a head with channel i + E/2, as
 * Hugging Face's files have them. llama.cpp's pairs neighbours in models of the Llama kind, and its
 * files have the rows of each head in turns: 0, E/2, 1, E/2 + 1, ... */
#ifndef KVPIPE_ROW_ORDER_H
#define KVPIPE_ROW_ORDER_H

#include "model/safetensors.h"

/* *copy <- the tensor's rows in our order, to be freed. Rows of blocks are whole blocks, so that
 * these move as rows of elements do. Returns MODEL_*, with a message. */
int rows_in_halves(const struct tensor *, void **copy, char *err, size_t errlen);

#endif
