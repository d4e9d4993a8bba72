#!/usr/bin/env bats
# bats file_tags=slow
# gpt-oss: learned sinks in attention, in attention mass and in the scores of methods; experts with gate and up in turns, as elements and in MXFP4

load helper
load families

# mxfp4: blocks and elements, two folders with the same numbers
mxfp4() {
	rm -rf blocks elements
	"$PYTHON" "$ROOT/tests/bin/mxfp4experts.py" "$(family gpt_oss-blocks)" blocks elements
}

# refused STATUS MESSAGE FOLDER
refused() {
	run "-$1" --separate-stderr kv-prefill -m "$3" --ids -o x.kv ids
	# shellcheck disable=SC2154 # bats sets it
	[[ "$stderr" == *"$2"* ]] || { echo "$stderr"; return 1; }
	[ ! -e x.kv ]
}

# sinks FILE: of each layer, rounded
sinks() {
	see "$1" '[None if l.sinks is None else [round(x, 4) for x in l.sinks] for l in s.layers]'
}

setup() {
	cd "$BATS_TEST_TMPDIR" || exit 1
}

@test "logits, rows, attention and 64 tokens are what transformers computes, in f32 and of weights of bf16" {
	recorded gpt_oss gpt_oss-blocks gpt_oss-bf16
}

@test "experts in MXFP4 give the bytes that the same numbers give as elements" {
	text_ids 70
	mxfp4
	kv-prefill -m blocks --ids --dtype f32 --logits a -o a.kv ids
	kv-prefill -m elements --ids --dtype f32 --logits b -o b.kv ids
	cmp a b
	kv-decode -q -m blocks --ids --ignore-eos -n 20 a.kv >a.text
	kv-decode -q -m elements --ids --ignore-eos -n 20 b.kv >b.text
	diff a.text b.text
	# products in integers: near them
	KV_PRODUCTS='' kv-prefill -m blocks --ids --dtype f32 --logits c -o c.kv ids
	"$PYTHON" -c 'import numpy as np
a, c = np.load("a"), np.load("c")
assert 0 < np.abs(a - c).max() < 0.1 * np.abs(a).max()'
}

@test "sinks are in a snapshot where queries are, and go where these go" {
	local m
	m=$(family gpt_oss)
	text_ids 40
	kv-prefill -q -m "$m" --ids --dtype f32 -o plain.kv ids
	kv-prefill -q -m "$m" --ids --dtype f32 -w 8 --mass -o full.kv ids
	assert_equal "$(sinks plain.kv)" "None None None None"
	[ "$(sinks full.kv)" != "None None None None" ]
	kv-score --method recent full.kv | kv-evict -q --rate 0.5 --keep-queries -o small.kv
	assert_equal "$(sinks small.kv)" "$(sinks full.kv)"
	kv-convert -q --per-query-head -o heads.kv full.kv
	assert_equal "$(sinks heads.kv)" "$(sinks full.kv)"
	printf '7 8 9' >question
	kv-observe -q -m "$m" --ids-from question -o asked.kv full.kv
	assert_equal "$(sinks asked.kv)" "$(sinks full.kv)"
	kv-decode -q -m "$m" --ids -n 3 -w 4 -o longer.kv full.kv >text
	assert_equal "$(sinks longer.kv)" "$(sinks full.kv)"
	run -0 kv-check small.kv heads.kv asked.kv longer.kv
	kv-info full.kv | grep -q 'learned sinks'
}

@test "scores from the window are of the softmax with the sinks, and the same in a pipe and in kv-prefill" {
	local m
	m=$(family gpt_oss)
	text_ids 60
	kv-prefill -q -m "$m" --ids --dtype f32 -w 8 -o full.kv ids
	kv-score --method snapkv --kernel 1 full.kv >scored.kv
	"$PYTHON" -c '
import sys
sys.path.insert(0, sys.argv[1])
import kvsnapshot, numpy as np
s, given = kvsnapshot.read("scored.kv"), []
for layer in s.layers:
    for g in range(3):
        attention, got = layer.attention(g), layer.scores[g]
        R, w = attention.shape[:2]
        given.append(attention.sum() / R / w)
        assert np.allclose(got[:-w], attention.sum((0, 1))[:-w] / R, 1e-4, 1e-6)
assert max(len(x) for x in layer.scores) == 60 and min(given) < 0.9' "$ROOT/python"
	kv-prefill -q -m "$m" --ids --dtype f32 -w 8 --mass -o full.kv ids
	for method in snapkv tova h2o cake streamingllm knorm keydiff; do
		kv-score --method "$method" full.kv | kv-evict -q --rate 0.4 -o pipe.kv
		kv-prefill -q -m "$m" --ids --dtype f32 -w 8 --mass --score "$method" --evict rate=0.4 -o fused.kv ids
		diff <(kv-info --positions pipe.kv) <(kv-info --positions fused.kv)
	done
}

@test "chunks, several texts, a draft, a file of rows, a store, retrieval and quantised rows give what one text alone gives" {
	local m text
	m=$(family gpt_oss)
	text_ids 300 && mv ids long.ids
	text_ids 60
	seq 40 90 >other
	for text in ids other; do
		kv-prefill -q -m "$m" --ids --dtype f32 -w 8 --mass -o $text.kv $text
		kv-decode -q -m "$m" --ids --ignore-eos -n 12 -o one.$text.kv $text.kv >$text.alone
	done
	kv-prefill -q -m "$m" --ids --dtype f32 --chunk 7 -o chunks.kv ids
	kv-decode -q -m "$m" --ids --ignore-eos -n 12 chunks.kv >text
	diff ids.alone text
	rm -rf all && mkdir all
	kv-decode -q -m "$m" --ids --ignore-eos -n 12 -o all {ids,other}.kv >together
	for text in ids other; do cmp one.$text.kv all/$text.kv; done
	kv-score --method snapkv --kernel 3 ids.kv | kv-evict -q --rate 0.4 -o small.kv
	kv-decode -q -m "$m" --ids --ignore-eos -n 12 -o drafted.kv --draft small.kv ids.kv >drafted
	diff ids.alone drafted
	cmp one.ids.kv drafted.kv
	kv-decode -q -m "$m" --ids --ignore-eos -n 12 --stream -o streamed.kv ids.kv >streamed
	diff ids.alone streamed
	kv-index --pages ids.kv >pages.kv
	kv-quantize1b ids.kv >bits.kv
	for method in quest fier; do
		local index=pages.kv
		[ $method = quest ] || index=bits.kv
		kv-decode -q -m "$m" --ids --ignore-eos -n 12 --retrieve "$method budget=100" $index >text
		diff ids.alone text
		run -0 kv-decode -q -m "$m" --ids --ignore-eos -n 12 --retrieve "$method budget=32" $index
	done
	kv-decode -q -m "$m" --ids --ignore-eos -n 12 --retrieve 'quest budget=100' --offload pages.kv >text
	diff ids.alone text
	kv-quantize --keys int8 --values int8 ids.kv >q8.kv
	run -0 kv-decode -q -m "$m" --ids --ignore-eos -n 12 q8.kv
	kv-prefill -q -m "$m" --ids --dtype f32 --store store -o /dev/null long.ids
	run -0 --separate-stderr kv-prefill -v -m "$m" --ids --dtype f32 --store store -o stored.kv long.ids
	[[ "$stderr" == *"256 of 300 tokens from store"* ]]
	kv-prefill -q -m "$m" --ids --dtype f32 -o long.kv long.ids
	kv-decode -q -m "$m" --ids --ignore-eos -n 12 long.kv >want
	kv-decode -q -m "$m" --ids --ignore-eos -n 12 stored.kv >text
	diff want text
	run -0 kv-diff ids.kv small.kv
}

@test "experts that are missing, damaged or of another shape, and a configuration without rotary scaling, are refused by name" {
	echo '1 2 3' >ids
	edit() { mxfp4 && "$PYTHON" "$ROOT/tests/bin/mxfp4experts.py" "$1" blocks; }
	local at=model.layers.1.mlp.experts
	edit scale=255
	refused 3 "model.layers.0.mlp.experts.down_proj_scales: number 287 is a NaN" blocks
	edit without=$at.down_proj_scales
	refused 3 "$at.down_proj_blocks: no tensor $at.down_proj_scales" blocks
	edit without=$at.gate_up_proj_blocks
	refused 3 "no tensor $at.gate_up_proj or $at.gate_up_proj_blocks" blocks
	edit without=$at.gate_up_proj_bias
	refused 3 "no tensor $at.gate_up_proj_bias" blocks
	edit without=model.layers.2.self_attn.sinks
	refused 3 "no tensor model.layers.2.self_attn.sinks" blocks
	edit without=model.layers.2.mlp.router.bias
	refused 3 "no tensor model.layers.2.mlp.router.bias" blocks
	edit shape=$at.gate_up_proj_blocks
	refused 3 "$at.gate_up_proj_blocks: want [3][64][3][16], file has [3][63][3][16]" blocks
	mxfp4
	sed -i 's/"rope_scaling"/"_rope_scaling"/' elements/config.json
	refused 3 'no "rope_scaling", which a model of type gpt_oss has' elements
	mxfp4
	sed -i 's/"mxfp4"/"mxfp8"/' blocks/config.json
	refused 5 'quantised weights (mxfp8) are not supported' blocks
}
