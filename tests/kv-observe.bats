#!/usr/bin/env bats
# bats file_tags=slow
# kv-observe: queries, own keys and probe mass against double precision; what it passes on; the methods
# that are made of it; what it refuses

load helper

setup() {
	cd "$BATS_TEST_TMPDIR" || exit 1
	small_talk 10 >doc.txt       # about 230 tokens
	printf '316 15 19\n378 414 25 408 337\n' >draft.ids
}

# agrees LIMIT ARGUMENT ...: every relative error that observe.py prints is below LIMIT
agrees() {
	errors_below "$1" "$PYTHON" "$ORACLE/observe.py" "${@:2}"
}

# narrow_model NAME OPTION ...: 2 layers of f32; logits wide enough to tell rows apart
narrow_model() {
	random_model "$1" --layers 2 --hidden 48 --ffn 72 --dtype f32 --std 0.15 "${@:2}"
}

random_models() {
	narrow_model mha --heads 3 --kv-heads 3 --head-dim 10 --seed 1
	narrow_model gqa --heads 8 --kv-heads 2 --head-dim 6 --seed 2 --bias
	narrow_model mqa --heads 8 --kv-heads 1 --head-dim 8 --seed 3 --llama3-rope
}

# answers FILE: what the demo model says to the question at the end
answers() {
	kv-decode -m "$DEMO" -n 8 --stop . "$1"
}

@test "queries and own keys agree with a double-precision forward pass, for 1, 4 and 8 query heads a KV head" {
	random_models
	for m in mha gqa mqa; do
		kv-prefill -m $m -w 12 -o $m.kv doc.txt
		for keep in 0 5; do
			kv-observe -m $m --ids-from draft.ids --keep-window $keep -o out.kv $m.kv
			agrees 2e-6 model $m out.kv draft.ids
			see out.kv '[len(l.queries.positions) for l in s.layers]' | grep -x "$((keep + 8)) $((keep + 8))"
		done
	done
}

@test "many tokens, in several chunks, give the same as a double-precision forward pass" {
	narrow_model gqa --heads 8 --kv-heads 2 --head-dim 6 --seed 2
	for _ in 1 2 3; do kv-tokenize -m gqa doc.txt; done >long.ids
	[ "$(wc -l <long.ids)" -gt 600 ]
	kv-prefill -m gqa -o x.kv doc.txt
	kv-observe -m gqa --ids-from long.ids -o out.kv x.kv
	agrees 5e-6 model gqa out.kv long.ids
	kv-observe -m gqa --ids-from long.ids --accumulate max -o max.kv x.kv
	agrees 5e-6 paid out.kv max.kv max 0 99999 0
}

@test "scores by the queries of a draft are those of the formulas, own keys in the softmax" {
	random_models
	for m in mha gqa mqa; do
		kv-prefill -m $m -w 12 doc.txt | kv-observe -m $m --ids-from draft.ids --keep-window 5 -o out.kv
		kv-score --method snapkv --kernel 7 --pool max -o scored.kv out.kv
		"$PYTHON" "$ORACLE/scores.py" 2e-6 out.kv scored.kv snapkv kernel=7 pool=max
	done
}

@test "probe mass agrees with a double-precision one, its sum and its maximum, over whole and ragged caches" {
	random_models
	for m in mha gqa mqa; do
		kv-prefill -m $m --mass -o whole.kv doc.txt
		kv-score --method h2o whole.kv | kv-evict --rate 0.4 -o part.kv
		"$PYTHON" "$ORACLE/ragged.py" part.kv ragged.kv
		for cache in whole ragged; do
			kv-observe -m $m --ids-from draft.ids -o queries.kv $cache.kv
			for over in sum max; do
				kv-observe -m $m --ids-from draft.ids --accumulate $over -o paid.kv $cache.kv
				agrees 2e-6 paid queries.kv paid.kv $over 0 99999 0
			done
		done
	done
}

@test "what a repeated context pays agrees with a double-precision forward pass, in one chunk and in many" {
	random_models
	printf 'Once more: ' | kv-tokenize -m mha --no-template >ask.ids
	for m in mha gqa mqa; do
		kv-prefill -m $m -o x.kv doc.txt
		for chunk in 2000 100 31 5; do
			in_sample 4 || continue
			kv-observe -m $m --repeat-context --chunk $chunk --instruction 'Once more: ' -o out.kv x.kv
			agrees 5e-6 repeat $m out.kv ask.ids $chunk 4
		done
	done
	kv-prefill -m mha -o x.kv doc.txt
	kv-observe -m mha --repeat-context --chunk 60 --sink 0 --instruction '' -o out.kv x.kv
	: >none.ids
	agrees 5e-6 repeat mha out.kv none.ids 60 0
}

@test "a repeated context scores the rows that an evicted, ragged cache still has" {
	narrow_model gqa --heads 8 --kv-heads 2 --head-dim 6 --seed 2
	kv-prefill -m gqa --mass doc.txt | kv-score --method h2o | kv-evict --rate 0.4 -o part.kv
	"$PYTHON" "$ORACLE/ragged.py" part.kv ragged.kv
	kv-observe -m gqa --repeat-context --sink 3 --chunk 100 --instruction '' -o out.kv ragged.kv
	kv-tokenize -m gqa doc.txt >all.ids
	tail -n +4 all.ids | head -n 100 >first.ids        # positions 3 .. 102
	tail -n +96 all.ids | head -n 108 >second.ids      # 8 of these, then 103 .. 202
	kv-observe -m gqa --ids-from first.ids -o first.kv ragged.kv
	agrees 2e-6 paid first.kv out.kv max 3 103 3
	kv-observe -m gqa --ids-from second.ids -o second.kv ragged.kv
	agrees 2e-6 paid second.kv out.kv max 103 203 3
}

@test "everything but what is added is passed on as it was, and the log has a run more" {
	kv-prefill -m "$DEMO" -w 6 --mass doc.txt | kv-score --method snapkv | kv-evict --rate 0.5 --keep-queries |
		kv-score --method h2o -o x.kv
	see x.kv '[x.type for x in s.sections]' | grep -q eVNt
	kv-observe -m "$DEMO" --ids-from draft.ids -o queries.kv x.kv
	kv-observe -m "$DEMO" --ids-from draft.ids --accumulate sum -o paid.kv x.kv
	kv-observe -m "$DEMO" --repeat-context --chunk 90 -o repeat.kv x.kv
	contents='{(x.type, x.layer): (x.raw_size, [b.raw_hash for b in x.blocks], x.element) for x in s.sections
		if x.type not in ("pADD", "iNDX", "ENDS", "pROv", "pAID", "eVNt")}'
	for out in queries paid repeat; do
		kv-check $out.kv
		[ "$(logical $out.kv)" = "$(logical x.kv)" ]
		leave=$([ $out = queries ] && echo oBSq || echo none)
		diff <(see x.kv "[i for i in $contents.items() if i[0][0] != '$leave']") \
			<(see $out.kv "[i for i in $contents.items() if i[0][0] != '$leave']")
		[ "$(answers $out.kv)" = "$(answers x.kv)" ]
		[ "$(see $out.kv "s.events[:$(see x.kv 'len(s.events)')]")" = "$(see x.kv s.events)" ]
	done
	added="[(e.run, e.kind, e.n, e.l0, e.l1, e.position) for e in s.events[$(see x.kv 'len(s.events)'):]]"
	n=$(see x.kv 'len(s.tokens)')
	[ "$(see queries.kv "$added")" = "(True, 1, 8, 0, 4, $n)" ]
	[ "$(see paid.kv "$added")" = "$(see queries.kv "$added")" ]
	# the first chunk, one with the 8 tokens before it, and the rest; each with what asks for it
	asked=$(($(see repeat.kv 's.events[-2].n') - 98))
	[ "$(see repeat.kv "$added")" = "(True, 1, $((90 + asked)), 0, 4, $n) (True, 1, $((98 + asked)), 0, 4, $n) (True, 1, $((n - 184 + 8 + asked)), 0, 4, $n)" ]
	[ "$asked" -gt 5 ]
	[ "$(see paid.kv '[p["tool"] for p in s.provenance][-1]')" = kv-observe ]
}

@test "what is run without being stored is no query of meanmass, which divides by those that could see a row" {
	kv-prefill -m "$DEMO" --mass -o x.kv doc.txt
	kv-observe -m "$DEMO" --ids-from draft.ids -o y.kv x.kv
	kv-score --method meanmass -o a.kv x.kv
	kv-score --method meanmass -o b.kv y.kv
	[ "$(see a.kv '[l.scores for l in s.layers]')" = "$(see b.kv '[l.scores for l in s.layers]')" ]
}

@test "unknown sections are passed on, in their places" {
	kv-prefill -m "$DEMO" -w 6 -o x.kv doc.txt
	cat >with.py <<-'E'
		import sys
		sys.path[:0] = sys.argv[1:3]
		import kvread, kvwrite
		class Content:
		    pass
		data = open('x.kv', 'rb').read()
		s = kvread.read(open('x.kv', 'rb'))
		out, end = [], {}
		for x in s.sections:
		    if x.type in ('pADD', 'iNDX', 'ENDS'):
		        continue
		    at = x.offset + 64 + (24 * len(x.blocks) + 63) // 64 * 64
		    out.append(kvwrite.Section(x.type, data[at:at + x.raw_size], x.layer, x.element))
		    if x.type in ('TOKS', 'POSN', 'oBSq', 'KEYS', 'VALS'):
		        out.append(kvwrite.Section('qXY' + 'zZ'[len(out) % 2], x.type.encode(), x.layer))
		open('with.kv', 'wb').write(kvwrite.stream(out))
	E
	"$PYTHON" with.py "$FORMAT" "$ROOT/formats/vectors"
	kv-check with.kv
	order='[(x.type, x.layer) for x in s.sections if x.type not in ("pADD", "pAID", "oBSq")]'
	kv-observe -m "$DEMO" --ids-from draft.ids --accumulate max -o out.kv with.kv
	diff <(see with.kv "$order") <(see out.kv "$order")
	kv-observe -m "$DEMO" --ids-from draft.ids -o out.kv with.kv
	diff <(see with.kv "$order") <(see out.kv "$order")
	[ "$(see with.kv '[l.others for l in s.layers] + s.others')" = "$(see out.kv '[l.others for l in s.layers] + s.others')" ]
}

@test "two runs, any number of threads, a pipe and a file give identical bytes" {
	kv-prefill -m "$DEMO" -w 6 -o x.kv doc.txt
	for what in "--ids-from draft.ids" "--ids-from draft.ids --accumulate sum" "--repeat-context --chunk 70"; do
		kv-observe -m "$DEMO" $what -o a.kv x.kv
		kv-observe -m "$DEMO" $what -j 1 <x.kv | cmp a.kv -
		kv-observe -m "$DEMO" $what -j 3 -o b.kv x.kv
		cmp a.kv b.kv
		kv-observe -m "$DEMO" $what -z x.kv | kv-info --all - | grep -x "logical digest $(logical a.kv)"
	done
	kv-observe -m "$DEMO" --ids-from - x.kv <draft.ids >a.kv
	kv-observe -m "$DEMO" --ids-from draft.ids x.kv | cmp a.kv -
}

@test "LAQ: the queries of a draft that was written on a small cache choose from the full one" {
	kv-prefill -m "$DEMO" --observe 32 -o full.kv doc.txt
	kv-score --method snapkv full.kv | kv-evict --budget 40 | kv-decode -m "$DEMO" -n 8 --ids >laq.ids
	[ "$(wc -l <laq.ids)" -eq 8 ]
	for keep in 0 8; do
		kv-observe -m "$DEMO" --ids-from laq.ids --keep-window $keep full.kv |
			kv-score --method snapkv --kernel 7 --pool max | kv-evict --budget 40 -o small.kv
		[ "$(answers small.kv)" = " K742" ]
		see small.kv '[min(l.rows) for l in s.layers]' | grep -x '40 40 40 40'
	done
	see small.kv 'all(p[-8:] == list(range(s.head["next_position"] - 8, s.head["next_position"])) for l in s.layers for p in l.positions)' |
		grep -x True
}

@test "SpecKV: another model writes the draft, the maximum over queries and heads chooses" {
	cp -r "$DEMO" other
	chmod -R u+w other
	printf '\x01' | dd of=other/model.safetensors bs=1 seek=$(($(stat -c %s other/model.safetensors) - 1)) conv=notrunc status=none
	kv-prefill -m other doc.txt | kv-decode -m other -n 8 --ids >spec.ids
	kv-prefill -m "$DEMO" --observe 32 doc.txt | kv-observe -m "$DEMO" --ids-from spec.ids --keep-window 32 |
		kv-score --method snapkv --kernel 7 --pool max --over-queries max --reduce max -o scored.kv
	[ "$(see scored.kv 's.layers[0].scores.label')" = \
	    "snapkv window=40 over-queries=max kernel=7 pool=max reduce=max order=pool-first weight=none" ]
	kv-evict --budget 50 -o small.kv scored.kv
	[ "$(answers small.kv)" = " K742" ]
	kv-prefill -m other -o other.kv doc.txt
	run -4 --separate-stderr kv-observe -m "$DEMO" --ids-from spec.ids -o x.kv other.kv
	[[ "$stderr" == *"other.kv is not of the model"*"weights: "* ]]
	[ ! -e x.kv ]
}

@test "KVzip: a document is compressed before the question is known" {
	head -n 11 doc.txt >book.txt
	tail -n 2 doc.txt >question.txt
	kv-prefill -m "$DEMO" book.txt | kv-observe -m "$DEMO" --repeat-context |
		kv-score --method kvzip | kv-evict --rate 0.3 -o book.kv
	see book.kv 'all(p[:4] == [0, 1, 2, 3] for l in s.layers for p in l.positions)' | grep -x True
	for town in "Marlow K742" "Calton falcon"; do
		sed "s/Marlow/${town% *}/" question.txt >q.txt
		[ "${town% *}" = Marlow ] || sed -i 's/access code/secret word/' q.txt
		kv-prefill -m "$DEMO" -r book.kv -o asked.kv q.txt
		[ "$(answers asked.kv)" = " ${town#* }" ]
	done
}

@test "patched chunks: after each chunk the end of the prompt looks at what there is, and is not stored" {
	kv-tokenize -m "$DEMO" doc.txt >all.ids
	n=$(wc -l <all.ids)
	tail -n 16 all.ids >patch.ids
	head -n 100 all.ids | kv-prefill -m "$DEMO" --ids | kv-observe -m "$DEMO" --ids-from patch.ids |
		kv-score --method snapkv --kernel 7 | kv-evict --rate 0.5 -o chunk.kv
	see chunk.kv '[l.rows for l in s.layers][0]' | grep -x '50 50'
	tail -n +101 all.ids | kv-prefill -m "$DEMO" --ids --observe 16 -r chunk.kv |
		kv-score --method snapkv --kernel 7 | kv-evict --rate 0.5 -o small.kv
	[ "$(kv-info --json small.kv | sed -n 's/.*"next_position": \([0-9]*\).*/\1/p')" -eq "$n" ]
	[ "$(answers small.kv)" = " K742" ]
}

@test "a resumed prefill takes no queries of tokens that were not stored, and drops the probe mass" {
	printf ' Yes.' >more.txt
	kv-prefill -m "$DEMO" --observe 12 doc.txt | kv-observe -m "$DEMO" --ids-from draft.ids --keep-window 12 -o x.kv
	kv-prefill -m "$DEMO" --observe 8 -r x.kv -o y.kv more.txt
	kv-prefill -m "$DEMO" --observe 12 doc.txt | kv-prefill -m "$DEMO" --observe 8 -r - -o z.kv more.txt
	[ "$(see y.kv '[(l.queries.source, l.queries.positions, l.queries.data) for l in s.layers]')" = \
	    "$(see z.kv '[(l.queries.source, l.queries.positions, l.queries.data) for l in s.layers]')" ]
	run -0 --separate-stderr kv-prefill -m "$DEMO" --observe 30 -r x.kv -o y.kv more.txt
	assert_regex "$stderr" 'the snapshot has 12 queries before them'
	assert_equal "$(see y.kv '[len(l.queries.positions) - 12 for l in s.layers]')" "$(see y.kv '[len(s.tokens) - min(l.queries.positions) - 12 for l in s.layers]')"
	kv-observe -m "$DEMO" --ids-from draft.ids --accumulate sum -o x.kv z.kv
	kv-prefill -m "$DEMO" -r x.kv -o y.kv more.txt
	see y.kv '[l.paid for l in s.layers]' | grep -x 'None None None None'
}

@test "ids outside the vocabulary and an empty draft are refused" {
	kv-prefill -m "$DEMO" -o x.kv doc.txt
	printf '1\n1536\n' >bad.ids
	run -3 --separate-stderr kv-observe -m "$DEMO" --ids-from bad.ids -o y.kv x.kv
	[[ "$stderr" == *'bad.ids: line 2: "1536" is not a token id below 1536'* ]]
	run -3 --separate-stderr kv-observe -m "$DEMO" --ids-from /dev/null -o y.kv x.kv
	[[ "$stderr" == *"/dev/null: there is no token"* ]]
	run -1 --separate-stderr kv-observe -m "$DEMO" --ids-from missing.ids -o y.kv x.kv
	[[ "$stderr" == *"missing.ids"* ]]
	[ ! -e y.kv ]
}

@test "wrong options are usage errors" {
	kv-prefill -m "$DEMO" --observe 4 -o x.kv doc.txt
	for wrong in "" "--ids-from draft.ids --repeat-context" "--ids-from draft.ids --accumulate mean" \
	    "--ids-from draft.ids --accumulate max --keep-window 2" "--repeat-context --keep-window 2" \
	    "--repeat-context --chunk 0" "--ids-from draft.ids --keep-window 5"; do
		run -2 --separate-stderr kv-observe -m "$DEMO" $wrong -o y.kv x.kv
	done
	[[ "$stderr" == *"--keep-window 5: x.kv holds 4 queries of stored tokens"* ]]
	run -2 --separate-stderr kv-observe -m "$DEMO" --ids-from - -o y.kv <x.kv
	[[ "$stderr" == *"cannot both come from standard input"* ]]
	run -2 kv-observe --ids-from draft.ids -o y.kv x.kv
	[ ! -e y.kv ]
}

@test "--json says what was run and kept, beside the same snapshot, which needs a file" {
	kv-prefill -m "$DEMO" -w 6 -o x.kv doc.txt
	for options in "--ids-from draft.ids" "--ids-from draft.ids --keep-window 4" "--ids-from draft.ids --accumulate sum" \
	    "--repeat-context --chunk 100"; do
		# shellcheck disable=SC2086
		{
			kv-observe -m "$DEMO" $options -o want.kv x.kv
			kv-observe -m "$DEMO" $options -o got.kv --json - <x.kv
		} >got.json
		cmp want.kv got.kv
		assert_equal "$(json got.json '[o[k] for k in ("snapshot", "output")]')" "['stdin', 'got.kv']"
		assert_equal "$(json got.json 'o["tokens"], o["repeat_context"]')" \
		    "($(kv-info --json got.kv | json - 'o["provenance"][-1]["options"]["tokens"]'), $([[ $options == --repeat* ]] && echo True || echo False))"
		case $options in
		*sum) want="('sum', None)" ;;
		--repeat*) want="('max', None)" ;;
		*) want="(None, $(kv-info --json got.kv | json - 'o["layers"][0]["queries"]'))" ;;
		esac
		assert_equal "$(json got.json 'o["accumulate"], o["queries"]')" "$want"
		assert_equal "$(json got.json 'sorted(o["seconds"])')" "['load', 'run']"
	done
	run -2 --separate-stderr kv-observe -m "$DEMO" --ids-from draft.ids --json x.kv
	assert_equal "$stderr" "kv-observe: --json: standard output is for the snapshot: give -o FILE"
}

@test "a context whose tokens are not where its positions are, or not the model's, is not repeated" {
	kv-prefill -m "$DEMO" doc.txt | kv-score --method recent | kv-evict --rate 0.5 --positions compact -o compact.kv
	run -5 --separate-stderr kv-observe -m "$DEMO" --repeat-context -o y.kv compact.kv
	[[ "$stderr" == *"compact.kv: "*" tokens, but the next position is "* ]]
	kv-observe -m "$DEMO" --ids-from draft.ids -o y.kv compact.kv
	rm y.kv
	head -n 3 draft.ids | tr ' ' '\n' | head -n 4 | kv-prefill -m "$DEMO" --ids -o short.kv
	run -1 --separate-stderr kv-observe -m "$DEMO" --repeat-context -o y.kv short.kv
	[[ "$stderr" == *"nothing is left"* ]]
	[ ! -e y.kv ]
}

@test "a truncated or damaged snapshot is refused with 3, and no output is left" {
	kv-prefill -m "$DEMO" -o x.kv doc.txt
	head -c 30000 x.kv >cut.kv
	run -3 --separate-stderr kv-observe -m "$DEMO" --ids-from draft.ids -o y.kv cut.kv
	[[ "$stderr" == *truncated* ]]
	cp x.kv bad.kv
	printf X | dd of=bad.kv bs=1 seek=30000 conv=notrunc status=none
	run -3 --separate-stderr kv-observe -m "$DEMO" --ids-from draft.ids -o y.kv bad.kv
	[[ "$stderr" == *checksum* ]]
	run -3 kv-check <(kv-observe -m "$DEMO" --ids-from draft.ids bad.kv)
	[ -z "$(ls y.kv* 2>/dev/null)" ]
}

@test "what was not stored cannot be scored while a prompt runs or text is generated" {
	kv-prefill -m "$DEMO" -o x.kv doc.txt
	run -2 --separate-stderr kv-prefill -m "$DEMO" --score kvzip --evict rate=0.5 -o y.kv doc.txt
	assert_equal "$stderr" "kv-prefill: --score: method kvzip needs probe tokens, which only kv-observe runs"
	run -2 --separate-stderr kv-decode -m "$DEMO" --score kvzip --evict budget=50 x.kv
	assert_equal "$stderr" "kv-decode: --score: method kvzip needs probe tokens, which only kv-observe runs"
	[ ! -e y.kv ]
}

@test "eviction without scores keeps what tokens paid to the rows that stay" {
	kv-prefill -q -m "$DEMO" -o x.kv "$ROOT/examples/prompts/harbour.txt"
	head -n 8 <(kv-tokenize -m "$DEMO" "$ROOT/examples/prompts/harbour.txt") >draft.ids
	kv-observe -q -m "$DEMO" --ids-from draft.ids --accumulate sum -o paid.kv x.kv
	printf '0 0\n1 0\n0 0\n0 0\n' >mask
	run -0 --separate-stderr kv-evict --head-mask mask --sink 4 --recent 20 -o out.kv paid.kv
	assert_equal "$stderr" ''
	kv-check out.kv
	kv-score --method kvzip -o scored.kv out.kv
	kv-score --method kvzip -o all.kv paid.kv
	assert_equal "$(scores scored.kv 1 1)" "$(see all.kv '[x for i, x in enumerate(s.layers[1].scores.values[1]) if i < 4 or i >= len(s.layers[1].scores.values[1]) - 20]')"
}
