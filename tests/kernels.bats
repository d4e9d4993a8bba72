#!/usr/bin/env bats
# bats file_tags=slow
# KV_KERNELS: kernels of a GPU must give what naive ones give in a small problem before they are used. On the emulated GPU, with kernels that
# do nothing ($KV_EMULATED_WRONG).

load helper

setup_file() {
	load helper
	PATH=$O/emulated:$PATH
	cd "$BATS_FILE_TMPDIR" || return
	"$PYTHON" "$ROOT/tests/bin/mkmodel.py" --hidden 128 --heads 4 --kv-heads 2 --head-dim 64 --layers 3 --ffn 96 --vocab 200 --std 0.2 model
	seq 3 120 | tr '\n' ' ' >ids
	export KV_MODEL=$BATS_FILE_TMPDIR/model KV_DEVICE=cuda
	kv-prefill -q --ids --mass -o rows.kv ids
	kv-prefill -q --ids --keys q8_0 --values q4_0 -o coded.kv ids
	kv-quantize1b -q -o bits.kv rows.kv
	kv-index --pages -q -o pages.kv rows.kv
}

setup() {
	PATH=$O/emulated:$PATH
	cd "$BATS_TEST_TMPDIR" || exit 1
	ln -s "$BATS_FILE_TMPDIR"/{ids,*.kv} .
	export KV_MODEL=$BATS_FILE_TMPDIR/model KV_DEVICE=cuda XDG_CACHE_HOME=$PWD/cache
	unset KV_KERNELS
}

# kernels_of COMMAND ...: how many kernels it launches; its output is discarded
kernels_of() {
	KV_EMULATED_TOTALS=1 "$@" 2>&1 >kernels.out | sed -n 's/^emulator: \([0-9]*\) kernels.*/\1/p'
}

@test "kernels that are right are used as if unchecked, and checked by the first process only" {
	local first second unchecked
	first=$(kernels_of kv-decode --ids --ignore-eos -n 5 -o first rows.kv)
	second=$(kernels_of kv-decode --ids --ignore-eos -n 5 -o second rows.kv)
	unchecked=$(KV_KERNELS=unchecked kernels_of kv-decode --ids --ignore-eos -n 5 -o unchecked rows.kv)
	assert [ "$first" -gt "$second" ]
	assert_equal "$second" "$unchecked"
	cmp first unchecked
	cmp second unchecked
	assert_equal "$(stat -c %a cache/kvpipe/kernels)" 600
	run -0 grep -c ' right$' cache/kvpipe/kernels
	assert_output 1
	# another GPU is checked by itself; its line is added
	kv-decode --device cuda:1 --ids --ignore-eos -n 5 rows.kv >other
	run -0 grep -c ' right$' cache/kvpipe/kernels
	assert_output 2
	# damage is as nothing remembered; so is a folder that cannot be written
	sed -i 's/right/wrong/' cache/kvpipe/kernels
	run -0 --separate-stderr kv-decode --ids --ignore-eos -n 5 -o third rows.kv
	assert_equal "$stderr" ''
	cmp third unchecked
	XDG_CACHE_HOME=/proc run -0 --separate-stderr kv-decode --ids --ignore-eos -n 5 -o fourth rows.kv
	assert_equal "$stderr" ''
	cmp fourth unchecked
}

@test "steps are launched from captured graphs though their kernels were checked" {
	KV_EMULATED_TOTALS=1 run -0 --separate-stderr kv-decode -v --ids --ignore-eos -n 6 -o a rows.kv
	assert_regex "$stderr" ' [1-9][0-9]* graphs'
	refute_regex "$stderr" 'not captured'
	KV_EMULATED_TOTALS=1 run -0 --separate-stderr kv-decode -v --ids --ignore-eos -n 6 --retrieve 'fier budget=32' -o b bits.kv
	assert_regex "$stderr" ' [1-9][0-9]* graphs'
	refute_regex "$stderr" 'not captured'
}

# wrong KERNEL OPS COMMAND ...: COMMAND -o FILE, where KERNEL does nothing, must warn of each of OPS once and give what it gives without that fault, but for
# rounding: the same tokens
wrong() {
	local kernel=$1 ops=$2 file
	shift 2
	rm -rf cache
	KV_KERNELS=unchecked "$@" -o right.kv >right.ids
	KV_EMULATED_WRONG=$kernel KV_KERNELS=unchecked "$@" -o wrong.kv >wrong.ids || true
	run ! cmp -s right.kv wrong.kv
	for _ in first remembered; do
		KV_EMULATED_WRONG=$kernel run -0 --separate-stderr "$@" -o checked.kv
		assert_equal "$output" "$(cat right.ids)"
		assert_equal "$(sed -n 's/.*: GPU kernels give wrong results and are not used: \([a-z_]*\),.*/\1/p' <<<"$stderr" | sort | xargs)" "$ops"
		for file in right checked; do
			KV_KERNELS=unchecked kv-decode -q --ids --ignore-eos -n 2 $file.kv >$file.next
		done
		cmp right.next checked.next
	done
	grep -q " wrong$\| wgmma-wrong$" cache/kvpipe/kernels
	# where the fault is gone, KV_KERNELS=check finds that
	KV_KERNELS=check run -0 --separate-stderr "$@" -o again.kv
	assert_equal "$stderr" ''
	cmp right.kv again.kv
	run -0 --separate-stderr "$@" -o again.kv
	assert_equal "$stderr" ''
	cmp right.kv again.kv
}

@test "kernels that give something else are not used, with one warning, in this process and in later ones" {
	wrong attend_tiles attend kv-prefill --ids ids
	wrong attend_split attend kv-decode --ids --ignore-eos -n 5 rows.kv
	wrong attend_quantised_split attend kv-decode --ids --ignore-eos -n 5 coded.kv
	wrong attend_quantised_tiles attend kv-prefill --ids --keys q8_0 --values q8_0 ids
	wrong bits_scores bits_scores kv-decode --ids --ignore-eos -n 5 --retrieve 'fier budget=24' bits.kv
	wrong attend_split 'attend attend_chosen' kv-decode --ids --ignore-eos -n 5 --retrieve 'quest budget=32' pages.kv
}

@test "on Hopper attention and attention mass by warpgroups give way to the tiles of other GPUs" {
	export KV_EMULATED_CAPABILITY=90
	seq 3 180 | tr '\n' ' ' >more.ids
	"$PYTHON" "$ROOT/tests/bin/mkmodel.py" --hidden 64 --heads 2 --kv-heads 1 --head-dim 128 --layers 1 --ffn 32 --vocab 200 --std 0.2 wide
	for _ in 1 2 3; do tr ' ' '\n' <more.ids; done | head -n 530 | tr '\n' ' ' >long
	KV_MODEL=wide wrong attend_warpgroups attend kv-prefill --ids long
	grep -q ' right$' cache/kvpipe/kernels
	KV_KERNELS=plain KV_MODEL=wide KV_EMULATED_WRONG=attend_warpgroups kv-prefill -q --ids -o plain.kv long
	KV_MODEL=wide kv-diff -q right.kv plain.kv
	# attention mass, likewise
	KV_MODEL=wide wrong mass_warpgroups attend_mass kv-prefill --ids --mass long
}

@test "plain kernels are naive ones, and a wrong value of KV_KERNELS is refused" {
	for kernel in attend_tiles attend_split gemv; do
		KV_EMULATED_WRONG=$kernel KV_KERNELS=plain kv-prefill -q --ids -o plain.kv ids
		KV_KERNELS=unchecked kv-diff -q plain.kv rows.kv
	done
	[ ! -e cache ]
	KV_KERNELS=slow run -2 kv-decode --ids -n 1 rows.kv
	assert_output "kv-decode: KV_KERNELS: 'slow' is not auto, check, plain or unchecked"
	KV_KERNELS=plain KV_DEVICE=cpu kv-decode -q --ids -n 1 rows.kv
}

@test "where kernels cannot be checked naive ones are used, and nothing is remembered" {
	KV_EMULATED_FAILURE=cudaStreamCreateWithFlags:4 run -0 --separate-stderr kv-decode --ids --ignore-eos -n 5 -o a rows.kv
	assert_regex "$stderr" 'GPU kernels could not be checked and are not used: cudaStreamCreate'
	[ ! -e cache/kvpipe/kernels ]
	assert_equal "$output" "$(KV_KERNELS=unchecked kv-decode -q --ids --ignore-eos -n 5 rows.kv)"
}
