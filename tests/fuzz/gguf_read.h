/* gguf_read.h - reads a GGUF file as programs do, and checks what must hold of any file */
#ifndef GGUF_READ_H
#define GGUF_READ_H

#include <stddef.h>
#include <stdint.h>

/* How many files have been read so far */
struct gguf_counts {
	unsigned long files, containers, configurations, tensors, tokenizers, chats, models;
};

/* Reads the container, configuration, tensors, tokenizer (and a text with it), chat templates, and
 * binds it as a model of the CPU. Aborts where a refusal has no message, or an acceptance no
 * result. */
void gguf_read(const uint8_t *data, size_t size, struct gguf_counts *);

#endif
