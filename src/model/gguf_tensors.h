/* gguf_tensors.h - the tensors of a GGUF file as those of a model folder
 *
 * Internal to the readers of tensors (safetensors_internal.h). */
#ifndef KVPIPE_GGUF_TENSORS_H
#define KVPIPE_GGUF_TENSORS_H

struct tensor_set;

/* Adds the file, and the other parts of a split one; the tensors are sorted by name then, and each
 * name is there once. Returns MODEL_*, with a message in that of the structure. */
int gguf_tensors_add(struct tensor_set *, const char *path);

#endif
