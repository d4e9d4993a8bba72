#!/usr/bin/env bats
# bats file_tags=nosan
# make install: what lands where, and whether someone else can build against it

load helper

setup_file() {
	export STAGE=$BATS_FILE_TMPDIR/stage
	# what was built, with whatever flags
	make -s -o all -o "$O/libkvfile.a" -C "$ROOT" O="$O" DESTDIR="$STAGE" PREFIX=/opt/kvpipe install
}

setup() {
	cd "$BATS_TEST_TMPDIR" || exit 1
	export PKG_CONFIG_PATH=$STAGE/opt/kvpipe/lib/pkgconfig
	# as a cross compiler would: the prefix is in the stage
	export PKG_CONFIG_SYSROOT_DIR=$STAGE
}

@test "make install puts programs, library, headers, pages and documents under PREFIX" {
	run bash -c 'cd "$STAGE" && find . -type f -o -type l | sort'
	for page in "$ROOT"/man/*.[1-9]; do
		assert_line "./opt/kvpipe/share/man/man${page##*.}/${page##*/}"
	done
	for tool in "$ROOT"/tools/*.c; do
		assert_line "./opt/kvpipe/bin/$(basename "$tool" .c)"
	done
	assert_line ./opt/kvpipe/include/kvfile/kvfile.h
	assert_line ./opt/kvpipe/include/kvfile/dtype.h
	assert_line ./opt/kvpipe/include/kvfile/codec.h
	assert_line ./opt/kvpipe/include/kvfile/kinds.h
	assert_line ./opt/kvpipe/lib/libkvfile.a
	assert_line ./opt/kvpipe/lib/libkvfile.so
	assert_line ./opt/kvpipe/lib/libkvfile.so.1
	assert_line ./opt/kvpipe/lib/pkgconfig/kvfile.pc
	assert_line ./opt/kvpipe/share/doc/kvpipe/kv-snapshot.md
	assert_line ./opt/kvpipe/lib/bats/kvpipe/load.bash
	assert_line ./opt/kvpipe/share/kvpipe/python/kvsnapshot/__init__.py
	assert_line ./opt/kvpipe/share/kvpipe/python/value_aware.py
	refute_line --regexp '^\./(usr|home|tmp)'
}

@test "kvfile.pc has no placeholder left, and the version of the programs" {
	run cat "$STAGE/opt/kvpipe/lib/pkgconfig/kvfile.pc"
	refute_output --partial '@'
	assert_equal "kv-info $(pkg-config --modversion kvfile)" "$(kv-info --version | head -n 1)"
}

# staged PREFIX [VARIABLE=VALUE ...]: installs into ./stage
staged() {
	rm -rf stage
	make -s -o all -o "$O/libkvfile.a" -C "$ROOT" O="$O" DESTDIR="$PWD/stage" PREFIX="$1" "${@:2}" install
}

@test "folders may have names of any characters, and pkg-config quotes its flags" {
	unset PKG_CONFIG_SYSROOT_DIR
	local prefix
	for prefix in '/opt/k v' '/opt/a&b|c;d' '/opt/back\slash\1' "/opt/it's" '/opt/100% #1, ~/x' '/opt/\&' '/opt/ü*?[x]<y>'; do
		in_sample 4 || continue
		staged "$prefix" || return
		export PKG_CONFIG_PATH=$PWD/stage$prefix/lib/pkgconfig
		eval "set -- $(pkg-config --cflags --libs kvfile)"
		printf '%s\n' "$@" >flags
		printf '%s\n' "-I$prefix/include/kvfile" "-L$prefix/lib" -lkvfile | diff - flags || return
		assert_equal "$(pkg-config --variable=prefix kvfile)" "$prefix"
		assert_equal "$(pkg-config --variable=pythondir kvfile)" "$prefix/share/kvpipe/python"
		assert [ -s "stage$prefix/share/kvpipe/python/kvsnapshot/__init__.py" ]
		make -s -C "$ROOT" O="$O" DESTDIR="$PWD/stage" PREFIX="$prefix" uninstall
		assert_equal "$(find stage -type f -o -type l)" ''
	done
	# where nothing is staged the message has the name, too
	ldconfig_that_knows /elsewhere/lib
	run -0 env PATH="$PWD/bin:$PATH" make -s -o all -o "$O/libkvfile.a" -C "$ROOT" O="$O" PREFIX="$PWD/it's & \\n" install
	assert_output --partial "The loader does not know $PWD/it's & \\n/lib/libkvfile.so: "
	# each folder for itself
	staged /opt/x LIBDIR='/l|&' INCLUDEDIR='/i #'
	eval "set -- $(PKG_CONFIG_PATH='stage/l|&/pkgconfig' pkg-config --cflags --libs kvfile)"
	assert_equal "$(printf '<%s>' "$@")" '<-I/i #/kvfile><-L/l|&><-lkvfile>'
	# what kvfile.pc cannot say
	run -2 staged '/opt/"x"'
	assert_output --partial 'kvfile.pc cannot name /opt/"x": it has a quotation mark'
	assert [ ! -e stage ]
}

@test "Python finds the package where pkg-config says, and it has the version of the programs" {
	assert_equal "$(pkg-config --variable=pythondir kvfile | sed "s,^$STAGE,,")" /opt/kvpipe/share/kvpipe/python
	run -0 env PYTHONPATH="$STAGE/opt/kvpipe/share/kvpipe/python" "$PYTHON" -c 'import kvsnapshot; print("kv-info", kvsnapshot.__version__)'
	assert_output "$(kv-info --version | head -n 1)"
}

# ldconfig CACHED: one that has the library in its list or not
ldconfig_that_knows() {
	mkdir -p bin
	printf '#!/bin/sh\n[ "$1" != -p ] || echo "\tlibkvfile.so.1 (libc6,x86-64) => %s/libkvfile.so.1"\n' "$1" >bin/ldconfig
	chmod +x bin/ldconfig
}

@test "make install says where the loader does not find the library, and not when files are staged" {
	local said="The loader does not know $PWD/p/lib/libkvfile.so: LD_LIBRARY_PATH, or a line in /etc/ld.so.conf and ldconfig (as root)."
	here() { PATH=$PWD/bin:$PATH make -s -o all -o "$O/libkvfile.a" -C "$ROOT" O="$O" PREFIX="$PWD/p" "$@" install; }
	ldconfig_that_knows /elsewhere/lib
	assert_equal "$(here)" "$said"
	ldconfig_that_knows "$PWD/p/lib"
	assert_equal "$(here)" ''
	rm bin/ldconfig
	assert_equal "$(here DESTDIR="$PWD/stage")" ''
}

@test "the library's soname is that of the installed link" {
	run bash -c 'objdump -p "$STAGE/opt/kvpipe/lib/libkvfile.so" | grep SONAME'
	assert_output --partial libkvfile.so.1
}

@test "a program of someone else builds against the installed library, shared and static, and reads a snapshot" {
	if nm "$STAGE/opt/kvpipe/lib/libkvfile.a" 2>/dev/null | grep -q '__[a-z]*san_'; then
		skip "the library was built with sanitizers"
	fi
	local cflags libs private
	cflags=$(pkg-config --cflags kvfile)
	libs=$(pkg-config --libs kvfile)
	private=$(pkg-config --static --libs-only-l kvfile | sed 's/-lkvfile//')
	local client=$ROOT/examples/client/keynorm.c
	# shellcheck disable=SC2086 # flags are words
	cc -std=c11 -Wall -Wextra -Werror $cflags -o shared "$client" $libs -lm
	# shellcheck disable=SC2086
	cc -std=c11 $cflags -o static "$client" "$STAGE/opt/kvpipe/lib/libkvfile.a" $private -lm
	kv-prefill -m "$DEMO" -o x.kv "$ROOT/examples/prompts/harbour.txt"
	run env LD_LIBRARY_PATH="$STAGE/opt/kvpipe/lib" ./shared x.kv
	assert_success
	[ "${#lines[@]}" -eq 9 ]        # a title, 4 layers, 2 KV heads
	assert_line --regexp $'^3\t1\t982\t[0-9.]+$'
	assert_equal "$(./static x.kv)" "$output"
	run ldd shared
	assert_output --partial libkvfile.so.1
}

@test "the headers can be included from C++" {
	command -v c++ >/dev/null || skip "no C++ compiler"
	printf '#include <kvfile.h>\n#include <codec.h>\n' >client.cc
	# shellcheck disable=SC2046
	c++ -Wall -Wextra -Werror $(pkg-config --cflags kvfile) -c client.cc
}

@test "completions are where the shells look for them" {
	for tool in "$ROOT"/tools/kv-*.c; do
		tool=$(basename "$tool" .c)
		bash --norc -c '. "$1" && complete -p "$2"' - "$STAGE/opt/kvpipe/share/bash-completion/completions/$tool" "$tool"
		[ -s "$STAGE/opt/kvpipe/share/fish/vendor_completions.d/$tool.fish" ]
	done
	[ -s "$STAGE/opt/kvpipe/share/zsh/site-functions/_kvpipe" ]
}

# Nothing but what was installed: neither build/ nor the tree.
@test "the commands of kvpipe(7) and its scripts work from the installation" {
	local share=$STAGE/opt/kvpipe/share/kvpipe command count=0
	PATH=$STAGE/opt/kvpipe/bin:${PATH//"$O":/}
	ln -s "$share/examples/demo-model" demo-model
	ln -s "$share/python/value_aware.py" value_aware.py     # the package stands beside what it points to
	python_beside
	cp "$share/examples/prompts/harbour.txt" prompt.txt
	head -n 1 prompt.txt >book.txt
	tail -n 2 prompt.txt >question.txt
	run sh "$share/examples/methods/snapkv.sh" -r 0.1
	assert_success
	assert_output --regexp '^snapkv .* L047$'
	run sh "$share/examples/methods/kvzap.sh" -r 0.1
	assert_success
	run "$PYTHON" "$share/experiments/make_task.py" kv_recall -m "$share/examples/demo-model" --chat none -n 1 --tokens 300 --seed 1
	assert_success
	run sh "$share/examples/compare.sh" -n 1 -r 0.1 -M 'full snapkv'
	assert_success
	assert_output --regexp 'snapkv \| 0\.1 \| 100 '
	while read -r command; do
		run bash -c "$command"
		echo "$command: $output"
		assert_success
		count=$((count + 1))
	done < <(sed -n '/^\.Ss A prompt/,/^\.Sh POSITIONS/p' "$STAGE/opt/kvpipe/share/man/man7/kvpipe.7" | sed 's/\\e/\\/g' |
	    awk '/^\$ / { line = substr($0, 3); while (line ~ /\\$/ && (getline more) > 0) line = substr(line, 1, length(line) - 1) more; print line }')
	[ $count -gt 5 ]
	BATS_LIB_PATH=$STAGE/opt/kvpipe/lib/bats run -0 env PATH="$PATH" bats "$share/examples/experiments/window.bats"
}

# The text of a page that is not below doc/kvpipe is in the sources: what tests and builds the programs, which nobody needs who
# has them. Pictures are made where they are looked at.
@test "links of installed documents lead to installed files" {
	local doc=$STAGE/opt/kvpipe/share/doc/kvpipe file link count=0 missing=0
	for file in "$doc"/{README,NEWS,SECURITY,MODELS,SPEED,CONTRIBUTING,kv-snapshot}.md "$doc"/{examples,experiments,train}/{,*/}*.md; do
		[ -e "$file" ] || continue
		while read -r link; do
			case $link in
			http* | '#'* | *tests/*) continue ;;
			esac
			count=$((count + 1))
			[ -e "$(dirname "$file")/${link%%#*}" ] || { echo "${file#"$doc/"} links $link"; missing=1; }
		done < <(grep -o '](\([^) ]*\))' "$file" | sed 's/^](//; s/)$//')
	done
	[ $count -gt 50 ]
	assert_equal $missing 0
}

@test "make uninstall takes away all that make install brought" {
	cp -r "$STAGE" again
	make -s -C "$ROOT" O="$O" DESTDIR="$PWD/again" PREFIX=/opt/kvpipe uninstall
	run find again -type f -o -type l
	assert_output ''
}

@test "make help names the targets, and each of them is one" {
	run -0 --separate-stderr make -s -C "$ROOT" help
	assert_line --regexp '^  install +everything below PREFIX$'
	local target count=0
	for target in $(sed -n 's/^  \([a-z-]*\) .*/\1/p' <<<"$output"); do
		grep -hq "^$target:" "$ROOT"/Makefile "$ROOT"/*.mk "$ROOT"/tests/*.mk || fail "no target $target"
		count=$((count + 1))
	done
	[ $count -gt 15 ]
}

@test "make dist gives the same bytes each time, below a folder with the version" {
	[ -e "$ROOT/.git" ] || skip "this tree is no clone"
	make -s -C "$ROOT" O="$PWD/a" dist
	make -s -C "$ROOT" O="$PWD/b" dist
	cmp a/kvpipe-*.tar.gz b/kvpipe-*.tar.gz
	run -0 tar tzf a/kvpipe-*.tar.gz
	local version
	version=$(kvpipe --version | sed -n '1s/.* //p')
	assert_line "kvpipe-$version/Makefile"
	[ "$(grep -vc "^kvpipe-$version/" <<<"$output")" = 0 ]
}

@test "make install-strip installs programs without symbols, which run" {
	make -s -o all -o "$O/libkvfile.a" -C "$ROOT" O="$O" DESTDIR="$PWD/small" PREFIX=/usr install-strip
	run -0 nm small/usr/bin/kv-evict
	refute_line --regexp ' [tT] main'
	small/usr/bin/kv-evict --version
}

@test "all files that name the version name the same" {
	local version
	version=$(sed -n 's/^VERSION = //p' "$ROOT/Makefile")
	grep -qx "version: $version" "$ROOT/CITATION.cff"
	run -0 grep -m 1 '^## ' "$ROOT/NEWS.md"
	assert_output --regexp "^## ${version}[, ]"
}
