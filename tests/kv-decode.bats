#!/usr/bin/env bats
# kv-decode: positions, sampling, stop texts, snapshots of what was generated; what it refuses

load helper

setup() {
	cd "$BATS_TEST_TMPDIR" || exit 1
	cat >doc.txt <<-'END'
		The quiet baker waited by the harbour. The access code of Marlow is K742. The old farmer carried the letter to the market after lunch.
		There was a green boat behind the mill. The secret word of Calton is falcon. Nobody waited near the quiet bridge on Monday.
		Question: what is the access code of Marlow?
	END
	printf 'Answer:' >>doc.txt
	kv-prefill -m "$DEMO" --observe 8 -o full.kv doc.txt
}

position() {
	kv-info --json "$1" | json - 'o["next_position"]'
}

@test "the answer is in the text, and an end token ends it" {
	run kv-decode -m "$DEMO" -n 200 full.kv
	[[ "$output" == " K742."* ]]
	[ ${#output} -lt 400 ]
}

@test "--rate 1 changes nothing that decode can see" {
	kv-score --method snapkv full.kv | kv-evict --rate 1 -o kept.kv
	[ "$(logical full.kv)" = "$(logical kept.kv)" ]
	[ "$(kv-decode -m "$DEMO" -n 40 --ignore-eos full.kv)" = "$(kv-decode -m "$DEMO" -n 40 --ignore-eos kept.kv)" ]
}

@test "decoding goes on at the true next position after an eviction, and a resume onto it works" {
	kv-score --method recent full.kv | kv-evict --budget 20 -o small.kv
	[ "$(position small.kv)" = "$(position full.kv)" ]
	kv-decode -m "$DEMO" -n 5 --ignore-eos --ids -o after.kv small.kv >ids
	[ "$(wc -l <ids)" -eq 5 ]
	[ "$(position after.kv)" -eq $(($(position full.kv) + 5)) ]
	"$PYTHON" "$FORMAT/kvread.py" --json after.kv >after.json
	printf ' The old farmer' | kv-prefill -m "$DEMO" -r after.kv -o resumed.kv -
	[ "$(position resumed.kv)" -gt "$(position after.kv)" ]
	kv-check resumed.kv
	kv-decode -m "$DEMO" -n 5 resumed.kv >/dev/null
}

@test "a snapshot after decoding equals a prefill of the same tokens" {
	kv-prefill -m "$DEMO" --dtype f32 -o f32.kv doc.txt
	kv-decode -m "$DEMO" -n 9 --ignore-eos --ids -o decoded.kv f32.kv >ids
	{ kv-tokenize -m "$DEMO" doc.txt; cat ids; } >all.ids
	kv-prefill -m "$DEMO" --ids --dtype f32 -o whole.kv all.ids
	errors_below 1e-5 "$PYTHON" "$ORACLE/same.py" whole.kv decoded.kv
	kv-decode -m "$DEMO" -n 9 --ignore-eos whole.kv >a
	kv-decode -m "$DEMO" -n 9 --ignore-eos decoded.kv >b
	cmp a b
}

@test "two halves of a generation give the same text as one" {
	kv-decode -m "$DEMO" -n 30 --ignore-eos full.kv >whole
	kv-decode -m "$DEMO" -n 13 --ignore-eos -o half.kv full.kv >parts
	kv-decode -m "$DEMO" -n 17 --ignore-eos half.kv >>parts
	cmp whole parts
}

@test "text ends before a stop text, also when the stop text spans tokens" {
	run kv-decode -m "$DEMO" --stop 742 full.kv
	[ "$output" = " K" ]
	run kv-decode -m "$DEMO" --stop zebra --stop $'.\n' full.kv
	[ "$output" = " K742" ]
	run -2 kv-decode -m "$DEMO" --stop '' full.kv
}

@test "the name of a special token as a stop text ends where that token ends the text" {
	kv-decode -m "$DEMO" -n 99 --ids -o ended.kv full.kv >want
	kv-decode -m "$DEMO" -n 99 --ids --ignore-eos --stop '<|end_of_text|>' -o stopped.kv full.kv | cmp want -
	same_but_provenance ended.kv stopped.kv
	kv-decode -m "$DEMO" -n 99 --ignore-eos --json --stop '<|end_of_text|>' full.kv >got.json
	assert_equal "$(json got.json 'o["stop"], o["stop_text"], len(o["ids"])')" "('text', '<|end_of_text|>', $(wc -l <want))"
	less "$(wc -l <want)" 99
}

@test "sampling is decided by the seed" {
	args=(-m "$DEMO" -n 30 --ignore-eos -t 1.5)
	kv-decode "${args[@]}" -s 7 full.kv >a
	kv-decode "${args[@]}" -s 7 full.kv >b
	kv-decode "${args[@]}" -s 8 full.kv >c
	cmp a b
	run ! cmp -s a c
}

@test "a tiny top-p, a min-p of 1 and a tiny temperature are greedy" {
	kv-decode -m "$DEMO" -n 20 --ignore-eos full.kv >greedy
	for option in "-t 1 --top-p 1e-9" "-t 1 --min-p 1" "-t 1e-6"; do
		# shellcheck disable=SC2086
		kv-decode -m "$DEMO" -n 20 --ignore-eos -s 3 $option full.kv | cmp greedy -
	done
}

@test "options out of range are usage errors" {
	for option in "-t -1" "--top-p 0" "--top-p 1.5" "--min-p 2" "-t nan"; do
		# shellcheck disable=SC2086
		run -2 kv-decode -m "$DEMO" $option full.kv
	done
}

@test "text appears token by token" {
	kv-decode -m "$DEMO" -n 1m --ignore-eos full.kv >out &
	pid=$!
	for _ in $(seq 200); do
		[ -s out ] && break
		sleep 0.05
	done
	[ -s out ]
	kill -0 $pid
	kill $pid
	wait $pid || true
}

@test "a snapshot without logits is refused and the message says what to do" {
	strip LGTS full.kv bare.kv
	run -1 --separate-stderr kv-decode -m "$DEMO" bare.kv
	[[ "$stderr" == *"no logits"*"--resume"* ]]
}

@test "a truncated snapshot gives no text, and an -o file is not made" {
	head -c 20000 full.kv >cut.kv
	run -3 --separate-stderr kv-decode -m "$DEMO" -o x.kv cut.kv
	[ -z "$output" ]
	[[ "$stderr" == *"cut.kv"*"truncated"* ]]
	[ ! -e x.kv ]
}

@test "a late write error of the text is an error" {
	run -1 --separate-stderr bash -c 'kv-decode -m "$0" full.kv >/dev/full' "$DEMO"
	[[ "$stderr" == *"No space left on device"* ]]
}

@test "-o onto the input replaces it only at the end" {
	cp full.kv same.kv
	kv-decode -m "$DEMO" -n 4 --ignore-eos -o same.kv same.kv >/dev/null
	kv-check same.kv
	[ "$(position same.kv)" -eq $(($(position full.kv) + 4)) ]
}

# ---- JSON ----

# reported TEXT IDS STOP OPTION ...: the object of --json has this text and these ids, which were printed with the same options, and
# says why it ended
reported() {
	"$PYTHON" - "$@" <<-'E'
		import json, sys
		text, ids, stop = sys.argv[1:4]
		o = json.load(open('got.json'))
		assert o['text'] == open(text, encoding='utf-8', newline='').read(), (o['text'], open(text).read())
		assert o['ids'] == [int(i) for i in open(ids)], o
		assert o['tokens'] == len(o['ids']) and o['stop'] == stop, o
		assert sorted(o['seconds']) == ['generate', 'load'] and min(o['seconds'].values()) >= 0, o
	E
}

@test "--json has the text and the ids that are printed without it, and says why it ended" {
	kv-score --method recent full.kv | kv-evict --budget 20 -o small.kv
	kv-prefill -m "$DEMO" --observe 8 --mass -o mass.kv doc.txt
	while read -r stop file options; do
		# shellcheck disable=SC2086
		{
			kv-decode -m "$DEMO" $options $file.kv >text
			kv-decode -m "$DEMO" --ids $options $file.kv >ids
			kv-decode -m "$DEMO" --json $options $file.kv >got.json
		}
		reported text ids "$stop"
	done <<-'E'
		eos full -n 200
		tokens full -n 3
		tokens full -n 0
		text full --stop zebra --stop 742
		tokens small -n 60 --ignore-eos -t 3 -s 4
		tokens full -n 60 --ignore-eos -t 9 -s 5
		tokens full -n 20 --ignore-eos --evict budget=40 --score tova
		tokens mass -n 20 --ignore-eos -w 4 --mass -o after.kv
	E
	kv-decode -m "$DEMO" --json --stop zebra --stop 742 full.kv >got.json
	assert_equal "$(json got.json 'o["snapshot"], o["stop_text"], "retrieval" in o')" "('full.kv', '742', False)"
	kv-decode -m "$DEMO" --json -n 3 <full.kv >got.json
	assert_equal "$(json got.json 'o["snapshot"], o["stop_text"]')" "('stdin', None)"
}

@test "--json goes with a snapshot that is kept, and with retrieval, whose report is in it" {
	kv-decode -m "$DEMO" -n 9 --ignore-eos -o text.kv full.kv >text
	kv-decode -m "$DEMO" -n 9 --ignore-eos -o json.kv --json full.kv >got.json
	cmp text.kv json.kv
	kv-quantize1b -o bits.kv full.kv
	args=(-m "$DEMO" -n 9 --ignore-eos --retrieve 'fier budget=9' --audit --stats stats)
	kv-decode "${args[@]}" bits.kv >text
	kv-decode "${args[@]}" --ids bits.kv >ids
	mv stats want
	kv-decode "${args[@]}" --json bits.kv >got.json
	reported text ids tokens
	cmp stats want
	assert_equal "$(json got.json 'o["retrieval"]')" "$(json stats o)"
}

@test "--json prints nothing but its object, and nothing when decoding fails" {
	run -2 --separate-stderr kv-decode -m "$DEMO" --json --ids full.kv
	assert_equal "$output" ""
	assert_regex "$stderr" "^kv-decode: --ids: the object of --json has the ids"
	head -c 20000 full.kv >cut.kv
	run -3 --separate-stderr kv-decode -m "$DEMO" --json cut.kv
	assert_equal "$output" ""
	run -1 --separate-stderr bash -c 'kv-decode -m "$0" --json full.kv >/dev/full' "$DEMO"
}

@test "the progress line counts tokens, and stays away from a terminal where the text comes" {
	run -0 --separate-stderr kv-decode -m "$DEMO" -n 5 --ignore-eos --progress always full.kv
	assert_regex "${stderr_lines[-1]}" '^kv-decode: decode 5/5 tokens, '
	assert_equal "$output" "$(kv-decode -m "$DEMO" -n 5 --ignore-eos full.kv)"
	for quiet in "--progress never" "--progress auto" "-q --progress always"; do
		# shellcheck disable=SC2086
		run -0 --separate-stderr kv-decode -m "$DEMO" -n 5 --ignore-eos $quiet full.kv
		assert_equal "$stderr" ""
	done
	run -0 script -qec "kv-decode -m '$DEMO' -n 5 --ignore-eos --progress always full.kv" /dev/null
	refute_output --partial tokens
	run -0 script -qec "kv-decode -m '$DEMO' -n 5 --ignore-eos --progress always --json full.kv" /dev/null
	assert_output --partial 'decode 5/5 tokens'
}
