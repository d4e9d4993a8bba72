# libFuzzer: make fuzz-NAME [FUZZ_SECONDS=60] for one target, make -j fuzz for all
#
# A target is LLVMFuzzerTestOneInput() behind #ifdef FUZZ in one of its sources. To add one, give
# its name, its sources, the archives behind them, its corpus and its limits here. New inputs go to
# $(O)/fuzz/NAME.corpus, what was found to $(O)/fuzz/found: make a test of it first.

FUZZ_SECONDS = 60
fuzz_targets = reader safetensors quantised gguf tokenizer chat
fuzz_flags = -g -O1 -DFUZZ -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=undefined

# from kv_open() to kv_check_index(); every hash is taken for right
fuzz_reader_sources = $(wildcard libkvfile/*.c)
fuzz_reader_corpus = formats/vectors/passed formats/vectors/failed
fuzz_reader_limits = -rss_limit_mb=512 -max_len=65536 -timeout=10

# the header of a file of weights
fuzz_safetensors_sources = src/model/safetensors.c src/model/model_files.c
fuzz_safetensors_archives = $(O)/libmodel.a $(O)/libkvfile.a
fuzz_safetensors_corpus = tests/fuzz/safetensors
fuzz_safetensors_limits = -rss_limit_mb=1024 -max_len=4096 -timeout=10 \
	-dict=tests/fuzz/safetensors.dict

# a quantised matrix of a folder, and its configuration
fuzz_quantised_sources = tests/fuzz/quantised_matrix.c $(wildcard src/model/checkpoint*.c) \
	src/model/config_values.c
fuzz_quantised_archives = $(model_a) $(device_a) $(file_a)
fuzz_quantised_corpus = tests/fuzz/quantised
fuzz_quantised_limits = -rss_limit_mb=1024 -max_len=8192 -timeout=10

# a GGUF file, with all that programs read of it
fuzz_gguf_sources = tests/fuzz/gguf_read.c $(wildcard src/model/gguf*.c)
fuzz_gguf_archives = $(model_a) $(device_a) $(file_a)
fuzz_gguf_corpus = tests/fuzz/gguf
fuzz_gguf_limits = -rss_limit_mb=2048 -max_len=16384 -timeout=20 -dict=tests/fuzz/gguf.dict

# a tokenizer.json, and a text behind it
fuzz_tokenizer_sources = $(wildcard src/tokenizer/*.c)
fuzz_tokenizer_corpus = tests/fuzz/tokenizer
fuzz_tokenizer_limits = -rss_limit_mb=2048 -max_len=4096 -timeout=20 -dict=tests/fuzz/tokenizer.dict

# a template of a conversation, and a message behind it
fuzz_chat_sources = $(wildcard src/chat/*.c)
fuzz_chat_corpus = tests/fuzz/chat
fuzz_chat_limits = -rss_limit_mb=2048 -max_len=4096 -timeout=20 -dict=tests/fuzz/chat.dict

define fuzz_rules
$$(O)/fuzz/$(1): $$(fuzz_$(1)_sources) $$(fuzz_$(1)_archives) $$(wildcard */*.h src/*/*.h)
	@mkdir -p $$(@D)
	clang $$(std) $$(WARN) $$(includes) $$(fuzz_flags) -o $$@ \
	    $$(fuzz_$(1)_sources) $$(fuzz_$(1)_archives) $$(model_libs) $$(kvfile_libs) \
	    $$(if $$(filter gguf quantised,$(1)),$$(device_libs)) -lm

# Its last line is how many inputs were tried. Memory that was freed and is kept apart, 256 MB by
# default, would count against the limit of the target.
fuzz-$(1): $$(O)/fuzz/$(1)
	@mkdir -p $$(O)/fuzz/$(1).corpus $$(O)/fuzz/found
	@ASAN_OPTIONS=quarantine_size_mb=64 $$< -max_total_time=$$(FUZZ_SECONDS) \
	    $$(fuzz_$(1)_limits) -artifact_prefix=$$(O)/fuzz/found/$(1)- \
	    $$(O)/fuzz/$(1).corpus $$(fuzz_$(1)_corpus) \
	    >$$(O)/fuzz/$(1).log 2>&1 || { tail -n 60 $$(O)/fuzz/$(1).log; false; }
	@echo "fuzz-$(1): $$$$(tail -n 1 $$(O)/fuzz/$(1).log)"
endef
$(foreach target,$(fuzz_targets),$(eval $(call fuzz_rules,$(target))))

# Templates from a grammar, the same ones for the same seed:
# make fuzz-grammar [GRAMMAR_SEED=1] [GRAMMAR_TEMPLATES=20000]
GRAMMAR_SEED = 1
GRAMMAR_TEMPLATES = 20000

$(O)/fuzz/grammar: tests/fuzz/chat_grammar.c $(fuzz_chat_sources) $(wildcard src/chat/*.h)
	@mkdir -p $(@D)
	clang $(std) $(WARN) $(includes) $(filter-out -fsanitize=%,$(fuzz_flags)) \
	    -fsanitize=address,undefined -o $@ $(filter %.c,$^) $(kvfile_libs) -lm

fuzz-grammar: $(O)/fuzz/grammar
	@$< $(GRAMMAR_SEED) $(GRAMMAR_TEMPLATES) >$(O)/fuzz/grammar.log 2>&1 || \
	    { tail -n 60 $(O)/fuzz/grammar.log; false; }
	@echo "fuzz-grammar: $$(tail -n 1 $(O)/fuzz/grammar.log)"

# GGUF files from a grammar: make fuzz-gguf-grammar [GRAMMAR_SEED=1] [GGUF_SECONDS=60]
GGUF_SECONDS = 60
gguf_grammar_sources = tests/fuzz/gguf_grammar.c tests/fuzz/gguf_draw.c tests/fuzz/gguf_read.c \
	$(wildcard src/model/*.c) $(wildcard src/tokenizer/*.c)

$(O)/fuzz/gguf_grammar: $(gguf_grammar_sources) $(model_a) $(device_a) $(file_a) \
    $(wildcard */*.h src/*/*.h tests/fuzz/*.h)
	@mkdir -p $(@D)
	clang $(std) $(WARN) $(includes) $(filter-out -fsanitize=% -DFUZZ,$(fuzz_flags)) \
	    -fsanitize=address,undefined -o $@ $(filter %.c,$^) $(filter %.a,$^) $(model_libs) \
	    $(kvfile_libs) $(device_libs)

fuzz-gguf-grammar: $(O)/fuzz/gguf_grammar
	@$< $(GRAMMAR_SEED) 1000000000 $(GGUF_SECONDS) >$(O)/fuzz/gguf_grammar.log 2>&1 || \
	    { tail -n 60 $(O)/fuzz/gguf_grammar.log; false; }
	@echo "fuzz-gguf-grammar: $$(tail -n 1 $(O)/fuzz/gguf_grammar.log)"

#? fuzz            libFuzzer on every parser [FUZZ_SECONDS=60]
fuzz: $(fuzz_targets:%=fuzz-%) fuzz-grammar fuzz-gguf-grammar

.PHONY: fuzz fuzz-grammar fuzz-gguf-grammar $(fuzz_targets:%=fuzz-%)
