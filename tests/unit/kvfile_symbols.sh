#!/bin/sh
# kvfile_symbols - libkvfile never prints and never exits, and its archive says so
# usage: kvfile_symbols ARCHIVE SHARED
export LC_ALL=C CDPATH=

unwanted=' U (_?exit|abort|v?printf|puts|perror|fputs|fwrite|err|warn|getenv)(@.*)?$'
if nm "$1" | grep -E "$unwanted"; then
	echo "FAILED: $1 uses what a library must not use"
	echo "0 passed, 1 failed"
	exit 1
fi
# The version itself is a name (A).
if nm -D --defined-only "$2" | grep -vE ' (kv_[a-z0-9_]+@@KVFILE_[0-9.]+|A KVFILE_[0-9.]+)$'; then
	echo "FAILED: $2 exports names without kv_, or without a version"
	echo "1 passed, 1 failed"
	exit 1
fi
echo "2 passed, 0 failed"
