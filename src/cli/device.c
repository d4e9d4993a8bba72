/* device.c - opens the backend that --device and -j name */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "cli/device.h"
#include "cli/report.h"
#include "cli/tool.h"
#include "libkvfile/remembered.h"

/* ---- kernels of a GPU (KV_KERNELS) ---- */

static struct kv_remembered checked = { .format = "kvpipe kernels 1" };

/* with: NULL where all kernels are to be checked again */
static int
find_checked(void *with, const char *key, char *value, size_t size)
{
	return with != NULL && kv_remembered_find(with, key, value, size);
}

static void
keep_checked(void *with, const char *key, const char *value)
{
	(void)with;
	kv_remembered_add(&checked, key, value);
}

static const struct findings findings = { .with = &checked, .find = find_checked,
	.keep = keep_checked, .warn = warn_notice };
static const struct findings new_findings = { .with = NULL, .find = find_checked,
	.keep = keep_checked, .warn = warn_notice };

static void
choose_kernels(const struct device *d)
{
	static const struct {
		const char *name;
		enum kernels kernels;
		const struct findings *findings;
	} choice[] = {
		{ "auto", KERNELS_CHECKED, &findings },
		{ "check", KERNELS_CHECKED, &new_findings },
		{ "plain", KERNELS_PLAIN, NULL },
		{ "unchecked", KERNELS_UNCHECKED, NULL },
	};
	size_t i;

	for (i = 0; i < sizeof choice / sizeof *choice; i++)
		if (strcmp(choice[i].name, settings.kernels) == 0)
			break;
	if (i == sizeof choice / sizeof *choice)
		die(EXIT_USAGE, "KV_KERNELS: '%s' is not auto, check, plain or unchecked",
		    settings.kernels);
	if (d->ops->use_kernels == NULL)
		return;
	if (checked.file == NULL)
		checked.file = cache_file("kernels");
	d->ops->use_kernels(d->dev, choice[i].kernels, choice[i].findings);
}

/* ---- devices ---- */

/* Returns the number after "cuda:", 0 without one. */
static int
cuda_index(const char *text)
{
	char *end;
	long n;

	if (*text == '\0')
		return 0;
	n = strtol(text + 1, &end, 10);
	if (*text != ':' || end == text + 1 || *end != '\0' || n < 0 || n > INT_MAX)
		die(EXIT_USAGE, "--device: '%s' is not cpu, cuda, cuda:N or auto", settings.device);
	return (int)n;
}

/* Fills d and returns 1, or sets err to the reason and returns 0. */
static int
try(struct device *d, const struct ops *ops, int index, uint32_t threads, char *err,
    size_t errlen)
{
	d->ops = ops;
	d->dev = NULL;
	strcpy(err, "this build has none: make GPU=1, with nvcc, or pip install 'kvpipe[cuda]'");
	if (ops->open != NULL)
		d->dev = ops->open(index, threads > INT_MAX ? INT_MAX : (int)threads, err, errlen);
	return d->dev != NULL;
}

struct device
device_another(uint32_t threads)
{
	const char *name = settings.device;
	struct device d;
	char err[256];

	if (strncmp(name, "cuda", 4) == 0) {
		if (!try(&d, &gpu_ops, cuda_index(name + 4), threads, err, sizeof err))
			die(EXIT_RUN, "no CUDA device: %s", err);
	} else if (strcmp(name, "cpu") != 0 && strcmp(name, "auto") != 0) {
		die(EXIT_USAGE, "--device: '%s' is not cpu, cuda, cuda:N or auto", name);
	} else if (strcmp(name, "cpu") == 0 || !try(&d, &gpu_ops, 0, threads, err, sizeof err)) {
		if (!try(&d, &cpu_ops, 0, threads, err, sizeof err))
			die(EXIT_RUN, "cpu: %s", err);
	}
	choose_kernels(&d);
	report_device(&d);
	return d;
}

static struct device opened;

static const char *
failure(void)
{
	return opened.dev != NULL ? opened.ops->sync(opened.dev) : NULL;
}

struct device
device_open(void)
{
	struct device d = device_another(settings.threads);

	opened = d;
	device_failure = failure;
	note("device: %s, %s", d.ops->name, d.ops->describe(d.dev));
	return d;
}

void
device_close(struct device *d)
{
	d->ops->close(d->dev);
	if (opened.dev == d->dev)
		opened.dev = NULL;
	d->dev = NULL;
}

const char *
device_description(void)
{
	static char text[256];
	struct device d = device_open();

	strncpy(text, d.ops->describe(d.dev), sizeof text - 1);
	device_close(&d);
	return text;
}
