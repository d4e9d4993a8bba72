#!/usr/bin/env bats
# bats file_tags=slow
# Sliding-window attention: which rows are there, that pipes, parts and programs agree, and what layers with a window cannot do

load helper

setup() {
	cd "$BATS_TEST_TMPDIR" || exit 1
}

setup_file() {
	load helper
	cd "$BATS_FILE_TMPDIR" || return
	# windows smaller and larger than a tile of 512 tokens
	window_model some 60 sfss --layers 4 --hidden 64 --heads 6 --kv-heads 2 --head-dim 10 --ffn 100 --dtype f32 --seed 3 --std 0.1
	window_model wide 600 fss --layers 3 --hidden 40 --heads 5 --kv-heads 1 --head-dim 24 --ffn 56 --dtype bf16 --seed 2
	window_model one 1 sf --layers 2 --hidden 40 --heads 4 --kv-heads 2 --head-dim 8 --ffn 56 --dtype bf16 --seed 5
	window_model all 50 ss --layers 2 --hidden 40 --heads 4 --kv-heads 2 --head-dim 8 --ffn 56 --dtype f16 --seed 4
	seq 5 700 >700.ids
	seq 5 95 >91.ids
	seq 5 1404 >1400.ids
}

# model NAME, prompt N: of setup_file
model() {
	echo "$BATS_FILE_TMPDIR/$1"
}

prompt() {
	echo "$BATS_FILE_TMPDIR/$1.ids"
}

# rows FILE: of each KV head, layer by layer
rows() {
	see "$1" '[l.rows for l in s.layers]'
}

# equal MODEL PROMPT "OPTIONS OF kv-prefill" METHOD EVICTION: the same in one process and in a pipe
equal() {
	local method=${4%% *} m p
	m=$(model $1) p=$(prompt $2)
	# shellcheck disable=SC2046,SC2086 # words
	kv-prefill -m "$m" --ids $3 "$p" | kv-score --method "$method" $(options "${4#"$method"}") |
	    kv-evict $(options "$5") -o pipe.kv
	kv-prefill -m "$m" --ids --score "$4" --evict "$5" -o fused.kv "$p"
	run -0 kv-check fused.kv
	same_values fused.kv pipe.kv s.logical_digest '[s.logits]'
}

@test "a layer with a window holds the rows that the next token sees, and the others hold all" {
	kv-prefill -m "$(model some)" --ids -o x.kv "$(prompt 700)"
	assert_equal "$(rows x.kv)" "[59, 59] [696, 696] [59, 59] [59, 59]"
	assert_equal "$(see x.kv '[s.layers[0].positions[1][0], s.layers[0].positions[1][-1], s.head["next_position"]]')" "637 695 696"
	kv-prefill -m "$(model wide)" --ids -o x.kv "$(prompt 1400)"
	assert_equal "$(rows x.kv)" "[1400] [599] [599]"
	kv-prefill -m "$(model wide)" --ids -o x.kv "$(prompt 91)"
	assert_equal "$(rows x.kv)" "[91] [91] [91]"
	run -0 --separate-stderr kv-check x.kv
	kv-decode -q -m "$(model some)" --ids --ignore-eos -n 150 -o y.kv <(kv-prefill -m "$(model some)" --ids "$(prompt 91)") >/dev/null
	assert_equal "$(rows y.kv)" "[59, 59] [241, 241] [59, 59] [59, 59]"
	run -0 kv-check y.kv
}

@test "the snapshot says what each layer sees, and kv-info shows it" {
	kv-prefill -m "$(model some)" --ids -o x.kv "$(prompt 91)"
	assert_equal "$(see x.kv '[s.model["window"], s.model["whole_layers"]]')" "60 [1]"
	run -0 kv-info x.kv
	assert_line --regexp '^window +60 positions, in all layers but 1$'
	kv-info --json x.kv >info.json
	assert_equal "$(json info.json 'o["model"]["window"], o["model"]["whole_layers"]')" "(60, [1])"
	run -4 kv-decode -m "$(model all)" x.kv
}

@test "chunks, layer by layer, in two parts and resumed: the same rows and logits" {
	local m other
	for name in some wide all one; do
		m=$(model $name)
		kv-prefill -m "$m" --ids --dtype f32 -o whole.kv "$(prompt 1400)"
		kv-prefill -m "$m" --ids --dtype f32 --chunk 100 -o chunks.kv "$(prompt 1400)"
		kv-prefill -m "$m" --ids --dtype f32 --score recent --evict rate=1 -o layers.kv "$(prompt 1400)"
		kv-prefill -m "$m" --ids --dtype f32 --score recent --evict rate=1 --chunk 64 -o both.kv "$(prompt 1400)"
		head -n 900 "$(prompt 1400)" | kv-prefill -m "$m" --ids --dtype f32 -o most.kv -
		tail -n 500 "$(prompt 1400)" | kv-prefill -m "$m" --ids --dtype f32 -r most.kv -o two.kv -
		for other in chunks layers both two; do
			same_values $other.kv whole.kv '[l.positions for l in s.layers]'
			kv-diff --json whole.kv $other.kv >diff.json
			less "$(json diff.json 'max(o["key_difference"], o["value_difference"])')" 2e-5 || fail "$name: $other"
		done
		same_values layers.kv whole.kv s.logical_digest
	done
}

@test "scored and evicted during prefill: the snapshot is that of a pipe" {
	for name in some wide all one; do
		sampled equal $name 700 "-w 32" snapkv rate=0.1
		sampled equal $name 700 "-w 32" "snapkv window=8 kernel=7 pool=max" "budget=40 sink=4"
		sampled equal $name 700 "-w 16" "snapkv window=16" "rate=0.2 of=tokens recent=10"
		sampled equal $name 700 "-w 1" "tova keep-last" rate=0.2
		sampled equal $name 700 "--mass" "h2o reduce=max" "rate=0.3 recent=20"
		sampled equal $name 700 "--mass" meanmass "rate=0.3 sink=4"
		sampled equal $name 700 "" keydiff budget=30
		sampled equal $name 700 "" knorm rate=0.5
		sampled equal $name 700 "" recent "budget=30 sink=2"
		sampled equal $name 91 "" "random seed=7" budget=9
		sampled equal $name 700 "-w 8" "snapkv window=8" "budget=30 policy=ada alpha=0.1"
		sampled equal $name 700 "-w 8" "snapkv window=8" "rate=0.3 policy=pyramid"
		sampled equal $name 700 "-w 8" "snapkv window=8" "rate=0.3 skip-layers=1"
	done
}

@test "chunk by chunk with eviction: budgets hold, and each chunk is scored by rows that the next token sees" {
	kv-prefill -m "$(model some)" --ids --chunk 50 --score 'snapkv window=8' --evict budget=40 -o x.kv "$(prompt 700)"
	assert_equal "$(rows x.kv)" "[40, 40] [40, 40] [40, 40] [40, 40]"
	kv-prefill -m "$(model some)" --ids --chunk 50 --score keydiff --evict budget=100 -o x.kv "$(prompt 700)"
	assert_equal "$(rows x.kv)" "[59, 59] [100, 100] [59, 59] [59, 59]"
	run -0 kv-check x.kv
}

@test "text decoded in two parts, evicted or not, is that decoded at once" {
	local m
	for name in some wide all one; do
		m=$(model $name)
		kv-prefill -m "$m" --ids --observe 8 -o x.kv "$(prompt 700)"
		kv-decode -m "$m" --ids --ignore-eos -n 90 -o one.kv x.kv >one
		kv-decode -m "$m" --ids --ignore-eos -n 37 -o part.kv x.kv >first
		kv-decode -m "$m" --ids --ignore-eos -n 53 -o two.kv part.kv >second
		assert_equal "$(tr -s ' \n' ' ' <one)" "$(cat first <(echo) second | tr -s ' \n' ' ')"
		same_values one.kv two.kv '[l.positions for l in s.layers]'
	done
}

# by_hand MODEL METHOD_OPTIONS BUDGET: x.kv, 9 times a token and an eviction, is loop.kv
by_hand() {
	# shellcheck disable=SC2086 # words
	kv-score --method $2 x.kv | kv-evict --keep-queries --budget "$3" -o loop.kv
	for _ in 1 2 3 4 5 6 7 8 9; do
		kv-decode -q -m "$1" -n 1 --ids --ignore-eos --observe 4 --mass -o step.kv loop.kv >/dev/null
		# shellcheck disable=SC2086 # words
		kv-score --method $2 step.kv | kv-evict --keep-queries --budget "$3" -o loop.kv
	done
}

@test "evicted while decoding: a loop of one token, kv-score and kv-evict" {
	local m method
	for name in some all; do
		m=$(model $name)
		kv-prefill -m "$m" --ids --observe 4 --mass "$(prompt 700)" | kv-score --method recent |
		    kv-evict --keep-queries --budget 57 -o x.kv
		for method in "recent sink=3" tova "snapkv window=3 kernel=3" knorm "h2o" meanmass; do
			# shellcheck disable=SC2046 # words
			by_hand "$m" "${method%% *} $(options "${method#"${method%% *}"}" | tr '\n' ' ')" 50
			kv-decode -m "$m" -n 9 --ids --ignore-eos --observe 4 --mass --score "$method" --evict budget=50 -o once.kv x.kv
			same_values once.kv loop.kv s.logical_digest
		done
		# a budget that the window never fills: rows leave by their age alone
		kv-decode -m "$m" -n 40 --ids --ignore-eos --score knorm --evict budget=1000 -o once.kv x.kv >one
		kv-decode -m "$m" -n 40 --ids --ignore-eos x.kv >other
		diff one other
	done
}

@test "attention mass behind a resume is what each query pays within its window" {
	for name in some all; do
		head -n 600 "$(prompt 700)" | kv-prefill -m "$(model $name)" --ids --dtype f32 --mass -o a.kv -
		tail -n 96 "$(prompt 700)" | head -n 40 | kv-prefill -m "$(model $name)" --ids --dtype f32 --mass -r a.kv -o b.kv -
		kv-prefill -m "$(model $name)" --ids --dtype f32 --mass -o c.kv <(head -n 640 "$(prompt 700)")
		run -0 "$PYTHON" -c '
import sys
sys.path.insert(0, sys.argv[1])
import kvread
import numpy as np
b, c = (kvread.read(open(f, "rb")) for f in ("b.kv", "c.kv"))
for x, y in zip(b.layers, c.layers):
    np.testing.assert_allclose(np.array(x.mass), np.array(y.mass), rtol=2e-5, atol=1e-6)' "$FORMAT"
	done
}

@test "a prompt continues a snapshot that is reused whole, and is not cut back behind a window" {
	local m
	m=$(model some)
	head -n 500 "$(prompt 700)" >begin
	kv-prefill -m "$m" --ids --dtype f32 -o begin.kv begin
	kv-prefill -m "$m" --ids --dtype f32 -o cold.kv "$(prompt 700)"
	kv-prefill -m "$m" --ids --dtype f32 --reuse begin.kv -o warm.kv "$(prompt 700)"
	same_values warm.kv cold.kv '[l.positions for l in s.layers]'
	kv-diff --json cold.kv warm.kv >diff.json
	less "$(json diff.json 'max(o["key_difference"], o["value_difference"])')" 2e-5
	run -5 --separate-stderr kv-prefill -m "$m" --ids --dtype f32 --reuse cold.kv -o x.kv <(cat begin; seq 900 950)
	[[ "$stderr" == *"cold.kv: layer 0 has a sliding window and holds positions from 637 on: it can be continued, but not cut back to the 500 tokens that this prompt shares"* ]]
	[ ! -e x.kv ]
}

@test "a store has all rows of a prompt, so that another one takes any of its blocks" {
	local m
	m=$(model some)
	kv-prefill -m "$m" --ids --dtype f32 --store store -o one.kv "$(prompt 700)"
	kv-prefill -m "$m" --ids --dtype f32 -o cold.kv "$(prompt 700)"
	assert_equal "$(rows one.kv)" "$(rows cold.kv)"
	(head -n 300 "$(prompt 700)"; seq 900 1000) >other
	kv-prefill -m "$m" --ids --dtype f32 -o cold.kv other
	run -0 --separate-stderr kv-prefill -v -m "$m" --ids --dtype f32 --store store -o warm.kv other
	[[ "$stderr" == *"256 of 401 tokens from store"* ]]
	same_values warm.kv cold.kv '[l.positions for l in s.layers]'
	kv-diff --json cold.kv warm.kv >diff.json
	less "$(json diff.json 'max(o["key_difference"], o["value_difference"])')" 2e-5
	# evicted while it runs, behind rows of the store: as without the store
	kv-prefill -m "$m" --ids --dtype f32 --score keydiff --evict budget=50 -o cold.kv other
	kv-prefill -m "$m" --ids --dtype f32 --store store --score keydiff --evict budget=50 -o warm.kv other
	assert_equal "$(rows warm.kv)" "$(rows cold.kv)"
}

@test "many questions behind one snapshot: each is answered as if it were alone" {
	local m
	m=$(model some)
	kv-prefill -m "$m" --ids -o x.kv "$(prompt 700)"
	printf 'Where is the letter?\nWho carried the basket to the old market?\n' >questions
	kv-decode -m "$m" --ignore-eos -n 80 --questions questions x.kv >all
	kv-decode -m "$m" --ignore-eos -n 80 --questions <(sed -n 2p questions) x.kv >second
	assert_equal "$(tail -n +2 all)" "$(cat second)"
}

@test "drafts and repeated text see the window behind the snapshot and leave it as it was" {
	local m
	m=$(model some)
	kv-prefill -m "$m" --ids --dtype f32 -w 4 -o x.kv "$(prompt 700)"
	seq 30 69 >draft.ids
	kv-observe -m "$m" --ids-from draft.ids -o q.kv x.kv
	assert_equal "$(rows q.kv)" "$(rows x.kv)"
	kv-score --method snapkv -o s.kv q.kv
	run -0 "$PYTHON" "$ORACLE/scores.py" 2e-6 q.kv s.kv snapkv
	kv-observe -m "$m" --repeat-context -o z.kv x.kv
	run -0 kv-check z.kv
	kv-score --method kvzip z.kv | kv-evict --rate 0.5 -o e.kv
	assert_equal "$(rows e.kv)" "[29, 29] [348, 348] [29, 29] [29, 29]"
}

@test "layers with a window read what they see, and only the others have indexes and retrieve" {
	local m
	m=$(model some)
	kv-prefill -m "$m" --ids --observe 4 -o x.kv "$(prompt 700)"
	kv-decode -m "$m" --ids --ignore-eos -n 40 x.kv >full.ids
	for make in "kv-quantize1b -g 16" "kv-index --pages" "kv-index --clusters"; do
		$make x.kv >indexed.kv
		assert_equal "$(see indexed.kv '[bool(l.bits or l.pages or l.clusters) for l in s.layers]')" "False True False False"
		case $make in
		*quantize*) how=fier ;;
		*pages*) how=quest ;;
		*) how=clusterkv ;;
		esac
		kv-decode -m "$m" --ids --ignore-eos -n 40 --retrieve "$how budget=2000 dense=0" indexed.kv >read.ids
		diff full.ids read.ids
		kv-decode -m "$m" --ids --ignore-eos -n 70 --retrieve "$how budget=48 dense=0" -o after.kv indexed.kv >read.ids
		assert_equal "$(rows after.kv)" "[59, 59] [766, 766] [59, 59] [59, 59]"
		run -0 kv-check after.kv
		run -0 kv-diff --retrieve "$how budget=48 dense=0" indexed.kv
	done
	kv-prefill -m "$(model all)" --ids -o all.kv "$(prompt 91)"
	for make in "kv-quantize1b -g 16" "kv-index --pages"; do
		run -5 --separate-stderr $make -o x2.kv all.kv
		[[ "$stderr" == *"all.kv: all layers from 0 on have a sliding window, and only layers that see all rows retrieve"* ]]
		[ ! -e x2.kv ]
	done
	run -5 --separate-stderr kv-decode -m "$m" --retrieve 'fier budget=48' indexed.kv
	[[ "$stderr" == *"all layers from 2 on have a sliding window"* ]]
}

@test "tokens are not selected by a layer that does not see them all" {
	local m
	m=$(model some)
	for how in "kv-prefill --select 'tsp layer=0 window=8'" "kv-prefill --select 'gemfilter layer=2 budget=9'" "kv-prefill --select 'pyramidinfer decay=0.5'"; do
		eval "command=($how)"
		# shellcheck disable=SC2154 # eval sets it
		run -5 --separate-stderr "${command[@]}" -m "$m" --ids "$(prompt 700)"
		[[ "$stderr" == *"has a sliding window of 60 tokens, and the prompt has 696: it cannot choose among tokens that it does not see"* ]]
	done
	assert_equal "$(kv-tsp-layer -m "$m" --ids "$(prompt 700)" | awk '{ print $1 }' | paste -sd ' ')" "layer 1 tsp-layer"
	kv-prefill -m "$m" --ids --select 'tsp layer=1 window=8' -o tsp.kv "$(prompt 700)"
	kv-prefill -m "$m" --ids --select 'tsp layer=1 window=8' --score 'snapkv window=8' --evict 'budget=30' -o fused.kv "$(prompt 700)"
	kv-prefill -m "$m" --ids --select 'gemfilter layer=1 budget=100' -o gem.kv "$(prompt 700)"
	run -0 kv-check tsp.kv fused.kv gem.kv
	run -0 kv-decode -m "$m" --ids --ignore-eos -n 20 fused.kv
	# rows of the selected tokens within the window of the next one
	assert_equal "$(see tsp.kv 'all(p > s.head["next_position"] - 60 for l in (0, 2, 3) for p in s.layers[l].positions[0])')" True
}

@test "positions are not made compact where windows are measured in them" {
	kv-prefill -m "$(model some)" --ids "$(prompt 91)" | kv-score --method recent -o x.kv
	run -5 --separate-stderr kv-evict --rate 0.5 --positions compact -o y.kv x.kv
	[[ "$stderr" == *"compact positions are not supported for this model: its sliding windows are measured in positions"* ]]
	[ ! -e y.kv ]
}
