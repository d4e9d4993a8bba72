# A malloc() that fails when a test asks it to, for tests/out_of_memory.bats.
# No sanitizer's malloc beside it.

$(O)/tests/bin/failing_malloc.so: tests/bin/failing_malloc.c
	@mkdir -p $(@D)
	$(CC) $(std) $(CFLAGS) $(WARN) $(WERROR) -fPIC -shared -o $@ $<

test_programs += $(O)/tests/bin/failing_malloc.so
