#!/bin/sh
# run.sh - all tests on a fresh clone: installs what is missing, builds, runs the unit tests and the bats files
#
# The same without installing anything is `make test`. Arguments go to make: sh tests/run.sh O=build-asan SAN=1, sh tests/run.sh ALL=1
set -eu

cd "$(dirname "$0")/.."
sh tests/deps.sh build test
jobs=$(getconf _NPROCESSORS_ONLN)
build=build
for argument in "$@"; do
	case $argument in
	O=*) build=${argument#O=} ;;
	esac
done
mkdir -p "$build"
echo "Building the programs and their tests (what make says goes to $build/make.log)."
if ! make -j "$jobs" "$@" "$build/unit.bats" >"$build/make.log" 2>&1; then
	tail -n 30 "$build/make.log" >&2
	exit 1
fi
exec make --no-print-directory "$@" test
