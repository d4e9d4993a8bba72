#!/usr/bin/env bats
# A text that is longer than the model was made for: every program that runs it warns, once

load helper

# a model that was made for 64 positions, by the keys of its configuration; of others only config.json differs
setup_file() {
	load helper
	cd "$BATS_FILE_TMPDIR" || return
	random_model m --layers 2 --hidden 32 --heads 4 --kv-heads 2 --head-dim 8
	made_for m 'c["max_position_embeddings"] = 64; c["rope_scaling"] = None'
	seq 5 66 >62.ids
	seq 5 69 >65.ids
	kv-prefill -m m --ids -w 4 -o x.kv 62.ids
}

setup() {
	cd "$BATS_FILE_TMPDIR" || exit 1
}

# made_for FOLDER CODE: changes its configuration c
made_for() {
	"$PYTHON" -c 'import json, sys
c = json.load(open(sys.argv[1] + "/config.json"))
exec(sys.argv[2])
json.dump(c, open(sys.argv[1] + "/config.json", "w"))' "$@"
}

# says N POSITION COMMAND ...: N warnings, of this position
says() {
	run -0 --separate-stderr "${@:3}"
	assert_equal "$(grep -c 'the model was made for' <<<"$stderr")" "$1"
	[ "$1" = 0 ] || assert_equal "$stderr" "$3: position $2: the model was made for 64 (max_position_embeddings)"
}

@test "each program warns once when tokens run past the end, and not before" {
	says 0 - kv-prefill -m m --ids -o y.kv <(head -n 64 65.ids)
	says 1 64 kv-prefill -m m --ids -o y.kv 65.ids
	says 1 65 kv-prefill -m m --ids -r x.kv -o y.kv <(head -n 4 62.ids)
	says 1 64 kv-prefill -m m --ids --score knorm --evict budget=9 -o y.kv 65.ids
	says 1 64 kv-tsp-layer -m m --ids 65.ids 65.ids
	# the last token that is printed runs for a snapshot only
	says 0 - kv-decode -m m --ids --ignore-eos -n 3 x.kv
	says 1 64 kv-decode -m m --ids --ignore-eos -n 3 -o y.kv x.kv
	says 1 64 kv-decode -m m --ids --ignore-eos -n 9 x.kv
	says 1 64 kv-decode -m m --ids --ignore-eos -n 9 --score knorm --evict budget=9 x.kv
	says 1 64 kv-decode -m m --ids --ignore-eos -n 9 x.kv x.kv x.kv
	printf '{"question": "", "ids": [%s]}\n' 5 6,7 8,9 >asked
	says 0 - kv-decode -m m --ids --ignore-eos -n 1 --questions asked x.kv
	says 1 64 kv-decode -m m --ids --ignore-eos -n 3 --questions asked x.kv
	echo '{"question": "", "ids": [5,6,7,8]}' >asked
	says 1 65 kv-decode -m m --ids --ignore-eos -n 1 --questions asked x.kv
	says 0 - kv-decode -m m --ids --force <(head -n 3 62.ids) x.kv
	says 1 64 kv-decode -m m --ids --force <(head -n 3 62.ids) -o y.kv x.kv
	says 1 64 kv-decode -m m --ids --force <(head -n 4 62.ids) x.kv
	says 0 - kv-observe -m m --ids-from <(head -n 2 62.ids) -o y.kv x.kv
	says 1 64 kv-observe -m m --ids-from <(head -n 3 62.ids) -o y.kv x.kv
}

@test "a scaled rotary embedding stretches what the model was made for, and where all layers have a window there is no end" {
	local code
	seq 3 131 >129.ids
	while IFS=/ read -r count code; do
		rm -rf scaled
		cp -r m scaled
		made_for scaled "$code"
		run -0 --separate-stderr kv-prefill -m scaled --ids -o y.kv 65.ids
		refute_regex "$stderr" 'made for'
		run -0 --separate-stderr kv-prefill -m scaled --ids -o y.kv 129.ids
		assert_equal "$(grep -c 'position 128: the model was made for 128 ' <<<"$stderr")" "$count"
	done <<-'END'
		1/c["rope_scaling"] = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
		1/c["rope_scaling"] = {"rope_type": "linear", "factor": 2.0}
		1/c.update(max_position_embeddings=128, rope_scaling={"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 32})
		0/c.update(model_type="ministral", architectures=["MinistralForCausalLM"], sliding_window=20, layer_types=["sliding_attention"] * 2)
	END
	cp -r m some
	made_for some 'c.update(model_type="ministral", architectures=["MinistralForCausalLM"], sliding_window=20, layer_types=["sliding_attention", "full_attention"])'
	says 1 64 kv-prefill -m some --ids -o y.kv 65.ids
}
