#!/bin/sh
# fetch_peers.sh - the programs that `make bench-peers` measures beside, fetched from PyPI and built
# where they are not there
#
# usage: tests/bench/fetch_peers.sh FOLDER
#
# FOLDER/llama becomes a venv with llama.cpp, built for this processor from the source distribution
# of llama-cpp-python, and gguf; FOLDER/torch one with torch and transformers. LLAMA_PYTHON and
# TORCH_PYTHON name other Pythons that have these packages; FETCH=0 fetches nothing. Prints both
# Pythons. What cannot be fetched is said on standard error, and is no failure: the table then has a
# row that says so.
set -u
export LC_ALL=C CDPATH=

folder=${1:?usage: fetch_peers.sh FOLDER}

# fetch NAME IMPORTS PACKAGE ...
fetch() {
	name=$1
	python=$folder/$1/bin/python
	imports=$2
	shift 2
	"$python" -c "import $imports" 2>/dev/null && return
	[ "${FETCH:-1}" = 0 ] && return
	echo "fetch_peers.sh: $name into $folder/$name: $*" >&2
	mkdir -p "$folder" && python3 -m venv "$folder/$name" &&
		"$python" -m pip install -q --disable-pip-version-check "$@" >&2 ||
		echo "fetch_peers.sh: $name could not be fetched" >&2
}

if [ -z "${LLAMA_PYTHON:-}" ]; then
	CMAKE_ARGS=-DGGML_NATIVE=ON
	export CMAKE_ARGS
	fetch llama llama_cpp,gguf --no-binary llama-cpp-python llama-cpp-python==0.3.36 \
		gguf==0.19.0
fi
[ -n "${TORCH_PYTHON:-}" ] ||
	fetch torch torch,transformers torch==2.5.1 transformers==5.2.0 'numpy<3'
echo "${LLAMA_PYTHON:-$folder/llama/bin/python} ${TORCH_PYTHON:-$folder/torch/bin/python}"
