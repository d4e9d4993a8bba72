#!/usr/bin/env bats
# kv-footprint: logs of real pipelines and logs made by hand, PruLong's figures, tables

load helper

setup() {
	cd "$BATS_TEST_TMPDIR" || exit 1
}

oracle() {
	"$PYTHON" "$ORACLE/footprint.py" "$@"
}

# ids FIRST LAST: a prompt of these token ids
ids() {
	seq $((100 + $1)) $((100 + $2))
}

prefill() {
	kv-prefill -m "$DEMO" --ids "$@"
}

# agrees SNAPSHOT: kv-footprint and the count token after token give the same, whole, for each head and layer; with what was run and not
# stored, and without
agrees() {
	agrees_on "$1" '' ''
	agrees_on "$1" --stored-only stored
}

# agrees_on SNAPSHOT OPTION WORD
agrees_on() {
	oracle log "$1" ${3:+"$3"} >want.json
	kv-footprint --json --by head ${2:+"$2"} "$1" >got.json
	kv-footprint --json --by layer ${2:+"$2"} "$1" >layers.json
	"$PYTHON" - <<-'E'
		import json
		want, got, layers = (json.load(open(f)) for f in ('want.json', 'got.json', 'layers.json'))
		same = lambda a, b: abs(a - b) < 1e-12
		assert got['tokens'] == want['tokens'] and got['rows'] == want['rows'], (got, want)
		assert all(same(got[k], want[k]) for k in ('footprint', 'memory', 'peak', 'kept')), (got, want)
		for key, values in want['heads'].items():
		    n, g = map(int, key.split())
		    head = got['layers'][n]['heads'][g]
		    assert all(map(same, values, (head[k] for k in ('footprint', 'memory', 'peak', 'kept')))), (key, head)
		for n, layer in enumerate(layers['layers']):
		    heads = got['layers'][n]['heads']
		    for k in 'footprint', 'memory', 'kept':
		        assert same(layer[k], sum(h[k] for h in heads) / len(heads)), (n, layer)
		    assert same(layer['peak'], want['layer_peaks'][n]) and 'heads' not in layer
	E
}

# measures SNAPSHOT FOOTPRINT PEAK KEPT [MEMORY [OPTION]]: as shares, to 12 digits; memory is the footprint, unless it is given
measures() {
	kv-footprint --json ${6:+"$6"} "$1" >got.json
	"$PYTHON" -c '
import json, sys
o = json.load(open("got.json"))
want = [eval(x) for x in sys.argv[1:]]
got = [o[k] for k in ("footprint", "peak", "kept", "memory")]
assert all(abs(a - b) < 1e-12 for a, b in zip(got, want)), (got, want)' "$2" "$3" "$4" "${5:-$2}"
}

@test "a window of 4, token by token: 26 of 36 entries are 72.2 %" {
	ids 1 4 | prefill --chunk 1 -o c.kv
	for token in 5 6 7 8; do
		ids $token $token >next
		kv-score --method recent --sink 0 c.kv | kv-evict --budget 3 | prefill -r - -o c.kv next
	done
	run -0 kv-footprint c.kv
	assert_output "$(cat <<-E
		footprint    memory      peak      kept         bytes  snapshot
		   72.22%    72.22%    50.00%    50.00%          4096  c.kv
	E
	)"
	measures c.kv 26/36 4/8 4/8
	agrees c.kv
}

@test "chunks of 4, a sink and a window of 3, then decoding: 82 of 136 entries are 60.29 %" {
	ids 1 4 | prefill -o c.kv
	for first in 5 9; do
		ids $first $((first + 3)) >next
		kv-score --method recent --sink 1 c.kv | kv-evict -q --budget 4 | prefill -r - -o c.kv next
	done
	for _ in 1 2 3 4; do
		kv-score --method recent --sink 1 c.kv | kv-evict --budget 4 |
		    kv-decode -m "$DEMO" --ids --ignore-eos -n 1 -o c.kv - >/dev/null
	done
	measures c.kv 82/136 8/16 5/16
	agrees c.kv
	kv-check c.kv
}

@test "nothing dropped is 100 %, whatever the chunks, decoded tokens included" {
	ids 1 100 | prefill --chunk 40 -o full.kv
	kv-decode -m "$DEMO" --ids --ignore-eos -n 7 -o more.kv full.kv >/dev/null
	measures more.kv 1 1 1
	agrees more.kv
}

@test "rows that are dropped after the prompt were there while it ran" {
	ids 1 50 | prefill | kv-score --method random - | kv-evict --budget 20 -o small.kv
	measures small.kv 1 1 0.4
	kv-decode -m "$DEMO" --ids --ignore-eos -n 10 -o more.kv small.kv >/dev/null
	# 50 * 51 / 2 rows of the prompt, 10 * 20 + 10 * 11 / 2 of decoding, of 60 * 61 / 2
	measures more.kv '(1275 + 255) / 1830' 50/60 30/60
	agrees more.kv
}

@test "a snapshot without a log is not measured, and the message says what to do" {
	ids 1 50 | prefill -o full.kv
	strip eVNt full.kv bare.kv
	run -1 --separate-stderr kv-footprint bare.kv
	assert_regex "$stderr" 'bare.kv has no event log.*make it with kv-prefill from the start'
	kv-check bare.kv
}

@test "heads that grow and shrink each in its own way are averaged, and a layer may keep fewer rows than it runs" {
	oracle write x.kv '[[[0,2,5,6],[5,6]],[[1,6],[0,3,6]]]' 7 '[[1,4,4,0,2],
	    [1,5,1,0,2,[[4,5],[4,5],[4,4],[4,5]]],
	    [3,5,0,0,2,[[5,2],[5,0],[4,0],[5,1]]],
	    [2,7,2,0,2]]'
	agrees x.kv
	oracle write x.kv '[[[0,2,5,6],[5,6]],[[1,6],[0,3,6]]]' 7 '[[1,5,5,0,2],
	    [3,5,0,0,2,[[5,2],[5,0],[5,1],[5,1]]],
	    [1,7,2,0,2,[[2,4],[0,2],[1,2],[1,3]]]]'
	agrees x.kv
	# by hand: heads have 15 + 7, 15 + 3, 15 + 3, 15 + 5 of 28 entries, the whole cache 20 rows before the eviction
	measures x.kv '(22 + 18 + 18 + 20) / 112' 20/28 11/28
	run -0 kv-footprint --by head x.kv
	assert_line --regexp '^footprint +memory +peak +kept +bytes +layer +head +snapshot$'
	assert_line --regexp '^ +69\.64% +69\.64% +71\.43% +39\.29% +[0-9]+ +all +all  x\.kv$'
	assert_line --regexp '^ +78\.57% +78\.57% +71\.43% +57\.14% +[0-9]+ +0 +0  x\.kv$'
	assert_line --regexp '^ +64\.29% +64\.29% +71\.43% +28\.57% +[0-9]+ +1 +0  x\.kv$'
	run -0 kv-footprint --by layer x.kv
	assert_line --regexp '^ +71\.43% +71\.43% +71\.43% +42\.86% +[0-9]+ +0  x\.kv$'
}

@test "a prompt that runs layer by layer, evicting in each, never holds more than one whole layer, and attends to all of it" {
	rows='[[[1,3],[1,3]],[[0,1],[2,3]]]'
	oracle write x.kv "$rows" 4 '[[1,4,4,0,1],[3,4,0,0,1,[[4,2],[4,2]]],
	    [1,4,4,1,2],[3,4,0,1,2,[[4,2],[4,2]]]]'
	agrees x.kv
	# layer 0: 10 entries while it runs, 4 * 2 while layer 1 runs, each half the time; layer 1: 10, half the time
	measures x.kv 20/20 '(2 + 4) / 8' 4/8 '(10 / 2 + 8 / 2 + 10 / 2) / 20'
	# the same with all layers at once
	oracle write y.kv "$rows" 4 '[[1,4,4,0,2],[3,4,0,0,2,[[4,2],[4,2],[4,2],[4,2]]]]'
	measures y.kv 1 1 4/8
}

@test "a prompt that is run twice counts twice, one that loses rows on the way for those that are run" {
	rows='[[[0,1],[0,1]],[[0,1],[0,1]]]'
	# layer 0 scores, all goes, the chosen rows run again (GemFilter)
	oracle write x.kv "$rows" 4 '[[1,4,4,0,1],[3,4,0,0,1,[[4,0],[4,0]]],[1,4,2,0,2]]'
	agrees x.kv
	measures x.kv '(10 + 3 + 3) / 20' 4/8 4/8 '(10 / 2 + 3 + 3) / 20'
	# layer 1 sees half of the rows (TSP)
	oracle write x.kv '[[[0,1,2,3],[0,1,2,3]],[[0,1],[0,1]]]' 4 '[[1,4,4,0,1],[1,4,2,1,2]]'
	agrees x.kv
	measures x.kv '(10 + 3) / 20' 6/8 6/8 '(10 / 2 + 2 * 4 / 2 + 3 / 2) / 20'
}

@test "tokens that run and are not stored count with the rows that they see, their own included, and not with --stored-only" {
	rows='[[[0,1,2,3],[0,1,2]],[[1,2,3],[3]]]'
	# 3 rows, a run of 2 in all layers, one of 5 in layer 1, then a fourth row that not every KV head keeps
	oracle write x.kv "$rows" 4 '[[1,3,3,0,2],[1,3,2,0,2,[[3,3],[3,3],[3,3],[3,3]]],[1,3,5,1,2,[[3,3],[3,3]]],
	    [3,3,0,1,2,[[3,2],[3,0]]],[2,4,1,0,2,[[3,4],[3,3],[2,3],[0,1]]]]'
	agrees x.kv
	# of 40: the prompt 6 in each of 4 heads, the run 2 * 3 + 3, that of layer 1 5 * 3 + 15 in two of them, the last token 3 + 1, 3, 2 + 1, 1
	measures x.kv '(4 * 6 + 4 * 9 + 2 * 30 + 11) / 40' '(6 + 16) / 16' 11/16 '(4 * 6 + 4 * 9 + (2 * 30 + 2 * 15) / 2 + 11) / 40'
	measures x.kv '(4 * 6 + 11) / 40' 12/16 11/16 '' --stored-only
	run -0 kv-footprint --by head x.kv
	assert_line --regexp '^ +180\.00% +255\.00% +125\.00% +75\.00% +[0-9]+ +0 +1  x\.kv$'
}

@test "what runs without being stored is in the log: of kv-observe, of each chunk that is repeated, and of --patch" {
	ids 1 60 | prefill -o x.kv
	ids 1 7 >draft
	kv-observe -m "$DEMO" --ids-from draft -o draft.kv x.kv
	agrees draft.kv
	measures draft.kv '(1830 + 7 * 60 + 28) / 1830' 67/60 1
	measures draft.kv 1 1 1 '' --stored-only
	# 4 sinks, then 20, 20 and 16 tokens; 8 tokens lead into the second and third chunk, and nothing asks
	kv-observe -m "$DEMO" --repeat-context --chunk 20 --instruction '' -o repeat.kv x.kv
	agrees repeat.kv
	measures repeat.kv '(1830 + 20 * 60 + 210 + 28 * 60 + 406 + 24 * 60 + 300) / 1830' 88/60 1
	# of each chunk of 20 ten rows stay, behind the first two 5 tokens run: 20, 10, 30, 20, 40
	ids 1 60 | prefill -c 20 --once --patch 5 --score snapkv --evict rate=0.5 -o patch.kv
	agrees patch.kv
	measures patch.kv '(210 + 20 * 10 + 210 + 20 * 20 + 210 + 5 * 20 + 15 + 5 * 30 + 15) / 1830' 40/60 30/60
	measures patch.kv '(210 + 20 * 10 + 210 + 20 * 20 + 210) / 1830' 40/60 30/60 '' --stored-only
	# the log goes on in the programs that come after
	kv-score --method snapkv draft.kv | kv-evict --budget 20 | kv-decode -m "$DEMO" --ids --ignore-eos -n 3 -o after.kv - >draft
	kv-observe -m "$DEMO" --ids-from draft -o after.kv after.kv
	assert_equal "$(see after.kv '[(e.kind, e.run, e.n) for e in s.events]')" "(1, False, 60) (1, True, 7) (3, False, 0) (2, False, 3) (1, True, 3)"
	agrees after.kv
	kv-check after.kv
	# a snapshot without a log gets none
	strip eVNt x.kv bare.kv
	kv-observe -m "$DEMO" --ids-from draft -o draft.kv bare.kv
	run -1 --separate-stderr kv-footprint draft.kv
	assert_regex "$stderr" 'has no event log'
}

@test "the worked example of the page is what the events say, counted token after token" {
	seq 4 | prefill --score 'recent sink=0' --evict budget=2 -o four.kv
	assert_equal "$(see four.kv '[(e.kind, e.n, e.l0, e.l1) for e in s.events]')" \
	    "(1, 4, 0, 1) (3, 0, 0, 1) (1, 4, 1, 2) (3, 0, 1, 2) (1, 4, 2, 3) (3, 0, 2, 3) (1, 4, 3, 4) (3, 0, 3, 4)"
	agrees four.kv
	measures four.kv 40/40 10/16 8/16 22/40
	oracle log four.kv >want.json
	line=$(json want.json '"%8.2f%% %8.2f%% %8.2f%% %8.2f%% %13d  four.kv" % (*(100 * o[k] for k in ("footprint", "memory", "peak", "kept")), 16 * 2 * 32 * 2)')
	run -0 kv-footprint four.kv
	assert_equal "${lines[1]}" "$line"
	grep -qxF -e "$line" "$ROOT/man/kv-footprint.1"
}

@test "selected tokens count in the layers that they reach, GemFilter's first run in its layers" {
	ids 1 50 >all
	prefill --tsp-layer 2 --tsp-rate 0.2 --tsp-window 4 -o tsp.kv all
	agrees tsp.kv
	measures tsp.kv '(3 * 1275 + 55) / 4 / 1275' '(3 * 50 + 10) / 200' 160/200 '(3 * 1275 * 3 / 4 + (3 * 50 * 10 + 55) / 4) / 4 / 1275'
	prefill --gemfilter-layer 1 --gemfilter-budget 10 -o gem.kv all
	agrees gem.kv
	measures gem.kv '(2 * 1275 + 4 * 55) / 4 / 1275' 100/200 40/200 '(2 * 1275 / 2 + 4 * 55) / 4 / 1275'
}

@test "a log that does not agree with itself or with the rows is refused with event, layer and head" {
	rows='[[[0,2],[5,6]],[[1,6],[0,3,6]]]'
	oracle write a.kv "$rows" 7 '[[1,7,7,0,2],[3,7,0,0,2,[[7,2],[7,2],[7,2],[7,2]]]]'
	oracle write b.kv "$rows" 7 '[[1,7,7,0,2],[3,7,0,1,2,[[6,2],[7,3]]]]'
	oracle write c.kv "$rows" 7 '[[1,7,4294967295,1,2],[1,7,1,1,2]]'
	run -3 --separate-stderr kv-footprint a.kv
	assert_equal "$stderr" "kv-footprint: a.kv: eVNt: layer 1 head 1: 2 rows after the last event, 3 in the snapshot"
	run -3 --separate-stderr kv-footprint b.kv
	assert_equal "$stderr" "kv-footprint: b.kv: eVNt: event 1: layer 1 head 0: 6 rows before it, 7 after the event before"
	run -3 --separate-stderr kv-footprint c.kv
	assert_equal "$stderr" "kv-footprint: c.kv: eVNt: event 1: layer 1 head 0: more than 2^32 rows"
	# its rows are sound: other programs go on, and do not hide it
	kv-info a.kv >/dev/null
	kv-score --method recent --sink 0 a.kv | kv-evict --budget 1 -o e.kv
	run -3 --separate-stderr kv-footprint e.kv
	assert_equal "$stderr" "kv-footprint: e.kv: eVNt: event 2: layer 1 head 1: 3 rows before it, 2 after the event before"
}

@test "damage is found, in a file and in a pipe" {
	head -c 5000 "$ROOT/formats/vectors/passed/events.kv" >cut.kv
	run -3 --separate-stderr kv-footprint cut.kv
	assert_regex "$stderr" 'cut.kv: truncated'
	run -3 --separate-stderr kv-footprint <cut.kv
	assert_regex "$stderr" 'stdin: truncated'
	run -0 kv-footprint <"$ROOT/formats/vectors/passed/events.kv"
	assert_line --regexp '  stdin$'
	agrees "$ROOT/formats/vectors/passed/events.kv"
}

@test "a false bit in any byte but those of keys and values is found, in a pipe also there; and those change no figure" {
	cp "$ROOT/formats/vectors/passed/events.kv" "$ROOT/formats/vectors/passed/events-planes.kv" .
	mkdir damaged
	"$PYTHON" - "$FORMAT" <<-'E'
		import subprocess, sys
		sys.path.insert(0, sys.argv[1])
		import kvread
		for name in 'events.kv', 'events-planes.kv':
		    data = open(name, 'rb').read()
		    unread = set()
		    for x in kvread.read(open(name, 'rb')).sections:
		        at = x.offset + 64 + (24 * len(x.blocks) + 63) // 64 * 64
		        if x.type in ('KEYS', 'VALS'):
		            unread.update(range(at, at + (x.stored_size + 63) // 64 * 64))
		    assert 0 < len(unread) < len(data) / 3
		    figures = subprocess.run(['kv-footprint', name], capture_output=True, check=True).stdout
		    for i in range(0, len(data), 7):
		        damaged = data[:i] + bytes([data[i] ^ 1 << i % 8]) + data[i + 1:]
		        open('damaged/' + name, 'wb').write(damaged)
		        run = subprocess.run(['kv-footprint', name], cwd='damaged', capture_output=True)
		        if i in unread:
		            assert run.returncode == 0 and run.stdout == figures, (name, i, run)
		        else:
		            assert run.returncode in (3, 5) and not run.stdout and run.stderr, (name, i, run)
		        run = subprocess.run(['kv-footprint'], input=damaged, capture_output=True)
		        assert run.returncode in (3, 5) and not run.stdout and run.stderr, (name, i, run)
	E
}

@test "several snapshots stand below each other" {
	ids 1 9 | prefill -o x.kv
	run -0 kv-footprint x.kv x.kv
	assert_equal "${#lines[@]} ${lines[1]}" "3 ${lines[2]}"
	run -0 bash -c 'kv-footprint --json x.kv x.kv | "$PYTHON" -c "
import json, sys
d, text = json.JSONDecoder(), sys.stdin.read()
one, at = d.raw_decode(text)
print(sorted(one), d.raw_decode(text[at + 1:])[0] == one)"'
	assert_output "['footprint', 'kept', 'kv_bytes', 'memory', 'peak', 'rows', 'snapshot', 'tokens'] True"
}

# prulong WANT PEAK P R C S W SPARSITY HEADS: the published figures, and the formulas derived anew
prulong() {
	local want=$1 peak=$2 args
	shift 2
	args=(--prompt "$1" --generate "$2" --chunk "$3" --sink "$4" --recent "$5" --sparsity "$6" --head-sparsity "$7")
	run -0 kv-footprint --convention prulong "${args[@]}"
	assert_equal "$(tr -s ' ' <<<"${lines[1]}")" " $want% $peak%"
	kv-footprint --convention prulong --json "${args[@]}" >got
	oracle prulong "$@" >want
	"$PYTHON" -c '
import json
got, want = json.load(open("got")), json.load(open("want"))
assert got.keys() == want.keys()
assert all(abs(got[k] - want[k]) <= 1e-12 * abs(want[k]) for k in want), (got, want)'
}

@test "PruLong's own counting gives the figures of methods and paper" {
	prulong 72.22 50.00 5 3 1 0 3 0 1
	prulong 72.22 50.00 5 3 1 1 2 0 1
	prulong 72.22 50.00 4 4 4 1 2 0 1
	prulong 60.29 50.00 12 4 4 1 3 0 1
	prulong 80.15 65.62 12 4 4 1 3 0 0.5
	prulong 50.42 48.35 110000 100 32768 128 1024 0 0.7
	prulong 36.47 34.96 110000 100 8192 128 1024 0 0.7
	prulong 49.53 47.73 110000 100 32768 0 0 0.7 0
	prulong 35.84 34.93 110000 100 8192 0 0 0.7 0
	prulong 99.87 99.91 110000 100 0 0 0 0.7 0
	# round() is to even: half of 129 and of 131 rows; and more kept than there are
	prulong 83.84 81.45 393 6 129 7 9 0.5 0.25
	prulong 84.08 82.71 393 6 131 7 9 0.5 0.25
	prulong 100.00 100.00 1 0 0 0 0 1 0
}

@test "a pipeline that does what the formula assumes has the footprint of the formula" {
	# the streaming heads are above, 82 of 136; evicting ones: 130 of 132 rows of each chunk stay, the script's 64 included
	ids 1 132 | prefill --chunk 132 -o c.kv
	kv-score --method recent --sink 0 c.kv | kv-evict --budget 130 -o c.kv
	ids 1 132 >next
	prefill --chunk 132 -r c.kv -o c.kv next
	read -r entries full < <(kv-footprint --convention prulong --prompt 264 --chunk 132 --sparsity 0.5 --json |
	    json - '"%d %d" % (o["evicting_entries"], o["full_entries"])')
	measures c.kv "$entries/$full" 262/264 262/264
}

table() {
	printf '%s\n' "$@" >t.txt
}

# critical [OPTION ...]: the lines of kv-footprint --critical, with single blanks
critical() {
	run -0 kv-footprint --critical t.txt "$@"
	output=$(sed 's/^ *//' <<<"$output" | tr -s ' ')
	mapfile -t lines <<<"$output"
}

@test "the critical footprint lies on the line between two points" {
	table '# a comment' 'a 40 95' 'full 100 100' 'a 10 50' '' 'b 5 0.5' '  b 25 180 ' $'a\t20\t80'
	critical
	assert_output "$(cat <<-E
		score 90, 0.9 of 100
		critical first reached method
		33.3333 33.3333 once a
		14.9721 14.9721 once b
	E
	)"
	critical --keep 50%
	assert_line '<10 <10 always a'
	run -0 kv-footprint --critical - <t.txt
	assert_line --regexp '33.3333 +once +a$'
	sed -i /full/d t.txt
	critical --full 100
	assert_line '33.3333 33.3333 once a'
}

@test "the name of a method may have blanks in it" {
	table 'full 1 10' 'snapkv kernel=7 0.1 1' 'snapkv kernel=5  0.1 10' 'snapkv kernel=7 0.2 10'
	critical
	assert_line '0.188889 0.188889 once snapkv kernel=7'
	assert_line '<0.1 <0.1 always snapkv kernel=5'
}

@test "never, always and non-monotone are told apart" {
	table 'full 100 50' 'never 10 1' 'never 20 44.9' 'always 3 45' 'always 6 50' \
	    'dip 10 50' 'dip 20 40' 'dip 40 50' 'late 10 40' 'late 20 50' 'late 30 30' 'late 40 60' \
	    'falls 10 20' 'falls 20 50' 'falls 30 20'
	critical
	assert_line '>20 >20 never never'
	assert_line '<3 <3 always always'
	assert_line '30 <10 non-monotone dip'
	assert_line '35 15 non-monotone late'
	assert_line '>30 18.3333 non-monotone falls'
	kv-footprint --json --critical t.txt >t.json
	run -0 "$PYTHON" -c '
import json
for m in json.load(open("t.json")):
    print(m["method"], m["critical"], m["first"], m["reached"])'
	assert_line "never {'above': 20.0} {'above': 20.0} never"
	assert_line "late {'at': 35.0} {'at': 15.0} non-monotone"
	assert_line "dip {'at': 30.0} {'below': 10.0} non-monotone"
}

@test "a score that misses by a rounding error reaches" {
	table 'full 1 3' 'a 1 0.3' 'a 2 0.6'
	critical --keep 0.1
	assert_line '<1 <1 always a'
}

@test "tables that cannot be right are refused with the line" {
	bad() {
		table "${@:2}"
		run -3 --separate-stderr kv-footprint --critical t.txt
		assert_regex "$stderr" "^kv-footprint: t.txt: $1"
	}
	bad 'line 2: want method, footprint and score' 'full 100 1' 'a 1'
	bad 'line 1: want method, footprint and score' 'a'
	bad 'line 1: want method, footprint and score' ' 1 2'
	bad "line 1: 'x' is not a number" 'a x 2' 'full 1 1'
	bad "line 1: 'nan' is not a number" 'a 1 nan' 'full 1 1'
	bad "line 2: the score of the full cache is given twice" 'full 100 1' 'full 100 1' 'a 1 1'
	bad "the score of the full cache is 0, must be above 0" 'full 100 0' 'a 1 1'
	bad "there is no method 'full'.*give --full" 'a 1 1'
	bad "there is no method but 'full'" 'full 1 1'
	bad "method 'a' has two scores at footprint 10" 'full 1 1' 'a 10 1' 'a 10.0 2'
	bad "there is no method 'full'" ''
	printf 'a\t1\0\t2\n' >t.txt
	run -3 kv-footprint --critical t.txt
	run -1 kv-footprint --critical none.tsv
}

@test "options that do nothing are usage errors" {
	for args in '--stored-only --critical t' '--stored-only --convention prulong --prompt 5' '--by row x.kv' '--by layer --critical t' '--keep 0.5 x.kv' '--full 1 x.kv' '--critical t x.kv' \
	    '--convention other --prompt 5' '--convention prulong' '--convention prulong --prompt 5 x.kv' \
	    '--convention prulong --critical t --prompt 5' '--prompt 5 x.kv' '--sink 5 x.kv' '--sparsity 0 x.kv' \
	    '--head-sparsity 0.5 --critical t' '--convention prulong --prompt 5 --sparsity 1.1' \
	    '--convention prulong --prompt 5 --head-sparsity -1' \
	    '--convention prulong --prompt 4294967295 --generate 1' '--convention prulong --prompt 0'; do
		# shellcheck disable=SC2086 # arguments are words
		run -2 kv-footprint $args
	done
}

@test "a full disk is an error" {
	run -1 bash -c 'kv-footprint --convention prulong --prompt 5 >/dev/full'
}

@test "--plan prints the longest texts of equation 7, for the shape of the snapshot's model" {
	kv-prefill -m "$DEMO" -o demo.kv "$ROOT/examples/prompts/harbour.txt"
	for how in "3m 2000000 0 64 1" "40m 2000000 150000 512 3" "2800k 2000000 60000 1000 1"; do
		read -r limit weights head budget batch <<<"$how"
		kv-footprint --json --plan "$limit" --weights "$weights" --head-weights "$head" --budget "$budget" --batch "$batch" demo.kv >got.json
		"$PYTHON" - "$limit" "$weights" "$head" "$budget" "$batch" got.json <<-'END'
			import json, sys
			from fractions import Fraction
			limit, (weights, head, budget, batch) = sys.argv[1], map(int, sys.argv[2:6])
			limit = int(limit[:-1]) * (1 << 10 if limit[-1] == "k" else 1 << 20)
			L, H, D, alpha = 4, 2, 32, 2
			def takes(i, S):
			    return Fraction(13, 10) * (weights + head) + 4 * batch * H * D * ((L - i + 1 + alpha) * S + i * budget)
			for i, t in enumerate(json.load(open(sys.argv[6]))["thresholds"]):
			    assert t["layers"] == i
			    S = t["tokens"]
			    assert takes(i, 0) > limit if S is None else takes(i, S) <= limit < takes(i, S + 1), t
		END
	done
	run -0 kv-footprint --plan 2800k --weights 2000000 --head-weights 60000 --budget 100 demo.kv
	assert_line --index 0 'layers        tokens'
	assert_equal "${#lines[@]}" 6
	run -1 kv-footprint --plan 2m --weights 2000000 --budget 64 demo.kv
	assert_output --partial 'not a token fits'
	for args in '--plan 3m --budget 4' '--plan 3m --weights 2m' '--plan 3x --weights 2m --budget 4' '--plan 3m --weights 2m --budget 4 --critical t' \
		'--plan 3m --weights 2m --budget 4 a b' '--weights 2m' '--budget 4' '--plan 3m --weights 2m --budget 0'; do
		# shellcheck disable=SC2086 # arguments are words
		run -2 kv-footprint $args demo.kv
	done
}
