/* kvfile.h - read and write KV snapshots
 *
 * The format is defined in formats/kv-snapshot.md (kv-snapshot(5)); section numbers below refer to
 * it.
 *
 * This library never prints and never exits. Functions that can fail return KV_OK (0) or a
 * negative KV_E* code; the object then holds a message that names file, section, layer, head, rows
 * and byte offset as far as they are known: kv_reader_error(), kv_writer_error(). After a failure
 * only the error and close functions may be called on that object.
 *
 * Ownership: a reader owns every pointer it returns; section content is valid until the next
 * kv_next() or kv_close(), positions until the next layer's. A writer copies or writes what it is
 * given before it returns. Objects are not shared between threads without a lock; different
 * objects are independent.
 *
 * Memory: HEAD and provenance are read and written with jansson, whose parser (2.14) does not
 * notice that the buffer of a token could not grow: it loses characters, and may write past the
 * token. Jansson has one allocator for the whole process, so this library does not set it. A
 * program that must survive a failing malloc() sets one that never returns NULL, with
 * json_set_alloc_funcs() before the first call; those of kvpipe end the program. */
#ifndef KVFILE_H
#define KVFILE_H

#include "kinds.h"
#include "rowtype.h"

#ifdef __cplusplus
extern "C" {
#endif

#define KV_VERSION 1                  /* of the format */
#define KV_NO_LAYER 0xffffffffu
#define KV_SCORE_LABEL 192            /* bytes of the label before scores, 4.6, 4.13 */

enum {
	KV_OK = 0,
	KV_EIO = -1,        /* the operating system refused; the message has its text */
	KV_ETRUNCATED = -2, /* the input ends before the end marker */
	KV_ECORRUPT = -3,   /* a hash, a length, an order or a value is wrong */
	KV_EVERSION = -4,   /* a version, feature, critical section or key that is not known */
	KV_EINVAL = -5,     /* the caller broke this header's rules */
	KV_ENOMEM = -6
};

/* Returns two words for each code: "truncated input", ... */
const char *kv_error_name(int code);

/* ---- kinds of sections: kinds.h ---- */

/* Returns KV_UNKNOWN for a type that this version does not know. */
enum kv_kind kv_kind_of(const char *type);
/* Returns its four letters; "" for KV_UNKNOWN. */
const char *kv_kind_type(enum kv_kind kind);
/* Returns whether kinds.h gives the kind all of these flags; KV_UNKNOWN has none. */
int kv_kind_is(enum kv_kind kind, unsigned flags);
/* Returns its place in the order of the format, from 0; -1 for KV_UNKNOWN. The kinds of a layer
 * follow each other. A newer version may have other places for the same kinds, in the same
 * order. */
int kv_kind_place(enum kv_kind kind);
/* Returns, for any type, known or not, whether the section stays valid when rows are dropped,
 * 3.5. */
int kv_is_safe(const char *type);

/* ---- identity and state: the HEAD section, 4.1 ---- */

enum kv_rope { KV_ROPE_DEFAULT = 0, KV_ROPE_LLAMA3 = 1, KV_ROPE_LINEAR = 2, KV_ROPE_YARN = 3,
	KV_ROPE_LONGROPE = 4 };
enum { KV_LAYERS_MOST = 4096 };         /* and query heads, KV heads */
enum { KV_ROPE_PAIRS = 512 };         /* most pairs: half of the greatest head width */
enum { KV_DOCUMENTS_MOST = 1024 };

struct kv_model {
	char architecture[32];          /* "llama": model_type of config.json */
	uint32_t layers;                /* L */
	uint32_t hidden;                /* D */
	uint32_t ffn;                   /* F */
	uint32_t query_heads;           /* H */
	uint32_t kv_heads;              /* G, divides H */
	uint32_t head_width;            /* E */
	uint32_t vocabulary;            /* V */
	/* multi-head latent attention (MLA), 4.26: values are the first latent_rank channels of
	 * keys; the widths that a query before W_UK and a value after W_UV have in each query head
	 * of the weights, without the rotated channels. 0, all three: values are stored */
	uint32_t latent_rank, latent_nope, latent_value;
	double norm_eps;
	int attention_bias;             /* 0 or 1 */
	int tied_embeddings;            /* 0 or 1 */
	int mlp_bias;                   /* 0 or 1 */
	uint32_t experts;               /* of a mixture of experts; 0: there is none */
	uint32_t experts_chosen;        /* those that a token takes of them */
	/* these four: 0 if the architecture has none, or it changes nothing */
	double attention_multiplier;    /* in place of 1/sqrt(E) */
	double embedding_multiplier;
	double logits_scaling;
	double residual_multiplier;
	int attention_sinks;            /* 1: each softmax has a learned sink, SINk, 4.27 */
	double attention_softcap;       /* bounds of q.k and of logits; 0: none */
	double logits_softcap;
	/* positions that a query sees, its own included, in layers that are not whole; 0: all,
	 * and none is listed as whole */
	uint32_t window;
	uint8_t whole[KV_LAYERS_MOST / 8]; /* bit l % 8 of byte l / 8 */
	enum kv_rope rope_type;
	double rope_theta;
	double rope_factor;             /* llama3, linear, yarn; else 0 */
	double rope_low_freq_factor;    /* llama3 */
	double rope_high_freq_factor;
	uint32_t rope_original_max_position; /* llama3, yarn, longrope */
	double rope_attention_factor;   /* yarn, longrope */
	double rope_beta_fast;          /* yarn, these three */
	double rope_beta_slow;
	int rope_truncate;              /* 0 or 1 */
	/* 0: none; else layer l is not rotated if l + 1 is a multiple of it */
	uint32_t rope_skip;
	/* theta of layers with a window, without scaling; 0: as all layers */
	double rope_window_theta;
	/* yarn: queries at position p are multiplied by 1 + this times
	 * ln(1 + floor(p / rope_original_max_position)); 0: they are not */
	double rope_query_beta;
	/* rotated channels, the first ones (with latent_rank the last ones); 0: all */
	uint32_t rope_width;
	/* longrope: divisor of the frequency of each pair; else 0 of them */
	uint32_t rope_n_factors;
	double rope_factors[KV_ROPE_PAIRS];
	enum kv_dtype weights_dtype;
	char weights[33];               /* fingerprints, 32 lower-case hexadecimal digits, 6 */
	char tokenizer[33];
	uint32_t weights_rule;          /* 2: weights is of all bytes; 0: of samples (older) */
	/* 0: for fields of later versions, in which 0 says what this version means by none */
	uint64_t reserved[16];
};

/* Where the documents begin whose tokens saw only their own document when they ran */
struct kv_documents {
	uint32_t n;                     /* all but the first; 0: one text */
	/* their first positions, ascending; the first document begins at 0 and is not listed */
	uint32_t start[KV_DOCUMENTS_MOST - 1];
};

struct kv_head {
	struct kv_model model;
	enum kv_dtype dtype;            /* of observation queries, indexes, and rows of type 0 */
	uint32_t next_position;         /* of the next token */
	/* enum kv_row_type of each layer's rows in KEYS and VALS, quantised, 4.20; 0: elements of
	 * dtype */
	uint8_t key_type[KV_LAYERS_MOST], value_type[KV_LAYERS_MOST];
	/* how many of the last rows of a KV head are elements of dtype where its type is quantised,
	 * 4.20: at most KV_RESIDUAL_MOST; with KIVI's types a multiple of KV_GROUP_ROWS, not 0 */
	uint32_t residual;
	struct kv_documents documents;
	uint64_t reserved[16];          /* 0, as in struct kv_model */
};

/* Returns the type, never 0, of the rows of a layer, and the bytes of one (of KIVI's types: of a
 * coded one; of values that are channels of keys: 0); kind is KV_KEYS or KV_VALS. */
enum kv_row_type kv_head_row_type(const struct kv_head *head, enum kv_kind kind, uint32_t layer);
size_t kv_head_row_bytes(const struct kv_head *head, enum kv_kind kind, uint32_t layer);
/* Returns how many of the rows of a KV head that has this many are coded: all but the last ones
 * where there is a residual; and the bytes that a section has for such a KV head. */
uint32_t kv_head_coded(const struct kv_head *head, enum kv_kind kind, uint32_t layer,
    uint32_t rows);
uint64_t kv_head_bytes(const struct kv_head *head, enum kv_kind kind, uint32_t layer,
    uint32_t rows);
/* dst[n][E] f32 <- rows first .. of a KV head, and back. content: its bytes in the section; rows:
 * how many it has. first is a multiple of KV_GROUP_ROWS, and so is n, or they are the last rows.
 * The second returns n, or the number, from first on, of a row (of KIVI's keys: the first of a
 * group) that the type cannot store. */
void kv_head_rows_to_f32(float *dst, const struct kv_head *head, enum kv_kind kind, uint32_t layer,
    const void *content, uint32_t rows, uint32_t first, uint32_t n);
uint32_t kv_head_rows_from_f32(void *content, const float *src, const struct kv_head *head,
    enum kv_kind kind, uint32_t layer, uint32_t rows, uint32_t first, uint32_t n);
/* Returns whether some layer has rows of a quantised type. */
int kv_head_is_quantised(const struct kv_head *head);
/* Returns whether some layer has rows of KIVI's types, whose keys are quantised in groups. */
int kv_head_is_grouped(const struct kv_head *head);
/* Returns whether the rows of a layer have the same type in both, and as many full rows behind
 * quantised ones. */
int kv_head_same_type(const struct kv_head *a, const struct kv_head *b, enum kv_kind kind,
    uint32_t layer);
/* Returns whether the rows of all layers have the same types, of models with as many layers. */
int kv_head_same_rows(const struct kv_head *a, const struct kv_head *b);

/* Returns "default", "llama3" ...; NULL for an unknown type. */
const char *kv_rope_name(enum kv_rope type);
/* Returns how many channels of a key, from kv_rope_first() on, rotary embedding rotates in this
 * layer, in pairs that are half as many apart. */
uint32_t kv_rope_dims(const struct kv_model *m, uint32_t layer);
uint32_t kv_rope_first(const struct kv_model *m);
/* Returns how many positions a query sees in this layer, its own included; 0: all. */
uint32_t kv_layer_window(const struct kv_model *m, uint32_t layer);
/* Returns the first position that a query at this one sees in this layer. */
uint32_t kv_first_seen(const struct kv_model *m, uint32_t layer, uint32_t position);

/* Compares two identities field by field. Returns the number of fields that differ and writes
 * into text (size bytes, always terminated) one "field: A here, B there" for each, with "; "
 * between them. */
int kv_model_diff(const struct kv_model *a, const struct kv_model *b,
    const char *a_name, const char *b_name, char *text, size_t size);

/* *json <- the text of a HEAD section (4.1), to be freed, for storing it elsewhere, such as
 * beside the same rows in another format. Returns KV_OK, KV_EINVAL or KV_ENOMEM. */
int kv_head_to_json(const struct kv_head *head, char **json);

/* *head <- the identity in the text of kv_head_to_json(), with all checks of a reader. Returns
 * KV_OK, or KV_ECORRUPT or KV_EVERSION with the error in text (size bytes, always terminated). */
int kv_head_from_json(struct kv_head *head, const char *json, size_t n, char *text, size_t size);

/* ---- the rows: the POSN section, 4.3 ---- */

struct kv_rows {
	uint32_t heads;                 /* G */
	const uint32_t *count;          /* [G] rows of each KV head */
	const uint32_t *const *pos;     /* [G] -> [count[g]] positions, strictly ascending;
	                                 * heads may share one list */
};

/* Returns the sum of count over the heads. */
uint64_t kv_rows_total(const struct kv_rows *rows);

/* Returns how many of the n ascending positions are less than `limit`: the number of leading
 * rows before it. */
uint32_t kv_rows_before(const uint32_t *pos, uint32_t n, uint64_t limit);

/* ---- reading ---- */

struct kv_reader;
struct kv_writer;

struct kv_section {
	char type[5];                   /* four letters and a zero */
	uint32_t layer;                 /* or KV_NO_LAYER */
	unsigned element_size;          /* 1, 2, 4 */
	uint64_t raw_size;              /* bytes of content */
	uint64_t stored_size;           /* bytes in the file, without header, table, fill */
	uint64_t offset;                /* of its header from the start of the snapshot */
	enum kv_kind kind;
	uint64_t reserved[2];           /* 0 */
};

/* Opens a snapshot ("-" is standard input), reads the preamble and HEAD. *out is set (and must
 * be closed) even after a failure, unless that was KV_ENOMEM. */
int kv_open(const char *path, struct kv_reader **out);

/* As kv_open(), for an open descriptor, which kv_close() closes; name: for messages. */
int kv_open_fd(int fd, const char *name, struct kv_reader **out);

/* NULL is allowed. */
void kv_close(struct kv_reader *r);

const char *kv_reader_error(const struct kv_reader *r);   /* "" before any failure */
const char *kv_reader_name(const struct kv_reader *r);    /* the path, or "stdin" */
const struct kv_head *kv_reader_head(const struct kv_reader *r);

/* Goes to the next section after HEAD; pADD, iNDX and ENDS are handled inside and never
 * returned. Content that was neither loaded, copied nor skipped is read and checked first.
 * Returns 1 with *sec filled; 0 at the end marker, if every digest in it is right and nothing
 * follows it; KV_ETRUNCATED if the input stops before it; another KV_E* otherwise. */
int kv_next(struct kv_reader *r, struct kv_section *sec);

/* Makes the next kv_next() return the current section once more. Its content may have been
 * loaded, but not read, copied or skipped. */
int kv_again(struct kv_reader *r);

/* *data <- the whole content of the current section, checked and decoded; NULL for an empty
 * one. Aligned to 64 bytes. A second call gives the same pointer. Not after kv_copy(). */
int kv_load(struct kv_reader *r, const void **data);

/* *data <- the next part of the content of the current section, checked and decoded; *size is 0
 * after the last part. Uses memory for one block only. A part is valid until the next call for
 * this reader. Content with rules of its own (positions, queries, values of rows, indexes,
 * events, provenance) is one part. May follow kv_load(), but kv_load() and kv_copy() may not
 * follow it; kv_next() checks the parts that were not read. */
int kv_read(struct kv_reader *r, const void **data, size_t *size);

/* *rows <- the content of the current POSN section, checked (4.3). */
int kv_load_rows(struct kv_reader *r, const struct kv_rows **rows);

/* Returns the rows of the current layer, known once its POSN section was passed (the reader
 * keeps them for its own checks); NULL before the first layer. */
const struct kv_rows *kv_current_rows(const struct kv_reader *r);

/* Returns the hash of the KEYS of the current layer, which an index contains (4.14): from that
 * section on, loaded, copied or skipped, until the next layer; else 0. */
uint64_t kv_reader_keys(const struct kv_reader *r);

/* Returns the file offset of the current section's content, for reading its rows later by
 * pread(), after kv_read() or kv_load() has checked it. 0 if it is compressed, or the input is
 * not a file that is read from its beginning. */
uint64_t kv_reader_place(const struct kv_reader *r);

/* Returns the descriptor that r reads from; kv_close() closes it. */
int kv_reader_descriptor(const struct kv_reader *r);

/* Leaves the content of the current section unread and unchecked if the input can seek (on a
 * pipe it is read and checked). After a skip the raw hashes are those that the table claims;
 * the table is checked. */
int kv_skip(struct kv_reader *r);

/* Writes the current section to w as it is stored, checked but not decoded, block by block: no
 * memory for content. A writer with KV_LZ4 compresses the blocks that are stored uncompressed.
 * A failure leaves its message in the object that failed, after damaged input in both: then w
 * cannot be committed. May follow kv_load() or kv_load_rows() of the same section (their
 * results stay valid): the reader keeps the stored blocks, so nothing is compressed anew. */
int kv_copy(struct kv_reader *r, struct kv_writer *w);

/* *held <- the current section, checked and in memory: for a program that writes something in front
 * of it that it computes from a later one. Not POSN, nor behind the provenance. May follow
 * kv_load(), whose pointer stays valid until kv_held_free(). kv_write_held() writes it as kv_copy()
 * does. */
struct kv_held;
int kv_hold(struct kv_reader *r, struct kv_held **held);
const void *kv_held_content(const struct kv_held *held);        /* as kv_load() */
int kv_write_held(struct kv_writer *w, const struct kv_held *held);
void kv_held_free(struct kv_held *held);                        /* NULL is allowed */

/* Copies a section that the caller does not know, or drops it if the rows have changed and it
 * is not safe (3.5). Returns 1 copied, 0 dropped, or a KV_E*. */
int kv_copy_unknown(struct kv_reader *r, struct kv_writer *w, int rows_changed);

/* Compares the index with the sections as they were read (4.9). Only after kv_next() returned
 * 0. KV_OK also without an index. */
int kv_check_index(struct kv_reader *r);

struct kv_digests {
	char stream[33], logical[33];   /* 32 hexadecimal digits */
	uint64_t size;                  /* of the whole snapshot, bytes */
	uint32_t sections;
};

/* *d <- the values of the end marker, which were checked. Only after kv_next() returned 0. */
void kv_reader_digests(const struct kv_reader *r, struct kv_digests *out);

/* Returns the provenance lines read so far (4.8), "" if there are none. */
const char *kv_reader_provenance(const struct kv_reader *r);

/* ---- the event log: the eVNt section, 4.12 ---- */

enum kv_event_kind {
	KV_EVENT_PREFILL = 1,
	KV_EVENT_DECODE = 2,
	KV_EVENT_EVICT = 3,
	/* rows that ran and were not stored; in a file also a prefill of which no row stays */
	KV_EVENT_RUN = 4
};

struct kv_event {
	enum kv_event_kind kind;
	uint32_t position;              /* of the next token, after the event */
	uint32_t n;                     /* rows run through each of the layers; eviction: 0 */
	uint32_t l0, l1;                /* layers l0 to l1-1; the others stay as they are */
	const uint32_t *before, *after; /* [L][G] rows of each KV head, all layers */
};

/* A log that is being read, with what it must match. */
struct kv_log;

/* Returns NULL without memory. kv_log_free() allows NULL. */
struct kv_log *kv_log_new(const struct kv_head *head);
void kv_log_free(struct kv_log *log);

/* Reads TOKS, POSN and eVNt. Call it for each section that kv_next() returns, before anything
 * else is done with it. Returns KV_OK, or a KV_E* with the message in the reader. */
int kv_log_see(struct kv_log *log, struct kv_reader *r, const struct kv_section *sec);

/* Returns the number of events of this kind, 0 = of all kinds; 0 of all kinds if the snapshot
 * has no log. */
uint64_t kv_log_count(const struct kv_log *log, int kind);

/* Returns the number of ids in TOKS. */
uint64_t kv_log_tokens(const struct kv_log *log);

/* *e <- the next event, after the whole snapshot was seen; its pointers are valid until the
 * next call. Returns 1; 0 at the end, if the log is consistent with itself and with the rows
 * (or there is none); KV_ECORRUPT if not: kv_log_error() names event, layer and head. */
int kv_log_next(struct kv_log *log, struct kv_event *e);
const char *kv_log_error(const struct kv_log *log);       /* "" before any failure */

/* A log that is being written: the content of eVNt. All zero: no event yet. */
struct kv_log_content {
	void *data;                     /* malloc(3), the owner's to free */
	size_t size;
	size_t last;                    /* offset of the last event */
};

/* c <- a copy of the content of an eVNt section with G = kv_heads, to be continued. Returns
 * KV_OK or KV_ENOMEM. */
int kv_log_copy(struct kv_log_content *c, const void *content, size_t size, uint32_t kv_heads);

/* Appends an event in the form of 4.12: without counts if each KV head of its layers grew by n;
 * merged into the last event if both are decode steps; nothing for an eviction that dropped no
 * row. Returns KV_OK; KV_EINVAL if a reader would refuse it (a head that shrinks, or grows by
 * more than n; a run that changes the rows); KV_ENOMEM. */
int kv_log_append(struct kv_log_content *c, const struct kv_event *e, uint32_t kv_heads);

/* A place in a log, and the way back to it, if only decode steps, evictions and runs were
 * appended since. */
struct kv_log_place {
	size_t size, last;
	uint32_t position, n;           /* of the last event */
};
void kv_log_place(const struct kv_log_content *c, struct kv_log_place *place);
void kv_log_return(struct kv_log_content *c, const struct kv_log_place *place);

/* Returns how many rows ran through this layer, without runs that stored nothing, since all its
 * KV heads were last without rows. With plain prefill, decoding and eviction these are all
 * tokens of the text; with token selection fewer. */
uint64_t kv_log_ran(const struct kv_log_content *c, uint32_t layer, uint32_t kv_heads);

/* ---- writing ---- */

/* Flags of kv_create(). KV_PRIVATE: a file for its owner, and for those who may write in its
 * folder; replaces any file of its name, and does not follow a symbolic link. */
enum { KV_LZ4 = 1, KV_PRIVATE = 2 };

/* Part of a section's content; the parts are written one after another. */
struct kv_span {
	const void *data;
	size_t size;
};

/* Starts a snapshot: writes preamble and HEAD. path "-" is standard output. A regular file is
 * written under a temporary name beside it (path + ".tmp." + process id, and ".1" and so on
 * while that exists) and takes its place in kv_commit(); devices and pipes are written
 * directly. *out is set (and must be freed) even after a failure, unless that was KV_ENOMEM. */
int kv_create(const char *path, const struct kv_head *head, unsigned flags, struct kv_writer **out);

/* Writes one section. The order of 3.5 is required; sizes of KEYS and VALS are checked against
 * the rows of the layer, an index against its rows and keys. element_size: width of the byte
 * planes when compressed; 2 or 4 for floats of that size, 1 for everything else. */
int kv_write(struct kv_writer *w, const char *type, uint32_t layer, unsigned element_size,
    const struct kv_span *spans, size_t n);

/* Writes POSN; one list if all heads have the same positions. */
int kv_write_rows(struct kv_writer *w, uint32_t layer, const struct kv_rows *rows);

/* Returns the hash of the KEYS of the layer that is being written, for an index (4.14): from
 * their writing or copying until the next layer; else 0. */
uint64_t kv_writer_keys(const struct kv_writer *w);

/* Adds one line to the provenance: tool and version are plain text, options a JSON object as
 * text ("{}" for none). kv_commit() writes it after the lines of kv_inherit(). */
int kv_sign(struct kv_writer *w, const char *tool, const char *version, const char *options);

/* Inherits the provenance of an input, which the tool must have read to its end (kv_next() ==
 * 0). Call before kv_commit(). */
int kv_inherit(struct kv_writer *w, const struct kv_reader *r);

/* Writes provenance, index and end marker, flushes, synchronises, renames the file. Only then
 * does the snapshot exist. KV_EINVAL if a required section is missing. */
int kv_commit(struct kv_writer *w);

/* Frees w, and removes the temporary file unless kv_commit() succeeded. NULL is allowed. */
void kv_writer_free(struct kv_writer *w);

const char *kv_writer_error(const struct kv_writer *w);

/* Returns the temporary file to remove if the process is killed; NULL if there is none any
 * more. */
const char *kv_writer_temporary(const struct kv_writer *w);

uint64_t kv_writer_size(const struct kv_writer *w);       /* bytes written so far */

/* ---- watching ---- */

enum kv_doing {
	KV_DOING_READ,                  /* reading, decoding, checking content */
	KV_DOING_WRITE,                 /* hashing, compressing, writing it */
	KV_DOING_WAIT                   /* for the other end of a pipe, or a terminal */
};

/* Counts bytes and rows, and is told what a reader or writer does, so that its owner can
 * measure the time. begin() and end() are called in pairs, which nest: a read waits, a copy
 * reads. Several readers and writers may share one watch. */
struct kv_watch {
	void (*begin)(void *with, enum kv_doing), (*end)(void *with);
	void *with;                     /* the owner's, passed on */
	uint64_t bytes_in, bytes_out;   /* of snapshots; what is skipped in a file is not read */
	uint64_t rows_in, rows_out;     /* of KV heads, in the layers that were passed */
};

/* Sets the watch, and counts also the bytes read or written before. The watch must outlive the
 * reader or writer, which may have failed. */
void kv_reader_watch(struct kv_reader *r, struct kv_watch *watch);
void kv_writer_watch(struct kv_writer *w, struct kv_watch *watch);

#ifdef __cplusplus
}
#endif
#endif
