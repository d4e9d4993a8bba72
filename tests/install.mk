# install, uninstall, unit, test, lint. Honours PREFIX and DESTDIR, and O: `make test O=build-asan SAN=1` tests that build.
# ALL=1: also what CONTRIBUTING.md says that a usual run of the tests leaves out. QUICK=1: without the files that take long.

INSTALL = install
BATS = bats
ALL =
QUICK =
TEST_LOCALE = C.UTF-8
DOCDIR = $(PREFIX)/share/doc/kvpipe
BATSDIR = $(PREFIX)/lib/bats
SHAREDIR = $(PREFIX)/share/kvpipe
# beside the examples in Python, which find it there
PYTHONDIR = $(SHAREDIR)/python
BASHCOMPDIR = $(PREFIX)/share/bash-completion/completions
ZSHCOMPDIR = $(PREFIX)/share/zsh/site-functions
FISHCOMPDIR = $(PREFIX)/share/fish/vendor_completions.d
SOVERSION = 1

installed_headers = $(addprefix libkvfile/,kvfile.h codec.h dtype.h kinds.h)
installed_docs = README.md NEWS.md SECURITY.md LICENSE formats/kv-snapshot.md
# what kvpipe(7) names, and the demo model without what made it
installed_examples = $(addprefix examples/,accuracy.sh compare.sh report.py) $(wildcard $(addprefix examples/,methods/*.sh experiments/* prompts/* transformers/*.py python/*.py)) \
	$(addprefix examples/demo-model/,README.md config.json generation_config.json model.safetensors tokenizer.json \
	    tokenizer_config.json kvpipe-methods.conf duoattention.tsv documents.py bpe.py corpus.py) \
	$(wildcard examples/demo-model/lookahead/* examples/demo-model/retrieval-head/*) \
	$(wildcard $(addprefix examples/smollm2/,README.md hub_folder.py kvpipe-methods.conf *.tsv lookahead/* retrieval-head/*))
installed_python = $(wildcard python/kvsnapshot/*.py)
pages = $(wildcard man/*.[1-9])
scripts = $(wildcard examples/*.sh examples/*/*.sh tests/*.sh tests/*/*.sh src/cli/*.sh) .ci/run

# A folder's name for the shell.
to = $(call quoted,$(DESTDIR)$(1))

# Variables of kvfile.pc, which quotes them where it uses them: a quotation mark would end that, and # begins a comment.
hash := \#
pc_line = $(if $(findstring ",$(2)),$(error kvfile.pc cannot name $(2): it has a quotation mark),$(call quoted,$(1)=$(subst $(hash),\$(hash),$(2))))
pc_lines = $(call pc_line,prefix,$(PREFIX)) $(call pc_line,libdir,$(LIBDIR)) $(call pc_line,includedir,$(INCLUDEDIR)) \
	$(call pc_line,pythondir,$(PYTHONDIR)) $(call quoted,Version: $(VERSION))

install: all $(O)/libkvfile.a
	$(INSTALL) -d $(call to,$(BINDIR)) $(call to,$(LIBDIR)/pkgconfig) $(call to,$(INCLUDEDIR)/kvfile) $(call to,$(DOCDIR)) \
	    $(call to,$(BATSDIR)/kvpipe) $(call to,$(PYTHONDIR)/kvsnapshot)
	$(INSTALL) $(TOOLS:%=$(O)/%) $(call to,$(BINDIR))
	$(INSTALL) -m 644 $(O)/libkvfile.a $(call to,$(LIBDIR))
	$(INSTALL) -m 755 $(O)/libkvfile.so $(call to,$(LIBDIR)/libkvfile.so.$(SOVERSION))
	ln -sf libkvfile.so.$(SOVERSION) $(call to,$(LIBDIR)/libkvfile.so)
	$(INSTALL) -m 644 $(installed_headers) $(call to,$(INCLUDEDIR)/kvfile)
	{ printf '%s\n' $(pc_lines) && cat libkvfile/kvfile.pc.in; } >$(call to,$(LIBDIR)/pkgconfig/kvfile.pc)
	for page in $(pages); do \
		dir=$(call to,$(MANDIR))/man$${page##*.} && $(INSTALL) -d "$$dir" && \
		$(INSTALL) -m 644 $$page "$$dir" || exit; \
	done
	$(INSTALL) -m 644 $(installed_docs) $(call to,$(DOCDIR))
	$(INSTALL) -m 644 tests/kvpipe/load.bash $(call to,$(BATSDIR)/kvpipe)
	$(INSTALL) -m 644 $(installed_python) $(call to,$(PYTHONDIR)/kvsnapshot)
	[ ! -s $(O)/completions/_kvpipe ] || { \
		$(INSTALL) -d $(call to,$(BASHCOMPDIR)) $(call to,$(ZSHCOMPDIR)) $(call to,$(FISHCOMPDIR)) && \
		$(INSTALL) -m 644 $(O)/completions/kvpipe.bash $(call to,$(BASHCOMPDIR)/kvpipe) && \
		$(INSTALL) -m 644 $(O)/completions/_kvpipe $(call to,$(ZSHCOMPDIR)) && \
		$(INSTALL) -m 644 $(TOOLS:%=$(O)/completions/%.fish) $(call to,$(FISHCOMPDIR)) && \
		for tool in $(TOOLS); do ln -sf kvpipe $(call to,$(BASHCOMPDIR))/$$tool || exit; done; \
	}
	for file in $(installed_examples:examples/%=%); do \
		$(INSTALL) -D -m 644 examples/$$file $(call to,$(SHAREDIR))/$$file || exit; \
	done
	@[ -n $(call quoted,$(DESTDIR)) ] || { $(loader_knows); } || printf '%s\n' $(call quoted,$(loader_does_not))

# A user's PATH need not have ldconfig, and who is not root cannot use it.
loader_knows = PATH=$$PATH:/usr/sbin:/sbin; ldconfig 2>/dev/null; ldconfig -p 2>/dev/null | grep -qF $(call quoted,> $(LIBDIR)/libkvfile.so)
loader_does_not = The loader does not know $(LIBDIR)/libkvfile.so: LD_LIBRARY_PATH, or a line in /etc/ld.so.conf and ldconfig (as root).

uninstall:
	rm -f $(foreach tool,$(TOOLS),$(call to,$(BINDIR)/$(tool)))
	rm -f $(foreach file,libkvfile.a libkvfile.so libkvfile.so.$(SOVERSION) pkgconfig/kvfile.pc,$(call to,$(LIBDIR)/$(file)))
	rm -rf $(call to,$(INCLUDEDIR)/kvfile) $(call to,$(DOCDIR)) $(call to,$(BATSDIR)/kvpipe) $(call to,$(PYTHONDIR)/kvsnapshot) \
	    $(call to,$(SHAREDIR))
	rm -f $(foreach name,kvpipe $(TOOLS),$(call to,$(BASHCOMPDIR)/$(name))) $(call to,$(ZSHCOMPDIR)/_kvpipe) \
	    $(foreach tool,$(TOOLS),$(call to,$(FISHCOMPDIR)/$(tool).fish))
	for page in $(pages:man/%=%); do rm -f $(call to,$(MANDIR))/man$${page##*.}/$$page; done

# The fragments beside this one add to UNIT_TESTS (programs that are tests) and test_programs (what bats files need built). Some of
# them are included later: both are expanded in recipes only.
built_for_tests = $(UNIT_TESTS) $(test_programs)
# Silent where there is nothing to do.
build = $(MAKE) -q $(1) >/dev/null 2>&1 || $(MAKE) --no-print-directory $(1)

unit:
	+@$(call build,$(UNIT_TESTS))
	@for test in $(UNIT_TESTS); do echo "$$test" && $$test || exit; done

# The unit tests as bats files, so that one runner counts everything: one for each part of the longest, which run side by side, and one for
# the rest. With ALL=1 the emulator takes up threads in every order.
# What is built here is built by a make of its own. What the same command asks for besides comes first, so that two never write one file.
$(O)/unit.bats: FORCE $(filter-out %/unit.bats test unit,$(MAKECMDGOALS))
	+@$(call build,all $(O)/libkvfile.a $(built_for_tests))
	@rm -f $(O)/unit_*.bats
	@for part in $$($(ops_emulated) -l); do \
		printf '# bats file_tags=slow\n@test "unit: ops_emulated, %s" { ASAN_OPTIONS= %s %s; }\n' "$$part" \
		    $(call quoted,$(call quoted,$(abspath $(ops_emulated)))$(if $(filter 1,$(ALL)), -a)) "$$part" >$(O)/unit_$$part.bats; \
	done
	@echo '# bats file_tags=slow' >$@
	@for test in $(filter-out $(ops_emulated),$(UNIT_TESTS)); do \
		printf '@test "unit: %s" { ASAN_OPTIONS= %s; }\n' "$${test##*/}" $(call quoted,$(call quoted,$(abspath $(O))))"$${test#$(O)}"; \
	done >>$@

# With SAN=1 those with the tag nosan are left out: they run no C of ours, only copy it, or measure its memory.
# With QUICK=1 those with the tag slow, the emulator among them.
bats_files = tests/*.bats
left_out = $(if $(filter 1,$(SAN)),-e '^# bats file_tags=.*nosan') $(if $(filter 1,$(QUICK)),-e '^# bats file_tags=slow')
some_files = $(if $(strip $(left_out)),$$(grep -L $(left_out) $(1)),$(1))
unit_parts = $$(find $(O) -maxdepth 1 -name 'unit_*.bats')
# A program that dies frees nothing: leaks are looked for in the unit tests only.
test: $(O)/unit.bats
	@O=$(call quoted,$(abspath $(O))) BATS=$(BATS) LC_ALL=$(TEST_LOCALE) ASAN_OPTIONS=detect_leaks=0 sh tests/run_files.sh \
	    $(O)/unit.bats $(call some_files,$(unit_parts) $(bats_files))

# SC2119: a function that takes arguments may be called without. SC2034: variables of the helper are used by those who load it. SC2154: bats sets stderr. SC2207: words of numbers into arrays.
lint:
	shellcheck -x -e SC2119 -P SCRIPTDIR $(scripts)
	shellcheck -x -s bash -e SC2034 $(wildcard tests/*.bash tests/*/*.bash)
	shellcheck -x -s bats -S warning -e SC2154,SC2207 $(wildcard tests/*.bats examples/*/*.bats)
	mandoc -T lint -W warning $(pages)

FORCE:
.PHONY: install uninstall unit test lint FORCE
