#!/usr/bin/env bats
# bats file_tags=slow,nosan
# train/heads.py: DuoAttention and PruLong learn which KV heads need the whole text
#
# TRAIN_PYTHON names a Python with torch and transformers (python3); without them all is skipped. Formulas are
# checked by oracle/train_heads.py, which works them out by other means.

load helper

HEADS=$ROOT/train/heads.py

setup_file() {
	look_for_torch || return 0
	cd "$BATS_FILE_TMPDIR" || exit 1
	"$TRAIN_PYTHON" "$ORACLE/train_heads.py" >checks
	"$TRAIN_PYTHON" "$ORACLE/train_heads_texts.py" "$BATS_FILE_TMPDIR"
	grep -v '^#' "$DEMO/duoattention.tsv" >known.tsv
}

setup() {
	[ -z "$WHY_NOT" ] || skip "$TRAIN_PYTHON: $WHY_NOT"
	cd "$BATS_FILE_TMPDIR" || exit 1
}

heads() {
	"$TRAIN_PYTHON" "$HEADS" "$@"
}

# holds SENTENCE: the oracle has found it so
holds() {
	run awk -F '\t' -v name="$1" '$1 == name { print $2 }' checks
	assert_output ok
}

SMALL=(-m "$DEMO" --threads 1 --sink 4 --recent 64 --block 1)
DUO=(--method duo "${SMALL[@]}" --task task.json --texts filler.txt --min-length 400 --max-length 600 --lengths 3
	--passkeys 6 --words 1)
PRULONG=(--method prulong "${SMALL[@]}" --texts documents --max-length 400 --batch 2)
# runs that take a second
SHORT_DUO=("${DUO[@]}" --steps 6 --save 2 --lr 0.1)
SHORT_PRULONG=("${PRULONG[@]}" --steps 6 --save 2 --lr 0.3 --max-length 200 --batch 1)

@test "the oracle ends, and every check of it is a test here" {
	run cut -f 1 checks
	assert_equal "${#lines[@]}" "$(grep -c '^def check_' "$ORACLE/train_heads.py")"
	while read -r name; do
		grep -qF "@test \"$name\"" "$BATS_TEST_FILENAME" || fail "no test says: $name"
	done <<<"$output"
}

@test "sampled masks have the values of the formula" { holds "$BATS_TEST_DESCRIPTION"; }
@test "both closed forms have their values, that with the temperature is the samples'" { holds "$BATS_TEST_DESCRIPTION"; }
@test "streaming attention is a masked softmax in f64, and so is its gradient" { holds "$BATS_TEST_DESCRIPTION"; }
@test "streaming attention makes no mask of tokens x tokens" { holds "$BATS_TEST_DESCRIPTION"; }
@test "masks of 1 give the model's own logits, in each family" { holds "$BATS_TEST_DESCRIPTION"; }
@test "masks of 0 give the model whose every head streams, in each family" { holds "$BATS_TEST_DESCRIPTION"; }
@test "an alpha of 1 is the teacher exactly, one of 0 the streaming model" { holds "$BATS_TEST_DESCRIPTION"; }
@test "the full part of DuoAttention's mixture is the teacher's output" { holds "$BATS_TEST_DESCRIPTION"; }
@test "the gradient of DuoAttention's loss is that of finite differences" { holds "$BATS_TEST_DESCRIPTION"; }
@test "the gradient of PruLong's loss is that of finite differences, in masks and multipliers" { holds "$BATS_TEST_DESCRIPTION"; }
@test "the loss on the next token is PyTorch's cross-entropy, with its gradient" { holds "$BATS_TEST_DESCRIPTION"; }
@test "the distillation loss is the mean over label tokens of the mean of squares" { holds "$BATS_TEST_DESCRIPTION"; }
@test "DuoAttention's learning rate goes up and down in a fifth of the steps each" { holds "$BATS_TEST_DESCRIPTION"; }
@test "PruLong's learning rate and target have the values of paper and script" { holds "$BATS_TEST_DESCRIPTION"; }
@test "a step clips alpha before, pulls log alpha and pushes the multipliers" { holds "$BATS_TEST_DESCRIPTION"; }
@test "the smallest heads are zeroed, as many as expected; the rest is cut at a half" { holds "$BATS_TEST_DESCRIPTION"; }
@test "DuoAttention's rounding is its quantile with seeded noise" { holds "$BATS_TEST_DESCRIPTION"; }
@test "PruLong's rounding keeps the int(n (1 - sparsity)) greatest, ties drawn with seed 42" { holds "$BATS_TEST_DESCRIPTION"; }
@test "documents have needles in order, labels on the questions, a length of 16s" { holds "$BATS_TEST_DESCRIPTION"; }
@test "models that would be computed wrongly are refused by name" { holds "$BATS_TEST_DESCRIPTION"; }

# duoattention.tsv: found by trying each head.
@test "DuoAttention finds the head of the demo model that was found by trying" {
	heads "${DUO[@]}" --steps 60 --lr 0.1 --reg 0.2 -o duo
	heads --round duo/full_attention_heads.tsv --sparsity 0.875 >rounded
	run diff known.tsv rounded
	assert_success
}

@test "PruLong finds the head of the demo model that was found by trying" {
	heads "${PRULONG[@]}" --steps 100 --lr 0.3 --target 0.875 -o prulong
	run diff known.tsv prulong/full_attention_heads.tsv
	assert_success
	heads --round prulong/soft_mask.tsv --sparsity 0.875 --rounding prulong >rounded
	run diff known.tsv rounded
	assert_success
	# sparsity ends near its target
	run awk -F '\t' 'END { print ($5 > 0.8 && $6 == 0.875) }' prulong/curve.tsv
	assert_output 1
}

@test "with that head the model finds all passkeys, with all others instead of it none" {
	run --separate-stderr heads --evaluate known.tsv "${DUO[@]}" --samples 4
	assert_success
	assert_line --partial $'full\t1.0000'
	assert_line --partial $'table\t1.0000'
	assert_line --partial $'streaming\t0.0000'
	tr 01 10 <known.tsv >others.tsv
	run --separate-stderr heads --evaluate others.tsv "${DUO[@]}" --samples 4
	assert_line --partial $'table\t0.0000'
}

# ended SIGNAL LEAST OPTION ...: runs until the curve has LEAST lines, then sends the signal; its exit status is in $ended
ended() {
	local signal=$1 least=$2 folder pid
	shift 2
	folder=${*: -1}
	"$TRAIN_PYTHON" "$HEADS" "${@:1:$#-1}" -o "$folder" 2>messages 3>&- &
	pid=$!
	until [ -e "$folder/curve.tsv" ] && [ "$(wc -l <"$folder/curve.tsv")" -ge "$least" ]; do
		kill -0 "$pid" || fail "it has ended: $(cat messages)"
		sleep 0.05
	done
	kill "-$signal" "$pid"
	ended=0
	wait "$pid" || ended=$?
}

@test "a run of DuoAttention that was interrupted, then killed, gives the same bytes when it is resumed" {
	heads "${SHORT_DUO[@]}" --steps 40 -o duo-whole
	ended INT 3 "${SHORT_DUO[@]}" --steps 40 duo-parts
	assert_equal "$ended" 1
	run cat messages
	assert_output --partial 'stopped behind step'
	[ "$(wc -l <duo-parts/curve.tsv)" -lt 41 ] || fail 'it was not interrupted'
	ended KILL 20 "${SHORT_DUO[@]}" --steps 40 --resume duo-parts
	assert_equal "$ended" 137
	[ "$(wc -l <duo-parts/curve.tsv)" -lt 41 ] || fail 'it was not killed'
	heads "${SHORT_DUO[@]}" --steps 40 -o duo-parts --resume
	run diff -r --exclude checkpoint.pt duo-whole duo-parts
	assert_output ''
}

@test "a run of PruLong that was interrupted gives the same bytes when it is resumed" {
	heads "${SHORT_PRULONG[@]}" --steps 40 -o prulong-whole
	ended INT 3 "${SHORT_PRULONG[@]}" --steps 40 prulong-parts
	assert_equal "$ended" 1
	[ "$(wc -l <prulong-parts/curve.tsv)" -lt 41 ] || fail 'it was not interrupted'
	heads "${SHORT_PRULONG[@]}" --steps 40 -o prulong-parts --resume
	run diff -r --exclude checkpoint.pt prulong-whole prulong-parts
	assert_output ''
}

@test "the curve has a line for each step, and another seed another curve" {
	heads "${SHORT_DUO[@]}" -o seed42
	heads "${SHORT_DUO[@]}" -o seed43 --seed 43
	run cut -f 1 seed42/curve.tsv
	assert_output $'step\n0\n1\n2\n3\n4\n5'
	run cmp -s seed42/curve.tsv seed43/curve.tsv
	assert_failure
	run json seed42/config.json 'o["sink_size"], o["recent_size"], o["seed"]'
	assert_output '(4, 64, 42)'
}

@test "a checkpoint is not overwritten, nor continued with other options or texts" {
	heads "${SHORT_DUO[@]}" -o kept --steps 2
	run heads "${SHORT_DUO[@]}" -o kept --steps 2
	assert_failure 2
	assert_output --partial 'kept/checkpoint.pt is there: --resume goes on from it'
	run heads "${SHORT_DUO[@]}" -o kept --steps 2 --reg 0.1 --resume
	assert_failure 2
	assert_output --partial 'kept/checkpoint.pt was made with reg = 0.05, not 0.1'
	run heads "${SHORT_DUO[@]}" -o kept --steps 2 --texts documents --resume
	assert_failure 2
	assert_output --partial 'was made with texts_digest ='
}

@test "a broken checkpoint is refused by name" {
	mkdir -p broken
	head -c 100 /dev/zero >broken/checkpoint.pt
	run heads "${SHORT_DUO[@]}" -o broken --resume
	assert_failure 1
	assert_output --partial 'broken/checkpoint.pt: this is no checkpoint of heads.py'
	run heads "${SHORT_DUO[@]}" -o nowhere --resume
	assert_failure 1
	assert_output --partial 'nowhere/checkpoint.pt: No such file or directory'
}

@test "a table of another shape is refused, and a broken one with its line" {
	printf '1 0\n1 0\n0 0\n' >three.tsv
	run heads "${SHORT_DUO[@]}" -o shape --init three.tsv
	assert_failure 2
	assert_output --partial 'three.tsv has 3 layers of 2 KV heads, the model 4 of 2'
	printf '# heads\n1 0\n1 O\n' >letter.tsv
	run heads --round letter.tsv --sparsity 0.5
	assert_failure 1
	assert_output "heads.py: letter.tsv: line 3 column 2: 'O' is not a number"
	printf '1 0\n1\n' >ragged.tsv
	run heads --round ragged.tsv --sparsity 0.5
	assert_failure 1
	assert_output 'heads.py: ragged.tsv: line 2: the lines before have 2 numbers, this one 1'
	printf '# nothing\n' >empty.tsv
	run heads --round empty.tsv --sparsity 0.5
	assert_failure 1
	run heads --round nowhere.tsv --sparsity 0.5
	assert_failure 1
	assert_output 'heads.py: nowhere.tsv: No such file or directory'
	printf '1 nan\n' >nan.tsv
	run heads --round nan.tsv --sparsity 0.5
	assert_failure 1
}

@test "a run can begin with a table" {
	heads "${SHORT_DUO[@]}" -o begun --init known.tsv --steps 1
	run awk -F '\t' 'NR == 2 { print $5 }' begun/curve.tsv
	assert_output 0.125
	heads "${SHORT_PRULONG[@]}" -o begun-prulong --init known.tsv --steps 1
	run diff known.tsv begun-prulong/full_attention_heads.tsv
	assert_success
}

@test "texts that are none are refused with their line, licence texts by name" {
	printf 'one\ntwo \xff\n' >latin.txt
	run heads "${SHORT_DUO[@]}" -o texts --texts latin.txt
	assert_failure 1
	assert_output --partial 'latin.txt: line 2: this is no UTF-8 text'
	printf 'one\n\0\n' >zero.txt
	run heads "${SHORT_PRULONG[@]}" -o texts --texts zero.txt
	assert_failure 1
	assert_output --partial 'zero.txt: line 2: this is no text'
	run heads "${SHORT_PRULONG[@]}" -o texts --texts nowhere.txt
	assert_failure 1
	assert_output --partial 'nowhere.txt: No such file or directory'
	cp filler.txt LICENSE.txt
	run heads "${SHORT_PRULONG[@]}" -o texts --texts LICENSE.txt
	assert_failure 2
	assert_output --partial 'LICENSE.txt: licence texts are held out'
	mkdir -p common-licenses && echo 'Redistribution and use' >common-licenses/BSD
	run heads "${SHORT_PRULONG[@]}" -o texts --texts common-licenses
	assert_failure 2
	assert_output --partial 'there is no text in common-licenses'
	mkdir -p nothing && : >nothing/empty
	run heads "${SHORT_PRULONG[@]}" -o texts --texts nothing
	assert_failure 2
	assert_output --partial 'there is no text in nothing'
	echo '{"names": ["a", 1]}' >bad.json
	run heads "${SHORT_DUO[@]}" -o texts --task bad.json
	assert_failure 1
	assert_output --partial "bad.json: 'names' must be a list of texts"
	printf '{\n"names" 1}' >bad.json
	run heads "${SHORT_DUO[@]}" -o texts --task bad.json
	assert_failure 1
	assert_output --partial 'bad.json: line 2: '
	[ ! -e texts ] || fail 'a refused run has left a folder'
}

@test "manual pages are the texts where none are named" {
	[ -d /usr/share/man/man1 ] || skip 'there are no manual pages here'
	heads "${SMALL[@]}" --method prulong --max-length 100 --batch 1 --steps 2 -o manual
	run wc -l manual/curve.tsv
	assert_output --partial 3
}

@test "options that do not go together are refused" {
	while read -r line; do
		# shellcheck disable=SC2086
		run heads $line
		assert_failure 2
	done <<-END
		--method duo
		--round known.tsv
		--round known.tsv --sparsity 2
		--round known.tsv --sparsity 0.5 --steps 3
		--round known.tsv --sparsity 0.5 --method duo
		--method prulong -m $DEMO -o x --passkeys 3
		--method duo -m $DEMO -o x --target 0.5
		--method duo -m $DEMO -o x --sparsity 0.5
		--method duo -m $DEMO -o x --evaluate known.tsv
		--method duo -m $DEMO -o x --min-length 9 --max-length 8
		--method duo -m $DEMO -o x --steps 0
		--method duo -m $DEMO -o x --resume --init known.tsv
		--method prulong -m $DEMO -o x --target 1 --target-warmup logarithmic
		--method other -m $DEMO -o x
	END
	run heads "${SHORT_DUO[@]}" -o x --passkeys 60
	assert_failure 2
	assert_output --partial '60 passkeys of 1 words need up to'
	run heads --method duo -m "$BATS_FILE_TMPDIR" -o x
	assert_failure 1
	assert_output --partial 'no model'
}

@test "rounding gives the tables worked out by hand" {
	printf '0.9\t-1e-3\n1.2\t0.4\n0.3\t0.3\n' >hand.tsv
	run heads --round hand.tsv --sparsity 0.5
	assert_output $'1\t0\n1\t1\n0\t0'
	# 6 heads: the quantile of 0.7 lies at 3.5, between 0.4 and 0.9; int(6 * 0.3) = 1
	run heads --round hand.tsv --sparsity 0.7 --rounding duo
	assert_output $'1\t0\n1\t0\n0\t0'
	run heads --round hand.tsv --sparsity 0.7 --rounding prulong
	assert_output $'0\t0\n1\t0\n0\t0'
	for rounding in nearest duo prulong; do
		run heads --round hand.tsv --sparsity 1 --rounding $rounding
		assert_output $'0\t0\n0\t0\n0\t0'
		run heads --round hand.tsv --sparsity 0 --rounding $rounding
		assert_output $'1\t1\n1\t1\n1\t1'
	done
	heads --round hand.tsv --sparsity 0.5 -o half.tsv
	run cat half.tsv
	assert_output $'1\t0\n1\t1\n0\t0'
}

# kept_heads FILE: 0 for each layer and KV head that has lost rows, else 1
kept_heads() {
	kv-info --positions "$1" | awk '
		{ rows[NR] = NF - 2; layer[NR] = $1; most = NF - 2 > most ? NF - 2 : most }
		END {
			for (i = 1; i <= NR; i++)
				printf "%s%d", i == 1 ? "" : layer[i] == layer[i - 1] ? "\t" : "\n", rows[i] == most
			print ""
		}'
}

@test "kv-evict reads what is written, and the published layout, with the same rows" {
	kv-prefill -q -m "$DEMO" "$ROOT/examples/prompts/harbour.txt" -o full.kv
	# as numpy.savetxt writes it, with numbers that training has moved beyond 0 and 1
	cat >published.tsv <<-END
		-5.340576171875000000e-04	1.597404479980468750e-05
		1.005859375000000000e+00	-1.206398010253906250e-04
		4.730224609375000000e-03	0.000000000000000000e+00
		5.786132812500000000e-02	-2.059936523437500000e-04
	END
	heads "${SHORT_DUO[@]}" -o read --steps 1
	heads --round published.tsv --sparsity 0.875 -o rounded.tsv
	for table in known.tsv published.tsv rounded.tsv; do
		kv-evict --head-mask $table --sink 4 --recent 60 -o $table.kv full.kv
		same_but_provenance known.tsv.kv $table.kv || fail "$table keeps other rows"
	done
	assert_equal "$(kv-footprint <known.tsv.kv)" "$(kv-footprint <published.tsv.kv)"
	kv-evict --head-mask read/full_attention_heads.tsv --sink 4 --recent 60 -o read.kv full.kv
	run kept_heads read.kv
	assert_output $'1\t1\n1\t1\n1\t1\n1\t1'
}

@test "kv-evict --sparsity chooses the heads that --round chooses, under each rule" {
	kv-prefill -q -m "$DEMO" "$ROOT/examples/prompts/harbour.txt" -o full.kv
	printf '0.31\t0.02\n0.97\t0.11\n0.55\t0.68\n0.43\t0.85\n' >floats.tsv
	for sparsity in 0 0.1875 0.3125 0.7 1; do
		heads --round floats.tsv --sparsity $sparsity >mine
		kv-evict -q --head-mask floats.tsv --sparsity $sparsity --sink 4 --recent 60 -o cut.kv full.kv
		run diff mine <(kept_heads cut.kv)
		[ "$sparsity" = 1 ] || assert_success
		# the other rules may let one head more or less stream, of the same order
		for rounding in duo prulong; do
			heads --round floats.tsv --sparsity $sparsity --rounding $rounding >mine
			share=$(awk '{ n += NF; for (i = 1; i <= NF; i++) k += !$i } END { print k / n }' mine)
			kv-evict -q --head-mask floats.tsv --sparsity "$share" --sink 4 --recent 60 -o cut.kv full.kv
			[ "$share" = 1 ] || diff mine <(kept_heads cut.kv) || fail "$rounding $sparsity"
		done
	done
}

baseline() {
	"$TRAIN_PYTHON" "$ROOT/train/head_baselines.py" "$@"
}

@test "tables that nobody trained rank every head: at random, by the length of its keys, or not at all" {
	local table=$BATS_TEST_TMPDIR/table
	baseline random -m "$DEMO" --seed 1 >"$table"
	assert_equal "$(tr '\t' '\n' <"$table" | sort -n | tr '\n' ' ')" '0 0.142857 0.285714 0.428571 0.571429 0.714286 0.857143 1 '
	run baseline random -m "$DEMO" --seed 2
	refute_output "$(cat "$table")"
	run baseline even -m "$DEMO"
	assert_output $'1\t1\n1\t1\n1\t1\n1\t1'
	# the keys of one head, ten times as long
	cp -r "$DEMO" "$BATS_TEST_TMPDIR/long"
	"$TRAIN_PYTHON" - "$BATS_TEST_TMPDIR/long/model.safetensors" <<-'END'
		import sys
		from safetensors.torch import load_file, save_file
		tensors = load_file(sys.argv[1])
		tensors["model.layers.2.self_attn.k_proj.weight"][:32] *= 10
		save_file(tensors, sys.argv[1], {"format": "pt"})
	END
	run baseline norm -m "$BATS_TEST_TMPDIR/long" --length 200 --windows 1
	assert_line --index 2 --regexp $'^1\t'
	run baseline norm -m "$BATS_TEST_TMPDIR/long" --length 200 --windows 1 --reverse
	assert_line --index 2 --regexp $'^0\t'
}
