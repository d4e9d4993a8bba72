#!/usr/bin/env bats
# Clusters of rows that are appended while decoding and resuming: 8 for every 320 rows

load helper

setup_file() {
	load helper
	cd "$BATS_FILE_TMPDIR" || exit 1
	random_model m --heads 8 --kv-heads 2 --head-dim 12 --hidden 96 --seed 5 --layers 3 --dtype f32 --std 0.2
	seq 3 2 240 >text.ids
	kv-prefill -m m --ids text.ids | kv-index --clusters --cluster-count 9 --sink-rows 5 -o x.kv
	decode 700 x.kv grown.kv
}

setup() {
	cd "$BATS_FILE_TMPDIR" || exit 1
}

# decode N IN OUT OPTION ...: ids in OUT.ids
decode() {
	kv-decode -m m --ids --ignore-eos -n "$1" -o "$3" "${@:4}" "$2" >"$3.ids"
}

@test "every 320 appended rows become 8 clusters of their own, and the last ones stay whole" {
	"$PYTHON" "$FORMAT/checkindex.py" grown.kv
	assert_equal "$(see grown.kv '[l.clusters.ends for l in s.layers]')" "[759, 759] [759, 759] [759, 759]"
	assert_equal "$(see grown.kv '[len(m) // 48 for l in s.layers for m in l.clusters.means]')" "25 25 25 25 25 25"
	# a window has the numbers after those there were
	labels='[x for l in s.layers for x in l.clusters.labels]'
	see grown.kv "all(set(x[114:434]) == set(range(9, 17)) and set(x[434:]) == set(range(17, 25)) for x in $labels)" | grep -qx True
	decode 319 x.kv before.kv
	assert_equal "$(see before.kv '[l.clusters for l in s.layers]')" "$(see x.kv '[l.clusters for l in s.layers]')"
	decode 320 x.kv after.kv
	assert_equal "$(see after.kv 's.layers[2].clusters.ends')" "439 439"
}

@test "appended rows are read whole until they are clustered, and then found through their clusters" {
	for budget in 23 200; do
		decode 400 x.kv $budget.kv --retrieve "cluster budget=$budget dense=1" --audit --stats $budget.json
		echo "m x.kv $budget.kv $budget.json"
	done >tried
	# another layout of rows: heads of different length, one of them shorter than the sink
	kv-prefill -m m --ids text.ids | kv-score --method knorm | kv-evict --policy ada --alpha 0 --rate 0.3 | kv-index --clusters --sink-rows 40 -o ragged.kv
	see ragged.kv 'min(min(l.rows) for l in s.layers) < 40 < max(max(l.rows) for l in s.layers)' | grep -qx True
	decode 400 ragged.kv far.kv --retrieve 'cluster budget=60 dense=1' --audit --stats far.json
	echo "m ragged.kv far.kv far.json" >>tried
	# one of the choices is between rows of nearly the same score, and falls otherwise on another processor: 1.1e-5 of a step's report
	run -0 "$PYTHON" "$ORACLE/retrieve.py" --limit 5e-5 <tried
	assert_equal "${#lines[@]}" 3
}

@test "once or in pieces, decoded or run as a prompt: the same snapshot" {
	decode 250 x.kv half.kv
	decode 450 half.kv rest.kv
	same_but_provenance grown.kv rest.kv
	kv-prefill -m m --ids -c 1 -r x.kv -o resumed.kv grown.kv.ids
	kv-prefill -m m --ids -c 1 -r x.kv <(head -n 333 grown.kv.ids) | kv-prefill -m m --ids -c 1 -r - -o twice.kv <(tail -n +334 grown.kv.ids)
	for file in resumed.kv twice.kv; do
		assert_equal "$(see $file '[(l.keys_hash, l.clusters) for l in s.layers]')" "$(see grown.kv '[(l.keys_hash, l.clusters) for l in s.layers]')"
	done
	# in chunks the keys differ by rounding, not the rows that are clustered
	kv-prefill -m m --ids -r x.kv -o chunked.kv grown.kv.ids
	assert_equal "$(see chunked.kv '[l.clusters.ends for l in s.layers]')" "[759, 759] [759, 759] [759, 759]"
	"$PYTHON" "$FORMAT/checkindex.py" chunked.kv
}

@test "the number of threads changes nothing, nor does a budget for all rows" {
	decode 350 x.kv full.kv
	for j in 1 3; do
		decode 350 x.kv j$j.kv -j $j --retrieve 'cluster budget=900'
		same_but_provenance full.kv j$j.kv
	done
}

@test "rows of a prompt that is shorter than the sink come first into the sink" {
	kv-prefill -m m --ids <(head -n 3 text.ids) | kv-index --clusters --sink-rows 16 -o short.kv
	assert_equal "$(see short.kv 's.layers[0].clusters.ends')" "3 3"
	decode 332 short.kv a.kv
	assert_equal "$(see a.kv 's.layers[0].clusters.ends')" "3 3"
	decode 1 a.kv b.kv
	assert_equal "$(see b.kv 's.layers[0].clusters.ends')" "336 336"
	assert_equal "$(see b.kv '[len(x) for x in s.layers[0].clusters.labels]')" "320 320"
	"$PYTHON" "$FORMAT/checkindex.py" b.kv
	decode 333 short.kv c.kv
	same_but_provenance b.kv c.kv
}
