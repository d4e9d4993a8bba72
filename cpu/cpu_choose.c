/* cpu_choose.c - which entries of an index a step reads: group_reduce, topk, scores_by_label. The
 * loops over scores are in simd_choose.c */
#include "cpu/cpu_internal.h"

#define PART 4096                /* entries, or rows of scores_by_label(), of one item */

/* ---- group_reduce ---- */

struct reduce_call {
	const struct simd *simd;
	float *joint;
	const float *score;
	size_t stride;
	const uint32_t *n;
	size_t R, G;
	enum reduce how;
	const float *sinks;          /* [H]; NULL: none */
	float *lse;                  /* [H] */
};

static void
lse_item(void *arg, size_t h, int thread)
{
	const struct reduce_call *j = arg;
	float lse = j->simd->lse(j->score + h * j->stride, j->n[h / j->R]);

	(void)thread;
	if (j->sinks != NULL)
		cpu_add_lse(&lse, j->sinks + h, 1);
	j->lse[h] = lse;
}

/* PART entries of all KV heads, in their order: joint[g] may lie on scores of KV head g / R,
 * which is done by then. */
static void
reduce_item(void *arg, size_t item, int thread)
{
	const struct reduce_call *j = arg;
	const size_t i = item * PART;
	size_t g, n;

	(void)thread;
	for (g = 0; g < j->G; g++) {
		if (j->n[g] <= i)
			continue;
		n = j->n[g] - i < PART ? j->n[g] - i : PART;
		if (j->R > 1)
			j->simd->group_reduce(j->joint + g * j->stride + i,
			    j->score + g * j->R * j->stride + i, j->stride, j->lse + g * j->R, n,
			    j->R, j->how);
		else
			memcpy(j->joint + g * j->stride + i, j->score + g * j->stride + i,
			    n * sizeof *j->joint);
	}
}

static size_t
longest_list(const uint32_t *n, size_t G)
{
	size_t longest = 0, g;

	for (g = 0; g < G; g++)
		longest = n[g] > longest ? n[g] : longest;
	return longest;
}

void
cpu_group_reduce(struct dev *d, float *joint, const float *score, size_t stride, struct counts n,
    const float *sinks, uint32_t H, uint32_t G, enum reduce how)
{
	const size_t longest = longest_list(n.n, G);
	struct reduce_call j = { .simd = d->simd, .joint = joint, .score = score, .stride = stride,
	    .n = n.n, .G = G, .how = how, .sinks = sinks };

	if (d->error[0] != '\0')
		return;
	if (G == 0 || H % G != 0) {
		cpu_fail(d, "join: %u query heads over %u KV heads", H, G);
		return;
	}
	j.R = H / G;
	if (j.R == 1 && joint == score)
		return;
	if ((j.lse = cpu_scratch(d, H * sizeof *j.lse)) == NULL)
		return;
	if (j.R > 1)
		cpu_run(d, lse_item, &j, H, H * longest);
	cpu_run(d, reduce_item, &j, (longest + PART - 1) / PART, H * longest);
}

/* ---- topk ---- */

struct topk_call {
	const struct simd *simd;
	const struct chosen *to;
	const float *joint;
	size_t stride;
	const uint32_t *n;
	size_t words;                /* scratch of one thread */
	uint32_t *scratch;           /* [threads][words] */
};

static void
topk_item(void *arg, size_t g, int thread)
{
	const struct topk_call *t = arg;
	uint32_t *out = t->to->at + g * t->to->stride;
	const size_t k = t->to->n[g];
	size_t i;

	if (k == t->n[g])
		for (i = 0; i < k; i++)
			out[i] = (uint32_t)i;
	else if (k > 0)
		t->simd->topk(out, t->joint + g * t->stride, t->n[g], k,
		    t->scratch + (size_t)thread * t->words);
}

void
cpu_topk(struct dev *d, struct chosen *to, const float *joint, size_t stride, struct counts n,
    uint32_t G)
{
	struct topk_call t = { .simd = d->simd, .to = to, .joint = joint, .stride = stride,
	    .n = n.n };
	const size_t longest = longest_list(n.n, G);
	uint32_t g;

	for (g = 0; g < G; g++)
		if (to->n[g] > n.n[g] || to->n[g] > to->stride)
			cpu_fail(d, "top: %u of %u entries of KV head %u, room for %zu", to->n[g],
			    n.n[g], g, to->stride);
	if (d->error[0] != '\0')
		return;
	t.words = 3 * (longest + TOPK_SLACK);
	t.scratch = cpu_scratch(d, d->threads * t.words * sizeof *t.scratch);
	if (t.scratch != NULL)
		cpu_run(d, topk_item, &t, G, G * longest);
}

/* ---- scores_by_label ---- */

struct label_call {
	float *row;
	const float *joint;
	const uint32_t *label, *n;
	size_t stride, joint_stride, label_stride, parts;
};

static void
label_item(void *arg, size_t item, int thread)
{
	const struct label_call *p = arg;
	const size_t g = item / p->parts;
	const float *joint = p->joint + g * p->joint_stride;
	const uint32_t *label = p->label + g * p->label_stride;
	size_t s = item % p->parts * PART, end = s + PART < p->n[g] ? s + PART : p->n[g];

	(void)thread;
	for (; s < end; s++)
		p->row[g * p->stride + s] = joint[label[s]];
}

void
cpu_scores_by_label(struct dev *d, float *row, size_t stride, const float *joint,
    size_t joint_stride, const uint32_t *label, size_t label_stride, const uint32_t *n, uint32_t G)
{
	struct label_call p = { .row = row, .joint = joint, .label = label, .n = n,
	    .stride = stride, .joint_stride = joint_stride, .label_stride = label_stride };

	p.parts = (longest_list(n, G) + PART - 1) / PART;
	if (d->error[0] == '\0')
		cpu_run(d, label_item, &p, G * p.parts, G * p.parts * PART);
}
