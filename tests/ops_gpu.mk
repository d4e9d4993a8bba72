# The programs of tests/gpu/run.sh, for a GPU (make gpu-tests) and for the emulator
# (make emulated-tests).

gpu_tests = $(patsubst %,$(O)/tests/gpu/%,bench_gpu whole primitives)
emulated_tests = $(patsubst %,$(O)/emulated/%,bench_gpu whole primitives)
test_programs += $(emulated_tests)

gpu_bench_o = $(patsubst %.c,$(O)/%.o,$(wildcard tests/gpu/bench_*.c))
$(O)/tests/gpu/bench_gpu: $(gpu_bench_o) $(O)/tests/gpu/event_clock.o \
    $(O)/src/ops/compose.o $(O)/libgpu.a $(types_o)
	$(CC) $(CFLAGS) $(sanitize) $(LDFLAGS) -o $@ $^ $(device_libs)
$(O)/tests/gpu/whole: $(O)/tests/gpu/whole.o $(cli_a) $(engine_a) $(model_a) $(device_a) $(file_a)
	$(CC) $(CFLAGS) $(sanitize) $(LDFLAGS) -o $@ $^ $(model_libs) $(kvfile_libs) $(device_libs)
$(O)/tests/gpu/primitives.o $(O)/tests/gpu/event_clock.o: $(O)/%.o: %.cu $(O)/nvcc.flags
	@mkdir -p $(@D)
	$(if $(with_gpu),$(nvcc),$(error these tests want a GPU and nvcc, or GPU=1)) -c -o $@ $<
$(O)/tests/gpu/primitives.o: targets = $(call targets_of,$(GPU_ARCHS:90=90a))
$(O)/tests/gpu/primitives: $(O)/tests/gpu/primitives.o $(O)/libkvfile/dtype.o
	$(CC) $(CFLAGS) $(sanitize) $(LDFLAGS) -o $@ $^ $(cuda_libs) -lm

$(O)/emulated/bench_gpu: $(gpu_bench_o) $(O)/emulated/event_clock.o $(O)/src/ops/compose.o \
    $(emulated_a) $(types_o)
	$(CXX) $(CFLAGS) $(sanitize) $(LDFLAGS) -o $@ $^ $(emulated_libs)
$(O)/emulated/whole: $(O)/tests/gpu/whole.o $(cli_a) $(engine_a) $(emulated_model_a)
	$(CXX) $(CFLAGS) $(sanitize) $(LDFLAGS) -o $@ $^ $(emulated_model_libs)
$(O)/emulated/primitives.o $(O)/emulated/event_clock.o: $(O)/emulated/%.o: \
    tests/gpu/%.cu $(O)/cxx.flags
	@mkdir -p $(@D)
	$(emulated_cxx) -x c++ -c -o $@ $<
$(O)/emulated/primitives: $(O)/emulated/primitives.o $(emulator_o) $(O)/libkvfile/dtype.o
	$(CXX) $(CFLAGS) $(sanitize) $(LDFLAGS) -o $@ $^ -lm

# What they capture must not be refilled behind their back.
UNIT_TESTS += $(O)/tests/unit/gpu_event_clock
$(O)/tests/unit/gpu_event_clock: $(O)/tests/unit/gpu_event_clock.o $(O)/emulated/event_clock.o \
    $(O)/src/ops/compose.o $(O)/libcpu.a $(emulated_a) $(types_o)
	$(CXX) $(CFLAGS) $(sanitize) $(LDFLAGS) -o $@ $^ $(emulated_libs)

gpu-tests: all $(gpu_tests) $(O)/tests/unit/ops $(O)/emulated/primitives
emulated-tests: all emulated $(emulated_tests) $(O)/tests/unit/ops_emulated

# make gpu-bundle: $(O)/gpu-bundle and $(O)/gpu-bundle.tar.xz, all that run.sh needs on a machine
# with nothing but a driver (see tests/gpu/README.md), for GPUs of the architecture BUNDLE_ARCH,
# which need not be here. With GPU=0 the same for the emulator. It is built apart, because programs
# of a bundle look for libraries beside them; $$ORIGIN goes through two makes and a shell.
BUNDLE_ARCH = 90
bundle_origin = \$$\$$ORIGIN
bundle_folders = $(bundle_origin)/lib:$(bundle_origin)/../lib:$(bundle_origin)/../../lib
bundle_path = -Wl,--disable-new-dtags,-rpath,'$(bundle_folders)'
#? gpu-bundle      tests of the GPU for a machine that has one and no compiler
gpu-bundle:
	$(MAKE) O=$(O)/bundled GPU=$(GPU:auto=1) GPU_ARCHS=$(BUNDLE_ARCH) \
	    LDFLAGS="$(LDFLAGS) $(bundle_path)" $(if $(filter 0,$(GPU)),emulated-tests,gpu-tests)
	sh tests/gpu/bundle.sh $(call quoted,$(abspath $(O)/bundled)) \
	    $(call quoted,$(abspath $(O)/gpu-bundle))

# No kernel may keep registers in memory.
spills: $(gpu_o)
	sh tests/gpu/spills.sh $(gpu_o:.o=.ptxas)

.PHONY: spills gpu-tests emulated-tests gpu-bundle
