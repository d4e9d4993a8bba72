/* programs.h - GROUP(title) and PROGRAM(name, about): every program but kvpipe, in the order in
 * which kvpipe lists them
 *
 * about: one line, as --help, NAME of the page and README.md have it. A new program is an entry
 * here, a word in the Makefile, a page, a bats file and a line in README.md. */

GROUP("Run a model")
PROGRAM("kv-prefill", "run a prompt through a model and write its KV cache as a snapshot")
PROGRAM("kv-observe", "run probe tokens on a snapshot and keep their queries or attention")
PROGRAM("kv-decode", "continue a snapshot: generate text token by token")
PROGRAM("kv-tsp-layer", "find the layer for FastKV's token selection over some prompts")

GROUP("Score rows and drop them")
PROGRAM("kv-score", "score the rows of a snapshot: write it again with a score for each row")
PROGRAM("kv-evict", "drop the rows of a snapshot that matter least")

GROUP("Quantise rows: fewer bits for each")
PROGRAM("kv-quantize", "quantise keys and values: 8, 4 or 2 bits for each number, or back")

GROUP("Documents that are prefilled apart")
PROGRAM("kv-merge", "make one snapshot of documents that were prefilled apart")
PROGRAM("kv-recompute",
    "compute some rows of a merged snapshot again, so that they see all documents")

GROUP("Retrieval: keep all rows, read few")
PROGRAM("kv-quantize1b", "keys in one bit: an index that finds the rows which matter to a query")
PROGRAM("kv-index", "build a retrieval index: page bounds, key clusters or low-rank keys")

GROUP("Look at snapshots")
PROGRAM("kv-info",
    "describe snapshots: whose cache it is, which rows there are, what they cost")
PROGRAM("kv-check",
    "verify snapshots: every block, every rule, the index; silent when they hold")
PROGRAM("kv-footprint", "measure KV footprint, memory and peak of snapshots")
PROGRAM("kv-critical", "critical footprints of a table of method, footprint and score")
PROGRAM("kv-plan", "predict from settings: text length with offloaded layers, or KV footprint")
PROGRAM("kv-diff",
    "compare two snapshots of one model, their scores, or retrieval with full attention")
PROGRAM("kv-convert", "a snapshot as a safetensors file, and back")

GROUP("Text")
PROGRAM("kv-tokenize", "text to token ids and back")
PROGRAM("kv-chat", "role-tagged messages to token ids")
