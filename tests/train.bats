#!/usr/bin/env bats
# bats file_tags=slow,nosan
# train/: learned rows for kv-score, on the demo model and on tiny random ones
#
# Needs PyTorch and transformers: TRAIN_PYTHON=/folder/of/venv/bin/python, or python3. Skipped without them.

load helper

TRAIN=$ROOT/train
: "${TRAIN_PYTHON:=python3}"

# why there is nothing to run the tests with, or nothing
missing() {
	cannot_import 'torch, transformers, safetensors, xxhash'
}

data() {
	"$TRAIN_PYTHON" "$TRAIN/lookahead_data.py" "$@" 2>/dev/null
}

lookahead() {
	"$TRAIN_PYTHON" "$TRAIN/lookahead.py" "$@"
}

setup_file() {
	export HF_HUB_OFFLINE=1
	cd "$BATS_FILE_TMPDIR" || exit 1
	[ -z "$(missing)" ] || return 0
	data "$DEMO" --recipe demo --groups 24 --questions 3 --out demo.jsonl
	lookahead "$DEMO" --data demo.jsonl --out run --steps 16 --batch 3 --every 4 --heldout 2 \
	    --accuracy 1 --lr 5e-3 >run.log
	lookahead --export run/checkpoint.pt --out adapter >/dev/null
	lookahead --export run/checkpoint.pt --out adapter32 --export-dtype f32 >/dev/null
}

setup() {
	cd "$BATS_FILE_TMPDIR" || exit 1
	[ -z "$(missing)" ] || skip "$TRAIN_PYTHON: $(missing)"
}

# curve STEP COLUMN: what the curve says, the column by its number
curve() {
	awk -F '\t' -v step="$1" -v column="$2" '$1 == step { print $column }' "${3:-run}/curve.tsv"
}

# short OUT OPTION ...: the run that is interrupted in the tests
short() {
	lookahead "$DEMO" --data demo.jsonl --out "$1" --steps 6 --batch 4 --every 2 --heldout 1 --lr 5e-3 --save-every 1 "${@:2}"
}

@test "a short training on the demo model halves the loss on documents that it has not seen" {
	less "$(curve 16 4)" "$(awk -v a="$(curve 0 4)" 'BEGIN { print a / 2 }')"
	less "$(curve 0 6)" "$(curve 16 6)"
}

@test "the curve has a line for each evaluation, with losses, recalls and accuracies" {
	run cut -f 1 run/curve.tsv
	assert_output $'step\n0\n4\n8\n12\n16'
	run head -n 1 run/curve.tsv
	assert_output $'step\tsamples\tloss\theldout_loss\trecall_0.05\trecall_0.1\trecall_0.2\taccuracy_0.05\taccuracy_0.1\taccuracy_0.2'
	run awk -F '\t' 'NR > 1 { for (i = 4; i <= 10; i++) if ($i !~ /^[0-9.]+$/ || (i > 4 && $i > 1)) print }' run/curve.tsv
	assert_output ''
}

@test "gradients of the loss are those of finite differences" {
	random_model tiny --dtype f32 --std 0.2 --layers 3
	errors_below 1e-5 "$TRAIN_PYTHON" "$ORACLE/lookahead_gradient.py" tiny
	# P, two matrices of each of 7 linears in 2 layers, of 2 in the last
	[ "$(wc -l <"$BATS_TEST_TMPDIR/errors")" -eq $((1 + 2 * (7 * 2 + 2))) ]
}

@test "true and guessed scores, and the prompt's keys with the adapter, are those of a plain computation" {
	errors_below 1e-3 "$TRAIN_PYTHON" "$ORACLE/lookahead_naive.py" "$DEMO" adapter32 demo.jsonl
	run awk '$1 != "keys" && $2 > 1e-5' "$BATS_TEST_TMPDIR/errors"
	assert_output ''
}

@test "kv-observe runs learned rows as the training does: the same scores to 1e-4" {
	kv-tokenize -m "$DEMO" "$ROOT/examples/prompts/harbour.txt" >ids
	kv-prefill -m "$DEMO" --dtype f32 --ids ids | kv-observe -m "$DEMO" --lookahead adapter32 --accumulate sum -o paid.kv
	"$PYTHON" - "$FORMAT" <<-'END'
		import sys
		import numpy
		sys.path.insert(0, sys.argv[1])
		import kvread
		snapshot = kvread.read(open("paid.kv", "rb"))
		numpy.save("paid.npy", [[row for head in layer.paid.values for row in head] for layer in snapshot.layers])
	END
	errors_below 1e-4 "$TRAIN_PYTHON" "$ORACLE/lookahead_trained.py" "$DEMO" adapter32 ids paid.npy
	run -0 cat "$BATS_TEST_TMPDIR/errors"
	assert_output --partial scores
}

@test "answers in the data are those of generate(), token for token" {
	"$TRAIN_PYTHON" - "$DEMO" demo.jsonl <<-'END'
		import json, sys, torch
		from transformers import AutoModelForCausalLM
		model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32)
		for line in open(sys.argv[2]).read().splitlines()[1:6]:
		    group = json.loads(line)
		    for question in group["questions"]:
		        prompt = torch.tensor([group["prefix"] + question["tail"]])
		        count = len(question["response"])
		        said = model.generate(prompt, max_new_tokens=count, do_sample=False)
		        assert said[0, prompt.shape[1]:].tolist() == question["response"]
	END
}

@test "a run that is interrupted and resumed gives the bytes of one that is not" {
	short whole >whole.log
	short parts --stop-at 3 >/dev/null
	short parts --resume --stop-at 5 >/dev/null
	short parts --resume >/dev/null
	cmp whole/curve.tsv parts/curve.tsv
	for run in whole parts; do lookahead --export $run/checkpoint.pt --out $run/adapter --export-dtype f32 >/dev/null; done
	cmp whole/adapter/adapter_model.safetensors parts/adapter/adapter_model.safetensors
}

@test "SIGTERM ends a run after the step, with a checkpoint to go on from" {
	[ -d whole ] || short whole >whole.log
	short stopped >stopped.log &
	pid=$!
	for _ in $(seq 600); do
		[ ! -e stopped/checkpoint.pt ] || break
		sleep 0.1
	done
	kill -TERM "$pid"
	status=0
	wait "$pid" || status=$?
	# all steps may have been taken when the signal came
	[ "$status" -eq 143 ] || grep -q 'step 6/6' stopped.log
	short stopped --resume >/dev/null
	cmp whole/curve.tsv stopped/curve.tsv
}

@test "a finished run is not begun anew, and a checkpoint of other settings is refused" {
	run --separate-stderr lookahead "$DEMO" --data demo.jsonl --out run --steps 16 --batch 3
	assert_equal "$status" 2
	assert_equal "$stderr" 'lookahead.py: run/checkpoint.pt is there: --resume goes on from it'
	run --separate-stderr lookahead "$DEMO" --data demo.jsonl --out run --steps 16 --batch 5 --resume
	assert_equal "$status" 2
	assert_equal "$stderr" 'lookahead.py: the checkpoint has batch 3, not 5'
	head -c 1000 run/checkpoint.pt >cut.pt
	run --separate-stderr lookahead --export cut.pt --out nowhere
	assert_equal "$status" 1
	[ ! -e nowhere ]
}

@test "the same options make the same data" {
	data "$DEMO" --recipe demo --groups 3 --first 4 --questions 3 --out part.jsonl
	cmp <(tail -n +2 part.jsonl) <(sed -n '6,8p' demo.jsonl)
}

@test "data of a folder of texts: held-out groups have texts that no other group has" {
	mkdir texts
	for name in $(seq 5); do
		for line in $(seq 9); do
			printf 'The old farmer carried letter %s to the market of town %s. ' {1..3}"$line" "$name"{1..3}
			printf '\n\n'
		done >"texts/$name.txt"
	done
	data "$DEMO" --texts texts --groups 21 --questions 3 --out own.jsonl
	run "$TRAIN_PYTHON" - <<-'END'
		import json
		groups = [json.loads(line) for line in open("own.jsonl").read().splitlines()[1:]]
		texts = {split: {name for group in groups if group["split"] == split for name in group["source"]}
		         for split in ("train", "heldout")}
		assert texts["train"] and texts["heldout"] and not texts["train"] & texts["heldout"]
		assert all(group["prefix"][0] == 1533 for group in groups)
		made = json.load(open("own.jsonl.sources"))
		assert made["files"].keys() == texts["train"] | texts["heldout"]
		assert made["samples"] == sum(len(group["questions"]) for group in groups)
	END
	assert_output ''
}

@test "no licence gets into the data, and no wording of RULER's needles" {
	run "$TRAIN_PYTHON" - "$TRAIN" <<-'END'
		import random, re, sys
		sys.path.insert(0, sys.argv[1])
		from lookahead_facts import draw_fact
		from lookahead_texts import LICENCE_FILES, is_prose
		prose = "The program reads a file and writes what it has found, line after line. " * 3
		assert is_prose(prose)
		for word in ("the GNU General Public License", "any warranty", "Copyright 2001", "redistribute it"):
		    assert not is_prose(prose + f"Read about {word} here.")
		for path in ("common-licenses/GPL-3", "doc/a/copyright", "doc/a/COPYING.gz", "doc/a/LICENCE.txt"):
		    assert LICENCE_FILES.search("/usr/share/" + path)
		for seed in range(2000):
		    fact = draw_fact(random.Random(seed))
		    words = " ".join(fact.text + [part for asked in fact.asked for part in asked])
		    assert not re.search("magic|pass ?key|uuid|special|vault", words, re.I), words
		    for _, _, answer in fact.asked:
		        assert any(answer in text for text in fact.text)
	END
	assert_output ''
	assert_equal "$status" 0
}

@test "broken lines of data are refused with file and line" {
	sed '3s/"split": "train"/"split": "test"/' demo.jsonl >broken.jsonl
	run --separate-stderr lookahead "$DEMO" --data broken.jsonl --out never --steps 1
	assert_equal "$status" 1
	assert_equal "$stderr" 'lookahead.py: broken.jsonl:3: split is neither train nor heldout'
	[ ! -e never ]
	# one process for many files: a start takes seconds
	run "$TRAIN_PYTHON" - "$TRAIN" "$DEMO" <<-'END'
		import json, sys
		sys.path.insert(0, sys.argv[1])
		from lookahead_files import load_data
		from failures import BrokenFile
		text = open("demo.jsonl").read()

		def edited(change):
		    lines = text.split("\n")
		    o = json.loads(lines[2])
		    lines[2] = json.dumps(change(o) or o)
		    return "\n".join(lines)

		changes = (
		    lambda o: o.update(prefix=[]),
		    lambda o: o["prefix"].__setitem__(4, 1536),
		    lambda o: o["questions"][1]["tail"].__setitem__(0, True),
		    lambda o: o["questions"][0].pop("response") and None,
		    lambda o: o.update(questions={}),
		    lambda o: 5)
		for broken in [edited(change) for change in changes] + [
		        text[:-9], text.replace('{"group": 4', '[{"group": 4'), text.split("\n", 1)[1], ""]:
		    open("broken.jsonl", "w").write(broken)
		    try:
		        load_data(["broken.jsonl"], sys.argv[2], 1536)
		        print("accepted")
		    except BrokenFile as problem:
		        print(str(problem)[:100].split(": Expecting")[0])
	END
	assert_output - <<-'END'
		broken.jsonl:3: prefix is not a list of ids
		broken.jsonl:3: prefix has 1536, which is no id of the vocabulary of 1536
		broken.jsonl:3: question 2: tail has true, which is no id of the vocabulary of 1536
		broken.jsonl:3: question 1: response is not a list of ids
		broken.jsonl:3: there are no questions
		broken.jsonl:3: not an object
		broken.jsonl:25: cut off in the middle of a line
		broken.jsonl:6: no JSON
		broken.jsonl:1: not the head of a data set
		broken.jsonl: empty
	END
}

@test "data and adapters of another model are refused" {
	random_model other --dtype f32 --layers 4 --hidden 128 --head-dim 32 --ffn 384
	run --separate-stderr lookahead other --data demo.jsonl --out never --steps 1
	assert_equal "$status" 2
	[[ $stderr == 'lookahead.py: demo.jsonl:1: made with another model (weights '* ]]
	sed 's/"tokenizer": "../"tokenizer": "xx/' demo.jsonl >broken.jsonl
	run --separate-stderr lookahead "$DEMO" --data broken.jsonl --out never --steps 1
	assert_equal "$status" 2
	assert_equal "$stderr" 'lookahead.py: broken.jsonl:1: made with another tokenizer'
	cp -r adapter32 foreign
	sed -i 's/"weights": "../"weights": "zz/' foreign/adapter_config.json
	run --separate-stderr lookahead "$DEMO" --data demo.jsonl --out never --steps 1 --start foreign
	assert_equal "$status" 2
	[[ $stderr == 'lookahead.py: foreign/adapter_config.json: an adapter of another model (weights zz'* ]]
	run --separate-stderr lookahead "$DEMO" --data demo.jsonl --out never --steps 1 --start adapter32 -n 16
	assert_equal "$status" 2
	assert_equal "$stderr" 'lookahead.py: adapter32 has tokens 32, not 16'
}

@test "a family of models that is not handled is refused by name" {
	random_model gpt --dtype f32
	sed -i 's/"model_type": "llama"/"model_type": "gemma"/; s/LlamaForCausalLM/GemmaForCausalLM/' gpt/config.json
	run --separate-stderr lookahead gpt --data demo.jsonl --out never --steps 1
	assert_equal "$status" 2
	[[ ${stderr##*$'\n'} == 'lookahead.py: models of the family gemma are not handled, only llama, mistral, qwen2, qwen3' ]]
}

@test "an adapter folder has the model's fingerprint, BF16 rows, and matrices that PEFT names" {
	run "$TRAIN_PYTHON" "$ORACLE/fingerprint.py" "$DEMO"
	fingerprint=$output
	run json adapter/adapter_config.json '(*o["lookahead"].values(), o["r"], o["lora_alpha"], o["peft_type"])'
	assert_output "(1, 32, '$fingerprint', 8, 32, 'LORA')"
	"$TRAIN_PYTHON" - <<-'END'
		import torch
		from safetensors.torch import load_file
		bf16, f32 = (load_file(f"{d}/adapter_model.safetensors") for d in ("adapter", "adapter32"))
		assert bf16.keys() == f32.keys() and len(bf16) == 1 + 2 * (3 * 7 + 2)
		for name, tensor in bf16.items():
		    assert tensor.dtype == torch.bfloat16 and torch.equal(tensor, f32[name].bfloat16())
		assert bf16["lookahead.embeddings"].shape == (32, 128)
		layer = "base_model.model.model.layers."
		assert bf16[layer + "0.mlp.down_proj.lora_A.weight"].shape == (8, 384)
		assert bf16[layer + "3.self_attn.k_proj.lora_B.weight"].shape == (64, 8)
		assert not any(name.startswith(layer + "3.self_attn.v_proj") for name in bf16)
	END
}

@test "learned tokens without LoRA, and LoRA of some matrices only, are trained and exported" {
	lookahead "$DEMO" --data demo.jsonl --out bare --steps 1 --batch 1 --heldout 0 --modules none -n 7 >/dev/null
	lookahead --export bare/checkpoint.pt --out bare/adapter >/dev/null
	run json bare/adapter/adapter_config.json '(o["r"], o["target_modules"], o["lookahead"]["tokens"])'
	assert_output '(0, [], 7)'
	lookahead "$DEMO" --data demo.jsonl --out some --steps 1 --batch 1 --heldout 0 --modules q_proj,v_proj --rank 2 >/dev/null
	lookahead --export some/checkpoint.pt --out some/adapter >/dev/null
	run json some/adapter/adapter_config.json '(o["r"], o["target_modules"])'
	assert_output "(2, ['q_proj', 'v_proj'])"
	run lookahead "$DEMO" --data demo.jsonl --out never --steps 1 --modules q_proj,w_proj
	assert_equal "$status" 2
	assert_line --partial 'w_proj is none of q_proj, k_proj, v_proj'
}

evaluate() {
	"$TRAIN_PYTHON" "$TRAIN/lookahead_evaluate.py" "$DEMO" --data demo.jsonl "$@"
}

# The demo model has 4 layers of 2 KV heads; demo.jsonl has 2 held-out groups of 3 questions.
@test "an adapter's evaluation has recalls of each head; with all rows kept nothing is lost" {
	evaluate --adapter adapter --out evaluated --rates 0.1 1 >report
	run awk -F '\t' 'NR > 1 { n[$1 " " $2]++; if ($2 == 1 && $5 != 1) print } END { for (i in n) print i, n[i] }' evaluated/recall.tsv
	assert_equal "$(sort <<<"$output")" "$(printf '%s\n' {lookahead,oracle,snapkv}\ {0.1,1}\ 8)"
	# NLL and right answers at rate 1 are those of the whole cache
	run awk -F '\t' '$2 == 1 { said[++n[$1]] = $1; loss[$1, n[$1]] = $5; right[$1, n[$1]] = $7 }
		END { for (r in n) for (i = 1; i <= n[r]; i++) if (loss[r, i] - loss["whole", i] > 2e-4 || right[r, i] != right["whole", i]) print r, i }' \
		evaluated/answers.tsv
	assert_output ''
	run grep -c ^whole evaluated/answers.tsv
	assert_output 6
	assert_equal "$(wc -l <report)" 7
}

@test "an evaluation without held-out documents, or with a share of nothing, is refused" {
	grep -v '"split": "heldout"' demo.jsonl >trained.jsonl
	run -2 "$TRAIN_PYTHON" "$TRAIN/lookahead_evaluate.py" "$DEMO" --data trained.jsonl --adapter adapter --out x
	assert_output 'lookahead_evaluate.py: the data has no held-out groups'
	run -2 evaluate --adapter adapter --out x --rates 0
	assert_output --partial 'argument --rates: 0 is not above 0 and at most 1'
	run -1 evaluate --adapter nowhere --out x
	assert_output --partial 'lookahead_evaluate.py: '
	[ ! -e x ]
}

@test "scores are those of transformers for every family that is taken" {
	errors_below 1e-4 "$TRAIN_PYTHON" "$ORACLE/lookahead_families.py"
	[ "$(wc -l <"$BATS_TEST_TMPDIR/errors")" -eq 8 ]
}
