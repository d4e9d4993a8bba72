# make bench: speed of the ops as a share of peers measured in the same run

$(O)/tests/bench/bench_ops: $(O)/tests/bench/bench_ops.o $(O)/libcpu.a $(O)/libkvfile/dtype.o
	$(CC) $(CFLAGS) $(sanitize) $(LDFLAGS) -o $@ $^ $(cpu_libs)
$(O)/tests/bench/bench_ops.o: openmp = -O3 -fopenmp -Wno-psabi

bench: $(O)/tests/bench/bench_ops
	$(O)/tests/bench/bench_ops

.PHONY: bench
