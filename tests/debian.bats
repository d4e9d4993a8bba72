#!/usr/bin/env bats
# bats file_tags=nosan
# debian/: what it says again of deps.sh, the Makefile and make install. Packages themselves: make deb

load helper

setup_file() {
	# what was built, where debian/rules has it
	export STAGE=$BATS_FILE_TMPDIR/stage
	export DEB_HOST_MULTIARCH=x86_64-linux-gnu
	mapfile -t folders < <(make -s -C "$ROOT" -f debian/rules folders)
	make -s -o all -o "$O/libkvfile.a" -C "$ROOT" O="$O" DESTDIR="$STAGE" "${folders[@]}" install
	(cd "$STAGE" && find . \( -type f -o -type l \) -printf '%P\n' | sort) >"$BATS_FILE_TMPDIR/installed"
}

setup() {
	cd "$BATS_TEST_TMPDIR" || exit 1
}

# debian/rules asks dpkg-dev where Debian has its files.
needs_dpkg_dev() {
	[ -e /usr/share/dpkg/architecture.mk ] || skip "dpkg-dev is not here"
}

# build_depends: a line for each package that is wanted: its name, and its profile, if it has one
build_depends() {
	awk '/^[^ ]/ { inside = /^Build-Depends:/ } /^ / && inside { gsub(/,/, ""); print $1, $NF ~ /^</ ? $NF : "" }' \
	    "$ROOT/debian/control" | sed 's/ *$//'
}

# packages: their names
packages() {
	sed -n 's/^Package: //p' "$ROOT/debian/control"
}

# What build-essential has need not be said.
@test "Build-Depends are the packages of deps.sh: those to build, and of those to test the ones of the short tests" {
	build_depends | sed -n 's/^debhelper-compat$/debhelper/; / /!p' | sort >said
	sh "$ROOT/deps.sh" --list build deb | grep -vxE 'gcc|libc6-dev|make|dpkg-dev|libomp-[0-9]+-dev' | sort >wanted
	diff wanted said
	sh "$ROOT/deps.sh" --list test | sort >for_tests
	build_depends | sed -n 's/ <!nocheck>$//p' | sort >said
	assert [ "$(wc -l <said)" -ge 4 ]
	run comm -13 for_tests said
	assert_output ''
	run build_depends
	refute_line --regexp ' <(.*[^k]|[^!].*)>$'
}

@test "debian/changelog begins with the version of the Makefile" {
	run -0 sed -n '1p' "$ROOT/debian/changelog"
	assert_output --regexp "^kvpipe \($(sed -n 's/^VERSION = //p' "$ROOT/Makefile")-[0-9]+\) "
}

@test "the package of the library has its soname in its name" {
	run packages
	assert_line "libkvfile$(sed -n 's/^SOVERSION = //p' "$ROOT/Makefile")"
}

@test "the symbols of libkvfile are those of its map, under its nodes" {
	local symbols=$ROOT/debian/libkvfile1.symbols
	awk '/^[A-Z]/ { node = $1 } /^\tkv_/ { print substr($1, 1, length($1) - 1) "@" node }
	    /^[A-Z]/ { print $1 "@" $1 }' "$ROOT/libkvfile/libkvfile.map" | sort >map
	assert [ "$(wc -l <map)" -gt 100 ]
	sed -n 's/^ \([^ ]*\) .*/\1/p' "$symbols" | sort | diff map -
	# since the release that the node is named after
	run grep -cE '^ .*@KVFILE_([0-9.]+) \1\.0$' "$symbols"
	assert_output "$(wc -l <map)"
	run -0 sed -n 1p "$symbols"
	assert_output 'libkvfile.so.1 libkvfile1 #MINVER#'
}

# matching: the files of STAGE that are read from standard input's patterns, as dh_install has them
matching() {
	local pattern path
	while read -r pattern; do
		# shellcheck disable=SC2086 # words of a pattern
		for path in $pattern; do
			[ -e "$path" ] || [ -L "$path" ] || fail "$1: nothing is installed as $pattern"
			find "$path" -type f -o -type l
		done
	done
}

@test "each file that make install installs belongs to one package" {
	local package
	needs_dpkg_dev
	: >owned
	: >owners
	for package in $(packages); do
		(cd "$STAGE" && matching "$package" <"$ROOT/debian/$package.install") >of_one
		sort of_one >>owned
		sed "s/\$/ $package/" of_one >>owners
	done
	assert [ "$(wc -l <owned)" -gt 300 ]
	sort owned | diff "$BATS_FILE_TMPDIR/installed" -
	for package in "$ROOT"/debian/*.install; do
		packages | grep -qx "$(basename "$package" .install)"
	done
	# what depends on the architecture, and what does not
	run grep -E ' (kvpipe-doc|kvpipe-bats|python3-kvsnapshot)$' owners
	refute_line --regexp '/(bin|x86_64-linux-gnu)/'
	run grep ' libkvfile1$' owners
	assert_output 'usr/lib/x86_64-linux-gnu/libkvfile.so.1 libkvfile1'
}

# A page that a link names is compressed in the package, and so is the link's name (dh_compress).
@test "links lead to what the same package has" {
	local package
	needs_dpkg_dev
	make -s -C "$ROOT" -f debian/rules licence staged="$STAGE"
	for package in $(packages); do
		mkdir "$package"
		(cd "$STAGE" && matching "$package" <"$ROOT/debian/$package.install" |
		    tar -cf - -T -) | tar -xf - -C "$package"
	done
	mkdir -p kvpipe/usr/share/doc/kvpipe
	: >kvpipe/usr/share/doc/kvpipe/copyright
	# what the library is for those who build against it
	cp -r libkvfile1/usr libkvfile-dev
	find . -type l >links
	assert [ "$(wc -l <links)" -gt 40 ]
	run -0 find . -xtype l
	assert_output ''
}

# compress_pages FOLDER: as dh_compress leaves pages, and the links to them
compress_pages() {
	local page
	gzip -9n "$1"/usr/share/man/man?/*.[1-9]
	for page in "$1"/usr/share/doc/kvpipe/man/*.[1-9]; do
		ln -s "$(readlink "$page").gz" "$page.gz"
		rm "$page"
	done
}

@test "documents name the pages as they are in the packages, compressed" {
	local file link count=0
	needs_dpkg_dev
	cp -a "$STAGE" stage
	compress_pages stage
	make -s -C "$ROOT" -f debian/rules page_links staged="$PWD/stage/usr"
	while read -r file; do
		while read -r link; do
			[ -e "$(dirname "$file")/${link%%#*}" ] || fail "${file#stage} links $link"
			count=$((count + 1))
		done < <(grep -oE '\]\([^() ]*man/[^() ]+\)' "$file" | sed 's/^](//; s/)$//')
	done < <(find stage/usr/share -name '*.md' -type f)
	[ $count -gt 10 ]
	grep -q '](man/kvpipe.7.gz)' stage/usr/share/doc/kvpipe/README.md
	# the sources stay as they are
	run grep -rlE '\]\([^)]*man/[a-z0-9-]+\.[1-9]\.gz' "$ROOT/README.md" "$ROOT/examples" "$ROOT/experiments"
	assert_output ''
}

@test "what debian/copyright and the packages' tests name is there" {
	local file
	for file in $(sed -n 's/^Files: //p' "$ROOT/debian/copyright" | grep -vx '\*'); do
		assert [ -e "$ROOT/$file" ]
	done
	grep -q "Copyright: $(sed -n 's/^Copyright (c) //p' "$ROOT/LICENSE")" "$ROOT/debian/copyright"
	for file in $(sed -n 's/^Tests: //p' "$ROOT/debian/tests/control"); do
		assert [ -x "$ROOT/debian/tests/$file" ]
	done
	for file in $(grep -o 'tests/[a-z-]*\.bats' "$ROOT/debian/rules"); do
		assert [ -e "$ROOT/$file" ]
	done
}
