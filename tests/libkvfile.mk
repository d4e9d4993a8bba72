# Unit tests of libkvfile, and its fuzz target

kvfile_tests = codec content copy damage dtype dump keyindex log output vectors
UNIT_TESTS += $(kvfile_tests:%=$(O)/tests/unit/kvfile_%) $(O)/tests/unit/kvfile_symbols

$(kvfile_tests:%=$(O)/tests/unit/kvfile_%): $(O)/tests/unit/kvfile_%: $(O)/tests/unit/kvfile_%.o \
    $(O)/tests/unit/kvfile_sample.o $(O)/libkvfile.a
	$(CC) $(CFLAGS) $(sanitize) $(LDFLAGS) -o $@ $^ $(kvfile_libs) -lm

$(patsubst %,$(O)/tests/unit/kvfile_%.o,dump keyindex vectors): CPPFLAGS += -DVECTORS='"$(CURDIR)/formats/vectors"'

# Looks at the archives that were built; a sanitizer's own symbols are none of ours.
$(O)/tests/unit/kvfile_symbols: tests/unit/kvfile_symbols.sh $(O)/libkvfile.a $(O)/libkvfile.so
	@mkdir -p $(@D)
	printf '#!/bin/sh\nexec sh %s %s %s\n' $(CURDIR)/$< $(abspath $(filter %.a %.so,$^)) > $@
	chmod +x $@

# make fuzz-reader [FUZZ_SECONDS=60]: libFuzzer from kv_open() to kv_check_index(), hashes are
# taken to be right. What it finds lies in $(O)/fuzz/found and becomes a vector.
FUZZ_SECONDS = 60
fuzz_flags = -g -O1 -DFUZZ -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=undefined

$(O)/fuzz/reader: $(wildcard libkvfile/*.[ch])
	@mkdir -p $(@D)
	clang $(std) $(WARN) -I. $(fuzz_flags) -o $@ $(filter %.c,$^) $(kvfile_libs)

fuzz-reader: $(O)/fuzz/reader
	@mkdir -p $(O)/fuzz/corpus $(O)/fuzz/found
	$< -max_total_time=$(FUZZ_SECONDS) -rss_limit_mb=512 -max_len=65536 -timeout=10 \
	    -artifact_prefix=$(O)/fuzz/found/ $(O)/fuzz/corpus \
	    formats/vectors/passed formats/vectors/failed

.PHONY: fuzz-reader
