#!/usr/bin/env bats
# kv-index: pages bit for bit, clusters by what must hold of any, low rank against NumPy; what it passes on, what it refuses

load helper

setup() {
	cd "$BATS_TEST_TMPDIR" || exit 1
}

# agrees [word ...]: a.kv, with these words for the oracle, which starts slowly; all_agree runs it
agrees() {
	n=$((${n:-0} + 1))
	cp a.kv $n.kv
	echo "$n.kv $*" >>comparisons
}

all_agree() {
	"$PYTHON" "$ORACLE/index.py" <comparisons
}

# The types of the sections of layer 1, in order
sections() {
	see "$1" '[x.type for x in s.sections if x.layer == 1]'
}

@test "all three indexes agree with other code, for three dtypes and shapes, whole and evicted" {
	for shape in "-H 3 -G 3 -E 24" "-H 8 -G 2 -E 33" "-H 4 -G 1 -E 64"; do
		for dtype in f32 f16 bf16; do
			mksnapshot $shape -d $dtype -N 700 --scores random -o x.kv
			kv-index --pages --clusters --low-rank --rank 20 -o a.kv x.kv
			agrees clusters=0 rank=20 outliers=48
			kv-evict --rate 0.5 --select layer x.kv |
				kv-index --pages --page 7 --clusters --cluster-count 9 --sink-rows 0 --low-rank --rank 160 \
				    --chunk-rows 5 --outliers 3 --local 0 -o a.kv
			agrees clusters=9 rank=160 outliers=3
		done
	done
	all_agree
}

@test "ragged heads, heads shorter than sink, page or cluster count, and an empty one get pages and clusters" {
	mksnapshot -H 8 -G 4 -E 16 -N 90,17,5,0 -T 200 -d bf16 -o x.kv
	kv-index --pages --clusters -o a.kv x.kv
	agrees clusters=0
	assert_equal "$(see a.kv '[len(x) for x in s.layers[0].clusters.labels]')" "74 1 0 0"
	mksnapshot -N 0 -T 9 -o none.kv
	kv-index --pages --clusters --low-rank -o a.kv none.kv
	agrees clusters=0 rank=1 outliers=0
	kv-index --clusters --cluster-count 30 --sink-rows 2 --iterations 0 -o a.kv x.kv
	agrees clusters=30 rounds=0
	mksnapshot -L 4 -H 8 -G 4 -E 16 -N 900 --ragged --scores random -d f16 -o x.kv
	kv-evict --rate 0.6 x.kv | kv-index --pages --page 2 --clusters --cluster-count 12 -o a.kv
	agrees clusters=12
	all_agree
}

@test "when nothing changes any more each key is in the cluster with the greatest cosine" {
	for dtype in f32 f16 bf16; do
		mksnapshot -H 4 -G 2 -E 16 -N 500 --ragged -d $dtype -o x.kv
		kv-index --clusters --cluster-count 7 --iterations 1000 -o a.kv x.kv
		agrees clusters=7 converged
		kv-index --clusters --cluster-count 7 --iterations 2000 -o b.kv x.kv
		cmp <(see a.kv 's.layers[1].clusters') <(see b.kv 's.layers[1].clusters')
	done
	all_agree
}

@test "keys along three directions are three clusters, and there are no more however many are wanted" {
	echo "1 0  0 1  -1 0  2 0  0 3  -5 0  3 0  0 5  -6 0" >keys
	mksnapshot -L 1 -H 1 -G 1 -E 2 -N 9 --keys keys -o x.kv
	for count in 3 8; do
		for seed in 0 1 2 3; do
			kv-index --clusters --cluster-count $count --sink-rows 0 --seed $seed -o a.kv x.kv
			see a.kv '[x[0] == x[3] == x[6] != x[1] == x[4] == x[7] != x[2] == x[5] == x[8] for x in s.layers[0].clusters.labels]' | grep -qx True
			see a.kv 'sorted(__import__("struct").unpack("<6f", s.layers[0].clusters.means[0]))' | grep -qx -- '-4.0 0.0 0.0 0.0 2.0 3.0'
		done
	done
}

@test "keys without length are a cluster, too" {
	echo "0 0  0 0  0 0  0 0" >keys
	mksnapshot -L 1 -H 1 -G 1 -E 2 -N 4 --keys keys -o x.kv
	kv-index --clusters --cluster-count 3 --sink-rows 1 --low-rank --chunk-rows 1 --local 0 --outliers 2 -o a.kv x.kv
	assert_equal "$(see a.kv 's.layers[0].clusters.labels[0]')" "0 0 0"
	assert_equal "$(see a.kv 's.layers[0].low_rank.exact[0]')" "0 1"
}

@test "the number of threads does not show, another seed does" {
	mksnapshot -H 12 -G 6 -E 32 -N 3000 -d bf16 -o x.kv
	kv-index -j 1 --pages --clusters --low-rank -o a.kv x.kv
	for j in 2 3 8; do
		kv-index -j $j --pages --clusters --low-rank -o b.kv x.kv
		cmp a.kv b.kv
	done
	kv-index --pages --clusters --low-rank --seed 1 -o b.kv x.kv
	[ "$(see a.kv 's.layers[0].clusters')" != "$(see b.kv 's.layers[0].clusters')" ]
	[ "$(see a.kv 's.layers[0].low_rank')" = "$(see b.kv 's.layers[0].low_rank')" ]
	# another head or layer with the same keys begins elsewhere
	[ "$(see a.kv 's.layers[0].clusters.labels[0]')" != "$(see a.kv 's.layers[0].clusters.labels[1]')" ]
}

@test "rank, outliers and local chunks are cut to what there is, down to an index of no rows" {
	mksnapshot -H 4 -G 2 -E 8 -N 45 -o x.kv
	low='[(l.low_rank.rows, l.low_rank.rank, len(l.low_rank.exact[1])) for l in s.layers]'
	kv-index --low-rank -o a.kv x.kv
	assert_equal "$(see a.kv "$low")" "(8, 8, 1) (8, 8, 1)"
	kv-index --low-rank --local 0 -o a.kv x.kv
	assert_equal "$(see a.kv "$low")" "(40, 16, 5) (40, 16, 5)"
	agrees rank=160 outliers=48
	kv-index --low-rank --local 0 --outliers 0 --rank 1 -o a.kv x.kv
	assert_equal "$(see a.kv "$low")" "(40, 1, 0) (40, 1, 0)"
	agrees rank=1 outliers=0
	for local in 5 6 1000; do
		kv-index --low-rank --local $local -o a.kv x.kv
		assert_equal "$(see a.kv "$low")" "(0, 1, 0) (0, 1, 0)"
		kv-check a.kv
	done
	kv-index --low-rank --chunk-rows 46 --local 0 -o a.kv x.kv
	assert_equal "$(see a.kv "$low")" "(0, 1, 0) (0, 1, 0)"
	all_agree
}

@test "low rank needs the same rows in all KV heads, and the message says how to get them" {
	mksnapshot -H 4 -G 2 -N 60 --scores random -o x.kv
	kv-evict --rate 0.5 -o y.kv x.kv
	run -5 --separate-stderr kv-index --low-rank -o a.kv y.kv
	assert_equal "$stderr" "kv-index: y.kv: layer 0: KV heads have different rows, and low rank needs the same in all: \
use kv-evict --select layer"
	assert [ ! -e a.kv ]
	kv-evict --rate 0.5 --select layer x.kv | kv-index --low-rank --local 0 -o a.kv
	"$PYTHON" "$ORACLE/index.py" a.kv rank=160 outliers=48
}

@test "keys that are not finite are refused and the row is named, but not for pages" {
	echo "1 2  3 4  5 6  1e39 8  9 10  11 12" >keys
	mksnapshot -L 1 -H 1 -G 1 -E 2 -N 6 --keys keys -o x.kv
	kv-index --pages --page 2 -o a.kv x.kv
	kv-check a.kv
	run -1 --separate-stderr kv-index --clusters --sink-rows 1 x.kv -o b.kv
	assert_equal "$stderr" "kv-index: x.kv: layer 0 head 0 row 3: the key is not finite"
	run -1 --separate-stderr kv-index --low-rank --chunk-rows 1 --local 0 x.kv -o b.kv
	assert_equal "$stderr" "kv-index: x.kv: layer 0: a key is not finite, or too great"
	assert [ ! -e b.kv ]
}

@test "everything else is passed on as it was, and an index is replaced by one of its kind only" {
	mksnapshot -N 100 -w 4 --mass --paid --logits --scores random --extra xYZw -o x.kv
	kv-index --clusters -o a.kv x.kv
	kv-index --low-rank --pages --page 4 -o b.kv a.kv
	assert_equal "$(sections b.kv)" "POSN xYZw oBSq mASS pAID sCOR KEYS pAGE cLUS lOWR VALS"
	for what in '[l.queries.data for l in s.layers]' '[l.mass for l in s.layers]' '[l.scores.label for l in s.layers]' \
	    '[l.others for l in s.layers]' s.others s.logits; do
		assert_equal "$(see b.kv "$what")" "$(see x.kv "$what")"
	done
	assert_equal "$(logical b.kv)" "$(logical x.kv)"
	assert_equal "$(see b.kv 's.layers[1].clusters')" "$(see a.kv 's.layers[1].clusters')"
	kv-index --pages --clusters --cluster-count 3 -o c.kv b.kv
	assert_equal "$(sections c.kv)" "$(sections b.kv)"
	assert_equal "$(see c.kv '[l.pages.u for l in s.layers]')" "16 16"
	assert_equal "$(see c.kv '[len(x) // 32 for x in s.layers[1].clusters.means]')" "3 3"
	assert_equal "$(see c.kv 's.layers[1].low_rank')" "$(see b.kv 's.layers[1].low_rank')"
	assert_equal "$(see c.kv '[p["tool"] for p in s.provenance]')" "mksnapshot kv-index kv-index kv-index"
	assert_equal "$(see c.kv 's.provenance[2]["options"]')" \
	    "{'chunk-rows': 8, 'local': 4, 'outliers': 48, 'page': 4, 'rank': 160}"
	assert_equal "$(see c.kv 's.provenance[3]["options"]')" \
	    "{'cluster-count': 3, 'iterations': 20, 'page': 16, 'seed': 0, 'sink-rows': 16}"
}

@test "from a file, a pipe, and compressed input the same bytes come" {
	mksnapshot -N 30000 -E 16 -d bf16 -o x.kv
	mksnapshot -N 30000 -E 16 -d bf16 -z -o z.kv
	kv-index --pages --clusters --cluster-count 20 --low-rank -o a.kv x.kv
	kv-index --pages --clusters --cluster-count 20 --low-rank <x.kv | cmp a.kv
	kv-index --pages --clusters --cluster-count 20 --low-rank -o b.kv z.kv
	indexes='[l.pages for l in s.layers] + [l.clusters for l in s.layers] + [l.low_rank for l in s.layers]'
	cmp <(see a.kv "$indexes") <(see b.kv "$indexes")
	kv-index --pages --clusters --cluster-count 20 --low-rank -z -o c.kv x.kv
	cmp <(see a.kv "$indexes") <(see c.kv "$indexes")
	see c.kv 'any(b.codec for x in s.sections if x.type == "pAGE" for b in x.blocks)' | grep -qx True
}

@test "damaged and truncated input is refused, and no snapshot appears" {
	mksnapshot -N 3000 -o x.kv
	head -c 60000 x.kv >short.kv
	run -3 --separate-stderr kv-index --clusters --low-rank -o a.kv short.kv
	assert_regex "$stderr" truncated
	assert [ ! -e a.kv ]
	run -3 bash -c 'set -o pipefail; kv-index --pages <short.kv | kv-check -'
}

@test "without an index to make, or with an option of another one, it exits 2" {
	mksnapshot -o x.kv
	run -2 --separate-stderr kv-index x.kv
	assert_regex "$stderr" "^kv-index: --pages, --clusters or --low-rank is needed"
	for option in "page 4" "cluster-count 4" "sink-rows 4" "iterations 4" "seed 4" "rank 4" "chunk-rows 4" "outliers 4" "local 4"; do
		case ${option% *} in
		page) others="--clusters --low-rank" ;;
		cluster-count | sink-rows | iterations | seed) others="--pages --low-rank" ;;
		*) others="--pages --clusters" ;;
		esac
		run -2 --separate-stderr kv-index $others --$option -o a.kv x.kv
		assert_regex "$stderr" "--${option% *} is for --"
	done
	for option in "--page 1" "--page 65537" "--chunk-rows 0" "--chunk-rows 65537" "--rank 0" "--page x" "--device none"; do
		run -2 kv-index --pages --low-rank $option -o a.kv x.kv
	done
	assert [ ! -e a.kv ]
}
