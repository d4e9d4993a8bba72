#!/usr/bin/env bats
# bats file_tags=slow
# kv-decode --retrieve: the choice, what is attended to and what is counted, against numpy; indexes that grow while decoding and resuming

load helper

setup_file() {
	load helper
	cd "$BATS_FILE_TMPDIR" || exit 1
	local m
	random_model one --heads 4 --kv-heads 4 --head-dim 16 --hidden 64 --seed 6 --layers 3 --dtype f32 --std 0.2
	random_model four --heads 8 --kv-heads 2 --head-dim 12 --hidden 96 --seed 5 --layers 3 --dtype f32 --std 0.2
	seq 3 2 240 >text.ids
	for m in one four; do
		kv-prefill -m $m --ids -o $m.kv text.ids
		indexed $m.kv all.$m.kv
	done
}

setup() {
	cd "$BATS_FILE_TMPDIR" || exit 1
}

# indexed IN OUT: with all indexes, small ones
indexed() {
	kv-quantize1b -g 16 "$1" | kv-index --pages --page 8 | kv-index --clusters --cluster-count 9 --sink-rows 5 |
	    kv-index --low-rank --rank 10 --chunk-rows 4 --outliers 3 --local 2 -o "$2"
}

# decode MODEL N IN OUT OPTION ...: ids in OUT.ids
decode() {
	kv-decode -m "$1" --ids --ignore-eos -n "$2" -o "$4" "${@:5}" "$3" >"$4.ids"
}

# tried MODEL IN WORDS: 37 tokens, noted for agree
tried() {
	n=$((${n:-0} + 1))
	decode "$1" 37 "$2" "$BATS_TEST_TMPDIR/$n.kv" --retrieve "$3 dense=1" --audit --stats "$BATS_TEST_TMPDIR/$n.json"
	echo "$1 $2 $BATS_TEST_TMPDIR/$n.kv $BATS_TEST_TMPDIR/$n.json" >>"$BATS_TEST_TMPDIR/tried"
}

# What numpy makes of the same tokens differs by less than 1e-5, in rows, logits and report.
agree() {
	run -0 "$PYTHON" "$ORACLE/retrieve.py" --limit 1e-5 <"$BATS_TEST_TMPDIR/tried"
	assert_equal "${#lines[@]}" "$n"
}

# indexes FILE: all that is in them, but for the hash of the keys
indexes() {
	see "$1" "[(l.bits, l.pages, l.clusters, l.low_rank) for l in s.layers]"
}

@test "fier reads the rows that its rule says, for 1 and 4 query heads a KV head" {
	for m in one four; do
		tried $m all.$m.kv 'fier budget=20'
		tried $m all.$m.kv 'fier budget=1 reduce=sum'
	done
	tried four all.four.kv 'fier budget=130 reduce=mean'
	agree
}

@test "quest reads the pages that its rule says, and always the last" {
	for m in one four; do
		tried $m all.$m.kv 'quest budget=24'
		tried $m all.$m.kv 'quest budget=5 reduce=mean'
	done
	agree
}

@test "quest-eval lets the last page compete, by the rows that it has, and reads 3 pages at least" {
	for m in one four; do
		tried $m all.$m.kv 'quest-eval budget=48'
		tried $m all.$m.kv 'quest-eval budget=33 reduce=mean'
		tried $m all.$m.kv 'quest-eval budget=1 reduce=sum'
	done
	agree
	# 119 rows and more in pages of 8: 24 rows, or less by what the last page is short of where it is chosen
	for m in one four; do
		decode $m 5 all.$m.kv out.kv --retrieve 'quest-eval budget=1 dense=0' --stats stats.json
		[ "$(json stats.json '22 < o["all"]["rows"] <= 24')" = True ]
	done
}

@test "cluster reads the clusters that its rule says, cuts the last one, and reads sinks and new rows always" {
	for m in one four; do
		tried $m all.$m.kv 'cluster budget=23'
		tried $m all.$m.kv 'cluster budget=4 reduce=sum'
	done
	agree
}

@test "shadow rebuilds the keys of the chunks that its rule says, and takes exact chunks and new rows as they are" {
	for m in one four; do
		tried $m all.$m.kv 'shadow budget=24'
		tried $m all.$m.kv 'shadow budget=3 reduce=mean'
	done
	agree
}

@test "KV heads of different length: what is left after an eviction, read whole where it fits" {
	kv-score --method knorm four.kv | kv-evict --policy ada --rate 0.5 -o ragged.kv
	assert_regex "$(see ragged.kv "len({r for l in s.layers for r in l.rows}) > 2")" True
	kv-quantize1b -g 16 ragged.kv | kv-index --pages --page 8 | kv-index --clusters --cluster-count 5 --sink-rows 3 -o all.ragged.kv
	# between the shortest and the longest KV head of a layer
	for budget in 9 50 64; do
		tried four all.ragged.kv "fier budget=$budget"
		tried four all.ragged.kv "quest budget=$budget"
		tried four all.ragged.kv "quest-eval budget=$budget"
		tried four all.ragged.kv "cluster budget=$budget"
	done
	agree
}

@test "names of papers are accepted, the snapshot and the report have ours" {
	while read -r name method; do
		for m in $name $method; do
			kv-decode -m four --ids -n 4 --retrieve "$m budget=20" --stats $m.json -o $m.kv all.four.kv
		done
		cmp $name.kv $method.kv
		cmp $name.json $method.json
	done <<-'END'
		ClusterKV cluster
		shadowkv shadow
		FIER fier
	END
}

@test "a budget for all rows gives the bytes of full attention, recall 1 and mass 1" {
	for m in one four; do
		decode $m 20 all.$m.kv full.kv
		for method in fier quest quest-eval cluster shadow; do
			decode $m 20 all.$m.kv some.kv --retrieve "$method budget=140" --audit --stats stats.json
			cmp full.kv.ids some.kv.ids
			same_but_provenance full.kv some.kv
			assert_equal "$(json stats.json '{o[p][k] for p in ("all", "retrieving") for k in ("recall", "mass", "share")}')" "{1.0}"
		done
	done
}

@test "bits and pages that grow while decoding and resuming are those of the result, to the last byte" {
	for pipe in "" -z; do
		decode four 45 all.four.kv grown.kv $pipe
		"$PYTHON" "$FORMAT/checkindex.py" grown.kv
		assert_equal "$(see grown.kv "[len(h) // 12 // 6 for h in s.layers[2].bits.heads]")" "10 10"
		kv-quantize1b -g 16 $pipe grown.kv | kv-index --pages --page 8 $pipe -o anew.kv
		same_but_provenance grown.kv anew.kv
		for chunk in 1 7 512; do
			kv-prefill -m four --ids $pipe -c $chunk -r all.four.kv -o resumed.kv grown.kv.ids
			"$PYTHON" "$FORMAT/checkindex.py" resumed.kv
			kv-quantize1b -g 16 $pipe resumed.kv | kv-index --pages --page 8 $pipe -o anew.kv
			same_but_provenance resumed.kv anew.kv
		done
	done
}

@test "clusters and factors stay as they are while rows are appended" {
	cluster="[l.clusters for l in s.layers]" low="[l.low_rank for l in s.layers]"
	decode one 30 all.one.kv grown.kv
	kv-prefill -m one --ids -r all.one.kv -o resumed.kv grown.kv.ids
	for file in grown.kv resumed.kv; do
		kv-check $file
		assert_equal "$(see $file "$cluster")" "$(see all.one.kv "$cluster")"
		assert_equal "$(see $file "$low")" "$(see all.one.kv "$low")"
	done
}

@test "two halves of a generation give the text and the snapshot of one, whatever is retrieved" {
	for method in fier quest quest-eval cluster shadow; do
		decode four 40 all.four.kv whole.kv --retrieve "$method budget=30"
		decode four 17 all.four.kv half.kv --retrieve "$method budget=30"
		decode four 23 half.kv rest.kv --retrieve "$method budget=30"
		cat half.kv.ids rest.kv.ids | cmp whole.kv.ids -
		same_but_provenance whole.kv rest.kv
	done
}

@test "the number of threads changes nothing" {
	for method in fier quest quest-eval cluster shadow; do
		for j in 1 3; do
			decode four 20 all.four.kv j$j.kv -j $j --retrieve "$method budget=30" --audit --stats j$j.json
		done
		cmp j1.kv j3.kv
		cmp j1.json j3.json
	done
}

@test "a fact is found with 64 of 982 rows, and the text is that of full attention" {
	kv-prefill -m "$DEMO" "$ROOT/examples/prompts/harbour.txt" -o harbour.kv
	indexed harbour.kv all.harbour.kv
	full=$(kv-decode -m "$DEMO" -n 12 --stop . harbour.kv)
	for method in fier quest quest-eval cluster shadow; do
		run -0 --separate-stderr kv-decode -m "$DEMO" -n 12 --stop . -v --retrieve "$method budget=64" all.harbour.kv
		assert_equal "$output" "$full"
		assert_regex "$stderr" "$method: read [0-9.]*% of what full attention reads, [0-9.]*% in the 2 layers that retrieve"
	done
	assert_equal "$full" " $(cat "$ROOT/examples/prompts/harbour.answer")"
}

@test "an index that is not there is refused before anything is printed: the layer, and the command that makes it" {
	while read -r method type command; do
		strip "$type" all.four.kv without.kv 2
		run -1 --separate-stderr kv-decode -m four --ids --retrieve "$method budget=9" --stats s.json -o x.kv without.kv
		assert_equal "$output" ""
		assert_regex "$stderr" "without.kv: layer 2 has no .*$type.*--retrieve $method needs: .*$command"
		[ ! -e x.kv ] && [ ! -e s.json ]
		# a dense layer needs none
		kv-decode -m four --ids -n 2 --retrieve "$method budget=9 dense=3" without.kv
		run -1 kv-decode -m four --ids -n 2 --retrieve "$method budget=9" four.kv
	done <<-'END'
		fier bITS kv-quantize1b
		quest pAGE kv-index --pages
		quest-eval pAGE kv-index --pages
		cluster cLUS kv-index --clusters
		shadow lOWR kv-index --low-rank
	END
}

@test "options that do not fit are refused with 2" {
	refused() {
		run -2 --separate-stderr kv-decode -m four "${@:2}" all.four.kv
		assert_regex "$stderr" "$1"
	}
	refused '--retrieve fier: how many rows.*budget=N' --retrieve fier
	refused "--retrieve: budget: '0' is not a whole number from 1" --retrieve 'fier budget=0'
	refused "there is no method 'snapkv', only fier quest quest-eval cluster shadow specontext" --retrieve 'snapkv budget=9'
	refused 'reduce=most: want max, mean or sum' --retrieve 'fier budget=9 reduce=most'
	refused "there is no option 'dens': did you mean dense" --retrieve 'fier budget=9 dens=0'
	refused "--reduce is now --retrieve 'METHOD budget=N reduce=HOW'" --reduce max
	refused "--dense-layers is now --retrieve 'METHOD budget=N dense=N'" --dense-layers 0
	refused "--budget is now --retrieve 'METHOD budget=N'" --budget 9
	refused '--stats: .*--retrieve' --stats s.json
	refused '--audit: .*--retrieve' --audit
	refused '--evict does not go' --retrieve 'fier budget=9' --score knorm --evict budget=9
	refused '--mass does not go with --retrieve' --retrieve 'fier budget=9' --mass -o x.kv
	refused '--stats -: ' --retrieve 'fier budget=9' --stats -
	refused 'name the same file, x.kv' --retrieve 'fier budget=9' --stats x.kv -o x.kv
}

@test "a report appears when it is complete, or not at all" {
	head -c 30000 all.four.kv >cut.kv
	run -3 kv-decode -m four --retrieve 'fier budget=9' --stats report.json cut.kv
	run -1 --separate-stderr kv-decode -m four --ids -n 2 --retrieve 'fier budget=9' --stats none/report.json all.four.kv
	assert_regex "$stderr" 'none/report.json: No such file'
	run -1 --separate-stderr kv-decode -m four --ids -n 2 --retrieve 'fier budget=9' --stats /dev/full all.four.kv
	assert_regex "$stderr" '/dev/full: No space left'
	run bash -c 'ls -A | grep report'
	assert_output ""
}

@test "no token, no step: the means are null" {
	kv-decode -m four -n 0 --retrieve 'fier budget=9' --stats none.json all.four.kv
	assert_equal "$(json none.json 'o["steps"], o["all"]["rows"], o["layers"][2]["share"]')" "(0, None, None)"
}

@test "overlap is of two steps: null with one, or where all rows are read, in a dense layer or within the budget" {
	overlap='[l["overlap"] is None for l in o["layers"]], o["all"]["overlap"] is None'
	for method in fier quest quest-eval cluster shadow; do
		# the last token is not run: two are one step
		kv-decode -m four --ids --ignore-eos -n 2 --retrieve "$method budget=30" --stats one.json all.four.kv
		assert_equal "$(json one.json "o['steps'], $overlap")" "(1, [True, True, True], True)"
		kv-decode -m four --ids --ignore-eos -n 3 --retrieve "$method budget=30" --stats two.json all.four.kv
		assert_equal "$(json two.json "o['steps'], $overlap")" "(2, [True, True, False], False)"
		assert_equal "$(json two.json 'o["all"]["overlap"] == o["retrieving"]["overlap"] == o["layers"][2]["overlap"]')" True
		# no report is written, but printed
		kv-decode -m four --json --ignore-eos -n 3 --retrieve "$method budget=30" all.four.kv >printed.json
		assert_equal "$(json printed.json 'o["retrieval"]')" "$(json two.json o)"
		kv-decode -m four --ids --ignore-eos -n 9 --retrieve "$method budget=140" --stats whole.json all.four.kv
		assert_equal "$(json whole.json "$overlap")" "([True, True, True], True)"
	done
}

@test "pages that are chosen again are the overlap, but for the row that a step adds" {
	# one page, the last, of 119 rows and more in pages of 8: 7 rows of 8, then 0 of 1, 1 of 2 ... 7 of 8, by the rows at the steps
	kv-decode -m four --ids --ignore-eos -n 20 --retrieve 'quest budget=8' --stats last.json all.four.kv
	rows=$(see four.kv 's.layers[2].rows[0]')
	want=$("$PYTHON" -c 'import sys
n = [int(sys.argv[1]) + i for i in range(1, 20)]
print(sum((x - 1) % 8 / ((x - 1) % 8 + 1) for x in n[1:]) / 18)' "$rows")
	assert_equal "$(json last.json "abs(o['all']['overlap'] - $want) < 1e-12")" True
}

@test "every key of the report is explained in kv-decode(1)" {
	kv-decode -m four --ids -n 2 --retrieve 'fier budget=9' --audit --stats keys.json all.four.kv
	run "$PYTHON" -c '
import json, re, sys
r = json.load(open("keys.json"))
page = set(re.findall(r"^\.It Cm (.*)", open(sys.argv[1]).read(), re.M))
page = {word for line in page for word in re.findall(r"\w+", line)}
print(*sorted((set(r) | set(r["all"]) | set(r["layers"][0])) - page))' "$ROOT/man/kv-decode.1"
	assert_output ''
}

@test "an eviction drops the indexes of the layers that it changes, and says so once" {
	run -0 --separate-stderr kv-prefill -m four --ids -r all.four.kv -o evicted.kv --score knorm --evict 'budget=30 skip-layers=0' text.ids
	assert_equal "$(see evicted.kv "[l.bits is None for l in s.layers]")" "False True True"
	kv-check evicted.kv
	assert_equal "$(grep -c dropped <<<"$stderr")" 1
	assert_regex "$stderr" 'kv-quantize1b, kv-index --pages, kv-index --clusters, kv-index --low-rank'
	run -0 --separate-stderr kv-decode -m four --ids -n 3 -o evicted.kv --score knorm --evict budget=30 all.four.kv
	assert_equal "$(see evicted.kv "[l.pages is None for l in s.layers]")" "True True True"
	assert_equal "$(grep -c dropped <<<"$stderr")" 1
	# one that drops nothing leaves them
	run -0 --separate-stderr kv-decode -m four --ids --ignore-eos -n 3 -o kept.kv --score knorm --evict budget=300 all.four.kv
	assert_equal "$(see kept.kv "[l.pages is None for l in s.layers]")" "False False False"
	"$PYTHON" "$FORMAT/checkindex.py" kept.kv
	assert_equal "$stderr" ""
}
