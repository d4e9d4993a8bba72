/* nfc.h - normalisation form C */
#ifndef KVPIPE_NFC_H
#define KVPIPE_NFC_H

#include <stddef.h>

/* Returns 1 if text[len] is certainly in form C, by a look at its bytes only. */
int nfc_is_plain(const char *text, size_t len);

/* *out <- form C of text[len], which must be well-formed UTF-8; *outlen <- its bytes. The
 * caller frees *out. Linear in len. Returns 0 or TOKENIZER_ENOMEM. */
int nfc(const char *text, size_t len, char **out, size_t *outlen);

#endif
