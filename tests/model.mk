# Unit tests of src/model/. They link its objects, not the archive: no backend, no tokenizer.

model_folder_o = $(patsubst %,$(O)/src/ops/%.o,device_block weight_type) \
    $(patsubst %,$(O)/src/model/%.o,\
    bind_experts bind_experts_in_turns bind_latent bind_layer checkpoint checkpoint_awq \
    checkpoint_config checkpoint_gptq checkpoint_grid checkpoint_nf4 config config_experts \
    config_keys config_kind config_latent config_rope config_scale config_values config_window \
    config_wrapper family file_kind folder gguf gguf_arch gguf_config gguf_rope gguf_tensors \
    gguf_type gguf_value leftovers model model_files notice overrides rope row_order safetensors \
    safetensors_shards tensor_shape weights_hash weights_known)
model_unit = $(patsubst %,$(O)/tests/unit/%,model_config model_families model_gguf model_load \
    model_quantised model_rope model_safetensors model_weights)
UNIT_TESTS += $(model_unit)

$(model_unit): %: %.o $(model_folder_o) $(O)/libkvfile.a
	$(CC) $(CFLAGS) $(sanitize) $(LDFLAGS) -o $@ $^ $(kvfile_libs) -lm
$(O)/tests/unit/model_quantised.o: \
    override CPPFLAGS += -DQUANTISED=$(call c_string,$(CURDIR)/tests/fixtures/quantised)

# These need a whole model and a backend.
model_whole = $(patsubst %,$(O)/tests/unit/%,model_cache model_generate model_index \
    model_observation model_prompt_stream retrieval_lists)
UNIT_TESTS += $(model_whole)
$(model_whole): %: %.o $(model_a) $(device_a) $(file_a)
	$(CC) $(CFLAGS) $(sanitize) $(LDFLAGS) -o $@ $^ $(model_libs) $(kvfile_libs) $(device_libs)
$(model_whole:=.o): \
    override CPPFLAGS += -DDEMO_MODEL=$(call c_string,$(abspath examples/demo-model))

# make oracle TRAIN_PYTHON=/folder/of/venv/bin/python: every family against transformers; 10 minutes
#? oracle          every model family beside transformers
oracle: all
	/usr/bin/python3 tests/oracle/families.py oracle $(O)

.PHONY: oracle
