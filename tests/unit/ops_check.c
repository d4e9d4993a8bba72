/* ops_check.c - devices, random data and comparison for the tests of the op table */
#include <stdarg.h>
#include <stdio.h>

#include "cpu/cpu_internal.h"
#include "tests/unit/ops_check.h"

/* Largest error allowed, as a share of the largest magnitude in the result (at least 1); for
 * compare_each() there are bounds instead.
 * All but the last are some roundings of f32 (6e-8), more for longer sums; logits of
 * several hundred turn their own rounding into an error of the exponential. */
static const double tolerance[OPS] = {
	[EMBED] = 0,
	[RMSNORM] = 5e-7,
	[APPEND] = 0,
	[SWIGLU] = 5e-7,
	[TEMPER] = 1e-7,
	[LAYERNORM] = 2e-6,
	[PROJECT] = 1e-5,          /* a sum of thousands that is nearly 0 */
	[FFN] = 1e-5,
	[ATTEND] = 2e-6,
	[ATTEND_LARGE] = 2e-4,
	[ATTEND_DECODE] = 2e-6,
	[LSE] = 1e-6,
	[LSE_DECODE] = 1e-6,
	[MASS] = 2e-6,
	[MASS_LARGE] = 2e-4,
	[SCORES_BY_LABEL] = 0,
	[ATTEND_CHOSEN] = 2e-6,
	[ATTEND_CHOSEN_LARGE] = 2e-4,
	[GATHER] = 0,
	[REBUILD] = 2e-6,
	[REBUILD_F16] = 4.9e-4,
	[REBUILD_BF16] = 3.95e-3,
	[BITS_SCORES] = 2e-6,
	[PAGE_SCORES] = 2e-6,
	[KEY_SCORES] = 2e-6,
	[KNORM] = 6.1e-8,
	[KEYDIFF] = 6.1e-8,
	[VALUE_NORMS] = 2e-6,
	[ACTIVATE] = 1e-6,
	[GATE_SCORES] = 2e-6,
	[ATTEND_RECENT] = 2e-6,
	[ATTEND_ROWS] = 2e-6,
	[LSE_ROWS] = 1e-6,
	[MASS_ROWS] = 3e-6,
	[SCORES_ROWS] = 2e-6,
};
/* The same for devices that round what they multiply to 16 bits, where it is more */
static const double tolerance_16[OPS] = {
	[PROJECT] = 4e-3,
	[FFN] = 9e-3,              /* one number of them; all together: ops_between.c */
	[ATTEND] = 4e-3,
	[LSE] = 4e-3,
	[MASS] = 4e-3,
	/* weights of 5 to 8 query rows in bf16: each is rounded by up to 2^-17 of it, up or down */
	[ATTEND_DECODE] = 4e-6,
	[LSE_DECODE] = 4e-6,
	[ATTEND_CHOSEN] = 4e-6,
	/* nothing is rounded in these, but tensor cores cut off where they add: half a unit in the
	 * last place of the sum, up to 16 times in the same direction */
	[BITS_SCORES] = 4e-6,
	[PAGE_SCORES] = 4e-6,
	[KEY_SCORES] = 4e-6,
	/* of quantised rows: queries and weights in 16 bits */
	[ATTEND_RECENT] = 5e-5,
	[ATTEND_ROWS] = 5e-5,
	[LSE_ROWS] = 2e-5,
	[MASS_ROWS] = 5e-5,
	[SCORES_ROWS] = 2e-5,
};
static const char *const op_name[OPS] = {
	"embed",
	"rmsnorm",
	"matmul",
	"rope",
	"append",
	"swiglu",
	"mix",
	"temper",
	"layernorm",
	"project",
	"rope_append",
	"rope_append, f16",
	"rope_append, bf16",
	"ffn",
	"attend",
	"attend, large logits",
	"attend, few queries",
	"lse",
	"lse, few queries",
	"attention mass",
	"attention mass, large logits",
	"scores_by_label",
	"attend_chosen",
	"attend_chosen, large logits",
	"gather",
	"rebuild",
	"rebuild, f16",
	"rebuild, bf16",
	"bits scores",
	"page scores",
	"key scores",
	"knorm",
	"keydiff", "value norms", "activate", "gate scores",
	"attend, full rows behind quantised",
	"attend, quantised rows",
	"lse, quantised rows",
	"attention mass, quantised rows",
	"scores, quantised rows",
};

struct device device[16];
int devices, passed, failed, only_sample;
static uint32_t cases;
static double largest_error[OPS];
static double largest_share[OPS];      /* of the bound: compare_each() */

/* Where gpu/ is linked, and where the emulator is */
extern void gpu_force_reference(int) __attribute__((weak));
extern void gpu_force_wgmma(int) __attribute__((weak));
extern const int cuda_emulated __attribute__((weak));

static void
open_device(const struct ops *ops, int index, const char *name, int threads)
{
	struct device *d = &device[devices];
	char err[128];

	*d = (struct device){ .ops = ops, .threads = threads, .rounds = strcmp(name, "cuda") == 0 ||
		strcmp(name, "avx512 bf16") == 0 };
	snprintf(d->name, sizeof d->name, "%s", name);
	if ((d->dev = ops->open(index, threads, err, sizeof err)) != NULL)
		devices++;
	else if (ops == &cpu_ops)
		verdict(0, "open %s: %s", name, err);
	if (strcmp(name, "avx512 bf16") == 0 && !ops->products_in_bf16(d->dev, 1))
		verdict(0, "%s: this processor has no such instructions", name);
}

int
emulated(void)
{
	return &cuda_emulated != NULL;
}

/* Random order finds what depends on an order at all; the other two also show that results are the
 * same bytes. Naive kernels have few barriers to go wrong at: one order. */
static void
open_emulated(int all_orders)
{
	int i;

	gpu_force_reference(1);
	open_device(&gpu_ops, RANDOM_ORDER, "cuda naive", RANDOM_ORDER);
	gpu_force_reference(0);
	for (i = all_orders ? 0 : RANDOM_ORDER; i <= RANDOM_ORDER; i++)
		open_device(&gpu_ops, i, "cuda", i);
	verdict(devices >= 2, "%d emulated devices", devices);
}

static void
open_gpu(void)
{
	gpu_force_reference(1);
	open_device(&gpu_ops, 0, "cuda naive", 0);
	gpu_force_reference(0);
	open_device(&gpu_ops, 0, "cuda", 0);
}

void
open_devices(int only_gpu, int all_orders)
{
	static const char *isa[] = { "base", "avx2", "avx512" };
	size_t i;
	int threads;

	for (i = 0; i < sizeof isa / sizeof isa[0] && !emulated() && !only_gpu; i++)
		for (threads = 1; threads <= 3 && cpu_force_isa(isa[i]); threads++)
			open_device(&cpu_ops, 0, isa[i], threads);
	cpu_force_isa(NULL);
	for (threads = 1; threads <= 3 && cpu_bf16() != NULL && !emulated() && !only_gpu; threads++)
		open_device(&cpu_ops, 0, "avx512 bf16", threads);
	if (gpu_force_wgmma != NULL)           /* not for long calls alone */
		gpu_force_wgmma(1);
	if (emulated())
		open_emulated(all_orders);
	else if (gpu_force_reference != NULL)
		open_gpu();
	if (only_gpu)
		verdict(devices >= 2, "%d GPUs", devices);
}

void
close_devices(void)
{
	while (devices > 0) {
		devices--;
		device[devices].ops->close(device[devices].dev);
	}
}

/* For setting the tolerances: what they are, and how much of them is used */
void
print_errors(void)
{
	int op;

	for (op = 0; op < OPS; op++)
		if (largest_share[op] > 0)
			printf("%-20s largest error %.0f %% of its bound\n", op_name[op],
			    100 * largest_share[op]);
	for (op = 0; op < OPS; op++)
		if (largest_error[op] > 0 || largest_share[op] == 0)
			printf("%-20s largest error %.1e, allowed %.1e (rounding to 16 bits: "
			    "%.1e)\n", op_name[op], largest_error[op], tolerance[op],
			    fmax(tolerance[op], tolerance_16[op]));
}

void
verdict(int ok, const char *fmt, ...)
{
	va_list ap;

	if (ok) {
		passed++;
		return;
	}
	failed++;
	va_start(ap, fmt);
	fputs("FAILED: ", stdout);
	vprintf(fmt, ap);
	putchar('\n');
	va_end(ap);
}

/* ---- data ---- */

static uint64_t seed = 1;

void
restart_draws(void)
{
	seed = 1;
	cases = 0;
}

static uint64_t
next_draw(void)
{
	return seed = seed * 6364136223846793005u + 1442695040888963407u;
}

uint32_t
draw(uint32_t below)
{
	return (uint32_t)((next_draw() >> 33) % below);
}

unsigned char *
draw_bytes(size_t n)
{
	unsigned char *p = malloc(n + 1);
	uint64_t bits = 0;
	size_t i;

	for (i = 0; i < n; i++, bits <<= 8) {
		if (i % 4 == 0)
			bits = next_draw();
		p[i] = (unsigned char)(bits >> 56);
	}
	return p;
}

float *
floats(size_t n, float scale)
{
	float *x = malloc((n + 1) * sizeof *x);
	size_t i;

	for (i = 0; i < n; i++)
		x[i] = ((float)draw(1 << 20) / (1 << 19) - 1) * scale;
	return x;
}

double *
doubles(const float *x, size_t n)
{
	double *y = malloc((n + 1) * sizeof *y);
	size_t i;

	for (i = 0; i < n; i++)
		y[i] = x[i];
	return y;
}

void
round_to(float *x, enum kv_dtype type, size_t n)
{
	void *t = malloc(n * 4 + 1);

	kv_from_f32(t, x, type, n);
	kv_to_f32(x, t, type, n);
	free(t);
}

void *
to_device(struct device *d, const void *x, size_t bytes)
{
	void *p = d->ops->alloc(d->dev, bytes);

	d->ops->put(d->dev, p, x, bytes);
	return p;
}

void *
to_device_as(struct device *d, const float *x, enum kv_dtype type, size_t n)
{
	void *t = malloc(n * 4 + 1), *p;

	kv_from_f32(t, x, type, n);
	p = to_device(d, t, n * kv_dtype_size(type));
	free(t);
	return p;
}

void *
cleared(struct device *d, size_t bytes)
{
	void *p = d->ops->alloc(d->dev, bytes);

	d->ops->clear(d->dev, p, bytes);
	return p;
}

void *
put_askew(struct device *d, const void *x, size_t bytes, size_t by)
{
	char *p = d->ops->alloc(d->dev, bytes + by);

	d->ops->put(d->dev, p + by, x, bytes);
	return p + by;
}

void
free_askew(struct device *d, const void *p, size_t by)
{
	d->ops->free(d->dev, (char *)p - by);
}

float *
from_device(struct device *d, const void *p, size_t n)
{
	float *x = malloc((n + 1) * sizeof *x);

	d->ops->get(d->dev, x, p, n * sizeof *x);
	return x;
}

/* ---- comparison ---- */

static uint64_t
digest_of(const void *p, size_t bytes)
{
	const unsigned char *c = p;
	uint64_t h = 14695981039346656037u;

	while (bytes-- > 0)
		h = (h ^ *c++) * 1099511628211u;
	return h | 1;
}

void
new_case(void)
{
	int i;

	for (i = 0; i < devices; i++)
		device[i].digest = 0;
}

/* The sample is the first case and about one of eight behind it. Multiples of the golden ratio have
 * distances of 5, 8 and 13: each type or width that returns every few cases is in it. */
int
in_sample(void)
{
	const uint32_t share = UINT32_MAX / 8;

	return !only_sample || cases++ * 2654435769u <= share;
}

void
compare(struct device *d, enum op op, const char *what, const float *got, const double *want,
    size_t n)
{
	double largest = 1, error, worst = 0;
	size_t i, at = 0;

	for (i = 0; i < n; i++)
		if (isfinite(want[i]))
			largest = fmax(largest, fabs(want[i]));
	for (i = 0; i < n; i++) {
		error = got[i] == want[i] ? 0 : fabs(got[i] - want[i]) / largest;
		if (!isnan(worst) && !(error <= worst)) {      /* a NaN is the worst there is */
			worst = error;
			at = i;
		}
	}
	if (!isnan(largest_error[op]) && !(worst <= largest_error[op]))
		largest_error[op] = worst;
	verdict(worst <= (d->rounds ? fmax(tolerance[op], tolerance_16[op]) : tolerance[op]),
	    "%s, %s %d threads: error %.2g at %zu of %zu: %.9g, want %.9g", what, d->name,
	    d->threads, worst, at, n, n > 0 ? got[at] : 0, n > 0 ? want[at] : 0);
	same_bytes(d, what, got, n * sizeof *got);
}

void
compare_each(struct device *d, enum op op, const char *what, const float *got, const double *want,
    const double *bound, size_t n)
{
	double share, worst = 0;
	size_t i, at = 0;

	for (i = 0; i < n; i++) {
		share = got[i] == want[i] ? 0 : fabs(got[i] - want[i]) / bound[i];
		if (!isnan(worst) && !(share <= worst)) {      /* a NaN is the worst there is */
			worst = share;
			at = i;
		}
	}
	if (!isnan(largest_share[op]) && !(worst <= largest_share[op]))
		largest_share[op] = worst;
	verdict(worst <= 1, "%s, %s %d threads: %.3g of the bound %.2g at %zu of %zu: %.9g, want "
	    "%.9g", what, d->name, d->threads, worst, n > 0 ? bound[at] : 0, at, n, n > 0 ?
	    got[at] : 0, n > 0 ? want[at] : 0);
	same_bytes(d, what, got, n * sizeof *got);
}

void
same_bytes(struct device *d, const char *what, const void *got, size_t bytes)
{
	int k;

	d->digest = digest_of(got, bytes);
	for (k = 0; k < devices && device[k].digest != 0; k++)
		if (strcmp(device[k].name, d->name) == 0 && device[k].digest != d->digest) {
			verdict(0, "%s, %s: %d and %d threads differ", what, d->name,
			    device[k].threads, d->threads);
			return;
		}
	verdict(d->ops->sync(d->dev) == NULL, "%s, %s: %s", what, d->name, d->ops->sync(d->dev));
}

void
again(struct device *d, const char *what, const float *got, size_t n)
{
	verdict(digest_of(got, n * sizeof *got) == d->digest, "%s, %s: a second run differs",
	    what, d->name);
}
