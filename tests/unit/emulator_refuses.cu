/* emulator_refuses.cu - what ends a program on the emulator (tests/cuda): kernels that may have to
 * be loaded in a capture, and early starts behind work that is no kernel
 *
 * Each is done in a process of its own, whose last words are read. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gpu/gpu_internal.h"

enum { D = 16, ROWS = 12 };

static struct dev *d;
static float *x, *y;
static struct mat w = { NULL, WEIGHT_F32, D, D };

static void
multiply(uint32_t rows)
{
	gpu_matmul(d, y, x, &w, NULL, rows, 0);
}

static void
load_in_capture(void)
{
	gpu_graph_begin(d);
	gpu_round(d, x, D, KV_F16);
}

static void
load_product_in_capture(void)
{
	multiply(ROWS);
	gpu_graph_begin(d);
	multiply(ROWS);
	multiply(ROWS - 1);
}

static void
start_behind_copy(void)
{
	multiply(1);
	gpu_copy(d, x, y, D);
	d->no_early_start = false;
	multiply(1);
}

static void
start_behind_memset(void)
{
	multiply(1);
	gpu_clear(d, x, D);
	d->no_early_start = false;
	multiply(1);
}

static void
start_first_in_capture(void)
{
	multiply(1);
	gpu_graph_begin(d);
	d->no_early_start = false;
	multiply(1);
}

static void
start_behind_product(void)
{
	multiply(ROWS);
	d->no_early_start = false;
	multiply(1);
}

/* All that is wrong with none of them */
static void
capture(void)
{
	multiply(ROWS);
	multiply(1);
	gpu_round(d, x, D, KV_F16);
	gpu_graph_begin(d);
	multiply(ROWS);
	gpu_copy(d, x, y, D);
	multiply(1);
	gpu_round(d, x, D, KV_F16);
	gpu_graph_launch(d, gpu_graph_end(d, NULL), 0);
	multiply(1);
	fprintf(stderr, "%s", gpu_ops.sync(d) == NULL ? "it has run" : d->error);
}

static void
in_child(void (*work)(void))
{
	char err[256];

	if ((d = gpu_ops.open(0, 1, err, sizeof err)) == NULL) {
		fprintf(stderr, "%s\n", err);
		exit(1);
	}
	x = (float *)gpu_alloc(d, ROWS * D * sizeof *x);
	y = (float *)gpu_alloc(d, ROWS * D * sizeof *y);
	w.data = gpu_alloc(d, D * D * sizeof(float));
	gpu_clear(d, x, ROWS * D * sizeof *x);
	gpu_clear(d, y, ROWS * D * sizeof *y);
	gpu_clear(d, (void *)w.data, D * D * sizeof(float));
	work();
	_exit(0);
}

/* Does it end with these words? */
static int
says(void (*work)(void), const char *words)
{
	char text[4096];
	size_t n = 0;
	ssize_t got;
	int ends[2];
	pid_t child;

	if (pipe(ends) != 0 || (child = fork()) < 0)
		return 0;
	if (child == 0) {
		dup2(ends[1], 2);
		close(ends[0]);
		in_child(work);
	}
	close(ends[1]);
	while (n < sizeof text - 1 && (got = read(ends[0], text + n, sizeof text - 1 - n)) > 0)
		n += (size_t)got;
	text[n] = '\0';
	close(ends[0]);
	waitpid(child, NULL, 0);
	if (strstr(text, words) != NULL)
		return 1;
	fprintf(stderr, "emulator_refuses: '%s' is not said, but: %s\n", words, text);
	return 0;
}

int
main(void)
{
	static const struct {
		void (*work)(void);
		const char *words;
	} all[] = {
		{ load_in_capture, "round_to<f16> is launched for the first time, in a capture" },
		{ load_product_in_capture, "a product of cuBLAS, 16 x 11 x 16, types 0 and 0 is "
			"launched for the first time, in a capture" },
		{ start_behind_copy, "would start early behind a copy" },
		{ start_behind_memset, "would start early behind a memset" },
		{ start_first_in_capture,
			"would start early behind the beginning of a capture" },
		{ start_behind_product, "would start early behind a product of cuBLAS" },
		{ capture, "it has run" },
	};
	int wrong = 0;

	for (const auto &one : all)
		wrong += !says(one.work, one.words);
	return wrong > 0;
}
