# Unit tests of libkvfile

kvfile_tests = codec content copy damage dtype dump keyindex kivi log output quantised rows \
	rowtype vectors
UNIT_TESTS += $(kvfile_tests:%=$(O)/tests/unit/kvfile_%) $(O)/tests/unit/kvfile_symbols

$(kvfile_tests:%=$(O)/tests/unit/kvfile_%): $(O)/tests/unit/kvfile_%: $(O)/tests/unit/kvfile_%.o \
    $(O)/tests/unit/kvfile_sample.o $(O)/libkvfile.a
	$(CC) $(CFLAGS) $(sanitize) $(LDFLAGS) -o $@ $^ $(kvfile_libs) -lm

$(patsubst %,$(O)/tests/unit/kvfile_%.o,dump keyindex vectors): \
    override CPPFLAGS += -DVECTORS=$(call c_string,$(CURDIR)/formats/vectors)
$(O)/tests/unit/kvfile_sample.o: \
    override CPPFLAGS += -DFIXTURES=$(call c_string,$(CURDIR)/tests/fixtures/rows)

# Looks at the archives that were built; a sanitizer's own symbols are none of ours.
$(O)/tests/unit/kvfile_symbols: tests/unit/kvfile_symbols.sh $(O)/libkvfile.a $(O)/libkvfile.so
	@mkdir -p $(@D)
	printf '#!/bin/sh\nexec sh %s %s %s\n' \
	    $(foreach file,$^,$(call quoted,$(call quoted,$(abspath $(file))))) >$@
	chmod +x $@
