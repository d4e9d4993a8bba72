# make abi-check: compares the ABI of libkvfile.so with that of the last release, libkvfile/abi/.
# make abi: writes it anew, after a change that libkvfile(3), Compatibility, allows, or with another
# SOVERSION. Look at the difference before you commit it.
#
# x86_64.xml is what abidw, of libabigail, says of the functions and of the types that they reach;
# constants.txt has the values of the headers' constants, most of which no function reaches. What is
# added is no difference: functions, enumerators, constants.

abi = libkvfile/abi
# A library of its own, since the usual one may have any flags.
abi_so = $(O)/abi/libkvfile.so
abi_options = --exported-interfaces-only --drop-private-types --headers-dir $(O)/abi/include \
	--no-corpus-path --no-comp-dir-path --no-show-locs --no-elf-needed --no-parameter-names \
	--type-id-style hash
not_here = $(if $(filter x86_64-%,$(shell $(CC) -dumpmachine)),,yes)

abi-library:
	+@$(MAKE) -s --no-print-directory O=$(O)/abi SAN= GPU=0 CFLAGS=-g LDFLAGS= WERROR= $(abi_so)
	@rm -rf $(O)/abi/include && mkdir $(O)/abi/include
	@cp $(installed_headers) $(O)/abi/include

# Enumerators, and macros that stand for a number. Two of them grow: the set of indexes, and the
# number behind the last kind.
$(O)/abi/constants.txt: $(installed_headers)
	@mkdir -p $(@D)
	@{ \
		printf '#include "libkvfile/codec.h"\n#include <stdio.h>\nint\nmain(void)\n{\n'; \
		{ \
			$(CC) $(includes) -E -P libkvfile/codec.h | tr '{,}' '\n' | \
			    sed -nE 's/^ *(KV_[A-Z0-9_]+)( *=.*)?;?$$/\1/p'; \
			sed -nE 's/^#define (KV_[A-Z0-9_]+) +[0-9(].*/\1/p' $^; \
		} | grep -vxE 'KV_KIND_END|KV_ALL_INDEXES' | sort -u | \
		    sed 's/.*/\tprintf("%s %lld\\n", "&", (long long)&);/'; \
		printf '\treturn 0;\n}\n'; \
	} >$(O)/abi/constants.c
	@$(CC) $(includes) -o $(O)/abi/constants $(O)/abi/constants.c
	@$(O)/abi/constants >$@

abi: abi-library $(O)/abi/constants.txt
	abidw $(abi_options) $(abi_so) >$(O)/abi/x86_64.xml
	mkdir -p $(abi)
	cp $(O)/abi/x86_64.xml $(O)/abi/constants.txt $(abi)

# libabigail 2.2 cannot compare such a file with a library.
abi-check: abi-library $(O)/abi/constants.txt
ifeq ($(not_here),yes)
	@echo "The ABI is compared on x86-64 only."
else
	@abidw $(abi_options) $(abi_so) >$(O)/abi/x86_64.xml
	@abidiff --no-added-syms $(abi)/x86_64.xml $(O)/abi/x86_64.xml >$(O)/abi/difference || { \
		cat $(O)/abi/difference; \
		printf '%s\n' $(call quoted,$(abi_changed)); \
		exit 1; \
	}
	@comm -23 $(abi)/constants.txt $(O)/abi/constants.txt >$(O)/abi/difference
	@[ ! -s $(O)/abi/difference ] || { \
		echo "These constants have gone, or have another value:"; \
		cat $(O)/abi/difference; \
		printf '%s\n' $(call quoted,$(abi_changed)); \
		exit 1; \
	}
	@echo "libkvfile.so has the ABI of $(abi)."
endif
abi_changed = The ABI of libkvfile.so has changed. If libkvfile(3), Compatibility, allows it, \
	make abi writes it to $(abi); else SOVERSION grows, too.

.PHONY: abi abi-check abi-library
