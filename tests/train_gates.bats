#!/usr/bin/env bats
# bats file_tags=slow,nosan
# train/gates.py: gates learn KVzip+'s scores, and published ones are converted
#
# TRAIN_PYTHON names a Python with torch and transformers (python3); without them all is skipped.

load helper

setup_file() {
	look_for_torch || return 0
	export KV_DEVICE=cpu
	cd "$BATS_FILE_TMPDIR" || exit 1
	"$TRAIN_PYTHON" "$ORACLE/train_heads_texts.py" .
	head -c 900 documents/0090.txt | tr '\n' ' ' >unseen.txt
	rm documents/009?.txt
	train linear --kind linear --lessons lessons
	train mlp --kind mlp --lessons lessons
	seq 5 204 >200.ids
}

setup() {
	[ -z "$WHY_NOT" ] || skip "$TRAIN_PYTHON: $WHY_NOT"
	cd "$BATS_FILE_TMPDIR" || exit 1
}

gates() {
	"$TRAIN_PYTHON" "$ROOT/train/gates.py" "$@"
}

# train OUT OPTION ...: of the demo model
train() {
	gates "$DEMO" --texts documents --min-length 200 --max-length 300 --count 10 --positions 150 --judge 3 --hidden 24 \
	    --out "$@" 2>"$1.err"
}

oracle() {
	"$TRAIN_PYTHON" "$ORACLE/train_gates.py" "$@"
}

# cases COMMAND FILE ...: cases from standard input, their columns with | between
cases() {
	tr '|' '\t' >cases
	oracle "$1" cases "${@:2}"
	[ ! -e never ]
}

@test "a row's score is what the trained network gives to its hidden state" {
	for kind in linear mlp; do
		kv-prefill -m "$DEMO" --ids --dtype f32 --gate $kind -o $kind.kv 200.ids
		kv-score --method kvzap -o scored.kv $kind.kv
		oracle compare $kind scored.kv
	done
	run ! oracle compare linear scored.kv
}

@test "a published gate of Fast KVzip gives its own scores once it is converted, whichever NumPy wrote the file" {
	oracle published fast.pt
	gates --convert fast.pt --out fast
	kv-prefill -m "$DEMO" --ids --dtype f32 --gate fast -o fast.kv 200.ids
	kv-score --method fastkvzip -o scored.kv fast.kv
	oracle compare fast.pt scored.kv
	# NumPy 1 had another name for what makes an array, NumPy 2 writes the new one
	"$TRAIN_PYTHON" - <<-'END'
		import zipfile
		with zipfile.ZipFile("fast.pt") as old, zipfile.ZipFile("other.pt", "w") as new:
		    for item in old.infolist():
		        data = old.read(item)
		        if item.filename.endswith("data.pkl"):
		            names = b"cnumpy._core.multiarray\n_reconstruct\n", b"cnumpy.core.multiarray\n_reconstruct\n"
		            assert (names[0] in data) != (names[1] in data)
		            data = data.replace(*names) if names[0] in data else data.replace(*names[::-1])
		        new.writestr(item, data)
	END
	gates --convert other.pt --out other
	cmp fast/model.safetensors other/model.safetensors
}

@test "a lesson has a token's hidden state and the logarithm of KVzip+'s score, not below the floor, and no row that is always kept" {
	kv-prefill -m "$DEMO" --ids -o full.kv 200.ids
	kv-observe -m "$DEMO" --repeat-context --value-norms full.kv | kv-score --method kvzip -o plus.kv
	oracle lessons 200.ids plus.kv
	kv-observe -m "$DEMO" --repeat-context full.kv | kv-score --method kvzip -o other.kv
	run ! oracle lessons 200.ids other.kv
}

@test "ridge regression is least squares without a penalty of the bias; a seed is a network; equal values share a rank" {
	oracle fits
}

@test "gates explain the scores of texts that they have not seen better than the mean does" {
	for kind in linear mlp; do
		awk -F '\t' 'NR > 1 { n++; r2 += $3; rho += $4; low += $3 <= 0 }
			END { print n, low, r2 / n, rho / n; exit !(n == 8 && low == 0 && r2 / n > 0.4 && rho / n > 0.5) }' $kind/fit.tsv
		kv-prefill -m "$DEMO" --gate $kind -o full.kv unseen.txt
		kv-score --method kvzap -o gate.kv full.kv
		kv-observe -m "$DEMO" --repeat-context --value-norms full.kv | kv-score --method kvzip -o plus.kv
		oracle explains gate.kv plus.kv
	done
}

@test "the folder says which model it is for, and another model's gate is refused" {
	assert_equal "$(json mlp/config.json '[o[k] for k in ("model_type", "input_dim", "output_dim", "hidden_dim", "n_modules")]')" \
		"['kvzap', 128, 2, 24, 4]"
	assert_equal "$(json linear/config.json 'o["hidden_dim"]')" None
	random_model other-model --heads 4 --kv-heads 2 --head-dim 32 --hidden 128 --layers 4
	run -4 kv-prefill -m other-model --ids --gate linear -o x.kv 200.ids
	assert_output --partial 'linear/config.json: trained for weights '
}

@test "the same options give the same bytes, with lessons that are kept and without; another seed gives others" {
	for kind in linear mlp; do
		train again --kind $kind
		diff -r $kind again
		rm -r again
	done
	train again --kind mlp --seed 2
	run -1 cmp -s mlp/model.safetensors again/model.safetensors
}

@test "lessons that are there are not made again, and one that is broken is refused" {
	# without the programs that would make them
	PATH=/usr/bin:/bin train kept --kind linear --lessons lessons
	diff -r linear kept
	cp -r lessons broken
	truncate -s 1000 broken/*
	run -1 train never --kind linear --lessons broken
	assert_regex "$(tail -n 1 never.err)" 'broken/.*npy: no lesson: '
	[ ! -e never ]
}

@test "texts that are too short or too few, options that do not go together and a program that fails are refused" {
	mkdir few none bin
	cp documents/0000.txt few
	cases refused <<-END
		2|tokens, and texts are to have from 90000 to 90000|$DEMO|--out|never|--texts|documents|--min-length|90000|--max-length|90000
		2|few: too few texts (0 to train with, 1 held out)|$DEMO|--out|never|--texts|few
		2|need --judge of 0 or more, --max-length not below --min-length|$DEMO|--out|never|--min-length|20|--max-length|10
		2|--positions must be 1 or more|$DEMO|--out|never|--positions|0
		2|name a model, or a file to --convert|--out|never
		2|--convert takes no model and no option of training: kind|--convert|fast.pt|--kind|mlp|--out|never
		2|--convert takes no model and no option of training: model|$DEMO|--convert|fast.pt|--out|never
		1|none: there is no config.json|none|--out|never
		1|none.pt: there is no checkpoint|--convert|none.pt|--out|never
	END
	printf '#!/bin/sh\nexit 7\n' >bin/kv-observe
	chmod +x bin/kv-observe
	PATH=$PWD/bin:$PATH run -1 train never
	assert_equal "$(tail -n 1 never.err)" 'gates.py: kv-observe -q ended with status 7'
	[ ! -e never ]
}

@test "a file that is no gate of Fast KVzip is refused, and nothing in it is run" {
	oracle published whole.pt
	cases changed whole.pt <<-'END'
		del o["module"]|there is no list of layers in "module"
		o["module"] = []|there is no list of layers in "module"
		del o["module"][2]["k_norm.weight"]|changed.pt: layer 2: k_norm.weight has the shape None, not (16,)
		del o["module"][0]["b"]|changed.pt: layer 0: no gate of Fast KVzip: KeyError('b')
		o["module"][1]["more"] = o["module"][1]["b"]|layer 1: more has the shape (2, 1, 2), not None
		o["module"][3]["k_base"] = o["module"][3]["k_base"][:, :, 1:]|k_base has the shape (2, 1, 11, 16), not (2, 1, 12, 16)
		o["module"][1] = 5|changed.pt: layer 1: no gate of Fast KVzip:
		o["module"][1]["b"][1, 0, 1] = float("nan")|layers.1.b has values that are not finite
		o["more"] = Run()|changed.pt: no checkpoint:
	END
	[ ! -e was-run ]
	head -c 1000 whole.pt >cut.pt
	cases refused <<-'END'
		1|failed finding central directory|--convert|cut.pt|--out|never
	END
}
