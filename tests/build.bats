#!/usr/bin/env bats
# bats file_tags=nosan
# The Makefile: what is built again after flags have changed, and when the CUDA backend is built

load helper

# Compilers and a toolkit that make empty files and note that they ran, and a machine without a GPU
setup() {
	cd "$BATS_TEST_TMPDIR" || exit 1
	unset MAKEFLAGS MAKELEVEL
	mkdir -p bin toolkit/bin
	cat >bin/cc <<-END
		#!/bin/sh
		[ "\$1" != -dumpmachine ] || exec echo x86_64-linux-gnu
		while [ "\$1" != -o ]; do shift; done
		: >"\$2"
		echo "\${0##*/}" >>$PWD/ran
	END
	chmod +x bin/cc
	cp bin/cc bin/c++
	cp bin/cc bin/another
	cp bin/cc toolkit/bin/nvcc
	PATH=$PWD/bin:$PATH
	gpus 'No devices were found'
}

# gpus LINE ...: what nvidia-smi prints
gpus() {
	printf '#!/bin/sh\ncat <<END\n%s\nEND\n' "$(printf '%s\n' "$@")" >bin/nvidia-smi
	chmod +x bin/nvidia-smi
}

mk() {
	make -C "$ROOT" --no-print-directory O="$PWD/out" CC=cc CXX=c++ CUDA="$PWD/toolkit" "$@"
}

# built ARGUMENT ...: the compilers that run when libraries of C, CUDA and C++ are built
built() {
	: >ran
	mk -s "$@" "$PWD"/out/lib{kvfile,gpu}.a "$PWD/out/emulated/libgpu.a" || return
	sort -u ran | paste -sd ' '
}

@test "nothing is built again when nothing has changed" {
	assert_equal "$(built GPU=1 WERROR=-Werror)" 'c++ cc nvcc'
	assert_equal "$(built GPU=1 WERROR=-Werror)" ''
	mk -q GPU=1 WERROR=-Werror "$PWD/out/libgpu.a"
}

@test "another compiler and other flags build again what they concern, and nothing else" {
	assert_equal "$(built GPU=1)" 'c++ cc nvcc'
	for flags in CFLAGS=-O1 CPPFLAGS=-DX LDFLAGS=-s WARN=-Wall; do
		assert_equal "$flags: $(built GPU=1 "$flags")" "$flags: cc"
	done
	assert_equal "$(built GPU=1)" cc
	assert_equal "$(built GPU=1 CC=another)" another
	assert_equal "$(built GPU=1)" cc
	assert_equal "$(built GPU=1 CXX=another)" another
	assert_equal "$(built GPU=1 WERROR=-Werror)" 'c++ cc nvcc'
	assert_equal "$(built GPU=1 SAN=1)" 'c++ cc nvcc'
	assert_equal "$(built GPU=1 SAN=1 GPU_ARCHS=90)" nvcc
}

@test "a dry run changes nothing" {
	assert_equal "$(built GPU=0)" 'c++ cc'
	mk -n GPU=0 CFLAGS=-O1 "$PWD/out/libkvfile.a" >said
	assert [ -s said ]
	assert_equal "$(built GPU=0)" ''
}

@test "GPU=1 puts CUDA's objects into libgpu.a, GPU=0 takes them out" {
	assert_equal "$(built GPU=0)" 'c++ cc'
	assert_equal "$(ar t out/libgpu.a)" nogpu.o
	assert_equal "$(built GPU=1)" nvcc
	run ar t out/libgpu.a
	assert_line gpu_attend.o
	refute_line nogpu.o
	assert_equal "$(built GPU=0)" cc
	assert_equal "$(ar t out/libgpu.a)" nogpu.o
}

# architectures ARGUMENT ...: those that the CUDA backend would be compiled for, none where it would not be
architectures() {
	mk -n "$@" "$PWD/out/libgpu.a" | grep -o 'code=[a-z]*_[0-9]*' | sort -u | paste -sd ' '
}

@test "the CUDA backend is built for the GPUs that are here, or for sm_80 and sm_90 where it is asked for" {
	assert_equal "$(architectures)" ''
	assert_equal "$(architectures GPU=1)" 'code=compute_90 code=sm_80 code=sm_90'
	assert_equal "$(architectures GPU=1 GPU_ARCHS=86)" 'code=compute_86 code=sm_86'
	gpus 12.0 8.6 12.0 7.5       # 7.5 is too old
	assert_equal "$(architectures)" 'code=compute_120 code=sm_120 code=sm_86'
	assert_equal "$(architectures GPU_ARCHS=86)" 'code=compute_86 code=sm_86'
	assert_equal "$(architectures GPU=1)" 'code=compute_90 code=sm_80 code=sm_90'
	assert_equal "$(architectures GPU=0)" ''
	assert_equal "$(architectures SAN=1)" ''
	assert_equal "$(architectures CUDA=/nonexistent)" ''
}

@test "make says in one line how to build the CUDA backend, where there is nvcc and no GPU" {
	hint='There is no NVIDIA GPU here: GPU=1 builds the CUDA backend all the same, for sm_80, sm_90, and PTX'
	run mk -n
	assert_line "$hint"
	assert_equal "$(grep -c 'GPU=1' <<<"$output")" 1
	for silent in -s GPU=0 CUDA=/nonexistent clean; do
		run mk -n "$silent"
		assert_success
		refute_line "$hint"
	done
}

@test "GPU=1 without nvcc is an error" {
	run mk GPU=1 CUDA=/nonexistent
	assert_failure 2
	assert_output --partial 'GPU=1 wants nvcc, and there is no /nonexistent/bin/nvcc'
}

@test "with_progress.sh: a line for each quarter, and the status of the command" {
	cd "$BATS_TEST_TMPDIR" || exit 1
	run sh "$ROOT/tests/with_progress.sh" log steps '^step' 4 sh -c 'for i in 1 2 3 4; do echo step $i; echo else; sleep 1.1; done'
	assert_success
	assert_line --regexp '^steps: [123] of 4$'
	assert_line --regexp '^steps: done, [0-9]+ s$'
	assert_equal "$(grep -c step log)" 4
	run --separate-stderr sh "$ROOT/tests/with_progress.sh" log steps '^step' 4 sh -c 'echo step 1; echo no room >&2; exit 7'
	assert_failure 7
	assert_output 'steps: failed after 1 of 4'
	assert_equal "$stderr" $'step 1\nno room'
}
