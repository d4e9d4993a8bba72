/* methods.h - scorers, budgets, selection: which rows of a cache stay
 *
 * A method ranks, the driver decides: a scorer fills one f32 for each row of a layer (greater is
 * kept first, +inf always); budgets, always-kept rows, top-k and ties (the lower position wins)
 * are in one place, so that all methods are compared under the same rules. Pure C on host arrays;
 * no model, no device. Attention is computed by the caller and passed as `window_mass` and `mass`.
 *
 * Letters as in ops/ops.h: H query heads, G KV heads, R = H/G, E head width, S[g] rows, W
 * observation window. Arrays over the rows of a layer are packed: KV head 0's S[0] entries,
 * then KV head 1's, ... */
#ifndef KVPIPE_METHODS_H
#define KVPIPE_METHODS_H

#include "libkvfile/codec.h"
#include "methods/reduce.h"

/* What a scorer needs besides the rows. */
enum {
	NEED_KEYS = 1,          /* in.keys */
	NEED_WINDOW = 2,        /* in.window_mass, from observation queries */
	NEED_MASS = 4,          /* in.mass, from kv-prefill --mass */
	NEED_LAYER = 8,         /* all KV heads at once: a row's score depends on other heads */
	NEED_PROBE_MASS = 16,         /* in.probe_mass, from kv-observe */
	/* every token of the text has run in every layer, at its position: next_position - p
	 * queries could see the row at position p */
	NEED_EVERY_QUERY = 32,
	/* some observation queries are of tokens that are not stored: learned tokens, a draft */
	NEED_UNSTORED = 64,
	NEED_VALUES = 128,      /* in.values */
	NEED_FILTER = 256,      /* in.filter */
	NEED_QUERY_STATS = 512, /* in.query_stats, of at least one query */
	NEED_ROPE = 1024,       /* in.freq, in.rope_dims, in.rope_factor */
	NEED_GATE = 2048,       /* in.gate, from kv-prefill --gate, by a gate of this method */
	NEED_QUERY_MODULI = 4096,       /* in.query_stats with its moduli */
	/* in.queries in place of in.window_mass; with NEED_WINDOW */
	NEED_QUERIES = 8192,
	NEED_NONCAUSAL = 16384, /* in.noncausal, from kv-prefill --noncausal */
	/* in.window_mass of each query by itself, and in.spread; with NEED_WINDOW, not with
	 * NEED_LAYER */
	NEED_EACH_QUERY = 32768
};

#define RECENT_BY_LENGTH UINT32_MAX     /* fastkvzip: a share of the text */

/* By what the attention of an observation query is multiplied, before it is added to window_mass:
 * nothing; the number of rows before the query that it sees */
enum query_weight { WEIGHT_NONE, WEIGHT_VISIBLE };

/* How cur makes one number of the norms of key and value */
enum norms { NORMS_PRODUCT, NORMS_MEAN, NORMS_KEYS, NORMS_VALUES };

/* A real option, and its text for labels */
struct score_real {
	double value;
	char text[16];
};

struct score_options {
	uint32_t kernel;        /* pooling width, odd; 1 = none */
	enum pool pool;
	enum reduce reduce;
	enum order order;
	enum over_queries over_queries; /* how window_mass is reduced over the queries */
	enum query_weight weight;       /* of each query in window_mass */
	/* recent, lagkv, cur, expected, capkv, compactor, fastkvzip: positions below it come
	 * first */
	uint32_t sink;
	uint64_t seed;          /* random, leverage, compactor */
	/* number of observation queries to use, the last ones; 0 = all */
	uint32_t window;
	int keep_last;          /* tova: always keep the token of the query */
	uint32_t lag;           /* lagkv: rows of a partition, at least 1 */
	int cross;              /* lagkv: rows of all partitions compete, without ranks */
	uint32_t local;         /* cur: rows of a window, 0 = all */
	/* leverage, compactor: width to which keys are projected, 0 = not at all */
	uint32_t sketch;
	enum norms norms;       /* cur */
	char filters[17];       /* qfilter: names the filters, 16 hexadecimal digits */
	uint32_t future;        /* expected, capkv: later positions, at least 1 */
	struct score_real epsilon;      /* expected: is added to the attention */
	int covariance, value_norm;     /* expected: 0 = leave it out */
	/* simlayer: rows before the window; compactor, fastkvzip: last positions, or
	 * RECENT_BY_LENGTH */
	uint32_t recent;
	struct score_real lambda;       /* rkv: weight of importance, from 0 to 1 */
	struct score_real blend;        /* compactor: weight of leverage, 0 or more */
	int z_score;            /* triattention: query heads are standardised */
	struct score_real gamma;        /* cake: weight of the variance, 0 or more */
	struct score_real lazy; /* simlayer: share of the attention */
	/* expected, capkv, triattention: names the query statistics of a file, as filters; "" = the
	 * text's */
	char query_stats[17];
};

/* How evenly the attention of the observation queries is spread over the rows in front of them, and
 * how much it differs from query to query; sums over query heads (cake.c) */
struct attention_spread { double entropy, variance; };

struct score_input {
	uint32_t layer, layers;                 /* l of L */
	/* KV head of the layer that rows' first one is: 0, unless method_score() calls a method
	 * one head at a time */
	uint32_t head;
	uint32_t query_heads;                   /* H; of the KV heads in rows */
	uint32_t width;                         /* E */
	/* with latent attention: values are keys, and so many of their first channels count; 0:
	 * all E */
	uint32_t value_width;
	const struct kv_rows *rows;             /* G = rows->heads */
	/* [sum S] rows of key_type, and of value_type, or NULL */
	const void *keys, *values;
	/* [G] first row of each KV head in keys and in values; NULL: packed. Always NULL for a
	 * method that is called one head at a time */
	const uint64_t *first_row;
	enum kv_row_type key_type, value_type;  /* never 0; rowtype.h */
	/* [H][stride] attention mass from the window to the S[h/R] rows of each query head, the
	 * sum over the queries or the maximum, of the attention times its weight; or NULL */
	const float *window_mass;
	size_t stride;
	/* with NEED_EACH_QUERY: window_mass is [W][H][stride], the attention of each query, and so
	 * many numbers lie between two queries */
	size_t of_query;
	struct attention_spread *spread;        /* [G] with NEED_EACH_QUERY: the method sets it */
	/* attention mass of the rows from all queries of the text so far, from the snapshot: KV
	 * head 0's R lists of S[0], then KV head 1's, ...; or NULL */
	const float *mass;
	/* attention mass from probe tokens, which are not stored, in the same order; or NULL */
	const float *probe_mass;
	const float *gate;                      /* [sum S] scores of a gate, or NULL */
	/* [sum S] what the rows of its chunk pay a row without a causal mask, the mean over the
	 * query heads of the KV head; or NULL */
	const float *noncausal;
	const float *filter;                    /* [G][E] qfilter: a direction of each KV head */
	/* of the layer's queries: all its query heads, also for a method that is called one KV
	 * head at a time; those of KV head `head` are head * R .. */
	const struct kv_query_stats *query_stats;
	/* rotary embedding of the layer: [rope_dims / 2] frequencies, and the factor of cosine
	 * and sine */
	const double *freq;
	uint32_t rope_dims;
	uint32_t rope_first;            /* the first channel that is rotated */
	double rope_factor;
	/* [W][queries_heads][E] the observation queries of the layer, after rotary embedding and
	 * not scaled: of all its query heads, also for a method that is called one KV head at a
	 * time; or NULL */
	const float *queries;
	uint32_t queries_heads;
	float softcap;                          /* of the logits of attention; 0: none */
	uint32_t window;                        /* W, 0 without observation */
	/* [W] positions of the observation queries, ascending; at next_position or above: of
	 * tokens that are not stored */
	const uint32_t *window_pos;
	uint32_t next_position;
	/* positions that a query of this layer sees; 0: all */
	uint32_t sees;
};

struct method {
	const char *name;
	unsigned needs;
	/* score[sum S] <- importance. Returns 0, or -1 when out of memory. method_score() calls it
	 * for one KV head at a time, or, with NEED_LAYER, for all. */
	int (*score)(const struct score_input *in, const struct score_options *opt, float *score);
	/* For a device that has the lists behind the score (window_mass, mass): *rule <- how to
	 * make scores from them, for the first scored[G] rows of each KV head; the other rows
	 * have +inf. Returns 0 if the rows need more than a rule. NULL: the method always does */
	int (*lists)(const struct score_input *in, const struct score_options *opt,
	    struct list_rule *rule, uint32_t *scored);
	/* other names of exactly this method, in papers and programs, space-separated */
	const char *aliases;
	const char *about;                      /* one line for kv-score --list */
	struct score_options defaults;          /* the paper's */
	/* names of the options it reads, space-separated: "kernel pool reduce order" */
	const char *uses;
};

extern const struct method methods[];           /* ends with a NULL name; made from list.h */
/* Returns the method with this name or alias, in upper or lower case, or NULL. */
const struct method *method_named(const char *name);

/* Returns whether a list such as struct method.uses has the word, in upper or lower case. */
int names_word(const char *words, const char *word);

/* ---- options by name (label.c) ---- */

/* The names of the values of enum pool and so on, in their order; ends with NULL. */
extern const char *const pool_names[], *const reduce_names[], *const over_names[],
    *const order_names[], *const weight_names[], *const norms_names[];

/* Returns the value of the option with this name: a text, or NULL and *number. queries: number
 * of observation queries, for "window". */
const char *score_option(const struct score_options *opt, const char *name, uint32_t queries,
    uint64_t *number);

/* label[size] <- the method and each option it uses, as in an sCOR section (kv-snapshot(5),
 * 4.6). since: rows at lower positions were not scored; left out if 0. */
void score_label(char *label, size_t size, const struct method *method,
    const struct score_options *opt, uint32_t since, uint32_t queries);
/* Adds the spread of a layer's attention to its label: " entropy=E variance=V". */
void label_add_spread(char *label, size_t size, const struct attention_spread *);
/* Returns whether a label has both, finite and not negative; *spread <- they. */
int label_spread(const char *label, struct attention_spread *spread);

/* ---- scoring ---- */

/* score[sum S] <- the method's scores of a layer, computed by up to `threads` threads (at least
 * 1), each for some KV heads. The scores do not depend on their number. Returns 0, or -1 when
 * out of memory. */
int method_score(const struct method *method, const struct score_input *in,
    const struct score_options *opt, unsigned threads, float *score);

/* ---- budgets ---- */

/* Returns floor(rows * rate + 1e-9): the one rounding rule (methods.md 0). */
uint64_t budget_of_rate(uint64_t rows, double rate);

struct evict_options;
struct layer_share;
struct ranked;

/* The competitors for one budget of all layers: none, since there is no such budget; the rows of
 * all KV heads; or in each layer means over its KV heads of their best rows, their second best, ...
 * (composite.c); or the layers as a whole, by the spread of their attention (shares.c) */
enum competitors { COMPETE_NOT, COMPETE_ROWS, COMPETE_RANKS, COMPETE_LAYERS };

/* How layers and KV heads share the budget. */
struct policy {
	const char *name;
	/* how the budgets of layers differ; how the KV heads of a layer share theirs: budgets.h */
	uint32_t (*layers)(const struct layer_share *);
	int (*heads)(uint32_t *count, const struct ranked *, const struct evict_options *,
	    char *why, size_t size);
	enum competitors global;        /* not 0: global_counts() */
	/* options of kv-evict that it reads, "alpha normalize": as struct method.uses */
	const char *uses;
	const char *aliases, *about;    /* as in struct method */
};

extern const struct policy policies[];          /* ends with a NULL name; made from policies.h */
const struct policy *policy_named(const char *name);    /* as method_named() */
/* Returns whether the KV heads of a layer may keep different numbers of rows. */
int policy_shares(const struct policy *policy);

struct evict_options {
	uint32_t budget;        /* rows to keep in each KV head of each layer; 0: use rate */
	double rate;            /* share of the rows to keep, 0 < rate <= 1 */
	/* 1: in place of a budget the rows with a score of at least this stay, however many */
	int by_threshold;
	double threshold;
	uint32_t sink;          /* first rows (positions < sink) always kept */
	uint32_t recent;        /* last positions (>= next_position - recent) always kept */
	uint32_t since;         /* rows at lower positions stay and count nowhere */
	const struct policy *policy;    /* NULL: uniform */
	double alpha;           /* ada*: guaranteed share of a KV head's even budget */
	int normalize;          /* ada: weigh heads by how concentrated their scores are */
	int same_rows;          /* all KV heads keep the same rows, by their mean score */
	/* not 0: chunks of so many rows, the last one shorter, stay or go as a whole, by the mean
	 * score of their rows; with same_rows */
	uint32_t chunk;
	/* CriticalKV: this share of a KV head's rows is chosen by score, the others by (score +
	 * epsilon) times evict_input.norms; 0: all by score. Not with same_rows, by_threshold */
	double first_stage, epsilon;
	/* not 0: of chunks that are important for a few rows only so many rows stay, and the budget
	 * is counted in rows (spiky.c); with chunk, not with by_threshold */
	uint32_t spiky;
	uint32_t stream_sink, stream_recent;    /* what streaming heads keep */
	double tau1, tau2;      /* cake: temperatures of entropy and variance, above 0 */
	/* EVICT_EBUDGET for a budget smaller than the always-kept rows; 0: they are kept */
	int refuse_small;
};

/* EVICT_EBUDGET: a budget is too small (refuse_small). EVICT_EINPUT: the options do not apply
 * to these rows or scores. */
enum { EVICT_OK = 0, EVICT_ENOMEM = -1, EVICT_EBUDGET = -2, EVICT_EINPUT = -3 };

/* The budget of a KV head: rate of its rows, or, if that is below 0, a number of rows */
struct head_budget {
	double rate;
	uint32_t rows;
};

struct evict_input {
	uint32_t layer, layers;                 /* l of L */
	/* layers that keep all rows whatever the budget: before this one, in all */
	uint32_t skipped_before, skipped;
	const struct kv_rows *rows;
	/* [sum S]; NULL: only sink and recent count, then the latest rows */
	const float *score;
	/* [sum S] for first_stage: how long what the value of the row adds to the residual stream
	 * is, the mean over the query heads; NULL where only the numbers of rows are asked for */
	const float *norms;
	/* with COMPETE_LAYERS: that of the layer */
	int spread_known;
	struct attention_spread spread;
	uint32_t next_position;
	/* base of rate; 0 = the rows of the KV head, from opt.since on */
	uint32_t tokens;
	/* [G] 1 = a streaming head: keeps opt.stream_sink and opt.stream_recent positions and
	 * nothing else, whatever the budget and opt.since; NULL = none. Not with policies that
	 * share budgets or rows */
	const uint8_t *streaming;
	/* [G] in place of opt.budget and opt.rate; NULL = by these. Not with policies that share
	 * budgets, nor with same_rows */
	const struct head_budget *head_budget;
	/* [G] rows for each KV head, from opt.since on, from global_counts(); NULL = by opt */
	const uint32_t *count;
};

/* The kept rows of one layer: for each KV head g the ascending row numbers keep[g][0 ..
 * count[g]-1]. */
struct kept {
	uint32_t heads;
	uint32_t *count;        /* [G] */
	uint32_t **keep;        /* [G] -> [count[g]] */
	/* greatest excess of always-kept rows over a KV head's smaller budget */
	uint32_t beyond;
	/* over the KV heads with more rows than the budget: sum of the rows that the policy
	 * gives them before sharing; sum of their budgets; their number */
	uint64_t given;
	double budget;
	uint32_t budgets;
};

/* Chooses the rows that stay. A head with no more rows than its budget keeps them all. A budget
 * smaller than the always-kept rows (sinks, recent, scores of +inf) keeps just these; a budget
 * of zero, which a rate of few rows rounds down to, keeps one row if the head would have none.
 * With opt.refuse_small both are EVICT_EBUDGET. Returns EVICT_EINPUT if rows or scores do not
 * fit the options; why (size bytes) says so with the numbers. out must be freed by kept_free(). */
int evict_choose(const struct evict_input *in, const struct evict_options *opt, struct kept *out,
    char *why, size_t size);
void kept_free(struct kept *kept);
/* mean[sum S] <- for evict_input.norms, the mean of the R lists of each KV head, in the order of
 * vNRM. */
void mean_norms(float *mean, const float *lists, const struct kv_rows *rows, uint32_t R);

/* The result of evict_plan(): how many rows of each KV head stay, and which of them whatever
 * their scores. */
struct evict_plan {
	struct kept kept;       /* keep is NULL */
	uint32_t *first, *last; /* [G] rows before first[g] and from last[g] on always stay */
};

/* Returns whether each KV head chooses by its own scores alone, so that evict_plan() applies:
 * not if KV heads share a budget or rows, nor with opt.since. */
int evict_plans(const struct evict_input *in, const struct evict_options *opt);
/* As evict_choose(), but without the scores, for a device that has them and chooses. scored[G]:
 * number of rows, the first ones, with a score below +inf; the others have +inf. out must be
 * freed by evict_plan_free(). */
int evict_plan(const struct evict_input *in, const struct evict_options *opt,
    const uint32_t *scored, struct evict_plan *out, char *why, size_t size);
void evict_plan_free(struct evict_plan *);

/* One budget for all layers together, by the greatest scores of the whole cache (global.c). Needs
 * all scores before the first choice; stores only scores. */
struct global;
struct global *global_new(enum competitors);    /* NULL = out of memory */
/* Adds the scores of the next layer, in order. Errors as evict_choose(). */
int global_add(struct global *all, const struct evict_input *in, const struct evict_options *opt,
    char *why, size_t size);
/* Call after the last layer: *count <- [L][G] rows for each KV head, for evict_input.count,
 * owned by `all`. Their total is that of the uniform budgets, or floor(all rows * rate + 1e-9);
 * where ranks compete, the same of the rows of one KV head of each layer, times the KV heads.
 * *beyond <- the excess of always-kept rows over it, as kept.beyond. Errors as evict_choose(). */
int global_counts(struct global *all, const struct evict_options *opt, const uint32_t **count,
    uint64_t *beyond, char *why, size_t size);
void global_free(struct global *all);           /* NULL is allowed */

/* ---- head masks ---- */

/* The importance of each KV head for DuoAttention or PruLong: text with a line for each layer
 * and a number for each KV head. */
struct head_mask {
	uint32_t layers, heads;
	double *full;           /* [layers][heads] clipped to 0 .. 1 */
};

/* Codes of what parses a table with a line for each layer, of masks and of budgets */
enum { TABLE_OK = 0, TABLE_ENOMEM = -1, TABLE_ETEXT = -2 };

/* Parses numbers separated by blanks, tabs or commas, equally many in each line; # begins a
 * comment, empty lines are ignored. text[len] must be zero. For TABLE_ETEXT why is "line 3
 * column 2: ...". out must be freed by head_mask_free(). */
int head_mask_parse(struct head_mask *out, const char *text, size_t len, char *why, size_t size);
void head_mask_free(struct head_mask *mask);

/* streaming[layers][heads] <- 1 for the round(n * sparsity) (halves to even) of all n heads
 * with the smallest numbers; of equal ones the lower layer, then the lower head. A negative
 * sparsity cuts those below 0.5. Returns 0, or -1 when out of memory. */
int head_mask_cut(const struct head_mask *mask, double sparsity, uint8_t *streaming);

/* ---- budgets of KV heads ---- */

struct head_budgets {
	uint32_t layers, heads;
	struct head_budget *budget;     /* [layers][heads] */
};

/* Parses a table as head_mask_parse() does, with numbers of rows, "120", or shares, "0.25" or
 * "25%". Returns a TABLE_* code. out must be freed by head_budgets_free(). */
int head_budgets_parse(struct head_budgets *out, const char *text, size_t len, char *why,
    size_t size);
void head_budgets_free(struct head_budgets *budgets);

/* ---- lists of rows ---- */

/* The rows of each KV head that stay, chosen by another program (row_list.c describes the
 * text). */
struct row_list_line;
struct row_list {
	struct row_list_line *line;     /* [lines] by layer and KV head; NULL = no list */
	size_t lines;
	uint32_t *pos;                  /* [positions] of all lines */
	size_t positions;
};

/* Parses a list. For EVICT_EINPUT why is "line 3: ...". out must be freed by row_list_free(). */
int row_list_parse(struct row_list *out, const char *text, size_t len, char *why, size_t size);
void row_list_free(struct row_list *list);
/* As evict_choose(), but keeps the rows of in's layer that the list has. Reads in's layer,
 * layers and rows. Returns EVICT_EINPUT if the list has no line for a KV head, a row that does
 * not exist, or lines for layers or KV heads that do not exist. */
int row_list_choose(const struct row_list *list, const struct evict_input *in, struct kept *out,
    char *why, size_t size);

/* ---- the greatest scores ---- */

/* keep[k] <- the row numbers, ascending, of the k greatest of score[n]; equal scores: the lower
 * row wins. Linear in n. scratch: 2048 * 8 bytes on the stack. k <= n; no NaN. */
void select_top(const float *score, uint32_t n, uint32_t k, uint32_t *keep);

/* count[parts] <- how many of the k greatest of all scores are in each part. The n[p] scores of
 * the parts are concatenated; of equal scores the first ones win. k <= their number. */
void select_counts(const float *score, const uint32_t *n, size_t parts, size_t k, uint32_t *count);

/* ---- parts that scorers share ---- */

/* y[n] <- x[n] pooled with stride 1 and zero (avg) or -inf (max) padding, divided by kernel at
 * the edges too (torch's count_include_pad). kernel odd. y is not x. */
void pool_rows(float *y, const float *x, uint32_t n, uint32_t kernel, enum pool pool);

/* y[n] <- reduction of R lists x[r*stride + i]. y may be x. */
void reduce_group(float *y, const float *x, size_t stride, uint32_t R, uint32_t n, enum reduce how);

/* score[sum S] <- mass reduced over the query heads of each KV head. mass: R lists of S[0]
 * numbers for KV head 0, then those of KV head 1, ... */
void reduce_mass(float *score, const float *mass, const struct score_input *in, enum reduce how);

/* score[n] <- the R lists mass[r*stride ...] pooled along the rows and reduced to one, in the
 * order of opt->order. scratch[R*n]. */
void pool_and_reduce(float *score, const float *mass, size_t stride, uint32_t R, uint32_t n,
    const struct score_options *opt, float *scratch);

/* ---- positions ---- */

/* Rotates the keys [n][E] of one KV head in place from positions from[n] to to[n], by (to -
 * from) * freq[i] for the pair (first + i, first + i + dims/2), freq[dims/2] as
 * model_rope_frequencies() gives it; other channels stay. In double precision, rounded, or
 * quantised, to the type at the end; a row whose position stays is not touched. Returns 0, or
 * ROTATE_E*. ROTATE_ERANGE: the type cannot store a rotated key. */
enum { ROTATE_ENOMEM = -1, ROTATE_ERANGE = -2 };
int rotate_keys(void *keys, const uint32_t *from, const uint32_t *to, const double *freq,
    uint32_t first, uint32_t dims, uint32_t n, uint32_t E, enum kv_row_type type);

#endif
