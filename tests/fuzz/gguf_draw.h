/* gguf_draw.h - numbers, and values and keys of GGUF files, by chance: for gguf_grammar.c */
#ifndef KVPIPE_GGUF_DRAW_H
#define KVPIPE_GGUF_DRAW_H

#include <stddef.h>
#include <stdint.h>

enum { U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 };
enum { MOST = 1 << 22 };        /* bytes of a file */

extern struct drawn {
	uint8_t file[MOST];
	size_t size;                    /* bytes of it so far */
	uint64_t state;                 /* of chance, not 0 */
	uint64_t keys;
	const char *arch;               /* of keys whose name begins with a dot */
} drawn;

uint64_t next(void);
uint32_t below(uint32_t n);
/* 1 in n */
int rarely(uint32_t n);
/* A number at a bound, or any */
uint64_t any(void);

void add_bytes(const void *data, size_t n);
/* The n lowest bytes of v */
void put_n(uint64_t v, size_t n);
void put_text(const char *text, size_t n);
uint64_t bits(float);

/* Keys with their values. Rarely one is left out, is there twice, or has another type or value. */
void put_whole(const char *name, uint64_t v);
void put_real(const char *name, float v);
void put_word(const char *name, const char *v);
void put_flag(const char *name, int v);
/* n values of kind `of` have to follow where it returns 1 */
int put_list(const char *name, unsigned of, uint64_t n);

#endif
