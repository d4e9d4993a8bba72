#!/usr/bin/env bats
# bats file_tags=slow
# The retrieval head of SpeContext: its keys in a snapshot and the rows that steps read by it, against numpy; what it goes with, and what is refused

load helper

setup_file() {
	load helper
	cd "$BATS_FILE_TMPDIR" || exit 1
	random_model one --heads 4 --kv-heads 4 --head-dim 16 --hidden 64 --seed 6 --layers 3 --dtype f32 --std 0.2
	random_model four --heads 8 --kv-heads 2 --head-dim 12 --hidden 96 --seed 5 --layers 8 --dtype f32 --std 0.12
	head one one.head --layers 0,1,2 --heads 8 --kv-heads 4 --more --embedding --hidden 40 --head-dim 14
	head four four.head --kv-heads 2 --head-dim 10 --seed 3
	head four four.alone --alone --heads 2 --kv-heads 1 --seed 4
	seq 3 2 240 >text.ids
	local m
	for m in one.head four.head four.alone; do
		kv-prefill -m ${m%.*} --retrieval-head $m --ids -o $m.kv text.ids
	done
}

setup() {
	cd "$BATS_FILE_TMPDIR" || exit 1
}

# head MODEL FOLDER OPTION ...: random weights
head() {
	"$PYTHON" "$ROOT/tests/bin/mkhead.py" "$2" --model "$1" "${@:3}"
}

# right HEAD SNAPSHOT: its keys, and the features of the last token, are those of the formulas.
right() {
	run -0 "$PYTHON" "$ORACLE/draft_head.py" --limit 1e-5 "${1%.*}" "$1" "$2"
}

# tried HEAD IN WORDS OPTION ...: 37 tokens, noted for agree
tried() {
	n=$((${n:-0} + 1))
	kv-decode -m "${1%.*}" --retrieve "specontext head=$1 $3" --ids --ignore-eos -n 37 -o "$BATS_TEST_TMPDIR/$n.kv" --audit \
		--stats "$BATS_TEST_TMPDIR/$n.json" "${@:4}" "$2" >"$BATS_TEST_TMPDIR/$n.ids"
	echo "${1%.*} $2 $BATS_TEST_TMPDIR/$n.kv $BATS_TEST_TMPDIR/$n.json $1" >>"$BATS_TEST_TMPDIR/tried"
}

# What numpy makes of the same tokens differs by less than 1e-5, in rows, logits, report, and the keys of the head.
agree() {
	run -0 "$PYTHON" "$ORACLE/retrieve.py" --limit 1e-5 <"$BATS_TEST_TMPDIR/tried"
	assert_equal "${#lines[@]}" "$n"
}

# keys FILE: the bytes of the head's keys
keys() {
	see "$1" "s.head_keys.keys.hex()"
}

# say HEAD SNAPSHOT WORDS OPTION ...: 20 tokens
say() {
	kv-decode -m "${1%.*}" --retrieve "specontext head=$1 $3" --ids --ignore-eos -n 20 "${@:4}" "$2"
}

# swapped FILE: the tokenizer of this file, two ordinary tokens with the ids of each other
swapped() {
	"$PYTHON" -c 'import json, sys
t = json.load(open(sys.argv[1]))
ids = t["model"]["vocab"]
a, b = [token for token in ids if ids[token] in (700, 701)]
ids[a], ids[b] = ids[b], ids[a]
json.dump(t, sys.stdout)' "$1"
}

# begun FILE: something has been printed to it, by a program in the background
begun() {
	for _ in $(seq 300); do
		[ ! -s "$1" ] || return 0
		sleep 0.1
	done
	fail "$1 stays empty"
}

@test "a prompt leaves the keys of the head's formulas, with features of three layers and of embeddings alone" {
	for m in one.head four.head four.alone; do
		right $m $m.kv
	done
	assert_equal "$(see four.head.kv 's.head_keys.heads, s.head_keys.width, s.head_keys.n, len(s.head_keys.features)')" "2 10 119 96"
	assert_equal "$(see four.alone.kv 's.head_keys.heads, s.head_keys.width, s.head_keys.n, len(s.head_keys.features)')" "1 12 119 0"
	kv-check -q four.head.kv one.head.kv
}

@test "a head reads texts that are longer than its own by YaRN" {
	head four four.yarn --kv-heads 2 --head-dim 10 --seed 3 --set rope_scaling \
		'{"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 30}'
	kv-prefill -m four --retrieval-head four.yarn --ids -o four.yarn.kv text.ids
	right four.yarn four.yarn.kv
	run -1 "$PYTHON" "$ORACLE/draft_head.py" four four.head four.yarn.kv
	tried four.yarn four.yarn.kv 'budget=20'
	agree
}

@test "the keys are the same in chunks, behind a resumed prompt, and layer by layer with eviction" {
	sed -n 1,70p text.ids >front.ids
	sed 1,70d text.ids >rest.ids
	for m in one.head four.head four.alone; do
		kv-prefill -m ${m%.*} --retrieval-head $m --ids -c 7 -o chunks.kv text.ids
		right $m chunks.kv
		kv-prefill -m ${m%.*} --retrieval-head $m --ids -o front.kv front.ids
		kv-prefill -m ${m%.*} --retrieval-head $m --ids -r front.kv -o both.kv rest.ids
		right $m both.kv
		kv-prefill -m ${m%.*} --retrieval-head $m --ids --score knorm --evict budget=30 -o few.kv text.ids
		right $m few.kv
	done
	kv-prefill -m four --retrieval-head four.alone --ids --score knorm --evict budget=30 -c 20 -o few.kv text.ids
	right four.alone few.kv
	kv-prefill -m four --retrieval-head four.head --ids --score 'snapkv window=8' --evict budget=30 -c 20 -o few.kv text.ids
	assert_equal "$(see few.kv s.head_keys.n)" 119
	kv-prefill -m four --retrieval-head four.alone --ids --select 'tsp layer=2 rate=0.5' -o few.kv text.ids
	right four.alone few.kv
	kv-prefill -m four --retrieval-head four.alone --ids --reuse four.alone.kv -o again.kv text.ids
	right four.alone again.kv
}

@test "steps read the rows that the head scores best, the same in all layers, and count its keys once" {
	for m in one.head four.head four.alone; do
		tried $m $m.kv 'budget=20'
		tried $m $m.kv 'budget=9 reduce=sum sink=2 recent=3 dense=1'
	done
	tried four.head four.head.kv 'budget=130 reduce=mean'
	agree
	assert_equal "$(json "$BATS_TEST_TMPDIR/1.json" '[l["index_bytes"] > 0 for l in o["layers"]]')" "[True, False, False]"
}

@test "rows that were evicted do not compete, and those that are left do by their positions" {
	for m in one.head four.head; do
		kv-score --method knorm $m.kv | kv-evict --budget 60 -o even.kv
		kv-score --method keydiff $m.kv | kv-evict --budget 60 --policy adakv -o ragged.kv
		assert_equal "$(keys even.kv)" "$(keys $m.kv)"
		tried $m even.kv 'budget=20'
		mv even.kv "$BATS_TEST_TMPDIR/even.$m.kv"
		sed -i "s, even.kv , $BATS_TEST_TMPDIR/even.$m.kv ," "$BATS_TEST_TMPDIR/tried"
		tried $m ragged.kv 'budget=25 sink=4'
		mv ragged.kv "$BATS_TEST_TMPDIR/ragged.$m.kv"
		sed -i "s, ragged.kv , $BATS_TEST_TMPDIR/ragged.$m.kv ," "$BATS_TEST_TMPDIR/tried"
	done
	agree
}

@test "a budget for all rows gives the text of full attention, also with eviction between the tokens" {
	full=$(kv-decode -m four --ids --ignore-eos -n 20 four.head.kv)
	assert_equal "$(say four.head four.head.kv 'budget=1000')" "$full"
	evicting=(--score knorm --evict budget=50)
	full=$(kv-decode -m four --ids --ignore-eos -n 20 "${evicting[@]}" four.head.kv)
	assert_equal "$(say four.head four.head.kv 'budget=1000' "${evicting[@]}")" "$full"
	kv-decode -m four --retrieve 'specontext budget=20 head=four.head' "${evicting[@]}" -n 20 --ignore-eos --json four.head.kv >out.json
	[ "$(json out.json 'o["retrieval"]["all"]["rows"] == 20')" = True ]
	run -2 say four.head four.head.kv 'budget=20' --score h2o --evict budget=50
}

@test "several texts at once say what each says alone" {
	sed -n 1,70p text.ids >front.ids
	kv-prefill -m four --retrieval-head four.head --ids -o front.kv front.ids
	for f in four.head.kv front.kv; do
		say four.head $f 'budget=20' | as_line --ids >>alone.ids
	done
	kv-decode -m four --retrieve 'specontext budget=20 head=four.head' --ids --ignore-eos -n 20 four.head.kv front.kv >both.ids
	diff alone.ids both.ids
}

@test "a text that goes on has the keys of all its tokens, and without the head none" {
	say four.head four.head.kv 'budget=20' -o more.kv >first
	say four.head more.kv 'budget=20' >second
	kv-decode -m four --retrieve 'specontext budget=20 head=four.head' --ids --ignore-eos -n 40 four.head.kv >all
	cat first second | diff - all
	run -0 --separate-stderr kv-decode -m four --ids -n 3 -o without.kv four.head.kv
	assert_equal "$stderr" "kv-decode: dropped the keys of a retrieval head, which would lack the new tokens; name the head to keep them"
	assert_equal "$(see without.kv s.head_keys)" None
	run -1 --separate-stderr say four.head without.kv 'budget=20'
	assert_equal "$stderr" "kv-decode: without.kv has no keys of a retrieval head (rHDk), and they are made while the prompt runs: make it with kv-prefill --retrieval-head"
	say four.alone without.kv 'budget=20'
}

@test "rows that stay in the file give the logits of rows in memory, to the bit, and only what is new is read" {
	window_model slid 40 fsfs --heads 4 --kv-heads 2 --head-dim 12 --hidden 48 --seed 5 --layers 4 --dtype f32 --std 0.2
	head slid slid.head --layers 0,1,2
	kv-prefill -m slid --retrieval-head slid.head --ids -o slid.head.kv text.ids
	kv-score --method keydiff four.head.kv | kv-evict --budget 60 --policy adakv -o ragged.kv
	seq 7 5 200 >next.ids
	n=0
	for how in "one.head.kv one head=one.head budget=30" "four.head.kv four head=four.head budget=7 sink=2 dense=1" \
		"ragged.kv four head=four.head budget=25" "four.head.kv four head=four.head budget=1000" \
		"slid.head.kv slid head=slid.head budget=20"; do
		read -ra part <<<"$how"
		for offload in "" --offload; do
			kv-decode -m "${part[1]}" --retrieve "specontext ${part[*]:2}" $offload --ids --force next.ids --logits "all$offload.npy" \
				--json "${part[0]}" >"all$offload.json"
		done
		cmp all.npy all--offload.npy
		# a choice that the step before has made, too, is not read again; dense layers and windows are not far
		[ "$(json all--offload.json '0 < o["retrieval"]["all"]["fetched_bytes"] < o["retrieval"]["all"]["key_bytes"] + o["retrieval"]["all"]["value_bytes"]')" = True ]
		n=$((n + 1))
	done
	assert_equal "$n" 5
	for f in four.head.kv ragged.kv; do
		say four.head $f 'budget=20' --offload | as_line --ids
	done >alone.ids
	kv-decode -m four --retrieve 'specontext budget=20 head=four.head' --ids --ignore-eos -n 20 --offload four.head.kv ragged.kv >both.ids
	diff alone.ids both.ids
}

@test "the snapshot behind rows in a file is that of a run in memory, with indexes that stay in it" {
	kv-quantize1b -g 16 four.head.kv | kv-index --pages --page 6 -o x.kv
	limit=$((($(stat -c %s four/model.safetensors) + $(stat -c %s four.head/model.safetensors)) * 13 / 10 + 200000))
	say four.head x.kv 'budget=20' -o memory.kv >memory.ids
	for how in --offload "--device-memory $limit"; do
		# shellcheck disable=SC2086
		say four.head x.kv 'budget=20' -o file.kv $how -v 2>err | cmp - memory.ids
		cmp memory.kv file.kv
		grep -q 'to 7 are in the file, mapped$' err
	done
}

@test "layers go to the file one by one as the text grows, at the lengths of the plan" {
	read=(kv-decode -v -m four --retrieve 'specontext budget=20 head=four.head' --ids --ignore-eos -n 60)
	"${read[@]}" four.head.kv >whole.ids
	size() { stat -c %s "$1/model.safetensors"; }
	fixed=$(((3 * ($(size four) + $(size four.head)) + 9) / 10 + $(size four) + $(size four.head)))
	# 2496 bytes for each of 119 to 178 tokens where no layer is in the file
	for more in 310600 360600 470600; do
		limit=$((fixed + more))
		"${read[@]}" --device-memory $limit four.head.kv >some.ids 2>err
		cmp whole.ids some.ids
		kv-plan --json --offload "memory=$limit weights=$(size four) head-weights=$(size four.head) budget=20" four.head.kv >plan.json
		json plan.json '[next(t["layers"] for t in o["thresholds"] if n < t["tokens"]) for n in (119, 178)]' >>"$BATS_TEST_TMPDIR/plan"
		sed -n 's/.*layers \([0-9]*\) to 7 are in the file, mapped/\1/p' err >>"$BATS_TEST_TMPDIR/first"
	done
	assert_equal "$(tr '\n' ' ' <"$BATS_TEST_TMPDIR/plan")" "[0, 5] [0, 3] [0, 0] "
	assert_equal "$(tr '\n' ' ' <"$BATS_TEST_TMPDIR/first")" "3 5 "
	run -1 --separate-stderr "${read[@]}" --device-memory $((fixed + 130000)) four.head.kv
	assert_regex "$stderr" '--device-memory: [0-9]+ bytes hold [0-9]+ tokens with 8 of 8 layers offloaded; the text has 120'
	# where it fits no more, on the way
	run -1 --separate-stderr "${read[@]}" --device-memory $((fixed + 175000)) four.head.kv
	assert_regex "$stderr" '--device-memory: .* the text has 1[2-7][0-9]$'
	kv-decode -m four --retrieve 'specontext budget=20 head=four.head' --ids --ignore-eos -n 60 four.head.kv four.head.kv >two.ids
	kv-decode -m four --retrieve 'specontext budget=20 head=four.head' --ids --ignore-eos -n 60 --device-memory $((fixed + 700000)) \
		four.head.kv four.head.kv | cmp - two.ids
}

@test "rows cannot stay in a file that is compressed, a pipe, or changes" {
	kv-prefill -m four --retrieval-head four.head --ids -z -o packed.kv text.ids
	run -1 --separate-stderr say four.head packed.kv 'budget=20' --offload
	assert_regex "$stderr" 'packed.kv: KEYS of layer 0 is compressed \(-z\), or not in a file'
	# shellcheck disable=SC2002
	cat four.head.kv | (run -1 --separate-stderr say four.head - 'budget=20' --offload
	assert_regex "$stderr" 'KEYS of layer 0 is compressed \(-z\), or not in a file')
	for change in "touch x.kv" "truncate -s 3000 x.kv"; do
		cp four.head.kv x.kv
		rm -f out.ids
		kv-decode -m four --retrieve 'specontext budget=20 head=four.head' --ids --ignore-eos -n 200000 --offload x.kv >out.ids 2>err &
		begun out.ids
		$change
		wait $! && return 1
		assert_equal "$?" 1
		assert_regex "$(cat err)" 'x.kv (has changed while its rows were read from it|ends at byte)'
	done
	# another file under the name is not the one that is read
	cp four.head.kv x.kv
	kv-decode -m four --retrieve 'specontext budget=20 head=four.head' --ids --ignore-eos -n 300 x.kv >whole.ids
	kv-decode -m four --retrieve 'specontext budget=20 head=four.head' --ids --ignore-eos -n 300 --offload x.kv >same.ids &
	begun same.ids
	cp one.head.kv y.kv && mv y.kv x.kv
	wait $!
	cmp whole.ids same.ids
	for other in "--audit" "--score knorm --evict budget=30"; do
		# shellcheck disable=SC2086
		run -2 say four.head four.head.kv 'budget=20' --offload $other
	done
}

@test "kv-info tells of the keys" {
	run -0 kv-info four.head.kv
	assert_line --regexp '^head keys +119 tokens, 2 KV heads of width 10, of head [0-9a-f]{32}$'
	kv-info --json four.head.kv >info.json
	assert_equal "$(json info.json '{k: v for k, v in o["head_keys"].items() if k != "head"}')" \
		"{'tokens': 119, 'kv_heads': 2, 'width': 10, 'features': 96}"
}

@test "heads that do not fit the model, and what cannot be known, are refused with the reason" {
	refused() {
		run -"$1" --separate-stderr "${@:3}"
		assert_regex "$stderr" "$2"
	}
	prefill=(kv-prefill -m four --ids -o out.kv)
	refused 4 'trained for weights .*, but four has' "${prefill[@]}" --retrieval-head one.head text.ids
	head one strange --alone --heads 3 --kv-heads 3 --hidden 96
	refused 4 '3 query heads for the 2 KV heads of four' "${prefill[@]}" --retrieval-head strange text.ids
	head four short --drop midlayer.self_attn.q_proj.weight
	refused 3 'no tensor midlayer.self_attn.q_proj.weight' "${prefill[@]}" --retrieval-head short text.ids
	head four low --reshape fc.weight
	refused 3 'fc.weight: want \[96\]\[288\], file has \[95\]\[288\]' "${prefill[@]}" --retrieval-head low text.ids
	head four odd --layers 1,3,3
	refused 3 '"feature_layers" are not 3 ascending layers of 8' "${prefill[@]}" --retrieval-head odd text.ids
	# the vocabulary is as large, and two tokens have other ids
	head four foreign --embedding
	swapped four/tokenizer.json >foreign/tokenizer.json
	refused 4 'foreign: trained for tokenizer ([0-9a-f]{32}), and that of four is [0-9a-f]{32}' "${prefill[@]}" --retrieval-head foreign text.ids
	refused 4 'foreign: trained for tokenizer' say_of foreign 'budget=9' four.head.kv
	[ ! -e out.kv ]
	cp four/tokenizer.json foreign
	"${prefill[@]}" --retrieval-head foreign text.ids
	# a model without one: that of the snapshot counts, if there was one
	cp -r four bare
	rm bare/tokenizer.json
	swapped four/tokenizer.json >foreign/tokenizer.json
	refused 4 'foreign: trained for tokenizer' kv-decode -m bare --retrieve 'specontext budget=9 head=foreign' --ids -n 1 out.kv
	rm out.kv
	kv-prefill -m bare --ids -o out.kv --retrieval-head foreign text.ids
	rm foreign/tokenizer.json
	kv-prefill -v -m four --ids -o out.kv --retrieval-head foreign text.ids 2>err
	assert_regex "$(cat err)" 'foreign/tokenizer.json: .*: not compared with the model.s'
	rm out.kv
	head one three
	refused 3 'no "feature_layers"' kv-prefill -m one --ids -o out.kv --retrieval-head three text.ids
	refused 1 'none' "${prefill[@]}" --retrieval-head none text.ids
	[ ! -e out.kv ]
	refused 5 'does not go with --select' "${prefill[@]}" --retrieval-head four.head --select 'tsp layer=2 rate=0.5' text.ids
	refused 5 'does not go with --reuse' "${prefill[@]}" --retrieval-head four.head --reuse four.head.kv text.ids
	refused 2 'other positions than in the text' "${prefill[@]}" --retrieval-head four.alone --select 'gemfilter layer=2 budget=50' text.ids
	head four other --kv-heads 2 --head-dim 10 --seed 8
	refused 1 'no keys of this retrieval head' say_of other 'budget=9' four.head.kv
	kv-score --method knorm four.head.kv | kv-evict --budget 60 --positions compact -o renumbered.kv
	assert_equal "$(see renumbered.kv s.head_keys)" None
	refused 5 'a retrieval head needs rows at their positions in the text' say_of four.alone 'budget=9' renumbered.kv
	refused 2 'by which retrieval head' kv-decode -m four --retrieve 'specontext budget=9' four.head.kv
	refused 2 'head= is for specontext' kv-decode -m four --retrieve 'fier head=four.head budget=9' four.head.kv
	refused 2 '12 sinks and 3 recent' say_of four.head 'budget=14 sink=12 recent=3' four.head.kv
	refused 2 'sink= is for specontext' kv-decode -m four --retrieve 'fier budget=9 sink=3' four.head.kv
	refused 2 'chooses by the tokens that run' kv-diff --retrieve 'specontext budget=9' four.head.kv
	# a file that ends within the keys
	dd if=four.head.kv of=cut.kv bs=1 count=$(($(stat -c %s four.head.kv) - 3000)) status=none
	refused 3 'cut.kv' say_of four.head 'budget=9' cut.kv
}

# say_of HEAD WORDS OPTION ... SNAPSHOT
say_of() {
	kv-decode -m four --retrieve "specontext head=$1 $2" --ids -n 3 "${@:3}"
}
