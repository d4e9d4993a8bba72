# Unit tests of cli/: what is of a process, and cannot be looked at through a program.

UNIT_TESTS += $(O)/tests/unit/cli_mapped_file
$(O)/tests/unit/cli_mapped_file: $(O)/tests/unit/cli_mapped_file.o $(O)/cli/mapped_file.o
	$(CC) $(CFLAGS) $(sanitize) $(LDFLAGS) -o $@ $^ -lpthread
