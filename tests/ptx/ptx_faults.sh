#!/bin/sh
# ptx_faults.sh - faults that are planted in kernels must be found, and the message must name them
#
# usage: tests/ptx/ptx_faults.sh FOLDER
#
# A copy of gpu/ is changed by sed in FOLDER/faults, compiled by nvcc, translated, and linked with
# the other objects of ops_ptx, and one part of ops is run. The Makefile gives the commands:
# PTX_NVCC, PTX_CXX, PTX_LINK, and the objects of the programs, PTX_OPS and PTX_PRIMITIVES.
set -u
export LC_ALL=C CDPATH=
export PTX_TOTALS=

folder=$1
passed=0
failed=0
translator=$(dirname "$0")/ptx_to_c.py

# right NAME, wrong NAME FILE: counts a fault that was found, or was not
right() {
	passed=$((passed + 1))
	echo "$1: found"
	sed 's/^/    /' "$here/found"
}

wrong() {
	failed=$((failed + 1))
	echo "FAILED: $1"
	tail -n 20 "$2"
}

# plant NAME SOURCE FILE SED KERNELS: a copy with FILE changed; SOURCE, of gpu/ or tests/gpu/, is
# compiled, and of its kernels those that the expression KERNELS names are translated.
plant() {
	here=$folder/faults/$((passed + failed))
	rm -rf "$here"
	mkdir -p "$here" && cp -r gpu "$here/gpu" || return
	sed -i "$4" "$here/gpu/$3"
	if cmp -s "gpu/$3" "$here/gpu/$3"; then
		echo "nothing of $3 has changed" >"$here/log"
		return 1
	fi
	nvcc=$PTX_NVCC
	case $2 in
	*_wgmma.cu) nvcc=$(echo "$PTX_NVCC" | sed 's/compute_90/compute_90a -DSM90A/') ;;
	esac
	source=$2
	[ "${2%%/*}" != gpu ] || source=$here/$2
	# shellcheck disable=SC2086 # words
	{
		base=$here/$(basename "$source" .cu)
		$nvcc -I"$here" -I. -Isrc -o "$base.ptx" "$source" &&
			python3 "$translator" --only "$5" "$base.ptx" "$base.cc" &&
			$PTX_CXX -o "$here/kernels.o" "$base.cc"
	} >"$here/log" 2>&1
}

# link NAME OBJECT OBJECTS: with the changed kernels in place of OBJECT
link() {
	objects=
	for object in $3; do
		case $object in
		"$folder/$2") objects="$objects $here/kernels.o" ;;
		*) objects="$objects $object" ;;
		esac
	done
	# shellcheck disable=SC2086 # words
	$PTX_LINK -o "$here/program" $objects $PTX_LIBS >"$here/log" 2>&1
}

# finds NAME SOURCE FILE SED KERNELS PART MESSAGE: that part of ops says MESSAGE, an expression.
finds() {
	if ! plant "$1" "gpu/$2.cu" "$3" "$4" "$5" || ! link "$1" "$2.o" "$PTX_OPS"; then
		wrong "$1: not built" "$here/log"
		return
	fi
	KV_EMULATED_CAPABILITY=90 "$here/program" -s "$6" >"$here/log" 2>&1
	if [ $? -eq 3 ] && grep -A 1 "^ptx: .*$7" "$here/log" | head -n 2 >"$here/found" &&
	    [ -s "$here/found" ]; then
		right "$1"
	else
		wrong "$1: no '$7'" "$here/log"
	fi
}

# differs NAME SED LINE: the instructions of port.h, tests/gpu/primitives.cu; that line differs.
differs() {
	if ! plant "$1" tests/gpu/primitives.cu port.h "$2" . ||
	    ! link "$1" primitives.o "$PTX_PRIMITIVES"; then
		wrong "$1: not built" "$here/log"
		return
	fi
	"$here/program" >"$here/log" 2>&1
	"$folder/../emulated/primitives" | diff - "$here/log" >"$here/found"
	if grep -q "^> $3 " "$here/found"; then
		right "$1"
	else
		wrong "$1: $3 does not differ" "$here/log"
	fi
}

finds 'a stage is loaded while other warps read it' gpu_rebuild gpu_rebuild.cu \
	'/the oldest stage is free/d; s/^\t\tmultiply(sum/\t\t__syncthreads();\n&/' \
	10rebuild_16 chosen 'rebuild_16<.*RACE: a cp.async of shared memory .* behind a read by'
finds 'a warp reads what other lanes have copied, without __syncwarp()' gpu_decode \
	gpu_decode_mma.h '/^\t\tcp_async_wait<1>();/{n;d;}' '8mma_tile' chosen \
	'mma_tile<.*RACE: a read of shared memory .* behind a write by thread'
finds 'one wait for a copy is missing' gpu_bits_lines gpu_bits_lines.cu \
	'/cp_async_wait<1>();/d' 13bits_by_lines index \
	'bits_by_lines<.*RACE: a read of shared memory .* to which a cp.async of thread'
finds 'lines are multiplied while other lanes write them' gpu_bits_lines gpu_bits_lines.h \
	'/^\t\tmake_lines</{n;d;}' 13bits_by_lines index \
	'bits_by_lines<.*RACE: a read of shared memory .* behind a write by thread'
finds 'a loop goes one too far' gpu_argmax gpu_argmax.cu \
	's/i < n; i += THREADS/i <= n; i += THREADS/' reference_argmax step \
	'reference_argmax, .*out of bounds of .* bytes of device memory'
finds 'four numbers are moved at once where they are not aligned' gpu_bits gpu_bits.cu \
	's/if (call.wide && n == TILE)/if (n == TILE)/' 11bits_scores index \
	'bits_scores<.*16 bytes at .*: not aligned'
finds 'a warp leaves its place in shared memory empty' gpu_argmax gpu_argmax.cu \
	's/if (threadIdx.x % 32 == 0)/if (threadIdx.x % 64 == 0)/' argmax_ step \
	'argmax_.*UNINITIALISED: a read of shared memory'
finds 'all blocks write to one place' gpu_argmax gpu_argmax.cu \
	's/part\[(size_t)blockIdx.y \* gridDim.x + blockIdx.x\] =/part[blockIdx.y * gridDim.x] =/' \
	argmax_blocks step 'argmax_blocks<.*RACE between blocks: a write of device memory'
finds 'the steps of one-bit keys are not written' gpu_index gpu_index.cu \
	'/^pack_bits(const struct index/,/^}/{/store_two(zero + E + e/d;}' 9pack_bits layer \
	'bits_.*UNINITIALISED: a read of device memory'
finds 'a tile is given back while products read it' gpu_attend_wgmma gpu_attend_wgmma.h \
	'/^attend_first/,/^}/{/give_back/d;s/^\tpass_turn<.*/\tgive_back(\&x.empty[at]);\n&/;}' \
	attend_warpgroupsI3f16Li128ELb0 attend \
	'attend_warpgroups<.*RACE: a cp.async of shared memory .* behind a read by warp'
finds 'queries are multiplied without a fence' gpu_attend_wgmma gpu_attend_wgmma.cu \
	'/plan.scale);/{n;d;}' attend_warpgroupsI3f16Li128ELb0 attend \
	'attend_warpgroups<.*NOT FENCED: wgmma reads shared memory'
finds 'a tile is given back while other lanes read its log-sum-exps' gpu_mass_wgmma \
	gpu_mass_wgmma.cu '/^add_items/,/^}/{/__syncwarp/d;}' mass_warpgroups mass \
	'mass_warpgroups<.*RACE: a cp.async of shared memory .* behind a read by warp'
finds 'tiles are multiplied without a fence' gpu_mass_wgmma gpu_warpgroups.h \
	'/fence_proxy_async/d' mass_warpgroups mass \
	'mass_warpgroups<.*NOT FENCED: wgmma reads shared memory'
finds 'outputs are used before the wait for their products' gpu_attend_wgmma \
	gpu_attend_wgmma.h '/^attend_next/,/^}/s/wgmma_wait<0>/wgmma_wait<1>/' \
	attend_warpgroupsI3f16Li128ELb0 attend \
	'attend_warpgroups<.*NOT WAITED FOR: a register of a product'
finds 'outputs are scaled without a fence in front of the next product' gpu_attend_wgmma \
	gpu_attend_wgmma.h '/^attend_last/,/^}/{/wgmma_fence/d;}' \
	attend_warpgroupsI3f16Li128ELb0 attend \
	'attend_warpgroups<.*NOT FENCED: registers of wgmma'
differs 'the operands of cvt.rn.bf16x2 are exchanged' \
	'/cvt.rn.bf16x2/s/"f"(second), "f"(first)/"f"(first), "f"(second)/' scalars

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
