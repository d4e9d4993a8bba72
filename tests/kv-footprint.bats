#!/usr/bin/env bats
# kv-footprint: logs of real pipelines and logs made by hand

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
	prefill --select 'tsp layer=2 rate=0.2 window=4' -o tsp.kv all
	agrees tsp.kv
	measures tsp.kv '(3 * 1275 + 55) / 4 / 1275' '(3 * 50 + 10) / 200' 160/200 '(3 * 1275 * 3 / 4 + (3 * 50 * 10 + 55) / 4) / 4 / 1275'
	prefill --select 'gemfilter layer=1 budget=10' -o gem.kv all
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

@test "a pipeline that does what the formula assumes has the footprint of the formula" {
	# the streaming heads are above, 82 of 136; evicting ones: 130 of 132 rows of each chunk stay, the script's 64 included
	ids 1 132 | prefill --chunk 132 -o c.kv
	kv-score --method recent --sink 0 c.kv | kv-evict --budget 130 -o c.kv
	ids 1 132 >next
	prefill --chunk 132 -r c.kv -o c.kv next
	read -r entries full < <(kv-plan --prulong 'prompt=264 chunk=132 sparsity=0.5' --json |
	    json - '"%d %d" % (o["evicting_entries"], o["full_entries"])')
	measures c.kv "$entries/$full" 262/264 262/264
}

@test "a column that there is not is refused" {
	run -2 kv-footprint --by row x.kv
	assert_output --partial '--by row: want layer or head'
}
