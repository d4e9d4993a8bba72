#!/usr/bin/env bats
# Model folders: what loads, and whether our fingerprint is the one that formats/kv-snapshot.md describes

load helper

mkmodel() {
	"$PYTHON" "$ROOT/tests/bin/mkmodel.py" "$@"
}

# fingerprint DIR: ours, from a whole load with a device that is ordinary memory
fingerprint() {
	"$O/tests/unit/model_load" show "$1"
}

oracle() {
	"$PYTHON" "$ORACLE/fingerprint.py" "$1"
}

setup() {
	cd "$BATS_TEST_TMPDIR" || exit 1
}

@test "the fingerprint of the demo model is the oracle's" {
	run -0 fingerprint "$DEMO"
	assert_output "$(oracle "$DEMO")"
}

@test "models of every dtype and shape load, with the oracle's fingerprint" {
	local options
	while read -ra options; do
		rm -rf m
		mkmodel m "${options[@]}"
		run -0 fingerprint m
		assert_output "$(oracle m)"
	done <<-'END'
		--dtype bf16 --tie
		--dtype f16 --bias --llama3-rope
		--dtype f32 --kv-heads 4
		--kv-heads 1 --head-dim 24 --shards 3
		--tie --vocab 4096 --seed 7
	END
}

@test "the number of shards does not change the fingerprint, the seed does" {
	mkmodel one && mkmodel four --shards 4 && mkmodel other --seed 1
	[ -e four/model.safetensors.index.json ] && [ ! -e four/model.safetensors ]
	[ "$(fingerprint one)" = "$(fingerprint four)" ]
	[ "$(fingerprint one)" != "$(fingerprint other)" ]
}

# A tensor of 3 MB, of 4 pieces
@test "a tensor of several pieces: the oracle's fingerprint, with any number of threads, and every byte counts" {
	local n before
	mkmodel m --vocab 12345 --hidden 128 --layers 1
	run -0 fingerprint m
	assert_output "$(oracle m)"
	for n in 1 2 5; do
		run -0 --separate-stderr bash -c "echo 1 2 3 | kv-prefill -m m -j $n --ids - | kv-info --json -"
		[[ "$output" == *"\"weights\": \"$(oracle m)\""* ]]
	done
	before=$(oracle m)
	"$PYTHON" "$ROOT/tests/bin/setweight.py" m/model.safetensors model.embed_tokens.weight 1000003 7
	[ "$(oracle m)" != "$before" ]
	run -0 fingerprint m
	assert_output "$(oracle m)"
}

@test "a missing shard is refused and named" {
	mkmodel m --shards 2 && rm m/model-00002-of-00002.safetensors
	run -1 fingerprint m
	assert_output "m/model.safetensors.index.json: missing shard model-00002-of-00002.safetensors: the download is not complete"
}

@test "the same options make the same bytes" {
	mkmodel a --shards 2 --bias && mkmodel b --shards 2 --bias
	diff -r a b
}
