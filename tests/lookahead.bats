#!/usr/bin/env bats
# bats file_tags=slow
# LookaheadKV: learned tokens behind the prompt, LoRA on their rows, scores by their attention; against double precision, in a pipe
# and in one process; what is refused

load helper

setup() {
	cd "$BATS_FILE_TMPDIR" || exit 1
}

# adapter NAME MODEL OPTION ...
adapter() {
	"$PYTHON" "$ROOT/tests/bin/mkadapter.py" "$1" --model "$2" "${@:3}"
}

# narrow_model NAME OPTION ...: f32; logits wide enough to tell rows apart
narrow_model() {
	random_model "$1" --layers 3 --hidden 48 --ffn 72 --dtype f32 --std 0.15 "${@:2}"
}

setup_file() {
	load helper
	cd "$BATS_FILE_TMPDIR" || return
	narrow_model mha --heads 3 --kv-heads 3 --head-dim 10 --seed 1
	narrow_model gqa --heads 8 --kv-heads 2 --head-dim 6 --seed 2 --bias
	narrow_model mqa --heads 8 --kv-heads 1 --head-dim 8 --seed 3 --llama3-rope
	random_model half --layers 4 --hidden 64 --heads 6 --kv-heads 2 --head-dim 10 --ffn 100 --dtype bf16 --seed 3 --std 0.1
	for m in mha gqa mqa half; do adapter a-$m $m; done
	adapter a-demo "$DEMO" --tokens 9 --rank 4 --dtype bf16 --std 0.1
	small_talk 10 >doc.txt       # about 230 tokens
	seq 5 700 >700.ids
	seq 5 95 >91.ids
}

# agrees MODEL ADAPTER OBSERVED.kv: queries and own keys are those of the formulas
agrees() {
	errors_below 2e-6 "$PYTHON" "$ORACLE/learned_rows.py" "$@"
}

@test "queries and own keys of learned tokens agree with a double-precision forward pass, for 1, 4 and 8 query heads a KV head" {
	for m in mha gqa mqa; do
		kv-prefill -m $m -w 12 -o x.kv doc.txt
		for keep in 0 5; do
			kv-observe -m $m --lookahead a-$m --keep-window $keep -o out.kv x.kv
			agrees $m a-$m out.kv
			see out.kv '[len(l.queries.positions) for l in s.layers]' | grep -x "$((keep + 5)) $((keep + 5)) $((keep + 5))"
		done
	done
}

@test "so they do with LoRA on some linears, on none, of other ranks, types and scales, and on all of the last layer" {
	kv-prefill -m gqa -o x.kv doc.txt
	adapter some gqa --modules k_proj,down_proj --rank 1 --alpha 0.5 --tokens 1
	adapter none gqa --modules none --tokens 40
	adapter rank gqa --rank 8 --dtype f16 --set use_rslora true
	adapter all gqa --all-of-last --dtype bf16 --set target_modules '"all-linear"'
	for a in some none rank all; do
		kv-observe -m gqa --lookahead $a -o out.kv x.kv
		agrees gqa $a out.kv
	done
	# LoRA does something in each linear
	kv-observe -m gqa --lookahead a-gqa -o out.kv x.kv
	for linear in q k v o gate up down; do
		in_sample 4 || continue
		adapter one gqa --modules $linear"_proj"
		run ! agrees gqa one out.kv
	done
}

@test "scores are those of the formulas, learned keys in the softmax, and no row is kept by force" {
	for m in mha gqa mqa; do
		kv-prefill -m $m -w 12 doc.txt | kv-observe -m $m --lookahead a-$m --keep-window 5 -o out.kv
		for o in "" "window=5" "kernel=1 reduce=max" "kernel=5 pool=avg reduce=sum order=reduce-first"; do
			# shellcheck disable=SC2046,SC2086 # words
			kv-score --method lookahead $(options "$o") -o scored.kv out.kv
			# shellcheck disable=SC2086 # words
			"$PYTHON" "$ORACLE/scores.py" 2e-6 out.kv scored.kv lookahead $o
		done
	done
	run -0 see scored.kv '[max(v for h in l.scores.values for v in h) < 9 for l in s.layers]'
	assert_output 'True True True'
}

@test "attention that learned tokens pay agrees with a double-precision one" {
	kv-prefill -m gqa -o x.kv doc.txt
	kv-observe -m gqa --lookahead a-gqa -o queries.kv x.kv
	for over in sum max; do
		kv-observe -m gqa --lookahead a-gqa --accumulate $over -o paid.kv x.kv
		errors_below 2e-6 "$PYTHON" "$ORACLE/observe.py" paid queries.kv paid.kv $over 0 99999 0
	done
	run -0 see paid.kv '[l.paid.label for l in s.layers]'
	assert_output 'lookahead over=max n=5 lookahead over=max n=5 lookahead over=max n=5'
}

@test "the prompt's rows and logits are those without an adapter, bit by bit" {
	kv-prefill -m "$DEMO" -o x.kv doc.txt
	kv-observe -m "$DEMO" --lookahead a-demo -o out.kv x.kv
	same_values out.kv x.kv s.logical_digest
	kv-prefill -m "$DEMO" --score lookahead=a-demo --evict rate=1 -o fused.kv doc.txt
	same_values fused.kv x.kv s.logical_digest s.logits
}

# same A B: rows, keys, values, tokens, next position, logits, and the attention that the rows have received
same() {
	same_values "$1" "$2" s.logical_digest '[s.logits, [l.mass for l in s.layers]]'
}

# equal MODEL PROMPT "OPTIONS OF lookahead" EVICT ["OPTIONS OF kv-prefill"]: the same in one process and in a pipe
equal() {
	local model=$1
	[ "$1" = demo ] && model=$DEMO
	eval "more=($5)"
	# shellcheck disable=SC2046,SC2086,SC2154 # words
	kv-prefill -m "$model" --ids "${more[@]}" $2.ids | kv-observe -m "$model" --lookahead a-$1 |
	    kv-score --method lookahead $(options "$3") | kv-evict $(options "$4") -o pipe.kv
	# shellcheck disable=SC2086 # words
	kv-prefill -m "$model" --ids --score "lookahead=a-$1 $3" --evict "$4" "${more[@]}" -o fused.kv $2.ids
	same fused.kv pipe.kv
}

@test "scored and evicted layer by layer, the snapshot is that of a pipe, whatever the budget" {
	for m in demo gqa half mqa; do
		equal $m 700 "" rate=0.1
		equal $m 91 "kernel=5 pool=avg order=reduce-first" "budget=20 sink=4"
	done
	equal gqa 700 "window=3" "rate=0.2 recent=40"
	equal half 700 "" "budget=100 policy=ada alpha=0.1 normalize"
	equal half 700 "" "rate=0.3 policy=pyramid skip-layers=1" --mass
	equal half 700 "" "rate=0.3 select=layer"
	seq 5 8 >4.ids              # fewer than there are learned tokens
	equal demo 4 "" rate=0.5
	seq 5 1200 >1200.ids        # more than a tile
	equal half 1200 "" budget=64
}

@test "so it is behind tokens that were selected on the way" {
	for select in "--select 'tsp layer=1'" "--select 'gemfilter layer=2 rate=0.3'" "--select 'pyramidinfer decay=0.5'"; do
		equal demo 700 "" "rate=0.1 of=tokens" "$select"
		equal half 700 "window=2" "budget=40 sink=4" "$select --mass"
	done
}

@test "so it is behind earlier text, whose rows are scored again or left alone" {
	kv-prefill -m half --ids --score lookahead=a-half --evict rate=0.5 -o a.kv 700.ids
	equal half 91 "" rate=0.4 "-r a.kv"
	kv-prefill -m half --ids -r a.kv 91.ids | kv-observe -m half --lookahead a-half |
	    kv-score --method lookahead --since 696 | kv-evict --since 696 --rate 0.3 -o pipe.kv
	kv-prefill -m half --ids -r a.kv --once --score lookahead=a-half --evict rate=0.3 -o fused.kv 91.ids
	same fused.kv pipe.kv
}

# loop CHUNK EVICT OPTION ...: chunk after chunk through the programs
loop() {
	local from=
	rm -f part.*
	split -l "$1" 700.ids part.
	for part in part.*; do
		# shellcheck disable=SC2086 # words
		kv-prefill -m half --ids $from $part | kv-observe -m half --lookahead a-half |
		    kv-score --method lookahead | kv-evict "${@:2}" -o next.kv
		mv next.kv loop.kv
		from="-r loop.kv"
	done
}

@test "chunk by chunk, learned tokens behind each chunk, the snapshot is that of a loop over the programs" {
	local chunk budget           # 3 rows are fewer than the learned tokens
	while read -r chunk budget; do
		in_sample 4 || continue
		loop $chunk --budget $budget
		kv-prefill -m half --ids -c $chunk --score lookahead=a-half --evict budget=$budget -o fused.kv 700.ids
		same fused.kv loop.kv
	done <<-'END'
		100 60
		3 40
	END
}

@test "queries of the prompt are saved beside, and any number of threads gives the same bytes" {
	kv-prefill -m half --ids -w 6 --score lookahead=a-half --evict rate=0.3 -o a.kv 700.ids
	kv-prefill -m half --ids -w 6 -o full.kv 700.ids
	same_values a.kv full.kv '[l.queries.data.hex() for l in s.layers]'
	kv-prefill -j 1 -m half --ids -w 6 --score lookahead=a-half --evict rate=0.3 -o b.kv 700.ids
	cmp a.kv b.kv
	kv-observe -j 1 -m half --lookahead a-half -o c.kv full.kv
	kv-observe -j 2 -m half --lookahead a-half -o d.kv full.kv
	cmp c.kv d.kv
}

@test "the log has the learned tokens as a run that is not stored, and the footprint counts it" {
	kv-prefill -m half --ids -o x.kv 91.ids
	kv-observe -m half --lookahead a-half -o y.kv x.kv
	run -0 see y.kv '[(e.run, e.n, e.l0, e.l1, e.position) for e in s.events[-1:]]'
	assert_output '(True, 5, 0, 4, 91)'
	kv-prefill -m half --ids --score lookahead=a-half --evict rate=0.5 -o z.kv 91.ids
	run -0 see z.kv '[(e.run, e.n, e.l0, e.l1) for e in s.events if e.run]'
	assert_output '(True, 5, 0, 1) (True, 5, 1, 2) (True, 5, 2, 3) (True, 5, 3, 4)'
	kv-check z.kv
	kv-footprint z.kv
	run -0 see z.kv 's.provenance[-1]["options"]["lookahead"]'
	assert_output --regexp '^[0-9a-f]{32}$'
	assert_equal "$output" "$(see y.kv 's.provenance[-1]["options"]["lookahead"]')"
	run -0 kv-observe --json -m half --lookahead a-half -o y.kv x.kv
	assert_equal "$(json - "o['lookahead'], o['tokens'], o['queries']" <<<"$output")" "('$(see y.kv 's.provenance[-1]["options"]["lookahead"]')', 5, 5)"
}

# refused STATUS REGEX DAMAGE ...: an adapter for gqa that mkadapter.py damages
refused() {
	adapter bad gqa "${@:3}"
	run -"$1" --separate-stderr kv-observe -m gqa --lookahead bad -o out.kv x.kv
	assert_stderr_regex "$2"
	[ ! -e out.kv ]
	run -"$1" --separate-stderr kv-prefill -m gqa --score lookahead=bad --evict rate=0.5 -o out.kv doc.txt
	assert_stderr_regex "$2"
	[ ! -e out.kv ]
	rm -r bad
}

assert_stderr_regex() {
	# shellcheck disable=SC2154 # bats sets it
	[[ $stderr =~ $1 ]] || { echo "$stderr"; return 1; }
}

@test "an adapter of another model, or one that does not fit it, is refused by the name of what is wrong" {
	kv-prefill -m gqa -o x.kv doc.txt
	rm -f out.kv
	layer=base_model.model.model.layers.1
	refused 4 'bad/adapter_config.json: trained for weights 0{32}, but gqa has [0-9a-f]{32}' --set-lookahead weights '"00000000000000000000000000000000"'
	refused 4 'trained for weights 0{32} and others, but gqa has [0-9a-f]{32}' --set-lookahead weights '["00000000000000000000000000000000", "11111111111111111111111111111111"]'
	refused 4 'trained for weights of none, but gqa has' --set-lookahead weights '[]'
	refused 3 'bad/adapter_config.json: "weights" is not 32 hex' --set-lookahead weights '["00000000000000000000000000000000", 1]'
	refused 3 'bad/adapter_config.json: "weights" is not 32 hex' --set-lookahead weights '"1"'
	refused 3 "bad/adapter_model.safetensors: no tensor $layer.mlp.up_proj.lora_B.weight" --drop $layer.mlp.up_proj.lora_B.weight
	refused 3 'no tensor lookahead.embeddings' --drop lookahead.embeddings
	refused 3 'lookahead.embeddings: want \[6\]\[48\], file has \[5\]\[48\]' --set-lookahead tokens 6
	refused 3 'self_attn.q_proj.lora_A.weight: want \[4\]\[48\], file has \[3\]\[48\]' --set r 4
	refused 3 'k_proj.lora_B.weight: want \[12\]\[3\], file has \[11\]\[3\]' --reshape $layer.self_attn.k_proj.lora_B.weight
	refused 3 'down_proj.lora_A.weight: value 0 is not finite' --value $layer.mlp.down_proj.lora_A.weight nan
	refused 3 'lookahead.embeddings: value 0 is not finite' --value lookahead.embeddings inf --dtype bf16
	refused 3 '"r" is not a whole number' --set r 0
	refused 3 'no number "lora_alpha"' --set lora_alpha null
	refused 3 '"tokens" is not a whole number from 1 to 4096' --set-lookahead tokens 0
	refused 5 'key "use_dora" is set: it may change the arithmetic' --set use_dora true
	refused 5 'key "rank_pattern" is set' --set rank_pattern '{"q_proj": 2}'
	refused 5 '"bias" is not "none"' --set bias '"all"'
	refused 5 '"peft_type" is not "LORA"' --set peft_type '"LOHA"'
	refused 5 '"target_modules": w1 is not a linear' --set target_modules '["w1"]'
	refused 5 'no object "lookahead": a LoRA without learned tokens' --set lookahead null
	refused 5 'has version 2: only 1 is supported' --set-lookahead version 2
	refused 5 'down_proj.lora_A.weight: not a tensor of this adapter.s target_modules' --set target_modules '["q_proj", "k_proj"]'
	adapter bad gqa --set modules_to_save null --set rank_pattern '{}' --set revision '"main"' --set fan_in_fan_out false --set-lookahead weights null
	kv-observe -m gqa --lookahead bad -o out.kv x.kv
	agrees gqa bad out.kv
}

@test "folders that are damaged or missing are refused with the name of the file" {
	kv-prefill -m gqa -o x.kv doc.txt
	rm -f out.kv
	run -1 kv-observe -m gqa --lookahead nowhere -o out.kv x.kv
	assert_output --partial 'nowhere/adapter_config.json: No such file'
	adapter bad gqa
	truncate -s -1 bad/adapter_model.safetensors
	run -3 kv-observe -m gqa --lookahead bad -o out.kv x.kv
	assert_output --partial 'bad/adapter_model.safetensors: '
	rm bad/adapter_model.safetensors
	run -1 kv-observe -m gqa --lookahead bad -o out.kv x.kv
	assert_output --partial 'bad/adapter_model.safetensors: No such file'
	echo '{' >bad/adapter_config.json
	run -3 kv-observe -m gqa --lookahead bad -o out.kv x.kv
	assert_output --partial 'bad/adapter_config.json: line 2'
	[ ! -e out.kv ]
}

@test "what learned tokens do not go with is refused with the reason" {
	kv-prefill -m gqa -w 8 -o x.kv doc.txt
	run -1 kv-score --method lookahead -o out.kv x.kv
	assert_output --partial 'x.kv: layer 0 has queries of the text only, and method lookahead needs learned tokens'
	run -2 kv-decode -m gqa -n 3 --score lookahead=a-gqa --evict budget=50 x.kv
	assert_output --partial 'predicts the answer before its first token'
	run -2 kv-prefill -m gqa --score lookahead --evict rate=0.5 -o out.kv doc.txt
	assert_output --partial 'needs learned tokens: give their folder, lookahead=DIR'
	run -2 kv-prefill -m gqa --score lookahead= --evict rate=0.5 -o out.kv doc.txt
	assert_output --partial 'needs learned tokens: give their folder, lookahead=DIR'
	run -2 kv-prefill -m gqa --score snapkv=a-gqa --evict rate=0.5 -o out.kv doc.txt
	assert_output --partial 'method snapkv takes no folder'
	run -2 kv-prefill -m gqa -c 50 --patch 9 --score lookahead=a-gqa --evict rate=0.5 -o out.kv doc.txt
	assert_output --partial 'learned tokens score each chunk'
	run -2 kv-prefill -m gqa -c 50 --mass --score lookahead=a-gqa --evict rate=0.5 -o out.kv doc.txt
	assert_output --partial 'does not go with --mass: its tokens are not stored'
	run -2 kv-prefill -m gqa --score "lookahead=a-gqa window=6" --evict rate=0.5 -o out.kv doc.txt
	assert_output --partial 'holds only 5 observation queries'
	run -2 kv-observe -m gqa --lookahead a-gqa --repeat-context -o out.kv x.kv
	assert_output --partial 'one of them only'
	run -2 kv-observe -m gqa -o out.kv x.kv
	assert_output --partial 'give --ids-from, --lookahead or --repeat-context'
	[ ! -e out.kv ]
}
