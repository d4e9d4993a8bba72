#!/usr/bin/env bats
# Which weights a snapshot, an adapter or a retrieval head is for: all their bytes count, and older files that have samples are said to.

load helper

setup_file() {
	load helper
	cd "$BATS_FILE_TMPDIR" || return
	head -c 2000 "$ROOT/examples/prompts/harbour.txt" >doc.txt
	# one element of an embedding of 192 KiB, between two of the samples of older programs
	cp -r "$DEMO" other
	"$PYTHON" "$ROOT/tests/bin/setweight.py" other/model.safetensors model.embed_tokens.weight 5000 0.5
	kv-prefill -q -m "$DEMO" -o new.kv doc.txt
	"$PYTHON" "$ROOT/tests/bin/reweigh.py" --samples "$DEMO" new.kv old.kv
	kv-prefill -q -m other -o other.kv doc.txt
}

setup() {
	cd "$BATS_TEST_TMPDIR" || exit 1
	ln -s "$BATS_FILE_TMPDIR"/{doc.txt,new.kv,old.kv,other,other.kv} .
}

oracle() {
	"$PYTHON" "$ORACLE/fingerprint.py" "$@"
}

SAMPLED='its fingerprint of the weights is of samples only, as in older versions'

@test "weights that differ in one element between the samples are others, to snapshots and to the store" {
	assert_equal "$(oracle --samples other)" "$(oracle --samples "$DEMO")"
	run -4 --separate-stderr kv-decode -q -m other -n 2 new.kv
	assert_output ''
	# shellcheck disable=SC2154 # bats sets it
	assert_equal "$stderr" "kv-decode: new.kv is not of the model other: weights: $(oracle "$DEMO") snapshot, $(oracle other) model"
	run -4 kv-diff new.kv other.kv
	kv-prefill -q -m "$DEMO" --store store -o a.kv doc.txt
	kv-prefill -v -m other --store store -o b.kv doc.txt 2>err
	grep 'kv-prefill: 0 of .* tokens from store' err
	kv-prefill -v -m other --store store -o c.kv doc.txt 2>err
	grep 'kv-prefill: [1-9][0-9]* of .* tokens from store' err
}

@test "a snapshot whose fingerprint is of samples says so, is taken with a warning, and what is made of it says so, too" {
	run -0 kv-info new.kv
	assert_line "weights        $(oracle "$DEMO") bf16"
	run -0 kv-info old.kv
	assert_line "weights        $(oracle --samples "$DEMO") bf16, by samples"
	kv-info --json new.kv | grep '"weights_rule": 2'
	run ! grep weights_rule <(kv-info --json old.kv)
	run -0 --separate-stderr kv-decode -m "$DEMO" --ids -n 3 -o on.kv old.kv
	assert_equal "$stderr" "kv-decode: old.kv: $SAMPLED"
	assert_equal "$output" "$(kv-decode -m "$DEMO" --ids -n 3 new.kv)"
	kv-score --method knorm on.kv | kv-evict -q --rate 0.5 -o half.kv
	run -0 --separate-stderr kv-prefill -m "$DEMO" --resume half.kv --ids -o more.kv - <<<'1 2 3'
	assert_equal "$stderr" "kv-prefill: half.kv: $SAMPLED"
	run -0 kv-info more.kv
	assert_line "weights        $(oracle --samples "$DEMO") bf16, by samples"
	run -4 --separate-stderr kv-diff old.kv new.kv
	assert_regex "$stderr" 'weights_rule: 0 old.kv, 2 new.kv'
}

@test "a snapshot whose fingerprint is of samples is refused where even samples differ" {
	cp -r "$DEMO" third
	"$PYTHON" "$ROOT/tests/bin/setweight.py" third/model.safetensors model.embed_tokens.weight 0 0.5
	run -4 --separate-stderr kv-decode -m third -n 2 old.kv
	assert_equal "$stderr" "kv-decode: old.kv is not of the model third: weights: $(oracle --samples "$DEMO") snapshot, $(oracle --samples third) model"
}

@test "of several snapshots each is compared, and named, by its own rule" {
	cp old.kv last.kv
	mkdir out
	run -0 --separate-stderr kv-decode -m "$DEMO" --ids -n 2 -o out/ old.kv new.kv last.kv
	assert_equal "$stderr" "kv-decode: old.kv: $SAMPLED"
	for name in old new last; do
		assert_equal "$(kv-info out/$name.kv | grep ^weights)" "$(kv-info $name.kv | grep ^weights)"
	done
}

@test "an adapter and a retrieval head that name samples are taken with a warning, others' are refused" {
	"$PYTHON" "$ROOT/tests/bin/mkadapter.py" --model "$DEMO" adapter
	run -0 --separate-stderr kv-prefill -m "$DEMO" --score lookahead=adapter --evict budget=16 -o a.kv doc.txt
	assert_equal "$stderr" ''
	sed -i "s/$(oracle "$DEMO")/$(oracle --samples "$DEMO")/" adapter/adapter_config.json
	run -0 --separate-stderr kv-prefill -m "$DEMO" --score lookahead=adapter --evict budget=16 -o b.kv doc.txt
	assert_equal "$stderr" "kv-prefill: adapter: its fingerprint of the model's weights is of samples only, as in older versions"
	cmp a.kv b.kv
	sed -i "s/$(oracle --samples "$DEMO")/$(oracle other)/" adapter/adapter_config.json
	run -4 --separate-stderr kv-prefill -m "$DEMO" --score lookahead=adapter --evict budget=16 -o b.kv doc.txt
	assert_regex "$stderr" "trained for weights $(oracle other), but $DEMO has $(oracle "$DEMO")"
}

@test "keys of a retrieval head whose name is of samples are taken with a warning, and keep it" {
	"$PYTHON" "$ROOT/tests/bin/mkhead.py" head --model "$DEMO" --layers 0,1,2
	kv-prefill -q -m "$DEMO" --retrieval-head head -o a.kv doc.txt
	"$PYTHON" "$ORACLE/head_name.py" --rename head a.kv b.kv
	run -0 --separate-stderr kv-decode -m "$DEMO" --retrieve 'specontext budget=16 head=head' --ids -n 2 -o c.kv b.kv
	assert_equal "$stderr" "kv-decode: b.kv: its fingerprint of the head is of samples only, as in older versions"
	assert_equal "$output" "$(kv-decode -m "$DEMO" --retrieve 'specontext head=head budget=16' --ids -n 2 -o d.kv a.kv)"
	kv-info c.kv | grep -q "$("$PYTHON" "$ORACLE/head_name.py" --samples head)"
	kv-info d.kv | grep -q "$("$PYTHON" "$ORACLE/head_name.py" head)"
	sed -i "s/\"target_weights\": \"$(oracle "$DEMO")\"/\"target_weights\": \"$(oracle --samples "$DEMO")\"/" head/config.json
	run -0 --separate-stderr kv-decode -m "$DEMO" --retrieve 'specontext budget=16 head=head' --ids -n 2 a.kv
	assert_equal "$stderr" "kv-decode: head: its fingerprint of the model's weights is of samples only, as in older versions"
}

@test "an adapter and a retrieval head are for each of the weights that they name" {
	"$PYTHON" "$ROOT/tests/bin/mkadapter.py" both --model "$DEMO"
	"$PYTHON" "$ROOT/tests/bin/mkhead.py" head --model "$DEMO" --layers 0,1,2
	kv-prefill -q -m "$DEMO" --score lookahead=both --retrieval-head head --evict budget=16 -o a.kv doc.txt
	sed -i "s/\"$(oracle "$DEMO")\"/[\"$(oracle other)\", \"$(oracle "$DEMO")\"]/" both/adapter_config.json head/config.json
	grep -q '\[".*", ".*"\]' both/adapter_config.json
	kv-prefill -q -m "$DEMO" --score lookahead=both --retrieval-head head --evict budget=16 -o b.kv doc.txt
	cmp a.kv b.kv
	run -0 --separate-stderr kv-prefill -m other --score lookahead=both --evict budget=16 -o c.kv doc.txt
	sed -i "s/\"$(oracle other)\", //" both/adapter_config.json head/config.json
	run -4 kv-prefill -m other --score lookahead=both --evict budget=16 -o d.kv doc.txt
	run -4 kv-prefill -m other --retrieval-head head -o d.kv doc.txt
}

@test "weights are read once: the fingerprint is kept below XDG_CACHE_HOME or HOME, for its owner alone" {
	local read='kv-prefill: weights: [0-9.]+ MiB read for their fingerprint' known='kv-prefill: weights: their fingerprint is known'
	unset KV_FINGERPRINTS XDG_CACHE_HOME
	touch -d '1 minute ago' doc.txt
	for cache in "$PWD/cache" "$PWD/home/.cache"; do
		mkdir "${cache%/.cache}"
		if [[ $cache == */home/* ]]; then export HOME=$PWD/home; else export XDG_CACHE_HOME=$cache; fi
		KV_FINGERPRINTS=off kv-prefill -v -m "$DEMO" -o a.kv doc.txt 2>&1 | grep -E "$read"
		[ ! -e "$cache/kvpipe" ]
		kv-prefill -v -m "$DEMO" -o a.kv doc.txt 2>&1 | grep -E "$read"
		kv-prefill -v -m "$DEMO" -o b.kv doc.txt 2>&1 | grep -E "$known"
		cmp a.kv b.kv
		assert_equal "$(stat -c %a "$cache/kvpipe" "$cache/kvpipe/fingerprints" | tr '\n' ' ')" '700 600 '
		unset XDG_CACHE_HOME
	done
	# files of just now are read every time; relative folders, and no folder at all, are as none
	cp -r "$DEMO" fresh
	kv-prefill -v -m fresh -o a.kv doc.txt 2>&1 | grep -E "$read"
	kv-prefill -v -m fresh -o a.kv doc.txt 2>&1 | grep -E "$read"
	HOME=home kv-prefill -v -m "$DEMO" -o a.kv doc.txt 2>&1 | grep -E "$read"
	HOME=/proc kv-prefill -v -m "$DEMO" -o a.kv doc.txt 2>&1 | grep -E "$read"
	KV_FINGERPRINTS=on run -2 --separate-stderr kv-prefill -m "$DEMO" -o a.kv doc.txt
	assert_regex "$stderr" "^kv-prefill: KV_FINGERPRINTS: 'on' is not off"
}
