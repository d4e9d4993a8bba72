#!/bin/sh
# run.sh - all tests on a fresh clone: installs what is missing, builds,
# runs the unit tests and the bats files
#
# The same without installing anything is `make test`. Arguments go to make:
# sh tests/run.sh O=build-asan SAN=1, sh tests/run.sh ALL=1
set -eu
export LC_ALL=C CDPATH=

cd "$(dirname "$0")/.."
sh deps.sh build test
build=build
for argument in "$@"; do
	case $argument in
	O=*) build=${argument#O=} ;;
	esac
done
echo "Building the programs and their tests (the commands are in $build/make.log)."
sh tests/build.sh "$build" "$@" "$build/unit.bats"
echo "Running the tests, a line for each file of them."
exec make --no-print-directory "$@" test
