# make expect: writes what kv-info prints of the accepted vectors.
# Look at the difference before you commit it.

expect: $(O)/kv-info
	cd formats/vectors/passed && for f in *.kv; do \
		$(call quoted,$(abspath $(O)))/kv-info --all $$f >$${f%.kv}.txt; \
	done

.PHONY: expect
