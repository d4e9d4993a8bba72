#!/usr/bin/env bats
# examples/smollm2: what is in the tree for a real model
#
# SMOLLM2 names the model, the GGUF file that examples/smollm2.sh fetches or the folder that examples/smollm2/folder.sh makes;
# what runs it is skipped without.

load helper

CARD=$ROOT/examples/smollm2

# METHOD [OPTION ...]: the answer of examples/methods/METHOD.sh to the question about the manual pages
says() {
	[ -n "${SMOLLM2:-}" ] || skip 'SMOLLM2 names no model'
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

@test "its adapter has learned tokens, and it, the retrieval head and the gate name the weights that they are for" {
	run -0 "$PYTHON" - "$CARD/lookahead" "$CARD" <<-'END'
		import json, sys
		config = json.load(open(sys.argv[1] + "/adapter_config.json"))
		file = open(sys.argv[1] + "/adapter_model.safetensors", "rb")
		head = json.loads(file.read(int.from_bytes(file.read(8), "little")))
		rows, width = head["lookahead.embeddings"]["shape"]
		assert width == 576 and rows == config["lookahead"]["tokens"], (rows, width)
		# of the folder, and of the GGUF file that it is made of
		weights = ["954f2680808b946bbdaeaf65fd4519b3", "f04abc53ed783803d936b0ef5fa64501"]
		assert config["lookahead"]["weights"] == weights, config
		for part, key in ("retrieval-head", "kvpipe_retrieval_head"), ("kvzap", "kvpipe_gate"):
		    config = json.load(open(f"{sys.argv[2]}/{part}/config.json"))
		    assert config[key]["target_weights"] == weights, config
	END
}

# Wilson's limits by bisection of |share - p| = z sqrt(p (1 - p) / n)
@test "the card's table has every script of examples/methods, with the intervals of 20 documents" {
	run -0 "$PYTHON" - "$CARD/README.md" "$ROOT/examples/methods" <<-'END'
		import math, pathlib, re, sys
		def limit(share, n, low, high):
		    for _ in range(60):
		        p = (low + high) / 2
		        inside = abs(share - p) <= 1.959964 * math.sqrt(p * (1 - p) / n)
		        low, high = (low, p) if inside == (p < share) else (p, high)
		    return 100 * low
		part = pathlib.Path(sys.argv[1]).read_text().split("## Every method")[1].split("\n## ")[0]
		lines = re.findall(r"^\| (\S+) \| (\d+) \((\d+)-(\d+)\) \|", part, re.M)
		scripts = {path.stem for path in pathlib.Path(sys.argv[2]).glob("*.sh")} - {"common"}
		assert len(lines) == len(scripts) and {line[0] for line in lines} == scripts
		for name, right, low, high in lines:
		    share = int(right) / 100
		    want = (limit(share, 20, 0, share) if share > 0 else 0, limit(share, 20, share, 1) if share < 1 else 100)
		    assert abs(want[0] - int(low)) <= 0.51 and abs(want[1] - int(high)) <= 0.51, (name, want)
	END
}

# table METHOD RIGHT: 20 lines of compare.sh -T, of which so many are right
table() {
	seq 20 | awk -v OFS='\t' -v method="$1" -v right="$2" '{ print method, 0.1, $1, $1 <= right, 10, 10, 10, 1, 10, 10 }'
}

@test "real_table.py refuses a method that is missing, cut short, or far from what was recorded" {
	local judge=("$PYTHON" "$ORACLE/real_table.py" methods card.md)
	cd "$BATS_TEST_TMPDIR" || exit 1
	mkdir methods
	touch methods/{common,full,one}.sh
	printf '## Every method\n\n| full | 100 (84-100) |\n| one | 20 (8-42) |\n\n## Other\n' >card.md
	{ table full 20; table one 6; } >near.tsv
	run -0 "${judge[@]}" near.tsv
	assert_line 'ok 2 - one: 6 of 20 answers right, recorded 20 %'
	{ table full 20; table one 12; } >far.tsv
	run -1 "${judge[@]}" far.tsv
	assert_line 'not ok 2 - one: 12 of 20 answers right, recorded 20 %'
	table full 20 >missing.tsv
	{ table full 20; table one 6 | head -n 19; } >short.tsv
	for part in missing short; do
		run -1 "${judge[@]}" $part.tsv
		assert_line --regexp '^not ok 2 - one: '
	done
}

@test "the question about the manual pages: the whole cache knows, learned rows find it, SnapKV's tenth does not have it" {
	says full
	assert_output --partial 4827163
	says lookaheadkv -r 0.1
	assert_output --partial 4827163
	says snapkv -r 0.1
	refute_output --partial 4827163
}

@test "a gate and a retrieval head find the answer, too, with a tenth of the rows kept or read" {
	says kvzap -r 0.1
	assert_output --partial 4827163
	says specontext -r 0.1
	assert_output --partial 4827163
}

@test "masks keep the question's answer with half of the cache" {
	says duoattention -r 0.5
	assert_output --partial 4827163
	says prulong -r 0.5
	assert_output --partial 4827163
}
