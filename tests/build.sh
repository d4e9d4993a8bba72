#!/bin/sh
# build.sh - make, which says how many files it has compiled and linked instead of its commands
#
# usage: tests/build.sh FOLDER ARGUMENT ...
#
# FOLDER is the build folder: make O=FOLDER ARGUMENT ... as many commands at once as there are
# processors. The commands go to FOLDER/make.log.
set -eu
export LC_ALL=C CDPATH=

build=$1
shift
mkdir -p "$build"
set -- make -j "$(getconf _NPROCESSORS_ONLN)" "$@" O="$build"
writes=' -o '
total=$("$@" -n 2>/dev/null | grep -c -e "$writes") || true
exec sh "$(dirname "$0")/with_progress.sh" "$build/make.log" 'files compiled and linked' \
    "$writes" "$total" "$@"
