#!/usr/bin/env bats
# bats file_tags=nosan
# experiments/: retention maps, the text coloured by what is kept, heat maps of scores

load helper

E=$ROOT/experiments

setup_file() {
	cd "$BATS_FILE_TMPDIR" || exit 1
	printf 'A <b>bold</b> &amp; "quoted" line, 漢字 and 😀 naïve.\r\n\n\t</script><!-- %s\n' "$(small_talk 12)" >text
	kv-prefill -q -m "$DEMO" --observe 16 -o full.kv text
	kv-score --method snapkv full.kv | kv-evict --policy ada --rate 0.2 -o ada.kv
	kv-score --method recent full.kv | kv-evict --rate 0.1 --sink 2 -o '<i>&recent.kv'
}

setup() {
	cd "$BATS_TEST_TMPDIR" || exit 1
	F=$BATS_FILE_TMPDIR
}

need_matplotlib() {
	"$PYTHON" -c 'import matplotlib' 2>/dev/null || skip "no matplotlib for $PYTHON"
}

kept() {
	"$PYTHON" "$E/plot_kept.py" "$@"
}

text() {
	"$PYTHON" "$E/kept_text.py" -m "$DEMO" "$@"
}

depth() {
	"$PYTHON" "$E/plot_depth.py" "$@"
}

# refused STATUS TEXT COMMAND ...: ends with the status and one line that has the text, and prints nothing.
refused() {
	run --separate-stderr "${@:3}"
	assert_equal "$status" "$1"
	assert_equal "$output" ''
	[[ $stderr == *"$2"* ]] || fail "$stderr"
	assert_equal "${#stderr_lines[@]}" 1
	assert_equal "$(find . -name 'out.*' -o -name '.picture*')" ''
}

# positions_table FILE NAME BINS: what plot_kept.py --bins writes, from kv-info --positions
positions_table() {
	kv-info --positions "$1" | "$PYTHON" -c '
import sys
name, bins, tokens = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
bins = min(bins, tokens)
ends = [i * tokens // bins for i in range(bins + 1)]
for line in sys.stdin:
    layer, head, *rows = map(int, line.split())
    for a, b in zip(ends, ends[1:]):
        print(name, layer, head, a, b - 1, sum(a <= p < b for p in rows), sep="\t")' "$2" "$3" "$(kv-info --json "$1" | json - 'o["tokens"]')"
}

# page FILE EXPRESSION ...: prints Python expressions over a page: `texts`, those of the snapshots; `spans`, (class, first, n, text) of
# each; `data`, the counts; `tags`, all of them with their attributes. Tags are closed as they were opened.
page() {
	"$PYTHON" -c '
import html.parser, json, sys
VOID = {"meta"}
class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.tags, self.texts, self.spans, self.data, self.inside = [], [], [], [], "", False
    def handle_starttag(self, tag, attributes):
        a = dict(attributes)
        self.tags.append((tag, a))
        if tag not in VOID:
            self.open.append((tag, a))
        if a.get("class") == "text":
            self.texts.append("")
            self.spans.append([])
        if "data-i" in a:
            self.spans[-1].append([a["class"], int(a["data-i"]), int(a.get("data-n", 1)), ""])
    def handle_endtag(self, tag):
        opened = self.open.pop()[0]
        assert opened == tag, (opened, tag)
    def handle_data(self, text):
        tag, a = self.open[-1] if self.open else ("", {})
        if "data-i" in a:
            self.texts[-1] += text
            self.spans[-1][-1][3] += text
        elif a.get("id") == "data":
            self.data += text
        elif tag == "div":
            assert not text.strip(), text
p = Page()
p.feed(open(sys.argv[1], encoding="utf-8", newline="").read())
p.close()
assert not p.open, p.open
names = {"texts": p.texts, "spans": p.spans, "data": json.loads(p.data), "tags": p.tags}
for expression in sys.argv[2:]:
    print(eval(expression, names))' "$@"
}

@test "the numbers of a map are what kv-info --positions lists, in bins of one position and of many" {
	local bins
	for bins in 4096 7 1; do
		kept --bins "$bins" "$F/ada.kv" "$F/<i>&recent.kv" out.tsv
		{
			printf 'snapshot\tlayer\thead\tfirst\tlast\tkept\n'
			positions_table "$F/ada.kv" ada "$bins"
			positions_table "$F/<i>&recent.kv" '<i>&recent' "$bins"
		} >expected
		cmp expected out.tsv
	done
	# ragged: KV heads of a layer keep different numbers of rows
	[ "$(awk -F '\t' 'NR > 1 && $1 == "ada" { print $2, $3, $6 }' out.tsv | sort -u -k 1,1 -k 3,3 | wc -l)" -gt 4 ]
}

@test "maps are the same pictures each time, of the form that their name says" {
	need_matplotlib
	kept "$F/ada.kv" "$F/<i>&recent.kv" a.svg
	kept "$F/ada.kv" "$F/<i>&recent.kv" b.svg
	cmp a.svg b.svg
	"$PYTHON" -c 'import sys, xml.dom.minidom; xml.dom.minidom.parse("a.svg")'
	kept "$F/ada.kv" a.png
	assert_equal "$(head -c 8 a.png | od -An -tx1 | xargs)" '89 50 4e 47 0d 0a 1a 0a'
	kept "$F/ada.kv" a.PDF
	assert_equal "$(head -c 5 a.PDF)" '%PDF-'
}

# panel_rows FILE: of each panel, of how many bins some rows are kept, and of how many all are, from the paths of the picture
panel_rows() {
	"$PYTHON" - "$1" <<-'END'
		import re, sys, xml.etree.ElementTree as tree
		for group in tree.parse(sys.argv[1]).getroot().iter("{http://www.w3.org/2000/svg}g"):
		    some = full = 0
		    for path in group.iter("{http://www.w3.org/2000/svg}path"):
		        n = sum(int(w) // 2 for w in re.findall(r"h(\d+)v", path.get("d")))
		        some += n
		        full += n * (path.get("fill") == "#fde84a")
		    print(some, full)
	END
}

@test "panels are drawn without matplotlib, with the cells that the numbers have" {
	mkdir -p none/matplotlib
	echo 'raise ImportError' >none/matplotlib/__init__.py
	PYTHONPATH=none kept --panels "$F/ada.kv" "$F/<i>&recent.kv" a.svg
	kept --panels "$F/ada.kv" "$F/<i>&recent.kv" b.svg
	cmp a.svg b.svg
	# two panels of 394 pixels hold 197 bins of two
	kept --bins 197 "$F/ada.kv" "$F/<i>&recent.kv" out.tsv
	run -0 panel_rows a.svg
	assert_output "$(for name in ada '<i>&recent'; do
		awk -F '\t' -v name="$name" '$1 == name && $6 { some++; full += $6 == $5 - $4 + 1 } END { print some, full }' out.tsv
	done)"
	grep -qF '&lt;i&gt;&amp;recent</text>' a.svg
	kept --panels --title 'A: <one>' --mark '7=the & sign' "$F/ada.kv" c.svg
	grep -qF 'A:</tspan> &lt;one&gt;</text>' c.svg
	grep -qF '>the &amp; sign</text>' c.svg
	# at both ends of its column, and in the legend
	assert_equal "$(grep -c 'fill="#ff8a5c"' c.svg)" 3
	rm ./*.svg ./*.tsv
	refused 2 'out.png: --panels writes .svg' kept --panels "$F/ada.kv" out.png
	refused 2 '--panels: 5 snapshots, and 4 fit into a row' kept --panels "$F"/{ada,ada,ada,ada,ada}.kv out.svg
	refused 2 '--mark 4000: the text has fewer positions' kept --panels --mark 4000=x "$F/ada.kv" out.svg
	run -2 kept --title A --title B --panels "$F/ada.kv" out.svg
	assert_output --partial '--title: 2, and 1 snapshots'
	run -2 kept --mark 7=x "$F/ada.kv" out.tsv
	assert_output --partial '--title and --mark are of --panels'
}

@test "the page of a text is well-formed, needs no other file and has the whole text, character by character" {
	text "$F/ada.kv" "$F/<i>&recent.kv" >page.html
	page page.html 'len(texts)' 'texts[0] == texts[1]' >seen
	assert_equal "$(xargs <seen)" '2 True'
	page page.html 'texts[0]' | head -c -1 >shown
	# a carriage return would become a newline: it is shown as its picture
	kv-tokenize -m "$DEMO" "$F/text" | kv-tokenize -m "$DEMO" -d | sed 's/\r$/␍/' | cmp - shown
	page page.html '[t for t, a in tags if {"src", "href", "srcset", "action"} & set(a)]' '{t for t, a in tags} & {"link", "img", "iframe", "base", "i", "b"}' >seen
	assert_equal "$(xargs <seen)" '[] set()'
	# what stands in a token is no markup, also where it is too short for that
	run ! grep -E 'data-i="[0-9]+"( data-n="[0-9]+")?>([^<]*<[^/]|&<)' page.html
	run ! grep -nE 'https?:|url\(|@import' page.html
}

@test "the counts of a page are those of kv-info --positions, and the colours follow them" {
	text "$F/ada.kv" >page.html
	kv-info --positions "$F/ada.kv" >rows
	page page.html "(lambda rows, tokens: [[sum(r[0] == l and t in r[2:] for r in rows) for l in range(1 + max(r[0] for r in rows))] for t in range(tokens)])(
	    [list(map(int, line.split())) for line in open('rows')], len(data[0]['row'])) == [data[0]['rows'][i] for i in data[0]['row']]" >seen
	# 8 KV heads in all: half of them are in the class up to 50 %, all in the last, none in the first
	page page.html '{(sum(data[0]["rows"][data[0]["row"][i]]), c.split()[0]) for c, i, n, t in spans[0] if n == 1} <= set(
	    zip(range(9), ["k0", "k4", "k5", "k6", "k6", "k7", "k7", "k8", "k8"]))' 'data[0]["heads"]' \
	    'len(data[0]["row"])' '[i for c, i, n, t in spans[0] for i in range(i, i + n)] == list(range(len(data[0]["row"])))' >>seen
	assert_equal "$(xargs <seen)" "True True 2 $(kv-tokenize -m "$DEMO" --count "$F/text") True"
	assert_equal "$(page page.html 'all((" n" in c) == ("\n" in t) for c, i, n, t in spans[0])')" True
}

@test "tokens that are pieces of a character are put together, in byte-level and SentencePiece vocabularies" {
	text "$F/ada.kv" >page.html
	assert_equal "$(page page.html '[t for c, i, n, t in spans[0] if n > 1]')" "['漢', '字', '😀', 'ï']"
	# a U+FFFD of the text, and a character of which the text has one byte only
	"$PYTHON" - "$E" "$ROOT/tests/fixtures/tokenizers" <<-'END'
		import sys
		sys.path.insert(0, sys.argv[1])
		from task_prompts import call, ids_of
		from token_texts import Decoder, token_texts
		text = "Über 漢字 😀👩‍👧 naïve\n\ntab\t|~^ \ue000 end \ufffdx 漢"
		for name in ("llama2", "gemma", "gpt2", "qwen2", "llama3", "falcon", "metaspace"):
		    model = sys.argv[2] + "/" + name
		    ids = tuple(ids_of(call(["kv-tokenize", "-q", "-m", model, "--plain"], text)))
		    for some in (ids, ids[:-1]):
		        groups = token_texts(model, some)
		        assert [i for at, n, _ in groups for i in range(at, at + n)] == list(range(len(some))), name
		        shown, whole = "".join(t for _, _, t in groups), Decoder(model, some).text
		        # the space that SentencePiece puts before a text has a token of its own
		        assert shown in (whole, " " + whole, whole.replace(">", "> ", 1)), (name, shown, whole)
	END
}

@test "rows of resumed, decoded and sliding window caches and of tokens selected on the way are shown, too" {
	local file
	kv-prefill -q -m "$DEMO" --resume "$F/ada.kv" -o resumed.kv <<<' And more.'
	kv-decode -q -m "$DEMO" -n 4 -o decoded.kv resumed.kv >/dev/null
	kv-prefill -q -m "$DEMO" --select 'tsp layer=1 rate=0.3' -o selected.kv "$F/text"
	window_model windows 64 sfsf --layers 4
	kv-prefill -q -m windows -o whole.kv "$F/text"
	kv-score --method recent whole.kv | kv-evict --rate 0.3 -o windows.kv
	for file in resumed decoded selected windows; do
		kept --bins 50 "$file.kv" out.tsv
		tail -n +2 out.tsv | cmp - <(positions_table "$file.kv" "$file" 50)
		text "$file.kv" >page.html
		kv-info --json "$file.kv" >info
		assert_equal "$(page page.html 'sum(sum(data[0]["rows"][i]) for i in data[0]["row"])')" "$(json info 'o["rows"]')"
	done
}

@test "rows whose place in the text is not known, and caches that have all rows, are refused" {
	local mask=$DEMO/duoattention.tsv
	kv-score --method recent "$F/full.kv" | kv-evict --rate 0.2 --positions compact -o compact.kv
	refused 5 'compact.kv: its positions are not those of the text' kept compact.kv out.tsv
	refused 5 'compact.kv: its positions are not those of the text' text compact.kv
	# some heads keep all, so that the next position stays
	kv-evict --head-mask "$mask" --sink 4 --recent 16 --positions compact -o heads.kv "$F/full.kv"
	[ "$(kv-info --json heads.kv | json - 'o["next_position"] == o["tokens"]')" = True ]
	refused 5 'heads.kv: its positions are not those of the text' kept heads.kv out.tsv
	kv-prefill -q -m "$DEMO" --select 'gemfilter layer=1 rate=0.3' -o gem.kv "$F/text"
	refused 5 'GemFilter' text gem.kv
	refused 2 'full.kv: no row is missing' kept "$F/full.kv" out.tsv
	refused 2 'full.kv: no row is missing' text "$F/full.kv"
}

@test "bad input is refused: its kind gives the exit status, and no picture appears" {
	refused 3 'text: preamble' kept "$F/text" out.tsv
	head -c 20000 "$F/ada.kv" >short.kv
	refused 3 'short.kv: ' text short.kv
	refused 3 'short.kv: ' kept "$F/ada.kv" short.kv out.tsv
	refused 1 'none.kv: No such file' kept none.kv out.tsv
	refused 1 'nowhere/x.tsv: No such file' kept "$F/ada.kv" nowhere/x.tsv
	refused 2 'the name of a picture ends in .svg, .png, .pdf, .tsv' kept "$F/ada.kv" "$F/ada.kv"
	refused 2 'nowhere' "$PYTHON" "$E/kept_text.py" -m nowhere "$F/ada.kv"
	refused 4 'whitespace: not the tokenizer of the text: ' "$PYTHON" "$E/kept_text.py" -m "$ROOT/tests/fixtures/tokenizers/whitespace" "$F/ada.kv"
	run -2 kept --bins 0 "$F/ada.kv" out.tsv
	assert_output --partial '--bins 0: not between 1 and 4096'
}

@test "without matplotlib a picture is refused with the package's name, and numbers are not" {
	mkdir -p none/matplotlib
	echo 'raise ImportError("it is hidden")' >none/matplotlib/__init__.py
	PYTHONPATH=none refused 1 'the Python package matplotlib is needed (it is hidden)' kept "$F/ada.kv" out.svg
	PYTHONPATH=none kept "$F/ada.kv" numbers.tsv
	[ -s numbers.tsv ]
}

# graded METHOD RATE ...: questions of two lengths and three depths; at one depth of one length there are two
graded() {
	local rate
	for rate in "${@:2}"; do
		cat <<-END
			{"id": "$1-$rate-0", "task": "passkey", "method": "$1", "rate": $rate, "length": 512, "depth": 0.0, "score": 1}
			{"id": "$1-$rate-1", "task": "passkey", "method": "$1", "rate": $rate, "length": 512, "depth": 0.5, "score": $rate}
			{"id": "$1-$rate-2", "task": "passkey", "method": "$1", "rate": $rate, "length": 512, "depth": 0.5, "score": 0}
			{"id": "$1-$rate-3", "task": "passkey", "method": "$1", "rate": $rate, "length": 1024, "depth": 1.0, "score": 0.25}
			{"id": "$1-$rate-4", "task": "cwe", "method": "$1", "rate": $rate, "length": 1024, "depth": null, "score": 1}
		END
	done
}

@test "a heat map has the mean of each depth and length, for each method and rate, and the full cache beside each" {
	graded full 1 >full.jsonl
	graded snapkv 0.1 0.5 >snapkv.jsonl
	run --separate-stderr depth full.jsonl snapkv.jsonl out.tsv
	assert_equal "$status" 0
	assert_equal "$stderr" 'plot_depth.py: 3 questions without a depth are left out'
	{
		printf 'model\ttask\tmethod\trate\tlength\tdepth\tn\tscore\n'
		for rate in 0.1 0.5; do
			printf '\tpasskey\tfull\t1\t512\t0.0\t1\t100\n\tpasskey\tfull\t1\t512\t0.5\t2\t50\n\tpasskey\tfull\t1\t1024\t1.0\t1\t25\n'
			printf '\tpasskey\tsnapkv\t%s\t512\t0.0\t1\t100\n' "$rate"
			printf '\tpasskey\tsnapkv\t%s\t512\t0.5\t2\t%s\n' "$rate" "$([ "$rate" = 0.1 ] && echo 5 || echo 25)"
			printf '\tpasskey\tsnapkv\t%s\t1024\t1.0\t1\t25\n' "$rate"
		done
	} >expected
	cmp expected out.tsv
	depth --rate 0.5 --task passkey full.jsonl snapkv.jsonl half.tsv
	cmp half.tsv <(sed '2,7d' expected)
	if "$PYTHON" -c 'import matplotlib' 2>/dev/null; then
		depth full.jsonl snapkv.jsonl a.svg
		"$PYTHON" -c 'import sys, xml.dom.minidom; xml.dom.minidom.parse("a.svg")'
	fi
}

@test "rates may be texts, as the workflow has them, and many depths are put together in tenths" {
	"$PYTHON" -c '
import json
for rate in ("all", "0.50", "0.25"):
    for i in range(40):
        print(json.dumps({"id": "%s-%d" % (rate, i), "method": "full" if rate == "all" else "x", "rate": rate, "length": 300,
                          "depth": i / 40 + 0.001, "score": i % 2}))' >many.jsonl
	depth --rate 0.5 many.jsonl out.tsv
	cmp out.tsv <("$PYTHON" -c '
print("model\ttask\tmethod\trate\tlength\tdepth\tn\tscore")
for method, rate in (("full", "all"), ("x", "0.5")):
    for tenth in range(11):
        some = [i % 2 for i in range(40) if abs(i / 40 + 0.001 - tenth / 10) < 0.05]
        print("", "", method, rate, 300, tenth / 10, len(some), "%.6g" % (100 * sum(some) / len(some)), sep="\t")')
}

@test "scores that no heat map can be made of are refused" {
	graded snapkv 0.1 >a
	grep cwe a >b
	: >empty
	refused 2 'b: no question has a depth' depth b out.tsv
	refused 2 'empty: there is no line in it' depth empty out.tsv
	sed '3s/0.5/1.5/' a >c
	refused 2 'c: snapkv-0.1-2: the depth 1.5 is not between 0 and 1' depth a c out.tsv
	sed '3s/512/"own"/' a >c
	refused 2 'c: snapkv-0.1-2: length is not a number' depth c out.tsv
	sed '3s/"score": 0/"score": NaN/' a >c
	refused 2 'c:3: not JSON: NaN' depth c out.tsv
	sed '3d; 2s/.*/&\n&/' a >c
	refused 2 'c:3: there is a score of snapkv-0.1-1 before' depth c out.tsv
	refused 2 '--rate 0.7: there is no score with it' depth --rate 0.7 a out.tsv
	refused 2 '--task vt: there is no score with it' depth --task vt a out.tsv
}
