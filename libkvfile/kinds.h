/* kinds.h - every kind of section that this version knows (kv-snapshot(5), 3.5)
 *
 * KV_KINDS(KIND) calls KIND(number, name, type, flags) once for each, in the order of the format.
 * enum kv_kind, the names of the types, the order of sections and the set of indexes are made from
 * this list. codec.h describes the content.
 *
 * A number stays with its kind: it is compiled into programs. A new kind gets the next one,
 * wherever it stands in the format, so that numbers need not ascend. */
#ifndef KVFILE_KINDS_H
#define KVFILE_KINDS_H

enum {
	KV_IN_LAYER = 1,        /* belongs to a layer */
	KV_REQUIRED = 2,        /* exactly one, or one in each layer; else at most one */
	KV_INDEX = 4,       /* an index, 4.14: valid for these keys and rows only */
	KV_PER_ROW = 8          /* values for each row, still valid for the rows that stay */
};

#define KV_KINDS(KIND) \
	KIND(1, HEAD, "HEAD", KV_REQUIRED) \
	KIND(2, TOKS, "TOKS", KV_REQUIRED) \
	KIND(3, POSN, "POSN", KV_IN_LAYER | KV_REQUIRED) \
	KIND(4, SINK, "SINk", KV_IN_LAYER) \
	KIND(5, OBSQ, "oBSq", KV_IN_LAYER) \
	KIND(6, QSTA, "qSTa", KV_IN_LAYER) \
	KIND(7, MASS, "mASS", KV_IN_LAYER | KV_PER_ROW) \
	KIND(8, PAID, "pAID", KV_IN_LAYER | KV_PER_ROW) \
	KIND(9, VNRM, "vNRM", KV_IN_LAYER | KV_PER_ROW) \
	KIND(10, GATE, "gATE", KV_IN_LAYER | KV_PER_ROW) \
	KIND(11, NCAU, "nCAU", KV_IN_LAYER | KV_PER_ROW) \
	KIND(12, SCOR, "sCOR", KV_IN_LAYER) \
	KIND(13, KEYS, "KEYS", KV_IN_LAYER | KV_REQUIRED) \
	KIND(14, BITS, "bITS", KV_IN_LAYER | KV_INDEX) \
	KIND(15, PAGE, "pAGE", KV_IN_LAYER | KV_INDEX) \
	KIND(16, CLUS, "cLUS", KV_IN_LAYER | KV_INDEX) \
	KIND(17, LOWR, "lOWR", KV_IN_LAYER | KV_INDEX) \
	KIND(18, VALS, "VALS", KV_IN_LAYER | KV_REQUIRED) \
	KIND(19, LGTS, "LGTS", 0) \
	KIND(20, RHDK, "rHDk", 0) \
	KIND(21, EVNT, "eVNt", 0) \
	KIND(22, PROV, "pROv", 0) \
	KIND(23, INDX, "iNDX", 0) \
	KIND(24, ENDS, "ENDS", KV_REQUIRED) \
	KIND(25, PADD, "pADD", 0)           /* the only one that may be anywhere */

/* KV_HEAD, KV_TOKS ... */
#define KV_KIND_NAME(number, name, type, flags) KV_##name = number,
enum kv_kind {
	KV_KINDS(KV_KIND_NAME)
	KV_UNKNOWN = 0          /* a section that this version does not know */
};
#undef KV_KIND_NAME
#define KV_KIND_END 26          /* greater than the number of each known kind; it grows */

/* The set of indexes, 1 << kind each. */
#define KV_KIND_INDEX(number, name, type, flags) | ((flags) & KV_INDEX ? 1u << KV_##name : 0u)
enum { KV_ALL_INDEXES = 0 KV_KINDS(KV_KIND_INDEX) };
#undef KV_KIND_INDEX

#endif
