#!/usr/bin/env bats
# bats file_tags=nosan
# libkvfile for those who build against it: what it exports, its headers in every language that they are for, pkg-config

load helper

setup_file() {
	export STAGE=$BATS_FILE_TMPDIR/stage
	make -s -o all -o "$O/libkvfile.a" -C "$ROOT" O="$O" DESTDIR="$STAGE" PREFIX=/usr install
}

setup() {
	cd "$BATS_TEST_TMPDIR" || exit 1
	INCLUDE=$STAGE/usr/include/kvfile
	LIB=$STAGE/usr/lib
	if nm "$LIB/libkvfile.a" 2>/dev/null | grep -q '__[a-z]*san_'; then
		skip "the library was built with sanitizers"
	fi
	unset PKG_CONFIG_PATH PKG_CONFIG_LIBDIR PKG_CONFIG_SYSROOT_DIR
}

# The functions that the installed headers declare. Declarations begin a line, and lines that continue one are indented; a static
# function is compiled into its user.
declared() {
	local header
	for header in "$INCLUDE"/*.h; do
		cc -E -P "$header" || return
	done | sed -nE '/^(static|typedef|extern) /d; s/^[a-z].*[ *](kv_[a-z0-9_]+)\(.*/\1/p' | sort -u
}

@test "the library exports what its installed headers declare, in a version, and nothing else" {
	declared >declared
	[ "$(wc -l <declared)" -gt 100 ]
	nm -D --defined-only "$LIB/libkvfile.so.1" | awk '$2 != "A" { print $3 }' | sort >exported
	run -1 grep -vE '^kv_[a-z0-9_]+@@KVFILE_[0-9.]+$' exported
	sed 's/@.*//' exported | diff declared -
}

@test "each version has functions that the version before has not, and no function is in two" {
	run -0 awk '
		/^KVFILE_[0-9.]+ \{$/ { node = $1; nodes[++n] = node }
		/^\tkv_[a-z0-9_]+;$/ { count[node]++; if (seen[$1]++) print "twice: " $1 }
		/^\} *KVFILE_/ { if ($2 != nodes[n - 1] ";") print node " does not inherit " nodes[n - 1] }
		END { for (i = 1; i <= n; i++) if (!count[nodes[i]]) print nodes[i] " is empty" }
	' "$ROOT/libkvfile/libkvfile.map"
	assert_output ''
}

@test "the page has a line for each function that the headers declare, and for no other" {
	sed -nE '/^\.Sh SYNOPSIS/,/^\.Sh DESCRIPTION/s/^\.Fn (kv_[a-z0-9_]+).*/\1/p' "$ROOT/man/libkvfile.3" | sort >documented
	declared | diff - documented
}

# builds COMPILER STANDARD SUFFIX: a file that includes one header twice, for each of them, and one with a call
builds() {
	local header
	for header in "$INCLUDE"/*.h; do
		printf '#include <%s>\n#include <%s>\nint main(void) { return 0; }\n' "${header##*/}" "${header##*/}" >"alone.$3"
		"$1" "-std=$2" -pedantic-errors -Wall -Wextra -Wundef -Werror -I "$INCLUDE" -c -o alone.o "alone.$3" ||
		    fail "${header##*/} with $1 -std=$2"
	done
	# what C compiles is found by the name that C gives it
	printf '#include <codec.h>\n#include <stdio.h>\nint main(void) { return puts(kv_error_name(KV_EIO)) < 0; }\n' >"call.$3"
	"$1" "-std=$2" -pedantic-errors -Wall -Wextra -Werror -I "$INCLUDE" -o call "call.$3" "$LIB/libkvfile.so.1" || return
	LD_LIBRARY_PATH=$LIB run -0 ./call
	assert_output 'input/output error'
}

@test "each header compiles alone, pedantically, as C99 and later and as C++98 and later, by gcc and clang" {
	local compiler standard found=0
	for compiler in gcc clang; do
		command -v "$compiler" >/dev/null || continue
		for standard in c99 c11 c17; do
			builds "$compiler" "$standard" c
		done
		found=1
	done
	for compiler in g++ clang++; do
		command -v "$compiler" >/dev/null || continue
		for standard in c++98 c++11 c++17 c++20; do
			builds "$compiler" "$standard" cc
		done
	done
	[ $found = 1 ]
}

@test "each constant of the headers has the value that the last release had" {
	# as the Makefile names it
	make -s -C "$ROOT" O="$O" GPU=0 "${O#"$ROOT/"}/abi/constants.txt"
	run -0 comm -23 "$ROOT/libkvfile/abi/constants.txt" "$O/abi/constants.txt"
	assert_output ''
	assert grep -qx 'KV_EIO -1' "$O/abi/constants.txt"
	assert grep -qx 'KV_PADD 25' "$O/abi/constants.txt"
}

# changed FILE EXPRESSION ...: make abi-check of a copy of the tree where sed has changed files of libkvfile
changed() {
	local file
	rm -rf copy/libkvfile
	mkdir -p copy
	for file in "$ROOT"/*; do
		[[ ${file##*/} == build* || -e copy/${file##*/} ]] || ln -s "$file" copy
	done
	rm copy/libkvfile
	cp -r "$ROOT/libkvfile" copy
	while [ $# -gt 0 ]; do
		sed -i "$2" "copy/libkvfile/$1"
		shift 2
	done
	make -s --no-print-directory -C copy O=out GPU=0 abi-check
}

@test "make abi-check refuses another layout, and takes what is added and what is internal" {
	[[ $(cc -dumpmachine) == x86_64-* ]] || skip 'the ABI is recorded for x86-64'
	command -v abidiff >/dev/null || skip 'abidiff is not here (Debian: abigail-tools)'
	run -2 changed kvfile.h 's/^\tunsigned element_size;/\tunsigned more, element_size;/'
	assert_line --partial "'unsigned int more', at offset 96"
	assert_line --partial 'make abi writes it to libkvfile/abi; else SOVERSION grows, too.'
	if all_cases; then
		run -2 changed kinds.h 's/KIND(14, BITS/KIND(15, BITS/; s/KIND(15, PAGE/KIND(14, PAGE/'
		assert_line --partial "from value '14' to '15'"
		run -2 changed kvfile.h 's/KV_EIO = -1/KV_EIO = -7/'
		assert_line 'KV_EIO -1'
		run -2 changed libkvfile.map '/kv_again;/d'
		assert_line --partial 'kv_again@@KVFILE_0.2'
		run -0 changed reader.h 's/^struct kv_reader {/& int more;/'
	fi
	run -0 changed libkvfile.map '$aKVFILE_0.3 { global: kv_added; } KVFILE_0.2;' \
	    error.c '$aint kv_added(void);\nint\nkv_added(void)\n{\n\treturn 1;\n}'
}

# client NAME FLAG ...: a program of somebody else's, with these flags of pkg-config
client() {
	cc -std=c11 -o "$1" "$ROOT/examples/client/keynorm.c" "${@:2}" -lm
}

file_needs() {
	objdump -p "$1" | sed -n 's/^ *NEEDED *//p'
}

@test "pkg-config --static names what a static program needs, and without it what a shared one needs" {
	export PKG_CONFIG_PATH=$LIB/pkgconfig PKG_CONFIG_SYSROOT_DIR=$STAGE
	# pkg-config leaves out folders that the compiler looks into by itself, such as these
	eval "set -- -I$INCLUDE -L$LIB $(pkg-config --static --cflags --libs kvfile)"
	printf '%s\n' "$@" >flags
	for library in -lkvfile -llz4 -lxxhash -ljansson; do
		assert grep -qx -- "$library" flags
	done
	client static "$@" -static
	run -1 ./static /dev/null
	run -0 file_needs static
	assert_output ''
	assert_equal "$(pkg-config --libs-only-l kvfile)" '-lkvfile '
	client shared "-I$INCLUDE" "-L$LIB" -lkvfile
	run -0 file_needs shared
	assert_line libkvfile.so.1
	refute_line --partial jansson
}

@test "an installation that was moved is found where pkg-config is told that it is" {
	local place=$PWD/'else where/k v'
	make -s -o all -o "$O/libkvfile.a" -C "$ROOT" O="$O" DESTDIR="$PWD/root" PREFIX='/opt/k &p' install
	mkdir -p "${place%/*}"
	mv 'root/opt/k &p' "$place"
	flags() {
		eval "set -- $(PKG_CONFIG_PATH=$place/lib/pkgconfig pkg-config "$@")"
		printf '%s\n' "$@"
	}
	# without a word the folders are those of make install
	run -0 flags --cflags --libs kvfile
	assert_output $'-I/opt/k &p/include/kvfile\n-L/opt/k &p/lib\n-lkvfile'
	run -0 flags --define-variable=prefix="$place" --cflags --libs kvfile
	assert_line --index 0 "-I$place/include/kvfile"
	assert_line "-L$place/lib"
	assert_equal "$(PKG_CONFIG_PATH=$place/lib/pkgconfig pkg-config --define-variable=prefix=/x --variable=pythondir kvfile)" \
	    /x/share/kvpipe/python
	client moved "-I$place/include/kvfile" "-L$place/lib" -lkvfile
	LD_LIBRARY_PATH=$place/lib run -1 ./moved /nonexistent
	assert_output --partial 'No such file'
	# --define-prefix puts a backslash before a space, for those who write no quotation marks
	mv "$place" plain
	place=$PWD/plain
	run -0 flags --define-prefix --cflags --libs kvfile
	assert_line --index 0 "-I$place/include/kvfile"
	assert_line "-L$place/lib"
}
