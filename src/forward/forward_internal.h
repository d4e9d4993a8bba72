/* forward_internal.h - workspace and functions that the files of forward/ share */
#ifndef KVPIPE_FORWARD_INTERNAL_H
#define KVPIPE_FORWARD_INTERNAL_H

#include "forward/forward.h"
#include "model/adapter.h"

struct workspace {
	uint32_t rows;                 /* N at most */
	float *x, *xn;                 /* device [N][D] residual stream, normalised */
	float *own_x;                  /* device [N][D] x, unless workspace_use() has set another */
	float *q, *o;                  /* device [N][H][E] */
	float *k, *v;                  /* device [N][G][E] */
	/* device [N][G / kv_copies][E] as the weights make them; NULL with one copy */
	float *weight_k, *weight_v;
	float *together;               /* device [N][wqkv.out]; NULL: there is no such matrix */
	/* device, of latent attention (latent.c): [N][H] queries or values as the weights have
	 * them, the two parts of keys, narrow queries */
	float *heads, *parts, *narrow;
	float *gate, *up;              /* device [N][F] */
	/* device, of a mixture of experts; NULL: the model has none. [N][D], [N], and
	 * expert_rows_at()'s */
	float *mixed, *shared_score;
	void *expert_rows;
	float *lse;                    /* device [N][H] log-sum-exps of attention */
	float *logits;                 /* device [V] */
	uint32_t *pos;                 /* device [N] */
	uint32_t *tok;                 /* device [1] the token that was chosen last (generate.c) */
	uint32_t *host_pos;            /* host [N] */
	float *host_x;                 /* host [D] a row of x, to be checked */
	uint32_t ran;                  /* rows of x that run_chunks() ran last */
	float *gate_scores;            /* host [N][G] of the layer that runs */
	struct attention *each;        /* host, one for each part of a call */
	struct layer_rows **own_rows;  /* host, one for each part of a call */
	struct attention one;          /* each, for a call with one part */
	struct layer_rows *one_rows;   /* own_rows, for a call with one part */
	const struct adapter *adapter; /* its LoRA is applied to all rows; NULL: none */
};

/* Rows at .. at+N-1 of a call, all of one sequence */
struct part {
	struct sequence *s;
	const struct observation *obs; /* gets their queries; NULL: none */
	const uint32_t *pos;           /* host [N] */
	uint32_t at, N;
	int apart;                     /* 1: each row attends as alone, attend_apart() */
	struct rewrite_rows *rewrite;  /* replaces the rows at these positions; NULL: appends */
};

/* As forward(), for rows of several sequences, one after the other in the workspace, with the
 * positions in ws->pos already: each row attends to its own cache, and weights are read once for
 * all. With at most 64 rows on the CPU, each part gets the bytes that it gets alone. */
void forward_parts(const struct model *m, struct workspace *ws, const struct part *, uint32_t n,
    uint32_t l0, uint32_t l1);

/* Applies rotary embedding to queries and keys of N rows at positions pos[N] (host, and on the
 * device), and puts keys and values in place of the rows of layer l at these positions. */
void rewrite_rows_append(struct rewrite_rows *, uint32_t l, float *q, float *k, const float *v,
    const uint32_t *device_pos, const uint32_t *pos, uint32_t N);

/* As forward(), with the positions in ws->pos already; pos is for the observation. */
void forward_at_pos(const struct model *m, struct sequence *s, struct workspace *ws,
    const uint32_t *pos, uint32_t N, uint32_t l0, uint32_t l1, const struct observation *obs);

/* Input of a run: token ids, or rows in place of their embeddings */
struct run_input {
	const uint32_t *ids;           /* host [n]; NULL: x */
	const float *x;                /* host [n][D] */
};

/* Runs n rows in chunks at positions *position, *position + 1, ...; advances *position. The caller
 * has reserved the capacity. Returns as run_tokens(). */
int run_chunks(const struct model *m, struct sequence *s, struct workspace *ws,
    const struct run_input *in, size_t n, uint32_t *position, struct observation *obs,
    const struct step_hook *step, char *err, size_t errlen);

/* Fails unless there are positions for n more rows. Returns as run_tokens(). */
int check_positions(const struct cache *c, size_t n, char *err, size_t errlen);
/* Makes room for n more rows, if there are positions for them. Returns as run_tokens(). */
int reserve_positions(struct sequence *s, size_t n, char *err, size_t errlen);

/* Prepares a step: drops rows that the token cannot see, as run_tokens(), makes room for its row,
 * and appends id to the tokens seen. Returns as run_tokens(). */
int reserve_token(struct sequence *s, uint32_t id, char *err, size_t errlen);

/* Scales embeddings x[N][D] (device) as the first layer expects them. */
void scale_embeddings(const struct model *m, float *x, size_t N);

/* c->logits <- logits[V] (device). Returns 0, or MODEL_ENOMEM. */
int get_logits(struct cache *c, const float *logits);

#endif
