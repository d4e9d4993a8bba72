/* policies.h - POLICY(name, layers, heads, global, uses, aliases, about): every budget policy of
 * kv-evict
 *
 * A new policy is an entry here, its functions layers_LAYERS() and heads_HEADS() if these are
 * new (budgets.h describes their arguments), a paragraph in kv-evict(1) and its formula in
 * tests/oracle/budgets.py. This list makes the prototypes (budgets.h), the table (policy.c) and
 * `kv-evict --list`. layers: how the budgets of the layers differ. heads: how the KV heads of a
 * layer share theirs. global: what competes for one budget of all layers (enum competitors), or 0.
 * uses: the options of kv-evict that only some policies read. aliases: other names of exactly this
 * policy, in papers and programs. */

/* for --help */
#define POLICY_NAMES "uniform, pyramid, pyramid-exact, pyramid-kvpress, ada, ada-kvpress, " \
	"ada-pyramid, ada-pyramid-exact, global, composite or cake"

POLICY("uniform", uniform, uniform, 0, "", "",
    "each KV head of each layer has the budget")
POLICY("pyramid", pyramid, uniform, 0, "", "pyramidkv",
    "early layers keep more than late ones, in the authors' integers (PyramidKV)")
POLICY("pyramid-exact", pyramid_exact, uniform, 0, "", "",
    "as pyramid, but the mean over the layers is exactly the budget")
POLICY("pyramid-kvpress", pyramid_kvpress, uniform, 0, "", "",
    "as pyramid, by kvpress's formula")
POLICY("ada", uniform, ada, 0, "alpha normalize", "adakv ada-kv ada-snapkv",
    "KV heads share the budget of their layer (AdaKV)")
POLICY("ada-kvpress", uniform, ada_kvpress, 0, "alpha", "",
    "as ada, by kvpress's rule")
POLICY("ada-pyramid", pyramid, ada, 0, "alpha normalize", "ada-pyramidkv",
    "KV heads share the budget that pyramid gives their layer")
POLICY("ada-pyramid-exact", pyramid_exact, ada, 0, "alpha normalize", "",
    "KV heads share the budget that pyramid-exact gives their layer")
POLICY("global", uniform, uniform, COMPETE_ROWS, "", "",
    "all layers and KV heads share one budget (KVzip's pair)")
POLICY("composite", uniform, uniform, COMPETE_RANKS, "", "kvcompose",
    "all layers share one budget, the KV heads of a layer keep equally many (KVCompose)")
POLICY("cake", uniform, uniform, COMPETE_LAYERS, "tau1 tau2", "",
    "layers share one budget by how their attention is spread (CAKE)")
