# wheel, wheel-cuda: for pip, into $(O)/dist. WHEEL_PYTHON runs python/make_wheel.py.
#
# kvpipe has the programs and all that `make install` puts below share/, and the Python packages.
# Its programs find their libraries in libexec/kvpipe of the same prefix (pip install --target
# leaves lib/ out). The CUDA backend is a library there as well: that of kvpipe is the one that is
# not there, and that of kvpipe-cuda, in libexec/kvpipe/cuda, is found before it.

WHEEL_PYTHON = python3
make_wheel = $(WHEEL_PYTHON) python/make_wheel.py --version $(VERSION)

in_wheel = $(TOOLS:%=$(O)/wheel/bin/%)

# In a wheel is what make install puts below share/: one list of files.
wheel: all $(O)/libkvfile.a $(in_wheel)
	rm -rf $(O)/wheel/stage
	+$(MAKE) --no-print-directory -o all -o $(O)/libkvfile.a install BUILT=$(O)/wheel/bin \
	    DESTDIR=$(O)/wheel/stage PREFIX=/kvpipe
	$(make_wheel) --stage $(O)/wheel/stage/kvpipe --lib $(O)/wheel/lib \
	    $(lapack_archives:%=--archive %) $(O)/dist

# LAPACK as archives, of which kv-index takes a hundredth; other libraries stand beside the
# programs.
archive = $(filter /%,$(shell $(CC) -print-file-name=lib$(1).a))
found = $(foreach name,lapack blas gfortran,$(call archive,$(name)))
lapack_archives = $(if $(filter 3,$(words $(found))),$(found))

# RPATH, not RUNPATH: also for what the libraries need
rpath = -Wl,--disable-new-dtags $(foreach folder,$(1),-Wl,-rpath,'$$ORIGIN/$(folder)')
wheel_link = $(CC) $(CFLAGS) $(LDFLAGS) -s -Wl,--as-needed -Wl,-rpath-link,$(O)/wheel/lib
computing = $(DEVICE_TOOLS) $(MODEL_TOOLS)
$(O)/wheel/bin/kv-index: private lapack_libs = \
	$(if $(lapack_archives),$(lapack_archives) -lquadmath,$(shell $(PKG_CONFIG) --libs lapack))
$(computing:%=$(O)/wheel/bin/%): private shared = $(O)/wheel/lib/libkvpipe.so
$(in_wheel): $(O)/tools/$$(@F).o $$(shared) $(cli_a) $(engine_a) $(model_a) $(O)/libcpu.a \
    $(file_a) wheel.mk
	@mkdir -p $(@D)
	$(wheel_link) $(call rpath,../libexec/kvpipe/cuda ../libexec/kvpipe) \
	    -o $@ $(filter-out %.mk,$^) $(libs)

# What the programs that compute have in common, once: all that they use but LAPACK, which kv-index
# takes for itself.
sharing = $(filter-out kv-index,$(computing))
used = $$(nm -u $(sharing:%=$(O)/tools/%.o) | sed -n 's/^ *U /-Wl,-u,/p')
$(O)/wheel/lib/libkvpipe.so: $(cli_a) $(engine_a) $(model_a) $(O)/libcpu.a $(file_a) \
    $(O)/wheel/lib/libkvcuda.so $(sharing:%=$(O)/tools/%.o) wheel.mk
	$(wheel_link) -shared -Wl,-soname,libkvpipe.so -Wl,-Bsymbolic -o $@ $(used) \
	    $(filter %.a %.so,$^) \
	    $(model_libs) $(kvfile_libs) $(filter-out $(cuda_libs),$(device_libs))

# Of the backend, one symbol
backend = $(wheel_link) -shared -Wl,-soname,libkvcuda.so -Wl,--no-undefined \
	-Wl,--version-script,gpu/libkvcuda.map -o $@ $(filter %.o,$^)
$(O)/wheel/lib/libkvcuda.so: $(O)/gpu/nogpu.o gpu/libkvcuda.map
	@mkdir -p $(@D)
	$(backend)

# PyPI's cuBLAS is beside what is installed, in a folder that Debian calls otherwise.
pythons = 3.9 3.10 3.11 3.12 3.13 3.14
package_folders = $(pythons:%=lib/python%/site-packages) . \
	$(patsubst %,lib/python%/dist-packages,3 $(pythons))
cuda_major = $(shell sed -n 's/^.define CUBLAS_VER_MAJOR *//p' $(CUDA)/include/cublas_api.h)
$(O)/wheel/cuda/libkvcuda.so: $(gpu_o) $(types_o) gpu/libkvcuda.map wheel.mk
	@mkdir -p $(@D)
	$(backend) $(cuda_libs) -lm \
	    $(call rpath,$(package_folders:%=../../../%/nvidia/cu$(cuda_major)/lib))
# of cudart, which is linked with it
cuda_licences = $(wildcard $(CUDA)/EULA.txt \
	$(CUDA)/dist-info/nvidia_cuda_runtime-*/licenses/*)
wheel-cuda: $(if $(with_gpu),$(O)/wheel/cuda/libkvcuda.so)
	$(if $<,,$(error wheel-cuda wants GPU=1))
	$(make_wheel) --cuda $< $(cuda_licences:%=--licence %) \
	    --cublas 'nvidia-cublas==$(cuda_major).*' $(O)/dist

.PHONY: wheel wheel-cuda
