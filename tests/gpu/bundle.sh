#!/bin/sh
# bundle.sh - packs what run.sh needs for a machine that has only a GPU driver: bundle.sh BUILD
# FOLDER
#
# BUILD is a build folder whose programs look for shared libraries in lib/ beside them (make
# gpu-bundle). FOLDER becomes a tree in which tests/gpu/run.sh runs as here, with stripped programs
# and every shared library that they need except those of the C library, libstdc++ and libgcc_s:
# every system has these, and those of a newer system want its C library. FOLDER.tar.xz is its
# archive. Prints both sizes, and the versions of these libraries that the bundle wants.
set -eu
export LC_ALL=C CDPATH=

build=$1 folder=$2
cd "$(dirname "$0")/../.."
rm -rf "$folder" "$folder.tar.xz"
mkdir -p "$folder/lib"

# copy FILE PLACE
copy() {
	mkdir -p "$folder/$(dirname "$2")"
	cp -RL "$1" "$folder/$2"
}

for name in tests/gpu/bench_gpu tests/gpu/whole tests/gpu/primitives tests/unit/ops \
	tests/unit/ops_emulated emulated/bench_gpu emulated/whole emulated/primitives; do
	[ ! -e "$build/$name" ] || copy "$build/$name" "$name"
done
for program in "$build"/kv-* "$build"/emulated/kv-*; do
	[ ! -e "$program" ] || copy "$program" "${program#"$build/"}"
done
find "$folder" -type f -exec strip {} +
for file in tests/gpu/run.sh tests/gpu/stages.sh tests/gpu/peers.py tests/gpu/table.py \
	tests/gpu/ncu_rows.py tests/gpu/README.md tests/bin/mkmodel.py examples/methods \
	examples/prompts examples/demo-model; do
	copy "$file" "$file"
done
git rev-parse --short HEAD >"$folder/commit" 2>/dev/null || echo unknown >"$folder/commit"

find "$build"/kv-* "$build/emulated" "$build/tests" -type f -perm -u+x -exec ldd {} + 2>/dev/null |
	awk '$2 == "=>" && $3 ~ /^\// {
		if ($1 !~ /^(libc|libm|libdl|libpthread|librt|libstdc\+\+|libgcc_s|ld-linux.*)\.so/)
			print $3
	}' | sort -u |
	while read -r library; do
		cp -L "$library" "$folder/lib/"
	done
# Each program holds the same kernels: a dictionary that reaches back to the program before finds
# them.
tar -cf - -C "$(dirname "$folder")" "$(basename "$folder")" |
	xz --lzma2=preset=1,dict=192MiB >"$folder.tar.xz"
du -shc "$folder" "$folder.tar.xz" | sed '$d'
find "$folder" -type f -exec objdump -T {} + 2>/dev/null |
	grep -oE '(GLIBC|GLIBCXX|GCC)_[0-9.]+' | sort -uV | awk -F _ '
		{ newest[$1] = $2 }
		END { for (name in newest) print "needs " name "_" newest[name] }' | sort
