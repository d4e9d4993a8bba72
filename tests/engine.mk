# Unit tests of engine/: codes, messages, and contexts side by side in one process, without cli/.

engine_tests = $(patsubst %.c,$(O)/%,$(wildcard tests/unit/engine_*.c))
UNIT_TESTS += $(engine_tests)

$(engine_tests): %: %.o $(O)/tests/unit/kvfile_sample.o $(engine_a) $(model_a) $(device_a) $(file_a)
	$(CC) $(CFLAGS) $(sanitize) $(LDFLAGS) -o $@ $^ $(model_libs) \
	    $(kvfile_libs) $(device_libs)
$(engine_tests:=.o): \
    override CPPFLAGS += -DDEMO_MODEL=$(call c_string,$(abspath examples/demo-model))
