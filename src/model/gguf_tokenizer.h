/* gguf_tokenizer.h - the tokenizer of a GGUF file, as its tokenizer.json would have it */
#ifndef KVPIPE_GGUF_TOKENIZER_H
#define KVPIPE_GGUF_TOKENIZER_H

#include <jansson.h>
#include <stddef.h>

/* *out <- an object as tokenizer.json has it, for tokenizer_open_json(); to be json_decref'ed.
 * Vocabularies of byte pair encoding ("gpt2") and of SentencePiece ("llama"); others, and splitting
 * of texts that is not known (tokenizer.ggml.pre), are MODEL_EUNSUPPORTED by name; MODEL_EIO where
 * the file has no vocabulary. */
int gguf_tokenizer(const char *path, json_t **out, char *err, size_t errlen);

/* *out <- an object as tokenizer_config.json has it: chat_template (a text, or a list of named
 * ones), bos_token and so on; only what the file says. */
int gguf_chat(const char *path, json_t **out, char *err, size_t errlen);

#endif
