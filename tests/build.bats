#!/usr/bin/env bats
# bats file_tags=nosan
# The Makefile: what is built again after flags have changed, when the CUDA backend is built, and machines that lack something or are others

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

# without MODULE: a pkg-config that does not know one
without() {
	printf '#!/bin/sh\ncase " $* " in *" %s "*) exit 1 ;; esac\nexec %s "$@"\n' "$1" "$(command -v pkg-config)" >bin/pkg-config
	chmod +x bin/pkg-config
}

@test "libraries that are missing, and a missing pkg-config, are named before anything is compiled" {
	without libxxhash
	run -2 mk
	assert_output --partial 'pkg-config does not find libxxhash: `sh deps.sh build` installs what kvpipe needs.'
	run -2 mk PKG_CONFIG=no-such-pkg-config "$PWD/out/kv-check"
	assert_output --partial 'there is no no-such-pkg-config: `sh deps.sh build` installs'
	assert [ ! -e ran ]
	for goal in clean uninstall; do
		run -0 mk PKG_CONFIG=no-such-pkg-config DESTDIR="$PWD/nowhere" "$goal"
	done
}

@test "libkvfile.so is not linked where a library that it needs is not named" {
	mkdir -p kept/libkvfile
	cp -p "$O"/libkvfile/*.o kept/libkvfile
	if nm kept/libkvfile/*.o 2>/dev/null | grep -q '__[a-z]*san_'; then
		skip "the library was built with sanitizers, whose functions are in the program"
	fi
	cp -p "$O/cc.flags" kept
	# shellcheck disable=SC2046 # an option for each object, none of which is made again
	set -- $(printf -- '-o %s ' "$PWD"/kept/libkvfile/*.o)
	PATH=${PATH#"$PWD/bin:"}
	make -s -C "$ROOT" O="$PWD/kept" "$@" "$PWD/kept/libkvfile.so"
	rm kept/libkvfile.so
	run -2 make -s -C "$ROOT" O="$PWD/kept" kvfile_libs= "$@" "$PWD/kept/libkvfile.so"
	assert_output --regexp "undefined reference to .(XXH|LZ4|json)"
	assert [ ! -e kept/libkvfile.so ]
}

# The empty programs of the compiler above are not for any machine, and as tests of bats they pass.
@test "in a folder with a space, and with other characters, everything is built, tested, installed and uninstalled" {
	local folder='a b & it'\''s #1 | \2 "x" %s'
	mkdir "$folder"
	ln -s "$ROOT"/* "$folder"
	rm -f "$folder"/build*
	sed -i 's/^echo /chmod +x "$2"\n&/' bin/cc
	cp bin/cc bin/c++
	cd "$folder"
	# the command, and not the part of it that runs this test
	run make --no-print-directory O=out GPU=0 CC=cc CXX=c++ bats_files= BATS="$(type -ap bats | tail -n 1)" test
	assert_success
	assert_line --regexp '^ *[0-9]+/[0-9]+  ok      unit  '
	assert_line --regexp '^[1-9][0-9]* passed, 0 failed, 0 skipped'
	make -s O=out GPU=0 CC=cc CXX=c++ DESTDIR="$PWD/st age" PREFIX='/opt/k v' install
	assert [ -x 'st age/opt/k v/bin/kv-check' ]
	assert [ -s 'st age/opt/k v/share/kvpipe/examples/methods/snapkv.sh' ]
	assert_equal "$(PKG_CONFIG_PATH="st age/opt/k v/lib/pkgconfig" pkg-config --cflags kvfile)" '-I/opt/k\ v/include/kvfile '
	make -s O="$PWD/out" GPU=0 CC=cc CXX=c++ DESTDIR="$PWD/st age" PREFIX='/opt/k v' uninstall
	assert_equal "$(find 'st age' -type f -o -type l)" ''
	# what programs of the tests know of the tree is a string of C
	local name=${PWD//\\/\\\\}
	eval "set -- $(make -n GPU=0 O=out CC=cc CXX=c++ -W tests/unit/model_cache.c out/tests/unit/model_cache.o | grep DEMO_MODEL)"
	assert_equal "$(printf '%s\n' "$@" | grep DEMO_MODEL)" "-DDEMO_MODEL=\"${name//\"/\\\"}/examples/demo-model\""
	run -2 make O='../a b/out' GPU=0
	assert_output --partial 'make takes no names with spaces'
}

@test "programs for another machine have no completions, unless RUN runs them" {
	# the head of an ELF file for AArch64, which a shell must not take for a script
	printf '\177ELF\2\1\1\0\0\0\0\0\0\0\0\0\2\0\267\0\necho a script >ran\n' >kv-other
	chmod +x kv-other
	run -0 sh "$ROOT/src/cli/completions.sh" made "$PWD/kv-other"
	assert_output "No completions for shells: $PWD/kv-other is not for this machine (make RUN= names what runs it)."
	assert_equal "$(ls made)" _kvpipe
	assert [ ! -s made/_kvpipe ]
	assert [ ! -e ran ]
	printf '#!/bin/sh\nexec "%s/kv-check" "$2"\n' "$O" >bin/emulator
	chmod +x bin/emulator
	RUN=emulator run -0 sh "$ROOT/src/cli/completions.sh" made "$PWD/kv-other"
	assert_output ''
	run -0 bash --norc -c '. made/kvpipe.bash && complete -p kv-check'
}

@test "deps.sh asks for the OpenMP of the compiler that there is" {
	printf '#!/bin/sh\necho "a package manager is asked: $*"\nexit 1\n' >bin/apt-get
	chmod +x bin/apt-get
	cat >bin/cc <<-'END'
		#!/bin/sh
		case " $* " in
		*' --version '*) echo 'Debian clang version 16.0.6 (15~deb12u1)' ;;
		*' -fopenmp '*) echo "fatal error: 'omp.h' file not found" >&2; exit 1 ;;
		esac
	END
	run -1 sh "$ROOT/deps.sh" build
	assert_line --regexp '^ +libomp-16-dev +OpenMP for clang'
	sed -i '/fopenmp/d' bin/cc
	run -0 sh "$ROOT/deps.sh" build
	printf '#!/bin/sh\necho cc 12.2.0\n' >bin/cc
	run -0 sh "$ROOT/deps.sh" --list build
	refute_output --partial libomp
}
