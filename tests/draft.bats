#!/usr/bin/env bats
# kv-decode --draft: speculative decoding with a smaller snapshot of the same text

load helper

setup_file() {
	export KV_DEVICE=cpu
	cd "$BATS_FILE_TMPDIR" || return
	random_model gqa --layers 3 --hidden 96 --heads 6 --kv-heads 2 --head-dim 32 --ffn 128 --dtype f32 --seed 5 --std 0.15
	seq 5 204 >200.ids
	seq 300 306 >7.ids
	kv-prefill -m gqa --ids -w 8 --mass --query-stats -o gqa.kv 200.ids
	head -c 2500 "$ROOT/README.md" >text
	kv-prefill -m "$DEMO" -w 32 -o demo.kv text
	kv-score --method snapkv demo.kv | kv-evict -q --rate 0.2 -o demo-small.kv
	# a draft that is often wrong
	kv-score --method random demo.kv | kv-evict -q --rate 0.05 -o demo-wrong.kv
}

setup() {
	cd "$BATS_TEST_TMPDIR" || return
	ln -s "$BATS_FILE_TMPDIR"/* .
	export KV_MODEL=$DEMO
}

# same DRAFT FULL OPTION ... [-- OPTION OF THE DRAFT ...]: the text, and the snapshot behind it, are
# those without the draft
same() {
	local draft=$1 full=$2 options=()
	shift 2
	while [ $# -gt 0 ] && [ "$1" != -- ]; do
		options+=("$1")
		shift
	done
	kv-decode "${options[@]}" -o alone.kv "$full" >alone
	kv-decode "${options[@]}" "${@:2}" -o drafted.kv --draft "$draft" "$full" >drafted
	cmp alone drafted
	cmp alone.kv drafted.kv
}

# count FILE KEY: a number of the report
count() {
	"$PYTHON" -c 'import json, sys; print(json.load(open(sys.argv[1]))[sys.argv[2]])' "$@"
}

@test "text and snapshot are byte for byte those of the full cache, whatever the draft has kept" {
	local method option
	for method in snapkv tova h2o keydiff "recent --sink 2" random knorm meanmass expected "lagkv --lag 16"; do
		# shellcheck disable=SC2086 # words
		kv-score --method $method gqa.kv | kv-evict -q --rate 0.2 -o small.kv
		sampled same small.kv gqa.kv -m gqa --ids -n 40 --ignore-eos
	done
	kv-score --method snapkv -o scored.kv gqa.kv
	for option in "--rate 0.2 --policy ada" "--rate 0.2 --policy pyramid" "--budget 20 --positions compact" "--budget 1"; do
		# shellcheck disable=SC2086 # words
		kv-evict -q $option -o small.kv scored.kv
		sampled same small.kv gqa.kv -m gqa --ids -n 40 --ignore-eos
	done
	same demo-small.kv demo.kv -n 60
	same demo-wrong.kv demo.kv -n 60
}

@test "a draft may have any type, KIVI's included, which goes back over groups that were coded meanwhile" {
	local types
	for types in "--keys q8_0 --values q4_0" "--keys int8 --values fp8 --rotate" "--keys kivi2 --values kivi2 --residual 32" "--keys kivi4"; do
		# shellcheck disable=SC2086 # words
		kv-quantize $types -o small.kv demo.kv
		same small.kv demo.kv -n 60 --ignore-eos
	done
	# the full cache's rows, too, but for KIVI's
	kv-quantize --keys q8_0 --values q8_0 --rotate -o full.kv demo.kv
	same demo-small.kv full.kv -n 60
	kv-quantize --keys kivi4 -o kivi.kv demo.kv
	run -5 --separate-stderr kv-decode --draft demo-small.kv kivi.kv
	assert_equal "$output$stderr" "kv-decode: kivi.kv has full rows behind quantised ones (residual 128): its tokens are appended one by one: use it as the draft; or dequantise it: kv-quantize --keys bf16 --values bf16"
}

@test "every family of models gives the same text" {
	local name
	for name in mistral qwen2 qwen3 phi3 gemma2 gemma3 granite olmo2; do
		"$PYTHON" "$ROOT/tests/bin/mkfamily.py" $name $name "$DEMO/tokenizer.json"
		kv-prefill -m $name --ids -w 8 -o full.kv 200.ids
		kv-score --method snapkv full.kv | kv-evict -q --rate 0.2 -o small.kv
		same small.kv full.kv -m $name --ids -n 40 --ignore-eos
	done
}

@test "behind sliding windows, whose first row moves with each token, the text is the same" {
	random_model plain --layers 4 --hidden 96 --heads 6 --kv-heads 2 --head-dim 32 --ffn 128 --seed 7 --std 0.15
	window_model windows 50 sfsf --layers 4 --hidden 96 --heads 6 --kv-heads 2 --head-dim 32 --ffn 128 --seed 7 --std 0.15
	kv-prefill -m windows --ids -o full.kv 200.ids
	kv-score --method keydiff full.kv | kv-evict -q --rate 0.3 -o small.kv
	same small.kv full.kv -m windows --ids -n 80 --ignore-eos
	kv-prefill -m windows --ids -o short.kv 7.ids
	same short.kv short.kv -m windows --ids -n 80 --ignore-eos
}

@test "with a temperature the text is that of the seed, token for token" {
	local seed how
	for how in "-t 0.7" "-t 1 --top-p 0.9" "-t 1.3 --min-p 0.02"; do
		for seed in 1 2 3 4; do
			# shellcheck disable=SC2086 # words
			sampled same demo-small.kv demo.kv $how -s $seed -n 50 --ignore-eos
			# shellcheck disable=SC2086 # words
			sampled same demo-wrong.kv demo.kv $how -s $seed -n 50 --ignore-eos
		done
	done
}

@test "an end token, a stop text and the limit end text and snapshot where they end without a draft" {
	local n
	for n in 1 2 3 7 8 9; do
		same demo-small.kv demo.kv -n $n --ignore-eos
	done
	kv-decode -n 60 demo.kv >whole
	local part
	part=$(head -c 40 whole | tail -c 7)
	same demo-small.kv demo.kv -n 60 --stop "$part"
	same demo-wrong.kv demo.kv -n 60 --stop "$part" --stop " a"
	same demo-small.kv demo.kv -n 200
	# and goes on from there
	kv-decode -n 20 -o once.kv --draft demo-small.kv demo.kv >one
	kv-decode -n 20 once.kv >>one
	kv-decode -n 40 demo.kv | cmp one -
}

@test "a text that comes to the end of its model ends where it does without a draft" {
	local most draft want=
	"$PYTHON" "$ROOT/tests/bin/mkfamily.py" llama-dynamic llama-dynamic "$DEMO/tokenizer.json"
	most=$("$PYTHON" -c 'import json; print(json.load(open("llama-dynamic/config.json"))["max_position_embeddings"])')
	kv-prefill -m llama-dynamic --ids -o near.kv <(seq 8 $((most - 6)))
	for draft in "" "--draft near.kv --draft-tokens 7" "--draft near.kv"; do
		# shellcheck disable=SC2086 # words
		run -5 --separate-stderr kv-decode -m llama-dynamic --ids --ignore-eos -n 40 $draft near.kv
		[ -z "$draft" ] || assert_equal "$output$stderr" "$want"
		want=$output$stderr
	done
	assert_equal "$(grep -c '^[0-9]' <<<"$output")" 14
}

@test "work is counted with a draft, too" {
	kv-decode -n 20 --ignore-eos --report alone.json demo.kv >alone
	kv-decode -n 20 --ignore-eos --report drafted.json --draft-tokens 7 --draft demo.kv demo.kv | cmp - alone
	"$PYTHON" - <<-'END'
		import json
		alone, drafted = (json.loads(open(name).read()) for name in ("alone.json", "drafted.json"))
		# the draft is the full cache: every token runs in both, but for the last of each proposal
		assert drafted["accepted"] == drafted["drafted"] > 0
		assert 1.7 < sum(drafted["flops"].values()) / sum(alone["flops"].values()) < 2.2, (alone, drafted)
		assert drafted["tokens_run"] == alone["tokens_run"] == 19
	END
}

@test "a draft that retrieves, from memory or from its file, changes no text" {
	kv-index --pages -o pages.kv demo.kv
	kv-index --clusters -o clusters.kv demo.kv
	kv-quantize1b -o bits.kv demo.kv
	"$PYTHON" "$ROOT/tests/bin/mkhead.py" head --model "$DEMO" --layers 0,1,3 --heads 4 --kv-heads 2
	same pages.kv demo.kv -n 40 -- --retrieve "quest budget=64"
	same bits.kv demo.kv -n 40 -- --retrieve "fier budget=64"
	same bits.kv demo.kv -n 40 -- --retrieve "fier budget=64" --offload
	same clusters.kv demo.kv -n 40 -- --retrieve "clusterkv budget=64"
	kv-prefill -w 32 --retrieval-head head -o head.kv text
	# the provenance names the head
	kv-decode -n 40 -o alone.kv demo.kv >alone
	for offload in "" --offload; do
		# shellcheck disable=SC2086 # words
		kv-decode -n 40 $offload --draft head.kv --retrieve "specontext head=head budget=64" -o drafted.kv demo.kv | cmp - alone
		same_values alone.kv drafted.kv s.logical_digest s.events
	done
}

@test "indexes and gate scores of the full cache grow as without a draft" {
	kv-index --pages demo.kv | kv-quantize1b -o full.kv
	same demo-small.kv full.kv -n 60
	"$PYTHON" "$ROOT/tests/bin/mkgate.py" linear "$DEMO" kvzap
	kv-prefill --gate kvzap -o gate.kv text
	same demo-small.kv gate.kv -n 60 --gate kvzap
}

@test "questions: after each the full cache and the draft go back to the document" {
	printf '%s\n' "What is it?" " And who wrote all of this, and when?" "x" "What is it?" >questions
	kv-decode -n 30 --questions questions demo.kv >alone
	for draft in demo-small.kv demo-wrong.kv; do
		kv-decode -n 30 --questions questions --draft $draft demo.kv | cmp - alone
		kv-decode -n 30 -t 0.8 --questions questions --draft $draft demo.kv >drafted
		kv-decode -n 30 -t 0.8 --questions questions demo.kv | cmp - drafted
	done
	kv-quantize --keys kivi2 --values kivi2 --residual 32 -o kivi.kv demo.kv
	kv-decode -n 30 --questions questions --draft kivi.kv demo.kv | cmp - alone
	kv-index --pages -o pages.kv demo.kv
	kv-decode -n 30 --questions questions --draft pages.kv --retrieve "quest budget=64" demo.kv | cmp - alone
}

@test "the full cache as its own draft is always right: eight tokens a pass" {
	same demo.kv demo.kv -n 65 --ignore-eos -- --draft-tokens 7
	kv-decode -n 65 --draft-tokens 7 --ignore-eos --stats stats --draft demo.kv demo.kv
	assert_equal "$(count stats passes) $(count stats tokens) $(count stats drafted) $(count stats accepted)" "8 64 56 56"
	# the draft draws the text's random numbers
	kv-decode -n 65 -t 1.2 --draft-tokens 7 --ignore-eos --stats stats --draft demo.kv demo.kv
	assert_equal "$(count stats passes) $(count stats accepted)" "8 56"
	kv-decode -n 65 --ignore-eos --json --draft demo.kv demo.kv >o
	"$PYTHON" - <<-'END'
		import json
		o = json.load(open("o"))["draft"]
		assert o["accepted"] == o["drafted"] and o["tokens"] == 64, o
		assert all(p["judged"] == p["accepted"] for p in o["by_place"]) and len(o["by_place"]) == 7
		# 4, 6 and then 7 proposals
		assert o["passes"] == 9, o
	END
}

# accepts FULL DRAFT OPTION ...: proposals of 1, 3 and 7 tokens are accepted as far as --force finds
# each token of the text to be the likeliest behind the draft's rows and those of the text
accepts() {
	local full=$1 draft=$2 length
	shift 2
	kv-decode --ids --ignore-eos -n 90 $full >text.ids
	kv-decode --ids --json --force text.ids "$@" $draft >forced
	for length in 1 3 7; do
		kv-decode -q --ids --ignore-eos -n 90 --draft-tokens $length --stats stats "$@" --draft $draft $full >/dev/null
		"$PYTHON" - $length <<-'END'
			import json, sys
			top = [token["top"] for token in json.load(open("forced"))["each"]]
			length, stats = int(sys.argv[1]), json.load(open("stats"))
			# token k runs, and what is proposed behind it; the last token of a text does not run
			k, passes, drafted, accepted, n = 0, 0, 0, 0, len(top) - 1
			while k < n:
			    g = min(length, n - k - 1)
			    right = 0
			    while right < g and top[k + right + 1]:
			        right += 1
			    k, passes, drafted, accepted = k + right + 1, passes + 1, drafted + g, accepted + right
			got = [stats[name] for name in ("passes", "drafted", "accepted")]
			assert got == [passes, drafted, accepted], (length, got, passes, drafted, accepted)
			assert 0 < accepted < drafted or length < 3
		END
	done
}

# A state of the draft that is wrong after tokens that were not accepted would change no text.
@test "what is accepted is what is the likeliest token behind the draft's own rows, by --force" {
	kv-quantize --keys kivi2 --values kivi2 --residual 32 -o kivi.kv demo-small.kv
	kv-index --pages -o pages.kv demo.kv
	kv-index --clusters -o clusters.kv demo-small.kv
	for draft in demo-small.kv demo-wrong.kv kivi.kv clusters.kv; do
		accepts demo.kv $draft
	done
	accepts demo.kv pages.kv --retrieve "quest budget=64"
}

@test "the report adds up, and bytes are those of the rows that a pass and a step read" {
	kv-decode -n 50 --ignore-eos --json --draft-tokens 3 --draft demo-wrong.kv demo.kv >o
	kv-info --json demo.kv >full
	kv-info --json demo-wrong.kv >small
	"$PYTHON" - <<-'END'
		import json
		o, full, small = (json.load(open(name)) for name in ("o", "full", "small"))
		d = o["draft"]
		places = d["by_place"]
		assert d["tokens"] == 49 and d["draft"] == "demo-wrong.kv"
		assert d["accepted"] == sum(p["accepted"] for p in places) < d["drafted"]
		for one, two in zip(places, places[1:]):
		    assert two["judged"] <= one["accepted"]
		assert d["tokens"] == d["passes"] + d["accepted"]
		assert d["tokens_per_pass"] == d["tokens"] / d["passes"]
		row = full["kv_bytes"] // full["tokens"]
		assert full["kv_bytes"] * d["passes"] <= d["full_bytes"] <= (full["kv_bytes"] + 49 * row) * d["passes"]
		assert small["kv_bytes"] * d["draft_steps"] <= d["draft_bytes"] <= (small["kv_bytes"] + 51 * row) * d["draft_steps"]
	END
}

@test "a draft of another text is refused with 4, and the message names the token" {
	kv-prefill --ids -o other.kv 200.ids
	kv-prefill --ids -o shorter.kv <(head -n 150 200.ids)
	kv-prefill --ids -o changed.kv <(sed '101s/.*/9/' 200.ids)
	run -4 --separate-stderr kv-decode --draft changed.kv other.kv
	assert_equal "$output$stderr" "kv-decode: changed.kv: its token 100 is 9, and that of other.kv is 105: a draft must be of the same text"
	run -4 --separate-stderr kv-decode --draft shorter.kv other.kv
	assert_equal "$output$stderr" "kv-decode: shorter.kv has 150 tokens, and other.kv has 200: a draft must be of the same text"
	run -4 --separate-stderr kv-decode --draft gqa.kv other.kv
	assert_equal "$output" ""
	assert_regex "$stderr" "^kv-decode: gqa.kv is not of the model "
	head -c 5000 demo-small.kv >cut.kv
	run -3 --separate-stderr kv-decode --draft cut.kv demo.kv
	assert_equal "$output" ""
	run -1 --separate-stderr kv-decode --draft missing.kv demo.kv
	assert_regex "$stderr" "missing.kv: .*No such file"
}

@test "a draft from a pipe, and the full cache from one" {
	kv-decode -n 20 demo.kv >alone
	kv-decode -n 20 --draft - demo.kv <demo-small.kv | cmp - alone
	kv-decode -n 20 --draft demo-small.kv <demo.kv | cmp - alone
	run -2 --separate-stderr kv-decode --draft - - <demo.kv
	assert_equal "$output$stderr" "kv-decode: the snapshot and its draft cannot both come from standard input"
}

@test "what a draft cannot go with is refused with 2, with the reason" {
	local options reason
	while IFS='|' read -r options reason; do
		# shellcheck disable=SC2086 # words
		run -2 --separate-stderr kv-decode $options -o none.kv
		assert_equal "$output" ""
		assert_equal "$stderr" "kv-decode: $reason"
		assert [ ! -e none.kv ]
	done <<-'END'
		--draft-tokens 3 demo.kv|--draft-tokens: which snapshot proposes them? Give --draft, too
		--draft demo-small.kv --draft-tokens 8 demo.kv|--draft-tokens 8: want 1 to 7
		--draft demo-small.kv --evict budget=50 demo.kv|--evict does not go with --draft: the text is that of all rows; evict SMALL with kv-evict
		--draft demo-small.kv --mass demo.kv|--mass does not go with --draft: tokens that are not of the text run, too; decode without it
		--draft demo-small.kv --query-stats demo.kv|--query-stats does not go with --draft: tokens that are not of the text run, too; decode without it
		--draft demo-small.kv -w 8 demo.kv|--observe does not go with --draft: tokens that are not of the text run, too; decode without it
		--draft demo-small.kv --force text demo.kv|--draft does not go with --force: each token is given
		--draft demo-small.kv demo.kv demo.kv|--draft does not go with several snapshots: name one at a time
		--draft demo-small.kv --offload demo.kv|--offload: nothing is chosen without --retrieve
	END
}

@test "on a GPU a text with a draft is the one without; its products of several rows round otherwise" {
	PATH=$O/emulated:$PATH
	export KV_DEVICE=cuda
	kv-prefill -w 8 -o full.kv <(head -c 400 text)
	kv-score --method snapkv full.kv | kv-evict -q --rate 0.2 -o small.kv
	for how in "" "-t 0.8"; do
		# shellcheck disable=SC2086 # words
		kv-decode -n 24 $how -o alone.kv full.kv >alone
		# shellcheck disable=SC2086 # words
		kv-decode -n 24 $how -o drafted.kv --draft small.kv full.kv | cmp - alone
		same_values alone.kv drafted.kv s.tokens '[l.positions for l in s.layers]' s.events
	done
	kv-decode -n 24 --ignore-eos full.kv >alone
	kv-decode -n 24 --ignore-eos --draft full.kv full.kv | cmp - alone
}

@test "on a GPU the steps of a draft are launches of one captured graph, also after a token that was not accepted" {
	PATH=$O/emulated:$PATH
	export KV_DEVICE=cuda
	local launches steps
	kv-prefill -w 8 -o full.kv <(head -c 400 text)
	kv-score --method random full.kv | kv-evict -q --rate 0.1 -o wrong.kv
	KV_EMULATED_TOTALS=1 kv-decode -n 24 --ignore-eos --stats stats --draft wrong.kv full.kv >/dev/null 2>err
	assert [ "$(count stats accepted)" -lt "$(count stats drafted)" ]
	launches=$(sed -n 's/^emulator: .* products, \([0-9]*\) graphs.*/\1/p' err)
	steps=$(count stats draft_steps)
	# those before the capture, and those of several tokens at once after a pass that was right, are none
	echo "$launches launches of $steps steps"
	assert [ $((launches * 2)) -gt "$steps" ]
}
