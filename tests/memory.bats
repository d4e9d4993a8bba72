#!/usr/bin/env bats
# bats file_tags=slow,nosan
# How much memory the programs that need no model hold: about a layer, whatever the number of layers.
load helper

# Layers of 8 MiB (keys and values), ragged heads would only make them smaller.
setup_file() {
	load helper
	cd "$BATS_FILE_TMPDIR" || return
	for layers in 4 24; do
		mksnapshot -L $layers -H 4 -G 2 -E 64 -N 16384 -d bf16 --observe 8 --own 2 --mass --paid --query-stats --gate-scores "kvzap test" --noncausal "chunk=256 first=0" --scores random -o $layers.kv
		"$PYTHON" "$ORACLE/sine_filters.py" $layers.kv $layers.filters
	done
}

# peak COMMAND...: bytes; input and output are pipes, so that no mapped file counts. Large blocks go back to the system as soon as they
# are free: it is what a program holds that counts, not the gaps that its allocator is left with when threads come into its way.
peak() {
	ln -sf "$BATS_FILE_TMPDIR/$layers.filters" "$BATS_TEST_TMPDIR/filters"
	MALLOC_MMAP_THRESHOLD_=131072 "$PYTHON" "$ROOT/tests/bin/peak.py" "$@" < <(cat "$BATS_FILE_TMPDIR/$layers.kv") 2>"$BATS_TEST_TMPDIR/err" | cat >/dev/null
	[ "${PIPESTATUS[0]}" -eq 0 ] || return 1
	tail -n 1 "$BATS_TEST_TMPDIR/err"
}

# flat COMMAND...: 24 layers need no more than 4 (with a MiB for what the allocator does), and those less than three layers and
# what the program itself needs
flat() {
	local few many
	few=$(layers=4 peak "$@")
	many=$(layers=24 peak "$@")
	echo "$*: $few bytes with 4 layers, $many with 24"
	((many < few + (1 << 20)))
	((many < 3 * (8 << 20) + base))
}

@test "kv-score and kv-evict hold less than three layers, whatever the method" {
	not_under_sanitizers "programs hold memory of their own"
	mksnapshot -L 1 -H 4 -G 2 -E 64 -N 16 --observe 8 -o "$BATS_FILE_TMPDIR/1.kv"
	base=$(layers=1 peak kv-score --method snapkv)
	for method in $(kv-score --list | awk '{ print $1 }'); do
		in_sample 4 || continue
		more=()
		[ "$method" != qfilter ] || more=(--filters "$BATS_TEST_TMPDIR/filters")
		[ "$method" != fastkvzip ] || continue  # a snapshot has the scores of one method, here of kvzap
		flat kv-score --method "$method" "${more[@]}"
	done
	flat kv-quantize1b
	for rate in 0.1 0.9; do
		flat kv-evict --rate $rate
	done
}

@test "kv-index holds less than three layers, whatever it makes" {
	not_under_sanitizers "programs hold memory of their own"
	mksnapshot -L 1 -H 4 -G 2 -E 64 -N 16 -o "$BATS_FILE_TMPDIR/1.kv"
	base=$(layers=1 peak kv-index --low-rank)
	flat kv-index --pages
	flat kv-index --clusters --cluster-count 40 --iterations 2
	flat kv-index --low-rank
}

@test "kv-diff holds less than three layers of each snapshot, and no more when it retrieves" {
	not_under_sanitizers "programs hold memory of their own"
	cd "$BATS_FILE_TMPDIR" || return
	mksnapshot -L 1 -H 4 -G 2 -E 64 -N 16 --observe 8 -o 1.kv
	base=$(layers=1 peak kv-diff - 1.kv)
	few=$(layers=4 peak kv-diff - 4.kv)
	many=$(layers=24 peak kv-diff - 24.kv)
	echo "$few bytes with 4 layers, $many with 24"
	((many < few + (1 << 20)))
	((many < 6 * (8 << 20) + base))
	for layers in 4 24; do kv-quantize1b -o $layers.bits.kv $layers.kv; done
	few=$(layers=4.bits peak kv-diff --retrieve 'fier budget=256 dense=3')
	many=$(layers=24.bits peak kv-diff --retrieve 'fier budget=256 dense=23')
	echo "$few bytes with 4 layers, $many with 24"
	((many < few + (1 << 20)))
	((many < 3 * (8 << 20) + base))
}

@test "kv-evict --policy global holds the scores of all layers, and no more keys and values than else" {
	not_under_sanitizers "programs hold memory of their own"
	few=$(layers=4 peak kv-evict --policy global --rate 0.1)
	many=$(layers=24 peak kv-evict --policy global --rate 0.1)
	echo "$few bytes with 4 layers, $many with 24"
	scores=$((20 * 2 * 16384 * 4))
	((many < few + 2 * scores + (1 << 20)))
}

# below MIB COMMAND ...: its peak is below so many MiB; what it prints is in the file out, and its exit status does not count where it has nothing to do
below() {
	local mib=$1 held
	shift
	MALLOC_MMAP_THRESHOLD_=131072 "$PYTHON" "$ROOT/tests/bin/peak.py" "$@" 2>err >out || [[ $(cat err) == *"event log"* ]]
	held=$(tail -n 1 err)
	echo "$*: $held bytes"
	((held < mib << 20))
}

@test "a small file of many compressed tokens takes no more memory than a block of them" {
	not_under_sanitizers "programs hold memory of their own"
	cd "$BATS_TEST_TMPDIR" || return
	"$PYTHON" "$ROOT/tests/bin/mksmall.py" tokens 400 tokens.kv
	(($(stat -c %s tokens.kv) < 2 << 20))
	kv-score --method random -o scored.kv tokens.kv
	for command in kv-info "kv-info --json" kv-check "kv-score --method random" kv-footprint "kv-diff scored.kv" "kv-diff --json scored.kv" \
	    kv-quantize1b "kv-index --pages"; do
		below 32 $command tokens.kv
	done
	below 32 kv-evict --rate 1 scored.kv
}

@test "kv-decode has the tokens of a small file in memory once, and kv-convert a block of them" {
	not_under_sanitizers "programs hold memory of their own"
	cd "$BATS_TEST_TMPDIR" || return
	printf 'The boat lay in the harbour.' | kv-prefill -m "$DEMO" -o text.kv
	"$PYTHON" "$ROOT/tests/bin/mksmall.py" text 200 text.kv long.kv
	(($(stat -c %s long.kv) < 4 << 20))
	below $((200 + 100)) kv-decode -m "$DEMO" --device cpu -j 1 --ids -n 1 long.kv
	below 64 kv-convert -o /dev/null long.kv
}

@test "the reader in Python has the numbers of a small file in memory once" {
	cd "$BATS_TEST_TMPDIR" || return
	export PYTHONPATH=$ROOT/python
	local read='import sys
from kvsnapshot import container
s = container.read(open(sys.argv[1], "rb"))
'
	"$PYTHON" "$ROOT/tests/bin/mksmall.py" tokens 200 tokens.kv
	below $((200 + 32)) "$PYTHON" -c "$read"'assert len(s.tokens) == 50 << 20 and s.tokens[-1] == 0' tokens.kv
	below $((200 + 64)) "$PYTHON" -c 'import kvsnapshot
assert kvsnapshot.read("tokens.kv").tokens.shape == (50 << 20,)'
	"$PYTHON" "$ROOT/tests/bin/mksmall.py" numbers 4 numbers.kv
	(($(stat -c %s numbers.kv) < 1 << 20))
	kv-check numbers.kv
	# 58 MiB of sections; their last numbers are made when they are asked for
	below 96 "$PYTHON" -c "$read"'l, n = s.layers[0], 1 << 20
assert sum(x.raw_size for x in s.sections) > 58 * n
assert l.positions[0][-1] == l.queries.positions[-1] == l.low_rank.exact[0][-1] == n - 1
assert l.mass[0][0][-1] == l.paid.values[0][0][-1] == l.scores.values[0][-1] == l.clusters.labels[0][-1] == 0
assert len(s.logits) == len(s.head_keys.features) == n and s.logits[-1] == s.head_keys.features[-1] == 0
assert sum(e.n for e in s.events) == n and s.provenance[-1]["tool"] == "kv-prefill"' numbers.kv
	"$PYTHON" "$ROOT/tests/bin/mksmall.py" heads 2048 4096 heads.kv
	below 40 "$PYTHON" -c "$read"'assert sum(l.total + len(l.positions) for l in s.layers) == 2048 * 4096' heads.kv
}

@test "a section that is larger than the rest of the snapshot allows is refused before it is unpacked" {
	cd "$BATS_TEST_TMPDIR" || return
	"$PYTHON" - "$ROOT" <<-'END'
		import pathlib, sys
		sys.path[:0] = [sys.argv[1] + "/python", sys.argv[1] + "/formats/vectors"]
		import good, kvwrite
		from kvsnapshot import container
		size, read, whole = 64 << 20, set(), container.read_content

		def noted(source, section):
		    read.add(section.raw_size)
		    return whole(source, section)

		container.read_content = noted
		# not those whose size nothing before them says: the text, queries, keys of a retrieval head, the log, provenance
		for kind in "HEAD POSN qSTa mASS pAID sCOR KEYS bITS pAGE cLUS lOWR VALS LGTS iNDX ENDS pADD".split():
		    out = good.indexed() if kind in ("bITS", "pAGE", "cLUS", "lOWR") else good.logged(weighed=True, paying="max", stats=[(4, 5)] * 2)
		    at = next((i for i, s in enumerate(out) if s.type == kind), len(out))
		    layer = kvwrite.NONE if at == len(out) else out[at].layer
		    large = kvwrite.Section(kind, b"", layer, 1 if at == len(out) else out[at].element)
		    large.content, large.blocks = bytes(size), [kvwrite.Block(bytes(1 << 20), 1, 1)] * 64
		    pathlib.Path("large.kv").write_bytes(kvwrite.stream(out[:at] + [large], index=False))
		    try:
		        container.read(open("large.kv", "rb"))
		    except container.Bad as error:
		        assert kind in str(error) and "raw size" in str(error) or kind in ("HEAD", "pADD"), error
		    else:
		        raise AssertionError(kind)
		    assert size not in read, kind
	END
}

@test "many KV heads without rows take little memory each, and kv-diff keeps none of them" {
	not_under_sanitizers "programs hold memory of their own"
	cd "$BATS_TEST_TMPDIR" || return
	"$PYTHON" "$ROOT/tests/bin/mksmall.py" heads 4096 4096 heads.kv
	(($(stat -c %s heads.kv) < 2 << 20))
	kv-score --method random -o scored.kv heads.kv
	below 32 kv-diff heads.kv heads.kv
	for command in "kv-score --method random" kv-quantize1b "kv-index --pages"; do
		below 32 $command heads.kv
	done
	# the number of rows of each: 4 bytes, before and after an eviction
	for command in kv-info "kv-info --json" kv-check kv-footprint; do
		below $((32 + 64)) $command heads.kv
	done
	below $((32 + 2 * 64)) kv-evict --budget 1 scored.kv
}

@test "kv-footprint prints many KV heads as JSON without holding them" {
	not_under_sanitizers "programs hold memory of their own"
	cd "$BATS_TEST_TMPDIR" || return
	"$PYTHON" "$ROOT/tests/bin/mksmall.py" logged 450 500 logged.kv
	below 48 kv-footprint --json --by head logged.kv
	kv-footprint --json --by head logged.kv >got.json
	assert_equal "$(json got.json 'len(o["layers"]), {len(l["heads"]) for l in o["layers"]}, {h["rows"] for l in o["layers"] for h in l["heads"]}')" \
	    "(450, {500}, {1})"
}

@test "what kv-diff tells of many KV heads is in a temporary file, and is right" {
	not_under_sanitizers "programs hold memory of their own"
	cd "$BATS_TEST_TMPDIR" || return
	mksnapshot -L 450 -H 500 -G 500 -E 2 -N 8 --ragged -d bf16 -o a.kv
	below 40 kv-diff --by head a.kv a.kv
	awk '$6 != "all" && NR > 4 { print $1, $6, $7 }' out >got
	see a.kv '"\n".join("%d %d %d" % (n, l, g) for l, layer in enumerate(s.layers) for g, n in enumerate(layer.rows))' | diff - got
	below 40 kv-diff --json a.kv a.kv
	json out '"\n".join("%d %d %d" % (h["both"], l, g) for l, layer in enumerate(o["layers"]) for g, h in enumerate(layer["heads"]))' | diff - got
	TMPDIR=/nowhere run -1 --separate-stderr kv-diff --json a.kv a.kv
	assert_regex "$stderr" 'a temporary file in /nowhere: No such file'
}
