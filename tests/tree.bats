#!/usr/bin/env bats
# bats file_tags=nosan
# The tree itself: which part may include which, names, lengths, what belongs to every program

load helper

setup() {
	cd "$ROOT" || exit 1
	export -f tree_files
}

# tree_files SUFFIX ...: the files of the tree with these suffixes, build folders aside
tree_files() {
	local suffix
	for suffix; do
		find . -path './.git' -prune -o -path './build*' -prune -o -name "*.$suffix" -type f -print
	done
}

# the members of struct ops, one a line
ops_names() {
	sed -nE '/^struct ops \{/,/^\};/s/^\top_[a-z0-9_]+ \*([a-z0-9_]+);.*/\1/p' src/ops/ops.h
}

# includes_only FOLDER PATTERN: every #include "..." in the folder matches the pattern, or names a header of the folder itself.
includes_only() {
	local folder=$1 allowed=$2
	run bash -c "grep -H '^#include \"' $folder/*.[ch]* | sed 's/:#include \"/ /; s/\".*//'"
	[ "$status" -eq 0 ] || return 0
	while read -r file header; do
		[[ $header =~ $allowed ]] || [ -e "$folder/$header" ] || fail "$file includes $header"
	done <<<"$output"
}

# includes_model_parts FOLDER BELOW ...: a folder of src/ includes itself, the folders below it, libkvfile and methods/reduce.h.
includes_model_parts() {
	includes_only "src/$1" "^($(IFS='|'; echo "$*")|libkvfile)/|^methods/reduce\.h$"
}

@test "libkvfile includes nothing of the rest of the project" { includes_only libkvfile '^$'; }
@test "methods include libkvfile and nothing else" { includes_only src/methods '^(methods|libkvfile)/'; }
@test "tokenizer includes nothing of the rest of the project" { includes_only src/tokenizer '^tokenizer/'; }
@test "chat includes nothing of the rest of the project" { includes_only src/chat '^chat/'; }
# The op table and the methods share the enums of methods/reduce.h, so that each idea has one definition. Folders that run a
# model, from the one below to the one above; libkvfile and reduce.h are for all of them.
@test "ops includes none of the folders above it" { includes_model_parts ops; }
@test "model includes ops and none of the folders above it" { includes_model_parts model ops; }
@test "cache includes model and ops, and no retrieval and no offloading" { includes_model_parts cache ops model; }
@test "offload includes ops, and no cache and no retrieval" { includes_model_parts offload ops; }
@test "retrieval includes cache, offload and what they include" { includes_model_parts retrieval ops model cache offload; }
@test "forward includes retrieval and what it includes" { includes_model_parts forward ops model cache offload retrieval; }
@test "methods/reduce.h includes nothing" {
	run grep '^#include' src/methods/reduce.h
	assert_output ''
}
@test "cpu sees ops/ops.h, dtype.h, rowtype.h and reduce.h and nothing else" { includes_only cpu '^(cpu/|ops/ops\.h$|libkvfile/(dtype|rowtype)\.h$|methods/reduce\.h$)'; }
@test "gpu sees ops/ops.h, dtype.h, rowtype.h and reduce.h and nothing else" { includes_only gpu '^(gpu/|ops/ops\.h$|libkvfile/(dtype|rowtype)\.h$|methods/reduce\.h$)'; }
runs_model='ops|model|cache|offload|retrieval|forward'
@test "engine includes methods, tokenizer, what runs a model and libkvfile, and nothing of the command line" { includes_only src/engine "^(engine|methods|tokenizer|$runs_model|libkvfile)/"; }
@test "cli includes no backend and no program" { includes_only src/cli "^(cli|engine|methods|tokenizer|chat|$runs_model|libkvfile)/"; }
@test "programs include no backend" { includes_only tools "^(cli|engine|methods|tokenizer|chat|$runs_model|libkvfile)/"; }

# The offsets of sections are in its internal headers, the four letters of their types in kinds.h.
@test "only libkvfile knows the bytes of sections and spells their types" {
	local types
	run bash -c 'grep -HE "^#include .libkvfile/" {src/*,cpu,gpu,tools}/*.[ch]* |
	    grep -vE "libkvfile/(kvfile|codec|kinds|dtype|rowtype|remembered|temporary)\.h"'
	assert_output ''
	types=$(sed -nE 's/^\tKIND\([0-9]+, [A-Z]+, "(.{4})".*/\1/p' libkvfile/kinds.h | paste -sd '|')
	assert_regex "$types" '^HEAD\|.*\|rHDk\|.*\|pADD$'
	run grep -nE "\"($types)\"" {src/*,cpu,gpu,tools}/*.[ch]*
	assert_output ''
}

@test "only src/cli/tool.c reads the environment" {
	run grep -lE '\b(secure_)?getenv *\(' {libkvfile,src/*,cpu,gpu,tools}/*.[ch]*
	assert_output src/cli/tool.c
}

@test "libraries neither print nor exit" {
	# what a fuzz target adds at the end of a file is not in the library
	run awk 'FNR == 1 { fuzz = 0 }
		/^#ifdef FUZZ/ { fuzz = 1 }
		!fuzz && /(^|[^a-z_])(printf|puts|putchar|perror|exit|abort|_exit) *\(|[^a-z_"](stderr|stdout)[^a-z_"]/ {
			print FILENAME ": " $0
		}' {libkvfile,src/{methods,tokenizer,chat,ops,model,cache,offload,retrieval,forward,engine},cpu,gpu}/*.[ch]*
	assert_output ''
}

# Symbols in sections that can be written to while the program runs; the compiler's own begin with __, and
# tables of pointers (.data.rel.ro) are constant once the program is loaded.
@test "libraries keep no state of the process: no static variable that changes" {
	local archives='kvfile methods tokenizer chat model engine' archive
	for archive in $archives; do
		[ -e "$O/lib$archive.a" ] || fail "there is no lib$archive.a"
		run awk -F '|' '/^Symbols from/ { sub(/.*\[/, ""); sub(/\].*/, ""); object = $0 }
			$1 !~ /^__/ && $7 ~ /^(\.t?(data|bss)|\*COM\*)/ && $7 !~ /^\.data\.rel\.ro/ {
				sub(/ .*/, "", $1)
				print object ": " $1
			}
			END { if (object == "") print "no object was read" }' <(nm -f sysv "$O/lib$archive.a")
		assert_output ''
	done
}

# Two are called run.sh: the tests, and those that need a GPU. Python gives packages a name.
@test "no two source files have the same name" {
	run bash -c "tree_files c h cu cc py sh bats bash mk | grep -v '/run\.sh$\|/__init__\.py$' | sed 's,.*/,,' | sort | uniq -d"
	assert_output ''
}

# Of the .bats files lines are whole commands.
@test "no line of a source, script or makefile is longer than 100 columns, with tabs of 8" {
	local files
	mapfile -t files < <(tree_files c h cu cc py sh bash mk)
	run "$PYTHON" tests/bin/long_lines.py "${files[@]}" Makefile experiments/Snakefile .ci/run
	assert_output ''
}

@test "every function that a comment names exists" {
	local files
	mapfile -t files < <(tree_files c h cu cc)
	run "$PYTHON" tests/bin/comment_names.py "${files[@]}"
	assert_output ''
}

# An op that is missing there gets a device that is not its own.
@test "every op but open() is in the table that counts operations" {
	run diff <(ops_names | grep -vx open | sort) \
	    <(grep -oE 'COUNTED\([a-z0-9_]+\)' src/engine/op_counts.c | sed 's/COUNTED(//; s/)//' | grep -vx name | sort)
	assert_output ''
}

# So that a name says whether the device works.
@test "no function above the backends has the name of an op" {
	local ops
	ops=$(ops_names | paste -sd '|')
	assert_regex "$ops" '^open\|.*\|fetch_wait$'
	run bash -c "tree_files c h cc | grep -vE '^\./(cpu|gpu)/' |
		xargs grep -nE '^([A-Za-z][A-Za-z0-9_ ]*[ *])?($ops)\('"
	assert_output ''
}

@test "no source file is longer than 600 lines" {
	run bash -c "tree_files c h cu cc py sh bats | xargs wc -l | awk '\$1 > 600 && \$2 != \"total\"'"
	assert_output ''
}

# From the line after the opening brace at column 0 to the closing one; kernels and C++ are written so, too.
@test "no function is longer than 60 lines" {
	local files
	mapfile -t files < <(tree_files c h cu cc)
	run awk '
		FNR == 1 { name = "" }
		/^[A-Za-z_][A-Za-z0-9_:~]*\(/ { name = $0; sub(/\(.*/, "", name) }
		/^\{/ && name != "" { start = FNR }
		/^}/ && name != "" && start {
			if (FNR - start - 1 > 60)
				print FILENAME ": " name " has " FNR - start - 1 " lines"
			name = ""; start = 0
		}' "${files[@]}"
	assert_output ''
}

@test "every program has a page, a test file and a line in README.md" {
	local source name
	for source in tools/kv-*.c; do
		name=$(basename "$source" .c)
		[ -e "man/$name.1" ] || fail "there is no man/$name.1"
		[ -e "tests/$name.bats" ] || fail "there is no tests/$name.bats"
		grep -q "^| \[\?\`\?$name" README.md || fail "README.md has no line about $name"
		[ -x "$O/$name" ] || fail "$name is not built"
	done
}

@test "every method has a file of its name" {
	local name
	for name in $(kv-score --list | cut -d ' ' -f 1); do
		[ -e "src/methods/$name.c" ] || fail "there is no src/methods/$name.c"
	done
}

@test "no source file ends without a newline or has blanks at the end of a line" {
	run bash -c "tree_files c h cu cc py sh bats mk | xargs grep -nE '[[:blank:]]\$'"
	assert_output ''
	run bash -c "tree_files c h cu cc py sh bats mk |
	    while read -r f; do [ -z \"\$(tail -c 1 \"\$f\")\" ] || echo \"\$f\"; done"
	assert_output ''
}

# They are read as one.
@test "no variable of make is assigned in two fragments" {
	run awk -v shared=' UNIT_TESTS test_programs ' '
		match($0, /^[A-Za-z_.]+ *[:?+]?=/) {
			name = substr($0, 1, RLENGTH)
			sub(/ *[:?+]?=$/, "", name)
			if (index(shared, " " name " ") && $2 == "+=")
				next
			if (name in first && first[name] != FILENAME)
				print FILENAME ": " name " is a variable of " first[name]
			first[name] = FILENAME
		}' Makefile install.mk tests/*.mk
	assert_output ''
}

# A script whose awk reads 0.5 as 0 where numbers have a comma says wrong figures without a word.
@test "every script has numbers with a point, whatever the user's language writes" {
	local script
	while read -r script; do
		grep -qE '^export LC_ALL=C(\.UTF-8)? CDPATH=$|^\. .*/(common|kvzip)\.sh"$' "$script" || fail "$script"
	done < <(tree_files sh; echo .ci/run)
	grep -q '^export LC_ALL=C' tests/helper.bash
	run grep -rlE 'setlocale' --include='*.[ch]' --include='*.cu' {libkvfile,src,cpu,gpu,tools}
	[ -z "$output" ] || assert_output src/chat/jinja_builtin.c
}

# ALL has several values; a test that asked for "not empty" failed with one that came later.
@test "no test reads ALL but the helper" {
	run grep -nE '\$\{?ALL\b' tests/*.bats examples/*/*.bats
	assert_output ''
}
