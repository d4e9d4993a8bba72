# make bench: speed as a share of peers measured in the same run: the ops, retrieval, a whole
# model, the passing of a large snapshot. It wants a quiet machine, 6 GB of memory and of disk (BENCH_DIR),
# and a few minutes. tests/bench/peer.py and peer_batch.py measure beside llama.cpp, where that is installed.

BENCH_DIR = $(O)/bench
bench_o = $(O)/tests/bench/bench.o
PYTHON = /usr/bin/python3

bench_cpu = $(patsubst %,$(O)/tests/bench/bench_%,ops retrieve)
$(bench_cpu): %: %.o $(bench_o) $(O)/libcpu.a $(O)/libkvfile/dtype.o
	$(CC) $(CFLAGS) $(sanitize) $(LDFLAGS) -o $@ $^ $(device_libs)
bench_whole = $(patsubst %,$(O)/tests/bench/bench_%,batch model tokens)
$(bench_whole): %: %.o $(bench_o) $(model_a) $(device_a) $(file_a)
	$(CC) $(CFLAGS) $(sanitize) $(LDFLAGS) -o $@ $^ $(model_libs) $(kvfile_libs) $(device_libs)
$(bench_o) $(bench_cpu:=.o) $(bench_whole:=.o): openmp = -O3 -fopenmp -Wno-psabi

# Random weights of the shape of Llama-3.2-1B; the tokenizer is not used.
$(BENCH_DIR)/llama-3.2-1b/config.json: tests/bin/mkmodel.py
	$(PYTHON) tests/bin/mkmodel.py $(@D) --preset llama-3.2-1b

bench: all $(bench_cpu) $(bench_whole) $(O)/tests/bin/mksnapshot \
    $(BENCH_DIR)/llama-3.2-1b/config.json
	$(O)/tests/bench/bench_ops
	$(O)/tests/bench/bench_retrieve
	$(O)/tests/bench/bench_model $(BENCH_DIR)/llama-3.2-1b
	$(O)/tests/bench/bench_batch $(BENCH_DIR)/llama-3.2-1b
	$(PYTHON) tests/bench/stream.py $(O) --dir $(BENCH_DIR)

.PHONY: bench
