# What tests/gpu/run.sh needs, for a GPU ($(O)/gpu-tests) and for the emulator ($(O)/emulated-tests).

gpu_tests = $(patsubst %,$(O)/tests/gpu/%,bench_gpu primitives)
emulated_tests = $(patsubst %,$(O)/emulated/%,bench_gpu primitives)
test_programs += $(emulated_tests)

$(O)/tests/gpu/bench_gpu: $(O)/tests/gpu/bench_gpu.o $(O)/libgpu.a $(O)/libkvfile/dtype.o
	$(CC) $(CFLAGS) $(sanitize) $(LDFLAGS) -o $@ $^ $(device_libs)
$(O)/tests/gpu/primitives: tests/gpu/primitives.cu gpu/port.h $(O)/libkvfile/dtype.o
	@mkdir -p $(@D)
	$(filter-out -MMD -MP,$(nvcc)) -o $@ $(filter %.cu %.o,$^)

$(O)/emulated/bench_gpu: $(O)/tests/gpu/bench_gpu.o $(emulated_a) $(O)/libkvfile/dtype.o
	$(CC) $(CFLAGS) $(sanitize) $(LDFLAGS) -o $@ $^ $(emulated_libs)
$(O)/emulated/primitives.o: tests/gpu/primitives.cu
	@mkdir -p $(@D)
	$(emulated_cxx) -x c++ -c -o $@ $<
$(O)/emulated/primitives: $(O)/emulated/primitives.o $(emulator_o) $(O)/libkvfile/dtype.o
	$(CC) $(CFLAGS) $(sanitize) $(LDFLAGS) -o $@ $^ -lstdc++ -lm

gpu-tests: all $(gpu_tests) $(O)/tests/unit/ops $(O)/emulated/primitives
emulated-tests: all emulated $(emulated_tests) $(O)/tests/unit/ops_emulated

# No kernel may keep registers in memory.
spills: $(gpu_o)
	sh tests/gpu/spills.sh $(gpu_o:.o=.ptxas)

.PHONY: spills gpu-tests emulated-tests
