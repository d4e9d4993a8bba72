/* list.h - METHOD(name, needs, uses, op, aliases, about, defaults ...): every scoring method
 *
 * A new method is a file NAME.c with score_NAME(), an entry here, a paragraph in kv-score(1)
 * and a test. This list makes the prototypes (scorers.h), the table (method.c), `kv-score
 * --list`, and the methods that tests/contract.bats holds to the contract of methods.h. uses:
 * the options of kv-score that the method reads. op: OP(name) if struct ops (ops/ops.h) has a
 * device version of the whole score, computed from the keys alone; LISTS(name) if lists_NAME()
 * in NAME.c says how a device computes the score from its own sums of attention mass; else
 * NO_OP. aliases: other names of exactly this method, in papers and programs. defaults: struct
 * score_options. */

METHOD(snapkv, NEED_WINDOW, "window over-queries kernel pool reduce order weight",
    LISTS(snapkv), "",
    "attention mass from the observation window, pooled along the rows",
    .kernel = 5, .pool = POOL_AVG, .reduce = REDUCE_MEAN, .order = POOL_FIRST)
METHOD(lookahead, NEED_WINDOW | NEED_UNSTORED, "window kernel pool reduce order", LISTS(lookahead),
    "lookaheadkv lookahead-kv",
    "attention mass from learned tokens after the prompt (LookaheadKV), pooled",
    .kernel = 7, .pool = POOL_MAX, .reduce = REDUCE_MEAN, .order = POOL_FIRST)
METHOD(cake, NEED_WINDOW | NEED_EACH_QUERY, "window kernel pool reduce order gamma", NO_OP, "",
    "mean and variance of the attention from the window, pooled (CAKE)",
    .kernel = 5, .pool = POOL_AVG, .reduce = REDUCE_MEAN, .order = POOL_FIRST,
    .gamma = { 200, "200" })
METHOD(tova, NEED_WINDOW | NEED_LAYER, "keep-last", LISTS(tova), "",
    "attention of the last token to the row, the same for all heads",
    .kernel = 1, .window = 1)
METHOD(h2o, NEED_MASS, "reduce", LISTS(h2o), "",
    "attention mass from all queries so far (heavy hitters)",
    .kernel = 1, .reduce = REDUCE_SUM)
METHOD(meanmass, NEED_MASS | NEED_EVERY_QUERY, "reduce", LISTS(meanmass),
    "observedattention observed-attention",
    "attention mass per query that could see the row (kvpress's ObservedAttention)",
    .kernel = 1, .reduce = REDUCE_MEAN)
METHOD(kvzip, NEED_PROBE_MASS, "reduce", NO_OP, "",
    "attention mass from probe tokens (kv-observe), maximum over query heads",
    .kernel = 1, .reduce = REDUCE_MAX)
METHOD(kvcompose, NEED_PROBE_MASS | NEED_LAYER, "reduce", NO_OP, "",
    "as kvzip, the mean over query heads, and over KV heads (KVCompose)",
    .kernel = 1, .reduce = REDUCE_MEAN)
METHOD(knorm, NEED_KEYS, "", OP(knorm), "l2norm l2-norm l2compress",
    "negative key norm: small norms are kept",
    .kernel = 1)
METHOD(keydiff, NEED_KEYS, "", OP(keydiff), "",
    "dissimilarity of the key to the mean direction of keys",
    .kernel = 1)
METHOD(lagkv, NEED_KEYS | NEED_VALUES, "sink lag cross", NO_OP, "",
    "difference of keys and values to the rows behind them, ranked by partitions",
    .kernel = 1, .sink = 4, .lag = 128)
METHOD(cur, NEED_KEYS | NEED_VALUES, "sink local norms", NO_OP, "curdkv",
    "squared norms of key and value, each over those of its neighbours (CurDKV)",
    .kernel = 1, .sink = 4, .local = 16)
METHOD(qfilter, NEED_KEYS | NEED_FILTER, "filters", NO_OP, "qfilters q-filters",
    "projection of the key on the common direction of queries (Q-Filters)",
    .kernel = 1)
METHOD(expected, NEED_KEYS | NEED_VALUES | NEED_QUERY_STATS | NEED_ROPE,
    "sink future epsilon no-covariance no-value-norm query-stats", NO_OP,
    "expectedattention expected-attention expectedattentionstats",
    "attention that later queries are expected to pay, by value norm (ExpectedAttention)",
    .kernel = 1, .sink = 4, .future = 512, .epsilon = { 0, "0" }, .covariance = 1,
    .value_norm = 1)
METHOD(capkv, NEED_KEYS | NEED_VALUES | NEED_QUERY_STATS | NEED_ROPE, "sink future query-stats",
    NO_OP, "cap",
    "share in the capacity of the values that later queries read (CapKV)",
    .kernel = 1, .sink = 4, .future = 512)
METHOD(triattention, NEED_KEYS | NEED_QUERY_STATS | NEED_QUERY_MODULI | NEED_ROPE,
    "reduce z-score query-stats", NO_OP, "tri-attention",
    "logit of the mean query at later distances, for long generations (TriAttention)",
    .kernel = 1, .reduce = REDUCE_MAX)
METHOD(rkv, NEED_KEYS | NEED_WINDOW | NEED_QUERIES, "window kernel lambda", NO_OP,
    "r-kv", "attention of the last queries less the redundancy of the key (R-KV)",
    .kernel = 7, .window = 8, .lambda = { 0.07, "0.07" })
METHOD(simlayer, NEED_WINDOW | NEED_LAYER, "window sink recent lazy", NO_OP,
    "simlayerkv sim-layer-kv",
    "1, but 0 between the ends of the text in layers that look only at these (SimLayerKV)",
    .kernel = 1, .window = 1, .sink = 4, .recent = 1024, .lazy = { 0.9, "0.9" })
METHOD(leverage, NEED_KEYS | NEED_ROPE, "sketch seed", NO_OP,
    "leveragescore leverage-score",
    "leverage of the key before rotary embedding among all of its KV head (Compactor)",
    .kernel = 1)
METHOD(noncausal, NEED_VALUES | NEED_NONCAUSAL, "", NO_OP, "noncausalattn non-causal",
    "attention within chunks without a causal mask, by value norm (NonCausalAttn)",
    .kernel = 1)
METHOD(compactor, NEED_KEYS | NEED_VALUES | NEED_ROPE | NEED_NONCAUSAL | NEED_LAYER,
    "sink recent blend sketch seed", NO_OP, "",
    "leverage and non-causal attention, both standardised (Compactor)",
    .kernel = 1, .sink = 8, .recent = 4, .blend = { 0.35, "0.35" })
METHOD(kvzap, NEED_GATE, "", NO_OP, "kv-zap",
    "what a gate says of the hidden state: estimated log score of KVzip+ (KVzap)",
    .kernel = 1)
METHOD(fastkvzip, NEED_GATE, "sink recent", NO_OP, "fast-kvzip fast-kv-zip",
    "what a gate says of the hidden state: estimated score of KVzip (Fast KVzip)",
    .kernel = 1, .sink = 4, .recent = RECENT_BY_LENGTH)
METHOD(recent, 0, "sink", NO_OP, "streamingllm streaming-llm",
    "attention sinks, then the latest rows (StreamingLLM)",
    .kernel = 1, .sink = 4)
METHOD(random, 0, "seed", NO_OP, "",
    "random: the baseline for every method",
    .kernel = 1, .seed = 0)
