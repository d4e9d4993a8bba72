#!/usr/bin/env bats
# bats file_tags=slow
# Mixtures of experts: what transformers computes of tiny ones, the forms in which files have experts, what a step reads, and refusals

load helper
load families

# changed NAME JSON: x <- the folder of a family with these keys of config.json
changed() {
	rm -rf x
	cp -r "$(family "$1")" x
	"$PYTHON" - "$2" <<-'END'
		import json, sys
		c = json.load(open("x/config.json"))
		c.update(json.loads(sys.argv[1]))
		json.dump(c, open("x/config.json", "w"))
	END
}

# stack FORM: the experts of x in other tensors
stack() {
	"$PYTHON" "$ROOT/tests/bin/stackexperts.py" "$1" x
}

# refused STATUS MESSAGE: x, in one line, without output
refused() {
	run "-$1" --separate-stderr kv-prefill -m x --ids -o x.kv ids
	# shellcheck disable=SC2154 # bats sets it
	[[ "$stderr" == *"$2"* ]] || { echo "$stderr"; return 1; }
	# shellcheck disable=SC2154 # bats sets it
	assert_equal "${#stderr_lines[@]}" 1
	[ ! -e x.kv ]
}

setup() {
	cd "$BATS_TEST_TMPDIR" || exit 1
}

@test "Mixtral, with full attention and a window, is what transformers computes" {
	recorded mixtral mixtral-window
}

@test "Qwen's mixtures, with layers that have none and with an expert for all rows, are what transformers computes" {
	recorded qwen2_moe qwen2_moe-layers qwen3_moe qwen3_moe-layers
}

@test "OLMoE and Granite's mixtures, whose experts are in one tensor, are what transformers computes" {
	recorded olmoe granitemoe granitemoeshared
}

@test "routers of the DeepSeek line, with groups, corrections and a scale, are what transformers computes" {
	recorded glm4_moe glm4_moe-normed dots1 ernie4_5_moe minimax_m2
}

@test "the router of Phi-3.5-MoE, whose weights are shares among near logits, is what transformers computes" {
	recorded phimoe phimoe-window
}

@test "with weights of bf16 a mixture is what transformers computes of them in f32" {
	recorded {mixtral,qwen2_moe,qwen3_moe,olmoe,granitemoe,glm4_moe,dots1,minimax_m2,phimoe}-bf16
}

@test "chunks, layer by layer and token by token give the same logits" {
	local m name pairs=()
	text_ids 40
	head -c $(($(cut -d ' ' -f 1-39 ids | wc -c) - 1)) ids >most && cut -d ' ' -f 40 ids >last
	for name in mixtral-window qwen2_moe-layers qwen3_moe olmoe granitemoeshared glm4_moe minimax_m2 phimoe-window; do
		m=$(family $name)
		kv-prefill -m "$m" --ids --dtype f32 -o $name.whole.kv ids
		kv-prefill -m "$m" --ids --dtype f32 --chunk 7 -o $name.chunks.kv ids
		kv-prefill -m "$m" --ids --dtype f32 --score recent --evict rate=1 -o $name.layers.kv ids
		kv-prefill -m "$m" --ids --dtype f32 -o most.kv most
		kv-prefill -m "$m" --ids --dtype f32 -r most.kv -o $name.two.kv last
		pairs+=("$name.whole.kv" "$name".{chunks,"$name".whole,layers,"$name".whole,two}.kv)
	done
	pairs=("${pairs[@]//.*.whole.kv/.whole.kv}")
	same_logits "${pairs[@]}"
}

@test "the numbers are the same to the byte with any number of threads, and in any form of the tensors" {
	local name form threads
	text_ids 90
	for name in qwen3_moe-bf16 qwen2_moe-layers mixtral; do
		kv-prefill -m "$(family $name)" --ids --dtype f32 --logits want -o /dev/null ids
		for threads in 1 2 5; do
			KV_THREADS=$threads kv-prefill -m "$(family $name)" --ids --dtype f32 --logits got -o /dev/null ids
			cmp want got
		done
		for form in stacked fused; do
			[ $name$form != mixtralfused ] || continue
			rm -rf x && cp -r "$(family $name)" x
			stack $form
			kv-prefill -m x --ids --dtype f32 --logits got -o /dev/null ids
			cmp want got
		done
	done
}

@test "several texts at once, a draft, rows in a file, a store and quantised rows give what one text alone gives" {
	local m name
	text_ids 300 && mv ids long.ids
	text_ids 60
	seq 40 90 >other && cut -d ' ' -f 1-30 ids >third
	for name in qwen3_moe qwen2_moe granitemoe; do
		m=$(family $name)
		for text in ids other third; do
			kv-prefill -q -m "$m" --ids --dtype f32 -w 8 --mass -o $text.kv $text
			kv-decode -q -m "$m" --ids --ignore-eos -n 12 -o one.$text.kv $text.kv >$text.alone
		done
		rm -rf all && mkdir all
		kv-decode -q -m "$m" --ids --ignore-eos -n 12 -o all {ids,other,third}.kv >together
		for text in ids other third; do cmp one.$text.kv all/$text.kv; done
		kv-score --method snapkv --kernel 3 ids.kv | kv-evict -q --rate 0.4 -o small.kv
		kv-decode -q -m "$m" --ids --ignore-eos -n 12 -o drafted.kv --draft small.kv ids.kv >drafted
		diff ids.alone drafted
		cmp one.ids.kv drafted.kv
		kv-prefill -q -m "$m" --ids --dtype f32 --score 'snapkv window=8 kernel=3' --evict rate=0.4 -o fused.kv ids
		[ "$(see fused.kv '[list(p) for l in s.layers for p in l.positions]')" = "$(see small.kv '[list(p) for l in s.layers for p in l.positions]')" ]
		kv-quantize --keys int8 --values int8 ids.kv >q8.kv
		run -0 kv-decode -q -m "$m" --ids --ignore-eos -n 12 q8.kv
		kv-index --pages ids.kv >pages.kv
		kv-decode -q -m "$m" --ids --ignore-eos -n 12 --retrieve 'quest budget=100' --offload pages.kv >offloaded
		diff ids.alone offloaded
		kv-prefill -q -m "$m" --ids --dtype f32 --store store -o /dev/null long.ids
		run -0 --separate-stderr kv-prefill -v -m "$m" --ids --dtype f32 --store store -o stored.kv long.ids
		[[ "$stderr" == *"256 of 300 tokens from store"* ]]
		kv-prefill -q -m "$m" --ids --dtype f32 -o long.kv long.ids
		same_logits long.kv stored.kv
		kv-merge -q -o merged.kv other.kv third.kv
		kv-recompute -q -m "$m" --rate 1 -o again.kv merged.kv
		cat other third >both
		kv-prefill -q -m "$m" --ids --dtype f32 -o both.kv both
		kv-decode -q -m "$m" --ids --ignore-eos -n 12 both.kv >want
		kv-decode -q -m "$m" --ids --ignore-eos -n 12 again.kv >got
		diff want got
	done
}

@test "a step reads the weights of the experts that it chose, and a prompt those that any row chose" {
	local m steps
	text_ids 40
	m=$(family mixtral-bf16)
	kv-prefill -q -m "$m" --ids -o full.kv ids
	for n in 3 8; do
		kv-decode -q -m "$m" --ids --ignore-eos -n $n --report $n.jsonl full.kv >/dev/null
	done
	steps=$("$PYTHON" -c 'import json
a, b = (json.loads(open(f).readlines()[-1])["traffic"]["weights"] for f in ("3.jsonl", "8.jsonl"))
print(b - a)')
	# in each of 4 layers q, k, v, o, the router, 2 of 5 experts; and the head
	assert_equal "$steps" $((5 * 2 * (4 * (40 * (72 + 36 + 36 + 72) + 5 * 40 + 2 * 3 * 24 * 40) + 1536 * 40)))
	kv-prefill -q -m "$m" --ids --chunk 40 --report prompt.jsonl -o x.kv ids
	assert_equal "$(tail -n 1 prompt.jsonl | json - 'o["traffic"]["weights"]')" \
	    $((2 * (4 * (40 * (72 + 36 + 36 + 72) + 5 * 40 + 5 * 3 * 24 * 40) + 1536 * 40)))
}

@test "what no mixture can be is refused by name" {
	echo '1 2 3' >ids
	changed mixtral '{"num_experts_per_tok": 6}'
	refused 3 'num_experts_per_tok is 6, of 5 experts'
	changed mixtral '{"num_local_experts": 4}'
	refused 3 'model.layers.0.block_sparse_moe.gate.weight: want [4][40], file has [5][40]'
	changed mixtral '{"num_local_experts": null, "num_experts_per_tok": null}'
	refused 3 'model.layers.0.block_sparse_moe.gate.weight: want [8][40], file has [5][40]'
	changed mixtral '{"num_local_experts": 5000}'
	refused 3 '"num_experts" is 5000, not 1 to 1024'
	changed glm4_moe '{"n_group": 4}'
	refused 3 '6 experts in 4 groups (n_group): not a whole number each'
	changed glm4_moe '{"topk_group": 1, "num_experts_per_tok": 3}'
	refused 3 'num_experts_per_tok is 3, of 2 experts in the groups that are looked at (topk_group)'
	changed glm4_moe '{"topk_method": "sinkhorn"}'
	refused 5 'topk_method "sinkhorn" is not supported'
	changed glm4_moe '{"scoring_func": "tanh"}'
	refused 5 'scoring_func "tanh" is not supported'
	changed glm4_moe '{"moe_layer_freq": [1, 1]}'
	refused 3 'moe_layer_freq: 2 layers, not 4'
	changed qwen3_moe '{"n_group": 2}'
	refused 5 'unknown key "n_group": it may change the arithmetic'
	changed qwen3_moe '{"mlp_only_layers": [1]}'
	refused 3 'no tensor model.layers.1.mlp.gate_proj.weight'
}

@test "a snapshot says how many experts there are, and another number of them is another model" {
	text_ids 20
	kv-prefill -q -m "$(family mixtral)" --ids -o full.kv ids
	run -0 kv-info full.kv
	assert_line --regexp '^experts +2 of 5 in a layer for each token$'
	[ "$(kv-info --json full.kv | json - 'o["model"]["experts"], o["model"]["experts_chosen"]')" = '(5, 2)' ]
	changed mixtral '{"num_experts_per_tok": 3}'
	run -4 --separate-stderr kv-decode -m x --ids -n 1 full.kv
	[[ "$stderr" == *"experts_chosen: 2 snapshot, 3 model"* ]]
}

@test "a tensor that is missing, and experts of several types, are refused by name" {
	echo '1 2 3' >ids
	changed qwen3_moe '{}'
	stack without=model.layers.2.mlp.experts.4.up_proj.weight
	refused 3 'no tensor model.layers.2.mlp.experts.4.up_proj.weight'
	changed granitemoe '{}'
	stack without=model.layers.2.block_sparse_moe.output_linear.weight
	refused 3 'no tensor model.layers.2.block_sparse_moe.output_linear.weight'
	changed qwen3_moe-bf16 '{}'
	stack wide=model.layers.1.mlp.experts.3.down_proj.weight
	refused 5 'model.layers.1.mlp.experts.3.down_proj.weight: of type f32, as other experts are not'
}

@test "layers behind the last one are left out where the configuration says that they guess further tokens" {
	echo '1 2 3' >ids
	changed dots1 '{"num_hidden_layers": 3}'
	refused 5 'not a tensor of this architecture'
	changed dots1 '{"num_hidden_layers": 3, "num_nextn_predict_layers": 1}'
	run -0 --separate-stderr kv-prefill -m x --ids -o x.kv ids
	[[ "$stderr" == *"ignored tensors that are not the model's"* ]]
}

@test "a router that is not finite: kv-prefill names layer, position and weight" {
	text_ids 20
	changed qwen3_moe '{}'
	"$PYTHON" "$ROOT/tests/bin/setweight.py" x/model.safetensors model.layers.1.mlp.gate.weight 41 nan
	refused 1 'are not finite (NaN or infinite): value 41 of model.layers.1.mlp.gate.weight is not'
	changed glm4_moe '{}'
	"$PYTHON" "$ROOT/tests/bin/setweight.py" x/model.safetensors model.layers.2.mlp.gate.e_score_correction_bias 4 nan
	refused 1 'are not finite (NaN or infinite): value 4 of model.layers.2.mlp.gate.e_score_correction_bias is not'
}

@test "gates and retrieval heads see the hidden states of a mixture" {
	local m
	m=$(family qwen3_moe)
	text_ids 50
	"$PYTHON" "$ROOT/tests/bin/mkgate.py" linear "$m" gate
	kv-prefill -q -m "$m" --ids --dtype f32 --gate gate -o whole.kv ids
	kv-prefill -q -m "$m" --ids --dtype f32 --gate gate --chunk 7 -o chunks.kv ids
	"$PYTHON" - "$FORMAT" <<-'END'
		import sys
		sys.path.insert(0, sys.argv[1])
		import kvread
		import numpy as np
		a, b = (kvread.read(open(f, "rb")) for f in ("whole.kv", "chunks.kv"))
		for x, y in zip(a.layers, b.layers, strict=True):
		    assert np.allclose(x.gate_scores.values, y.gate_scores.values, atol=1e-5)
	END
	kv-score --method kvzap whole.kv | kv-evict -q --rate 0.5 -o small.kv
	run -0 kv-decode -q -m "$m" --ids --ignore-eos -n 4 small.kv
	"$PYTHON" "$ROOT/tests/bin/mkhead.py" head --model "$m" --layers 0,1,3 --heads 6 --kv-heads 2
	kv-prefill -q -m "$m" --ids --retrieval-head head -o full.kv ids
	kv-decode -q -m "$m" --ids --ignore-eos -n 4 full.kv >all.ids
	kv-decode -q -m "$m" --ids --ignore-eos -n 4 --retrieve 'specontext head=head budget=100' full.kv >head.ids
	diff all.ids head.ids
}

@test "an adapter may have a LoRA of attention beside a mixture, and none of experts" {
	local m
	m=$(family qwen3_moe)
	text_ids 30
	kv-prefill -q -m "$m" --ids -o full.kv ids
	"$PYTHON" "$ROOT/tests/bin/mkadapter.py" good --model "$m" --modules q_proj,k_proj,v_proj,o_proj
	run -0 kv-observe -q -m "$m" --lookahead good -o x.kv full.kv
	"$PYTHON" "$ROOT/tests/bin/mkadapter.py" bad --model "$m" --modules q_proj,up_proj
	run -5 --separate-stderr kv-observe -q -m "$m" --lookahead bad -o y.kv full.kv
	[[ "$stderr" == *"target_modules: gate_proj, up_proj and down_proj are not supported for a mixture of experts (qwen3_moe)"* ]]
	[ ! -e y.kv ]
}
