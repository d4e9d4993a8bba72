/* folder.c - what people name as a model folder, and what it is when it is none */
#include <sys/stat.h>

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model/folder.h"
#include "model/gguf.h"
#include "model/model.h"
#include "model/model_files.h"

static int
is_folder(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static int
holds(const char *dir, const char *name)
{
	char *path = model_file_path(dir, name);
	const int there = path != NULL && access(path, F_OK) == 0;

	free(path);
	return there;
}

/* name[256] <- the first file in order whose name ends so; 0: there is none */
static int
holds_ending(const char *dir, const char *tail, char *name)
{
	const size_t m = strlen(tail);
	DIR *d = opendir(dir);
	const struct dirent *e;
	size_t n;

	name[0] = '\0';
	while (d != NULL && (e = readdir(d)) != NULL) {
		n = strlen(e->d_name);
		if (n >= m && strcmp(e->d_name + n - m, tail) == 0 &&
		    (name[0] == '\0' || strcmp(e->d_name, name) < 0))
			snprintf(name, 256, "%s", e->d_name);
	}
	if (d != NULL)
		closedir(d);
	return name[0] != '\0';
}

/* "org/name", as models are called on the hub */
static int
is_hub_id(const char *name)
{
	const char *slash = strchr(name, '/'), *p;

	if (slash == NULL || slash == name || slash[1] == '\0' || strchr(slash + 1, '/') != NULL ||
	    name[0] == '.' || name[0] == '~')
		return 0;
	for (p = name; *p != '\0'; p++)
		if (!isalnum((unsigned char)*p) && strchr("/-_.", *p) == NULL)
			return 0;
	return 1;
}

static int
not_there(const char *name, char *err, size_t errlen)
{
	const int why = errno;

	if (why != ENOENT || !is_hub_id(name))
		return model_file_fail(err, errlen, MODEL_EIO, name, "%s", strerror(why));
	return model_file_fail(err, errlen, MODEL_EIO, name, "%s; if it is a model id of Hugging "
	    "Face, run `hf download %s --local-dir DIR` and name DIR", strerror(why), name);
}

/* A GGUF file is a model by itself. */
static int
is_a_file(const char *name, char **dir, char *err, size_t errlen)
{
	if (!gguf_is(name))
		return model_file_fail(err, errlen, MODEL_EIO, name, "a file: want a folder with "
		    "config.json, tokenizer.json and model.safetensors, or a GGUF file");
	if ((*dir = strdup(name)) == NULL)
		return model_file_fail(err, errlen, MODEL_ENOMEM, name, "out of memory");
	return MODEL_OK;
}

/* *dir <- the snapshot that refs/main of a hub cache's folder names */
static int
hub_snapshot(const char *name, char **dir, char *err, size_t errlen)
{
	char *ref = model_file_path(name, "refs/main"), commit[128] = "";
	FILE *f = ref != NULL ? fopen(ref, "r") : NULL;

	free(ref);
	if (f == NULL || fgets(commit, sizeof commit, f) == NULL)
		commit[0] = '\0';
	if (f != NULL)
		fclose(f);
	commit[strcspn(commit, " \r\n")] = '\0';
	if (commit[0] == '\0' || commit[0] == '.' || strchr(commit, '/') != NULL)
		return model_file_fail(err, errlen, MODEL_EIO, name, "a hub cache without "
		    "refs/main: name one of the folders in %s/snapshots", name);
	if (asprintf(dir, "%s/snapshots/%s", name, commit) == -1) {
		*dir = NULL;
		return model_file_fail(err, errlen, MODEL_ENOMEM, name, "out of memory");
	}
	if (is_folder(*dir))
		return MODEL_OK;
	free(*dir);
	*dir = NULL;
	return model_file_fail(err, errlen, MODEL_EIO, name, "a hub cache without snapshots/%s, "
	    "which refs/main names: download it again", commit);
}

int
model_folder(const char *name, char **dir, char *err, size_t errlen)
{
	struct stat st;

	*dir = NULL;
	if (stat(name, &st) == -1)
		return not_there(name, err, errlen);
	if (!S_ISDIR(st.st_mode))
		return is_a_file(name, dir, err, errlen);
	if (!holds(name, "config.json") && holds(name, "snapshots"))
		return hub_snapshot(name, dir, err, errlen);
	if ((*dir = strdup(name)) == NULL)
		return model_file_fail(err, errlen, MODEL_ENOMEM, name, "out of memory");
	return MODEL_OK;
}

int
model_folder_without_config(const char *dir, char *err, size_t errlen)
{
	char file[256];

	if (!is_folder(dir) || holds(dir, "config.json"))
		return MODEL_OK;
	if (holds(dir, "adapter_config.json"))
		return model_file_fail(err, errlen, MODEL_EUNSUPPORTED, dir, "a LoRA adapter, not "
		    "a model: merge it into its base model (merge_and_unload() of PEFT)");
	if (holds_ending(dir, ".gguf", file))
		return model_file_fail(err, errlen, MODEL_EIO, dir, "no config.json, but %s, "
		    "a model of llama.cpp: name that file", file);
	if (holds(dir, "params.json"))
		return model_file_fail(err, errlen, MODEL_EUNSUPPORTED, dir, "weights in the form "
		    "of their authors (params.json): want the Hugging Face form, with config.json");
	return MODEL_OK;
}

int
model_folder_without_weights(const char *dir, char *err, size_t errlen)
{
	char file[256];

	if (holds_ending(dir, ".bin", file) || holds_ending(dir, ".pt", file) ||
	    holds_ending(dir, ".pth", file))
		return model_file_fail(err, errlen, MODEL_EUNSUPPORTED, dir, "PyTorch pickles "
		    "(%s) can hold programs and are not read: save the model again with "
		    "save_pretrained() of transformers", file);
	if (holds_ending(dir, ".gguf", file))
		return model_file_fail(err, errlen, MODEL_EIO, dir, "no model.safetensors, but "
		    "%s, a model of llama.cpp: name that file", file);
	if (holds_ending(dir, ".safetensors", file) &&
	    strcmp(file, "adapter_model.safetensors") != 0)
		return model_file_fail(err, errlen, MODEL_EUNSUPPORTED, dir, "neither "
		    "model.safetensors nor its index.json, but %s: rename it, if it is the whole "
		    "model", file);
	return MODEL_OK;
}
