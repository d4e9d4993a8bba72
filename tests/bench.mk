# make bench: speed as a share of peers measured in the same run: the ops, retrieval, a whole
# model, the passing of a large snapshot. It wants a quiet machine,
# 6 GB of memory and of disk (BENCH_DIR), and a few minutes.
#
# make bench-peers [PEERS=folder] [MODELS="folder ..."] [PARTS=] [TOKENS=] [ROWS=] [ROUNDS=]:
# prompts, steps, batches, start-up, scoring and retrieval beside llama.cpp, transformers and cat,
# in one table (tests/bench/peers_table.py). It fetches and builds what it measures beside
# (tests/bench/fetch_peers.sh): LLAMA_PYTHON and TORCH_PYTHON name Pythons that have it already,
# FETCH=0 fetches nothing.

BENCH_DIR = $(O)/bench
bench_o = $(O)/tests/bench/bench.o
PYTHON = /usr/bin/python3

bench_cpu = $(patsubst %,$(O)/tests/bench/bench_%,ops retrieve rows)
$(bench_cpu): %: %.o $(bench_o) $(O)/libcpu.a $(types_o)
	$(CC) $(CFLAGS) $(sanitize) $(LDFLAGS) -o $@ $^ $(device_libs)
bench_whole = $(patsubst %,$(O)/tests/bench/bench_%,batch model tokens)
$(bench_whole): %: %.o $(bench_o) $(O)/tests/bench/fill.o $(model_a) $(device_a) $(file_a)
	$(CC) $(CFLAGS) $(sanitize) $(LDFLAGS) -o $@ $^ $(model_libs) $(kvfile_libs) $(device_libs)
$(bench_o) $(bench_cpu:=.o) $(bench_whole:=.o): openmp = -O3 -fopenmp -Wno-psabi

# Random weights of the shape of Llama-3.2-1B; the tokenizer is not used.
$(BENCH_DIR)/llama-3.2-1b/config.json: tests/bin/mkmodel.py
	$(PYTHON) tests/bin/mkmodel.py $(@D) --preset llama-3.2-1b

#? bench           speed as a share of peers measured in the same run
bench: all $(bench_cpu) $(bench_whole) $(O)/tests/bin/mksnapshot \
    $(BENCH_DIR)/llama-3.2-1b/config.json
	$(O)/tests/bench/bench_ops
	$(O)/tests/bench/bench_retrieve
	$(O)/tests/bench/bench_model $(BENCH_DIR)/llama-3.2-1b
	$(O)/tests/bench/bench_batch $(BENCH_DIR)/llama-3.2-1b
	$(PYTHON) tests/bench/stream.py $(O) --dir $(BENCH_DIR)

PEERS = $(O)/peers
MODELS = $(O)/smollm2 $(BENCH_DIR)/llama-3.2-1b
PARTS = prompt step row-types start batch score retrieval
TOKENS = 512 2048 4096
ROWS = 512 2048 8192
ROUNDS = 5
# where the snapshots that cat copies are: best a folder in memory, with 5 GB
STREAM_DIR = $(BENCH_DIR)
STREAM_ROWS = 65536
RETRIEVE_ROWS = 32768

$(O)/smollm2/config.json:
	sh examples/smollm2/folder.sh $(@D) >/dev/null
# for the time that loading it takes
$(BENCH_DIR)/llama-3.2-1b/tokenizer.json: tests/bin/mktokenizer.py \
    $(BENCH_DIR)/llama-3.2-1b/config.json
	$(PYTHON) tests/bin/mktokenizer.py $@

#? bench-peers     speed beside llama.cpp, transformers and cat
bench-peers: all $(bench_cpu) $(bench_whole) $(O)/tests/bin/mksnapshot $(MODELS:%=%/config.json) \
    $(patsubst %,%/tokenizer.json,$(filter $(BENCH_DIR)/llama-3.2-1b,$(MODELS)))
	pythons=$$(sh tests/bench/fetch_peers.sh $(PEERS)) && set -- $$pythons && \
	$(PYTHON) tests/bench/peers_table.py $(O) $(BENCH_DIR) --llama "$$1" --torch "$$2" \
	    --models $(MODELS) --parts $(PARTS) --tokens $(TOKENS) --rows $(ROWS) \
	    --rounds $(ROUNDS) --stream-dir $(STREAM_DIR) --stream-rows $(STREAM_ROWS) \
	    --retrieve-rows $(RETRIEVE_ROWS)

.PHONY: bench bench-peers
