/* retrievals.h - RETRIEVAL(NAME, symbol, word, alias, needs, about): the list of retrieval methods
 *
 * A new one is a file with its struct retrieval_method (retrieval_internal.h), retrieval_SYMBOL,
 * and an entry here; a paragraph in kv-decode(1) and a test. This list makes the enum, the table,
 * the words of --retrieve and its completion. alias: the name in its paper, "" if that is the word.
 * needs: the index that it reads in each layer (kinds.h); KV_UNKNOWN: none. about: what competes,
 * and by what score; for readers of this list. */

RETRIEVAL(FIER, fier, "fier", "", KV_BITS, "rows, by their keys in one bit (FIER)")
RETRIEVAL(QUEST, quest, "quest", "", KV_PAGE,
    "pages, by the bounds of their keys; the last one always (Quest)")
RETRIEVAL(QUEST_EVAL, quest_eval, "quest-eval", "", KV_PAGE,
    "pages, the last one among them, and 3 at least (Quest's evaluation program)")
RETRIEVAL(CLUSTER, cluster, "cluster", "clusterkv", KV_CLUS,
    "clusters of rows, by their centroids (ClusterKV)")
RETRIEVAL(SHADOW, shadow, "shadow", "shadowkv", KV_LOWR,
    "chunks of rows, by their mean keys; keys are computed from factors (ShadowKV)")
RETRIEVAL(SPECONTEXT, specontext, "specontext", "", KV_UNKNOWN,
    "rows, by the attention of a retrieval head (SpeContext)")
