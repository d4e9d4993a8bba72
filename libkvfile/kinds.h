/* kinds.h - every kind of section that this version knows (kv-snapshot(5), 3.5)
 *
 * KV_KINDS(KIND) calls KIND(name, type, flags) once for each, in the order of the format. enum
 * kv_kind, the names of the types, the order of sections and the set of indexes are made from
 * this list. codec.h describes the content. */
#ifndef KVFILE_KINDS_H
#define KVFILE_KINDS_H

enum {
	KV_IN_LAYER = 1,        /* belongs to a layer */
	KV_REQUIRED = 2,        /* exactly one, or one in each layer; else at most one */
	KV_INDEX = 4,       /* an index, 4.14: valid for these keys and rows only */
	KV_PER_ROW = 8          /* values for each row, still valid for the rows that stay */
};

#define KV_KINDS(KIND) \
	KIND(HEAD, "HEAD", KV_REQUIRED) \
	KIND(TOKS, "TOKS", KV_REQUIRED) \
	KIND(POSN, "POSN", KV_IN_LAYER | KV_REQUIRED) \
	KIND(SINK, "SINk", KV_IN_LAYER) \
	KIND(OBSQ, "oBSq", KV_IN_LAYER) \
	KIND(QSTA, "qSTa", KV_IN_LAYER) \
	KIND(MASS, "mASS", KV_IN_LAYER | KV_PER_ROW) \
	KIND(PAID, "pAID", KV_IN_LAYER | KV_PER_ROW) \
	KIND(VNRM, "vNRM", KV_IN_LAYER | KV_PER_ROW) \
	KIND(GATE, "gATE", KV_IN_LAYER | KV_PER_ROW) \
	KIND(NCAU, "nCAU", KV_IN_LAYER | KV_PER_ROW) \
	KIND(SCOR, "sCOR", KV_IN_LAYER) \
	KIND(KEYS, "KEYS", KV_IN_LAYER | KV_REQUIRED) \
	KIND(BITS, "bITS", KV_IN_LAYER | KV_INDEX) \
	KIND(PAGE, "pAGE", KV_IN_LAYER | KV_INDEX) \
	KIND(CLUS, "cLUS", KV_IN_LAYER | KV_INDEX) \
	KIND(LOWR, "lOWR", KV_IN_LAYER | KV_INDEX) \
	KIND(VALS, "VALS", KV_IN_LAYER | KV_REQUIRED) \
	KIND(LGTS, "LGTS", 0) \
	KIND(RHDK, "rHDk", 0) \
	KIND(EVNT, "eVNt", 0) \
	KIND(PROV, "pROv", 0) \
	KIND(INDX, "iNDX", 0) \
	KIND(ENDS, "ENDS", KV_REQUIRED) \
	KIND(PADD, "pADD", 0)           /* the only one that may be anywhere */

/* KV_HEAD, KV_TOKS ... */
#define KV_KIND_NAME(name, type, flags) KV_##name,
enum kv_kind {
	KV_KINDS(KV_KIND_NAME)
	/* a section that this version does not know; number of known ones */
	KV_UNKNOWN
};
#undef KV_KIND_NAME

/* The set of indexes, 1 << kind each. */
#define KV_KIND_INDEX(name, type, flags) | ((flags) & KV_INDEX ? 1u << KV_##name : 0u)
enum { KV_ALL_INDEXES = 0 KV_KINDS(KV_KIND_INDEX) };
#undef KV_KIND_INDEX

#endif
