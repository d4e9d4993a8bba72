/* policies.h - POLICY(name, layers, heads, global, uses): every budget policy of kv-evict
 *
 * A new policy is an entry here, its functions layers_LAYERS() and heads_HEADS() where these are
 * new (budgets.h says what they get), a paragraph in kv-evict(1) and its formula in
 * tests/oracle/budgets.py. This list makes the prototypes (budgets.h) and the table (policy.c).
 * layers: how the budgets of the layers differ. heads: how the KV heads of a layer share theirs.
 * global: 1, all layers and KV heads share one budget (global.c). uses: the options of kv-evict
 * that only some policies read. */

/* for --help */
#define POLICY_NAMES "uniform, pyramid, pyramid-exact, pyramid-kvpress, ada, ada-kvpress, " \
	"ada-pyramid, ada-pyramid-exact or global"

POLICY("uniform", uniform, uniform, 0, "")
POLICY("pyramid", pyramid, uniform, 0, "")
POLICY("pyramid-exact", pyramid_exact, uniform, 0, "")
POLICY("pyramid-kvpress", pyramid_kvpress, uniform, 0, "")
POLICY("ada", uniform, ada, 0, "alpha normalize")
POLICY("ada-kvpress", uniform, ada_kvpress, 0, "alpha")
POLICY("ada-pyramid", pyramid, ada, 0, "alpha normalize")
POLICY("ada-pyramid-exact", pyramid_exact, ada, 0, "alpha normalize")
POLICY("global", uniform, uniform, 1, "")
