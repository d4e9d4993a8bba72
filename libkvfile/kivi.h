/* kivi.h - KIVI's blocks of 32 numbers, kv-snapshot(5), 4.21
 *
 * Internal to libkvfile. A block has 4 + 4 bits bytes; the i-th number is x[i * step]. */
#ifndef KVFILE_KIVI_H
#define KVFILE_KIVI_H

#include "rowtype.h"

#pragma GCC visibility push(hidden)

/* Returns the scale as it is stored: not finite where the block cannot be stored. */
float kv_kivi_put(unsigned char *to, const float *x, size_t step, unsigned bits);
void kv_kivi_get(float *x, size_t step, const unsigned char *from, unsigned bits);

#pragma GCC visibility pop
#endif
