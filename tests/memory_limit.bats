#!/usr/bin/env bats
# bats file_tags=nosan
# Where addresses (ulimit -v) or private memory (ulimit -d) are limited: the sum is looked at before oneDNN, which aborts, is asked for work.
load helper

setup_file() {
	load helper
	not_under_sanitizers "it reserves more addresses than any limit"
	cd "$BATS_FILE_TMPDIR" || return
	head -c 900 "$ROOT/examples/prompts/harbour.txt" >doc.txt
	kv-prefill -m "$DEMO" -o doc.kv doc.txt
}

setup() {
	cd "$BATS_FILE_TMPDIR" || exit 1
	not_under_sanitizers "it reserves more addresses than any limit"
}

# least COMMAND ...: the least limit of addresses in steps of 1 MiB under which the loader can start the program
least() {
	local kib=20480
	until (ulimit -v $kib && "$1" --version) >/dev/null 2>&1; do kib=$((kib + 1024)); done
	echo $kib
}

# whatever_the_limit COMMAND ...: under ever wider limits it says what is missing and ends with 1, until it ends with 0. The limits go on by
# 1 MiB; how often it was refused with a sum stands in $sums.
whatever_the_limit() {
	local kib status=1 more=0
	sums=0
	for ((kib = $(least "$1"); more < 8; kib += 1024)); do
		status=0
		(ulimit -c 0 -v $kib && exec "$@") >out 2>said || status=$?
		[ $status -le 1 ] || fail "$*: $kib KiB: status $status: $(cat said)"
		[ $status = 0 ] || [ -s said ] || fail "$*: $kib KiB: not a word"
		! grep -q ' MiB are free$\| are free$' said || sums=$((sums + 1))
		[ $status = 1 ] || more=$((more + 1))
		[ -z "$(compgen -G 'o.kv.tmp*')" ] || fail "$*: $kib KiB: leaves $(ls)"
	done
}

@test "a prompt that does not fit into the limit is refused with the sum, and not aborted by a library" {
	for threads in 1 2; do
		whatever_the_limit kv-prefill -m "$DEMO" -j $threads -o o.kv doc.txt
		[ $sums -gt 3 ]
	done
	run -1 bash -c "ulimit -v $(($(least kv-prefill) + 6 * 1024)); kv-prefill -m '$DEMO' -j 1 -o o.kv doc.txt"
	assert_output --regexp '^kv-prefill: cpu: needs [0-9.]+ MiB: weights 0\.0, cache of [0-9]+ tokens [0-9.]+, activations [0-9.]+, scratch 0\.0; [0-9.]+ MiB are free$'
}

# activations COMMAND ...: those of the sum with which it is refused, in tenths of a MiB
activations() {
	run -1 bash -c "ulimit -v $(($(least kv-prefill) + 10 * 1024)); \"\$@\"" - "$@"
	assert_output --regexp 'activations [0-9.]+, scratch'
	n=$(sed 's/.*activations \([0-9]*\)\.\([0-9]\).*/\1\2/' <<<"$output")
}

@test "copies of quantised matrices in bf16 count" {
	random_model wide --hidden 512 --ffn 2048 --layers 4
	"$PYTHON" "$ROOT/tests/bin/mkquantised.py" wide int-channel bytes bytes.bf16
	run -1 bash -c "ulimit -v $(($(least kv-prefill) + 30 * 1024)); kv-prefill -q -m bytes -j 1 -o o.kv doc.txt"
	assert_output --regexp '^kv-prefill: cpu: needs [0-9.]+ MiB: weights 22\.8, cache of '
	run -1 bash -c "ulimit -v $(($(least kv-prefill) + 31 * 1024)); kv-prefill -q -m bytes.bf16 -j 1 -o o.kv doc.txt"
	assert_output --regexp '^kv-prefill: cpu: needs [0-9.]+ MiB: weights 0\.[0-9], cache of '
}

@test "the features of a retrieval head count, and of a prompt that runs layer by layer all of them" {
	"$PYTHON" "$ROOT/tests/bin/mkhead.py" wide --model "$DEMO" --hidden 512 --embedding --layers 0,1,2 --head-dim 16
	seq 8 1000 | sed p | sed p | sed p | sed p >long.ids
	tokens=$(wc -l <long.ids)
	features=$((tokens * 512 * 4 * 10 / 1048576))
	for layered in "" "--score knorm --evict rate=0.5"; do
		read=(kv-prefill -m "$DEMO" -j 1 --ids -c 16 -o o.kv long.ids)
		[ -z "$layered" ] || read=(kv-prefill -m "$DEMO" -j 1 --ids --score knorm --evict rate=0.5 -o o.kv long.ids)
		activations "${read[@]}"
		without=$n
		activations "${read[@]}" --retrieval-head wide
		echo "$n with, $without without, $features of features"
		if [ -n "$layered" ]; then
			((n - without >= features - 1 && n - without <= features + 1))
		else
			((n - without <= 1))
		fi
	done
}

# Of 128 query heads and a text of N tokens: a list of scores of all tokens each, and two of rows, which have room for an eighth more.
@test "the lists of retrieval for each query head count: those of the text before weights are read, all when the rows are there" {
	local n=1500 per kib early=() held=() rows text
	"$PYTHON" -c 'import sys
sys.path.insert(0, sys.argv[1] + "/tests/bin")
import family_cases, mkfamily
mkfamily.CASES["many"] = ("DeepseekV2", dict(family_cases.LATENT, num_attention_heads=128, num_key_value_heads=128, q_lora_rank=None))
mkfamily.main(["many", "many", sys.argv[2]])' "$ROOT" "$DEMO/tokenizer.json"
	"$PYTHON" "$ROOT/tests/bin/mkhead.py" many.head --model many --heads 128 --kv-heads 1 --head-dim 12 --alone
	seq 10 $((n + 9)) | sed 's/1[5-9][0-9][0-9]/9/' >many.ids
	kv-prefill -q -m many --retrieval-head many.head --ids --dtype f32 -o many.kv many.ids
	text=$((127 * 4 * n)) rows=$((127 * 2 * 4 * n * 9 / 8))
	for per in kv-head query-head; do
		say=(kv-decode -q -m many -j 1 --ids --ignore-eos -n 1 --retrieve "specontext budget=64 head=many.head per=$per" many.kv)
		: >planned
		for ((kib = $(least kv-decode); ; kib += 256)); do
			(ulimit -c 0 -v $kib && exec "${say[@]}") >out 2>said && break
			[ $kib -lt 1000000 ] || fail "$(cat said)"
			sed -n 's/.*activations \([0-9]*\)\.\([0-9]\), scratch.*/\1\2/p' said >>planned
		done
		early+=("$(head -n 1 planned)")
		held+=("$kib")
	done
	echo "planned ${early[*]}, held ${held[*]}; text $text, rows $rows"
	# tenths of a MiB
	n=$(((10#${early[1]} - 10#${early[0]}) * 1048576 / 10 - text))
	((n > -157286 && n < 157286))
	n=$(((held[1] - held[0]) * 1024 - text - rows))
	((n > -1048576 && n < 1048576))
}

@test "programs without a plan look before the first product" {
	whatever_the_limit kv-index --clusters --cluster-count 8 -j 2 -o o.kv doc.kv
	whatever_the_limit kv-decode -m "$DEMO" -j 2 -n 2 doc.kv
}

@test "a limit of private memory counts as well" {
	run -1 bash -c "ulimit -d 8192; kv-prefill -m '$DEMO' -j 1 -o o.kv doc.txt"
	assert_output --regexp '^kv-prefill: cpu: needs .* MiB are free$'
}

@test "more threads than a device takes are wrong usage, and the limit is named" {
	run -2 kv-prefill -m "$DEMO" -j 100000 doc.txt
	assert_output 'kv-prefill: --threads or KV_THREADS: 100000, want at most 1024, or 0 for all processors'
	KV_THREADS=1025 run -2 kv-score doc.kv
	assert_output --partial 'at most 1024'
}

@test "threads that the system does not grant: it says how many, and why" {
	run -1 bash -c "ulimit -v $(($(least kv-prefill) + 200 * 1024)); kv-prefill -m '$DEMO' -j 500 -o o.kv doc.txt"
	assert_output 'kv-prefill: cpu: cannot start 500 threads: Resource temporarily unavailable'
}

@test "snapshots for which there is no room together take turns, and the answers are the same" {
	local kib more i files=""
	for _ in $(seq 130); do
		echo "The old farmer carried the letter to the market. Nobody waited near the quiet bridge after lunch."
	done | kv-prefill -m "$DEMO" -o big.kv -
	for i in 1 2 3 4 5; do
		ln -sf big.kv $i.kv
		files="$files $i.kv"
	done
	for ((kib = $(least kv-decode); ; kib += 1024)); do
		(ulimit -c 0 -v $kib && kv-decode -m "$DEMO" -j 1 -n 3 big.kv) >out 2>said && break
		[ $kib -lt 1000000 ] || fail "$(cat said)"
	done
	for i in 1 2 3 4 5; do
		cat out
		echo
	done >want
	# Steps smaller than what a step of the batch allocates: its scratch has 98 KiB here.
	: >turns
	for ((more = 0; more < 7168; more += 60)); do
		# shellcheck disable=SC2086 # words
		(ulimit -c 0 -v $((kib + more)) && exec kv-decode -v -m "$DEMO" -j 1 -n 3 $files) >got 2>said ||
			fail "$more KiB more than one needs: $(cat said)"
		cmp want got
		grep '^kv-decode: no room for more than [1-4] at once$' said >>turns || true
	done
	cat turns
	[ "$(sort -u turns | wc -l)" -gt 2 ]
}
