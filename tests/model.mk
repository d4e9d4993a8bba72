# Unit tests of model/'s folder reading. They link its objects, not the archive: no backend, no tokenizer.

model_folder_o = $(patsubst %,$(O)/model/%.o,config config_keys config_kind config_rope config_scale config_values \
    config_window device_block \
    family folder model model_files rope safetensors tensor_shape)
model_unit = $(patsubst %,$(O)/tests/unit/%,model_config model_load model_rope model_safetensors)
UNIT_TESTS += $(model_unit)

$(model_unit): %: %.o $(model_folder_o) $(O)/libkvfile.a
	$(CC) $(CFLAGS) $(sanitize) $(LDFLAGS) -o $@ $^ $(kvfile_libs) -lm

# make fuzz-safetensors [FUZZ_SECONDS=60]: libFuzzer on the header. fuzz_flags are those of libkvfile.mk.
$(O)/fuzz/safetensors: model/safetensors.c model/model_files.c $(wildcard model/*.h)
	@mkdir -p $(@D)
	clang $(std) $(WARN) -I. $(fuzz_flags) -o $@ $(filter %.c,$^) $(kvfile_libs)

fuzz-safetensors: $(O)/fuzz/safetensors
	@mkdir -p $(O)/fuzz/safetensors.corpus $(O)/fuzz/found
	$< -max_total_time=$(FUZZ_SECONDS) -rss_limit_mb=1024 -max_len=4096 -timeout=10 \
	    -artifact_prefix=$(O)/fuzz/found/ -dict=tests/fuzz/safetensors.dict \
	    $(O)/fuzz/safetensors.corpus tests/fuzz/safetensors

.PHONY: fuzz-safetensors

# These need a whole model and a backend.
model_whole = $(patsubst %,$(O)/tests/unit/%,model_cache model_generate model_index model_observation \
    model_prompt_stream)
UNIT_TESTS += $(model_whole)
$(model_whole): %: %.o $(model_a) $(device_a) $(file_a)
	$(CC) $(CFLAGS) $(sanitize) $(LDFLAGS) -o $@ $^ $(model_libs) $(kvfile_libs) $(device_libs)
$(model_whole:=.o): CPPFLAGS += -DDEMO_MODEL='"$(abspath examples/demo-model)"'

# make oracle TRAIN_PYTHON=/folder/of/venv/bin/python: every family against transformers; 10 minutes
oracle: all
	/usr/bin/python3 tests/oracle/families.py oracle $(O)

.PHONY: oracle
