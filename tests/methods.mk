# Tests of methods/ and of the programs that need no model.

$(O)/tests/bin/mksnapshot: $(O)/tests/bin/mksnapshot.o $(cli_a) $(engine_a) $(model_a) $(file_a)
	$(CC) $(CFLAGS) $(sanitize) $(LDFLAGS) -o $@ $^ $(kvfile_libs) -lm

methods_tests = $(patsubst %.c,$(O)/%,$(wildcard tests/unit/methods_*.c))
$(methods_tests): $(O)/%: $(O)/%.o $(file_a)
	$(CC) $(CFLAGS) $(sanitize) $(LDFLAGS) -o $@ $^ $(kvfile_libs) -lm

UNIT_TESTS += $(methods_tests)
test_programs += $(O)/tests/bin/mksnapshot
