#!/usr/bin/env bats
# bats file_tags=slow
# A text that is run, asked, forced and generated in parts is the text at once: words, characters of several tokens, stop texts

load helper

# sp: a tokenizer that puts a space before a text (Llama 2's kind); book and question are one text, cut where a line ends.
setup_file() {
	load helper
	cd "$BATS_FILE_TMPDIR" || return
	"$PYTHON" "$ROOT/tests/bin/mkmodel.py" sp --vocab 512 --tokenizer "$ROOT/tests/fixtures/tokenizers/llama2/tokenizer.json"
	printf 'The harbour is open.' >book
	printf '\non it? Yes, it is.' >question
	cat book question >whole
	kv-prefill -m sp -o book.kv book
	kv-prefill -m sp -o whole.kv whole
}

setup() {
	cd "$BATS_TEST_TMPDIR" || exit 1
	ln -s "$BATS_FILE_TMPDIR"/* .
}

# tail_ids: those that the whole text has behind the book
tail_ids() {
	kv-tokenize -m sp whole | tail -n +$(($(kv-tokenize -m sp --count book) + 1))
}

@test "what continues a snapshot has the ids of the whole text, in a file and in a pipe" {
	kv-prefill -m sp -r book.kv -o parts.kv question
	assert_equal "$(see parts.kv s.tokens)" "$(see whole.kv s.tokens)"
	kv-prefill -m sp -r - -o parts.kv question <book.kv
	assert_equal "$(see parts.kv s.tokens)" "$(see whole.kv s.tokens)"
	tail_ids | cmp - <(kv-tokenize -m sp --continue question)
	assert_equal "$(tail_ids | kv-tokenize -m sp -d --continue)" "$(cat question)"
}

@test "questions and forced texts continue a snapshot like any other text" {
	tail_ids >tail.ids
	"$PYTHON" -c 'import json, sys; print(json.dumps({"question": open("question").read()}))' >asked
	"$PYTHON" -c 'import json, sys; print(json.dumps({"question": "", "ids": [int(w) for w in open("tail.ids")]}))' >asked.ids
	cmp <(kv-decode -m sp -n 8 --questions asked book.kv) <(kv-decode -m sp -n 8 --questions asked.ids book.kv)
	cmp <(kv-decode -m sp --force question book.kv) <(kv-decode -m sp --ids --force tail.ids book.kv)
	cmp <(kv-decode -m sp --force question <book.kv) <(kv-decode -m sp --ids --force tail.ids <book.kv)
}

@test "what asks for a repetition continues a snapshot, too" {
	local text
	text=$(cat question; echo .)
	kv-observe -m sp --repeat-context --sink 0 --instruction "${text%.}" -o seen.kv book.kv
	assert_equal "$(see seen.kv 's.provenance[-1]["options"]["tokens"]')" \
	    "$(($(tail_ids | wc -l) + $(see book.kv 'len(s.tokens)')))"
}

@test "behind an added token a word begins anew, behind BOS alone a text does" {
	printf 'is open' >rest
	printf '1\n' | kv-prefill -m sp --ids -o bos.kv
	kv-prefill -m sp -r bos.kv -o parts.kv rest
	assert_equal "$(see parts.kv s.tokens)" "$(kv-tokenize -m sp rest | xargs)"
	printf 'It.</s>' | kv-prefill -m sp -o end.kv
	kv-prefill -m sp -r end.kv -o parts.kv rest
	assert_equal "$(see parts.kv s.tokens)" "$(printf 'It.</s>is open' | kv-tokenize -m sp | xargs)"
}

# ---- characters ----

# speaker NAME TEXT: a model that says this text, of which no token comes twice, behind its first token, which is a letter; NAME.kv
speaker() {
	# shellcheck disable=SC2046 # ids
	"$PYTHON" "$ROOT/tests/bin/mkchain.py" "$1" "$DEMO/tokenizer.json" $(printf %s "$2" | kv-tokenize -m "$DEMO" --no-template)
	printf '%.1s' "$2" | kv-prefill -q -m "$1" --no-template -o "$1.kv"
}

@test "ten tokens now and ten later are twenty at once, where characters of several tokens are cut, too" {
	local n i
	speaker c 'A😀é€Bz'
	kv-tokenize -m "$DEMO" --no-template --count <(printf '😀é€Bz') >n
	kv-decode -m c -n "$(cat n)" c.kv >whole.txt
	assert_equal "$(cat whole.txt)" '😀é€Bz'
	for n in 1 2 3 4 5 6 7; do
		cp c.kv x.kv
		for i in $(seq 0 "$n" $(($(cat n) - 1))); do
			kv-decode -m c -n "$(($(cat n) - i < n ? $(cat n) - i : n))" -o x.kv x.kv
		done >parts.txt
		cmp whole.txt parts.txt
	done
	kv-decode -m c -n 2 c.kv | cmp - <(printf '\xef\xbf\xbd')       # no more is to come
}

@test "a character that was begun is finished in batches, in JSON and from a pipe" {
	speaker c 'A😀é€Bz'
	kv-decode -q -m c -n 3 -o a.kv c.kv >first
	cp a.kv b.kv
	assert_equal "$(kv-decode -m c -n 2 a.kv b.kv | xargs)" '😀� 😀�'
	assert_equal "$(kv-decode -m c -n 3 --json <a.kv | json - 'o["text"]')" '😀é'
	kv-decode -m c -n 2 --json -o x.kv a.kv | json - 'ascii(o["text"])' | cmp - <(echo "'\\U0001f600'")
	echo 'A' >asked
	assert_equal "$(kv-decode -m c -n 4 --questions asked a.kv)" '😀'  # a question ends what was begun
}

# ---- stop texts ----

# choose FOLDER INSIDE OPTION ... SNAPSHOT: what it says next; a text of some tokens of that becomes `stop`, begins behind `count`
# tokens, and, where INSIDE is 1, behind the letter `rest` of the next one
choose() {
	kv-decode -q -m "$1" -n 40 --ids --ignore-eos -o said.kv "${@:3}" >said
	while read -r id; do
		echo "$id" | kv-tokenize -m "$DEMO" -d
		printf '\0'
	done <said >said.texts
	"$PYTHON" -c '
import sys
inside = int(sys.argv[1])
texts = open("said.texts", "rb").read().split(b"\0")[:-1]
whole = b"".join(texts)
for i in range(6, 36):
    stop = b"".join(texts[i:i + 4 - inside])[inside:]
    if (stop.isascii() and texts[i].isascii() and len(texts[i]) > inside and b"\n" not in stop and
            whole.find(stop) == len(b"".join(texts[:i])) + inside):
        open("stop", "wb").write(stop)
        open("rest", "wb").write(texts[i][:inside])
        open("count", "w").write(str(i))
        break
else:
    sys.exit(f"no text to stop at in {whole!r}")' "$2"
}

# same A B: two snapshots are equal but for how they were made and what has run
same() {
	local file
	for file in "$@"; do
		strip pROv "$file" "$file.1"
		strip eVNt "$file.1" "$file.2"
	done
	cmp "$1.2" "$2.2"
	kv-check -q "$1"
}

# cut FOLDER OPTION ... SNAPSHOT: the snapshot ends where the text does, at the end of a token and inside one
cut() {
	choose "$1" 0 "${@:2}"
	kv-decode -q -m "$1" --ignore-eos --stop "$(cat stop)" -o cut.kv "${@:2}" >text
	kv-decode -q -m "$1" --ignore-eos -n "$(cat count)" -o want.kv "${@:2}" | cmp - text
	same cut.kv want.kv
	choose "$1" 1 "${@:2}"
	kv-decode -m "$1" --ignore-eos --stop "$(cat stop)" -o cut.kv "${@:2}" >said.text 2>warnings
	[ ! -s warnings ]
	kv-decode -q -m "$1" --ignore-eos -n "$(cat count)" -o before.kv "${@:2}" >text
	set -- "$1" "${@:2:$#-2}" before.kv
	kv-decode -q -m "$1" --force rest -o want.kv "${@:2}" >forced
	cat text rest | cmp - said.text
	same cut.kv want.kv
}

harbour() {
	kv-prefill -q -m "$DEMO" "$@" "$ROOT/examples/prompts/harbour.txt"
}

@test "behind a stop text of several tokens nothing is left in the snapshot: rows, tokens, logits, attention mass" {
	harbour --mass -o full.kv
	cut "$DEMO" full.kv
	cut "$DEMO" --mass full.kv
	kv-footprint -q cut.kv >/dev/null       # the event log agrees with the rows
	kv-score --method meanmass cut.kv >/dev/null
}

@test "of a window of queries those of tokens that stay are kept" {
	harbour -w 16 -o full.kv
	choose "$DEMO" 0 full.kv
	kv-decode -q -m "$DEMO" --ignore-eos --stop "$(cat stop)" -w 8 -o cut.kv full.kv >text
	kv-decode -q -m "$DEMO" --ignore-eos -n "$(cat count)" -w 8 -o want.kv full.kv >text
	"$PYTHON" -c '
import sys
sys.path.insert(0, sys.argv[1])
import kvread
a, b = (kvread.read(open(name, "rb")).layers[1].queries for name in ("cut.kv", "want.kv"))
n = len(a.positions)
assert 0 < n < 8 and list(a.positions) == list(b.positions)[-n:], (a.positions, b.positions)' "$FORMAT"
}

@test "rows that a sliding window would have dropped meanwhile are there" {
	window_model w 6 sfs --layers 3 --std 0.3 --seed 4
	harbour -o ids.kv
	see ids.kv s.tokens | tr ' ' '\n' | head -n 60 | kv-prefill -m w --ids -o full.kv
	cut w full.kv
}

@test "indexes of all kinds are those of the shorter text, and tokens that retrieve are taken back as well" {
	harbour -o plain.kv
	small_indexes <plain.kv >full.kv
	cut "$DEMO" full.kv
	for method in fier quest clusterkv; do
		sampled cut "$DEMO" --retrieve "$method budget=40" full.kv
	done
	cut "$DEMO" --retrieve 'fier budget=40' --offload full.kv
}

@test "clusters that grew behind a stop text are taken back" {
	local prompt=$ROOT/examples/prompts/harbour.txt
	kv-tokenize -m "$DEMO" "$prompt" >ids
	# 312 rows in no cluster: the eighth token that is generated makes eight more
	head -n -312 ids | kv-prefill -q -m "$DEMO" --ids | kv-index --clusters --cluster-count 9 --sink-rows 5 -o front.kv
	tail -n 312 ids | kv-prefill -q -m "$DEMO" --ids -r front.kv -o full.kv
	choose "$DEMO" 0 full.kv
	kv-decode -q -m "$DEMO" --ignore-eos --stop "$(cat stop)" -o cut.kv full.kv >text
	kv-decode -q -m "$DEMO" --ignore-eos -n "$(cat count)" -o want.kv full.kv >text
	kv-decode -q -m "$DEMO" --ignore-eos -n "$(($(cat count) + 3))" -o grown.kv full.kv >text
	same cut.kv want.kv
	[ "$(see grown.kv 's.layers[0].clusters.ends[0]')" -gt "$(see cut.kv 's.layers[0].clusters.ends[0]')" ]
}

@test "keys of a retrieval head, with features, are those of the shorter text" {
	"$PYTHON" "$ROOT/tests/bin/mkhead.py" head --model "$DEMO" --layers 0,1,3 --heads 4 --kv-heads 2
	harbour --retrieval-head head -o full.kv
	choose "$DEMO" 0 --retrieve 'specontext budget=40 head=head' full.kv
	kv-decode -q -m "$DEMO" --ignore-eos --retrieve 'specontext budget=40 head=head' --stop "$(cat stop)" -o cut.kv full.kv >text
	kv-decode -q -m "$DEMO" --ignore-eos --retrieve 'specontext budget=40 head=head' -n "$(cat count)" -o want.kv full.kv >text
	same cut.kv want.kv
}

@test "what an eviction has dropped meanwhile does not come back, and the other rows are those of the shorter text" {
	local how
	harbour --mass -w 8 -o full.kv
	for how in "h2o" "recent" "tova"; do
		choose "$DEMO" 0 --score "$how" --evict budget=40 full.kv
		kv-decode -q -m "$DEMO" --ignore-eos --score "$how" --evict budget=40 --stop "$(cat stop)" -o cut.kv full.kv >text
		kv-decode -q -m "$DEMO" --ignore-eos --score "$how" --evict budget=40 -n "$(cat count)" -o want.kv full.kv | cmp - text
		assert_equal "$(see cut.kv s.tokens)" "$(see want.kv s.tokens)"
		assert_equal "$(kv-info --json cut.kv | json - 'o["next_position"]')" "$(kv-info --json want.kv | json - 'o["next_position"]')"
		"$PYTHON" -c '
import sys
sys.path.insert(0, sys.argv[1])
import kvread
a, b = (kvread.read(open(name, "rb")) for name in ("cut.kv", "want.kv"))
def rows(layer, g):
    size, first = len(layer.keys) // sum(layer.rows), sum(layer.rows[:g])
    return [bytes(layer.keys[(first + i) * size:(first + i + 1) * size]) for i in range(layer.rows[g])]
for x, y in zip(a.layers, b.layers):
    for g, (p, q) in enumerate(zip(x.positions, y.positions)):
        assert 30 < len(p) <= len(q) == 40 and set(p) <= set(q), (p, q)
        at = [list(q).index(i) for i in p]
        assert rows(x, g) == [rows(y, g)[i] for i in at]
        assert x.mass is None or [list(m) for m in x.mass[g]] == [[m[i] for i in at] for m in y.mass[g]]' "$FORMAT"
		kv-check -q cut.kv
		kv-footprint -q cut.kv >/dev/null
	done
}

@test "batches, JSON and pipes cut a snapshot in the same way" {
	harbour -o a.kv
	choose "$DEMO" 1 a.kv
	kv-decode -q -m "$DEMO" --ignore-eos --stop "$(cat stop)" -o want.kv a.kv >text
	kv-decode -q -m "$DEMO" --ignore-eos --stop "$(cat stop)" -o cut.kv <a.kv | cmp - text
	same_but_provenance cut.kv want.kv
	kv-decode -q -m "$DEMO" --ignore-eos --stop "$(cat stop)" --json -o cut.kv a.kv >o.json
	[ "$(json o.json 'o["text"]')" == "$(cat text)" ]
	same_but_provenance cut.kv want.kv
	small_talk 5 | kv-prefill -q -m "$DEMO" -o b.kv
	mkdir all
	kv-decode -q -m "$DEMO" --ignore-eos --stop "$(cat stop)" -o all a.kv b.kv >texts
	same_but_provenance all/a.kv want.kv
	# a token that is a stop text by its name, or ends the text, has never run
	kv-decode -q -m "$DEMO" --ignore-eos -n 3 --stop '<|eos|>' -o cut.kv a.kv >text
	kv-decode -q -m "$DEMO" --ignore-eos -n 3 -o want.kv a.kv >text
	same_but_provenance cut.kv want.kv
}

@test "the next turn, appended, follows a stop text only once" {
	speaker c 'A one. User:x'
	kv-decode -q -m c --stop 'User:' -o s.kv c.kv >text
	printf 'User: ok' | kv-prefill -q -m c -r s.kv -o t.kv
	assert_equal "$(see t.kv s.tokens | tr ' ' '\n' | kv-tokenize -m c -d)" 'A one. User: ok'
}

@test "a stop text that begins inside a character of the snapshot ends the text, with a warning" {
	speaker c 'A😀Bz'
	kv-decode -q -m c -n 1 -o x.kv c.kv
	run -0 --separate-stderr kv-decode -m c --stop '😀B' -o y.kv x.kv
	assert_output ''
	assert_equal "$(see y.kv s.tokens)" "$(see x.kv s.tokens)"
}
