# kvpipe: make, make test, make install PREFIX= DESTDIR=. Everything built goes to $(O).

VERSION = 0.2.0
# of libkvfile.so; libkvfile(3), Compatibility, says when it grows
SOVERSION = 1
O = build
# make takes no names with spaces. The tree may stand in a folder that has some:
# what is below it is named from here.
override O := $(subst $(CURDIR)/,,$(O))
$(if $(word 2,$(O)),$(error O=$(O): make takes no names with spaces, but relative to the tree))
PREFIX = /usr/local
BINDIR = $(PREFIX)/bin
LIBDIR = $(PREFIX)/lib
INCLUDEDIR = $(PREFIX)/include
MANDIR = $(PREFIX)/share/man
PKG_CONFIG = pkg-config

# A text as one word of a shell; and as a string of C in such a word.
# Folders have names of any characters.
quoted = '$(subst ','\'',$(1))'
c_string = $(call quoted,"$(subst ",\",$(subst \,\\,$(1)))")

CFLAGS = -O2 -g
WARN = -Wall -Wextra -Wshadow -Wpointer-arith -Wstrict-prototypes -Wmissing-prototypes -Wvla
WERROR =
SAN =
# What runs a program that was made for another machine, to ask it for its options:
# qemu-aarch64 -L FOLDER
RUN =

# The CUDA backend. GPU=auto builds it where nvcc and a GPU are, for that GPU; GPU=1 builds it for
# GPU_ARCHS, where nvcc is; GPU=0 leaves it out. CUDA is the folder of the toolkit.
GPU = auto
CUDA = $(or $(patsubst %/bin/nvcc,%,$(shell command -v nvcc)),/usr/local/cuda)
NVCC = $(wildcard $(CUDA)/bin/nvcc)
# Compute capabilities, without the dot. 8.6 and 8.9 run the code of 8.0;
# the last one's PTX serves those to come.
GPU_ARCHS = 80 90

# SAN=1: AddressSanitizer and UndefinedBehaviorSanitizer
ifeq ($(SAN),1)
sanitize = -fsanitize=address,undefined -fno-sanitize-recover=undefined \
	-fno-omit-frame-pointer -DSANITIZED
endif

with_gpu := $(filter-out 0 auto,$(GPU))
silent = $(findstring s,$(firstword -$(MAKEFLAGS)))
ifneq ($(with_gpu),)
$(if $(NVCC),,$(error GPU=$(GPU) wants nvcc, and there is no $(CUDA)/bin/nvcc: \
	CUDA= names the folder of the CUDA Toolkit))
else ifeq ($(GPU)$(sanitize)$(if $(NVCC),,-),auto)
with_gpu := $(shell nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | \
	awk -F. '/^[0-9]+\.[0-9]+$$/ && $$1 >= 8 { print $$1 $$2 }' | sort -nu)
ifneq ($(with_gpu),)
GPU_ARCHS = $(with_gpu)
# the outermost make, where all is wanted, and no silence
else ifeq ($(MAKELEVEL)$(filter-out all,$(MAKECMDGOALS))$(silent),0)
$(info There is no NVIDIA GPU here: \
	GPU=1 builds the CUDA backend all the same, for $(GPU_ARCHS:%=sm_%,) and PTX)
endif
endif

# The libraries that are not installed are folders of src/:
# #include "cache/cache.h" is src/cache/cache.h.
includes = -I. -Isrc $(module_cflags)
# Offsets in files have 64 bits, on processors with 32, too.
std = -std=c11 -D_GNU_SOURCE -D_FILE_OFFSET_BITS=64 -DKVPIPE_VERSION='"$(VERSION)"'
cc = $(CC) $(std) $(CPPFLAGS) $(CFLAGS) $(WARN) $(WERROR) $(sanitize) -fPIC -MMD -MP $(includes)

# libkvfile/ cpu/ gpu/ and most folders of src/ become one archive each; those from ops/ to
# forward/, which run a model, become libmodel.a. tools/*.c become programs: some only read and
# write files, some know the text of tokens, some compute on a device without a model, some run one.
FILE_TOOLS = kv-check kv-convert kv-critical kv-evict kv-footprint kv-merge kv-plan kv-quantize \
	kvpipe
TEXT_TOOLS = kv-info
DEVICE_TOOLS = kv-diff kv-index kv-quantize1b kv-score
MODEL_TOOLS = kv-chat kv-decode kv-observe kv-prefill kv-recompute kv-tokenize kv-tsp-layer
TOOLS = $(FILE_TOOLS) $(TEXT_TOOLS) $(DEVICE_TOOLS) $(MODEL_TOOLS)

# Libraries, by the names that pkg-config has for them.
# A missing one is named before anything is compiled.
kvfile_modules = liblz4 libxxhash jansson
model_modules = libpcre2-8 libutf8proc
modules = $(kvfile_modules) $(model_modules) lapack
ifneq ($(filter-out clean uninstall lint html help dist,$(or $(MAKECMDGOALS),all)),)
ifeq ($(shell $(PKG_CONFIG) --exists $(modules) 2>/dev/null && echo yes),)
deps = `sh deps.sh build` installs what kvpipe needs
$(if $(shell $(PKG_CONFIG) --version 2>/dev/null),,$(error \
	there is no $(PKG_CONFIG): $(deps), PKG_CONFIG= names another))
not_found = $(strip $(foreach m,$(modules),$(shell $(PKG_CONFIG) --exists $(m) || echo $(m))))
$(error $(PKG_CONFIG) does not find $(not_found): $(deps))
endif
endif

module_cflags := $(shell $(PKG_CONFIG) --cflags $(modules) 2>/dev/null)
kvfile_libs = $(shell $(PKG_CONFIG) --libs $(kvfile_modules))
cuda_libs = $(if $(with_gpu),-L$(CUDA)/lib64 -lcudart_static -lstdc++ -ldl -lrt -lpthread)
model_libs = $(shell $(PKG_CONFIG) --libs $(model_modules))
device_libs = -ldnnl -fopenmp -lm $(cuda_libs)
lapack_libs = $(shell $(PKG_CONFIG) --libs lapack)

# The objects of folders
objects = $(patsubst %.c,$(O)/%.o,$(wildcard $(1:%=%/*.c)))
kvfile_o = $(call objects,libkvfile)
methods_o = $(call objects,src/methods)
model_o = $(call objects,$(addprefix src/,ops model cache offload retrieval forward))
gpu_o = $(if $(with_gpu),$(patsubst %.cu,$(O)/%.o,$(wildcard gpu/*.cu)),$(O)/gpu/nogpu.o)
tokenizer_o = $(call objects,src/tokenizer)
chat_o = $(call objects,src/chat)
engine_o = $(call objects,src/engine)
cli_o = $(call objects,src/cli)

# One source, three instruction sets: cpu/simd_*.c are compiled once for each,
# cpu/dispatch.c picks at run time.
simd_c = $(wildcard cpu/simd_*.c)
simd_o = $(foreach isa,base avx2 avx512,$(patsubst %.c,$(O)/%.$(isa).o,$(simd_c)))
cpu_o = $(patsubst %.c,$(O)/%.o,$(filter-out $(simd_c),$(wildcard cpu/*.c))) $(simd_o) \
	$(O)/src/ops/weight_type.o
base_flags = -DISA=base
avx2_flags = -DISA=avx2 -mavx2 -mfma -mf16c
avx512_flags = -DISA=avx512 -mavx512f -mavx512bw -mavx512dq -mavx512vl \
	-mavx2 -mfma -mf16c -mprefer-vector-width=512
# Products in bf16: for one set only, by cpu/bf16_avx512.c
bf16_flags = $(avx512_flags) -mavx512bf16
# Attention over quantised rows, likewise
vnni_flags = $(avx512_flags) -mavx512vnni -mavx512vbmi -mbmi2
# On other processors than x86-64 only the portable one is compiled.
ifeq ($(filter x86_64-%,$(shell $(CC) -dumpmachine)),)
simd_o = $(patsubst %.c,$(O)/%.base.o,$(simd_c))
bf16_flags =
vnni_flags =
endif

last_arch = $(lastword $(GPU_ARCHS))
nvcc = $(NVCC) -std=c++20 -O3 -lineinfo $(includes) -MMD -MP \
	-Xcompiler -fPIC,-Wall,-Wextra,-Wno-unused-parameter $(if $(WERROR),-Werror all-warnings) \
	$(targets)
targets = $(call targets_of,$(GPU_ARCHS))
targets_of = $(foreach a,$(1),-gencode arch=compute_$(a),code=sm_$(a)) \
	-gencode arch=compute_$(last_arch),code=compute_$(last_arch)

#? all             programs, library, completions (the default)
all: $(TOOLS:%=$(O)/%) $(O)/libkvfile.so $(O)/completions/_kvpipe

# Objects depend on a file with the command that makes them, which is written again only when the
# command has changed: another CFLAGS= builds again what it concerns. What is linked depends on its
# objects, so LDFLAGS count as theirs.
cc.flags := $(cc) $(LDFLAGS)
nvcc.flags := $(if $(with_gpu),$(nvcc))
changed = $(if $(subst <$($(1))>,,<$(file <$(O)/$(1))>),FORCE)
$(O)/cc.flags: $(call changed,cc.flags)
$(O)/nvcc.flags: $(call changed,nvcc.flags)
$(O)/%.flags:
	@mkdir -p $(@D)
	@printf '%s\n' $(call quoted,$($(@F))) >$@

# libcpu.a of $(cpu_o), and so on
.SECONDEXPANSION:
$(O)/lib%.a: $$($$*_o)
	@mkdir -p $(@D)
	rm -f $@ && $(AR) rcs $@ $^

# Exports what its map lists. A name there that no object has ends the link.
$(O)/libkvfile.so: $(kvfile_o) libkvfile/libkvfile.map
	$(CC) $(CFLAGS) $(sanitize) $(LDFLAGS) -shared $(no_undefined) \
	    -Wl,-soname,libkvfile.so.$(SOVERSION) \
	    -Wl,--version-script=$(filter %.map,$^) -Wl,--no-undefined-version \
	    -o $@ $(filter %.o,$^) $(kvfile_libs)
# A sanitizer's functions are in the program.
no_undefined = $(if $(sanitize),,-Wl,--no-undefined)

$(O)/%.o: %.c $(O)/cc.flags
	@mkdir -p $(@D)
	$(cc) $(openmp) -c -o $@ $<
$(cpu_o): openmp = -fopenmp
$(O)/cpu/bf16_avx512.o: openmp = -O3 $(bf16_flags)
$(O)/cpu/vnni_avx512.o $(O)/cpu/vnni_blocks.o: openmp = -O3 $(vnni_flags)
# loops over rows and channels; not CFLAGS, which a command line of make has the last word on
$(methods_o) $(O)/libkvfile/dtype.o: openmp = -O3
$(O)/%.base.o: %.c $(O)/cc.flags
	@mkdir -p $(@D)
	$(cc) $(openmp) -O3 $(base_flags) -c -o $@ $<
$(O)/%.avx2.o: %.c $(O)/cc.flags
	@mkdir -p $(@D)
	$(cc) $(openmp) -O3 $(avx2_flags) -c -o $@ $<
$(O)/%.avx512.o: %.c $(O)/cc.flags
	@mkdir -p $(@D)
	$(cc) $(openmp) -O3 $(avx512_flags) -c -o $@ $<

# wgmma is in code for sm_90a, which runs on Hopper alone: there these files are used.
ifneq ($(filter 90,$(GPU_ARCHS)),)
$(O)/gpu/gpu_attend_wgmma.o $(O)/gpu/gpu_mass_wgmma.o: \
    targets = -DSM90A -gencode arch=compute_90a,code=sm_90a
endif
$(O)/gpu/nogpu.o: $(O)/nvcc.flags
$(O)/gpu/%.o: gpu/%.cu $(O)/nvcc.flags
	@mkdir -p $(@D)
	$(nvcc) -Xptxas -v -c -o $@ $< 2>$(@:.o=.ptxas) || { cat $(@:.o=.ptxas) >&2; false; }
	@grep -v '^ptxas info\|bytes stack frame' $(@:.o=.ptxas) >&2 || true

file_a = $(O)/libmethods.a $(O)/libkvfile.a
# what rows of any type need of libkvfile
types_o = $(patsubst %,$(O)/libkvfile/%.o,dtype kivi rowtype)
device_a = $(O)/libcpu.a $(O)/libgpu.a
model_a = $(O)/libmodel.a $(O)/libtokenizer.a $(O)/libchat.a
engine_a = $(O)/libengine.a
cli_a = $(O)/libcli.a

# A program takes from the archives what it uses. What it must not use is kept from it, archives and
# libraries: without device_libs there is no device, without model_libs no tokenizer. So programs
# that only work on files can be built where oneDNN, PCRE2 and utf8proc are not.
# Likewise the programs of a wheel (wheel.mk).
both = $(1:%=$(O)/%) $(1:%=$(O)/wheel/bin/%)
libs = $(kvfile_libs) -lm
$(call both,$(DEVICE_TOOLS)): libs = $(kvfile_libs) $(device_libs)
$(call both,$(TEXT_TOOLS)): libs = $(model_libs) $(kvfile_libs) -lm
$(call both,$(MODEL_TOOLS)): libs = $(model_libs) $(kvfile_libs) $(device_libs)
# eigenvectors
$(call both,kv-index): libs += $(lapack_libs)
file_tool_a = $(O)/libmodel.a $(O)/src/tokenizer/utf8.o
tool_a = $(cli_a) $(engine_a) $(if $(filter $(FILE_TOOLS),$(1)),$(file_tool_a),$(model_a)) \
	$(if $(filter $(DEVICE_TOOLS) $(MODEL_TOOLS),$(1)),$(device_a)) $(file_a)
$(TOOLS:%=$(O)/%): $(O)/%: $(O)/tools/%.o $$(call tool_a,$$*)
	$(CC) $(CFLAGS) $(sanitize) $(LDFLAGS) -o $@ $^ $(libs)

# All of them; this one is written before fish's. It is empty where the programs,
# made for another machine, do not run here.
$(O)/completions/_kvpipe: src/cli/completions.sh $(TOOLS:%=$(O)/%)
	RUN='$(RUN)' sh $< $(@D) $(TOOLS:%=$(O)/%)

#? html            pages and documents as a site, in build/html
html:
	python3 man/make_site.py $(O)/html

# in order: some use what those before them define
include install.mk release.mk wheel.mk $(sort $(wildcard tests/*.mk))

#? clean           removes what was built
clean:
	rm -rf $(O)

-include $(shell find $(O) -name '*.d' -type f 2>/dev/null)

.DELETE_ON_ERROR:
.SECONDARY:
.PHONY: all html clean
