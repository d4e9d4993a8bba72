# Unit tests of cli/: what is of a process, and cannot be looked at through a program.

cli_tests = mapped_file bus_error
UNIT_TESTS += $(cli_tests:%=$(O)/tests/unit/cli_%)
$(cli_tests:%=$(O)/tests/unit/cli_%): $(O)/tests/unit/cli_%: \
    $(O)/tests/unit/cli_%.o $(O)/src/cli/%.o
	$(CC) $(CFLAGS) $(sanitize) $(LDFLAGS) -o $@ $^ -lpthread
