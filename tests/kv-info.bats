#!/usr/bin/env bats
# kv-info: the same facts as the independent reader sees, as text and as JSON

load helper

setup() {
	cd "$BATS_TEST_TMPDIR" || exit 1
	mksnapshot -L 3 -H 8 -G 4 -E 16 -N 100 -w 5 -d bf16 --scores random --logits -o even.kv
	mksnapshot -L 3 -H 8 -G 4 -E 16 -N 100 --ragged -d f16 -z -o ragged.kv
}

version() {
	kv-info --version | sed -n '1s/.* //p'
}

# info FILE EXPRESSION [OPTION ...]: over the object o that kv-info prints
info() {
	kv-info --json "${@:3}" "$1" | json - "$2"
}

@test "--positions prints the rows of every KV head, and nothing else" {
	cd "$BATS_TEST_TMPDIR"
	mksnapshot -L 2 -G 2 -H 2 -N 5,3 -E 8 -o x.kv
	run -0 --separate-stderr kv-info --positions x.kv
	assert_equal "${#lines[@]}" 4
	for layer in 0 1; do
		for head in 0 1; do
			assert_line "$layer $head $(positions x.kv $layer $head)"
		done
	done
	run -2 kv-info --positions --json x.kv
}

@test "the text has exactly these lines" {
	kv-score --method snapkv even.kv | kv-evict --rate 25% -o small.kv
	run -0 kv-info small.kv
	assert_output "$(cat <<-E
		snapshot       small.kv
		model          llama, 3 layers, 8 query heads, 4 KV heads, head width 16, model width 128, ffn 512, vocabulary 1000
		               norm eps 1e-05, no attention bias, tied embeddings
		rope           default, theta 500000
		weights        00000000000000000000000000000000 bf16, by samples
		tokenizer      11111111111111111111111111111111
		dtype          bf16
		tokens         100
		next position  100
		rows           300, 25.0 % of tokens x layers x KV heads
		layers 0-2     25 rows in each KV head
		keys + values  19200 bytes, 19200 as stored
		in all         $(stat -c %s small.kv) bytes
		queries        none
		mass           none
		probe mass     none
		scores         none
		indexes        none
		logits         yes
		event log      none
		made by        mksnapshot $(version) {}
		               kv-score $(version) {"kernel":5,"method":"snapkv","order":"pool-first","over-queries":"sum","pool":"avg","reduce":"mean","weight":"none","window":5}
		               kv-evict $(version) {"rate":0.25,"recent":0,"sink":0}
	E
	)"
}

@test "queries, scores and ragged layers are shown" {
	run -0 kv-info even.kv
	assert_line "queries        5 in each layer"
	assert_line "mass           none"
	assert_line "scores         test"
	run -0 kv-info ragged.kv
	assert_line --regexp '^layer 0        [0-9]+ to [0-9]+ rows in a KV head, [0-9]+ in all$'
	assert_line "queries        none"
	assert_line "logits         no"
}

@test "attention received is shown, in text and JSON" {
	mksnapshot -L 3 --mass -o mass.kv
	run -0 kv-info mass.kv
	assert_line "mass           in each layer"
	assert_equal "$(info mass.kv "[l['mass'] for l in o['layers']]")" "[True, True, True]"
	assert_equal "$(info even.kv "[l['mass'] for l in o['layers']]")" "[False, False, False]"
}

@test "indexes are shown with their sizes, in text and JSON" {
	cp "$ROOT"/formats/vectors/passed/indexes{,-one-layer,-ragged}.kv .
	run -0 kv-info indexes.kv
	assert_line "indexes        keys in one bit, groups of 16 rows, in each layer, 344 bytes"
	assert_line "               bounds of pages of 4 rows, in each layer, 848 bytes"
	assert_line "               4 to 9 clusters in a KV head, 3 sink rows, in each layer, 952 bytes"
	assert_line "               keys of rank 5, 16 rows in chunks of 4, 2 chunks exact, in each layer, 1008 bytes"
	run -0 kv-info - <indexes-one-layer.kv
	assert_line "indexes        keys in one bit, groups of 16 rows, in 1 of 2 layers, 136 bytes"
	assert_equal "$(info even.kv "[l['indexes'] for l in o['layers']]")" "[{}, {}, {}]"
	assert_equal "$(info indexes.kv "[sorted(l['indexes']) for l in o['layers']]")" \
	    "[['bits', 'clusters', 'low_rank', 'pages'], ['bits', 'clusters', 'low_rank', 'pages']]"
	for file in indexes.kv indexes-one-layer.kv indexes-ragged.kv; do
		for what in "bits group bits.u bITS" "pages page pages.u pAGE" "clusters sink clusters.sink cLUS" \
		    "low_rank rank low_rank.rank lOWR" "low_rank rows low_rank.rows lOWR" "low_rank chunk low_rank.chunk lOWR"; do
			read -r name key field type <<<"$what"
			assert_equal "$(info $file "[(l['indexes']['$name']['$key'], l['indexes']['$name']['bytes']) for l in o['layers'] if '$name' in l['indexes']]")" \
			    "$(see $file "repr([(l.$field, x.raw_size) for n, l in enumerate(s.layers) for x in s.sections if (x.type, x.layer) == ('$type', n)])")"
		done
	done
	assert_equal "$(info indexes-ragged.kv "[[l['indexes']['clusters'][k] for k in ('clusters_min', 'clusters_max')] for l in o['layers']]")" "[[0, 12]]"
	assert_equal "$(info indexes.kv "[l['indexes']['low_rank']['exact'] for l in o['layers']]")" "[2, 2]"
}

@test "the events of a log are counted" {
	cp "$ROOT/formats/vectors/passed/events.kv" .
	run -0 kv-info events.kv
	assert_line "event log      3 prefill, 1 decode, 2 eviction"
	assert_equal "$(info events.kv "o['event_log']")" "{'prefill': 3, 'decode': 1, 'evict': 2, 'run': 0}"
	cp "$ROOT/formats/vectors/passed/events-runs.kv" .
	run -0 kv-info events-runs.kv
	assert_line "event log      3 prefill, 2 decode, 2 eviction, 3 run and not stored"
	assert_equal "$(info events-runs.kv "o['event_log']")" "{'prefill': 3, 'decode': 2, 'evict': 2, 'run': 3}"
	assert_equal "$(info even.kv "o['event_log']")" None
}

@test "attention mass of probe tokens and tokens that are not stored are shown, in text and JSON" {
	mksnapshot -L 3 -w 4 --own 3 --paid -o run.kv
	run -0 kv-info run.kv
	assert_line "queries        7 in each layer, 3 of them of tokens that are not stored"
	assert_line "mass           none"
	assert_line "probe mass     test"
	for key in queries own_keys probe_mass; do
		info run.kv "[l['$key'] for l in o['layers']]"
		info even.kv "[l['$key'] for l in o['layers']]"
	done >got
	printf '%s\n' '[7, 7, 7]' '[5, 5, 5]' '[3, 3, 3]' '[0, 0, 0]' '[True, True, True]' '[False, False, False]' | diff - got
}

@test "JSON has the numbers that the independent reader counts" {
	for file in even.kv ragged.kv; do
		assert_equal "$(info $file "o['rows'], [l['rows'] for l in o['layers']]")" \
		    "$(see $file 'repr((sum(sum(l.rows) for l in s.layers), [sum(l.rows) for l in s.layers]))')"
		assert_equal "$(info $file "[(l['rows_min'], l['rows_max']) for l in o['layers']]")" \
		    "$(see $file 'repr([(min(l.rows), max(l.rows)) for l in s.layers])')"
		assert_equal "$(info $file "o['tokens'], o['next_position'], o['bytes']")" \
		    "$(see $file "repr((len(s.tokens), s.head['next_position'], s.size))")"
		assert_equal "$(info $file "o['kv_bytes'], o['kv_stored_bytes']")" \
		    "$(see $file 'repr(tuple(sum(getattr(x, n) for x in s.sections if x.type in ("KEYS", "VALS")) for n in ("raw_size", "stored_size")))')"
		assert_equal "$(info $file "o['share_kept'] == o['rows'] / (o['tokens'] * 12)")" True
		assert_equal "$(info $file "json.dumps(o['model'], sort_keys=True)")" \
		    "$(see $file '__import__("json").dumps(s.head["model"], sort_keys=True)')"
		assert_equal "$(info $file "o['provenance']")" "$(see $file 'repr(s.provenance)')"
	done
	assert_equal "$(info even.kv "o['scores'], o['logits'], o['dtype'], [l['queries'] for l in o['layers']]")" \
	    "('test', True, 'bf16', [5, 5, 5])"
	assert_equal "$(info ragged.kv "o['scores'], o['logits'], o['dtype'], [l['queries'] for l in o['layers']]")" \
	    "(None, False, 'f16', [0, 0, 0])"
}

@test "the keys of the JSON object are these" {
	assert_equal "$(info even.kv "' '.join(o)")" "snapshot model dtype tokens next_position documents rows share_kept share_bytes layers \
kv_bytes kv_stored_bytes bytes scores logits head_keys event_log provenance"
	assert_equal "$(info even.kv "' '.join(o)" --all | cut -d ' ' -f 19-)" "sections stream_digest logical_digest"
}

@test "--all lists every section and the digests" {
	for file in even.kv ragged.kv; do
		assert_equal "$(info $file "[(x['type'], x['layer'], x['offset'], x['raw_bytes'], x['stored_bytes']) for x in o['sections']]" --all)" \
		    "$(see $file 'repr([(x.type, None if x.layer == 0xffffffff else x.layer, x.offset, x.raw_size, x.stored_size)
			for x in s.sections if x.type not in ("HEAD", "pADD", "iNDX", "ENDS")])')"
		assert_equal "$(info $file "o['stream_digest'], o['logical_digest']" --all)" \
		    "$(see $file 'repr((s.stream_digest, s.logical_digest))')"
	done
	run -0 kv-info --all even.kv
	assert_line "type  layer            raw         stored  ratio"
	assert_line "KEYS      2          12800          12800  1.000"
	assert_line "logical digest $(logical even.kv)"
}

@test "without a name it is standard input" {
	for option in "" --all --json --positions; do
		cmp <(kv-info $option <ragged.kv) <(kv-info $option - <ragged.kv)
	done
	run -3 --separate-stderr kv-info </dev/null
	assert_regex "$stderr" '^kv-info: stdin: .*truncated'
	run -2 script -qec kv-info /dev/null </dev/null
	assert_output --partial 'a snapshot is not read from a terminal'
}

@test "names that are not UTF-8 are shown in JSON, the wrong bytes as U+FFFD" {
	cp even.kv $'a\xffb.kv'
	run -0 kv-info --json $'a\xffb.kv'
	assert_line $'  "snapshot": "a\xef\xbf\xbdb.kv",'
}

@test "several files are shown one after another, and standard input is called stdin" {
	run -0 kv-info even.kv - <ragged.kv
	assert_line --index 0 "snapshot       even.kv"
	assert_line "snapshot       stdin"
	kv-info --json even.kv ragged.kv | "$PYTHON" -c '
import json, sys
text, n, decoder = sys.stdin.read(), 0, json.JSONDecoder()
while text.strip():
    o, end = decoder.raw_decode(text)
    text, n = text[end:].lstrip(), n + 1
assert n == 2'
}

@test "a damaged tensor is found with --all, and need not be found without" {
	offset=$("$PYTHON" -c 'import sys; d = open(sys.argv[1], "rb").read(); print(d.rfind(b"VALS", 0, d.find(b"LGTS")) + 1000)' even.kv)
	printf X | dd of=even.kv bs=1 seek="$offset" conv=notrunc status=none
	run -3 --separate-stderr kv-info --all even.kv
	assert_regex "$stderr" '^kv-info: even.kv: VALS layer 2.*checksum'
	run -0 kv-info even.kv
}

@test "damage, truncation, later versions and missing files have their exit codes" {
	for n in 0 10 64 100 5000; do
		head -c $n even.kv >cut.kv
		run -3 --separate-stderr kv-info cut.kv
		assert_regex "$stderr" '^kv-info: cut.kv: .*truncated'
	done
	run -1 --separate-stderr kv-info none.kv
	assert_regex "$stderr" '^kv-info: none.kv: .*No such file'
	later=$(grep -lx 5 "$ROOT"/formats/vectors/failed/*version*.why | head -n 1)
	run -5 --separate-stderr kv-info "${later%.why}.kv"
	assert_regex "$stderr" version
}

# text_of FILE WHERE: the text of a snapshot by the independent reader and the vocabulary, of ASCII, with gaps; a line of ids; their positions
text_of() {
	"$PYTHON" -c '
import json, sys
sys.path.insert(0, sys.argv[1])
import kvread
s, where = kvread.read(open(sys.argv[2], "rb")), sys.argv[3]
t = json.load(open(sys.argv[4] + "/tokenizer.json"))
name = {i: w.replace("\u0120", " ").replace("\u010a", "\n") for w, i in t["model"]["vocab"].items()}
name.update({a["id"]: a["content"] for a in t["added_tokens"]})
heads = [set(p) for l in s.layers for p in l.positions]
if where[0].isdigit():
    layer, *head = map(int, where.split(","))
    heads = [set(p) for p in s.layers[layer].positions][slice(*(head + [head[0] + 1])) if head else slice(None)]
kept = set.intersection(*heads) if where == "all" else set.union(*heads)
text, ids, at, gap = "", [], [], 0
for i, token in enumerate(s.tokens):
    if i in kept:
        text, ids, at, gap = text + name[token], ids + [token], at + [i], 0
    elif not gap:
        text, gap = text + "[...]", 1
sys.stdout.write(text)
open("ids", "w").write("".join(f"{i}\n" for i in ids))
open("at", "w").write(str(at))' "$FORMAT" "$1" "$2" "$DEMO"
}

@test "--ids and --text are the tokens and the text of a snapshot, or of the rows that are kept" {
	printf 'Who came by the harbour?\nThe old farmer carried the letter to the market. Nobody waited.' >text
	kv-prefill -m "$DEMO" -w 8 -o full.kv text
	kv-score --method snapkv full.kv | kv-evict --rate 0.3 --policy ada -o small.kv
	kv-info --ids full.kv | cmp - <(kv-tokenize -m "$DEMO" text)
	kv-info --text -m "$DEMO" full.kv | sed '1s/^<|[a-z_]*|>//' | cmp - text
	for where in any all 0 3 1,0 2,1; do
		text_of small.kv $where >want
		kv-info --text -m "$DEMO" --kept $where small.kv | cmp - want
		kv-info --ids --kept $where - <small.kv | cmp - ids
		kv-info --text -m "$DEMO" --json --kept $where small.kv >got.json
		assert_equal "$(json got.json 'o["positions"]')" "$(cat at)"
		assert_equal "$(json got.json '"".join(f"{i}\n" for i in o["ids"])')" "$(cat ids; echo)"
		[ "$(json got.json 'o["text"] == open("want").read()')" = True ]
	done
	grep -Fq '[...]' want
	assert_equal "$(kv-info --ids --kept any full.kv | md5sum)" "$(kv-info --ids full.kv | md5sum)"
	assert_equal "$(kv-info --ids --json full.kv | json - 'sorted(o)')" "['ids', 'snapshot', 'tokens']"
}

@test "a character of several tokens is whole in --text, and broken at a gap" {
	printf 'ab\xe2\x82\xaccd' >text
	kv-prefill -m "$DEMO" -o full.kv text
	kv-info --text -m "$DEMO" full.kv | grep -q $'ab\xe2\x82\xaccd$'
	kv-info --ids full.kv >ids
	{ for l in 0 1 2 3; do for g in 0 1; do echo "$l $g $(seq -s ' ' 0 $(($(wc -l <ids) - 4)))"; done; done; } >rows
	kv-evict --rows rows -o cut.kv full.kv
	kv-info --text -m "$DEMO" --kept any cut.kv >got
	iconv -f UTF-8 -t UTF-8 got >/dev/null
	grep -q $'\xef\xbf\xbd\\[\\.\\.\\.]$' got
}

@test "what --ids, --text and --kept cannot say is refused" {
	small_talk 2 >text
	kv-prefill -m "$DEMO" -o full.kv text
	kv-score --method knorm full.kv | kv-evict --rate 0.3 --positions compact -o compact.kv
	refused() { # STATUS MESSAGE OPTION ...
		run -"$1" --separate-stderr kv-info "${@:3}"
		assert_equal "$output" ""
		[[ "$stderr" == *"$2"* ]] || { echo "$stderr"; return 1; }
	}
	refused 5 'compact.kv: 81 tokens, and the next position is 24: the tokens of the rows are unknown' --ids --kept any compact.kv
	kv-info --ids compact.kv | cmp - <(kv-info --ids full.kv)
	for where in x '' -1 '1,' 1,x 1,2,3 99999999999999999999; do
		refused 2 "want any, all, LAYER or LAYER,HEAD" --ids --kept "$where" full.kv
	done
	refused 2 'there is no layer 4, only 4 layers' --ids --kept 4 full.kv
	refused 2 'there is no KV head 2, only 2 KV heads' --ids --kept 0,2 full.kv
	refused 2 'whose tokenizer?' --text full.kv
	refused 2 'give one of them' --ids --text -m "$DEMO" full.kv
	refused 2 'of the tokens that are kept' --kept any full.kv
	refused 2 '--all does not go with it' --ids --all full.kv
	refused 2 '--positions does not go with it' --ids --positions full.kv
	refused 2 'is of one snapshot' --ids full.kv full.kv
	refused 2 'its tokenizer is for --text' -m "$DEMO" full.kv
	cp -r "$DEMO" other
	"$PYTHON" -c 'import json
t = json.load(open("other/tokenizer.json"))
t["added_tokens"][0]["content"] = "<|other|>"
json.dump(t, open("other/tokenizer.json", "w"))'
	refused 4 'its tokens are of tokenizer' --text -m other full.kv
	kv-info --text -m "$DEMO" --kept all full.kv | sed '1s/^<|[a-z_]*|>//' | cmp - text
	head -c -40 full.kv >cut.kv
	refused 3 'cut.kv' --ids cut.kv
}
