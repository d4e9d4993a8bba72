#!/bin/sh
# sysroot.sh - the libraries that kvpipe needs, for another machine
#
# usage: tests/sysroot.sh [-s SUITE] aarch64|i386|musl FOLDER
#
# FOLDER becomes a folder for the compiler's --sysroot; for musl-gcc, which has a C library of its
# own, one with usr/include and usr/lib. aarch64, i386: packages of the Debian SUITE (bookworm),
# unpacked and not installed. musl: the three libraries of libkvfile, compiled here from the sources
# that Debian has. Nothing on this machine changes, and root is not needed: apt-get, which must be
# here, fetches lists and packages into FOLDER. A folder that is complete is left as it is.
# DEBIAN_MIRROR names another mirror.
set -eu
export LC_ALL=C CDPATH=

suite=bookworm
while getopts s: option; do
	case $option in
	s) suite=$OPTARG ;;
	*) exit 2 ;;
	esac
done
shift $((OPTIND - 1))
[ $# -eq 2 ] || {
	sed -n 's/^# usage: /usage: /p' "$0" >&2
	exit 2
}
machine=$1
case $2 in
/*) folder=$2 ;;
*) folder=$PWD/$2 ;;
esac
# A folder that was begun and not finished has no mark, and is made again.
made=$folder/.made-$suite
[ ! -e "$made" ] || exit 0
rm -rf "$folder"
mkdir -p "$folder/apt/lists/partial" "$folder/apt/archives/partial" "$folder/usr"

# apt ARGUMENT ...: apt-get for that architecture, with lists and a cache of its own, and nothing
# installed
apt() {
	apt-get -q -y -o "APT::Architecture=$architecture" -o "APT::Architectures=$architecture" \
	    -o APT::Sandbox::User= -o Debug::NoLocking=1 -o Acquire::Languages=none \
	    -o "Dir::Etc::SourceList=$folder/apt/sources" -o Dir::Etc::SourceParts=/dev/null \
	    -o "Dir::State::Lists=$folder/apt/lists" -o "Dir::State::Status=$folder/apt/status" \
	    -o "Dir::Cache=$folder/apt" "$@"
}

lists() {
	architecture=$1
	mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
	echo "$2 [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main" \
	    >"$folder/apt/sources"
	: >"$folder/apt/status"
	apt update
}

# unpacked ARCHITECTURE TRIPLET PACKAGE ...: with all that they need
unpacked() {
	lists "$1" deb
	libraries=usr/lib/$2
	shift 2
	apt install --download-only --no-install-recommends "$@"
	for package in "$folder"/apt/archives/*.deb; do
		dpkg-deb -x "$package" "$folder"
	done
	find "$folder" -type l -lname '/*' | while read -r link; do
		ln -sf "$folder$(readlink "$link")" "$link"
	done
	# what an installation does: Debian has several versions of these
	cd "$folder/$libraries"
	for name in lapack blas; do
		[ ! -d "$name" ] || {
			ln -s "$name/lib$name.so" "$name/lib$name.so.3" .
			ln -s "$name-netlib.pc" "pkgconfig/$name.pc"
		}
	done
}

# library NAME MODULE OPTIONS SOURCE ...: lib$NAME.a of the sources, and what pkg-config reads
library() {
	name=$1 module=$2 options=$3
	shift 3
	# shellcheck disable=SC2086 # options are words
	(mkdir "$name.o" && cd "$name.o" && musl-gcc -O2 -fPIC $options -c "$@")
	ar rcs "$folder/usr/lib/lib$name.a" "$name.o"/*.o
	cat >"$folder/usr/lib/pkgconfig/$module.pc" <<-END
		Name: $name
		Description: compiled with musl-gcc
		Version: 0
		Cflags: -I$folder/usr/include
		Libs: -L$folder/usr/lib -l$name
	END
}

# The libraries of libkvfile, static, from the sources that Debian has
compiled() {
	lists "$(dpkg --print-architecture)" deb-src
	cd "$folder/apt"
	apt source --only-source jansson xxhash lz4
	mkdir -p "$folder/usr/include" "$folder/usr/lib/pkgconfig"
	cp jansson-*/src/jansson.h jansson-*/android/jansson_config.h xxhash-*/xxh*.h \
	    lz4-*/lib/lz4*.h "$folder/usr/include"
	# what configure finds out: nothing but the two headers of the options
	: >"$(echo jansson-*/src)/jansson_private_config.h"
	library jansson jansson "-I$folder/usr/include -DHAVE_STDINT_H -DHAVE_UNISTD_H" \
	    "$PWD"/jansson-*/src/*.c
	library xxhash libxxhash '' "$PWD"/xxhash-*/xxhash.c
	library lz4 liblz4 '' "$PWD"/lz4-*/lib/lz4*.c
}

echo "Making a folder with the libraries for $machine: $folder."
exec 3>&1 >"$folder.log" 2>&1
trap '[ $? -eq 0 ] || tail -n 20 "$folder.log" >&3' EXIT
case $machine in
aarch64)
	unpacked arm64 aarch64-linux-gnu libc6-dev liblz4-dev libxxhash-dev libjansson-dev \
	    libpcre2-dev libutf8proc-dev libdnnl-dev liblapack-dev
	;;
i386) unpacked i386 i386-linux-gnu libc6-dev liblz4-dev libxxhash-dev libjansson-dev ;;
musl) compiled ;;
*) exit 2 ;;
esac
rm -rf "$folder/apt"
: >"$made"
