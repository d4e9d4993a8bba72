/* folder.h - what people name as a model folder, and what it is when it is none */
#ifndef KVPIPE_MODEL_FOLDER_H
#define KVPIPE_MODEL_FOLDER_H

#include <stddef.h>

/* *dir <- the folder that is meant, to be freed: the name itself, or of a hub cache's folder
 * (models--ORG--NAME) the snapshot that refs/main names. A GGUF file stands for a folder. What
 * cannot be a model (another file, the id of a model on the hub) is MODEL_EIO, and err says what it
 * is. */
int model_folder(const char *name, char **dir, char *err, size_t errlen);

/* The folder has no config.json: says what it seems to be. Returns the code, or 0 where it does not
 * know better than the system's message. */
int model_folder_without_config(const char *dir, char *err, size_t errlen);
/* The same where there are no safetensors. */
int model_folder_without_weights(const char *dir, char *err, size_t errlen);

#endif
