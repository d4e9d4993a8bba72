#!/usr/bin/env bats
# bats file_tags=slow,nosan
# train/retrieval_head.py: a retrieval head learns from the model's own attention
#
# TRAIN_PYTHON names a Python with torch and transformers (python3); without them all is skipped.

load helper

setup_file() {
	look_for_torch || return 0
	cd "$BATS_FILE_TMPDIR" || exit 1
	train trained --count 6 --steps 60 --judge 2
	train alone --count 2 --steps 2 --judge 0 --alone
}

setup() {
	[ -z "$WHY_NOT" ] || skip "$TRAIN_PYTHON: $WHY_NOT"
	cd "$BATS_FILE_TMPDIR" || exit 1
}

OPTIONS=(--recipe demo --dtype float32 --store float32 --questions 4 --asks 64)

# train OUT OPTION ...: of the demo model
train() {
	"$TRAIN_PYTHON" "$ROOT/train/retrieval_head.py" "$DEMO" "${OPTIONS[@]}" --out "$@" >"$1.said" 2>"$1.err"
}

@test "what is exported has the logits of the head that was trained, by the formulas of kv-head(5)" {
	run -0 "$TRAIN_PYTHON" - "$ROOT" "$DEMO" trained alone <<-'END'
		import sys
		sys.path[:0] = [sys.argv[1] + "/train", sys.argv[1] + "/tests/oracle"]
		import numpy, torch
		import draft_head, llama
		from lookahead_model import FrozenModel
		from retrieval_head_model import Head, watch
		ids = list(range(20, 60))
		model, plain = FrozenModel.load(sys.argv[2]), llama.Llama(sys.argv[2])
		plain.forward(ids)
		for folder in sys.argv[3:]:
		    want = draft_head.Head(folder, plain)
		    layers = want.layers if want.features else [0, 2, 3]
		    head = Head(model, layers, not want.features)
		    names = {"norm": "midlayer.input_layernorm", "q": "midlayer.self_attn.q_proj", "k": "midlayer.self_attn.k_proj",
		             "hidden_norm": "midlayer.hidden_norm", "fc": "fc"}
		    head.load_state_dict({n: torch.tensor(want.w[names[n] + ".weight"]).float() for n, _ in head.named_parameters()})
		    asks = torch.tensor([5, 39])
		    streams = watch(model, ids, asks, layers, lambda *_: None)
		    got = head.logits(model.embed(torch.tensor(ids)).float(), streams.float(), asks).detach().numpy()
		    rows, before = [], None
		    for p, token in enumerate(ids):
		        rows.append(want.row(token, p, before))
		        before = want.feature([x[p] for x in plain.streams])
		    keys, group = numpy.array([k for _, k in rows]), want.H // want.G
		    for i, p in enumerate(asks.tolist()):
		        mine = numpy.array([keys[:, h // group] @ rows[p][0][h] for h in range(want.H)]) / want.E ** 0.5
		        assert abs(mine - got[:, i]).max() < 2e-4 * abs(mine).max(), (folder, p, abs(mine - got[:, i]).max())
	END
}

@test "training lowers the loss, and the head finds more than the last rows do" {
	awk -F '\t' 'NR == 2 { first = $2 } END { exit !($2 < 0.8 * first) }' trained/curve.tsv
	awk -F '\t' '$2 == 128 && $3 == "all" { n[$1]++; mass[$1] += $7 } END {
		exit !(mass["head+near"] / n["head+near"] > mass["recent+near"] / n["recent+near"] &&
		    mass["head+near"] / n["head+near"] <= mass["teacher"] / n["teacher"] && mass["random"] / n["random"] < 0.6) }' trained/recall.tsv
}

@test "the programs take what is exported, and refuse it for another model" {
	kv-prefill -m "$DEMO" --retrieval-head trained -o a.kv "$ROOT/examples/prompts/harbour.txt"
	kv-decode -m "$DEMO" --retrieve 'specontext budget=64 head=trained' -n 4 a.kv
	kv-prefill -m "$DEMO" --retrieval-head alone -o a.kv "$ROOT/examples/prompts/harbour.txt"
	random_model other --heads 4 --kv-heads 2 --head-dim 32 --hidden 128 --layers 4
	run -4 kv-prefill -m other --retrieval-head trained -o a.kv "$ROOT/examples/prompts/harbour.txt"
}

@test "with latent attention a head has a query head for each of the model, and chooses as the formulas say" {
	"$TRAIN_PYTHON" - <<-'END' 2>latent.err
		import torch, transformers
		torch.manual_seed(3)
		transformers.DeepseekV2ForCausalLM(transformers.DeepseekV2Config(
		    vocab_size=1536, hidden_size=48, intermediate_size=56, num_hidden_layers=4, num_attention_heads=3, num_key_value_heads=3,
		    q_lora_rank=72, kv_lora_rank=48, qk_nope_head_dim=24, qk_rope_head_dim=16, v_head_dim=40, first_k_dense_replace=4,
		    n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=8, max_position_embeddings=4096, initializer_range=0.1,
		    tie_word_embeddings=False)).save_pretrained("latent")
	END
	cp "$DEMO"/tokenizer*.json latent
	"$TRAIN_PYTHON" "$ROOT/train/retrieval_head.py" latent "${OPTIONS[@]}" --count 2 --steps 40 --judge 0 --out latent.head 2>latent.err
	awk 'NR == 2 { first = $2 } END { exit !($2 < 0.8 * first) }' latent.head/curve.tsv
	seq 5 3 360 >ids
	kv-prefill -q -m latent --retrieval-head latent.head --ids --dtype f32 -o a.kv ids
	kv-decode -q -m latent --retrieve 'specontext head=latent.head budget=20' --ids --ignore-eos -n 9 -o b.kv --stats stats.json a.kv
	assert_equal "$(json stats.json 'o["per"]')" query-head
	run -0 "$PYTHON" "$ORACLE/latent_retrieve.py" <<<'latent latent.head a.kv b.kv stats.json'
	# what the head learns from: the model's streams, and the attention of each of its query heads
	run -0 "$TRAIN_PYTHON" - "$ROOT" <<-'END'
		import sys
		sys.path[:0] = [sys.argv[1] + "/train", sys.argv[1] + "/tests/oracle"]
		import numpy, torch
		from latent_retrieve import Latent, softmax
		from retrieval_head_model import load_model, watch
		ids, asks, seen = list(range(20, 60)), [5, 39], []
		got = watch(load_model("latent", torch.float32), ids, torch.tensor(asks), [0, 2, 3], lambda _, weights: seen.append(weights.numpy()))
		plain = Latent("latent")
		want = plain.streams(ids)
		assert abs(numpy.hstack([want[l] for l in (0, 2, 3)]) - got.numpy()).max() < 1e-4
		for l in range(4):
		    q, rows = plain.project(l, want[l], numpy.arange(40))
		    for h in range(3):
		        logits = q[asks, h] @ plain.expand(l, rows, h)[0].T / 40 ** 0.5
		        logits[numpy.arange(40) > numpy.array(asks)[:, None]] = -numpy.inf
		        assert abs(softmax(logits) - seen[l][h]).max() < 1e-4
	END
}

@test "a run that is stopped, killed and resumed gives the bytes of one that is not" {
	SHORT=(--count 8 --steps 80 --every 7 --save-every 4 --judge 1)
	# ended SIGNAL FILE TEXT OPTION ...: a run in parts gets the signal when the file has a line that begins so
	ended() {
		rm -f parts.err
		"$TRAIN_PYTHON" "$ROOT/train/retrieval_head.py" "$DEMO" "${OPTIONS[@]}" "${SHORT[@]}" --out parts "${@:4}" 2>parts.err 3>&- &
		until grep -qs "^$3" "$2"; do
			kill -0 $! || fail "it has ended: $(cat parts.err)"
			sleep 0.02
		done
		kill "-$1" $!
		status=0
		wait $! || status=$?
		assert_equal "$status" $((128 + $(kill -l "$1")))
		[ ! -e parts/model.safetensors ]
	}
	train whole "${SHORT[@]}"
	# behind a text, then behind a step; who is killed goes on from what there is
	ended KILL parts/lessons/1.pt PK
	[ ! -e parts/lessons/8.pt ]
	ended TERM parts/lessons/3.pt PK --resume
	train parts "${SHORT[@]}" --resume --stop-at 5
	assert_equal "$(tail -n 1 parts.err)" 'retrieval_head.py: stopped behind step 5 of 80; --resume goes on'
	[ -e parts/lessons/8.pt ] && [ ! -e parts/model.safetensors ]
	ended TERM parts.err step --resume
	ended KILL parts.err step --resume
	train parts "${SHORT[@]}" --resume
	[ ! -e parts/lessons ]
	for file in model.safetensors config.json curve.tsv recall.tsv; do
		cmp whole/$file parts/$file
	done
	# what was whole already is written again
	rm whole/model.safetensors
	train whole "${SHORT[@]}" --resume
	cmp whole/model.safetensors parts/model.safetensors
}

@test "a checkpoint is not overwritten, nor continued with other options or texts, nor when it is broken" {
	refused() {
		run -"$1" train kept --count 2 --steps 2 --judge 0 "${@:3}"
		run -0 tail -n 1 kept.err
		assert_output --partial "$2"
	}
	refused 1 'kept/checkpoint.pt: there is no checkpoint' --resume
	# what an older run has left is not taken for this one's
	mkdir -p kept/lessons
	echo nonsense >kept/lessons/1.pt
	train kept --count 2 --steps 2 --judge 0
	refused 2 'kept/checkpoint.pt is there: --resume goes on from it'
	refused 2 'kept/checkpoint.pt was made with lr = 0.001, not 0.01' --resume --lr 0.01
	refused 2 'kept/checkpoint.pt was made with layers = [0, 2, 3], not [0, 1, 2]' --resume --layers 0,1,2
	refused 2 'kept/checkpoint.pt was made with texts = ' --resume --count 3
	truncate -s 1000 kept/checkpoint.pt
	refused 1 'kept/checkpoint.pt: no checkpoint' --resume
}

@test "the same options give the same bytes, and what cannot be is refused" {
	train again --count 2 --steps 2 --judge 0 --alone
	cmp alone/model.safetensors again/model.safetensors
	train other --count 2 --steps 2 --judge 0 --alone --seed 2
	run -1 cmp -s alone/model.safetensors other/model.safetensors
	run -2 train bad --layers 1,1,2
	run -2 train bad --count 0
	run -1 "$TRAIN_PYTHON" "$ROOT/train/retrieval_head.py" none --out bad
}
