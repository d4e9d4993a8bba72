#!/usr/bin/env bats
# examples/smollm2: what is in the tree for a real model
#
# SMOLLM2=FOLDER names the model folder that examples/smollm2.sh makes; what runs it is skipped without.

load helper

CARD=$ROOT/examples/smollm2

# METHOD [OPTION ...]: the answer of examples/methods/METHOD.sh to the question about the manual pages
says() {
	[ -n "${SMOLLM2:-}" ] || skip 'SMOLLM2 names no model folder'
	run -0 --separate-stderr sh "$ROOT/examples/methods/$1.sh" -m "$SMOLLM2" -C "$CARD/kvpipe-methods.conf" "${@:2}" "$ROOT/examples/prompts/manual.txt"
}

@test "the settings for SmolLM2 name files that are there" {
	local value
	while IFS='=' read -r _ value; do
		[ -e "$CARD/$value" ] || [[ $value =~ ^[0-9]+$ ]] || fail "$value"
	done < <(grep -v '^#' "$CARD/kvpipe-methods.conf")
}

@test "its head masks are numbers from 0 to 1 for 3 KV heads in 30 layers, not all the same" {
	local mask
	for mask in duoattention prulong; do
		run awk '!/^#/ { n++; if (NF != 3) print; for (i = 1; i <= NF; i++) { if ($i < 0 || $i > 1) print; sum += $i } }
			END { print n; if (sum < 5 || sum > 85) print sum }' "$CARD/$mask.tsv"
		assert_output 30
	done
}

@test "its adapter has learned tokens, and names the weights that it is for" {
	run -0 "$PYTHON" - "$CARD/lookahead" <<-'END'
		import json, sys
		config = json.load(open(sys.argv[1] + "/adapter_config.json"))
		file = open(sys.argv[1] + "/adapter_model.safetensors", "rb")
		head = json.loads(file.read(int.from_bytes(file.read(8), "little")))
		rows, width = head["lookahead.embeddings"]["shape"]
		assert width == 576 and rows == config["lookahead"]["tokens"], (rows, width)
		assert config["lookahead"]["weights"] == "2e2c847542dbe8c337597a1133826970", config
	END
}

@test "the question about the manual pages: the whole cache knows, learned rows find it, SnapKV's tenth does not have it" {
	says full
	assert_output --partial 4827163
	says lookaheadkv -r 0.1
	assert_output --partial 4827163
	says snapkv -r 0.1
	refute_output --partial 4827163
}

@test "masks keep the question's answer with half of the cache" {
	says duoattention -r 0.5
	assert_output --partial 4827163
	says prulong -r 0.5
	assert_output --partial 4827163
}
