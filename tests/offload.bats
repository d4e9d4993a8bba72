#!/usr/bin/env bats
# bats file_tags=slow
# kv-decode --offload with the indexes of FIER, Quest, ClusterKV and ShadowKV: text, logits, reports and snapshots of rows that stay in the file are those of rows in memory

load helper

setup_file() {
	load helper
	cd "$BATS_FILE_TMPDIR" || exit 1
	random_model one --heads 4 --kv-heads 4 --head-dim 16 --hidden 64 --seed 6 --layers 3 --dtype f32 --std 0.2
	random_model four --heads 8 --kv-heads 2 --head-dim 12 --hidden 96 --seed 5 --layers 5 --dtype f32 --std 0.2
	window_model slid 40 fsfs --heads 4 --kv-heads 2 --head-dim 12 --hidden 48 --seed 5 --layers 4 --dtype f32 --std 0.2
	seq 3 2 240 >text.ids
	# whole groups, pages and chunks: no row of it is behind an index
	seq 3 2 258 >whole.ids
	seq 7 5 200 >next.ids
	for m in one four slid; do
		kv-prefill -m $m --ids text.ids | small_indexes >$m.kv
	done
	kv-prefill -m four --ids whole.ids | small_indexes >whole.kv
	kv-prefill -m four --ids text.ids | kv-score --method keydiff | kv-evict --budget 60 --policy adakv |
	    kv-quantize1b -g 16 | kv-index --pages --page 8 | kv-index --clusters --cluster-count 9 --sink-rows 5 >ragged.kv
}

setup() {
	cd "$BATS_FILE_TMPDIR" || exit 1
}

# same NAME MODEL OPTION ...: 40 given tokens behind NAME.kv; the logits, and what was read, are the same from the file and from memory, and of the
# bytes of rows some were brought and some were not
same() {
	local offload
	for offload in "" --offload; do
		kv-decode -m "$2" "${@:3}" $offload --ids --force next.ids --logits "all$offload.npy" --stats "all$offload.json" --json "$1.kv" |
		    json /dev/stdin 'o["nll"]' >"all$offload.nll"
	done
	cmp all.npy all--offload.npy
	cmp all.nll all--offload.nll
	assert_equal "$(json all--offload.json '[{k: v for k, v in l.items() if k != "fetched_bytes"} for l in o["layers"]]')" "$(json all.json 'o["layers"]')"
	[ "$(json all--offload.json '0 < o["retrieving"]["fetched_bytes"] < o["retrieving"]["key_bytes"] + o["retrieving"]["value_bytes"]')" = True ]
	cases=$((${cases:-0} + 1))
}

# snapshots NAME MODEL OPTION ...: 50 tokens, and the snapshot behind them, are the same from the file and from memory
snapshots() {
	kv-decode -m "$2" "${@:3}" --ids --ignore-eos -n 50 -o "$BATS_TEST_TMPDIR/memory.kv" "$1.kv" >memory.ids
	kv-decode -m "$2" "${@:3}" --ids --ignore-eos -n 50 -o "$BATS_TEST_TMPDIR/file.kv" --offload "$1.kv" | cmp - memory.ids
	cmp "$BATS_TEST_TMPDIR/memory.kv" "$BATS_TEST_TMPDIR/file.kv"
	kv-check -q "$BATS_TEST_TMPDIR/file.kv"
}

@test "FIER: rows from the file give the logits of rows in memory, to the bit" {
	same one one --retrieve 'fier budget=20'
	same four four --retrieve 'fier budget=7 reduce=sum dense=1'
	same four four --retrieve 'fier budget=150 dense=0'
	same whole four --retrieve 'fier budget=1 dense=0'
	same ragged four --retrieve 'fier budget=25 dense=1'
	same ragged four --retrieve 'fier budget=61 dense=1'
	same slid slid --retrieve 'fier budget=20 dense=0'
	assert_equal "$cases" 7
}

@test "ShadowKV: rows from the file give the logits of rows in memory, to the bit, and no key is read that is rebuilt" {
	same one one --retrieve 'shadow budget=20'
	same four four --retrieve 'shadow budget=9 dense=1'
	same four four --retrieve 'shadow budget=130 dense=0'
	same whole four --retrieve 'shadow budget=40 dense=0'
	same slid slid --retrieve 'shadow budget=20 dense=0'
	assert_equal "$cases" 5
	# one step behind 128 rows, of which factors have 120: the values of 40 rows, keys and values of 3 exact chunks of 4; 9 rows are in memory
	head -n 2 next.ids >two.ids
	kv-decode -m four --retrieve 'shadow budget=40 dense=0' --ids --force two.ids --offload --stats one.json whole.kv
	assert_equal "$(json one.json 'o["steps"], o["all"]["rows"], o["all"]["fetched_bytes"]')" "(1, 61.0, $(((40 + 2 * 12) * 48)).0)"
}

@test "Quest and ClusterKV: rows from the file give the logits of rows in memory, to the bit" {
	local method
	for method in quest quest-eval cluster; do
		same one one --retrieve "$method budget=20"
		same four four --retrieve "$method budget=17 dense=1"
		same four four --retrieve "$method budget=130 dense=0"
		same whole four --retrieve "$method budget=40 dense=0"
		same ragged four --retrieve "$method budget=25 dense=1"
		same slid slid --retrieve "$method budget=20 dense=0"
	done
	same four four --retrieve 'cluster budget=1 dense=0'
	assert_equal "$cases" 19
}

@test "what goes on behind the rows in a file is a snapshot: the bytes are those of a run in memory" {
	local method
	for method in fier quest quest-eval cluster shadow; do
		snapshots four four --retrieve "$method budget=20 dense=1"
		snapshots slid slid --retrieve "$method budget=20 dense=0" --observe 4
	done
	for method in fier cluster; do
		snapshots ragged four --retrieve "$method budget=25 dense=1"
	done
	# into the place of the file that is read, and compressed
	cp four.kv here.kv
	kv-decode -m four --retrieve 'fier budget=20' --ids -n 50 --ignore-eos --offload -z -o here.kv here.kv >/dev/null
	kv-decode -m four --retrieve 'fier budget=20' --ids -n 50 --ignore-eos -z four.kv -o there.kv >/dev/null
	cmp here.kv there.kv
}

@test "rows that were appended become entries, pages and clusters, with stored ones in them, and are read by these" {
	local method
	for method in fier quest quest-eval cluster shadow; do
		kv-decode -m four --retrieve "$method budget=40 dense=1" --ids --ignore-eos -n 400 -o memory.kv four.kv >memory.ids
		kv-decode -m four --retrieve "$method budget=40 dense=1" --ids --ignore-eos -n 400 -o file.kv --offload four.kv | cmp - memory.ids
		cmp memory.kv file.kv
	done
	# 119 rows are 9 clusters, 320 more are 8
	[ "$(see file.kv '[len(m) // 48 for l in s.layers for m in l.clusters.means] == [17] * 10')" = True ]
	# that snapshot, which has rows behind its indexes, is read from its file in turn, with all of them and with one
	for method in fier quest cluster shadow; do
		snapshots file four --retrieve "$method budget=40 dense=1"
		same file four --retrieve "$method budget=40 dense=1"
	done
	# 80 rows of the file and 240 new ones become clusters
	for offload in "" --offload; do
		kv-decode -m four --retrieve 'cluster budget=40 dense=1' --ids --ignore-eos -n 300 $offload --stats "long$offload.json" file.kv >"long$offload.ids"
	done
	cmp long.ids long--offload.ids
	assert_equal "$(json long--offload.json 'o["all"]["index_bytes"]')" "$(json long.json 'o["all"]["index_bytes"]')"
}

@test "several texts at once, some of them larger, say what each says alone" {
	local method f
	for method in fier shadow; do
		for f in four.kv whole.kv four.kv; do
			kv-decode -m four --retrieve "$method budget=20" --ids --ignore-eos -n 40 $f | as_line --ids
		done >alone.ids
		mkdir -p $method.out $method.far
		kv-decode -m four --retrieve "$method budget=20" --ids --ignore-eos -n 40 --offload --batch 2 four.kv whole.kv four.kv | cmp - alone.ids
		kv-decode -m four --retrieve "$method budget=20" -n 40 -o $method.out four.kv whole.kv >/dev/null
		kv-decode -m four --retrieve "$method budget=20" -n 40 -o $method.far --offload four.kv whole.kv >/dev/null
		diff -r $method.out $method.far
	done
}

@test "a snapshot larger than memory is decoded, where all rows in memory find no room" {
	not_under_sanitizers "it reserves more addresses than any limit"
	random_model wide --heads 8 --kv-heads 8 --head-dim 128 --hidden 64 --seed 6 --layers 4 --dtype f32 --std 0.2
	seq 1 1500 | kv-prefill -m wide --ids | kv-quantize1b | kv-index --low-rank --rank 16 --outliers 8 -o wide.kv
	[ "$(stat -c %s wide.kv)" -gt $((50 << 20)) ]
	local method
	for method in fier shadow; do
		read=(kv-decode -m wide -j 1 --retrieve "$method budget=32 dense=0" --ids --ignore-eos -n 20)
		"${read[@]}" wide.kv >want.ids
		run -1 bash -c "ulimit -d 40960; ${read[*]@Q} wide.kv"
		assert_output --partial 'no room for wide.kv'
		(ulimit -d 40960; "${read[@]}" --offload wide.kv) | cmp - want.ids
	done
}

@test "where addresses are limited the file is not mapped, and the text is the same" {
	not_under_sanitizers "it reserves more addresses than any limit"
	local method f
	for method in fier quest shadow; do
		for f in four whole; do
			read=(kv-decode -v -m four --retrieve "$method budget=20 dense=0" --ids --ignore-eos -n 40 --offload "$f.kv")
			"${read[@]}" >want.ids 2>err
			grep -q 'layers 0 to 4 are in the file, mapped$' err
			(ulimit -v 8000000; "${read[@]}") 2>err | cmp - want.ids
			grep -q 'layers 0 to 4 are in the file$' err
		done
	done
}

@test "what cannot go with rows in a file is refused with the reason" {
	refused() {
		run -"$1" --separate-stderr kv-decode -m four --ids -n 3 --retrieve "$3 budget=20" "${@:4}"
		assert_regex "$stderr" "$2"
	}
	refused 2 '--audit does not go with --offload' fier --offload --audit four.kv
	refused 2 '--device-memory is for --retrieve specontext; with fier use --offload' fier --device-memory 100m four.kv
	refused 2 'an eviction would drop the index' shadow --offload --score knorm --evict budget=30 four.kv
	refused 2 'entries that one adds to an index stay for the next' fier --offload --questions text.ids four.kv
	refused 2 '--mass does not go with --retrieve' fier --offload --mass -o x.kv four.kv
	run -2 --separate-stderr kv-decode -m four --ids --offload four.kv
	assert_regex "$stderr" '--offload: nothing is chosen without --retrieve'
	kv-prefill -m four --ids -o bare.kv text.ids
	refused 1 'has no keys in one bit \(bITS\)' fier --offload bare.kv
	kv-prefill -m four --ids text.ids | kv-quantize1b -z -g 16 -o packed.kv
	refused 1 'packed.kv: KEYS of layer 0 is compressed \(-z\), or not in a file' fier --offload packed.kv
	run -1 --separate-stderr kv-decode -m four --ids -n 3 --retrieve 'fier budget=20' --offload - < <(cat four.kv)
	assert_regex "$stderr" 'is compressed \(-z\), or not in a file'
}

@test "a file that changes while its rows are read ends the program, before a snapshot of it is there" {
	cp four.kv x.kv
	kv-decode -m four --retrieve 'fier budget=20' --ids --ignore-eos -n 200000 --offload -o out.kv x.kv >out.ids 2>err &
	for _ in $(seq 300); do
		[ ! -s out.ids ] || break
		sleep 0.1
	done
	touch x.kv
	wait $! && return 1
	assert_regex "$(cat err)" 'x.kv has changed while its rows were read from it'
	[ ! -e out.kv ]
	# after the last token, too, when the snapshot waits for a reader
	mkfifo out.pipe
	kv-decode -m four --retrieve 'fier budget=20' --ids --ignore-eos -n 3 --offload -o out.pipe x.kv >out.ids 2>err &
	for _ in $(seq 300); do
		[ "$(wc -l <out.ids)" -lt 3 ] || break
		sleep 0.1
	done
	sleep 0.3
	touch x.kv
	cat out.pipe >out.kv
	wait $! && return 1
	assert_regex "$(cat err)" 'x.kv has changed while its rows were read from it'
	run -3 kv-check -q out.kv
}

@test "a file that is changed and dated back is noticed, one that is renamed and removed is not" {
	local status change ended
	while read -r status change; do
		cp four.kv x.kv
		touch -d 2001-01-01 x.kv
		mkfifo dated.pipe
		kv-decode -m four --retrieve 'fier budget=20' --ids --ignore-eos -n 3 --offload -o dated.pipe x.kv >out.ids 2>err 3>&- &
		for _ in $(seq 300); do
			[ "$(wc -l <out.ids)" -lt 3 ] || break
			sleep 0.1
		done
		eval "$change"
		cat dated.pipe >out.kv
		wait $! && ended=0 || ended=$?
		echo "$change: $(cat err)"
		assert_equal $ended "$status"
		assert_equal "$(grep -c 'x.kv has changed while its rows were read from it' err)" "$status"
		rm -f x.kv dated.pipe
	done <<-END
		1 printf flip | dd of=x.kv bs=1 seek=$(($(stat -c %s four.kv) / 2)) conv=notrunc status=none; touch -d 2001-01-01 x.kv
		0 mv x.kv y.kv; rm y.kv
		0 chmod 600 x.kv
	END
}

@test "of several texts only the one fails whose file changes while it is saved" {
	cp four.kv x.kv
	mkdir -p two.out
	mkfifo two.out/x.kv
	kv-decode -v -m four --retrieve 'fier budget=20' --ids --ignore-eos -n 3 --offload -o two.out x.kv whole.kv >two.ids 2>err &
	for _ in $(seq 300); do
		! grep -q 'x.kv: 3 tokens' err || break
		sleep 0.1
	done
	sleep 0.3
	touch x.kv
	cat two.out/x.kv >cut.kv
	wait $! && return 1
	assert_equal "$(grep changed err)" "kv-decode: x.kv has changed while its rows were read from it"
	run -3 kv-check -q cut.kv
	kv-decode -m four --retrieve 'fier budget=20' --ids --ignore-eos -n 3 -o one.out.kv whole.kv >one.ids
	cmp two.out/whole.kv one.out.kv
	diff two.ids <(echo; as_line --ids <one.ids)
}
