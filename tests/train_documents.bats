#!/usr/bin/env bats
# bats file_tags=slow,nosan
# train/: learned rows behind documents that nothing is asked about, on the demo model; budgets of KV heads
#
# Needs PyTorch and transformers: TRAIN_PYTHON=/folder/of/venv/bin/python, or python3. Skipped without them.

load helper

data() {
	"$TRAIN_PYTHON" "$ROOT/train/lookahead_data.py" "$DEMO" --recipe demo "$@" 2>/dev/null
}

lookahead() {
	"$TRAIN_PYTHON" "$ROOT/train/lookahead.py" "$@"
}

budgets() {
	"$TRAIN_PYTHON" "$ROOT/train/mean_budgets.py" "$@"
}

# short OUT OPTION ...: a run that tests interrupt or change
short() {
	lookahead "$DEMO" --data demo.jsonl --out "$1" --steps 4 --batch 3 --every 2 --heldout 1 --lr 5e-3 --save-every 1 "${@:2}"
}

setup_file() {
	look_for_torch || return 0
	export KV_DEVICE=cpu
	cd "$BATS_FILE_TMPDIR" || exit 1
	data --target kvzip --groups 24 --out demo.jsonl
	lookahead "$DEMO" --data demo.jsonl --out run --steps 16 --batch 4 --every 16 --heldout 2 --lr 5e-3 >run.log
	# only group 20 is held out
	{ head -n 1 demo.jsonl; grep -v '"group": 0,' demo.jsonl | tail -n +2; } >one.jsonl
	lookahead "$DEMO" --data one.jsonl --out start --steps 1 --power 0.7 --rate 0.2 --every 1 --stop-at 1 >start.log
	lookahead --export start/checkpoint.pt --out adapter --export-dtype f32 >adapter.log
}

setup() {
	[ -z "$WHY_NOT" ] || skip "$TRAIN_PYTHON: $WHY_NOT"
	cd "$BATS_FILE_TMPDIR" || exit 1
}

# curve STEP COLUMN RUN: what the curve says, the column by its number
curve() {
	awk -F '\t' -v step="$1" -v column="$2" '$1 == step { print $column }' "$3/curve.tsv"
}

# group NUMBER EXPRESSION: prints a Python expression over `o`, a line of the data
group() {
	grep "\"group\": $1," demo.jsonl >line.json
	json line.json "$2"
}

@test "a document of the data has the snapshot that kv-prefill, kv-observe and kv-score make of it, and no question" {
	run group 3 '(o["scored"], "questions" in o, o["split"])'
	assert_output "('demo.jsonl.scored/3.kv', False, 'train')"
	group 3 '"\n".join(map(str, o["prefix"]))' >3.ids
	kv-prefill -m "$DEMO" --ids 3.ids | kv-observe -m "$DEMO" --repeat-context | kv-score --method kvzip -o 3.kv
	agree 3.kv demo.jsonl.scored/3.kv
	assert_equal "$(sha256sum <demo.jsonl.scored/3.kv)" "$(group 3 'o["sha256"]')  -"
	data --target kvzip-plus --groups 1 --first 3 --out plus.jsonl
	kv-prefill -m "$DEMO" --ids 3.ids | kv-observe -m "$DEMO" --repeat-context --value-norms | kv-score --method kvzip -o plus.kv
	agree plus.kv plus.jsonl.scored/3.kv
	run ! agree plus.kv 3.kv
}

# agree A B: the same rows and scores
agree() {
	"$PYTHON" - "$FORMAT" "$@" <<-'END'
		import sys
		sys.path.insert(0, sys.argv[1])
		import kvread
		a, b = [[(bytes(layer.keys), [list(one) for one in layer.scores.values]) for layer in kvread.read(open(path, "rb")).layers]
		        for path in sys.argv[2:]]
		sys.exit(a != b)
	END
}

@test "a short training brings learned rows nearer to KVzip's scores on documents that they have not seen" {
	less "$(curve 16 4 run)" "$(awk -v a="$(curve 0 4 run)" 'BEGIN { print a * 0.7 }')"
	less "$(curve 0 6 run)" "$(curve 16 6 run)"
}

@test "loss and recall of a document are those of kv-score's scores with the exported adapter" {
	kv-observe -m "$DEMO" --lookahead adapter demo.jsonl.scored/20.kv | kv-score --method lookahead --kernel 1 -o looked.kv
	read -r -a plain < <("$PYTHON" "$ORACLE/lookahead_documents.py" demo.jsonl.scored/20.kv looked.kv 0.7 0.2 0.05 0.1 0.2)
	read -r -a said < <(awk -F '\t' '$1 == 1 { print $4, $5, $6, $7 }' start/curve.tsv)
	echo "${plain[*]} / ${said[*]}"
	# the programs have activations in bf16
	awk -v a="${plain[*]}" -v b="${said[*]}" 'BEGIN { split(a, x); split(b, y)
		if (!(y[1] > 0.05)) exit 1
		if ((x[1] / y[1] - 1)^2 > 1e-4) exit 1
		for (i = 3; i <= 5; i++) if ((x[i] - y[i - 1])^2 > 1e-4) exit 1 }'
}

@test "documents side by side have the losses, gradients and recalls that each has alone" {
	"$TRAIN_PYTHON" - "$ROOT/train" "$DEMO" <<-'END'
		import sys, torch
		sys.path.insert(0, sys.argv[1])
		from lookahead_files import load_data
		from lookahead_model import Adapter, FrozenModel
		from lookahead_rows import Documents
		model = FrozenModel.load(sys.argv[2])
		groups = load_data(["demo.jsonl"], sys.argv[2], model.config.vocab_size)[:3]
		assert len({len(group["prefix"]) for group in groups}) == 3
		torch.manual_seed(1)
		adapter, found = Adapter(model, 4, 2), []
		for parts in ([groups], [[group] for group in groups]):
		    losses, recalls = [], []
		    for part in parts:
		        documents = Documents(model, part)
		        guess = documents.guess(adapter)
		        losses.append(documents.divergence(guess, 0.5, 0.1))
		        recalls += documents.recall(guess, (0.05, 0.2))
		    adapter.zero_grad()
		    torch.cat(losses).sum().backward()
		    found.append((torch.cat(losses).detach(), adapter.P.grad.clone(), recalls))
		(a, p, r), (b, q, s) = found
		assert r == s and torch.allclose(a, b, rtol=1e-5) and p.abs().max() > 0
		assert torch.allclose(p, q, rtol=1e-3, atol=1e-3 * p.abs().max().item())
	END
}

@test "a run over documents that is interrupted and resumed gives the bytes of one that is not" {
	short whole >whole.log
	short parts --stop-at 3 >/dev/null
	short parts --resume >/dev/null
	cmp whole/curve.tsv parts/curve.tsv
	assert_equal "$(cut -f 2 whole/curve.tsv | tr '\n' ' ')" 'samples 0 6 12 '
	run --separate-stderr short whole --resume --rate 0.2
	assert_equal "$status" 2
	assert_equal "$stderr" 'lookahead.py: the checkpoint has rate 0.1, not 0.2'
}

@test "questions and documents are trained with in one run" {
	data --groups 3 --first 30 --questions 2 --out asked.jsonl
	lookahead "$DEMO" --data asked.jsonl demo.jsonl --out both --steps 8 --batch 3 --every 8 --heldout 1 >both.log
	less "$(curve 8 4 both)" "$(curve 0 4 both)"
}

@test "a snapshot that is missing, or not the one that the data was made with, is refused with its name" {
	cp -r demo.jsonl.scored broken.jsonl.scored
	sed 's/demo\.jsonl\.scored/broken.jsonl.scored/' demo.jsonl >broken.jsonl
	cp broken.jsonl.scored/1.kv broken.jsonl.scored/20.kv
	run --separate-stderr lookahead "$DEMO" --data broken.jsonl --out never --steps 1
	assert_equal "$status" 1
	assert_equal "$stderr" 'lookahead.py: broken.jsonl.scored/20.kv: not the file that the data set was made with'
	rm broken.jsonl.scored/0.kv
	run --separate-stderr lookahead "$DEMO" --data broken.jsonl --out never --steps 1
	assert_equal "$status" 1
	assert_equal "$stderr" 'lookahead.py: broken.jsonl.scored/0.kv: No such file or directory'
	sed 's/"sha256": "[^"]*"/"sha256": 5/' demo.jsonl >broken.jsonl
	run --separate-stderr lookahead "$DEMO" --data broken.jsonl --out never --steps 1
	assert_equal "$status" 1
	assert_equal "$stderr" 'lookahead.py: broken.jsonl:2: sha256 is no text'
	run --separate-stderr "$TRAIN_PYTHON" "$ROOT/train/lookahead_evaluate.py" "$DEMO" --data demo.jsonl --adapter adapter --out never
	assert_equal "$status" 2
	assert_equal "$stderr" 'lookahead_evaluate.py: the data has documents that nothing is asked about: no answer to compare'
	[ ! -e never/checkpoint.pt ]
	run lookahead "$DEMO" --data demo.jsonl --out nowhere --steps 1 --rate 1
	assert_equal "$status" 2
	[ ! -e nowhere ]
}

@test "a real document has text and facts as a chat or as plain text, ends without a question, and is the same each time" {
	"$TRAIN_PYTHON" - "$ROOT/train" "$DEMO" <<-'END'
		import sys
		sys.path.insert(0, sys.argv[1])
		from transformers import AutoTokenizer
		from lookahead_prompts import LONGEST, document_group
		from lookahead_texts import Source
		tokenizer = AutoTokenizer.from_pretrained(sys.argv[2])
		paragraphs = [f"The old farmer carried letter {n} to the market of the town. " * 4 for n in range(40)]
		sources = [Source("a", "folder", paragraphs, "00000000")]
		groups = [document_group(1, number, tokenizer, sources) for number in range(40)]
		assert [g.prefix for g in groups] == [document_group(1, n, tokenizer, sources).prefix for n in range(40)]
		assert len({tuple(g.prefix) for g in groups}) == 40
		assert all(len(g.prefix) <= LONGEST and not g.questions for g in groups)
		texts = [tokenizer.decode(g.prefix) for g in groups]
		assert all("old farmer" in text for text in texts)
		plain = sum(all(s.startswith("The old farmer") for s in text.split("\n\n")[1:-1]) for text in texts)
		assert 0 < plain < 40
	END
}

@test "mean budgets are the shares that kv-evict --policy global keeps, and kv-evict --budgets takes them" {
	for number in 1 2; do
		kv-evict -q --policy global --rate 0.2 demo.jsonl.scored/$number.kv | kv-info --positions - |
			awk '{ n[$1 "\t" $2] = NF - 2 } END { for (i in n) print i "\t" n[i] }' | sort >kept.$number
	done
	budgets --rate 0.2 --out budgets.tsv demo.jsonl.scored/[12].kv
	for number in 1 2; do group $number 'len(o["prefix"])'; done >lengths
	paste kept.1 kept.2 | awk -v a="$(sed -n 1p lengths)" -v b="$(sed -n 2p lengths)" '{ print $1, $2, ($3 / a + $6 / b) / 2 }' >wanted
	awk '{ for (g = 1; g <= NF; g++) print NR - 1, g - 1, $g }' budgets.tsv | sort | paste -d ' ' wanted - |
		awk '{ n++; if ($1 != $4 || $2 != $5 || ($3 - $6)^2 > 1e-4) bad = 1 } END { exit bad || n != 8 }'
	kv-evict -q --budgets budgets.tsv demo.jsonl.scored/1.kv -o small.kv
	run ! budgets --rate 0.2 --out no.tsv "$ROOT/README.md"
	run ! budgets --rate 1.2 --out no.tsv small.kv
	kv-prefill -m "$DEMO" -p 'a text' -o plain.kv
	run --separate-stderr budgets --rate 0.2 --out no.tsv plain.kv
	assert_equal "$status" 1
	assert_equal "$stderr" 'mean_budgets.py: plain.kv: there are no scores: kv-score makes them'
	[ ! -e no.tsv ]
}
