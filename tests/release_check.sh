#!/bin/sh
# release_check.sh - what must hold before a version is tagged: make release-check
#
# usage: tests/release_check.sh [-q]
#
# Works on the last commit, in folders of its own. Each step is named and said to hold or not, and
# what it printed is shown where it does not; the last line counts them, and the exit status is 0
# when all hold. -q: without .ci/run, which takes longest.
set -u
export LC_ALL=C CDPATH=

cd "$(dirname "$0")/.." || exit 1
quick=
case ${1:-} in
'') ;;
-q) quick=1 ;;
*) sed -n 's/^# usage: /usage: /p' "$0" >&2; exit 2 ;;
esac
version=$(sed -n 's/^VERSION = //p' Makefile)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
held=0 steps=0

# step WHAT COMMAND ...
step() {
	what=$1
	shift
	steps=$((steps + 1))
	if "$@" >"$work/said" 2>&1; then
		held=$((held + 1))
		echo "holds:  $what"
	else
		echo "FAILED: $what"
		tail -n 20 "$work/said" | sed 's/^/    /'
	fi
}

nothing_uncommitted() {
	git status --porcelain | tee "$work/changes"
	[ ! -s "$work/changes" ]
}

versions() {
	bats -f 'all files that name the version' tests/install.bats
}

news_has_a_date() {
	grep -m 1 '^## ' NEWS.md
	grep -m 1 '^## ' NEWS.md | grep -qxE "## $version, [0-9]{4}-[0-9]{2}-[0-9]{2}"
}

no_tag_yet() {
	! git rev-parse -q --verify "refs/tags/v$version"
}

# The same tarball from two clones, which stand elsewhere
dist() {
	for name in one 'another place'; do
		git clone -q . "$work/$name" && make -s -C "$work/$name" dist || return
	done
	cmp "$work/one/build/kvpipe-$version.tar.gz" \
	    "$work/another place/build/kvpipe-$version.tar.gz" &&
	    sha256sum "$work/one/build/kvpipe-$version.tar.gz"
}

# A stranger's way: unpack, build, test, install, run
tarball() {
	mkdir "$work/a folder" && tar -xzf "$work/one/build/kvpipe-$version.tar.gz" \
	    -C "$work/a folder" && cd "$work/a folder/kvpipe-$version" &&
	    make -s -j2 GPU=0 && make -s GPU=0 QUICK=1 check &&
	    make -s GPU=0 DESTDIR="$work/stage" PREFIX=/usr install-strip &&
	    "$work/stage/usr/bin/kv-info" --version | grep -qx "kv-info $version"
}

in_one() {
	make -s -j2 -C "$work/one" GPU=0 "$@"
}

wheel() {
	in_one wheel && (cd "$work/one" && bats tests/wheel.bats)
}

echo "kvpipe $version, $(git rev-parse --short HEAD)"
step "nothing is uncommitted" nothing_uncommitted
step "all files name this version" versions
step "NEWS.md has the version and a date" news_has_a_date
step "the version has no tag yet" no_tag_yet
step "two clones give the same tarball" dist
step "the tarball builds, passes its tests and installs, in a folder with a space" tarball
step "the library's ABI is the recorded one" in_one abi-check
step "the wheel is built and works in a fresh environment" wheel
[ ! -d debian ] || step "Debian packages are built" in_one deb
[ -n "$quick" ] || step "everything that CI runs" bash "$work/one/.ci/run"
echo "$held of $steps steps hold"
[ "$held" -eq "$steps" ]
