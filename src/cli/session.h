/* session.h - the model folder that -m names, on the device that --device names */
#ifndef KVPIPE_SESSION_H
#define KVPIPE_SESSION_H

#include "cli/device.h"
#include "engine/memory_plan.h"
#include "model/model.h"
#include "tokenizer/tokenizer.h"

struct adapter;
struct retrieval_head;

struct session {
	struct device device;
	struct model *model;
	struct adapter *adapter;        /* session_adapter(); NULL: none */
	struct retrieval_head *head;    /* session_head(); NULL: none */
	struct tokenizer *tokenizer;
	struct memory_plan plan;        /* session_load() */
	int warned;                     /* of a snapshot whose weights are compared by samples */
};

/* Who reads and writes ids only runs without a tokenizer, too: where there is none, or none that is
 * supported, session.tokenizer is NULL. */
enum tokenizer_need { TOKENIZER_NEEDED, TOKENIZER_IF_THERE };

/* Opens the device, the tokenizer and the model, which is not on the device yet. When a snapshot is
 * given, its identity must be that of the model: exit 4 naming each field with both values. A
 * tokenizer is compared only where both have one. Dies. */
void session_open(struct session *, const struct kv_reader *snapshot, enum tokenizer_need);
/* The same for snapshots that are still to be compared, by session_fit(): like is, as far as it
 * is of the model, what they all are like (longrope), or NULL. */
void session_open_any(struct session *, const struct kv_reader *like, enum tokenizer_need);
/* From now on the model is that of this snapshot, also where one of the two has no tokenizer:
 * for who has several of them, before it is read and before it is written. ENGINE_EMODEL, with
 * what differs. */
int session_fit(struct session *, const struct kv_reader *snapshot, struct engine_error *);
/* Opens the adapter in a folder (kv-adapter(5)), which must be one for the model. Dies. */
void session_adapter(struct session *, const char *dir);
/* Opens the retrieval head in a folder, which must be one for the model. Dies. */
void session_head(struct session *, const char *dir);
/* Brings the weights, and those of adapter and retrieval head, to the device. What cannot fit is
 * refused before, with the sum. Dies. */
void session_load(struct session *, const struct memory_demand *);
/* The rows of a snapshot, whose number was not known before, are on the device now, with room for
 * those to come. Dies, with the sum, when there is no room for the rest. */
void session_rest(const struct session *, const char *snapshot);
/* With -v: how many steps of decoding were launches of a captured graph, or why there were none */
void session_note_steps(const struct session *, uint64_t launches, int capture_failed);
void session_close(struct session *);

/* ---- session_tokenizer.c: no device, no model ---- */

#define NO_TOKENIZER "00000000000000000000000000000000" /* formats/kv-snapshot.md section 6 */

/* settings.model becomes the folder that is meant. Dies. */
void session_find_folder(void);
/* Only the tokenizer of settings.model. Dies. */
struct tokenizer *session_tokenizer(void);
/* The same for the tokens of a snapshot: those of another tokenizer are refused. Dies. */
struct tokenizer *session_tokenizer_of(const struct kv_reader *snapshot);
/* NULL: there is none in the folder, or none that is supported, and a note says why that will do.
 * Dies. */
struct tokenizer *session_tokenizer_if_there(const char *dir, const char *why);

/* ---- text and ids ---- */

/* Appends the ids of text[len]; flags are those of tokenizer_encode(). Warns of what has no token.
 * Dies with `status` when it is no UTF-8, or a token has an id that is not below `vocabulary`. */
void encode_text(const struct tokenizer *, const char *name, const char *text, size_t len,
    unsigned flags, uint32_t vocabulary, int status, struct ids *out);

/* Dies: there is nothing to run. */
void refuse_no_token(const char *name, const struct ids *);

/* The flags of encode_text() for a text that continues the tokens of a snapshot, of which nothing
 * has been read yet, and is not by this. Dies. */
unsigned text_behind(const struct tokenizer *, struct kv_reader *snapshot);

/* Appends the ids in text[len], decimal numbers between white space, each below `vocabulary`.
 * Dies and names line and word. */
void parse_ids(const char *name, const char *text, size_t len, uint32_t vocabulary,
    struct ids *out);

/* Seconds of a clock that only goes forward. */
double seconds(void);

#endif
