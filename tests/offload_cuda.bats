#!/usr/bin/env bats
# bats file_tags=slow
# kv-decode --offload --device cuda: rows in host memory that the GPU fetches by itself give the text, logits, reports and snapshots of rows on the GPU (the emulator, tests/cuda)

load helper

setup_file() {
	load helper
	PATH=$O/emulated:$PATH
	cd "$BATS_FILE_TMPDIR" || exit 1
	random_model one --heads 4 --kv-heads 4 --head-dim 16 --hidden 64 --seed 6 --layers 3 --dtype f32 --std 0.2
	random_model four --heads 8 --kv-heads 2 --head-dim 12 --hidden 96 --seed 5 --layers 4 --dtype f32 --std 0.2
	window_model slid 40 fsfs --heads 4 --kv-heads 2 --head-dim 12 --hidden 48 --seed 5 --layers 4 --dtype f32 --std 0.2
	for m in one four slid; do
		"$PYTHON" "$ROOT/tests/bin/mkhead.py" $m.head --model $m --layers 0,1,2 --heads 4 --kv-heads 2
	done
	seq 3 2 240 >text.ids
	seq 3 2 258 >whole.ids
	seq 7 5 45 >next.ids
	for m in one four slid; do
		kv-prefill -m $m --retrieval-head $m.head --ids text.ids | small_indexes >$m.kv
	done
	kv-prefill -m four --retrieval-head four.head --ids whole.ids | small_indexes >whole.kv
	kv-prefill -m four --retrieval-head four.head --ids text.ids | kv-score --method keydiff | kv-evict --budget 60 --policy adakv |
	    kv-quantize1b -g 16 | kv-index --pages --page 8 | kv-index --clusters --cluster-count 9 --sink-rows 5 >ragged.kv
	kv-prefill -m four --retrieval-head four.head --ids text.ids | kv-score --method keydiff | kv-evict --skip-layers 1,2 --budget 60 -o layers.kv
}

setup() {
	PATH=$O/emulated:$PATH
	cd "$BATS_FILE_TMPDIR" || exit 1
}

# same NAME MODEL OPTION ...: given tokens behind NAME.kv; logits, and what was read, are the same with all rows on the GPU and with some in host memory
same() {
	cases=$((${cases:-0} + 1))
	sampled compare host "$@"
}

# mixed NAME MODEL OPTION ...: the same, also with the first layer's rows in the file, for which there is no host memory; as much is brought from either
mixed() {
	cases=$((${cases:-0} + 1))
	sampled compare "host file" "$@"
}

compare() {
	local how offload=()
	for how in all $1; do
		[ $how != file ] || export KV_EMULATED_FAILURE=cudaHostRegister:2
		kv-decode -m "$3" --device cuda "${@:4}" "${offload[@]}" --ids --force next.ids --logits $how.npy --stats $how.json --json "$2.kv" |
		    json /dev/stdin 'o["nll"]' >$how.nll
		unset KV_EMULATED_FAILURE
		offload=(--offload)
	done
	for how in $1; do
		cmp all.npy $how.npy
		cmp all.nll $how.nll
		assert_equal "$(json $how.json '[{k: v for k, v in l.items() if k != "fetched_bytes"} for l in o["layers"]]')" "$(json all.json 'o["layers"]')"
	done
	[ "$1" = host ] || cmp host.json file.json
	[ "$(json host.json '0 < o["retrieving"]["fetched_bytes"] < o["retrieving"]["key_bytes"] + o["retrieving"]["value_bytes"]')" = True ]
}

@test "FIER, Quest, ClusterKV: rows that the GPU fetches give the logits of rows that it has, to the bit" {
	local method
	for method in fier quest quest-eval cluster; do
		mixed four four --retrieve "$method budget=17 dense=1"
		same ragged four --retrieve "$method budget=25 dense=1"
	done
	same one one --retrieve 'fier budget=20'
	same slid slid --retrieve 'fier budget=20 dense=0'
	same four four --retrieve 'fier budget=130 dense=0'
	same whole four --retrieve 'quest budget=40 dense=0'
	same one one --retrieve 'cluster budget=20'
	assert_equal "$cases" 13
}

@test "ShadowKV: rows that the GPU fetches give the logits of rows that it has, and no key is fetched that is rebuilt" {
	same one one --retrieve 'shadow budget=20'
	mixed four four --retrieve 'shadow budget=9 dense=1'
	same whole four --retrieve 'shadow budget=40 dense=0'
	same slid slid --retrieve 'shadow budget=20 dense=0'
	same four four --retrieve 'shadow budget=130 dense=0'
	assert_equal "$cases" 5
	# one step behind 128 rows, of which factors have 120: the values of 40 rows, keys and values of 3 exact chunks of 4; 9 rows are on the GPU
	head -n 2 next.ids >two.ids
	kv-decode -m four --device cuda --retrieve 'shadow budget=40 dense=0' --ids --force two.ids --offload --stats one.json whole.kv
	assert_equal "$(json one.json 'o["steps"], o["all"]["rows"], o["all"]["fetched_bytes"]')" "(1, 61.0, $(((40 + 2 * 12) * 48)).0)"
}

@test "SpeContext: rows that are fetched while other layers run give the logits of rows on the GPU, also where layers lack different rows" {
	same one one --retrieve 'specontext budget=30 head=one.head'
	mixed four four --retrieve 'specontext budget=7 dense=1 head=four.head sink=2'
	same ragged four --retrieve 'specontext budget=25 head=four.head'
	same layers four --retrieve 'specontext budget=25 head=four.head'
	same four four --retrieve 'specontext budget=1000 head=four.head'
	same slid slid --retrieve 'specontext budget=20 head=slid.head'
	assert_equal "$cases" 6
}

@test "a step that fetches copies nothing to the GPU but its token, and waits no more than one that does not" {
	local method near far
	# KERNELS, COPIES UP, WAITS of 16 steps, those of the 8 before taken off
	steps() {
		local n
		for n in 24 8; do
			KV_EMULATED_TOTALS=1 kv-decode -q -m four --device cuda -n $n --ids --ignore-eos --retrieve "$1 budget=16 dense=0" "${@:2}" four.kv 2>&1 >/dev/null |
			    sed -n 's/^emulator: \([0-9]*\) kernels.*copies: \([0-9]*\) up.*, \([0-9]*\) waits.*/\1 \2 \3/p'
		done | paste -s -d ' ' | awk '{ print $1 - $4, ($2 - $5) / 16, ($3 - $6) / 16 }'
	}
	for method in "quest" "cluster" "specontext head=four.head"; do
		in_sample 4 || continue
		read -ra near <<<"$(steps "$method")"
		read -ra far <<<"$(steps "$method" --offload)"
		# two kernels in each of four layers
		assert_equal "$method: ${far[*]}" "$method: $((near[0] + 16 * 4 * 2)) ${near[1]} ${near[2]}"
	done
}

@test "what goes on behind rows in host memory is a snapshot: the bytes are those of a run on the GPU" {
	local method
	for method in fier quest-eval cluster shadow "specontext head=four.head"; do
		in_sample 4 || continue
		for offload in "" --offload; do
			# shellcheck disable=SC2086
			kv-decode -v -m four --device cuda --retrieve "$method budget=20" --ids --ignore-eos -n 12 -o "out$offload.kv" $offload four.kv >"out$offload.ids" 2>"err$offload"
		done
		cmp out.ids out--offload.ids
		cmp out.kv out--offload.kv
		grep -q 'layers [02] to 3 are in host memory$' err--offload
	done
	# from a pipe, and compressed
	kv-decode -m four --device cuda --retrieve 'fier budget=20' --ids --ignore-eos -n 12 four.kv >want.ids
	kv-decode -m four --device cuda --retrieve 'fier budget=20' --ids --ignore-eos -n 12 --offload - < <(cat four.kv) | cmp - want.ids
	kv-quantize1b -g 32 -z -o packed.kv four.kv
	kv-decode -m four --device cuda --retrieve 'specontext budget=20 head=four.head' --ids --ignore-eos -n 12 four.kv >want.ids
	kv-decode -m four --device cuda --retrieve 'specontext budget=20 head=four.head' --ids --ignore-eos -n 12 --offload packed.kv | cmp - want.ids
	# where neither host memory nor the file has it
	KV_EMULATED_FAILURE=cudaHostRegister:2 run -1 --separate-stderr kv-decode -m four --device cuda --retrieve 'fier budget=20' --ids -n 4 --offload - < <(cat four.kv)
	assert_regex "$stderr" 'KEYS of layer 2 is compressed \(-z\), or not in a file, and there is no memory for it: its rows cannot be read one by one'
}

@test "layers go to host memory one by one as the text grows" {
	size() { stat -c %s "$1/model.safetensors"; }
	fixed=$(((3 * ($(size four) + $(size four.head)) + 9) / 10 + $(size four) + $(size four.head)))
	read=(kv-decode -v -m four --device cuda --retrieve 'specontext budget=20 head=four.head' --ids --ignore-eos -n 60)
	"${read[@]}" -o want.kv four.kv >want.ids
	# 1728 bytes for each of 120 to 178 tokens where no layer is in host memory
	for case in '260000 2' '200000 0'; do
		in_sample 4 || continue
		read -r more first <<<"$case"
		"${read[@]}" --device-memory $((fixed + more)) -o got.kv four.kv 2>err | cmp - want.ids
		cmp got.kv want.kv
		assert_equal "$(sed -n 's/.*layers \([0-9]*\) to 3 are in host memory$/\1/p' err)" "$first"
	done
	# from a pipe
	if all_cases; then
		"${read[@]}" --device-memory $((fixed + 260000)) -o got.kv - < <(cat four.kv) | cmp - want.ids
		cmp got.kv want.kv
	fi
	# where a layer finds no host memory on the way, the file has it, if it is one
	KV_EMULATED_FAILURE=cudaHostRegister:3 "${read[@]}" --device-memory $((fixed + 260000)) four.kv 2>err | cmp - want.ids
	grep -q 'layers 2 to 3 are in host memory, and some in the file$' err
	all_cases || return 0
	KV_EMULATED_FAILURE=cudaHostRegister:3 run -1 --separate-stderr "${read[@]}" --device-memory $((fixed + 260000)) - < <(cat four.kv)
	assert_regex "$stderr" 'no memory for the rows of a step'
}

@test "several texts whose rows are in host memory say what they say with rows on the GPU" {
	local method
	for method in fier shadow "specontext head=four.head"; do
		in_sample 2 || continue
		# shellcheck disable=SC2086
		kv-decode -m four --device cuda --retrieve "$method budget=20" --ids --ignore-eos -n 10 four.kv whole.kv >near.ids
		# shellcheck disable=SC2086
		kv-decode -m four --device cuda --retrieve "$method budget=20" --ids --ignore-eos -n 10 --offload four.kv whole.kv | cmp - near.ids
	done
}

@test "a GPU that fails while it fetches ends the program with its message" {
	local at
	for at in cudaStreamWaitEvent:2 cudaStreamWaitEvent:7 kernel:300 launch:300 cudaEventRecord:4; do
		KV_EMULATED_FAILURE=$at run -1 --separate-stderr kv-decode -m four --device cuda --retrieve 'specontext budget=20 head=four.head' --ids --ignore-eos -n 8 --offload -o failed.kv four.kv
		assert_regex "$stderr" 'kv-decode: .*cudaError'
		[ ! -e failed.kv ]
	done
}

@test "steps of FIER whose rows are in host memory are launches of a graph, also of several texts, and nothing changes by that" {
	local f
	# read_on WORDS OPTION ... SNAPSHOT ...: 24 tokens, in which a group of 16 rows is completed and memory grows
	read_on() {
		kv-decode -v -m four --device cuda --retrieve "fier $1" --ids --ignore-eos -n 24 "${@:2}" 2>err
	}
	for f in "four.kv whole.kv" four.kv ragged.kv; do
		in_sample 4 || continue
		# shellcheck disable=SC2086 # several
		read_on 'budget=25 dense=1' --offload $f >launched.ids
		[ "$(sed -n 's/^kv-decode: \([0-9]*\) steps launched.*/\1/p' err)" -gt 18 ]
		# shellcheck disable=SC2086
		KV_EMULATED_FAILURE=cudaStreamBeginCapture:1 read_on 'budget=25 dense=1' --offload $f | cmp - launched.ids
		grep -q 'no step is launched from a captured graph' err
	done
	read_on 'budget=25 dense=1' --offload -o launched.kv four.kv >launched.ids
	read_on 'budget=25 dense=1' -o near.kv four.kv | cmp - launched.ids
	cmp launched.kv near.kv
	# what is read whole grows, and is brought: no launch of it holds
	all_cases || return 0
	read_on 'budget=1000 dense=1' --offload -o launched.kv four.kv >launched.ids
	! grep -q 'steps launched' err || return
	read_on 'budget=1000 dense=1' -o near.kv four.kv | cmp - launched.ids
	cmp launched.kv near.kv
}
