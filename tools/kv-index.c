/* kv-index - build retrieval indexes: page bounds, key clusters or low-rank keys */
#include <stdlib.h>
#include <string.h>

#include "cli/device.h"
#include "cli/progress.h"
#include "cli/snapshot_io.h"
#include "cli/tool.h"
#include "engine/build_index.h"
#include "engine/retrieval_check.h"

#define NO_SEED UINT64_MAX
#define PAGE_MOST 65536         /* rows of a page or chunk; kv-snapshot(5), 4.16, 4.18 */

static int pages, clusters, low_rank;
static uint32_t page = NOT_GIVEN, count = NOT_GIVEN, sink = NOT_GIVEN, iterations = NOT_GIVEN;
static uint32_t rank = NOT_GIVEN, chunk = NOT_GIVEN, outliers = NOT_GIVEN, local = NOT_GIVEN;
static uint64_t seed = NO_SEED;

static const struct opt opts[] = {
	{ 0, "pages", OPT_FLAG, &pages, 1, NULL, "build page bounds: Quest", OPT_HOW },
	{ 0, "page", OPT_COUNT, &page, 0, "N", "rows of a page (16)", OPT_HOW },
	{ 0, "clusters", OPT_FLAG, &clusters, 1, NULL, "build key clusters: ClusterKV", OPT_HOW },
	{ 0, "cluster-count", OPT_COUNT, &count, 0, "N",
	    "clusters of each KV head (0: one per 80 rows)", OPT_HOW },
	{ 0, "sink-rows", OPT_COUNT, &sink, 0, "N",
	    "leave the first N rows out of clusters (16)", OPT_HOW },
	{ 0, "iterations", OPT_COUNT, &iterations, 0, "N",
	    "most rounds of k-means (20)", OPT_HOW },
	{ 's', "seed", OPT_SEED, &seed, 0, "N", "random seed (0)", OPT_HOW },
	{ 0, "low-rank", OPT_FLAG, &low_rank, 1, NULL,
	    "build low-rank keys and landmarks: ShadowKV", OPT_HOW },
	{ 0, "rank", OPT_COUNT, &rank, 0, "N", "most columns of the factors (160)", OPT_HOW },
	{ 0, "chunk-rows", OPT_COUNT, &chunk, 0, "N", "rows of a chunk (8)", OPT_HOW },
	{ 0, "outliers", OPT_COUNT, &outliers, 0, "N",
	    "chunks of each KV head with exact keys (48)", OPT_HOW },
	{ 0, "local", OPT_COUNT, &local, 0, "N",
	    "leave out the last N chunks, and rows after them (4)", OPT_HOW },
	{ .name = NULL }
};

static const struct tool tool = {
	.name = "kv-index",
	.synopsis = "--pages | --clusters | --low-rank [-qvz] [-j N] [-o FILE] [-s N]\n"
	    "[--chunk-rows N] [--cluster-count N] [--device DEVICE] [--iterations N]\n"
	    "[--local N] [--outliers N] [--page N] [--progress WHEN] [--rank N] [--report FILE]\n"
	    "[--sink-rows N] [snapshot]",
	.example = "kv-index --pages -o indexed.kv full.kv",
	.opts = opts,
	.takes = TAKES_OUTPUT | TAKES_THREADS | TAKES_PROGRESS,
	.max_operands = 1
};

/* ---- options ---- */

/* *value <- `otherwise` if the option was not given; an option without effect is refused. */
static void
settle(uint32_t *value, uint32_t otherwise, const char *option, int wanted, const char *index)
{
	if (*value == NOT_GIVEN)
		*value = otherwise;
	else if (!wanted)
		die(EXIT_USAGE, "--%s is for %s", option, index);
}

static void
at_least(const char *option, uint32_t value, uint32_t least, uint32_t most)
{
	if (value < least || value > most)
		die(EXIT_USAGE, "--%s: %u is not %u to %u", option, value, least, most);
}

static void
check_options(void)
{
	if (!pages && !clusters && !low_rank)
		die(EXIT_USAGE, "--pages, --clusters or --low-rank is needed");
	settle(&page, 16, "page", pages, "--pages");
	settle(&count, 0, "cluster-count", clusters, "--clusters");
	settle(&sink, 16, "sink-rows", clusters, "--clusters");
	settle(&iterations, 20, "iterations", clusters, "--clusters");
	if (seed == NO_SEED)
		seed = 0;
	else if (!clusters)
		die(EXIT_USAGE, "--seed is for --clusters");
	settle(&rank, 160, "rank", low_rank, "--low-rank");
	settle(&chunk, 8, "chunk-rows", low_rank, "--low-rank");
	settle(&outliers, 48, "outliers", low_rank, "--low-rank");
	settle(&local, 4, "local", low_rank, "--low-rank");
	at_least("page", page, 2, PAGE_MOST);
	at_least("chunk-rows", chunk, 1, PAGE_MOST);
	at_least("rank", rank, 1, NOT_GIVEN);
}

static void
sign(void)
{
	if (pages)
		sign_count("page", page);
	if (clusters) {
		sign_count("cluster-count", count);
		sign_count("sink-rows", sink);
		sign_count("iterations", iterations);
		sign_count("seed", seed);
	}
	if (low_rank) {
		sign_count("rank", rank);
		sign_count("chunk-rows", chunk);
		sign_count("outliers", outliers);
		sign_count("local", local);
	}
}

/* ---- the indexes of a layer ---- */

/* The indexes of the current layer that are built and not written yet, by enum kv_kind. */
static struct built_index made[KV_KIND_END];
static unsigned wanted;                         /* 1 << enum kv_kind for each index to build */

static struct cluster_builder builder;
static struct device *cluster_devices;          /* [builder.n] */

/* KV heads are built in parallel, sharing the threads. */
static void
open_builder(const struct kv_head *head)
{
	const uint32_t threads = processors(), n = cluster_workers(head, threads);
	struct engine_error e;
	uint32_t i;

	cluster_devices = must_alloc(n, sizeof *cluster_devices);
	for (i = 0; i < n; i++)
		cluster_devices[i] = device_another(threads / n + (i < threads % n));
	must(cluster_builder_init(&builder, cluster_devices, n, head, &e), &e);
}

static void
close_builder(void)
{
	uint32_t i, n = builder.n;

	cluster_builder_free(&builder);
	for (i = 0; i < n; i++)
		device_close(&cluster_devices[i]);
	free(cluster_devices);
}

/* At KEYS: builds all wanted indexes while the keys are in memory. */
static void
make(const struct device *d, struct kv_reader *r, uint32_t layer)
{
	const struct index_source l = { .file = kv_reader_name(r), .layer = layer,
	    .head = kv_reader_head(r), .rows = kv_current_rows(r), .keys = input_load(r) };
	const struct cluster_options k_means = { sink, count, iterations, seed };
	const struct low_rank_options factors = { rank, chunk, outliers, local };
	struct engine_error e;

	if (pages)
		must(build_pages(&made[KV_PAGE], d, &l, page, &e), &e);
	if (clusters)
		must(build_clusters(&made[KV_CLUS], &builder, &l, &k_means, &e), &e);
	if (low_rank)
		must(build_low_rank(&made[KV_LOWR], d, &l, &factors, &e), &e);
}

/* Writes the built indexes that precede a section of this kind. */
static void
write_made(struct kv_writer *w, uint32_t layer, enum kv_kind before)
{
	enum kv_kind k;

	for (k = KV_UNKNOWN + 1; k < KV_KIND_END; k++) {
		if ((wanted >> k & 1) == 0 || made[k].index.kind != k ||
		    kv_kind_place(k) >= kv_kind_place(before))
			continue;
		output_check(w, kv_write_index(w, layer, &made[k].index));
		built_index_free(&made[k]);
	}
}

static void
index_snapshot(const struct device *d, struct kv_reader *r, struct kv_writer *w)
{
	const struct kv_model *m = &kv_reader_head(r)->model;
	struct kv_section sec;
	struct engine_error e;

	must(retrieval_fit(m, kv_reader_name(r), 0, &e), &e);
	progress_start("index", m->layers, "layers");
	while (input_next(r, &sec)) {
		if ((wanted >> sec.kind & 1) != 0 || sec.kind == KV_PROV)
			continue;               /* made anew; inherited */
		if (kv_kind_is(sec.kind, KV_INDEX) || sec.kind == KV_VALS)
			write_made(w, sec.layer, sec.kind);
		if (sec.kind == KV_KEYS && kv_layer_window(m, sec.layer) == 0)
			make(d, r, sec.layer);
		output_copy(r, w);              /* unknown sections too: the rows stay */
		if (sec.kind == KV_VALS)
			progress(sec.layer + 1);
	}
	progress_end();
}

int
main(int argc, char **argv)
{
	int first = tool_start(&tool, argc, argv);
	struct device device;
	struct kv_reader *r;
	struct kv_writer *w;

	check_options();
	wanted = (pages ? 1u << KV_PAGE : 0) | (clusters ? 1u << KV_CLUS : 0) |
	    (low_rank ? 1u << KV_LOWR : 0);
	output_refuse_terminal();
	r = input_open(operand(argc, argv, first));
	input_refuse_residual(r, "no index finds single rows: retrieve from q4_0, q5_0 or q8_0 "
	    "rows without residual");
	device = device_open();
	if (clusters)
		open_builder(kv_reader_head(r));
	w = output_create(kv_reader_head(r));
	index_snapshot(&device, r, w);
	sign();
	output_commit(w, r);
	kv_close(r);
	close_builder();
	device_close(&device);
	return finish();
}
