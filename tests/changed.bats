#!/usr/bin/env bats
# Files that another program cuts short, or writes anew, while they are read: said with the name, never a signal, and nothing is
# left behind.

load helper

setup_file() {
	load helper
	cd "$BATS_FILE_TMPDIR" || return
	printf 'The access code of Marlow is K742. The boat lay in the harbour. What is the access code of Marlow?' >doc.txt
	kv-prefill -m "$DEMO" --observe 4 -o doc.kv doc.txt
	kv-score --method knorm doc.kv | kv-evict --rate 0.5 | kv-score --method knorm -o short.kv
	kv-score --method knorm -o long.kv doc.kv
}

setup() {
	cd "$BATS_TEST_TMPDIR" || exit 1
	ln -s "$BATS_FILE_TMPDIR"/* .
}

# one I: the Ith of a hundred runs
one() {
	case $(($1 % 8)) in
	0) kv-decode -q -m "$DEMO" -n 1 z.kv ;;
	1) kv-decode -q -m "$DEMO" -n 1 long.kv z.kv ;;
	2) kv-score --method random -o out.kv z.kv ;;
	3) kv-evict --rate 0.5 -o out.kv z.kv ;;
	4) kv-evict --rate 0.5 -z -o out.kv z.kv ;;
	5) kv-quantize1b -o out.kv z.kv ;;
	6) kv-diff z.kv long.kv ;;
	7) kv-check z.kv ;;
	esac >text 2>said
}

@test "a hundred runs beside a program that writes their snapshot: an answer, or damage with the name, and nothing else" {
	local i status writer
	cp long.kv z.kv
	(while :; do
		cat short.kv >z.kv
		cat long.kv >z.kv
	done) 3>&- &
	writer=$!
	for i in $(seq 100); do
		status=0
		one "$i" || status=$?
		echo "$status of $i: $(cat said)"
		[ $status -eq 0 ] || { [ $status -eq 3 ] && grep -q 'z\.kv' said; } || break
		[ -z "$(find . -name 'out.kv.*')" ] || break
		# the other text of a batch has its answer
		((i % 8 != 1)) || [ -s text ] || break
	done
	kill $writer
	wait $writer || :
	assert_equal "$i" 100
}

@test "weights that are cut while a model runs: their name, 3, and nothing is left of the output" {
	local status=0
	cp -r "$DEMO" model
	chmod -R u+w model
	mkfifo text
	kv-prefill -m model --logits out.npy -o out.kv --report record text 2>said 3>&- &
	exec 4>text             # it opens the text when the model is open
	truncate -s 4096 model/model.safetensors
	cat doc.txt >&4
	exec 4>&-
	wait $! || status=$?
	assert_equal "$status" 3
	assert_equal "$(cat said)" "kv-prefill: $PWD/model/model.safetensors: cut short while it was in use"
	assert_equal "$(find . -name 'out.*')" ''
	json record "o['program'], o['status'], len(o)" | grep -x "('kv-prefill', 3, [5-6])"
}
