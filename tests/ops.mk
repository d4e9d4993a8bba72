# Unit test of the op table: every op against double precision, on every instruction set that runs here

UNIT_TESTS += $(O)/tests/unit/ops

ops_o = $(patsubst %.c,$(O)/%.o,$(wildcard tests/unit/ops*.c))

$(O)/tests/unit/ops: $(ops_o) $(O)/libcpu.a $(O)/libgpu.a $(O)/libkvfile/dtype.o
	$(CC) $(CFLAGS) $(sanitize) $(LDFLAGS) -o $@ $^ $(cpu_libs)
