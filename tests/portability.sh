#!/bin/sh
# portability.sh - kvpipe built for another machine and tested here
#
# usage: tests/portability.sh [-a] aarch64|musl|i386 ...
#
# aarch64 runs under qemu-user, musl is x86-64 with another C library, i386 has 32 bits. For each:
# libkvfile.so, and the unit tests of libkvfile and of src/methods, with warnings as errors. -a:
# programs, too. For aarch64 all of them, the ops of the CPU against double precision, and a
# prompt on the demo model; for the others those that need no model, since there is no oneDNN.
# What the machine writes is compared with what build/ writes here, and read in Python.
#
# Everything goes to build-MACHINE, the libraries to build-roots (sysroot.sh). A machine whose
# compiler or emulator is not here is left out, and named: `sh deps.sh portability` installs them.
# CCACHE=ccache goes in front of the compilers.
set -eu
export LC_ALL=C CDPATH=

cd "$(dirname "$0")/.."
here=$PWD
case $here in
*' '*)
	echo "portability.sh: $here: the compilers want a folder without spaces in its name" >&2
	exit 2
	;;
esac
whole=
while getopts a option; do
	case $option in
	a) whole=1 ;;
	*) exit 2 ;;
	esac
done
shift $((OPTIND - 1))
[ $# -gt 0 ] || {
	sed -n 's/^# usage: /usage: /p' "$0" >&2
	exit 2
}
jobs=$(getconf _NPROCESSORS_ONLN)
kvfile='liblz4 libxxhash jansson'

# makes TARGET ...
makes() {
	make -s -j "$jobs" "O=build-$machine" GPU=0 CC="${CCACHE:-} $cc" AR="$ar" RUN="$run" \
	    WERROR=-Werror "modules=$modules" "$@"
}

# Sets what a machine is: cc, ar, run (what its programs are run by), modules (of pkg-config), and
# tells pkg-config where they are. Fails where something is not here.
machine_of() {
	root=$here/build-roots/$1 ar=ar run='' modules=$kvfile needs=
	case $1 in
	aarch64)
		cc="aarch64-linux-gnu-gcc --sysroot=$root" ar=aarch64-linux-gnu-ar
		run="qemu-aarch64-static -L $root" needs='qemu-aarch64-static'
		modules="$kvfile libpcre2-8 libutf8proc lapack"
		;;
	musl) cc=musl-gcc ;;
	i386)
		# the compiler's own instructions for floats round twice
		cc="gcc -m32 -msse2 -mfpmath=sse --sysroot=$root"
		run="$root/lib/ld-linux.so.2 --library-path $root/usr/lib/i386-linux-gnu"
		run="$run:$root/lib/i386-linux-gnu"
		;;
	*) echo "portability.sh: $1: aarch64, musl or i386" >&2; exit 2 ;;
	esac
	for needed in ${cc%% *} $needs apt-get; do
		command -v "$needed" >/dev/null || {
			echo "$1: $needed is not here"
			return 1
		}
	done
	[ "$1" != i386 ] || [ -e "$(gcc -m32 -print-file-name=libgcc.a)" ] || {
		echo "$1: gcc -m32 has no libgcc"
		return 1
	}
	mkdir -p "build-$1" build-roots
	sh tests/sysroot.sh "$1" "$root"
	unset PKG_CONFIG_PATH PKG_CONFIG_SYSROOT_DIR
	case $1 in
	musl) PKG_CONFIG_LIBDIR=$root/usr/lib/pkgconfig ;;
	*)
		PKG_CONFIG_LIBDIR=$(echo "$root"/usr/lib/*-linux-gnu*/pkgconfig)
		export PKG_CONFIG_SYSROOT_DIR="$root"
		;;
	esac
	export PKG_CONFIG_LIBDIR
}

# unit TEST ...: runs them, two at a time, and prints what those say that fail
unit() {
	# shellcheck disable=SC2016 # for the inner shell
	printf '%s\n' "$@" | xargs -P "$jobs" -I '{}' sh -c '
		$1 "$2" >"$2.said" 2>&1 || { echo "FAILED: $2"; tail -n 20 "$2.said"; exit 1; }
	' sh "$run" "build-$machine/{}"
}

# same NAME COMMAND ...: writes a snapshot here and there, of the same bytes
same() {
	name=$1 program=$2
	shift 2
	"build/$program" "$@" >"build-$machine/$name.here"
	$run "build-$machine/$program" "$@" >"build-$machine/$name.kv"
	cmp "build-$machine/$name.here" "build-$machine/$name.kv"
}

# Quantised rows, and what the reader in Python says of them
programs() {
	# shellcheck disable=SC2046 # words
	makes $(printf "build-$machine/%s " kv-check kv-convert kv-critical kv-evict kv-footprint \
	    kv-merge kv-plan kv-quantize kvpipe)
	$run "build-$machine/kv-check" formats/vectors/passed/*.kv
	for type in q8_0 q4_0 int8 fp8; do
		same "$type" kv-quantize --keys "$type" --values "$type" "$1"
		"$(sh tests/python.sh)" tests/format/kvread.py "build-$machine/$type.kv" \
		    >"build-$machine/$type.dump"
	done
}

try() {
	machine=$1
	tests=$(for file in tests/unit/kvfile_*.c tests/unit/methods_*.c; do
		case $file in
		*_sample.c) ;;
		*) echo "${file%.c}" ;;
		esac
	done)
	# shellcheck disable=SC2086,SC2046 # words
	makes "build-$machine/libkvfile.so" $(printf "build-$machine/%s " $tests)
	# shellcheck disable=SC2086 # words
	unit $tests
	echo "$machine: $(echo "$tests" | wc -l) unit tests pass."
	[ -n "$whole" ] || return 0
	text=examples/prompts/harbour.txt
	build/kv-prefill -m examples/demo-model "$text" >"build-$machine/text.kv"
	programs "build-$machine/text.kv"
	if [ "$machine" = aarch64 ]; then
		makes all build-aarch64/tests/unit/ops
		# shellcheck disable=SC2086 # words
		$run build-aarch64/tests/unit/ops -s
		$run build-aarch64/kv-prefill -m examples/demo-model "$text" |
		    $run build-aarch64/kv-decode -m examples/demo-model -n 8 >"build-$machine/said"
		build/kv-decode -m examples/demo-model -n 8 "build-$machine/text.kv" |
		    diff - "build-$machine/said"
	fi
	echo "$machine: programs pass."
}

# what the machines are compared with, before pkg-config is told of theirs
[ -z "$whole" ] || [ -x build/kv-decode ] || make -s -j "$jobs" GPU=0 all
for name; do
	! machine_of "$name" || try "$name"
done
