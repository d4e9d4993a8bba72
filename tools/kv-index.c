/* kv-index - make what retrieval needs to find rows: pages, clusters or low-rank keys */
#include <stdlib.h>
#include <string.h>

#include "libkvfile/bytes.h"
#include "engine/indexing.h"
#include "cli/tool.h"

#define NOT_GIVEN UINT32_MAX
#define NO_SEED UINT64_MAX
#define PAGE_MOST 65536         /* rows of a page or chunk; kv-snapshot(5), 4.16, 4.18 */

static int pages, clusters, low_rank;
static uint32_t page = NOT_GIVEN, count = NOT_GIVEN, sink = NOT_GIVEN, iterations = NOT_GIVEN;
static uint32_t rank = NOT_GIVEN, chunk = NOT_GIVEN, outliers = NOT_GIVEN, local = NOT_GIVEN;
static uint64_t seed = NO_SEED;

static const struct opt opts[] = {
	{ 0, "pages", OPT_FLAG, &pages, 1, NULL, "bounds of pages: Quest" },
	{ 0, "page", OPT_COUNT, &page, 0, "N", "rows of a page (16)" },
	{ 0, "clusters", OPT_FLAG, &clusters, 1, NULL, "clusters of keys: ClusterKV" },
	{ 0, "cluster-count", OPT_COUNT, &count, 0, "N",
	    "clusters of each KV head (0: one for 80 rows)" },
	{ 0, "sink", OPT_COUNT, &sink, 0, "N", "the first N rows are in no cluster (16)" },
	{ 0, "iterations", OPT_COUNT, &iterations, 0, "N", "rounds of k-means, at most (20)" },
	{ 's', "seed", OPT_SEED, &seed, 0, "N", "other clusters by chance (0)" },
	{ 0, "low-rank", OPT_FLAG, &low_rank, 1, NULL,
	    "keys of low rank, and landmarks: ShadowKV" },
	{ 0, "rank", OPT_COUNT, &rank, 0, "N", "columns of the factors, at most (160)" },
	{ 0, "chunk", OPT_COUNT, &chunk, 0, "N", "rows of a chunk (8)" },
	{ 0, "outliers", OPT_COUNT, &outliers, 0, "N",
	    "chunks of each KV head whose keys are kept (48)" },
	{ 0, "local", OPT_COUNT, &local, 0, "N",
	    "chunks at the end, with what is behind them, that are left out (4)" },
	{ .name = NULL }
};

static const struct tool tool = {
	.name = "kv-index",
	.about = "make what retrieval needs to find rows: pages, clusters or low-rank keys",
	.synopsis = "--pages | --clusters | --low-rank [-qvz] [-j N] [-o FILE] [-s N]\n"
	    "[--chunk N] [--cluster-count N] [--device DEVICE] [--iterations N]\n"
	    "[--local N] [--outliers N] [--page N] [--progress WHEN] [--rank N]\n"
	    "[--sink N] [snapshot]",
	.opts = opts,
	.takes = TAKES_OUTPUT | TAKES_THREADS | TAKES_PROGRESS,
	.max_operands = 1
};

/* ---- options ---- */

/* *value <- `otherwise` where none was given; one that would change nothing is a mistake. */
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
	settle(&sink, 16, "sink", clusters, "--clusters");
	settle(&iterations, 20, "iterations", clusters, "--clusters");
	if (seed == NO_SEED)
		seed = 0;
	else if (!clusters)
		die(EXIT_USAGE, "--seed is for --clusters");
	settle(&rank, 160, "rank", low_rank, "--low-rank");
	settle(&chunk, 8, "chunk", low_rank, "--low-rank");
	settle(&outliers, 48, "outliers", low_rank, "--low-rank");
	settle(&local, 4, "local", low_rank, "--low-rank");
	at_least("page", page, 2, PAGE_MOST);
	at_least("chunk", chunk, 1, PAGE_MOST);
	at_least("rank", rank, 1, NOT_GIVEN);
}

static void
sign(void)
{
	if (pages)
		sign_count("page", page);
	if (clusters) {
		sign_count("cluster-count", count);
		sign_count("sink", sink);
		sign_count("iterations", iterations);
		sign_count("seed", seed);
	}
	if (low_rank) {
		sign_count("rank", rank);
		sign_count("chunk", chunk);
		sign_count("outliers", outliers);
		sign_count("local", local);
	}
}

/* ---- the indexes of a layer ---- */

/* In the order in which a snapshot has them. */
enum { BITS, PAGE, CLUS, LOWR, VALS, KINDS };
static const char types[KINDS][5] = { "bITS", "pAGE", "cLUS", "lOWR", "VALS" };

/* What was made from the keys and is not written yet. */
static struct content made[KINDS];

/* Its place among what follows the keys, or -1. */
static int
kind_of(const char *type)
{
	int k;

	for (k = 0; k < KINDS; k++)
		if (strcmp(type, types[k]) == 0)
			return k;
	return -1;
}

/* Standing at KEYS: everything that is wanted is made while they are at hand. */
static void
make(const struct device *d, struct kv_reader *r, uint32_t layer)
{
	const struct indexing_layer l = { .file = kv_reader_name(r), .layer = layer,
	    .head = kv_reader_head(r), .rows = kv_current_rows(r), .keys = input_load(r) };
	const struct clustering_options k_means = { sink, count, iterations, seed };
	const struct factor_options factors = { rank, chunk, outliers, local };

	if (pages)
		made[PAGE] = pages_content(d, &l, page);
	if (clusters)
		made[CLUS] = clusters_content(&l, &k_means);
	if (low_rank)
		made[LOWR] = factors_content(d, &l, &factors);
}

/* Writes what stands before a section of this kind. */
static void
write_made(struct kv_writer *w, const struct kv_head *head, uint32_t layer, int before)
{
	struct kv_span span;
	int k;

	for (k = 0; k < before; k++) {
		if (made[k].data == NULL)
			continue;
		put64(made[k].data + 8, kv_writer_keys(w));
		span = (struct kv_span){ made[k].data, made[k].size };
		output_check(w, kv_write(w, types[k], layer,
		    (unsigned)kv_dtype_size(head->dtype), &span, 1));
		free(made[k].data);
		made[k] = (struct content){ 0 };
	}
}

/* Whether the section is an index that is being made anew. */
static int
replaced(int kind)
{
	return (kind == PAGE && pages) || (kind == CLUS && clusters) || (kind == LOWR && low_rank);
}

static void
index_snapshot(const struct device *d, struct kv_reader *r, struct kv_writer *w)
{
	const struct kv_head *head = kv_reader_head(r);
	struct kv_section sec;
	int kind;

	progress_start("index", head->model.layers, "layers");
	while (input_next(r, &sec)) {
		kind = kind_of(sec.type);
		if (replaced(kind) || strcmp(sec.type, "pROv") == 0)
			continue;               /* made anew; inherited */
		if (kind >= 0)
			write_made(w, head, sec.layer, kind);
		if (strcmp(sec.type, "KEYS") == 0)
			make(d, r, sec.layer);
		output_copy(r, w);              /* also what is not known: the rows stay */
		if (kind == VALS)
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
	output_refuse_terminal();
	r = input_open(operand(argc, argv, first));
	device = device_open();
	w = output_create(kv_reader_head(r));
	index_snapshot(&device, r, w);
	sign();
	output_commit(w, r);
	kv_close(r);
	clusters_end();
	device_close(&device);
	return finish();
}
