/* gpu_selfcheck.cu - checks of fast kernels at their first use on a GPU
 *
 * Kernels with tensor cores, copies behind products and blocks that split work were proven on an
 * emulator, and on few kinds of GPU. So, where the program wants that (use_kernels()), the first
 * call of each kind runs a small problem by the kernels and by naive ones first. Kernels that give
 * something else are not used for that kind, and the program is warned. What was found is
 * remembered under the GPU, the driver and the file that has the kernels.
 *
 * The table of ops has the functions at the end of this file: each finds its verdict, sets the
 * device to the kernels that may be used, and calls the op. */
#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "gpu/gpu_selfcheck.h"

/* A verdict in words, as it is remembered */
enum verdict { ALL_RIGHT, HOPPER_WRONG, FAST_WRONG, VERDICTS };
static const char *const verdict_name[VERDICTS] = { "right", "wgmma-wrong", "wrong" };

struct checks {
	enum kernels kernels;
	struct findings findings;
	char place[64];              /* the GPU, the driver, the file with the kernels */
	struct { struct kernel_case c; enum verdict verdict; } *done;
	size_t n, room;
};

/* ---- names ---- */

static const char *
op_name(uint32_t op)
{
	switch (op) {
	case CHECKED_ATTEND: return "attend";
	case CHECKED_CHOSEN: return "attend_chosen";
	case CHECKED_MASS: return "attend_mass";
	case CHECKED_WINDOW: return "window_mass";
	}
	return "bits_scores";
}

/* For the file and for reports; types by their numbers in rowtype.h */
static void
name_case(char *text, size_t size, const struct kernel_case *c)
{
	snprintf(text, size, "%s,type=%u/%u/%u%s,values=%u,width=%u,heads=%u,queries=%u%s,"
	    "limits=%u%u,over=%u,entry=%u", op_name(c->op), c->dtype, c->k_type, c->v_type,
	    c->latent ? ",latent" : "",
	    c->values, c->width, c->heads, c->queries, c->queries > DECODE_QUERIES ? "+" : "",
	    c->window, c->softcap, c->over, c->entry);
}

static uint64_t
hash(uint64_t h, const void *data, size_t n)
{
	for (size_t i = 0; i < n; i++)         /* FNV-1a */
		h = (h ^ ((const unsigned char *)data)[i]) * 0x100000001b3;
	return h;
}

/* The kernels are another build where the file that has them is another one. */
static void
name_place(struct checks *c, int index)
{
	cudaDeviceProp p = {};
	int driver = 0;
	uint64_t h = 0xcbf29ce484222325;
	struct stat st;
	Dl_info file;

	cudaDriverGetVersion(&driver);
	if (cudaGetDeviceProperties(&p, index) == cudaSuccess)
		h = hash(h, &p.uuid, sizeof p.uuid);
	else
		cudaGetLastError();
	if (dladdr((void *)name_place, &file) != 0 && stat(file.dli_fname, &st) == 0) {
		h = hash(h, &st.st_dev, sizeof st.st_dev);
		h = hash(h, &st.st_ino, sizeof st.st_ino);
		h = hash(h, &st.st_size, sizeof st.st_size);
		h = hash(h, &st.st_mtim, sizeof st.st_mtim);
	}
	snprintf(c->place, sizeof c->place, "sm%d%d,driver=%d,%016llx", p.major, p.minor, driver,
	    (unsigned long long)h);
}

/* ---- verdicts ---- */

static void
warn(const struct checks *c, const char *fmt, ...)
{
	char text[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	c->findings.warn(c->findings.with, text);
}

static void
warn_of(const struct checks *c, const char *name, enum verdict v)
{
	if (v != ALL_RIGHT)
		warn(c, "GPU kernels give wrong results and are not used: %s (%s%s). Slower ones "
		    "are. Please report this line; KV_KERNELS=check checks again", name, c->place,
		    v == HOPPER_WRONG ? "; wgmma" : "");
}

static bool
differs(double difference, const struct kernel_case *c)
{
	return !(difference <= gpu_check_tolerance(c));
}

/* Runs the check, on a device that has its memory only meanwhile; *known <- whether it could be
 * made. */
static enum verdict
check_case(struct dev *d, struct checks *k, const struct kernel_case *c, bool *known)
{
	struct differences x = { -1, -1 };
	struct dev *small = gpu_open_small(d);

	if (small != NULL)
		x = gpu_check_case(small, c);
	*known = x.fast >= 0;
	if (!*known)
		warn(k, "GPU kernels could not be checked and are not used: %s",
		    small != NULL && !gpu_ok(small) ? small->error : "no memory");
	gpu_close(small);
	return !*known || differs(x.fast, c) ? FAST_WRONG :
	    differs(x.hopper, c) ? HOPPER_WRONG : ALL_RIGHT;
}

/* The verdict from the file; VERDICTS: there is none */
static enum verdict
remembered(const struct checks *k, const char *key)
{
	char value[32];
	int v = VERDICTS;

	if (k->findings.find(k->findings.with, key, value, sizeof value))
		for (v = 0; v < VERDICTS && strcmp(value, verdict_name[v]) != 0; v++)
			;
	return (enum verdict)v;
}

static enum verdict
find_verdict(struct dev *d, struct checks *k, const struct kernel_case *c)
{
	char name[128], key[sizeof name + sizeof k->place];
	enum verdict v;
	bool known = true;

	name_case(name, sizeof name, c);
	snprintf(key, sizeof key, "%s,%s", k->place, name);
	if ((v = remembered(k, key)) == VERDICTS) {
		v = check_case(d, k, c, &known);
		if (known)
			k->findings.keep(k->findings.with, key, verdict_name[v]);
	}
	if (known)
		warn_of(k, name, v);
	return v;
}

/* A call that is captured has run before, so its verdict is there. */
static enum verdict
verdict_of(struct dev *d, const struct kernel_case *c)
{
	struct checks *k = d->checks;
	size_t i;

	if (c->heads == 0 || c->width == 0 ||
	    ((c->op == CHECKED_CHOSEN || c->op == CHECKED_BITS) && c->window))
		return ALL_RIGHT;              /* the op refuses it */
	for (i = 0; i < k->n; i++)
		if (memcmp(&k->done[i].c, c, sizeof *c) == 0)
			return k->done[i].verdict;
	if (d->capturing) {
		gpu_fail(d, "%s: its kernels have not been checked", op_name(c->op));
		return FAST_WRONG;
	}
	if (k->n == k->room) {
		const size_t room = 2 * k->room + 16;
		void *more = realloc(k->done, room * sizeof *k->done);

		if (more == NULL)
			return FAST_WRONG;
		k->done = (decltype(k->done))more;
		k->room = room;
	}
	k->done[k->n] = { *c, find_verdict(d, k, c) };
	return k->done[k->n++].verdict;
}

/* ---- what other files call ---- */

void
gpu_use_kernels(struct dev *d, enum kernels kernels, const struct findings *findings)
{
	d->reference |= kernels == KERNELS_PLAIN;
	if (kernels != KERNELS_CHECKED || d->reference || d->checks != NULL)
		return;
	if ((d->checks = (struct checks *)calloc(1, sizeof *d->checks)) == NULL) {
		gpu_fail(d, "no memory");
		return;
	}
	d->checks->findings = *findings;
	name_place(d->checks, d->index);
}

void
gpu_checks_close(struct dev *d)
{
	if (d->checks == NULL)
		return;
	free(d->checks->done);
	free(d->checks);
	d->checks = NULL;
}

/* ---- the ops ---- */

/* Which kernels a call may take, as the device has it */
struct allowed {
	int reference;
	bool no_wgmma;
};

/* Sets the device to what the verdicts of n calls allow all of them. Returns what it was before. */
template <class F>
static struct allowed
allow(struct dev *d, uint32_t n, F &&case_of)
{
	const struct allowed before = { d->reference, d->no_wgmma };

	for (uint32_t i = 0; i < n && d->checks != NULL && gpu_ok(d); i++) {
		const struct kernel_case c = case_of(i);
		const enum verdict v = verdict_of(d, &c);

		d->reference |= v == FAST_WRONG;
		d->no_wgmma |= v == HOPPER_WRONG;
	}
	return before;
}

static void
restore(struct dev *d, const struct allowed &before)
{
	d->reference = before.reference;
	d->no_wgmma = before.no_wgmma;
}

static struct kernel_case
case_of_call(enum checked_op op, const struct query *q, const struct layer_rows *l, bool values)
{
	return { .op = (uint32_t)op, .dtype = (uint32_t)l->dtype,
		.k_type = (uint32_t)rows_k_type(l),
		.v_type = (uint32_t)rows_v_type(l), .latent = l->v_in_k != 0, .values = values,
		.width = l->width,
		.heads = l->heads > 0 ? q->H / l->heads : 0,
		.queries = min(q->N, (uint32_t)DECODE_QUERIES + 1), .window = q->window > 0,
		.softcap = q->softcap > 0, .over = 0, .entry = 0 };
}

static struct kernel_case
case_of_attention(const struct attention *a)
{
	const bool chosen = a->chosen != NULL;
	struct kernel_case c = case_of_call(chosen ? CHECKED_CHOSEN : CHECKED_ATTEND, &a->query,
	    a->rows, a->o != NULL);

	c.entry = chosen ? a->chosen->rows : 0;
	return c;
}

void
gpu_checked_attend(struct dev *d, float *o, float *lse, const struct query *query,
    const struct layer_rows *l)
{
	const struct attention a = { .o = o, .lse = lse, .query = *query, .rows = l,
		.chosen = NULL };
	const struct allowed before = allow(d, query->N > 0, [&](uint32_t) {
		return case_of_attention(&a);
	});

	gpu_attend(d, o, lse, query, l);
	restore(d, before);
}

int
gpu_checked_attend_each(struct dev *d, const struct attention *a, uint32_t n)
{
	const struct allowed before = allow(d, n, [&](uint32_t i) {
		return case_of_attention(&a[i]);
	});
	const int done = gpu_attend_each(d, a, n);

	restore(d, before);
	return done;
}

void
gpu_checked_attend_chosen(struct dev *d, float *o, const struct query *query,
    const struct layer_rows *l, const struct chosen *chosen)
{
	const struct attention a = { .o = o, .lse = NULL, .query = *query, .rows = l,
		.chosen = chosen };
	const struct allowed before = allow(d, 1, [&](uint32_t) {
		return case_of_attention(&a);
	});

	gpu_attend_chosen(d, o, query, l, chosen);
	restore(d, before);
}

void
gpu_checked_attend_mass(struct dev *d, float *mass, size_t stride, const struct query *query,
    const float *lse, const struct layer_rows *l, enum over_queries over)
{
	const struct allowed before = allow(d, query->N > 0, [&](uint32_t) {
		struct kernel_case c = case_of_call(CHECKED_MASS, query, l, false);

		c.over = (uint32_t)over;
		return c;
	});

	gpu_attend_mass(d, mass, stride, query, lse, l, over);
	restore(d, before);
}

void
gpu_checked_window_mass(struct dev *d, float *mass, size_t stride, const struct query *query,
    const struct layer_rows *l, const struct layer_rows *own, enum over_queries over)
{
	const struct allowed before = allow(d, query->N > 0, [&](uint32_t) {
		struct kernel_case c = case_of_call(CHECKED_WINDOW, query, l, false);

		c.over = (uint32_t)over;
		c.entry = own != NULL;
		return c;
	});

	gpu_window_mass(d, mass, stride, query, l, own, over);
	restore(d, before);
}

void
gpu_checked_bits_scores(struct dev *d, float *score, size_t stride, const struct query *query,
    const struct entries *bits, const struct layer_rows *rows)
{
	const struct allowed before = allow(d, 1, [&](uint32_t) {
		struct kernel_case c = case_of_call(CHECKED_BITS, query, rows, false);

		c.entry = bits->rows;
		return c;
	});

	gpu_bits_scores(d, score, stride, query, bits, rows);
	restore(d, before);
}
