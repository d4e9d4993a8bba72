/* session.h - the model folder that -m names, on the device that --device names */
#ifndef KVPIPE_SESSION_H
#define KVPIPE_SESSION_H

#include "cli/device.h"
#include "engine/memory_plan.h"
#include "model/model.h"
#include "tokenizer/tokenizer.h"

struct adapter;
struct gate;
struct retrieval_head;

struct session {
	struct device device;
	struct model *model;
	struct adapter *adapter;        /* session_adapter(); NULL: none */
	struct retrieval_head *head;    /* session_head(); NULL: none */
	struct gate *gate;              /* session_gate(); NULL: none */
	struct tokenizer *tokenizer;
	struct memory_plan plan;        /* session_load() */
	/* warned that a snapshot's weights are compared by samples */
	int warned;
};

/* Programs that read and write only ids work without a tokenizer: with TOKENIZER_IF_THERE
 * session.tokenizer is NULL if there is none, or none that is supported. */
enum tokenizer_need { TOKENIZER_NEEDED, TOKENIZER_IF_THERE };

/* Opens the device, the tokenizer and the model, whose weights session_load() uploads. If a
 * snapshot is given, its identity must equal the model's: exit 4 naming each field with both
 * values. Tokenizers are compared only if both sides have one. Dies. */
void session_open(struct session *, const struct kv_reader *snapshot, enum tokenizer_need);
/* As session_open(), without the comparison, which session_fit() makes for each snapshot. like:
 * decides between longrope's factors; NULL: short. */
void session_open_any(struct session *, const struct kv_reader *like, enum tokenizer_need);
/* Checks that the snapshot is of this model, and stores its identity as the model's, also if
 * one of the two has no tokenizer. For programs with several snapshots: call before each is
 * read and before it is written. Returns ENGINE_OK, or ENGINE_EMODEL with what differs. */
int session_fit(struct session *, const struct kv_reader *snapshot, struct engine_error *);
/* Opens the adapter in a folder (kv-adapter(5)), which must be one for the model. Dies. */
void session_adapter(struct session *, const char *dir);
/* Opens the retrieval head in a folder, which must be one for the model. Dies. */
void session_head(struct session *, const char *dir);
/* Opens the gate in a folder, which must be one for the model. Dies. */
void session_gate(struct session *, const char *dir);
/* Uploads the weights, with those of adapter, retrieval head and gate. Dies, before that, if they
 * do not fit, and prints the sum. */
void session_load(struct session *, const struct memory_demand *);
/* Dies, with the sum, if the cache, now that the snapshot's rows are loaded, leaves no room on
 * the device for the rest of the demand. */
void session_rest(const struct session *, const char *snapshot);
/* Prints, with -v, how many decoding steps were launches of a captured graph, or why none was. */
void session_note_steps(const struct session *, uint64_t launches, int capture_failed);
void session_close(struct session *);

/* ---- session_tokenizer.c: no device, no model ---- */

#define NO_TOKENIZER "00000000000000000000000000000000" /* formats/kv-snapshot.md section 6 */

/* settings.model <- the path of the folder that it names. Dies. */
void session_find_folder(void);
/* Opens only the tokenizer of settings.model. Dies. */
struct tokenizer *session_tokenizer(void);
/* As session_tokenizer(), for the tokens of a snapshot: a different tokenizer is refused. Dies. */
struct tokenizer *session_tokenizer_of(const struct kv_reader *snapshot);
/* As session_tokenizer(), but returns NULL if there is none or none that is supported, and
 * notes why the program works without. Dies. */
struct tokenizer *session_tokenizer_if_there(const char *dir, const char *why);

/* ---- text and ids ---- */

/* Appends the ids of text[len]; flags: as for tokenizer_encode(). Warns of characters without a
 * token. Dies with `status` if it is not UTF-8, or an id is not below `vocabulary`. */
void encode_text(const struct tokenizer *, const char *name, const char *text, size_t len,
    unsigned flags, uint32_t vocabulary, int status, struct ids *out);

/* Dies if there are no ids to run. */
void refuse_no_token(const char *name, const struct ids *);

/* Returns the flags of encode_text() for a text that continues the tokens of a snapshot. Call
 * before anything of the snapshot is read; leaves it there. Dies. */
unsigned text_behind(const struct tokenizer *, struct kv_reader *snapshot);

/* Appends the ids in text[len], decimal numbers separated by white space, each below
 * `vocabulary`. Dies and names line and word. */
void parse_ids(const char *name, const char *text, size_t len, uint32_t vocabulary,
    struct ids *out);

/* Returns the seconds of a monotonic clock. */
double seconds(void);

#endif
