# The tokenizer: $(O)/tests/unit/tokenizer_*; and, for tests/oracle/tokenizer_diff.py by hand,
# $(O)/tests/libtokenizer.so

tokenizer_tests = $(patsubst %.c,$(O)/%,$(wildcard tests/unit/tokenizer_*.c))
UNIT_TESTS += $(tokenizer_tests)

$(tokenizer_tests): $(O)/%: $(O)/%.o $(tokenizer_o)
	$(CC) $(CFLAGS) $(sanitize) $(LDFLAGS) -o $@ $^ $(model_libs) $(kvfile_libs) -pthread

$(O)/tests/libtokenizer.so: $(tokenizer_o)
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $(LDFLAGS) -shared -o $@ $^ $(model_libs) $(kvfile_libs) -pthread
