# The kernels of gpu/ as nvcc compiles them, run on the emulator: see tests/ptx/README.md.
# make ptx-tests: a sample of the cases of tests/unit/ops; ALL=1: every case, and what no test runs.
# PTX_PARTS="attend mass": only those parts of it. PTX_FAULTS=0: without the planted faults.

ptx_names = $(patsubst gpu/%.cu,%,$(wildcard gpu/*.cu))
ptx_o = $(ptx_names:%=$(O)/ptx/%.o)
ptx_runtime_o = $(patsubst tests/ptx/%.cc,$(O)/ptx/runtime/%.o,$(wildcard tests/ptx/*.cc))
ptx_translator = $(filter-out %_check.py,$(wildcard tests/ptx/ptx_*.py))
PTX_PARTS =
PTX_FAULTS = 1

ptx_nvcc = $(NVCC) -std=c++20 -O3 -lineinfo -arch=compute_$(ptx_arch) -ptx
ptx_arch = 90
$(O)/ptx/primitives.ptx: ptx_arch = 90a
$(O)/ptx/gpu_attend_wgmma.ptx $(O)/ptx/gpu_mass_wgmma.ptx: ptx_arch = 90a -DSM90A
# Generated code has labels and registers that nothing uses. A contraction that nvcc did not make
# must not be made here; fmaf() is one instruction where the processor has it.
ptx_fma := $(if $(shell grep -w fma /proc/cpuinfo 2>/dev/null),-mfma)
ptx_cxx = $(CXX) -std=c++20 $(ptx_fma) -ffp-contract=off -fwrapv -fno-strict-aliasing \
	-Itests/cuda $(includes) -c
ptx_nvcc.flags := $(ptx_nvcc)
ptx_cxx.flags := $(ptx_cxx)
$(O)/ptx_nvcc.flags: $(call changed,ptx_nvcc.flags)
$(O)/ptx_cxx.flags: $(call changed,ptx_cxx.flags)

define ptx_of_cuda
@mkdir -p $(@D)
$(ptx_nvcc) $(includes) -MMD -MF $(@:.ptx=.ptx.d) -MT $@ -o $@ $<
endef
$(O)/ptx/%.ptx: gpu/%.cu $(O)/ptx_nvcc.flags
	$(ptx_of_cuda)
$(O)/ptx/%.ptx: tests/gpu/%.cu $(O)/ptx_nvcc.flags
	$(ptx_of_cuda)
$(O)/ptx/%.cc: $(O)/ptx/%.ptx $(ptx_translator)
	python3 tests/ptx/ptx_to_c.py $< $@
$(O)/ptx/%.o: $(O)/ptx/%.cc $(O)/ptx_cxx.flags
	$(ptx_cxx) -Og -w -MMD -MP -o $@ $<
$(O)/ptx/runtime/%.o: tests/ptx/%.cc $(O)/ptx_cxx.flags
	@mkdir -p $(@D)
	$(ptx_cxx) -O2 -g -Wall -Wextra $(WERROR) -MMD -MP -o $@ $<

# the order is that of the link
ptx_ops_inputs = $(ops_o) $(O)/src/ops/compose.o $(ptx_o) $(ptx_runtime_o) $(O)/libcpu.a \
	$(emulated_a) $(types_o)
ptx_primitives_inputs = $(O)/emulated/primitives.o $(O)/ptx/primitives.o $(ptx_runtime_o) \
	$(emulator_o) $(O)/libkvfile/dtype.o
ptx_link = $(CXX) $(sanitize) $(LDFLAGS)
$(O)/ptx/ops_ptx: $(ptx_ops_inputs)
	$(ptx_link) -o $@ $^ $(emulated_libs)
$(O)/ptx/primitives_ptx: $(ptx_primitives_inputs)
	$(ptx_link) -o $@ $^ $(emulated_libs)

ptx_programs = $(O)/ptx/ops_ptx $(O)/ptx/primitives_ptx $(O)/emulated/primitives

ifeq ($(NVCC),)
ptx-tests:
	@echo "ptx-tests: there is no nvcc: nothing is tested"
else
#? ptx-tests       kernels as nvcc compiles them, without a GPU
ptx-tests: $(ptx_programs)
	@PTX_FAULTS=$(PTX_FAULTS) PTX_NVCC=$(call quoted,$(ptx_nvcc)) \
	    PTX_CXX=$(call quoted,$(ptx_cxx) -Og -w) \
	    PTX_LINK=$(call quoted,$(ptx_link)) PTX_LIBS=$(call quoted,$(emulated_libs)) \
	    PTX_OPS=$(call quoted,$(ptx_ops_inputs)) \
	    PTX_PRIMITIVES=$(call quoted,$(ptx_primitives_inputs)) \
	    sh tests/ptx/ptx_tests.sh $(if $(ALL),-l,-s) $(O)/ptx $(PTX_PARTS)
endif

.PHONY: ptx-tests
