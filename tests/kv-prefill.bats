#!/usr/bin/env bats
# bats file_tags=slow
# kv-prefill: the forward pass, chunks, resume, observation; what it refuses

load helper

setup() {
	cd "$BATS_TEST_TMPDIR" || exit 1
	small_talk 30 >doc.txt       # about 600 tokens
}

# agrees MODEL SNAPSHOT LIMIT: every relative error that llama.py prints is below LIMIT
agrees() {
	errors_below "$3" "$PYTHON" "$ORACLE/llama.py" "$1" "$2"
}

# same_cache LIMIT A B [A B ...]: of each pair rows and tokens are equal, keys and values within LIMIT (relative, L2)
same_cache() {
	errors_below "$1" "$PYTHON" "$ORACLE/same.py" "${@:2}"
}

@test "logits agree with the golden file to 1e-3 and greedy continuations are identical" {
	golden="$ORACLE/golden.py $DEMO/golden.json"
	for n in $(seq 0 $(($("$PYTHON" $golden count) - 1))); do
		"$PYTHON" $golden ids "$n" | kv-prefill -m "$DEMO" --ids --dtype f32 -o "$n.kv"
		less "$("$PYTHON" $golden error "$n" "$n.kv")" 1e-3
		"$PYTHON" $golden greedy "$n" >want
		kv-decode -m "$DEMO" --ids --ignore-eos -n "$(wc -l <want)" "$n.kv" | diff want -
	done
}

@test "keys, values, queries and logits of the demo model agree with a double-precision forward pass" {
	kv-prefill -m "$DEMO" --observe 13 --dtype f32 -o f32.kv doc.txt
	agrees "$DEMO" f32.kv 1e-5
	kv-prefill -m "$DEMO" --observe 13 -o bf16.kv doc.txt
	agrees "$DEMO" bf16.kv 5e-3
}

@test "random models of every supported kind agree with the double-precision forward pass" {
	random_model mha --layers 2 --hidden 48 --heads 3 --kv-heads 3 --head-dim 16 --ffn 72 --dtype f32 --seed 1
	random_model mqa --layers 3 --hidden 40 --heads 5 --kv-heads 1 --head-dim 24 --ffn 56 --vocab 1600 --dtype f16 --seed 2 --tie
	random_model gqa --layers 2 --hidden 64 --heads 6 --kv-heads 2 --head-dim 10 --ffn 100 --dtype bf16 --seed 3 --bias --llama3-rope
	for m in mha mqa gqa; do
		kv-prefill -m $m --observe 5 --dtype f32 -c 100 -o $m.kv doc.txt
		agrees $m $m.kv 2e-5
	done
}

@test "any --chunk gives the same cache within rounding" {
	kv-prefill -m "$DEMO" -o whole.kv --dtype f32 -c 100k doc.txt
	local pairs=()
	for chunk in 1 7 64 512; do
		kv-prefill -m "$DEMO" -o $chunk.kv --dtype f32 -c $chunk doc.txt
		pairs+=(whole.kv "$chunk.kv")
	done
	same_cache 1e-5 "${pairs[@]}"
}

@test "a resumed prefill equals one prefill, in cache, queries and text" {
	kv-tokenize -m "$DEMO" doc.txt >all.ids
	half=$(($(wc -l <all.ids) / 2))
	head -n $half all.ids >first.ids
	tail -n +$((half + 1)) all.ids >second.ids
	kv-prefill -m "$DEMO" --ids --dtype f32 --observe 16 -o whole.kv all.ids
	kv-prefill -m "$DEMO" --ids --dtype f32 first.ids | kv-prefill -m "$DEMO" --ids --observe 16 -r - -o resumed.kv second.ids
	same_cache 1e-5 whole.kv resumed.kv
	agrees "$DEMO" resumed.kv 1e-5
	kv-prefill -m "$DEMO" --ids --dtype f32 -c 1 -o single.kv all.ids
	same_cache 1e-5 whole.kv single.kv
	for f in whole resumed single; do
		kv-decode -m "$DEMO" -n 20 $f.kv >$f.txt
	done
	cmp whole.txt resumed.txt
	cmp whole.txt single.txt
}

@test "an observation window that reaches back before the resume is completed from the snapshot" {
	kv-tokenize -m "$DEMO" doc.txt >all.ids
	head -n -5 all.ids >first.ids
	tail -n 5 all.ids >second.ids
	kv-prefill -m "$DEMO" --ids --dtype f32 --observe 16 first.ids |
		kv-prefill -m "$DEMO" --ids --observe 16 -r - -o resumed.kv second.ids
	agrees "$DEMO" resumed.kv 1e-5
	kv-info --json resumed.kv | grep -q '"queries": 16'
	kv-prefill -m "$DEMO" --ids --observe 16 first.ids -o part.kv
	strip oBSq part.kv gap.kv 2
	kv-prefill -m "$DEMO" --ids first.ids -o none.kv
	kv-prefill -m "$DEMO" --ids --observe 5 -r none.kv -o want.kv second.ids
	for from in gap none; do
		run -0 --separate-stderr kv-prefill -m "$DEMO" --ids --observe 16 -r $from.kv -o x.kv second.ids
		assert_equal "$stderr" "kv-prefill: --observe 16: 5 tokens, and the snapshot has 0 queries before them: only 5 queries are kept"
		same_values x.kv want.kv '[l.queries for l in s.layers]'
	done
}

@test "an observation window that is longer than the prompt is all of it, with a warning, and so one line serves all lengths" {
	local n
	for n in 1 5 16 17 40; do
		seq 3 $((n + 2)) >ids
		run -0 --separate-stderr kv-prefill -m "$DEMO" --ids --observe 16 -o some.kv ids
		if [ $n -lt 16 ]; then
			assert_equal "$stderr" "kv-prefill: --observe 16: the prompt has $n tokens: only $n queries are kept"
			kv-prefill -m "$DEMO" --ids --observe $n ids | cmp some.kv -
		else
			assert_equal "$stderr" ""
		fi
		kv-score --method snapkv some.kv | kv-evict -q --rate 0.5 -o pipe.kv
		for options in "" "-c 16"; do
			# shellcheck disable=SC2086 # words
			kv-prefill -q -m "$DEMO" --ids --observe 16 $options --score snapkv --evict rate=0.5 -o fused.kv ids
			[ -n "$options" ] && [ $n -gt 16 ] || assert_equal "$(logical fused.kv)" "$(logical pipe.kv)"
		done
	done
	# without --observe the method looks at 32 queries, or at all
	seq 3 22 >ids
	kv-prefill -m "$DEMO" --ids --observe 20 ids | kv-score --method snapkv | kv-evict -q --rate 0.5 -o pipe.kv
	run -0 --separate-stderr kv-prefill -m "$DEMO" --ids --score snapkv --evict 'rate=0.5' -o fused.kv ids
	same_values fused.kv pipe.kv s.logical_digest
	# a window that was asked for is another method
	run -2 --separate-stderr kv-prefill -m "$DEMO" --ids --observe 64 --score 'snapkv window=21' --evict rate=0.5 -o none.kv ids
	assert_regex "$stderr" "a window of 21 queries is longer than the prompt, 20 tokens: leave out window= for the longest"
	kv-prefill -q -m "$DEMO" --ids --observe 64 -o some.kv ids
	run -2 --separate-stderr kv-score --method snapkv --window 21 -o none.kv some.kv
	assert_equal "$stderr" "kv-score: --window 21: layer 0 holds only 20 observation queries: without --window all of them are used"
	[ ! -e none.kv ]
}

# mass_agrees LIMIT MODEL SNAPSHOT ...: the attention received alone
mass_agrees() {
	"$PYTHON" "$ORACLE/llama.py" "${@:2}" >all
	grep ' mass ' all >masses
	assert_equal "$(wc -l <masses)" $(($# - 2))
	errors_below "$1" cat masses
}

@test "the attention that each row receives agrees with a dense double-precision one, whatever the chunk" {
	for chunk in 1 64 250 512 100k; do
		kv-prefill -m "$DEMO" --mass --dtype f32 -c $chunk -o $chunk.kv doc.txt
	done
	mass_agrees 1e-5 "$DEMO" {1,64,250,512,100k}.kv
	random_model gqa --layers 2 --hidden 64 --heads 6 --kv-heads 2 --head-dim 10 --ffn 100 --dtype f32 --seed 3
	kv-prefill -m gqa --mass -c 100 -o gqa.kv doc.txt
	mass_agrees 1e-5 gqa gqa.kv
	kv-prefill -m "$DEMO" -o without.kv doc.txt
	kv-prefill -m "$DEMO" --mass -o with.kv doc.txt
	same_values without.kv with.kv s.logical_digest
}

@test "attention received goes on when a snapshot with it is resumed" {
	kv-tokenize -m "$DEMO" doc.txt >all.ids
	head -n 300 all.ids >first.ids
	tail -n +301 all.ids >second.ids
	kv-prefill -m "$DEMO" --ids --mass --dtype f32 first.ids |
		kv-prefill -m "$DEMO" --ids --mass -r - -o resumed.kv second.ids
	mass_agrees 1e-5 "$DEMO" resumed.kv
}

@test "attention received after an eviction is shared among the survivors" {
	kv-tokenize -m "$DEMO" doc.txt >all.ids
	head -n 300 all.ids >first.ids
	tail -n +301 all.ids | head -n 150 >second.ids
	kv-prefill -m "$DEMO" --ids --mass --dtype f32 first.ids | kv-score --method h2o |
		kv-evict --budget 100 --recent 50 -o before.kv
	"$PYTHON" "$ORACLE/ragged.py" before.kv ragged.kv
	for before in before ragged; do
		kv-prefill -m "$DEMO" --ids --mass --observe 150 -c 64 -r $before.kv -o after.kv second.ids
		see after.kv 's.layers[0].positions[0] != s.layers[0].positions[1]' | grep -x True
		error=$("$PYTHON" "$ORACLE/mass.py" $before.kv after.kv)
		less "$error" 1e-5
	done
	see after.kv '[l.rows for l in s.layers]' | grep -x '\[250, 216\] \[216, 250\] \[250, 216\] \[216, 250\]'
}

@test "rows without attention received are refused with --mass, and without it the sums are dropped" {
	printf ' Yes.' >more.txt
	kv-prefill -m "$DEMO" -o without.kv doc.txt
	run -1 --separate-stderr kv-prefill -m "$DEMO" --mass -r without.kv -o x.kv more.txt
	[[ "$stderr" == "kv-prefill: without.kv: layer 0 has rows without attention mass: "* ]]
	[ ! -e x.kv ]
	kv-prefill -m "$DEMO" --mass -o with.kv doc.txt
	kv-prefill -m "$DEMO" -r with.kv -o x.kv more.txt
	see x.kv '[l.mass for l in s.layers]' | grep -x 'None None None None'
}

@test "two runs, any number of threads, a pipe and a file give identical bytes" {
	kv-prefill -m "$DEMO" --observe 8 --mass -o a.kv doc.txt
	kv-prefill -m "$DEMO" --observe 8 --mass -j 1 -o b.kv <doc.txt
	kv-prefill -m "$DEMO" --observe 8 --mass -j 3 doc.txt | cat >c.kv
	cmp a.kv b.kv
	cmp a.kv c.kv
}

@test "a compressed snapshot has the same logical digest and decodes to the same text" {
	kv-prefill -m "$DEMO" -o plain.kv doc.txt
	kv-prefill -m "$DEMO" -z -o lz4.kv doc.txt
	[ "$(stat -c %s lz4.kv)" -lt "$(stat -c %s plain.kv)" ]
	same_values plain.kv lz4.kv s.logical_digest
	[ "$(kv-decode -m "$DEMO" plain.kv)" = "$(kv-decode -m "$DEMO" lz4.kv)" ]
}

@test "an empty text is its first token, as kv-tokenize says, and one without any token is refused by both" {
	kv-tokenize -m "$DEMO" /dev/null >first.ids
	assert_equal "$(wc -l <first.ids)" 1
	kv-prefill -m "$DEMO" -o x.kv /dev/null
	assert_equal "$(see x.kv s.tokens)" "$(cat first.ids)"
	kv-prefill -m "$DEMO" --ids first.ids | cmp - x.kv
	assert_equal "$(kv-decode -m "$DEMO" -n 3 --ids --ignore-eos x.kv | wc -l)" 3
	for option in --no-template "--no-template --plain"; do
		# shellcheck disable=SC2086 # words
		run -3 --separate-stderr kv-prefill -m "$DEMO" $option -o none.kv /dev/null
		assert_equal "$stderr" "kv-prefill: /dev/null: there is no token"
		# shellcheck disable=SC2086
		run -3 --separate-stderr kv-tokenize -m "$DEMO" $option /dev/null
		assert_equal "$stderr" "kv-tokenize: /dev/null: there is no token"
		assert_equal "$output" ""
	done
	run -3 --separate-stderr kv-tokenize -m "$DEMO" --continue /dev/null
	assert_equal "$stderr" "kv-tokenize: /dev/null: there is no token"
	# behind a snapshot no first token is put
	run -3 --separate-stderr kv-prefill -m "$DEMO" -r x.kv -o none.kv /dev/null
	assert_equal "$stderr" "kv-prefill: /dev/null: there is no token"
	run -3 --separate-stderr kv-prefill -m "$DEMO" --ids -o none.kv /dev/null
	assert_equal "$stderr" "kv-prefill: /dev/null: there is no token"
	[ ! -e none.kv ]
}

@test "invalid UTF-8 in the prompt is refused with its offset" {
	printf 'good \xff bad' >bad.txt
	run -3 --separate-stderr kv-prefill -m "$DEMO" -o x.kv bad.txt
	[[ "$stderr" == *"bad.txt"* && "$stderr" == *"5"* ]]
	[ ! -e x.kv ]
}

@test "ids that are no ids of the model are refused with their line" {
	printf '1533\n51 9999\n' >bad.ids
	run -3 --separate-stderr kv-prefill -m "$DEMO" --ids -o x.kv bad.ids
	[[ "$stderr" == *'bad.ids: line 2: "9999" is not a token id below 1536'* ]]
	printf '1533\n-4\n' >bad.ids
	run -3 --separate-stderr kv-prefill -m "$DEMO" --ids -o x.kv bad.ids
	[[ "$stderr" == *'line 2: "-4"'* ]]
}

@test "a chunk of 0 and a wrong type are usage errors" {
	run -2 kv-prefill -m "$DEMO" --chunk 0 -o x.kv doc.txt
	run -2 kv-prefill -m "$DEMO" --dtype int8 -o x.kv doc.txt
	run -2 kv-prefill -o x.kv doc.txt
	[ ! -e x.kv ]
}

@test "a snapshot of other weights, another shape or another tokenizer is refused field by field" {
	kv-prefill -m "$DEMO" -o demo.kv doc.txt
	cp -r "$DEMO" weights
	printf '\x01' | dd of=weights/model.safetensors bs=1 seek=$(($(stat -c %s weights/model.safetensors) - 1)) conv=notrunc status=none
	run -4 --separate-stderr kv-prefill -m weights -r demo.kv -o x.kv doc.txt
	[[ "$stderr" == *"demo.kv is not of the model weights: weights: "* ]]
	cp -r "$DEMO" tok
	sed -i 's/<|pad|>/<|filler|>/' tok/tokenizer.json
	run -4 --separate-stderr kv-prefill -m tok -r demo.kv -o x.kv doc.txt
	[[ "$stderr" == *"tokenizer: "* && "$stderr" != *"weights: "* ]]
	random_model other --layers 2 --hidden 48 --heads 3 --kv-heads 3 --head-dim 16 --ffn 72 --dtype bf16 --seed 1
	run -4 --separate-stderr kv-prefill -m other -r demo.kv -o x.kv doc.txt
	[[ "$stderr" == *"layers: 4 snapshot, 2 model"* && "$stderr" == *"kv_heads: "* ]]
	[ ! -e x.kv ]
}

@test "model folders that are incomplete or unsupported are refused by name" {
	cp -r "$DEMO" m
	chmod -R u+w m
	rm m/model.safetensors
	run -1 --separate-stderr kv-prefill -m m -o x.kv doc.txt
	[[ "$stderr" == *"model.safetensors"* ]]
	cp "$DEMO/model.safetensors" m
	sed -i 's/"rope_scaling": null/"rope_scaling": {"rope_type": "spiral", "factor": 4.0}/' m/config.json
	run -5 --separate-stderr kv-prefill -m m -o x.kv doc.txt
	[[ "$stderr" == *spiral* ]]
	sed -i 's/"num_key_value_heads": 2/"num_key_value_heads": 1/; s/{"rope_type": "spiral", "factor": 4.0}/null/' m/config.json
	run -3 --separate-stderr kv-prefill -m m -o x.kv doc.txt
	[[ "$stderr" == *"k_proj.weight: want [32][128], file has [64][128]"* ]]
	run -1 --separate-stderr kv-prefill -m nowhere -o x.kv doc.txt
	[[ "$stderr" == *nowhere* ]]
}

@test "a full disk leaves nothing behind under the final name, and what was there stays" {
	run -1 --separate-stderr bash -c 'kv-prefill -m "$0" doc.txt >/dev/full' "$DEMO"
	[[ "$stderr" == *"No space left on device"* ]]
	run -1 kv-prefill -m "$DEMO" -o /dev/full doc.txt
	echo precious >keep.kv
	run -3 kv-prefill -m "$DEMO" --no-template -o keep.kv /dev/null
	[ "$(cat keep.kv)" = precious ]
}

@test "a reader that goes ends the program by SIGPIPE, without a message" {
	run --separate-stderr bash -c 'cat doc.txt doc.txt | kv-prefill -m "$0" | head -c 100 >/dev/null; exit "${PIPESTATUS[1]}"' "$DEMO"
	[ "$status" -eq 141 ]
	assert_equal "$stderr" ''
}

@test "an interrupt leaves neither a temporary nor a final file" {
	small_talk 12000 >long.txt
	run timeout -s INT 0.5 kv-prefill -m "$DEMO" -o out.kv long.txt
	[ "$status" -ne 0 ]
	run find . -name 'out.kv*'
	[ -z "$output" ]
}

@test "ids are run and printed without a tokenizer, and the snapshot says that there was none" {
	cp -r "$DEMO" m
	rm m/tokenizer*.json
	printf 'The access code of Elmford is L047.' | kv-tokenize -m "$DEMO" >ids
	run -0 kv-prefill -q -m m --ids -o a.kv ids
	run -0 kv-info a.kv
	assert_line --regexp '^tokenizer +0{32}$'
	run -0 --separate-stderr kv-decode -q -m m --ids -n 8 a.kv
	without=$output
	# where there is one the snapshot goes on with it, and gives text
	assert_equal "$without" "$(kv-decode -q -m "$DEMO" --ids -n 8 a.kv)"
	run -0 kv-decode -q -m "$DEMO" -n 8 a.kv
	# the other way round the snapshot keeps the tokenizer that it had
	run -0 kv-prefill -q -m "$DEMO" --ids -o b.kv ids
	run -0 kv-prefill -q -m m --ids --resume b.kv -o c.kv ids
	assert_equal "$(kv-info c.kv | grep ^tokenizer)" "$(kv-info b.kv | grep ^tokenizer)"
	run -0 kv-observe -q -m m --ids-from ids -o d.kv a.kv
	run -1 kv-prefill -q -m m -o e.kv ids
	assert_output --partial 'tokenizer.json: No such file'
	run -1 kv-decode -q -m m -n 8 a.kv
}

@test "a tokenizer may have more ids than the model, until one of them comes up" {
	cp -r "$DEMO" m
	"$PYTHON" - m/tokenizer.json <<-'E'
		import json, sys
		doc = json.load(open(sys.argv[1]))
		doc['added_tokens'].append(dict(id=4000, content='<extra>', special=True, normalized=False,
		                                lstrip=False, rstrip=False, single_word=False))
		json.dump(doc, open(sys.argv[1], 'w'))
	E
	printf 'The old farmer' >t
	run -0 kv-prefill -q -m m -o a.kv t
	printf 'The <extra> farmer' >t
	run -3 kv-prefill -q -m m -o b.kv t
	assert_output --regexp 't: token [0-9]+ has the id 4000, the model has 1536$'
	[ ! -e b.kv ]
}
