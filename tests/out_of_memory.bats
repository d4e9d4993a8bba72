#!/usr/bin/env bats
# bats file_tags=nosan
# When memory runs out: one allocation after another fails, and no program may write anything wrong, crash, or leave an unfinished file.
#
# Of each program about 20 allocations are taken, with ALL 100, spread evenly over all that it makes. EVERY=1 takes all of them: some 25
# minutes.

load helper

setup_file() {
	load helper
	not_under_sanitizers "its malloc() is another one"
	cd "$BATS_FILE_TMPDIR" || return
	cp "$O/tests/bin/failing_malloc.so" .   # LD_PRELOAD ends a name at a space
	head -c 300 "$ROOT/examples/prompts/harbour.txt" >doc.txt
	kv-prefill -m "$DEMO" --observe 8 -o doc.kv doc.txt
	kv-score --method snapkv -o scored.kv doc.kv
	echo 17 18 19 >ids
}

setup() {
	cd "$BATS_FILE_TMPDIR" || exit 1
	not_under_sanitizers "its malloc() is another one"
	export LC_ALL=C KV_DEVICE=cpu           # a failing malloc() in the CUDA runtime is not ours
}

# attempt N PROGRAM ...: with the Nth allocation failing; its exit status
attempt() {
	rm -f out.kv
	FAIL_AT=$1 LD_PRELOAD=$PWD/failing_malloc.so timeout 60 "${@:2}" >got 2>said
}

# alike FILE: JSON without the times in it, in place
alike() {
	sed -Ei 's/"(load|generate)": [0-9.e-]+/"\1": 0/g' "$1"
}

# survives PROGRAM ...: whichever allocation fails, the program either ends with 0 and writes what it always does, or says why not. What it
# writes goes to standard output or to out.kv.
survives() {
	local n step status left bad=0 about=20
	rm -rf out.kv want.kv
	COUNT_TO=$PWD/count LD_PRELOAD=$PWD/failing_malloc.so "$@" >want
	[ ! -e out.kv ] || mv out.kv want.kv
	! all_cases || about=100
	step=$(($(cat count) / about + 1))
	[ "${EVERY:-0}" = 0 ] || step=1
	alike want
	# LAST=N: the last N ones too, which end a text, a list, a stream
	for n in $(seq 1 $step "$(cat count)") $(seq $(($(cat count) - ${LAST:-1} + 1)) "$(cat count)"); do
		status=0
		attempt "$n" "$@" || status=$?
		alike got
		if [ $status = 0 ]; then
			cmp -s want got && { [ ! -e want.kv ] || cmp -s want.kv out.kv; } || { echo "allocation $n of $*: ends with 0, and the output is wrong"; bad=1; }
		elif [ $status -gt 5 ]; then
			echo "allocation $n of $*: ends with status $status: $(tail -n 1 said)"
			bad=1
		elif [ ! -s said ]; then
			echo "allocation $n of $*: fails without a word"
			bad=1
		elif [ $status != 1 ]; then
			echo "allocation $n of $*: blames something else, status $status: $(tail -n 1 said)"
			bad=1
		fi
		if left=$(compgen -G 'out.kv.*'); then
			echo "allocation $n of $*: leaves $left"
			bad=1
			rm -f out.kv.*
		fi
	done
	rm -f want want.kv
	[ $bad = 0 ]
}

@test "out of memory, kv-info: it says so, or prints what it always does" {
	survives kv-info doc.kv
	survives kv-info --json doc.kv
}

@test "out of memory, kv-score and kv-evict: they say so, or write what they always do" {
	survives kv-score --method snapkv -o out.kv doc.kv
	survives kv-evict --rate 0.5 -o out.kv scored.kv
	survives kv-evict --rate 0.5 --policy global scored.kv
}

@test "out of memory, kv-tokenize: no token is lost" {
	survives kv-tokenize -m "$DEMO" doc.txt
}

@test "out of memory, kv-chat: no message and no markup is lost" {
	"$PYTHON" "$ROOT/tests/bin/mkchat.py" chat
	echo '{"eos_token_id": 658}' >chat/config.json
	echo '[{"role": "user", "content": [{"type": "text", "text": " a "}]}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}]' >messages
	survives kv-chat -m chat --template qwen2.5 messages
	survives kv-chat -m chat --template deepseek-r1 --continue --open --user-file doc.txt
	survives kv-chat -m chat --template chatml --questions doc.txt
	# parts of a message that are longer than what a stream in memory begins with
	"$PYTHON" -c 'import json
part = {"type": "text", "text": "abc " * 2300}
print(json.dumps([{"role": "user", "content": [part, part]}]))' >long
	survives kv-chat -m chat --template chatml long
}

@test "out of memory, kv-prefill: the snapshot is whole and of the right model, or is not there" {
	survives kv-prefill -m "$DEMO" --observe 8 -o out.kv doc.txt
}

@test "out of memory, kv-prefill that scores and evicts: the snapshot is whole, or is not there" {
	survives kv-prefill -m "$DEMO" -c 40 --score 'snapkv window=4' --evict rate=0.5 -o out.kv doc.txt
}

@test "out of memory, learned tokens: queries and rows are right, or there is no snapshot" {
	"$PYTHON" "$ROOT/tests/bin/mkadapter.py" learned --model "$DEMO"
	survives kv-observe -m "$DEMO" --lookahead learned -o out.kv doc.kv
	survives kv-prefill -m "$DEMO" --score lookahead=learned --evict rate=0.5 -o out.kv doc.txt
}

@test "out of memory, kv-decode: the text is right, or is not there" {
	survives kv-decode -m "$DEMO" -n 3 -o out.kv doc.kv
	LAST=40 survives kv-decode -m "$DEMO" -n 3 --json doc.kv
}

@test "out of memory, kv-decode with several snapshots: those that can be are answered" {
	cp doc.kv other.kv
	survives kv-decode -m "$DEMO" -n 3 --batch 2 doc.kv other.kv doc.kv
	LAST=5 survives kv-decode -m "$DEMO" -n 3 doc.kv other.kv
	survives kv-decode -m "$DEMO" -n 3 --json --batch 2 doc.kv other.kv
}

@test "out of memory, kv-decode with questions: all are answered, or it says so" {
	printf 'What?\nWho?\n' >questions
	LAST=40 survives kv-decode -m "$DEMO" -n 3 --json --questions questions doc.kv
}

@test "out of memory, kv-decode with rows that stay in the file: text and snapshot are right, or are not there" {
	kv-quantize1b -g 16 doc.kv | kv-index --low-rank --rank 8 --outliers 2 --chunk-rows 4 -o indexed.kv
	survives kv-decode -m "$DEMO" -n 8 --retrieve 'fier budget=30 dense=1' --offload -o out.kv indexed.kv
	survives kv-decode -m "$DEMO" -n 8 --retrieve 'shadow budget=30 dense=1' --offload -o out.kv indexed.kv
}

# The allocator of jansson is one for the whole process: it belongs to the program, not to a library that a program may link.
@test "only the programs give the JSON library its allocator" {
	cd "$ROOT"
	run grep -rl json_set_alloc_funcs --include='*.c' libkvfile src cpu gpu tools
	assert_output src/cli/json.c
	run nm -D "$O/libkvfile.so"
	refute_output --partial json_set_alloc_funcs
}
