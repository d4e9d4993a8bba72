/* opt_draft.h - kv-decode --draft: speculative decoding with a smaller snapshot of the same text */
#ifndef KVPIPE_OPT_DRAFT_H
#define KVPIPE_OPT_DRAFT_H

#include <jansson.h>

#include "cli/options.h"
#include "cli/session.h"
#include "engine/open_sequence.h"
#include "engine/speculate.h"

/* Rows of a program's options */
#define OPT_DRAFT \
	{ 0, "draft", OPT_STRING, &draft_file, 0, "SMALL", \
	    "generate several tokens at a time, as the snapshot SMALL proposes them", OPT_HOW }, \
	{ 0, "draft-tokens", OPT_COUNT, &draft_tokens, 1, "N", \
	    "with --draft: always propose N tokens (by acceptance, up to 7)", OPT_HOW }

extern const char *draft_file;          /* NULL: not given */
extern uint32_t draft_tokens;           /* 0: not given */

/* The draft, open. All zero: none */
struct draft {
	struct kv_reader *reader;
	struct sequence_options want;   /* of its snapshot */
	struct open_sequence open;
	struct workspace *ws;
	struct speculation speculation;
};

/* Refuses a number that is too large, one without --draft, and --draft with another option, by
 * name, under which tokens cannot run ahead of the text (NULL: none is given). Dies. */
void opt_draft(const char *other, const char *snapshot);
/* Opens the snapshot, which must be of the session's model and hold the tokens of `full`, of which
 * nothing has been read. Dies. */
void draft_open_file(struct draft *, struct session *, struct kv_reader *full);
/* Takes head and retrieval from `want`, which is the full cache's then: that is read whole. keep:
 * it is saved, with its indexes. */
void draft_take_options(struct draft *, struct sequence_options *want, int keep);
/* Loads the draft, after the full cache: a message that there is no room names the draft. Dies. */
void draft_load(struct draft *, const struct session *);
/* Has the text of `full` be proposed by the draft. returns: it goes back for several texts.
 * Dies. */
void draft_start(struct draft *, struct decode *full, int returns);
/* Counts what it was good for, prints that with -v, writes it to `stats` (NULL: not), and closes
 * the draft. Dies. */
void draft_end(struct draft *, const struct session *, const char *stats);
/* Returns the report, an object; kv-decode(1) explains its keys. Dies without memory. */
json_t *draft_json(const struct draft *);

#endif
