/* cpu_device.c - the CPU as a device: threads, memory, the first error, and the table of
 * ops
 *
 * Device memory is ordinary memory, every op has finished when it returns, and weights are
 * used where they are mapped. */
#include <oneapi/dnnl/dnnl.h>
#include <omp.h>
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "cpu/cpu_internal.h"

#define HUGE_PAGE ((size_t)2 << 20)
#define MIN_PARALLEL_COST 32768  /* elements below which the work is done before a thread wakes */

static void
name_yourself(struct dev *d)
{
	const dnnl_version_t *dnn = dnnl_version();
	const struct bf16_products *bf16 = cpu_bf16();

	snprintf(d->text, sizeof d->text, "%d thread%s, %s%s%s%s%s, oneDNN %d.%d.%d", d->threads,
	    d->threads == 1 ? "" : "s", d->simd->name, d->vnni != NULL ? ", " : "",
	    d->vnni != NULL ? d->vnni->name : "", bf16 != NULL ? ", " : "",
	    bf16 != NULL ? bf16->name : "", dnn->major, dnn->minor, dnn->patch);
}

static struct dev *
cpu_open(int index, int threads, char *err, size_t errlen)
{
	struct dev *d;

	if (index != 0) {
		snprintf(err, errlen, "there is only one CPU device, number 0, not %d", index);
		return NULL;
	}
	if (threads < 0 || threads > THREADS_MOST) {
		snprintf(err, errlen, "%d threads: want 1 to %d, or 0 for all", threads,
		    THREADS_MOST);
		return NULL;
	}
	if (threads == 0 && (threads = omp_get_num_procs()) > THREADS_MOST)
		threads = THREADS_MOST;
	if ((d = calloc(1, sizeof *d)) == NULL || (d->pool = cpu_pool_open(threads)) == NULL) {
		free(d);
		snprintf(err, errlen, "cannot start %d threads: %s", threads, strerror(errno));
		return NULL;
	}
	d->threads = threads;
	d->simd = cpu_simd();
	d->vnni = cpu_vnni();
	d->block_dots = cpu_blocks();
	name_yourself(d);
	return d;
}

static int
cpu_products_in_bf16(struct dev *d, int on)
{
	d->bf16 = on ? cpu_bf16() : NULL;
	return d->bf16 != NULL;
}

static void
cpu_blocks_in_f32(struct dev *d, int on)
{
	d->exact = on;
}

static void
cpu_close(struct dev *d)
{
	if (d == NULL)
		return;
	cpu_pool_close(d->pool);
	free(d->scratch);
	free(d);
}

void
cpu_run(struct dev *d, void (*work)(void *, size_t, int), void *arg, size_t items, size_t cost)
{
	size_t item;

	if (items > 1 && d->threads > 1 && cost >= MIN_PARALLEL_COST)
		cpu_pool_run(d->pool, work, arg, items);
	else
		for (item = 0; item < items; item++)
			work(arg, item, 0);
}

static const char *
cpu_sync(struct dev *d)
{
	return d->error[0] != '\0' ? d->error : NULL;
}

static const char *
cpu_describe(struct dev *d)
{
	return d->text;
}

void
cpu_fail(struct dev *d, const char *fmt, ...)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	va_list ap;

	pthread_mutex_lock(&lock);
	if (d->error[0] == '\0') {
		va_start(ap, fmt);
		vsnprintf(d->error, sizeof d->error, fmt, ap);
		va_end(ap);
	}
	pthread_mutex_unlock(&lock);
}

int
cpu_one_query_row(struct dev *d, const struct query *query)
{
	if (query->N != 1)
		cpu_fail(d, "retrieval for %u query rows, not 1", query->N);
	if (query->window != 0)
		cpu_fail(d, "retrieval in sliding-window attention, of %u positions, is not "
		    "supported", query->window);
	return d->error[0] == '\0';
}

/* Large pieces are aligned to huge pages and ask for them: keys and values are read from
 * end to end, and with small pages a tenth of that time goes into address translation. */
static void *
aligned(size_t bytes)
{
	size_t align = bytes >= 2 * HUGE_PAGE ? HUGE_PAGE : 64;
	void *p;

	if (bytes > SIZE_MAX - align)
		return NULL;
	bytes = (bytes + align) / align * align;       /* never 0 */
	if ((p = aligned_alloc(align, bytes)) != NULL && align == HUGE_PAGE)
		madvise(p, bytes, MADV_HUGEPAGE);
	return p;
}

void *
cpu_scratch(struct dev *d, size_t bytes)
{
	if (bytes <= d->scratch_bytes)
		return d->scratch;
	free(d->scratch);
	d->scratch_bytes = 0;
	if ((d->scratch = aligned(bytes)) == NULL) {
		cpu_fail(d, "no room for %zu bytes of scratch", bytes);
		return NULL;
	}
	d->scratch_bytes = bytes;
	return d->scratch;
}

static void *
cpu_alloc(struct dev *d, size_t bytes)
{
	(void)d;
	return aligned(bytes);
}

static void
cpu_free(struct dev *d, void *p)
{
	(void)d;
	free(p);
}

static void
cpu_copy(struct dev *d, void *dst, const void *src, size_t bytes)
{
	if (d->error[0] == '\0' && bytes > 0)
		memcpy(dst, src, bytes);
}

/* Ops are done when they return. */
static uint64_t
cpu_event_record(struct dev *d)
{
	(void)d;
	return 0;
}

static const char *
cpu_event_wait(struct dev *d, uint64_t event)
{
	(void)event;
	return cpu_sync(d);
}

static void
cpu_clear(struct dev *d, void *dst, size_t bytes)
{
	if (bytes > 0 && d->error[0] == '\0')
		memset(dst, 0, bytes);
}

static void
cpu_expect(struct dev *d, size_t bytes)
{
	(void)d;
	(void)bytes;
}

static const void *
cpu_weights(struct dev *d, const void *host, size_t bytes)
{
	(void)d;
	(void)bytes;
	return host;
}

const struct ops cpu_ops = {
	.name = "cpu",
	.takes_recent = 1,
	.shares_memory = 1,
	.open = cpu_open,
	.close = cpu_close,
	.sync = cpu_sync,
	.describe = cpu_describe,
	.products_in_bf16 = cpu_products_in_bf16,
	.blocks_in_f32 = cpu_blocks_in_f32,
	.use_kernels = NULL,
	.event_record = cpu_event_record,
	.event_wait = cpu_event_wait,
	.mem_info = cpu_mem_info,
	.alloc = cpu_alloc,
	.free = cpu_free,
	.put = cpu_copy,
	.get = cpu_copy,
	.get_side = cpu_copy,
	.host_alloc = cpu_alloc,
	.host_free = cpu_free,
	.get_async = cpu_copy,
	.copy = cpu_copy,
	.clear = cpu_clear,
	.expect = cpu_expect,
	.weights = cpu_weights,
	.embed = cpu_embed,
	.embed_ids = cpu_embed_ids,
	.rmsnorm = cpu_rmsnorm,
	.layernorm = cpu_layernorm,
	.matmul = cpu_matmul,
	.rope = cpu_rope,
	.split_pairs = cpu_split_pairs,
	.append = cpu_append,
	.compact = cpu_compact,
	.round = cpu_round,
	.swiglu = cpu_swiglu,
	.geglu = cpu_geglu,
	.softcap = cpu_softcap,
	.clamp = cpu_clamp,
	.mix = cpu_mix,
	.copy_channels = cpu_copy_channels,
	.head_products = cpu_head_products,
	.temper = cpu_temper,
	.repeat_heads = cpu_repeat_heads,
	.experts = cpu_experts,
	.scale_rows = cpu_scale_rows,
	.attend = cpu_attend,
	.attend_each = cpu_attend_each,
	.attend_apart = cpu_attend_apart,
	.lse_merge = cpu_lse_merge,
	.attend_mass = cpu_attend_mass,
	.query_stats = cpu_query_stats,
	.value_norms = cpu_value_norms,
	.activate = cpu_activate,
	.gate_scores = cpu_gate_scores,
	.window_mass = cpu_window_mass,
	.argmax = cpu_argmax,
	.pack_bits = cpu_pack_bits,
	.pack_pages = cpu_pack_pages,
	.bits_scores = cpu_bits_scores,
	.page_scores = cpu_page_scores,
	.key_scores = cpu_key_scores,
	.group_reduce = cpu_group_reduce,
	.topk = cpu_topk,
	.scores_by_label = cpu_scores_by_label,
	.attend_chosen = cpu_attend_chosen,
	.gather = cpu_gather,
	.rebuild = cpu_rebuild,
};
