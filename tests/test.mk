# unit, test, lint. Honours O: `make test O=build-asan SAN=1` tests that build.
# A usual run takes a sample of what has many cases of one kind; CONTRIBUTING.md says where.
# ALL=cases: every case. ALL=programs: every case but of the emulated ops, which `make ptx-tests`
# runs as nvcc compiles them. ALL=orders: a sample, which the emulated ops compute with threads in
# all three orders, not in the random one alone. ALL=1: every case, and all three orders.
# QUICK=1: without the files that take long.

BATS = bats
ALL =
QUICK =
TEST_LOCALE = C.UTF-8
scripts = $(wildcard *.sh examples/*.sh examples/*/*.sh tests/*.sh tests/*/*.sh \
	src/cli/*.sh) .ci/run $(filter-out %/control,$(wildcard debian/tests/*))

# The other fragments add to UNIT_TESTS (programs that are tests) and test_programs (what bats files
# need built). Some of them are included later: both are expanded in recipes only.
built_for_tests = $(UNIT_TESTS) $(test_programs)
# Silent where there is nothing to do.
build = $(MAKE) -q $(1) >/dev/null 2>&1 || $(MAKE) --no-print-directory $(1)

unit:
	+@$(call build,$(UNIT_TESTS))
	@for test in $(UNIT_TESTS); do echo "$$test" && $$test || exit; done

# Of the unit tests these take a sample of their cases with -s.
takes_sample = $(O)/tests/unit/ops $(O)/tests/unit/model_generate_emulated
sample_option = $(if $(filter 1 cases programs,$(ALL)),, -s)
order_option = $(if $(filter 1 orders,$(ALL)), -a)
emulated_option = $(if $(filter 1 cases,$(ALL)),, -s)$(order_option)
ops_part = $(call quoted,$(call quoted,$(abspath $(ops_emulated)))$(emulated_option))
# Parts that run kernels of Hopper, too; all cases of those with ALL=1 alone
hopper_parts = attend | between | mass | windows
hopper_part = $(call quoted,$(call quoted,$(abspath $(ops_emulated)))$(if \
	$(filter 1,$(ALL)),, -s)$(order_option))
# AddressSanitizer's memmem() looks at the whole text in each call, which makes a loop of it
# quadratic.
unit_env = ASAN_OPTIONS=intercept_memmem=0
# The unit tests as bats files, so that one runner counts everything: one for each part of the
# longest, which run side by side, and one for the rest.
# The programs are built by a make of its own. The other goals of the same command come first, so
# that two makes never write one file.
$(O)/unit.bats: FORCE $(filter-out %/unit.bats test unit,$(MAKECMDGOALS))
	+@$(call build,all $(O)/libkvfile.a $(built_for_tests))
	@rm -f $(O)/unit_*.bats
	@for part in $$($(ops_emulated) -l); do \
		{ \
			echo '# bats file_tags=slow' && \
			printf '@test "unit: ops_emulated, %s" { $(unit_env) %s %s; }\n' \
			    "$$part" $(ops_part) "$$part"; \
			case $$part in $(hopper_parts)) \
				printf '@test "unit: ops_emulated on Hopper, %s" {\n' "$$part" && \
				printf '\tKV_EMULATED_CAPABILITY=90 $(unit_env) %s %s\n}\n' \
				    $(hopper_part) "$$part" ;; \
			esac; \
		} >$(O)/unit_$$part.bats; \
	done
	@echo '# bats file_tags=slow' >$@
	@for test in $(filter-out $(ops_emulated),$(UNIT_TESTS)); do \
		option=; \
		case " $(takes_sample) " in *" $$test "*) option='$(sample_option)' ;; esac; \
		printf '@test "unit: %s" { $(unit_env) %s; }\n' "$${test##*/}" \
		    $(call quoted,$(call quoted,$(abspath $(O))))"$${test#$(O)}$$option"; \
	done >>$@

# With SAN=1 those with the tag nosan are left out: they run no C of ours that others do not, or
# measure its memory. With QUICK=1 those with the tag slow, the emulator among them.
bats_files = tests/*.bats
left_out = $(if $(filter 1,$(SAN)),-e '^# bats file_tags=.*nosan') \
	$(if $(filter 1,$(QUICK)),-e '^# bats file_tags=slow')
some_files = $(if $(strip $(left_out)),$$(grep -L $(left_out) $(1)),$(1))
unit_parts = $$(find $(O) -maxdepth 1 -name 'unit_*.bats')
# A program that dies frees nothing: leaks are looked for in the unit tests only.
#? test            all tests [QUICK=1] [ALL=cases] [SAN=1]
test: $(O)/unit.bats
	@O=$(call quoted,$(abspath $(O))) ALL=$(ALL) BATS=$(BATS) LC_ALL=$(TEST_LOCALE) \
	    ASAN_OPTIONS=detect_leaks=0 sh tests/run_files.sh $(O)/unit.bats \
	    $(call some_files,$(unit_parts) $(bats_files))

# SC2119: a function that takes arguments may be called without. SC2034: variables of the helper are
# used by those who load it. SC2154: bats sets stderr. SC2207: words of numbers into arrays.
#? lint            shellcheck and mandoc on scripts and pages
lint:
	shellcheck -x -e SC2119 -P SCRIPTDIR $(scripts)
	shellcheck -x -s bash -e SC2034 $(wildcard tests/*.bash tests/*/*.bash)
	shellcheck -x -s bats -S warning -e SC2154,SC2207 $(wildcard tests/*.bats examples/*/*.bats)
	mandoc -T lint -W warning $(pages)

FORCE:
.PHONY: unit test lint FORCE
