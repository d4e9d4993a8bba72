/* merge_documents.h - makes one snapshot of documents that were prefilled apart
 *
 * The documents follow each other in the text. The rows of each move to their new positions:
 * keys are rotated by the distance, values stay, nothing is computed again. So a row has not seen
 * the documents before its own, as in Prompt Cache (Gim et al. 2024) and as what CacheBlend (Yao
 * et al. 2025) and EPIC (Hu et al. 2025) begin with; engine/recompute.h computes some of the rows
 * anew. */
#ifndef KVPIPE_MERGE_DOCUMENTS_H
#define KVPIPE_MERGE_DOCUMENTS_H

#include "engine/engine_error.h"
#include "forward/forward.h"
#include "libkvfile/kvfile.h"

struct merge_documents {
	/* the caller's */
	struct kv_reader *const *reader; /* [n] just opened; the caller closes them */
	uint32_t n;                     /* at least 1 */
	/* the first tokens of all documents, which are the same: taken once, from the first */
	uint32_t prefix;
	uint32_t drop_first;            /* drops the rows of so many tokens after the prefix */
	struct step_hook step;          /* is told how many layers are written; call NULL = none */

	/* results */
	uint64_t tokens, rows;
	unsigned left;                  /* kinds of the sections that were left out: 1 << kind */
	uint32_t same_first;            /* the first token of all documents; UINT32_MAX: none */

	/* the rest belongs to merge_documents.c */
	struct document *document;      /* [n] */
};

/* *head <- the head of the merged snapshot. ENGINE_EMODEL: the documents are of two models;
 * ENGINE_EOPTION: their rows have different types, a document has no token after the prefix, or
 * they are too many; ENGINE_EUNSUPPORTED: the text is too long. */
int merge_head(struct merge_documents *, struct kv_head *head, struct engine_error *);
/* Reads all documents to their ends and writes all but HEAD, which the writer has written, and
 * provenance, which it can inherit. Call it after merge_head(). ENGINE_EOPTION: their first tokens
 * are not the same. Memory holds one layer of the merged snapshot. */
int merge_write(struct merge_documents *, struct kv_writer *, struct engine_error *);
void merge_free(struct merge_documents *);      /* the readers stay open; all zero is allowed */

#endif
