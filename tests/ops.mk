# Unit test of the op table: every op against double precision,
# on every instruction set that runs here and on the CUDA backend

UNIT_TESTS += $(O)/tests/unit/ops

ops_o = $(patsubst %.c,$(O)/%.o,$(wildcard tests/unit/ops*.c))

$(O)/tests/unit/ops_blocks.o: \
    override CPPFLAGS += -DFIXTURES=$(call c_string,$(CURDIR)/tests/fixtures/blocks)

$(O)/tests/unit/ops: $(ops_o) $(O)/src/ops/compose.o $(device_a) $(types_o)
	$(CC) $(CFLAGS) $(sanitize) $(LDFLAGS) -o $@ $^ $(device_libs)

# The CUDA backend without a GPU: gpu/*.cu compiled for the CPU against tests/cuda, which stands in
# for the CUDA toolkit. The unit test of the op table, and whole programs ($(O)/emulated/kv-...),
# run on it.

emulated_cxx = $(CXX) -std=c++20 -O2 -g -Wall -Wextra -Wno-unused-parameter $(WERROR) $(sanitize) \
	-Itests/cuda $(includes) -MMD -MP
cxx.flags := $(emulated_cxx)
$(O)/cxx.flags: $(call changed,cxx.flags)
emulated_a = $(O)/emulated/libgpu.a
emulator_o = $(patsubst tests/cuda/%.cc,$(O)/emulated/%.o,$(wildcard tests/cuda/*.cc))
emulated_o = $(patsubst %.cu,$(O)/emulated/%.o,$(wildcard gpu/*.cu)) $(emulator_o)
emulated_libs = $(filter-out $(cuda_libs),$(device_libs))
# what runs a model on it
emulated_model_a = $(model_a) $(O)/libcpu.a $(emulated_a) $(file_a)
emulated_model_libs = $(model_libs) $(kvfile_libs) $(emulated_libs)

$(O)/emulated/gpu/%.o: gpu/%.cu $(O)/cxx.flags
	@mkdir -p $(@D)
	$(emulated_cxx) -x c++ -c -o $@ $<
$(O)/emulated/%.o: tests/cuda/%.cc $(O)/cxx.flags
	@mkdir -p $(@D)
	$(emulated_cxx) -c -o $@ $<
$(emulated_a): $(emulated_o)
	rm -f $@ && $(AR) rcs $@ $^

ops_emulated = $(O)/tests/unit/ops_emulated
UNIT_TESTS += $(ops_emulated)
$(ops_emulated): $(ops_o) $(O)/src/ops/compose.o $(O)/libcpu.a $(emulated_a) $(types_o)
	$(CXX) $(CFLAGS) $(sanitize) $(LDFLAGS) -o $@ $^ $(emulated_libs)

UNIT_TESTS += $(O)/tests/unit/emulator_refuses
$(O)/emulated/emulator_refuses.o: tests/unit/emulator_refuses.cu $(O)/cxx.flags
	@mkdir -p $(@D)
	$(emulated_cxx) -x c++ -c -o $@ $<
$(O)/tests/unit/emulator_refuses: $(O)/emulated/emulator_refuses.o $(O)/src/ops/compose.o \
    $(O)/libcpu.a $(emulated_a) $(types_o)
	$(CXX) $(CFLAGS) $(sanitize) $(LDFLAGS) -o $@ $^ $(emulated_libs)

UNIT_TESTS += $(O)/tests/unit/model_generate_emulated
$(O)/tests/unit/model_generate_emulated: $(O)/tests/unit/model_generate.o $(emulated_model_a)
	$(CXX) $(CFLAGS) $(sanitize) $(LDFLAGS) -o $@ $^ $(emulated_model_libs)

UNIT_TESTS += $(O)/tests/unit/engine_two_methods_emulated
$(O)/tests/unit/engine_two_methods_emulated: $(O)/tests/unit/engine_two_methods.o $(engine_a) \
    $(emulated_model_a)
	$(CXX) $(CFLAGS) $(sanitize) $(LDFLAGS) -o $@ $^ $(emulated_model_libs)

emulated_tools = $(patsubst %,$(O)/emulated/%,$(DEVICE_TOOLS) $(MODEL_TOOLS))
$(emulated_tools): $(O)/emulated/%: $(O)/tools/%.o $(cli_a) $(engine_a) $(emulated_model_a)
	$(CXX) $(CFLAGS) $(sanitize) $(LDFLAGS) -o $@ $^ $(emulated_model_libs) $(lapack_libs)
emulated: $(emulated_tools)
test_programs += $(emulated_tools)

.PHONY: emulated
