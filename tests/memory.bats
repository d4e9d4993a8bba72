#!/usr/bin/env bats
# bats file_tags=nosan
# How much memory the programs that need no model hold: about a layer, whatever the number of layers.
load helper

# Layers of 8 MiB (keys and values), ragged heads would only make them smaller.
setup_file() {
	load helper
	cd "$BATS_FILE_TMPDIR" || return
	for layers in 4 24; do
		mksnapshot -L $layers -H 4 -G 2 -E 64 -N 16384 -d bf16 --observe 8 --own 2 --mass --paid --scores random -o $layers.kv
	done
}

# peak COMMAND...: bytes; input and output are pipes, so that no mapped file counts. Large blocks go back to the system as soon as they
# are free: it is what a program holds that counts, not the gaps that its allocator is left with when threads come into its way.
peak() {
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
		flat kv-score --method "$method"
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
	few=$(layers=4.bits peak kv-diff --retrieve fier --budget 256 --dense-layers 3)
	many=$(layers=24.bits peak kv-diff --retrieve fier --budget 256 --dense-layers 23)
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

# below MIB COMMAND ...: its peak; what it says is thrown away, its exit status too where it has nothing to do
below() {
	local mib=$1 held
	shift
	MALLOC_MMAP_THRESHOLD_=131072 "$PYTHON" "$ROOT/tests/bin/peak.py" "$@" 2>err >/dev/null || [[ $(cat err) == *"event log"* ]]
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
	below 40 kv-diff --json a.kv a.kv
	kv-diff --by head a.kv a.kv | awk '$6 != "all" && NR > 4 { print $1, $6, $7 }' >got
	see a.kv '"\n".join("%d %d %d" % (n, l, g) for l, layer in enumerate(s.layers) for g, n in enumerate(layer.rows))' | diff - got
	kv-diff --json a.kv a.kv >got.json
	json got.json '"\n".join("%d %d %d" % (h["both"], l, g) for l, layer in enumerate(o["layers"]) for g, h in enumerate(layer["heads"]))' | diff - got
	TMPDIR=/nowhere run -1 --separate-stderr kv-diff --json a.kv a.kv
	assert_regex "$stderr" 'a temporary file in /nowhere: No such file'
}
