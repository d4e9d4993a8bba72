# kvpipe: make, make test, make install PREFIX= DESTDIR=. Everything built goes to $(O).

VERSION = 0.1.0
O = build
PREFIX = /usr/local
BINDIR = $(PREFIX)/bin
LIBDIR = $(PREFIX)/lib
INCLUDEDIR = $(PREFIX)/include
MANDIR = $(PREFIX)/share/man
PKG_CONFIG = pkg-config

CFLAGS = -O2 -g
WARN = -Wall -Wextra -Wshadow -Wpointer-arith -Wstrict-prototypes -Wmissing-prototypes -Wvla
WERROR =
SAN =

# SAN=1: AddressSanitizer and UndefinedBehaviorSanitizer
ifeq ($(SAN),1)
sanitize = -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
endif

std = -std=c11 -D_GNU_SOURCE -DKVPIPE_VERSION='"$(VERSION)"'
cc = $(CC) $(std) $(CPPFLAGS) $(CFLAGS) $(WARN) $(WERROR) $(sanitize) -fPIC -MMD -MP -I.

# libkvfile/ methods/ model/ cpu/ gpu/ become one archive each. tools/kv-*.c become programs: those in FILE_TOOLS know no model.
FILE_TOOLS = kv-check kv-evict kv-footprint kv-info $(DEVICE_TOOLS)
# These compute on a device, without a model.
DEVICE_TOOLS = kv-diff kv-index kv-quantize1b kv-score
MODEL_TOOLS = kv-decode kv-observe kv-prefill kv-tokenize
TOOLS = $(FILE_TOOLS) $(MODEL_TOOLS)

kvfile_libs = $(shell $(PKG_CONFIG) --libs liblz4 libxxhash jansson)
model_libs = $(shell $(PKG_CONFIG) --libs libpcre2-8 libutf8proc)
cpu_libs = -ldnnl -fopenmp -lm
lapack_libs = $(shell $(PKG_CONFIG) --libs lapack)

kvfile_o = $(patsubst %.c,$(O)/%.o,$(wildcard libkvfile/*.c))
methods_o = $(patsubst %.c,$(O)/%.o,$(wildcard methods/*.c))
model_o = $(patsubst %.c,$(O)/%.o,$(wildcard model/*.c))
gpu_o = $(patsubst %.c,$(O)/%.o,$(wildcard gpu/*.c))
tool_o = $(patsubst %,$(O)/tools/%.o,tool options progress snapio)

# One source, three instruction sets: cpu/simd_*.c are compiled once for each, cpu/dispatch.c picks at run time.
simd_c = $(wildcard cpu/simd_*.c)
simd_o = $(foreach isa,base avx2 avx512,$(patsubst %.c,$(O)/%.$(isa).o,$(simd_c)))
cpu_o = $(patsubst %.c,$(O)/%.o,$(filter-out $(simd_c),$(wildcard cpu/*.c))) $(simd_o)
base_flags = -DISA=base
avx2_flags = -DISA=avx2 -mavx2 -mfma -mf16c
avx512_flags = -DISA=avx512 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx2 -mfma -mf16c -mprefer-vector-width=512
# On other processors than x86-64 only the portable one is compiled.
ifeq ($(filter x86_64-%,$(shell $(CC) -dumpmachine)),)
simd_o = $(patsubst %.c,$(O)/%.base.o,$(simd_c))
endif

all: $(TOOLS:%=$(O)/%) $(O)/libkvfile.so

$(O)/libkvfile.a: $(kvfile_o)
$(O)/libmethods.a: $(methods_o)
$(O)/libmodel.a: $(model_o)
$(O)/libcpu.a: $(cpu_o)
$(O)/libgpu.a: $(gpu_o)
$(O)/lib%.a:
	@mkdir -p $(@D)
	rm -f $@ && $(AR) rcs $@ $^

$(O)/libkvfile.so: $(kvfile_o)
	$(CC) $(CFLAGS) $(sanitize) $(LDFLAGS) -shared -Wl,-soname,libkvfile.so.1 -o $@ $^ $(kvfile_libs)

$(O)/%.o: %.c
	@mkdir -p $(@D)
	$(cc) $(openmp) -c -o $@ $<
$(cpu_o): openmp = -fopenmp
# loops over rows and channels
$(O)/methods/cluster.o: CFLAGS += -O3
$(O)/%.base.o: %.c
	@mkdir -p $(@D)
	$(cc) $(openmp) -O3 $(base_flags) -c -o $@ $<
$(O)/%.avx2.o: %.c
	@mkdir -p $(@D)
	$(cc) $(openmp) -O3 $(avx2_flags) -c -o $@ $<
$(O)/%.avx512.o: %.c
	@mkdir -p $(@D)
	$(cc) $(openmp) -O3 $(avx512_flags) -c -o $@ $<

file_a = $(O)/libmethods.a $(O)/libkvfile.a
device_a = $(O)/libcpu.a $(O)/libgpu.a
model_a = $(O)/libmodel.a

$(patsubst %,$(O)/%,$(filter-out kv-evict $(DEVICE_TOOLS),$(FILE_TOOLS))): $(O)/%: $(O)/tools/%.o $(tool_o) $(file_a)
	$(CC) $(CFLAGS) $(sanitize) $(LDFLAGS) -o $@ $^ $(kvfile_libs) -lm
# kv-evict turns keys: it needs the model's frequencies, which are in its identity
$(O)/kv-evict: $(patsubst %,$(O)/%.o,tools/kv-evict tools/evicting tools/renumber tools/twice model/rope) $(tool_o) $(file_a)
	$(CC) $(CFLAGS) $(sanitize) $(LDFLAGS) -o $@ $^ $(kvfile_libs) -lm
$(O)/kv-footprint: $(patsubst %,$(O)/tools/%.o,critical jsonout)
$(O)/kv-info: $(patsubst %,$(O)/tools/%.o,indexinfo jsonout)
# kv-score and kv-diff compute attention: they need a device, but no model
$(O)/kv-score: $(patsubst %,$(O)/tools/%.o,kv-score scoring queries device) $(tool_o) $(device_a) $(file_a)
	$(CC) $(CFLAGS) $(sanitize) $(LDFLAGS) -o $@ $^ $(kvfile_libs) $(cpu_libs)
# kv-diff retrieves, too
$(O)/kv-diff: $(patsubst %,$(O)/tools/%.o,kv-diff comparing trying layerwise queries retrieving device jsonout) \
    $(patsubst %,$(O)/model/%.o,index index_content retrieve rope) $(tool_o) $(device_a) $(file_a)
	$(CC) $(CFLAGS) $(sanitize) $(LDFLAGS) -o $@ $^ $(kvfile_libs) $(cpu_libs)
# the index tools work on a device, too
$(O)/kv-quantize1b: $(patsubst %,$(O)/%.o,tools/kv-quantize1b tools/device model/index model/index_content) $(tool_o) $(device_a) $(file_a)
	$(CC) $(CFLAGS) $(sanitize) $(LDFLAGS) -o $@ $^ $(kvfile_libs) $(cpu_libs)
# kv-index undoes rotary embedding, and takes eigenvectors from LAPACK
$(O)/kv-index: $(patsubst %,$(O)/%.o,$(addprefix tools/,kv-index clustering device factors pages products) model/rope) $(tool_o) $(device_a) $(file_a)
	$(CC) $(CFLAGS) $(sanitize) $(LDFLAGS) -o $@ $^ $(kvfile_libs) $(lapack_libs) $(cpu_libs)
$(MODEL_TOOLS:%=$(O)/%): $(O)/%: $(O)/tools/%.o $(O)/tools/engine.o $(O)/tools/device.o $(tool_o) $(model_a) $(device_a) $(file_a)
	$(CC) $(CFLAGS) $(sanitize) $(LDFLAGS) -o $@ $(filter %.o,$^) $(filter %.a,$^) $(model_libs) $(kvfile_libs) $(cpu_libs)
# kv-prefill and kv-decode do what kv-score and kv-evict do, too
$(O)/kv-prefill: $(patsubst %,$(O)/tools/%.o,fused selecting tsplayer)
$(O)/kv-decode: $(O)/tools/retrieving.o
$(O)/kv-prefill $(O)/kv-decode: $(patsubst %,$(O)/tools/%.o,eviction scoring evicting growth products)

include $(wildcard tests/*.mk)

clean:
	rm -rf $(O)

-include $(shell find $(O) -name '*.d' 2>/dev/null)

.DELETE_ON_ERROR:
.SECONDARY:
.PHONY: all clean
